"""Machine code as nvdisasm prints it: its instructions, what each is for, and the Python line that it comes from.

`nvdisasm -gi` puts a marker before the instructions of a line, `//## File "/k.py", line 9`, or one for each frame of
inlined code, the innermost first: `//## File "/standard.py", line 293 inlined at "/k.py", line 9`. Where the compiler
kept no frames, as Triton's up to 3.8, what the PTX says of a library's line is used, if it was called from one line
only. The texts come from a worker and are not trusted: everything here takes time linear in their lengths and raises
nothing.
"""

import re
from pathlib import PurePosixPath
from typing import Final, Literal, NamedTuple

from ...sandbox import facts

SassKind = Literal[
    "tensor", "fp32", "fp64", "fp16", "integer", "conversion", "special", "move", "constant",
    "global_load", "global_store", "shared_load", "shared_store", "local_load", "local_store", "generic",
    "async_copy", "tma", "atomic", "warp", "barrier", "control", "other",
]  # fmt: skip

INSTRUCTIONS_LIMIT: Final = 50_000
"""Kernels of ours have fewer than ten thousand."""
LINE_CHARACTERS: Final = 1_000

_ROOTS: Final[dict[SassKind, str]] = {
    # CUDA Binary Utilities, instruction set reference.
    "tensor": "HMMA HGMMA IMMA IGMMA BMMA BGMMA DMMA QGMMA QMMA OMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA",
    "fp32": "FADD FADD2 FADD32I FFMA FFMA2 FFMA32I FMUL FMUL2 FMUL32I FMNMX FMNMX3 FSEL FSET FSETP FCHK FSWZADD",
    "fp64": "DADD DFMA DMUL DMNMX DSETP",
    "fp16": "HADD2 HADD2_32I HFMA2 HFMA2_32I HMUL2 HMUL2_32I HMNMX2 VHMNMX HSET2 HSETP2",
    "integer": "BMSK BREV FLO IABS IADD IADD3 IADD32I IDP IDP4A IMAD IMNMX IMUL ISCADD ISETP LEA LOP LOP3 LOP32I POPC "
    "PLOP3 SGXT SHF SHL SHR VABSDIFF VIADD VIADDMNMX VIMNMX VIMNMX3 UBMSK UBREV UFLO UIABS UIADD3 UIMAD UISETP ULEA "
    "ULOP ULOP3 ULOP32I UPLOP3 UPOPC USGXT USHF USHL USHR UVIADD UVIMNMX",
    "conversion": "F2F F2FP F2I F2IP FRND I2F I2FP I2I I2IP UF2FP UI2FP UF2F UF2I UI2F",
    "special": "MUFU UMUFU",
    "move": "MOV MOV32I MOVM SEL PRMT CS2R S2R S2UR R2UR P2R R2P B2R R2B UMOV USEL UPRMT UP2UR UR2UP LEPC GETLMEMBASE",
    "constant": "LDC ULDC LDCU",
    "global_load": "LDG",
    "global_store": "STG",
    "shared_load": "LDS LDSM",
    "shared_store": "STS STSM",
    "local_load": "LDL",
    "local_store": "STL",
    "generic": "LD ST LDTM STTM",
    "async_copy": "LDGSTS",
    "tma": "UTMALDG UTMASTG UTMAREDG UTMAPF UBLKCP UBLKPF UBLKRED UTMALST",
    "atomic": "ATOM ATOMG ATOMS RED REDG REDS REDAS",
    "warp": "SHFL VOTE VOTEU MATCH REDUX CREDUX ELECT",
    "barrier": "BAR B2R DEPBAR LDGDEPBAR LDGSTSBAR MEMBAR ERRBAR CGAERRBAR FENCE SYNCS ARRIVES WARPGROUP WARPSYNC "
    "UCGABAR_ARV UCGABAR_WAIT UTMACMDFLUSH UTCBAR ACQBULK CCTL UTMACCTL CCTLL CCTLT NANOSLEEP",
    "control": "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT KILL BSSY BSYNC BREAK YIELD BPT RPCMOV BMOV NOP PREEXIT",
}
_KINDS: Final[dict[str, SassKind]] = {root: kind for kind, roots in _ROOTS.items() for root in roots.split()}
_MOVES: Final = ("IMAD.MOV",)
_WIDTH: Final = re.compile(r"\.(?:[USF])?(8|16|32|64|128|256)(?![\w])")
_MATRICES: Final = re.compile(r"\.MT?88(?:\.(\d))?(?!\w)")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,8})\*/\s+(?:@(!?U?P[T\d]+)\s+)?([A-Z][\w.]{0,80})\s*([^;]*);")
_LABEL = re.compile(r"\s*([.$\w]{1,400}):\s*")
_MARKER = re.compile(r'\s*//## File "([^"]{1,500})", line (\d{1,9})(?: inlined at "([^"]{1,500})", line (\d{1,9}))?')
_FILE = re.compile(r'\s*\.file\s+(\d{1,6})\s+"([^"]{0,500})"(?:\s+"([^"]{0,500})")?')
_LOC = re.compile(r"\s*\.loc\s+(\d{1,6})\s+(\d{1,9})\s")
_FRAME = re.compile(r"(?<![^\s:@\[\]])([^\s:@\[\]]{1,255}):(\d{1,9}):\d{1,9}")
_TARGET = re.compile(r"`\(([^()\s]{1,400})\)")


class Origin(NamedTuple):
    """Where an instruction comes from."""

    line: int | None
    """In the kernel file; None where the compiler does not say."""
    library: str | None
    """Place in Triton's library, such as `standard.py:293`; None for the kernel's own code."""


class Instruction(NamedTuple):
    """One instruction."""

    offset: int
    """In its section, in bytes."""
    guard: str | None
    """Predicate without `@`; None where it is always executed."""
    opcode: str
    operands: str
    origin: Origin

    @property
    def root(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def target(self) -> str | None:
        """The label that it names."""
        match = _TARGET.search(self.operands)
        return match[1] if match else None


class Code(NamedTuple):
    """The instructions of one kernel with what it calls."""

    instructions: list[Instruction]
    labels: dict[str, int]
    """Number of the instruction behind each label."""


def parse(text: str, ptx: str) -> Code:
    """The instructions of all code sections, without the padding at their ends.

    Args:
        text: output of `nvdisasm -gi -c`.
        ptx: of the same kernel, for lines of inlined code.
    """
    places = _Places(ptx)
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    marked: list[tuple[str, int]] = []
    here, fresh = Origin(None, None), False
    for raw in text.splitlines():
        row = raw[:LINE_CHARACTERS]
        if match := _INSTRUCTION.match(row):
            if len(instructions) == INSTRUCTIONS_LIMIT:
                break
            if fresh:
                here, marked, fresh = places.origin(marked), [], False
            instructions.append(Instruction(int(match[1], 16), _guard(match[2]), match[3], match[4].strip(), here))
        elif match := _MARKER.match(row):
            marked.append((match[1], int(match[2])))
            if match[3]:
                marked.append((match[3], int(match[4])))
            fresh = True
        elif match := _LABEL.fullmatch(row):
            labels[match[1]] = len(instructions)
    while instructions and instructions[-1].opcode == "NOP":
        instructions.pop()
    return Code(instructions, labels)


def kind(instruction: Instruction) -> SassKind:
    """What an instruction is for."""
    if instruction.opcode.startswith(_MOVES):
        return "move"
    # ptxas loads immediates through the half-precision unit as well.
    if instruction.root == "HFMA2" and ", -RZ, RZ, " in instruction.operands:
        return "move"
    return _KINDS.get(instruction.root, "other")


def width_bytes(instruction: Instruction) -> int:
    """Bytes that one thread moves by a load, a store or an asynchronous copy."""
    # A matrix of 8 x 8 halves is spread over a warp: four bytes a thread.
    if matrices := _MATRICES.search(instruction.opcode):
        return 4 * int(matrices[1] or 1)
    width = _WIDTH.search(instruction.opcode)
    return int(width[1]) // 8 if width else 4


def _guard(text: str | None) -> str | None:
    return None if text in (None, "PT", "UPT") else text


class _Places:
    """Which of the places that a marker names is the kernel's own."""

    def __init__(self, ptx: str) -> None:
        files: dict[str, str] = {}
        for match in filter(None, map(_FILE.match, ptx.splitlines())):
            files[match[1]] = str(PurePosixPath(match[2], match[3])) if match[3] else match[2]
        self._kernel: str | None = None
        self._callers: dict[tuple[str, int], set[int]] = {}
        for row in ptx.splitlines():
            match = _LOC.match(row)
            if match is None:
                continue
            file = files.get(match[1], "")
            self._kernel = self._kernel or file
            if file == self._kernel:
                continue
            own = PurePosixPath(self._kernel).name
            # The first frame is the place itself, in another file, whose name may be the same.
            frames = _FRAME.findall(row[:LINE_CHARACTERS].partition("//")[2])[1:]
            line = next((int(line) for name, line in frames if name == own), None)
            if line is not None:
                self._callers.setdefault((file, int(match[2])), set()).add(line)

    def origin(self, frames: list[tuple[str, int]]) -> Origin:
        """Of a group of markers, innermost frame first."""
        file, line = frames[0]
        own = next((line for file, line in frames if file == self._kernel), None)
        if file == self._kernel:
            return Origin(own or None, None)
        if own is None:
            callers = self._callers.get((file, line), set())
            own = next(iter(callers)) if len(callers) == 1 else None
        return Origin(own or None, facts.line(f"{PurePosixPath(file).name[:60]}:{line}"))
