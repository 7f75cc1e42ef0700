"""Is the candidate faster than the baseline? A paired comparison that says what it could not have seen.

Baseline and candidate are timed in blocks, in the order ABBA: within a block both meet the same clock and
temperature, so each block gives one ratio of medians, and drift cancels. Ratios are averaged as logarithms,
so that swapping the sides gives the reciprocal. The blocks are the independent samples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from ..sandbox.wire import Wire
from .statistics import Block, Interval, bootstrap_interval, stratified_interval

Outcome = Literal["faster", "slower", "same", "ambiguous"]

MARGIN: Final = 0.01
"""Times within 1 % count as the same."""

MIN_BLOCKS: Final = 6
"""Fewer blocks can't give a 95 % interval of a median: even their whole range misses it with probability
2 * (1/2)^n, which is 6 % for five."""

RESOLUTION_US: Final = 0.2
RESOLUTION: Final = 0.002
"""What identical kernels differ by, however long one measures: mostly where their buffers lie. Measured as
up to 0.13 us and 0.2 % on an H200, in A/A runs from 13 us to 190 us."""

DETECTABLE_ERRORS: Final = 2.80
"""Standard errors that an effect must measure to be seen at 95 % confidence with 80 % power:
1.960 + 0.842. Source: Bloom, Minimum Detectable Effects, Evaluation Review 19 (1995)."""

_ERRORS_PER_HALF_WIDTH: Final = 1.960


@dataclass(frozen=True, slots=True)
class PairBlock:
    """One ABBA block: times of both sides, taken close together, in microseconds."""

    baseline_us: Sequence[float]
    candidate_us: Sequence[float]


class Comparison(Wire):
    """The baseline's time over the candidate's, and what can be said of it."""

    ratio: float
    """Baseline time over candidate time: above 1 the candidate is faster. Median over the blocks."""
    ratio_low: float
    """Lower end of the 95 % interval of `ratio`."""
    ratio_high: float
    """Upper end of the 95 % interval of `ratio`."""
    comparison: Outcome
    """`faster` or `slower` where the whole interval lies beyond what identical kernels differ by, `same`
    where it lies within the margin, else `ambiguous`: measure more, or accept not knowing."""
    min_detectable_pct: float | None
    """Smallest change of time that this measurement would have seen (95 % confidence, 80 % power). None
    with fewer than six blocks, which can't show any."""
    resolution_pct: float
    """What identical kernels of this duration may differ by; no smaller effect is believed."""
    margin_pct: float
    """Differences within this count as the same."""
    blocks: int
    """Number of blocks."""
    samples: int
    """Number of times measured, of both sides together."""


@dataclass(frozen=True, slots=True)
class WeightedCase:
    """One case's part in a score."""

    weight: float
    comparison: Comparison
    log_ratios: Sequence[float]
    """One a block, from `log_ratios`."""


def compare(blocks: Sequence[PairBlock], *, margin: float = MARGIN, seed: int = 0) -> Comparison:
    """Compares the two sides of `blocks`.

    The interval is a 95 % bootstrap over blocks (`bootstrap_interval`). Let r be the `resolution` at the
    shorter side's time and m the larger of `margin` and r. The outcome is `faster` if ratio_low > 1 + r,
    `slower` if ratio_high < 1 / (1 + r), `same` if the interval lies within [1 / (1 + m), 1 + m], else
    `ambiguous`. So a real change below the margin is still told when it is measured sharply enough, and the
    constant bias of short kernels is not. Fewer than `MIN_BLOCKS` blocks are `ambiguous`, with their range
    as the interval.

    min_detectable_pct is 100 * (exp(log(1 + r) + 2.80 * e) - 1), with the standard error e taken as half
    the width of the interval of log(ratio), over 1.96.

    Args:
        blocks: At least one.
        margin: Relative difference that doesn't matter.
        seed: Of the bootstrap; the same samples and seed give the same result.

    Raises:
        ValueError: No blocks, a side without samples, a time that isn't positive and finite, or a negative
            margin.
    """
    ratios = log_ratios(blocks)
    shortest_us = min(
        median(median(block.baseline_us) for block in blocks),
        median(median(block.candidate_us) for block in blocks),
    )
    enough = len(blocks) >= MIN_BLOCKS
    interval = (
        bootstrap_interval([[ratio] for ratio in ratios], _median_of_ratios, seed=seed)
        if enough
        else Interval(min(ratios), max(ratios))
    )
    return _judge(
        median(ratios),
        interval,
        resolution=resolution(shortest_us),
        margin=margin,
        enough=enough,
        blocks=len(blocks),
        samples=sum(len(block.baseline_us) + len(block.candidate_us) for block in blocks),
    )


def combine(cases: Sequence[WeightedCase], *, seed: int = 0) -> Comparison:
    """The score over cases: the weighted geometric mean of their ratios.

    The interval resamples blocks within each case. Resolution and margin are the weighted geometric means
    of the cases' own, since their biases may all point the same way. A case with too few blocks leaves the
    score `ambiguous`.

    Raises:
        ValueError: No cases, a weight that isn't positive and finite, or a case whose ratios are missing.
    """
    if not cases:
        raise ValueError("no cases to combine")
    if not all(math.isfinite(case.weight) and case.weight > 0 for case in cases):
        raise ValueError("every weight must be positive and finite")
    if not all(len(case.log_ratios) == case.comparison.blocks for case in cases):
        raise ValueError("every case needs one log ratio a block of its comparison")
    total = sum(case.weight for case in cases)
    shares = [case.weight / total for case in cases]

    def mean(logs: Sequence[float]) -> float:
        return sum(share * log for share, log in zip(shares, logs, strict=True))

    enough = all(case.comparison.blocks >= MIN_BLOCKS for case in cases)
    interval = (
        stratified_interval(
            [[[ratio] for ratio in case.log_ratios] for case in cases],
            lambda strata: mean([*map(_median_of_ratios, strata)]),
            seed=seed,
        )
        if enough
        else Interval(
            mean([math.log(case.comparison.ratio_low) for case in cases]),
            mean([math.log(case.comparison.ratio_high) for case in cases]),
        )
    )
    return _judge(
        mean([median(case.log_ratios) for case in cases]),
        interval,
        resolution=math.expm1(mean([math.log1p(case.comparison.resolution_pct / 100) for case in cases])),
        margin=math.expm1(mean([math.log1p(case.comparison.margin_pct / 100) for case in cases])),
        enough=enough,
        blocks=sum(case.comparison.blocks for case in cases),
        samples=sum(case.comparison.samples for case in cases),
    )


def log_ratios(blocks: Sequence[PairBlock]) -> list[float]:
    """log(median baseline time / median candidate time) of each block.

    Raises:
        ValueError: No blocks, a side without samples, or a time that isn't positive and finite.
    """
    if not blocks:
        raise ValueError("no blocks to compare")
    for number, block in enumerate(blocks):
        for side, times in (("baseline", block.baseline_us), ("candidate", block.candidate_us)):
            if not times:
                raise ValueError(f"block {number} has no {side} samples")
            if not all(math.isfinite(time) and time > 0 for time in times):
                raise ValueError(f"block {number} has a {side} time that is not positive and finite")
    return [math.log(median(block.baseline_us) / median(block.candidate_us)) for block in blocks]


def resolution(duration_us: float) -> float:
    """The relative difference that identical kernels of this duration may show: 0.2 us, at least 0.2 %."""
    return max(RESOLUTION, RESOLUTION_US / duration_us)


def _median_of_ratios(drawn: Sequence[Block]) -> float:
    """`drawn`: blocks that were reduced to their one log ratio."""
    return median(block[0] for block in drawn)


def _judge(
    log_ratio: float,
    interval: Interval,
    *,
    resolution: float,
    margin: float,
    enough: bool,
    blocks: int,
    samples: int,
) -> Comparison:
    """Names the outcome of an interval of log(ratio)."""
    if not (math.isfinite(margin) and margin >= 0):
        raise ValueError("margin must be zero or more")
    margin = max(margin, resolution)
    seen, alike = math.log1p(resolution), math.log1p(margin)
    outcome: Outcome = "ambiguous"
    if enough and interval.low > seen:
        outcome = "faster"
    elif enough and interval.high < -seen:
        outcome = "slower"
    elif enough and -alike <= interval.low and interval.high <= alike:
        outcome = "same"
    error = (interval.high - interval.low) / 2 / _ERRORS_PER_HALF_WIDTH
    return Comparison(
        ratio=math.exp(log_ratio),
        ratio_low=math.exp(interval.low),
        ratio_high=math.exp(interval.high),
        comparison=outcome,
        min_detectable_pct=100 * math.expm1(seen + DETECTABLE_ERRORS * error) if enough else None,
        resolution_pct=100 * resolution,
        margin_pct=100 * margin,
        blocks=blocks,
        samples=samples,
    )
