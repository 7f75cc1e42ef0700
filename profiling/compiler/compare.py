"""What differs between two compiles: facts first, then operations of the IR, then the IR's lines."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pydantic import JsonValue

from ...sandbox.wire import Wire
from .launch import LaunchFacts

UNCOMPARED: Final = frozenset({"kernel", "code_hash", "absent", "ptxas_notes", "dots"})
"""Fields that name things or are told by others."""
OPERATIONS_SHOWN: Final = 12
DIFF_CONTEXT: Final = 2
DIFF_LINES: Final = 2_000
LINES_READ: Final = 4_000
"""Of each IR: what matching takes may grow with the square of their number."""

WEIGHTY: Final = re.compile(
    r"ttn?g\.|tt\.(?:dot|load|store|descriptor|atomic|reduce|scan)|"
    r"(?:ld|st|cp|wgmma|mma|tcgen05|ldmatrix|stmatrix|bar|barrier|mbarrier|fence|membar|atom|red|shfl|setmaxnreg)\b"
)
"""Operations and instructions that move data, multiply tiles or wait: they are told before arithmetic."""

_OPERATION = re.compile(r"(?:%[\w#:, %]+ = )?\"?([a-z_]\w*\.[\w.]+)")
_LOCATION = re.compile(r"\s*loc\((?:[^()]|\([^()]*\))*\)")
_VALUE = re.compile(r"%[\w#]+(?::\d+)?")
_INSTRUCTION = re.compile(r"\s+(?:@!?%p\d+\s+)?([a-z][a-z0-9]*(?:[.:]+[a-z_0-9]+)*)\s[^:]*;")


class Compiled(NamedTuple):
    """One launch with its assembly."""

    facts: LaunchFacts
    ttgir: str
    ptx: str


class FactChange(Wire):
    """One fact of a launch that is not what it was."""

    fact: str
    before: JsonValue
    after: JsonValue


class OperationChange(Wire):
    """How often an operation or instruction occurs in the text, before and after."""

    operation: str
    before: int
    after: int


class LaunchChange(Wire):
    """One launch beside the one that takes its place in the other file."""

    case: str
    before: str | None
    """Kernel of the other file; null where it makes no such launch."""
    after: str | None
    """Kernel of this file; null where it makes none any more."""
    same_code: bool
    """Both run the same machine code, whatever the sources say."""
    facts: list[FactChange]
    operations: list[OperationChange]
    """Of the TTGIR: what moves data, multiplies tiles or waits, then the rest; of each what came or went, then
    what changed most."""
    instructions: list[OperationChange]
    """Of the PTX, in the same order."""


def changes(case: str, before: Sequence[Compiled], after: Sequence[Compiled]) -> list[LaunchChange]:
    """Each launch of a case beside its counterpart: the one of the same name, else the one at the same place."""
    return [_change(case, *pair) for pair in matched(before, after)]


def matched(
    before: Sequence[Compiled], after: Sequence[Compiled]
) -> list[tuple[Compiled, None] | tuple[None, Compiled] | tuple[Compiled, Compiled]]:
    """Counterparts, in the order of the later file; what has none stands alone."""
    left = list(before)
    partner: dict[int, Compiled] = {}
    for number, mine in enumerate(after):
        same = next((one for one in left if one.facts.kernel == mine.facts.kernel), None)
        if same is not None:
            partner[number] = same
            left.remove(same)
    for number in range(len(after)):
        if number not in partner and left:
            partner[number] = left.pop(0)
    pairs: list[tuple[Compiled, None] | tuple[None, Compiled] | tuple[Compiled, Compiled]] = []
    for number, mine in enumerate(after):
        its = partner.get(number)
        pairs.append((None, mine) if its is None else (its, mine))
    return [*pairs, *((one, None) for one in left)]


def ir_diff(before: str, after: str) -> str:
    """The TTGIR's lines that differ, as a unified diff.

    Values lose their names and lines their source positions: a line added at the top would rename all that follow.
    Empty where nothing differs in the first `LINES_READ` lines.
    """
    lines = difflib.unified_diff(
        _plain(before), _plain(after), fromfile="before.ttgir", tofile="after.ttgir", lineterm="", n=DIFF_CONTEXT
    )
    return "\n".join([line for _, line in zip(range(DIFF_LINES), lines, strict=False)])


def in_words(change: LaunchChange) -> list[str]:
    """A few lines for a reader."""
    if change.before is None or change.after is None:
        what = f"{change.after} is new" if change.before is None else f"{change.before} is launched no more"
        return [f"[{change.case}] {what}"]
    name = change.after if change.after == change.before else f"{change.before} -> {change.after}"
    if change.same_code:
        facts = "".join(f", {_told(fact)}" for fact in change.facts)
        return [f"[{change.case}] {name}: the same machine code{facts}"]
    facts = ", ".join(map(_told, change.facts)) or "no fact differs"
    lines = [f"[{change.case}] {name}: {facts}"]
    if change.operations:
        lines.append(
            f"  TTGIR: {', '.join(f'{one.operation} {one.before} -> {one.after}' for one in change.operations)}"
        )
    if change.instructions:
        lines.append(
            f"  PTX: {', '.join(f'{one.operation} {one.before} -> {one.after}' for one in change.instructions)}"
        )
    return lines


def _change(case: str, before: Compiled | None, after: Compiled | None) -> LaunchChange:
    if before is None or after is None:
        return LaunchChange(
            case=case,
            before=before.facts.kernel if before is not None else None,
            after=after.facts.kernel if after is not None else None,
            same_code=False,
            facts=[],
            operations=[],
            instructions=[],
        )
    theirs, mine = (one.facts.model_dump(mode="json") for one in (before, after))
    same_code = theirs["code_hash"] == mine["code_hash"]
    return LaunchChange(
        case=case,
        before=before.facts.kernel,
        after=after.facts.kernel,
        same_code=same_code,
        facts=[
            FactChange(fact=name, before=theirs[name], after=value)
            for name, value in mine.items()
            if name not in UNCOMPARED and theirs[name] != value
        ],
        operations=[] if same_code else _counted(_operations(before.ttgir), _operations(after.ttgir)),
        instructions=[] if same_code else _counted(_instructions(before.ptx), _instructions(after.ptx)),
    )


def _counted(before: Counter[str], after: Counter[str]) -> list[OperationChange]:
    def rank(name: str) -> tuple[bool, bool, int, str]:
        on_both_sides = bool(before[name] and after[name])
        return WEIGHTY.match(name) is None, on_both_sides, -abs(after[name] - before[name]), name

    names = sorted((name for name in before.keys() | after.keys() if before[name] != after[name]), key=rank)
    return [
        OperationChange(operation=name, before=before[name], after=after[name]) for name in names[:OPERATIONS_SHOWN]
    ]


def _operations(ttgir: str) -> Counter[str]:
    return _matches(_OPERATION, (line.strip() for line in ttgir.splitlines()))


def _instructions(ptx: str) -> Counter[str]:
    return _matches(_INSTRUCTION, ptx.splitlines())


def _matches(pattern: re.Pattern[str], lines: Iterable[str]) -> Counter[str]:
    return Counter(found[1] for line in lines if (found := pattern.match(line)))


def _plain(ttgir: str) -> list[str]:
    lines = (_VALUE.sub("%", _LOCATION.sub("", line)).rstrip() for line in ttgir.splitlines())
    return [line for line in lines if line and not line.startswith("#loc")][:LINES_READ]


def _told(change: FactChange) -> str:
    return f"{change.fact} {_short(change.before)} -> {_short(change.after)}"


def _short(value: JsonValue) -> str:
    if isinstance(value, list):
        return "/".join(map(_short, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "unknown" if value is None else str(value)
