"""What became of some artefacts in numbers: the rows of the report's tables."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

from ...sandbox.wire import Wire
from .model import SUCCESS_RATIO, Gain, KernelRecord, Outcome
from .statistics import GeometricMean, Share, geometric_mean, share

UNDECIDED: Final[tuple[Outcome, ...]] = ("measured", "untimed")
"""Whether these kernels can be made faster was not asked, or could not be told."""


class Numbers(Wire):
    """What became of some artefacts; values that there are no records for are null."""

    artefacts: int
    loaded: int
    """Those that a task could be made of."""
    runnable: int
    """Those whose baseline was timed."""
    undecided: int
    """Those whose baseline alone was measured, since there was no agent, and those that were not timed, since there was
    no GPU."""
    successes: int
    """Those that became at least 1.05 times as fast."""
    certain: int
    """Successes whose whole 95 % interval is at 1.05 or above."""
    device_successes: Share | None
    """Of the runnable ones: those of which some right candidate, accepted or not, took the device 1.05 times less."""
    success_of_runnable: Share | None
    success_of_all: Share | None
    mean_speedup: float | None
    """Arithmetic, of the successes."""
    median_speedup: float | None
    """Of the successes."""
    geometric_mean: GeometricMean | None
    """Of all whose speed-up is known; where nothing was gained it is 1."""
    speedup_unknown: int
    """Those whose baseline was timed and whose speed-up is not known: left out of the geometric mean."""
    tried: int
    """Those that an agent submitted candidates for, or gave up: what the rounds are counted over."""
    rounds_mean: float | None
    """Candidates submitted for a kernel."""
    rounds_median: float | None


def numbers(records: Sequence[KernelRecord]) -> Numbers:
    """Counts, rates and means of some records."""
    runnable = [record for record in records if record.baseline]
    undecided = [record for record in records if record.outcome in UNDECIDED]
    ratios = [ratio for record in records if (ratio := record.speedup) is not None]
    succeeded = [record for record in records if succeeds(record)]
    gains = [ratio for ratio in ratios if ratio >= SUCCESS_RATIO]
    tried = [record for record in records if record.outcome in ("gained", "no_gain") or record.attempts]
    rounds = [record.attempts for record in tried]
    # Where nothing that ran was decided, no rate is known, unless nothing could have been.
    decided = any(record.outcome not in UNDECIDED for record in runnable)
    return Numbers(
        artefacts=len(records),
        loaded=sum(map(is_loaded, records)),
        runnable=len(runnable),
        undecided=len(undecided),
        successes=len(succeeded),
        certain=sum(gain.ratio_low >= SUCCESS_RATIO for record in succeeded if (gain := counted(record)) is not None),
        device_successes=share(sum(map(_gains_on_device, runnable)), len(runnable)) if decided else None,
        success_of_runnable=share(sum(map(succeeds, runnable)), len(runnable)) if decided else None,
        success_of_all=share(len(succeeded), len(records)) if decided or not undecided else None,
        mean_speedup=fmean(gains) if gains else None,
        median_speedup=median(gains) if gains else None,
        geometric_mean=geometric_mean(ratios),
        speedup_unknown=sum(record.speedup is None for record in runnable),
        tried=len(tried),
        rounds_mean=fmean(rounds) if rounds else None,
        rounds_median=median(rounds) if rounds else None,
    )


def _gains_on_device(record: KernelRecord) -> bool:
    return succeeds(record) or (record.device_gain is not None and record.device_gain.ratio >= SUCCESS_RATIO)


def succeeds(record: KernelRecord) -> bool:
    """Whether the kernel became at least 1.05 times as fast."""
    return (record.speedup or 0.0) >= SUCCESS_RATIO


def counted(record: KernelRecord) -> Gain | None:
    """The gain that counts: the one of the end, where a winner was measured once more."""
    return (record.verified or record.gain) if record.outcome == "gained" else None


def is_loaded(record: KernelRecord) -> bool:
    """Whether a task was made of the artefact. The campaign may have failed before that, and there is no task without
    a case."""
    return record.outcome != "not_loaded" and (record.outcome != "failed" or record.cases > 0)


def no_rate(found: Numbers) -> str:
    """Why there is no success rate."""
    if not found.artefacts:
        return "there are no artefacts"
    if not found.runnable:
        return "no baseline was timed"
    return "no agent was at work"
