"""Which Python line each memory access, barrier, matrix instruction and costly arithmetic of a kernel's PTX comes from.

PTX says where its instructions come from in `.loc` directives: `.loc 2 293 36 // standard.py:293:36 @[ k.py:9:15 ]`, or
with `inlined_at 1 9 15` instead of the comment. A line is the innermost one in the kernel's own file: what was inlined
from Triton's library counts where it was called. The text comes from a worker and is not trusted: everything here
takes time linear in its length and raises nothing.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final, Literal, NamedTuple

from ...sandbox.wire import Wire
from . import ptx

SiteKind = Literal[
    "load", "store", "async_copy", "tma_copy", "atomic", "shared_load", "shared_store",
    "barrier", "mbarrier", "shuffle", "mma", "multiply", "fused_multiply", "division", "fp64",
    "integer_division", "wide_multiply", "select", "call",
]  # fmt: skip
"""Loads and stores are of global memory; `multiply`, `fused_multiply` and `division` of floats below 64 bits;
`wide_multiply` of 64-bit integers; `integer_division` has a remainder's too."""
ROWS_LIMIT: Final = 1_000
"""Of a table: a kernel of ours has far fewer distinct ones."""
INSTRUCTION_CHARACTERS: Final = 80

_FILE = re.compile(r'\.file\s+(\d{1,6})\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOC = re.compile(r"\.loc\s+(\d{1,6})\s+(\d{1,9})\s+(\d{1,9})")
_INLINED_AT = re.compile(r"inlined_at\s+(\d{1,6})\s+(\d{1,9})\s+(\d{1,9})")
# Only from the start of a word, so that a long one is looked at once.
_FRAME = re.compile(r"(?<![^\s:@\[\]])([^\s:@\[\]]{1,255}):(\d{1,9}):\d{1,9}")
_LABEL = re.compile(r"\s*([\w$]+):(?!:)")
_BRANCH = re.compile(r"(?<![\w.%$])bra(?:\.uni)?\s+([\w$]+)")
_SEMANTICS = ("acq_rel", "acquire", "release", "relaxed", "volatile", "weak")


class PtxSite(Wire):
    """Instructions of one kind and form on one line."""

    line: int | None
    """In the kernel file; null where the compiler does not say."""
    kind: SiteKind
    instruction: str
    """Without operands, such as `ld.global.v4.b32`."""
    width_bytes: int | None
    """That one thread moves by one instruction; null for kinds that move none, and for TMA."""
    vector: int
    """Elements of a vector access; 1 for others."""
    semantics: str | None
    """Ordering of an atomic: `relaxed`, `acquire`, `release` or `acq_rel`."""
    in_loop: bool
    count: int
    """Instructions in the text, not executions."""


class _Statement(NamedTuple):
    text: str
    line: int | None


class _Position(NamedTuple):
    file: str
    line: int
    column: int


class _Lines:
    """The line in the kernel file that `.loc` directives mean."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._kernel: str | None = None
        """Number of the kernel's file: that of the function's first position."""
        self._known: dict[_Position, int | None] = {}

    def line(self, directive: str) -> int | None:
        match = _LOC.search(directive)
        if match is None:
            return None
        place = _Position(match[1], int(match[2]), int(match[3]))
        self._kernel = self._kernel or place.file
        if place.file == self._kernel:
            found = place.line or None
        elif inlined := _INLINED_AT.search(directive):
            around = _Position(inlined[1], int(inlined[2]), int(inlined[3]))
            found = around.line if around.file == self._kernel else self._known.get(around)
        else:
            found = self._from_comment(directive.partition("//")[2])
        self._known[place] = found
        return found

    def _from_comment(self, comment: str) -> int | None:
        own = self._names.get(self._kernel or "")
        frames = iter(_FRAME.findall(comment))
        next(frames, None)  # the position itself, in another file, whose name may be the same
        return next((int(line) or None for name, line in frames if name == own), None)


def sites(text: str) -> list[PtxSite]:
    """The table of one kernel's PTX, in order of first appearance; at most `ROWS_LIMIT` rows."""
    code = ptx.without_block_comments(text)
    tables = ptx.table_registers(ptx.strip_debug(text))
    statements = list(_statements(code))
    in_loop = _in_loops([statement.text for statement in statements])
    rows: Counter[PtxSite] = Counter()
    for (statement, line), looped in zip(statements, in_loop, strict=True):
        site = _site(statement, line, looped, tables)
        if site is not None and (site in rows or len(rows) < ROWS_LIMIT):
            rows[site] += 1
    return [site.model_copy(update={"count": count}) for site, count in rows.items()]


def _statements(code: str) -> Iterator[_Statement]:
    names = {match[1]: PurePosixPath(match[3] or match[2]).name for match in _FILE.finditer(code)}
    lines = _Lines(names)
    here: int | None = None
    pending: list[str] = []
    for line in ptx.outside_sections(code.splitlines()):
        if line.lstrip().startswith(".loc"):
            here = lines.line(line)
            continue
        *ended, rest = line.partition("//")[0].split(";")
        for end in ended:
            yield _Statement("\n".join([*pending, end]), here)
            pending = []
        pending.append(rest)


def _in_loops(statements: list[str]) -> list[bool]:
    """Whether each statement lies between a label and a branch back to it."""
    labels: dict[str, int] = {}
    depth = [0] * (len(statements) + 1)
    for number, statement in enumerate(statements):
        for line in statement.split("\n"):
            if label := _LABEL.match(line):
                labels[label[1]] = number
        branch = _BRANCH.search(statement)
        if branch and branch[1] in labels:
            depth[labels[branch[1]]] += 1
            depth[number + 1] -= 1
    found: list[bool] = []
    around = 0
    for change in depth[:-1]:
        around += change
        found.append(around > 0)
    return found


def _site(statement: str, line: int | None, in_loop: bool, tables: set[str]) -> PtxSite | None:
    found = ptx.instruction(statement)
    kind = _kind(found, tables) if found else None
    if found is None or kind is None:
        return None
    width: int | None = None
    if kind == "async_copy":
        size = ptx.COPY_BYTES.search(found.operands)
        width = int(size[1], 0) if size else 0
    elif kind in ("load", "store"):
        width = ptx.width_bytes(found.parts)
    return PtxSite(
        line=line,
        kind=kind,
        instruction=".".join((found.root, *found.parts))[:INSTRUCTION_CHARACTERS],
        width_bytes=width,
        vector=next((int(match[1]) for part in found.parts if (match := ptx.VECTOR.fullmatch(part))), 1),
        # PTX ISA: without a qualifier, atom and red are relaxed.
        semantics=next((each for each in _SEMANTICS if each in found.parts), "relaxed") if kind == "atomic" else None,
        in_loop=in_loop,
        count=1,
    )


def _kind(found: ptx.Instruction, tables: set[str]) -> SiteKind | None:
    root, parts, operands = found
    match root:
        case "ld" | "st" if "global" in parts:
            address = ptx.ADDRESS.search(operands)
            own = address is None or address[1] not in tables
            return ("load" if root == "ld" else "store") if own else None
        case "ld" | "ldmatrix" if ptx.is_shared(parts):
            return "shared_load"
        case "st" | "stmatrix" if ptx.is_shared(parts):
            return "shared_store"
        case "atom" | "red" if not ptx.is_shared(parts):
            return "atomic"
        case "cp" if "bulk" in parts:
            return "tma_copy" if "tensor" in parts and "prefetch" not in parts else None
        case "cp" if "global" in parts:
            return "async_copy"
        case "bar" | "barrier" if "warp" not in parts:
            return "barrier"
        case "mbarrier":
            return "mbarrier"
        case "wgmma" if parts[0] == "mma_async":
            return "mma"
        case "tcgen05" if parts[0] == "mma":
            return "mma"
        case "mma" if "sync" in parts:
            return "mma"
        case "shfl":
            return "shuffle"
        case "selp":
            return "select"
        case "call":
            return "call"
        case _:
            return _arithmetic(root, parts)


def _arithmetic(root: str, parts: list[str]) -> SiteKind | None:
    operand = parts[-1]
    match root:
        case "add" | "sub" | "mul" | "fma" | "div" | "cvt" if "f64" in parts:
            return "fp64"
        case "div" | "rem":
            return "division" if "f" in operand else "integer_division"
        case "mul" if "f" in operand:
            return "multiply"
        case "fma":
            return "fused_multiply"
        case "mul" | "mad" if operand in ("s64", "u64"):
            return "wide_multiply"
        case _:
            return None
