"""What `benchmark` says of the times that were measured."""

from typing import Any, Final, Literal

from ...profiling.comparison import Comparison, Outcome, Score, compare
from ...profiling.conditions import ConditionsSummary, summarize
from ...profiling.roofline import SpeedOfLight
from ...profiling.statistics import median, spread
from ...profiling.times import Times, call_pairs, launch_bound, longest, pairs
from ...profiling.witness import call_doubt, doubts, event_note
from ...sandbox.outcome import Kind
from ...sandbox.timing_facts import Tuned
from ...sandbox.wire import Wire
from ..results import Result
from ..timed_result import Against, How, TimedCase

KERNELS_SHOWN: Final = 5
TOLD_FROM_PCT: Final = 110.0
"""Of the speed of light: so far beyond the ceilings a reader wonders."""


class KernelTime(Wire):
    """One kernel or copy of the entry."""

    name: str
    us: float
    """Mean time a call."""


class AgainstTimes(Wire):
    """The reference beside the candidate."""

    name: str
    """`eager`: the reference as it is; `torch.compile`: compiled."""
    device_us: float | None = None
    call_us: float | None = None
    ratio: float | None = None
    """Its time over the candidate's: above 1 the candidate is faster."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    comparison: Outcome | None = None
    """Of the candidate against it."""
    first_call_s: float | None = None
    """Compile included."""
    reason: str | None = None
    """Why it was not timed."""


class CaseTimes(Wire):
    """One case's times and, where there is a baseline, the comparison."""

    case: str
    timing: How
    """`replayed`: the recorded binaries, launched by a process that never loads the kernel file; `in_candidate`: by the
    entry itself."""
    timing_reason: str | None = None
    """Why it is `in_candidate`."""
    kernel_us: float
    """Time that the device spends in the entry's kernels and copies, median over all samples."""
    device_us: float
    """First start to last end on the device, median; the ratio compares these."""
    device_us_mad: float
    """Median absolute deviation of `device_us`."""
    device_us_low: float
    device_us_high: float
    """95 % interval of the median."""
    call_us: float
    """Host call to completion in the candidate's own process, launch overhead included, median."""
    kernels: list[KernelTime]
    """What the time goes to, longest first."""
    sm_clock_hz: float | None
    """SM clock under this load, at the end of each visit, median."""
    baseline_kernel_us: float | None = None
    baseline_device_us: float | None = None
    baseline_call_us: float | None = None
    baseline_sm_clock_hz: float | None = None
    ratio: float | None = None
    """Baseline time over candidate time, of `device_us`: above 1 is faster."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    comparison: Outcome | None = None
    min_detectable_pct: float | None = None
    """Smallest change of time that this measurement would have seen."""
    call_ratio: float | None = None
    """The same ratio for `call_us`: what reaches a caller who waits for each call."""
    call_ratio_low: float | None = None
    call_ratio_high: float | None = None
    launch_bound: bool
    """The host's part of a call is longer than the device's."""
    graph_call_us: float | None = None
    """A call as a CUDA graph, host call to completion: the floor of a launch-bound entry."""
    speed_of_light_pct: float | None = None
    """Floor time (from the task's work) over `device_us`."""
    floor_us: float | None = None
    headroom: float | None = None
    """How many times faster it could get at most."""
    bound: str | None = None
    """`memory` or `compute`: which floor is the higher."""
    floor_from: str | None = None
    """`measured`: ceilings that were measured on this GPU; `data_sheet`."""
    work_suspect: bool = False
    """Faster than this GPU was seen to be, though not than its data sheet: work() is too high, or the time wrong."""
    tuned: list[Tuned] = []
    """What Triton's autotuner chose newly for this case; its time is in `first_call_s`."""
    baseline_tuned: list[Tuned] = []
    first_call_s: float
    """Compile and autotuning, before anything was timed."""
    against: list[AgainstTimes] = []
    samples: int
    """Timed calls, of both sides."""
    blocks: int
    """Interleaved ABBA blocks behind the ratio."""
    process_pairs: int
    """Pairs of processes that the blocks come from."""
    outputs_checked: int
    """Timed calls whose results were compared with what is expected, each drawn after it had been timed."""
    contents_vary: bool
    """Inputs had other contents in each timed call."""
    replay_ratio: float | None = None
    """Time of the entry's own call over that of its replayed launches."""
    conditions: ConditionsSummary | None = None
    notes: list[str] = []


class BenchmarkResult(Result):
    """What `benchmark` returns."""

    gpu: str | None = None
    cache: Literal["cold", "warm"] = "cold"
    """`cold`: L2 is emptied before each timed call."""
    cases: list[CaseTimes] = []
    score: Score | None = None
    """Weighted geometric mean of the cases' ratios; null without a baseline."""


def case_times(timed: TimedCase, light: SpeedOfLight | None) -> tuple[CaseTimes, Comparison | None]:
    """The form in which a case's times are told, and its comparison with the baseline.

    Args:
        timed: what was measured.
        light: how it compares with the speed of light; None: the task doesn't say what work there is.
    """
    times, baseline = timed.candidate, timed.baseline
    device = spread(times.device_us())
    calls = [us for block in times.call_us for us in block]
    comparison = compare(timed.groups) if timed.groups else None
    doubted: list[str] = []
    if timed.how == "in_candidate":
        bound = launch_bound(times)
        doubted = doubts(times, baseline, launch_bound=bound)
        for mine, *its in timed.further:
            doubted = doubted or doubts(mine, its[0] if its else None, launch_bound=bound)
    if doubted and comparison is not None and comparison.comparison == "faster":
        comparison = comparison.model_copy(update={"comparison": "ambiguous"})
    fields: dict[str, Any] = {}
    if comparison is not None and baseline is not None:
        whole = None if call_doubt(times, baseline) else compare([call_pairs(times, baseline), *timed.further_calls])
        fields = {
            "baseline_kernel_us": median(baseline.kernel_us()),
            "baseline_device_us": median(baseline.device_us()),
            "baseline_call_us": median([us for block in baseline.call_us for us in block]),
            "baseline_sm_clock_hz": _clock_hz(baseline),
            "ratio": comparison.ratio,
            "ratio_low": comparison.ratio_low,
            "ratio_high": comparison.ratio_high,
            "comparison": comparison.comparison,
            "min_detectable_pct": comparison.min_detectable_pct,
            "call_ratio": whole.ratio if whole is not None else None,
            "call_ratio_low": whole.ratio_low if whole is not None else None,
            "call_ratio_high": whole.ratio_high if whole is not None else None,
        }
    if light is not None:
        fields |= {
            "speed_of_light_pct": light.pct,
            "floor_us": light.floor_us,
            "headroom": light.headroom,
            "bound": light.bound,
            "floor_from": light.against,
            "work_suspect": light.verdict == "suspect",
        }
    conditions = _conditions(timed, comparison.ratio if comparison is not None else None)
    return (
        CaseTimes(
            case=timed.case,
            timing=timed.how,
            timing_reason=timed.how_reason,
            kernel_us=median(times.kernel_us()),
            device_us=device.median,
            device_us_mad=device.mad,
            device_us_low=device.low,
            device_us_high=device.high,
            call_us=median(calls),
            kernels=[KernelTime(name=name, us=us) for name, us in longest(times, KERNELS_SHOWN)],
            sm_clock_hz=_clock_hz(times),
            launch_bound=launch_bound(times),
            graph_call_us=timed.graph.graph_call_us if timed.graph is not None else None,
            tuned=timed.tuned,
            baseline_tuned=timed.baseline_tuned,
            first_call_s=timed.first.first_call_s,
            against=[_against(entry, times) for entry in timed.against],
            samples=comparison.samples if comparison is not None else len(times.device_us()),
            blocks=sum(map(len, timed.groups)) if timed.groups else len(times.blocks),
            process_pairs=max(1, len(timed.groups)),
            outputs_checked=timed.checked,
            contents_vary=timed.varies,
            replay_ratio=timed.replay_ratio,
            conditions=conditions,
            notes=_notes(timed, light, conditions, doubted),
            **fields,
        ),
        comparison,
    )


def result(
    gpu: str, cache: Literal["cold", "warm"], cases: list[CaseTimes], score: Score | None, artifacts: list[str]
) -> BenchmarkResult:
    """The result, with its summary."""
    return BenchmarkResult(
        kind=Kind.OK,
        summary=_summary(gpu, cache, cases, score),
        next_step=_next_step(score),
        artifacts=artifacts,
        gpu=gpu,
        cache=cache,
        cases=cases,
        score=score,
    )


def _conditions(timed: TimedCase, ratio: float | None) -> ConditionsSummary:
    clocks = {"candidate": timed.candidate.sm_clock_hz}
    if timed.baseline is not None:
        clocks["baseline"] = timed.baseline.sm_clock_hz
    return summarize(timed.conditions, clocks, ratio=ratio)


def _against(entry: Against, candidate: Times) -> AgainstTimes:
    if entry.times is None:
        return AgainstTimes(name=entry.name, reason=entry.reason)
    # The candidate's own blocks go on without the reference where a second pair of processes took over.
    found = compare([pairs(candidate, entry.times)])
    return AgainstTimes(
        name=entry.name,
        device_us=median(entry.times.device_us()),
        call_us=median([us for block in entry.times.call_us for us in block]),
        ratio=found.ratio,
        ratio_low=found.ratio_low,
        ratio_high=found.ratio_high,
        comparison=found.comparison,
        first_call_s=entry.first_call_s,
    )


def _clock_hz(times: Times) -> float | None:
    return median(times.sm_clock_hz) if times.sm_clock_hz else None


def _notes(
    timed: TimedCase, light: SpeedOfLight | None, conditions: ConditionsSummary, doubted: list[str]
) -> list[str]:
    """What a reader must know before believing the figures, the gravest first."""
    times = timed.candidate
    notes: list[str] = []
    if light is not None and light.verdict == "suspect" and light.explanation is not None:
        notes.append(f"work_suspect: {light.explanation}")
    notes += [f"not to be believed: {doubt}" for doubt in doubted]
    if timed.doubt is not None:
        notes.append(timed.doubt)
    if timed.baseline is not None and (doubt := call_doubt(times, timed.baseline)):
        notes.append(doubt)
    if note := event_note(times):
        notes.append(note)
    if launch_bound(times):
        notes.append(_launch_bound_note(timed))
    if not timed.varies:
        notes.append(
            "the inputs' contents were the same in each timed call, so results kept between calls may go unseen"
        )
    elif timed.first.constant:
        notes.append(
            f"{timed.first.constant} input tensors (integers, booleans) held the same contents in each timed call: "
            "what is kept of them between calls goes unseen"
        )
    if timed.repeated:
        notes.append(f"{timed.repeated} blocks were timed again, since the sides' clocks differed")
    notes += conditions.notes
    if light is not None and (light.pct or 0.0) > TOLD_FROM_PCT:
        notes += light.notes
    return notes


def _launch_bound_note(timed: TimedCase) -> str:
    calls = median([us for block in timed.candidate.call_us for us in block])
    graph = timed.graph
    floor = ""
    if graph is not None and graph.graph_call_us is not None:
        floor = f" (as a CUDA graph a call takes {graph.graph_call_us:.1f} us)"
    elif graph is not None and graph.reason is not None:
        floor = f" (it can't become a CUDA graph as it is: {graph.reason})"
    return (
        f"launch-bound: a call takes {calls:.1f} us and the device works {median(timed.candidate.device_us()):.1f} us "
        f"of it{floor}; fusing launches or a CUDA graph gains more than a faster kernel"
    )


def _summary(gpu: str, cache: str, cases: list[CaseTimes], score: Score | None) -> str:
    lines: list[str] = []
    warm = ", L2 warm" if cache == "warm" else ""
    if score is not None:
        lines.append(
            f"{score.comparison.upper()}: {score.ratio:.4g}x of the baseline's speed over all cases (95 % interval "
            f"{score.ratio_low:.4g} to {score.ratio_high:.4g}) on {gpu}{warm}."
        )
        if score.slower_cases and len(cases) > 1:
            lines.append(f"SLOWER in: {', '.join(score.slower_cases)}.")
    else:
        lines.append(f"Timed on {gpu}{warm}; no baseline was given, so nothing is compared.")
    for times in cases:
        lines.append(_line(times))
        lines += [f"  {_against_line(entry)}" for entry in times.against]
        lines += [f"  tuned {one.kernel}: {one.configuration}" for one in times.tuned]
        lines += [f"  ! {note}" for note in times.notes]
    return "\n".join(lines)


def _line(times: CaseTimes) -> str:
    line = (
        f"- {times.case}: {times.device_us:.2f} us on the device (kernels {times.kernel_us:.2f}, whole call "
        f"{times.call_us:.1f}; {times.timing})"
    )
    if times.ratio is not None and times.baseline_device_us is not None:
        line += (
            f", baseline {times.baseline_device_us:.2f} us: {times.comparison}, {times.ratio:.4f}x "
            f"[{times.ratio_low:.4f}, {times.ratio_high:.4f}]"
        )
        if times.min_detectable_pct is not None:
            line += f", smallest visible change {times.min_detectable_pct:.2f} %"
        if times.call_ratio is not None:
            line += f", whole calls {times.call_ratio:.4f}x"
    if times.speed_of_light_pct is not None:
        line += f"; {times.speed_of_light_pct:.0f} % of the speed of light ({times.bound}-bound, {times.floor_from})"
    return line


def _against_line(entry: AgainstTimes) -> str:
    if entry.reason is not None or entry.device_us is None:
        return f"{entry.name}: not timed: {entry.reason}"
    return (
        f"{entry.name}: {entry.device_us:.2f} us on the device: the candidate is {entry.comparison}, "
        f"{entry.ratio:.3f}x [{entry.ratio_low:.3f}, {entry.ratio_high:.3f}]"
    )


def _next_step(score: Score | None) -> str:
    if score is None:
        return "Pass a baseline to compare with."
    if score.slower_cases and score.comparison != "slower":
        return f"Find out why {', '.join(score.slower_cases)} became slower before you keep it."
    match score.comparison:
        case "faster":
            return "Keep it as the one to beat; profile_ncu shows what limits it now."
        case "slower":
            return "Drop this idea; compare compile facts and profiles to see what it cost."
        case "same":
            return "No gain worth having: profile_ncu shows what really limits the kernel."
        case "ambiguous":
            return "Time it again, or on larger cases; do not act on this ratio."
