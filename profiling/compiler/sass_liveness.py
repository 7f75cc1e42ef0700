"""How many registers hold a value at each instruction: those that something after it still reads.

A backward analysis over the machine code's control flow, as nvdisasm's own `-plr` is, which refuses code of an
assembler of another generation (Triton 3.7's wheel holds ptxas 12.8 and nvdisasm 13.1) and kernels of 255 registers.
How many registers an operand takes follows from the instruction's name. Sets of registers are bits of an integer.
"""

import re
from typing import Final, NamedTuple

from .sass import Code, Instruction
from .sass_flow import Flow

INSTRUCTIONS_LIMIT: Final = 20_000
STACK_POINTER: Final = 1 << 1
"""R1: kept for the whole kernel, used or not."""
ROUNDS_LIMIT: Final = 60
"""Of passes over the code: one more than loops are nested, and kernels nest few."""

_REGISTER = re.compile(r"(?<![\w.])R(\d{1,3})(\.64)?(?![\w])")
_PLAIN = re.compile(r"[-!~|]*R(\d{1,3}|Z)(?:\.\w+)*\|?")
_PREDICATE = re.compile(r"!?U?P(?:\d|T|R)")
_UNIFORM = re.compile(r"U(?:R\d{1,3}|RZ|P\d)")
_GROUP = re.compile(r"\.64x(\d{1,3})x\d{1,3}\.(\w+)")
_MATRICES = re.compile(r"\.MT?88(?:\.(\d))?(?!\w)")
_VECTOR = re.compile(r"\.(?:F16x2|BF16x2|F32)(?:\.|x(\d))|\.x(\d{1,3})(?!\w)")
_TENSOR_SHAPES: Final = {
    # Registers of A, B and C of one warp's instruction.
    "HMMA.16816.F32": (4, 2, 4),
    "HMMA.16816.F16": (4, 2, 2),
    "HMMA.1688.F32.TF32": (4, 2, 4),
    "HMMA.1688.F32.BF16": (2, 1, 4),
    "HMMA.1688.F32": (2, 1, 4),
    "HMMA.1688.F16": (2, 1, 2),
    "HMMA.1684.F32.TF32": (2, 1, 4),
    "IMMA.16832": (4, 2, 4),
    "IMMA.16816": (2, 1, 4),
    "IMMA.8816": (1, 1, 2),
    "QMMA.16832.F32": (4, 2, 4),
    "QMMA.16832.F16": (4, 2, 2),
    "DMMA.884": (2, 2, 4),
    "DMMA.16x8x4": (4, 2, 8),
    "DMMA.16x8x8": (8, 4, 8),
    "DMMA.16x8x16": (16, 8, 8),
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WIDE: Final = _names("64 S64 U64 F64")
_OF_64_BITS: Final = _names("IADD MOV LEA SEL ISETP IMNMX")
"""What Blackwell has in a form for pairs of registers, with `.64`."""
_STORES: Final = _names("STG STS STL ST STSM STTM RED REDG REDS REDAS")
_GLOBAL: Final = _names("LDG STG LD ST ATOM ATOMG RED REDG")
_NO_RESULT: Final = _STORES | _names(
    "BAR BRA BRX CALL RET EXIT KILL LDGSTS R2UR R2P REDUX CREDUX FCHK VOTEU NANOSLEEP CCTL CCTLL MEMBAR DEPBAR "
    "WARPSYNC SYNCS UTMALDG UTMASTG UTMAREDG UTMAPF UBLKCP UBLKRED UTMACCTL BPT YIELD BSSY BSYNC BREAK ERRBAR "
    "ISETP FSETP DSETP HSETP2 PLOP3 WARPGROUP ELECT UTCHMMA UTCQMMA UTCBAR UMOV RPCMOV ARRIVES"
)


class Live(NamedTuple):
    """Registers that hold a value at each instruction, with those that it reads and writes; or why that is unknown."""

    counts: list[int]
    reason: str | None


def live(code: Code, flow: Flow) -> Live:
    """Counts live registers, in time linear in the number of instructions."""
    instructions = code.instructions
    if not flow.complete:
        return Live([], "it jumps to places that are known only when it runs")
    if flow.calls:
        return Live([], "it calls functions, which share their caller's registers")
    if len(instructions) > INSTRUCTIONS_LIMIT:
        return Live([], f"it has more than {INSTRUCTIONS_LIMIT} instructions")
    effects = [effect(instruction) for instruction in instructions]
    before = [0] * len(instructions)
    for _ in range(ROUNDS_LIMIT):
        changed = False
        for number in range(len(instructions) - 1, -1, -1):
            after = 0
            for following in flow.successors[number]:
                after |= before[following]
            written, read = effects[number]
            # Where a predicate holds it back, what was there before may remain.
            found = (after if instructions[number].guard else after & ~written) | read
            if found != before[number]:
                before[number], changed = found, True
        if not changed:
            break
    else:
        return Live([], "its branches are too tangled")
    counts: list[int] = []
    for number, (written, _) in enumerate(effects):
        held = written | before[number] | STACK_POINTER
        for following in flow.successors[number]:
            held |= before[following]
        counts.append(held.bit_count())
    return Live(counts, None)


def effect(instruction: Instruction) -> tuple[int, int]:
    """Registers that an instruction writes, and those that it reads."""
    root = instruction.root
    operands = [each.strip() for each in instruction.operands.split(",")]
    written = 0
    if root not in _NO_RESULT:
        rest = list(operands)
        while rest and (_PREDICATE.fullmatch(rest[0]) or _UNIFORM.fullmatch(rest[0])):
            rest.pop(0)
        if rest and (match := _PLAIN.fullmatch(rest[0])):
            if match[1] != "Z":
                written = _span(int(match[1]), _result_width(instruction))
            operands = rest[1:]
    sources = [each for each in operands if not _PREDICATE.fullmatch(each)]
    read = 0
    for place, operand in enumerate(sources):
        plain = _PLAIN.fullmatch(operand) is not None
        width = _source_width(instruction, place) if plain else _address_width(instruction, operand)
        for match in _REGISTER.finditer(operand):
            read |= _span(int(match[1]), max(width, 2 if match[2] else 1))
    return written, read


def _span(first: int, width: int) -> int:
    return ((1 << width) - 1) << first


def _result_width(instruction: Instruction) -> int:
    opcode, root = instruction.opcode, instruction.root
    parts = opcode.split(".")
    if root in ("HGMMA", "QGMMA", "IGMMA", "BGMMA"):
        return _group_width(opcode)
    if (shape := _shape(opcode)) is not None:
        return shape[2]
    if root == "CS2R":
        return 1 if "32" in parts else 2
    if root == "F2F":
        return 2 if parts[1:2] == ["F64"] else 1
    if root in ("I2F", "F2I"):
        return 2 if any(part in ("F64", "S64", "U64") for part in _outcome(root, parts)) else 1
    if root in ("LEPC", "DADD", "DFMA", "DMUL", "DMNMX", "FADD2", "FFMA2", "FMUL2"):
        return 2
    if root == "IMAD" and "WIDE" in parts:
        return 2
    if root in ("LDG", "LDS", "LDL", "LDC", "LD", "LDSM", "LDTM", "ATOM", "ATOMG", "ATOMS"):
        return _data_width(opcode)
    return 2 if root in _OF_64_BITS and "64" in parts else 1


def _source_width(instruction: Instruction, place: int) -> int:
    opcode, root = instruction.opcode, instruction.root
    parts = opcode.split(".")
    if root in ("HGMMA", "QGMMA", "IGMMA", "BGMMA"):
        return 4 if place == 0 else _group_width(opcode)
    if (shape := _shape(opcode)) is not None:
        return shape[min(place, 2)]
    if root == "IMAD" and "WIDE" in parts:
        return 2 if place == 2 else 1
    if root in ("DADD", "DFMA", "DMUL", "DMNMX", "DSETP", "FADD2", "FFMA2", "FMUL2", "RET"):
        return 2
    if root == "F2F":
        return 2 if "F64" in parts[2:] else 1
    if root == "F2I":
        return 2 if "F64" in parts else 1
    if root == "I2F":
        return 2 if "S64" in parts or "U64" in parts else 1
    if root in _STORES or root in ("ATOM", "ATOMG", "ATOMS"):
        return _data_width(opcode)
    return 2 if root in _OF_64_BITS and "64" in parts else 1


def _address_width(instruction: Instruction, operand: str) -> int:
    """Of a register within brackets: with `.E` a global address has 64 bits, whether `.64` is printed or not."""
    wide = instruction.root in _GLOBAL and "E" in instruction.opcode.split(".") and ".U32" not in operand
    return 2 if wide else 1


def _outcome(root: str, parts: list[str]) -> list[str]:
    """The parts of a conversion's name that tell its result's type."""
    return [part for part in parts if (part == "F64") == (root == "I2F")]


def _data_width(opcode: str) -> int:
    if matrices := _MATRICES.search(opcode):
        return int(matrices[1] or 1)
    if vector := _VECTOR.search(opcode):
        return int(vector[1] or vector[2] or 1)
    parts = opcode.split(".")
    if not _WIDE.isdisjoint(parts):
        return 2
    return 8 if "256" in parts else 4 if "128" in parts else 1


def _group_width(opcode: str) -> int:
    """A warp group's tile of 64 rows: 128 threads hold it."""
    match = _GROUP.search(opcode)
    if match is None:
        return 1
    columns = int(match[1])
    return max(columns // 4 if match[2] == "F16" else columns // 2, 1)


def _shape(opcode: str) -> tuple[int, int, int] | None:
    if "MMA" not in opcode:
        return None
    return next((shape for name, shape in _TENSOR_SHAPES.items() if opcode.startswith(name)), None)
