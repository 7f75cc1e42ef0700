"""What profile_ncu returns: its models, and the same in words."""

import math
from typing import Any, Final, Literal

from ...profiling.ncu.cause import Cause
from ...profiling.ncu.delta import Change
from ...profiling.ncu.hotspots import Excess, notes_on
from ...profiling.ncu.model import LaunchProfile
from ...sandbox.profile_facts import ReportedMetric
from ...sandbox.wire import Wire
from ..results import Result
from .profile_case import CaseProfile, Profiled

LAUNCHES_SHOWN: Final = 3
STALLS_SHOWN: Final = 3
CAUSES_SHOWN: Final = 3
HOTSPOTS_SHOWN: Final = 5
HOTSPOTS_OF_OTHERS: Final = 1
CAUSES_OF_OTHERS: Final = 1
RULES_OF_OTHERS: Final = 0
"""Of launches behind the longest."""
DIGITS: Final = 4
"""Of a number that was counted: counters repeat within about 1 %."""
RULES_SHOWN: Final = 2
RULE_CHARACTERS: Final = 160
CHANGES_SHOWN: Final = 8


class ShownStall(Wire):
    """Why warps did not issue."""

    reason: str
    pct: float
    """Share of the time between two instructions of a warp."""


class ShownHotspot(Wire):
    """A source line in which warps spend their time."""

    line: int | None
    """In the kernel file; null: code of Triton's library that belongs to no one line."""
    library: str | None
    """Place in Triton's library that most of its samples fall on, such as `standard.py:170`; null for own code."""
    pct: float
    """Share of all samples of the launch."""
    stall: str | None
    stall_pct: float | None
    """Share of the line's samples."""
    waits_for_line: int | None
    """Where the value is loaded or computed that its warps wait for."""
    l2_excess_pct: float | None
    """Of its L2 sectors, beyond those that its bytes need; null: none, or not counted."""
    shared_excess_pct: float | None
    """The same of its shared wavefronts."""
    source: str | None


class ShownRule(Wire):
    """A finding of Nsight Compute's own rules."""

    name: str
    speedup_pct: float | None
    """Its own estimate."""
    text: str


class ProfiledLaunch(Wire):
    """One launch under the profiler. Null: not counted at this level; the profile artifact says why."""

    kernel: str
    case: str
    duration_us: float | None
    share_pct: float | None
    """Of the time of all launches of the case; null where some were left out."""
    memory_pct: float | None
    """Busiest part of the memory system, as a share of its peak."""
    compute_pct: float | None
    """Busiest pipe of the SMs, as a share of its peak."""
    dram_pct: float | None
    dram_bytes: float | None
    achieved_pct: float | None
    """DRAM traffic a second, as a share of what a copy reaches on this device."""
    flops: float | None
    tensor_pct: float | None
    mma: str | None
    registers: int | None
    shared_bytes: int | None
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    achieved_occupancy_pct: float | None
    theoretical_occupancy_pct: float | None
    occupancy_limiter: str | None
    stalls: list[ShownStall]
    causes: list[Cause]
    """What limits it, the likeliest first."""
    hotspots: list[ShownHotspot]
    lines_from: Literal["compiler", "report"] | None
    lines_note: str | None
    """Why there are no hotspots, or what speaks against them."""
    rules: list[ShownRule]
    metrics: dict[str, ReportedMetric] = {}
    """Those that were asked for by name."""
    profile: dict[str, Any] | None = None
    """With detail: everything that was read of it."""


class ProfiledCase(Wire):
    """One call of the entry."""

    case: str
    duration_us: float | None
    """Of all its launches; null where some were left out, as is the next."""
    launches: int
    """That were profiled."""
    launches_left_out: int
    """Behind them; where Nsight Compute counts, 1 says that there are more."""
    dram_bytes: float | None
    compulsory_bytes: float | None
    """What the task's work() says must be moved at least."""
    traffic_ratio: float | None
    """DRAM bytes over these: 1 is ideal; below 1, data stayed in L2."""


class ProfileChange(Change):
    """A difference to the other kernel file's launch."""

    kernel: str
    case: str


class ProfileResult(Result):
    """What `profile_ncu` returns."""

    gpu: str | None = None
    level: str | None = None
    by: str | None = None
    """What counted: ncu with its version, or CUPTI in the worker."""
    cached: bool = False
    """Nothing was run: these sources were profiled before on the same terms."""
    cases: list[ProfiledCase] = []
    launches: list[ProfiledLaunch] = []
    """The longest first."""
    launches_omitted: int = 0
    changes: list[ProfileChange] = []
    """With compare: what differs from that kernel file, the most important first."""
    notes: list[str] = []


def case_of(found: CaseProfile) -> ProfiledCase:
    """The sums of a case."""
    profiles = [launch.profile for launch in found.launches]
    moved = None if found.left_out else _sum([profile.dram_bytes for profile in profiles])
    compulsory = found.compulsory_bytes
    return ProfiledCase(
        case=found.case,
        duration_us=None if found.left_out else _short(_sum([profile.duration_us for profile in profiles])),
        launches=len(profiles),
        launches_left_out=found.left_out,
        dram_bytes=moved,
        compulsory_bytes=compulsory,
        traffic_ratio=_short(moved / compulsory) if moved is not None and compulsory else None,
    )


def launch_of(
    launch: Profiled, found: CaseProfile, causes: list[Cause], *, longest: bool, detail: bool
) -> ProfiledLaunch:
    """What is shown of a launch."""
    profile, lines = launch.profile, launch.lines
    whole = None if found.left_out else _sum([each.profile.duration_us for each in found.launches])
    share = 100 * profile.duration_us / whole if profile.duration_us is not None and whole else None
    spots = [] if lines is None else lines.hotspots[: HOTSPOTS_SHOWN if longest else HOTSPOTS_OF_OTHERS]
    return ProfiledLaunch(
        **{name: _short(getattr(profile, name)) for name in _SAME},
        case=found.case,
        share_pct=_rounded(share),
        achieved_pct=_rounded(achieved_pct(profile, found)),
        stalls=[ShownStall(reason=stall.reason, pct=round(stall.pct, 1)) for stall in profile.stalls[:STALLS_SHOWN]],
        causes=causes[: CAUSES_SHOWN if longest else CAUSES_OF_OTHERS],
        hotspots=[
            ShownHotspot(
                line=spot.line,
                library=spot.library,
                pct=round(spot.pct, 1),
                stall=spot.stall,
                stall_pct=_rounded(spot.stall_pct),
                waits_for_line=spot.waits_for_line,
                l2_excess_pct=_excess(spot.l2_excess),
                shared_excess_pct=_excess(spot.shared_excess),
                source=spot.source,
            )
            for spot in spots
        ],
        lines_from=None if lines is None else lines.lines_from,
        lines_note=None if lines is None else "; ".join(notes_on(lines)) or None,
        rules=[
            ShownRule(name=rule.name, speedup_pct=_rounded(rule.speedup_pct), text=_cut(rule.message))
            for rule in launch.rules[: RULES_SHOWN if longest else RULES_OF_OTHERS]
        ],
        metrics=launch.metrics,
        profile=profile.model_dump(mode="json") if detail else None,
    )


_SAME: Final = (
    "kernel", "duration_us", "memory_pct", "compute_pct", "dram_pct", "dram_bytes", "flops", "tensor_pct", "mma",
    "registers", "shared_bytes", "grid", "block", "achieved_occupancy_pct", "theoretical_occupancy_pct",
    "occupancy_limiter",
)  # fmt: skip


def achieved_pct(profile: LaunchProfile, found: CaseProfile) -> float | None:
    """DRAM traffic a second as a share of what this device reaches when it copies."""
    ceiling = None if found.ceilings is None else found.ceilings.memory_bytes_per_s(0.5)
    if profile.dram_bytes is None or not profile.duration_us or not ceiling:
        return None
    return 100 * 1e6 * profile.dram_bytes / profile.duration_us / ceiling


def summary(result: ProfileResult, lines: dict[int, str]) -> str:
    """The result in words.

    Args:
        result: all but its summary.
        lines: index of a launch -> its hottest lines as text.
    """
    head = f"Profiled on {result.gpu}, level {result.level}, by {result.by}"
    head += " (from memory: the same sources were profiled before)" if result.cached else ""
    parts = [f"{head}; caches emptied before each launch; longest first."]
    for case in result.cases:
        if case.launches_left_out:
            parts.append(
                f"{case.case}: the first {case.launches} launches; there are more (launches=... profiles "
                "more of them, kernel_names=[...] chooses)."
            )
        elif case.launches > 1:
            parts.append(f"{case.case}: {case.launches} launches, {_number(case.duration_us, ' us', 1)} together.")
        if case.traffic_ratio is not None:
            parts.append(
                f"{case.case}: {_bytes(case.dram_bytes)} of DRAM traffic, {case.traffic_ratio:.2f} times what the task "
                f"needs ({_bytes(case.compulsory_bytes)})."
            )
    for number, launch in enumerate(result.launches):
        parts.append(_launch_line(launch))
        parts += [f"  {cause.id}: {cause.text}" for cause in launch.causes]
        if launch.stalls:
            told = ", ".join(f"{stall.reason} {stall.pct:.0f} %" for stall in launch.stalls)
            parts.append(f"  stalls: {told}")
        if lines.get(number):
            parts.append("  " + lines[number].replace("\n", "\n  "))
        else:
            parts += [f"  {note}" for note in (launch.lines_note, *map(_hottest, launch.hotspots)) if note]
        for rule in launch.rules:
            gain = f" (its estimate: {rule.speedup_pct:.0f} %)" if rule.speedup_pct else ""
            parts.append(f"  ncu's rule {rule.name}{gain}: {rule.text}")
        parts += [f"  {name} = {metric.value} {metric.unit}".rstrip() for name, metric in launch.metrics.items()]
    if result.launches_omitted:
        parts.append(f"{result.launches_omitted} more launch(es) not shown.")
    if result.changes:
        parts.append("Against the other kernel file:")
        parts += [f"- {_change(change)}" for change in result.changes]
    parts += [f"Note: {note}" for note in result.notes]
    return "\n".join(parts)


def _launch_line(launch: ProfiledLaunch) -> str:
    share = f" ({launch.share_pct:.0f} % of the case)" if launch.share_pct is not None and launch.share_pct < 99 else ""
    achieved = f", {launch.achieved_pct:.0f} % of a copy's bandwidth" if launch.achieved_pct is not None else ""
    tensor = f", tensor pipe {launch.tensor_pct:.0f} % ({launch.mma})" if launch.mma not in (None, "none") else ""
    return (
        f"- {launch.kernel} [{launch.case}] {_number(launch.duration_us, ' us', 2)}{share}: memory "
        f"{_number(launch.memory_pct, ' %')}, compute {_number(launch.compute_pct, ' %')}, DRAM "
        f"{_number(launch.dram_pct, ' %')} of peak{achieved}{tensor}; occupancy "
        f"{_number(launch.achieved_occupancy_pct, ' %')} of {_number(launch.theoretical_occupancy_pct, ' %')} "
        f"(limit: {launch.occupancy_limiter}); {launch.registers} registers"
    )


def next_step(result: ProfileResult) -> str:
    """What to do with it."""
    causes = [cause for launch in result.launches[:1] for cause in launch.causes]
    if not causes:
        return "No single limit stands out: look at the hottest lines, or profile with level='full'."
    return f"{causes[0].suggestion} One idea, then benchmark."


def _change(change: ProfileChange) -> str:
    relative = "" if change.relative is None else f" ({100 * change.relative:+.0f} %)"
    verdict = {True: ", better", False: ", worse", None: ""}[change.good]
    before, after = (
        "none" if value is None else value if isinstance(value, str) else f"{value:.4g}"
        for value in (change.before, change.after)
    )
    return f"{change.kernel} [{change.case}] {change.field}: {before} -> {after}{relative}{verdict}"


def _hottest(spot: ShownHotspot) -> str:
    place = "Triton's library" if spot.line is None else f"line {spot.line}"
    told = f"hottest: {place}, {spot.pct:.0f} % of samples"
    told += "" if spot.l2_excess_pct is None else f", {spot.l2_excess_pct:.0f} % of its L2 sectors are in excess"
    told += "" if spot.shared_excess_pct is None else f", {spot.shared_excess_pct:.0f} % of its shared wavefronts are"
    return told


def _excess(found: Excess | None) -> float | None:
    return None if found is None or not found.count else _rounded(found.pct)


def _cut(text: str) -> str:
    return text if len(text) <= RULE_CHARACTERS else f"{text[:RULE_CHARACTERS].rsplit(' ', 1)[0]} ..."


def _short(value: Any) -> Any:
    """A number with the digits that say something."""
    if not isinstance(value, float) or not value:
        return value
    return round(value, DIGITS - 1 - math.floor(math.log10(abs(value))))


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _number(value: float | None, unit: str, digits: int = 0) -> str:
    return "unknown" if value is None else f"{value:.{digits}f}{unit}"


def _bytes(value: float | None) -> str:
    return "unknown" if value is None else f"{value / 1e6:,.1f} MB"
