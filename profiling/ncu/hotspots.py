"""Where the warps of a profiled launch spend their time: the hottest source lines with what they wait for.

The profiler looks at a warp of each scheduler now and then and notes which instruction it stands at and why. Its report
names the line of the innermost inlined function, which for `tl.max` lies in Triton's library; where the compiler's own
code of the same launch is at hand, instructions are taken to the line of the kernel file. Reports and sources are not
trusted: everything here takes time linear in their lengths.
"""

import math
import re
from collections import Counter
from collections.abc import Collection
from typing import Final, Literal

from ...sandbox import facts
from ...sandbox.profile_facts import InstructionTable, ReportedLaunch
from ...sandbox.wire import Wire
from ..compiler import join
from ..compiler.join import CompiledCode
from . import sampled
from .metrics import CYCLES, STALL_REASONS
from .sampled import EXECUTED, L2_SECTORS, SHARED_WAVEFRONTS, At, Counts, Lines, Pair

LINES_SHOWN: Final = 5
LEAST_PCT: Final = 2.0
"""Of all samples; a line with fewer is left out."""
HOT_PCT: Final = 10.0
HOT_STALL_PCT: Final = 30.0
"""A line is hot with more of all samples than the first, and more of its own with one reason than the second: Nsight
Compute 2025.3.1, `CPIStall.py`, marks single instructions so."""
LEAST_SAMPLES: Final = 100
"""With fewer, a share of 10 % has a standard error of 3 points and more (binomial)."""
SOURCE_CHARACTERS: Final = 100
INSTRUCTION_CHARACTERS: Final = 60
INTERVAL: Final = "smsp__pcsamp_interval_cycles"
DROPPED: Final = "smsp__pcsamp_dropped_bytes"
NOT_COLLECTED: Final = "the report does not count {} at each instruction"

_BREAK = re.compile(r"\r\n|\r|\n")

LinesFrom = Literal["compiler", "report"]


class Excess(Wire):
    """Work of memory accesses beyond what the same accesses need at best."""

    count: float
    pct: float
    """Of all of that work on the line."""


class Hotspot(Wire):
    """One source line with the samples of its instructions."""

    line: int | None
    """In the kernel file; null for code of Triton's library that can't be attributed to one line, or without lines."""
    library: str | None
    """Place in Triton's library that most of the samples fall on, such as `standard.py:170`; null for own code."""
    source: str | None
    """Text of the line, cut at 100 characters."""
    samples: int
    pct: float
    """Share of all samples of the launch."""
    executed_pct: float | None
    """Share of the instructions that warps executed."""
    stall: str | None
    """The commonest reason why its warps did not issue; null where none waited."""
    stall_pct: float | None
    """Share of the line's samples with that reason."""
    stall_meaning: str | None
    waits_for_line: int | None
    """For scoreboard stalls, the line of the load or function whose result the warps wait for, where it is one."""
    waits_for: str | None
    """Its opcode, such as `LDG.E.128`."""
    instruction: str
    """The machine instruction with most samples on the line, shortened."""
    instruction_pct: float
    """Its share of the line's samples."""
    operations: list[str]
    """TTGIR operations of the line, at most 3."""
    l2_excess: Excess | None
    """Sectors between L1 and L2 that global accesses move for nothing, because they are not coalesced; null without
    such accesses."""
    shared_excess: Excess | None
    """Wavefronts of shared memory that bank conflicts add; null without such accesses."""
    hot: bool
    """More than 10 % of all samples, and more than 30 % of its own with one reason."""


class HotspotReport(Wire):
    """The hottest lines of one launch."""

    hotspots: list[Hotspot]
    """At most 5, the hottest first; none below 2 % of the samples."""
    samples: int | None
    """Of the whole launch."""
    doubt: str | None
    """Why the shares are not to be relied on."""
    lines_from: LinesFrom | None
    """Who said which line an instruction belongs to."""
    lines_reason: str | None
    """Why that was not the compiler."""
    rest_pct: float | None
    """Share of the samples that lines not listed have."""
    absent: dict[str, str]
    """Field -> reason why it is null everywhere."""


def hotspots(
    launch: ReportedLaunch, source: str, kernel_files: Collection[str], compiled: CompiledCode | None
) -> HotspotReport:
    """Counts samples by source line.

    Args:
        launch: with its table of instructions.
        source: text of the kernel file.
        kernel_files: names, without folders, under which the report may have it, such as `kernel.py`.
        compiled: the same launch from the compiler, if there is one.

    Raises:
        ValueError: the table holds what can't be a place or a count.
    """
    table = launch.instructions
    if table is None:
        return _nothing("the report has no counts by instruction: collect Nsight Compute's section SourceCounters")
    counts = sampled.counts(table)
    if counts is None:
        return _nothing("warps were not sampled: collect Nsight Compute's section SourceCounters")
    total = sum(counts.samples)
    intervals = _intervals(launch)
    if total == 0:
        return _nothing(f"no warp was sampled{intervals}").model_copy(update={"samples": 0})
    lines = sampled.lines(launch, table, kernel_files, compiled)
    members: dict[At, list[int]] = {}
    for number, at in enumerate(lines.origins):
        members.setdefault(At(at.line, None) if at.line is not None else at, []).append(number)
    weights = {at: sum(counts.samples[each] for each in those) for at, those in members.items()}
    ranked = sorted((at for at in members if weights[at] * 100 >= LEAST_PCT * total), key=lambda at: -weights[at])
    shown = ranked[:LINES_SHOWN]
    describe = _Describer(table, counts, lines, _BREAK.split(source), compiled)
    return HotspotReport(
        hotspots=[describe(at, members[at]) for at in shown],
        samples=round(total),
        doubt=_doubt(launch, total, intervals),
        lines_from="report" if lines.code is None else "compiler",
        lines_reason=lines.reason,
        rest_pct=_share(total - sum(weights[at] for at in shown), total),
        absent=_absent(counts, lines),
    )


def text(report: HotspotReport) -> str:
    """One line for each hotspot, and what a reader must know of them."""
    notes, rows = notes_on(report), list(map(_row, report.hotspots))
    if rows and report.lines_reason:
        return "\n".join([*notes[:-1], *rows, notes[-1]])
    return "\n".join([*notes, *rows])


def notes_on(report: HotspotReport) -> list[str]:
    """Why there are no hotspots, or what speaks against them."""
    if "hotspots" in report.absent:
        return [f"no hotspots: {report.absent['hotspots']}"]
    notes = [f"doubtful: {report.doubt}"] if report.doubt else []
    if not report.hotspots:
        notes.append(f"no line has {LEAST_PCT:g} % of the samples")
    if report.lines_reason:
        notes.append(f"lines are those of the report: {report.lines_reason}")
    return notes


def _row(spot: Hotspot) -> str:
    place = f"line {spot.line}" if spot.line is not None else f"triton library {spot.library or 'or unknown line'}"
    if spot.line is not None and spot.library:
        place += f" ({spot.library})"
    parts = [f"{spot.pct:.0f} % of samples"]
    if spot.stall is not None:
        meaning = spot.stall_meaning
        if spot.waits_for_line is not None:
            meaning = f"waits for {spot.waits_for} of line {spot.waits_for_line}"
        parts.append(f"{spot.stall} {spot.stall_pct:.0f} % ({meaning})")
    for excess, what in ((spot.l2_excess, "L2 sectors"), (spot.shared_excess, "shared wavefronts")):
        if excess is not None and excess.count > 0:
            parts.append(f"{excess.pct:.0f} % of its {what} are in excess")
    known = "; ".join(filter(None, [", ".join(spot.operations), sampled.opcode_of(spot.instruction)]))
    return f"{'hot ' if spot.hot else ''}{place}: {', '.join(parts)}: {spot.source or '?'}  [{known}]"


def _nothing(reason: str) -> HotspotReport:
    return HotspotReport(
        hotspots=[],
        samples=None,
        doubt=None,
        lines_from=None,
        lines_reason=None,
        rest_pct=None,
        absent={"hotspots": reason},
    )


def _number(launch: ReportedLaunch, *names: str) -> float | None:
    for name in names:
        metric = launch.metrics.get(name)
        if metric is not None and isinstance(metric.value, float) and math.isfinite(metric.value):
            return metric.value
    return None


def _intervals(launch: ReportedLaunch) -> str:
    """How long the launch was for the sampler; empty where the report does not say."""
    interval, cycles = _number(launch, INTERVAL), _number(launch, *CYCLES.names)
    if (
        interval is None
        or cycles is None
        or not 1 <= interval <= sampled.COUNT_LIMIT
        or not 0 <= cycles <= sampled.COUNT_LIMIT
    ):
        return ""
    return f": the launch lasted {cycles / interval:.3g} sampling intervals of {interval:g} cycles"


def _doubt(launch: ReportedLaunch, total: float, intervals: str) -> str | None:
    if total < LEAST_SAMPLES:
        return f"only {total:g} samples, below {LEAST_SAMPLES}{intervals}; profile a larger case"
    if (_number(launch, DROPPED) or 0) > 0:
        return "the sampler dropped samples, as its buffer was full"
    return None


def _absent(counts: Counts, lines: Lines) -> dict[str, str]:
    absent: dict[str, str] = {}
    if not counts.stalls:
        absent["stall"] = NOT_COLLECTED.format("stall reasons")
    if counts.executed is None:
        absent["executed_pct"] = NOT_COLLECTED.format(EXECUTED)
    if counts.l2 is None:
        absent["l2_excess"] = NOT_COLLECTED.format(f"{L2_SECTORS} and {L2_SECTORS}_ideal")
    if counts.shared is None:
        absent["shared_excess"] = NOT_COLLECTED.format(f"{SHARED_WAVEFRONTS} and {SHARED_WAVEFRONTS}_ideal")
    if lines.reason is not None:
        absent |= dict.fromkeys(("waits_for_line", "operations"), f"only known from the compiler: {lines.reason}")
    return absent


def _share(part: float, whole: float) -> float:
    """In percent."""
    return round(100 * part / whole, 1) if whole else 0.0


def _excess(pair: Pair | None, numbers: list[int]) -> Excess | None:
    if pair is None:
        return None
    total = sum(pair.found[each] for each in numbers)
    if total == 0:
        return None
    # As Nsight Compute's UncoalescedSharedAccess.py: an instruction below its ideal makes up for no other.
    excess = sum(max(pair.found[each] - pair.ideal[each], 0.0) for each in numbers)
    return Excess(count=excess, pct=_share(excess, total))


class _Describer:
    """Everything about one line."""

    def __init__(
        self,
        table: InstructionTable,
        counts: Counts,
        lines: Lines,
        source: list[str],
        compiled: CompiledCode | None,
    ) -> None:
        self._table, self._counts, self._lines, self._source = table, counts, lines, source
        self._total = sum(counts.samples)
        self._operations: dict[int, list[str]] = {}
        self._producers: join.Producers | None = None
        if lines.code is not None and compiled is not None:
            self._operations = join.operations(compiled.ttgir)
            self._producers = join.Producers(lines.code)

    def __call__(self, at: At, numbers: list[int]) -> Hotspot:
        samples, executed = self._counts.samples, self._counts.executed
        weight = sum(samples[each] for each in numbers)
        waits = Counter({reason: sum(at[each] for each in numbers) for reason, at in self._counts.stalls.items()})
        stall, waiting = waits.most_common(1)[0] if waits.total() else (None, 0.0)
        # Each sample has one state; a table that says otherwise is not to show more than all of them.
        waiting = min(waiting, weight)
        producer = self._producer_of(numbers, stall) if stall is not None else None
        worst = max(numbers, key=lambda each: samples[each])
        return Hotspot(
            line=at.line,
            library=self._library(at, numbers),
            source=self._text(at.line),
            samples=round(weight),
            pct=_share(weight, self._total),
            executed_pct=None if executed is None else _share(sum(executed[each] for each in numbers), sum(executed)),
            stall=stall,
            stall_pct=None if stall is None else _share(waiting, weight),
            stall_meaning=None if stall is None else STALL_REASONS[stall],
            waits_for_line=producer.line if producer else None,
            waits_for=producer.opcode if producer else None,
            instruction=" ".join(facts.line(self._instruction(worst)).split())[:INSTRUCTION_CHARACTERS],
            instruction_pct=_share(samples[worst], weight),
            operations=self._operations.get(at.line, []) if at.line is not None else [],
            l2_excess=_excess(self._counts.l2, numbers),
            shared_excess=_excess(self._counts.shared, numbers),
            hot=100 * weight > HOT_PCT * self._total and 100 * waiting > HOT_STALL_PCT * weight,
        )

    def _producer_of(self, numbers: list[int], stall: str) -> join.Producer | None:
        """What the line's instruction that waits most for this reason waits for."""
        if self._producers is None:
            return None
        waits = self._counts.stalls[stall]
        return self._producers.of(self._lines.numbers[max(numbers, key=lambda each: waits[each])], stall)

    def _instruction(self, number: int) -> str:
        """As the report tells it, else as the compiler's code has it."""
        if self._table.sass[number] or self._lines.code is None:
            return self._table.sass[number]
        compiled = self._lines.code.instructions[self._lines.numbers[number]]
        return f"{'@' + compiled.guard if compiled.guard else ''} {compiled.opcode} {compiled.operands}"

    def _library(self, at: At, numbers: list[int]) -> str | None:
        if at.line is None:
            return at.library
        samples: Counter[str | None] = Counter()
        for each in numbers:
            samples[self._lines.origins[each].library] += int(self._counts.samples[each])
        return samples.most_common(1)[0][0]

    def _text(self, line: int | None) -> str | None:
        if line is None or line > len(self._source):
            return None
        shown = facts.line(self._source[line - 1].strip()[: SOURCE_CHARACTERS + 1])
        return shown if len(shown) <= SOURCE_CHARACTERS else shown[: SOURCE_CHARACTERS - 3] + "..."
