"""Is the candidate faster than the baseline? A paired comparison that says what it could not have seen.

Baseline and candidate are timed in blocks, in the order ABBA: within a block both meet the same clock and
temperature, so each block gives one ratio, and drift cancels. Ratios are averaged as logarithms, so that swapping the
sides gives the reciprocal. The blocks are the samples; they come from one or more pairs of processes, and may come back
to the same buffers. Where either makes a difference, the blocks are not taken to be independent.

Whether to go on is decided at several looks, each of which could be wrong, so they share what is allowed of false
positives (`decide`). A look's interval is that of Student's t around the trimmed mean of the blocks' log ratios.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final, Literal

from ..sandbox.wire import Wire
from .statistics import (
    CONFIDENCE,
    Estimate,
    Interval,
    Variance,
    between_groups,
    bootstrap_interval,
    interquartile_mean,
    interval_of_sum,
    median,
    total_variance,
    trimmed_estimate,
    trimmed_mean,
)

Outcome = Literal["faster", "slower", "same", "ambiguous"]

LOOKS: Final = (6, 8, 11, 15, 20, 28, 40, 56, 80)
"""Numbers of blocks at which it is decided whether to go on."""

FALSE_POSITIVES: Final = 0.01
"""How often identical kernels may be called faster or slower, over all looks together."""

RESOLUTION: Final = 0.001
RESOLUTION_US: Final = 0.02
"""What identical kernels differ by, however long one measures: 0.02 us, at least 0.1 %. Biases of a process were
within 0.06 % from 100 us on, on an H200, once blocks changed their buffers."""

MARGIN: Final = 0.005
MARGIN_US: Final = 0.05
"""Differences within 0.5 %, or 0.05 us, count as the same."""

EARLY_BLOCKS: Final = 15
EARLY_RESOLUTION: Final = 0.02
"""Before 15 blocks only what exceeds 2 % is told. Noise of two states (buffers that lie well or badly) puts all of six
blocks on one side with probability 2 * (1/2)^6 = 3 %, where Student's t sees no noise at all; from 15 blocks on,
one of them trimmed, with 2 * 16 * (1/2)^15 = 0.1 %, a look's share. Blocks of identical kernels scatter by up to 1.3 %
(standard deviation, H200)."""

POWER: Final = 0.8
"""How often a change of the detectable size is found."""

_TAIL: Final = FALSE_POSITIVES / len(LOOKS) / 2
_POWER_ERRORS: Final = NormalDist().inv_cdf(POWER)


@dataclass(frozen=True, slots=True)
class PairBlock:
    """One ABBA block: times of both sides, taken close together, in microseconds.

    Raises:
        ValueError: A side without samples, or a time that isn't positive and finite.
    """

    baseline_us: Sequence[float]
    candidate_us: Sequence[float]
    layout: int | None = None
    """Which buffers its sides used, where blocks come back to the same ones; None: each block has its own."""
    baseline_mean_us: float = field(init=False)
    """Interquartile mean, as is the candidate's."""
    candidate_mean_us: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "baseline_mean_us", _mean_us("baseline", self.baseline_us))
        object.__setattr__(self, "candidate_mean_us", _mean_us("candidate", self.candidate_us))


class Comparison(Wire):
    """The baseline's time over the candidate's, and what can be said of it."""

    ratio: float
    """Baseline time over candidate time: above 1 the candidate is faster."""
    ratio_low: float
    """Lower end of the 95 % interval of `ratio`."""
    ratio_high: float
    """Upper end of the 95 % interval of `ratio`."""
    comparison: Outcome
    """`faster` or `slower`: differs by more than identical kernels do (`resolution_pct`). `same`: differs by less than
    `margin_pct`. `ambiguous`: neither can be told."""
    min_detectable_pct: float | None
    """Smallest change of time that so many blocks show 4 times in 5. Null with too few blocks to show any."""
    resolution_pct: float
    """Identical kernels may differ by this; no smaller change is believed."""
    margin_pct: float
    """Changes within this count as the same."""
    false_positive_pct: float
    """How often identical kernels are called faster or slower, at most."""
    blocks: int
    """Number of blocks: independent ratios."""
    samples: int
    """Number of times measured, of both sides together."""


class Score(Comparison):
    """The weighted geometric mean of the cases' ratios, and which cases differ."""

    faster_cases: list[str]
    """Cases where the candidate is faster."""
    slower_cases: list[str]
    """Cases where it is slower, whatever the mean says."""
    ambiguous_cases: list[str]
    """Cases where nothing can be told."""


class LogRatio(float):
    """log(baseline time / candidate time) of a block: above 0 the candidate is faster."""

    layout: int | None
    """The block's."""

    def __new__(cls, value: float, layout: int | None) -> "LogRatio":
        ratio = super().__new__(cls, value)
        ratio.layout = layout
        return ratio


@dataclass(frozen=True, slots=True)
class WeightedCase:
    """One case's part in a score."""

    name: str
    weight: float
    comparison: Comparison
    log_ratios: Sequence[Sequence[LogRatio]]
    """One sequence a pair of processes, from `log_ratios`."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """What it takes to be called different or the same."""

    believed: float
    """Relative difference that has to be exceeded."""
    margin: float
    early: bool

    def outcome(self, found: Estimate) -> Outcome:
        errors = found.variance.errors(_TAIL)
        low, high = found.value - errors, found.value + errors
        if low > math.log1p(self.believed):
            return "faster"
        if high < -math.log1p(self.believed):
            return "slower"
        if not self.early and max(-low, high) <= math.log1p(self.margin):
            return "same"
        return "ambiguous"

    def detectable_pct(self, variance: Variance) -> float:
        errors = variance.errors(_TAIL)
        scatter = math.sqrt(variance.value + errors**2 / (2 * variance.freedom))
        return 100 * math.expm1(math.log1p(self.believed) + errors + _POWER_ERRORS * scatter)


def decide(groups: Sequence[Sequence[PairBlock]], duration_us: float | None = None) -> Outcome:
    """What the blocks tell so far; `ambiguous` calls for more.

    To be asked at each of `LOOKS`, and once more where measuring has to end between two of them. With the interval of
    Student's t at confidence 1 - FALSE_POSITIVES / len(LOOKS) around log(ratio), r the `resolution` and m the `margin`:

        faster     low > log(1 + r)
        slower     high < -log(1 + r)
        same       the whole interval within [-log(1 + m), log(1 + m)]
        ambiguous  else, and with fewer than six blocks

    So a real change below the margin is still told when it is measured sharply enough, and the constant bias of short
    kernels is not. Before `EARLY_BLOCKS` r is at least `EARLY_RESOLUTION`, and nothing is the same. Identical kernels
    are called different with probability FALSE_POSITIVES at most over all looks, by Bonferroni's inequality, if blocks
    are independent or show what they share (`_beyond_blocks`). Source: Jennison and Turnbull, Group Sequential Methods
    (2000), chapter 9 (repeated confidence intervals).

    Args:
        groups: One sequence of blocks for each pair of processes.
        duration_us: For resolution and margin; the shorter side's, from the blocks, if None.

    Raises:
        ValueError: No blocks, or a duration that isn't positive and finite.
    """
    groups = _with_blocks(groups)
    rule = _rule(groups, duration_us)
    estimate = _estimate([log_ratios(blocks) for blocks in groups])
    return "ambiguous" if estimate is None else rule.outcome(estimate)


def compare(groups: Sequence[Sequence[PairBlock]], duration_us: float | None = None, *, seed: int = 0) -> Comparison:
    """Compares the two sides; the outcome is that of `decide`.

    The ratio is the 10 % trimmed mean of the blocks' log ratios, whatever pair they come from. Its 95 % interval is a
    bootstrap over blocks (`bootstrap_interval`), or their range with fewer than six. It takes no account of the looks:
    after these an interval of Student's t at 95 % covered the true ratio in 89 to 96 % of simulated measurements. It is
    wider where pairs or layouts differ by more than chance explains (`between_groups`), as is the decision's.

    min_detectable_pct is 100 * (exp(log(1 + r) + d) - 1). With the standard error e, its f degrees of freedom and
    Student's t of the decision, the low end of the interval is t * e below the ratio and scatters by
    e * sqrt(1 + t^2 / (2 * f)), so d = t * e + 0.842 * e * sqrt(1 + t^2 / (2 * f)) is found 4 times in 5. Sources:
    Bloom, Minimum Detectable Effects, Evaluation Review 19 (1995); Abramowitz and Stegun, 26.7.10.

    Args:
        groups: One sequence of blocks for each pair of processes.
        duration_us: For resolution and margin; the shorter side's, from the blocks, if None.
        seed: Of the bootstrap; the same samples and seed give the same result.

    Raises:
        ValueError: No blocks, or a duration that isn't positive and finite.
    """
    groups = _with_blocks(groups)
    logs = [log_ratios(blocks) for blocks in groups]
    ratios = _pooled(logs)
    center, interval, estimate = trimmed_mean(ratios), Interval(min(ratios), max(ratios)), _estimate(logs)
    if estimate is not None:
        beyond = _beyond_blocks(logs).errors((1 - CONFIDENCE) / 2)
        drawn = bootstrap_interval(ratios, trimmed_mean, seed=seed)
        interval = interval_of_sum([(center, drawn), (0.0, Interval(-beyond, beyond))])
    return _told(
        center,
        interval,
        estimate,
        _rule(groups, duration_us),
        blocks=len(ratios),
        samples=sum(len(block.baseline_us) + len(block.candidate_us) for blocks in groups for block in blocks),
    )


def combine(cases: Sequence[WeightedCase]) -> Score:
    """The score over cases: the weighted geometric mean of their ratios, judged by the rule of `decide`.

    Its variance is the sum of the cases' own, times their squared shares, and its 95 % interval likewise the sum of
    theirs (`interval_of_sum`). Resolution and margin are the weighted geometric means of the cases' own, since their
    biases may all point the same way. A case with too few blocks leaves the score `ambiguous`.

    Raises:
        ValueError: No cases, a weight that isn't positive and finite, or a case whose ratios are missing.
    """
    if not cases:
        raise ValueError("no cases to combine")
    if not all(math.isfinite(case.weight) and case.weight > 0 for case in cases):
        raise ValueError("every weight must be positive and finite")
    if not all(sum(map(len, case.log_ratios)) == case.comparison.blocks for case in cases):
        raise ValueError("every case needs one log ratio a block of its comparison")
    total = sum(case.weight for case in cases)
    shares = [case.weight / total for case in cases]

    def mean(values: Iterable[float]) -> float:
        return math.fsum(share * value for share, value in zip(shares, values, strict=True))

    parts = [_log_interval(case.comparison, share) for case, share in zip(cases, shares, strict=True)]
    estimates = [_estimate(case.log_ratios) for case in cases]
    variances = [
        estimate.variance.times(share**2)
        for estimate, share in zip(estimates, shares, strict=True)
        if estimate is not None
    ]
    center = math.fsum(value for value, _ in parts)
    told = _told(
        center,
        interval_of_sum(parts),
        Estimate(center, total_variance(variances)) if len(variances) == len(cases) else None,
        _Rule(
            believed=math.expm1(mean(math.log1p(case.comparison.resolution_pct / 100) for case in cases)),
            margin=math.expm1(mean(math.log1p(case.comparison.margin_pct / 100) for case in cases)),
            early=any(case.comparison.blocks < EARLY_BLOCKS for case in cases),
        ),
        blocks=sum(case.comparison.blocks for case in cases),
        samples=sum(case.comparison.samples for case in cases),
    )

    def names(outcome: Outcome) -> list[str]:
        return [case.name for case in cases if case.comparison.comparison == outcome]

    return Score(
        **told.model_dump(),
        faster_cases=names("faster"),
        slower_cases=names("slower"),
        ambiguous_cases=names("ambiguous"),
    )


def log_ratios(blocks: Sequence[PairBlock]) -> list[LogRatio]:
    """log(baseline time / candidate time) of each block, from the interquartile means of its times."""
    return [LogRatio(math.log(block.baseline_mean_us / block.candidate_mean_us), block.layout) for block in blocks]


def resolution(duration_us: float) -> float:
    """The relative difference that identical kernels of this duration may show."""
    return max(RESOLUTION, RESOLUTION_US / duration_us)


def margin(duration_us: float) -> float:
    """The relative difference that doesn't matter for kernels of this duration."""
    return max(MARGIN, MARGIN_US / duration_us)


def _mean_us(side: str, times_us: Sequence[float]) -> float:
    if not times_us:
        raise ValueError(f"a block has no {side} samples")
    if not all(map(math.isfinite, times_us)) or min(times_us) <= 0:
        raise ValueError(f"a block has a {side} time that is not positive and finite")
    return interquartile_mean(times_us)


def _with_blocks(groups: Sequence[Sequence[PairBlock]]) -> list[Sequence[PairBlock]]:
    groups = [blocks for blocks in groups if blocks]
    if not groups:
        raise ValueError("no blocks to compare")
    return groups


def _rule(groups: Sequence[Sequence[PairBlock]], duration_us: float | None) -> _Rule:
    blocks = [block for group in groups for block in group]
    if duration_us is None:
        duration_us = min(
            median([block.baseline_mean_us for block in blocks]), median([block.candidate_mean_us for block in blocks])
        )
    if not (math.isfinite(duration_us) and duration_us > 0):
        raise ValueError("the duration must be positive and finite")
    early = len(blocks) < EARLY_BLOCKS
    believed = max(resolution(duration_us), EARLY_RESOLUTION if early else 0.0)
    return _Rule(believed, margin(duration_us), early)


def _pooled(groups: Sequence[Sequence[LogRatio]]) -> list[float]:
    return [float(ratio) for ratios in groups for ratio in ratios]


def _estimate(groups: Sequence[Sequence[LogRatio]]) -> Estimate | None:
    """The trimmed mean, of one sequence a pair of processes; None with fewer than six ratios."""
    ratios = _pooled(groups)
    if len(ratios) < LOOKS[0]:
        return None
    pooled = trimmed_estimate(ratios)
    return Estimate(pooled.value, total_variance([pooled.variance, _beyond_blocks(groups)]))


def _beyond_blocks(groups: Sequence[Sequence[LogRatio]]) -> Variance:
    """What the variance of the mean grows by because pairs of processes differ, or the layouts of their buffers.

    Identical kernels, simulated up to 80 blocks of 100 us at 0.15, 0.7 and 1.2 % noise: with two or three pairs in turn
    that are biased by 0.1 % (standard deviation) at most 0.3 % of runs called them different, by 0.2 % 3.8 and 0.8 %;
    where eight layouts made half of the noise, 1.8 % with one pair (9 % were layouts not known), 0.6 and 0.3 % with two
    and three. What isn't there costs little: 0.5 % was found at 0.7 % noise in 91 to 93 % of runs, by blocks alone in
    94 %.
    """
    by_layout: dict[tuple[int, int | None], list[float]] = {}
    for pair, ratios in enumerate(groups):
        for ratio in ratios:
            by_layout.setdefault((pair, ratio.layout), []).append(float(ratio))
    by_pair = [[*map(float, ratios)] for ratios in groups if ratios]
    return max(between_groups(by_pair), between_groups([*by_layout.values()]))


def _log_interval(case: Comparison, share: float) -> tuple[float, Interval]:
    """`share` of the case's log ratio, and the interval of that."""
    low, high = math.log(case.ratio_low), math.log(case.ratio_high)
    return share * math.log(case.ratio), Interval(share * low, share * high)


def _told(
    center: float, interval: Interval, estimate: Estimate | None, rule: _Rule, *, blocks: int, samples: int
) -> Comparison:
    """`estimate`: None where too few blocks allow no judgement."""
    return Comparison(
        ratio=math.exp(center),
        ratio_low=math.exp(interval.low),
        ratio_high=math.exp(interval.high),
        comparison="ambiguous" if estimate is None else rule.outcome(estimate),
        min_detectable_pct=None if estimate is None else rule.detectable_pct(estimate.variance),
        resolution_pct=100 * rule.believed,
        margin_pct=100 * rule.margin,
        false_positive_pct=100 * FALSE_POSITIVES,
        blocks=blocks,
        samples=samples,
    )
