"""The compiler's view of machine code that was measured: whether it is the same, what feeds an instruction, and which
TTGIR operations a line has.

The texts come from workers and are not trusted: everything here takes time linear in their lengths and raises nothing.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from . import sass_flow, sass_liveness, ttgir, ttgir_lines
from .sass import Code, Origin

OPERATIONS_SHOWN: Final = 3
"""Of a line."""
OPERATION_CHARACTERS: Final = 40
STEPS_LIMIT: Final = 20_000
"""Of a search for producers: no kernel of ours has so many instructions and jumps."""

_PRODUCERS: Final[dict[str, frozenset[str]]] = {
    # Nsight Compute's guide, warp stall reasons: long is L1TEX (local and global memory), short is everything else
    # that goes through the memory input/output queue: shared memory, and the unit for special functions and for
    # conversions between integers and floats.
    "long_scoreboard": frozenset({"LDG", "LDL", "LD", "ATOM", "ATOMG"}),
    "short_scoreboard": frozenset(
        {"LDS", "LDSM", "ATOMS", "SHFL", "REDUX", "MATCH", "MUFU", "F2F", "F2I", "I2F", "FRND"}
    ),
}
_COPY_WAIT: Final = "DEPBAR"
_COPY: Final = "LDGSTS"
_CALLS: Final = ("CALL", "RET")
_SCALAR_ACCESSES: Final = ("tt.load", "tt.store")
"""Those of tiles are among the sites."""
_PLUMBING: Final = frozenset(
    {
        *("arith.constant", "scf.yield", "tt.func", "tt.return", "tt.reduce.return", "tt.scan.return", "tt.splat"),
        *("tt.expand_dims", "tt.broadcast", "tt.make_range", "ttg.memdesc_index", "ttg.memdesc_trans"),
    }
)
"""Operations that are no work, or hardly any."""


class CompiledCode(NamedTuple):
    """What the compiler made of one launch, as text."""

    sass: str
    """Output of `nvdisasm -gi -c`."""
    ptx: str
    ttgir: str
    """With locations."""


class Producer(NamedTuple):
    """What an instruction waits for."""

    line: int
    """In the kernel file."""
    opcode: str
    """Of the load or whatever it is."""


def matched(code: Code, offsets: Sequence[int], roots: Sequence[str], places: Sequence[str | None]) -> list[int] | str:
    """The number in a compiled kernel of each instruction that was measured, or why they are of other code.

    A report may leave out what was not executed, as the jump to itself at the end is.

    Args:
        code: of the compiled kernel.
        offsets: from the function's start, in bytes.
        roots: opcodes up to the first dot; empty where the measured one's text is not known.
        places: of the innermost function's line: `14` in the kernel file, `standard.py:170` elsewhere; None where it is
            not known. Line tables of other code hardly ever agree at every instruction.
    """
    numbers = {instruction.offset: number for number, instruction in enumerate(code.instructions)}
    if len(numbers) != len(code.instructions):
        return "the compiled launch has several functions"
    if not any(roots) and 2 * sum(place is not None for place in places) < len(offsets):
        return "the report tells too few lines and instructions"
    found: list[int] = []
    for offset, root, place in zip(offsets, roots, places, strict=True):
        number = numbers.get(offset)
        compiled = "nothing" if number is None else code.instructions[number].root
        at = f"at 0x{offset:x} the compiled launch has"
        if number is None or (root and compiled != root):
            return f"{at} {compiled}, and the measured one {root or 'an instruction'}"
        innermost = _innermost(code.instructions[number].origin)
        if None not in (innermost, place) and innermost != place:
            return f"{at} line {innermost}, and the measured one {place}"
        found.append(number)
    return found


def _innermost(origin: Origin) -> str | None:
    return origin.library if origin.library is not None else None if origin.line is None else str(origin.line)


class Producers:
    """Finds the instruction that a warp waits for: it stands at the one that needs the value, not at the load."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._flow = sass_flow.flow(code)
        self._before: list[list[int]] = [[] for _ in code.instructions]
        for number, following in enumerate(self._flow.successors):
            for after in following:
                self._before[after].append(number)
        self._known: dict[int, tuple[int, int]] = {}

    def of(self, number: int, stall: str) -> Producer | None:
        """What the instruction of that number waits for in a scoreboard stall; None where that is not one line.

        Follows the registers that it reads backward to where they were written, around loops too, and leaves out
        what an instruction in between has waited for already.
        """
        roots = _PRODUCERS.get(stall)
        if roots is None:
            return None
        instructions = self._code.instructions
        if instructions[number].root == _COPY_WAIT:
            found = [each for each in instructions if each.root == _COPY] if stall == "long_scoreboard" else []
        else:
            found = [instructions[each] for each in self._writers(number, roots)]
        lines = {each.origin.line for each in found}
        line = lines.pop() if len(lines) == 1 else None
        if line is None:
            return None
        opcodes = {each.opcode for each in found}
        return Producer(line, opcodes.pop() if len(opcodes) == 1 else found[0].root)

    def _writers(self, number: int, roots: frozenset[str]) -> list[int]:
        if not self._flow.complete:
            return []
        found: list[int] = []
        wanted = self._effect(number)[1]
        seen: dict[int, int] = {}
        # Where to look, for which registers, and which must have arrived since.
        waiting = [(before, wanted, 0) for before in self._before[number]]
        left = STEPS_LIMIT
        while waiting:
            at, registers, arrived = waiting.pop()
            left -= 1 + len(self._before[at])
            if left < 0:
                return []
            registers &= ~seen.get(at, 0)
            instruction = self._code.instructions[at]
            if not registers or instruction.root in _CALLS:
                continue
            seen[at] = seen.get(at, 0) | registers
            written, read = self._effect(at)
            if written & registers and not written & arrived and instruction.root in roots:
                found.append(at)
            registers &= ~written
            # Whatever reads or overwrites a register has waited for it.
            arrived |= written | read
            waiting += [(before, registers, arrived) for before in self._before[at] if registers]
        return found

    def _effect(self, number: int) -> tuple[int, int]:
        """Registers that an instruction writes, and those that it reads, as bits."""
        if number not in self._known:
            instruction = self._code.instructions[number]
            self._known[number] = sass_liveness.effect(instruction)
        return self._known[number]


def operations(text: str) -> dict[int, list[str]]:
    """The TTGIR operations by line of the kernel file, three at most: what moves or multiplies tiles and its waits, or
    on a line without such the arithmetic."""
    found = ttgir.operations(text)
    locations = ttgir_lines.Locations(text)
    function = next((op for op in found if op.name == "tt.func"), None)
    file = locations.file(function.location) if function else None
    if file is None:
        return {}
    main: dict[int, dict[str, None]] = {}
    for site in ttgir_lines.sites(text):
        if site.line is not None:
            main.setdefault(site.line, {})[site.operation] = None
    known: dict[str, tuple[str, int] | None] = {}
    rest: dict[int, dict[str, None]] = {}
    for op in found:
        line = locations.line(op.location, file, known) if op.name not in _PLUMBING else None
        if line is not None:
            chosen = main if op.name in _SCALAR_ACCESSES or op.name.endswith("_wait") else rest
            chosen.setdefault(line, {})[op.name] = None
    names = {line: list(those) for line, those in main.items()}
    for line, those in rest.items():
        # Functions such as exp2 cost more than sums.
        names.setdefault(line, sorted(those, key=lambda name: not name.startswith("math.")))
    return {line: [name[:OPERATION_CHARACTERS] for name in those[:OPERATIONS_SHOWN]] for line, those in names.items()}
