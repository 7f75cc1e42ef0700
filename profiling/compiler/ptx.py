"""What a kernel's PTX says: which tensor-core instructions it uses and how it touches global memory.

Counts are of instructions in the text, not of executions. The text comes from a worker and is not trusted:
everything here takes time linear in its length and raises nothing.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Mma = Literal["wgmma", "mma", "tcgen05", "none"]
"""Tensor-core generation in use: warp group (Hopper), warp (Ampere, Ada, fallback on newer), tensor memory
(Blackwell), or none."""

# Strings and line comments are matched so that nothing is looked for within them.
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"|//[^\n]*|/\*.*?\*/|/\*.*\Z', re.DOTALL)
_LINE_COMMENT = re.compile(r"//[^\n]*")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_INSTRUCTION = re.compile(
    r"(?<![\w.%$])"
    r"(ld|st|atom|red|cp|mma|wgmma|tcgen05|barrier|bar|mbarrier|ldmatrix|stmatrix|shfl|call|selp|cvt"
    r"|add|sub|mul|mad|fma|div|rem)((?:\.[\w:]+)+)(.*)",
    re.DOTALL,
)
# Any instruction at all, with the directives, labels, braces and the predicate that stand before it.
_ANY = re.compile(r"(?:\s|\.[^\n]*\n|[\w$]+:(?!:)|[{}]|@!?%\w+\s)*[a-z]\w*(?:\.[\w:]+)*(?:\s|$)")
_ELEMENT = re.compile(r"(?:b|u|s|f|bf)(\d{1,3})")
VECTOR = re.compile(r"v(\d{1,2})")
COPY_BYTES = re.compile(r"\],\s*(0x[0-9a-fA-F]{1,4}|[1-9]\d{0,4})\b")
ADDRESS = re.compile(r"\[\s*(%\w+)")

_COPY = re.compile(r"(?:mov|cvta(?:\.to)?(?:\.global)?|add)\.\w+\s+(%\w+),\s*([%\w$]+)")


@dataclass(frozen=True, slots=True)
class PtxFacts:
    """Facts of one kernel's PTX. Widths map bytes per thread and access to the number of such instructions,
    widest first."""

    entry: str | None
    instructions: int
    """Of all kinds, those of helper functions included."""
    mma: Mma
    mma_instructions: int
    async_copies: int
    """`cp.async` of 4, 8 or 16 bytes; they also count as loads."""
    tma_copies: int
    """`cp.async.bulk.tensor`, loads and stores."""
    load_widths_bytes: dict[int, int]
    store_widths_bytes: dict[int, int]
    atomics: int
    """`atom` and `red` on global memory."""
    acq_rel_atomics: int
    """Those of them that order other memory accesses too."""


class Instruction(NamedTuple):
    """`root.part.part operands`, without its predicate."""

    root: str
    parts: list[str]
    operands: str


def strip_debug(ptx: str) -> str:
    """The PTX without comments and debug sections."""
    code = without_block_comments(ptx)
    return "\n".join(outside_sections(_LINE_COMMENT.sub("", code).splitlines()))


def without_block_comments(ptx: str) -> str:
    """The PTX without what stands between `/*` and `*/`; in a line comment or a string these mean nothing."""
    return _COMMENT.sub(lambda match: "" if match[0].startswith("/*") else match[0], ptx)


def outside_sections(lines: list[str]) -> Iterator[str]:
    """The lines that are no part of a debug section."""
    inside = False
    for line in lines:
        inside = inside or line.lstrip().startswith(".section")
        if not inside:
            yield line
        elif "}" in line:
            inside = False


def parse(ptx: str) -> PtxFacts:
    """Reads the PTX of one kernel, as Triton leaves it: compiler output mixed with inline assembly."""
    code = strip_debug(ptx)
    tables = table_registers(code)
    mma: Counter[Mma] = Counter()
    loads: Counter[int] = Counter()
    stores: Counter[int] = Counter()
    async_copies = tma_copies = atomics = acq_rel = 0
    for root, parts, operands in _instructions(code):
        match root:
            case "ld" | "st" if "global" in parts:
                address = ADDRESS.search(operands)
                if address is None or address[1] not in tables:
                    (loads if root == "ld" else stores)[width_bytes(parts)] += 1
            case "atom" | "red" if not is_shared(parts):
                atomics += 1
                acq_rel += "acq_rel" in parts
            case "cp" if "bulk" in parts:
                tma_copies += "tensor" in parts and "prefetch" not in parts
            case "cp" if "global" in parts:
                async_copies += 1
                size = COPY_BYTES.search(operands)
                loads[int(size[1], 0) if size else 0] += 1
            case "wgmma" if parts[0] == "mma_async":
                mma["wgmma"] += 1
            case "tcgen05" if parts[0] == "mma":
                mma["tcgen05"] += 1
            case "mma" if "sync" in parts:
                mma["mma"] += 1
            case _:
                pass
    newest = _newest(mma)
    entry = _ENTRY.search(code)
    return PtxFacts(
        entry=entry[1] if entry else None,
        instructions=sum(_ANY.match(statement) is not None for statement in code.split(";")),
        mma=newest,
        mma_instructions=mma[newest],
        async_copies=async_copies,
        tma_copies=tma_copies,
        load_widths_bytes=dict(sorted(loads.items(), reverse=True)),
        store_widths_bytes=dict(sorted(stores.items(), reverse=True)),
        atomics=atomics,
        acq_rel_atomics=acq_rel,
    )


def _newest(used: Counter[Mma]) -> Mma:
    if used["tcgen05"]:
        return "tcgen05"
    if used["wgmma"]:
        return "wgmma"
    return "mma" if used["mma"] else "none"


def _instructions(code: str) -> Iterator[Instruction]:
    for statement in code.split(";"):
        if found := instruction(statement):
            yield found


def instruction(statement: str) -> Instruction | None:
    """The instruction of a statement, where it is of a kind that is looked at here."""
    match = _INSTRUCTION.search(statement)
    return Instruction(match[1], match[2].lstrip(".").split("."), match[3]) if match else None


def width_bytes(parts: list[str]) -> int:
    """Bytes that one thread moves: `global.v4.b32` is 16."""
    vector = next((int(match[1]) for part in parts if (match := VECTOR.fullmatch(part))), 1)
    element = _ELEMENT.fullmatch(parts[-1])
    return vector * int(element[1]) // 8 if element else 0


def is_shared(parts: list[str]) -> bool:
    """Whether an instruction works on shared memory."""
    return any(part.split("::")[0] == "shared" for part in parts)


def table_registers(code: str) -> set[str]:
    """Registers that hold addresses inside the module's own arrays, such as sine's reduction constants."""
    heads = (line.partition("[")[0].split() for line in code.splitlines() if "[" in line)
    known = {words[-1] for words in heads if len(words) > 1 and words[0] == ".global"}
    if not known:
        return set()
    for match in _COPY.finditer(code):
        if match[2] in known:
            known.add(match[1])
    return known
