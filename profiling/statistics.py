"""Robust summaries and intervals for timing samples: medians, spreads, bootstraps over whole blocks."""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ..sandbox.wire import Wire

Block = Sequence[float]
"""Samples that were taken together and share what was going on then (clock, temperature, neighbours)."""

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 2000


class Interval(NamedTuple):
    """Where the true value lies, at the confidence that was asked for."""

    low: float
    high: float


class Spread(Wire):
    """A summary of samples of one quantity, in the unit of the samples."""

    n: int
    """Number of samples."""
    median: float
    mad: float
    """Median absolute deviation from the median, not scaled."""
    low: float
    """Lower end of the interval of the median."""
    high: float
    """Upper end of the interval of the median."""
    method: str
    """How the interval was made."""


def median(samples: Sequence[float]) -> float:
    """The median.

    Raises:
        ValueError: No samples, or one that isn't finite.
    """
    return statistics.median(_checked(samples))


def median_absolute_deviation(samples: Sequence[float]) -> float:
    """The median distance from the median, without the factor 1.4826 that estimates a standard deviation.

    Raises:
        ValueError: No samples, or one that isn't finite.
    """
    center = median(samples)
    return statistics.median(abs(sample - center) for sample in samples)


def spread(samples: Sequence[float]) -> Spread:
    """Summarizes samples, with the distribution-free 95 % interval of their median.

    The interval lies between two order statistics: the true median is below the k-th smallest of n samples
    with probability P(Binomial(n, 1/2) < k). Fewer than six samples allow no 95 % interval; theirs is the
    whole range, and `method` says so. Source: Conover, Practical Nonparametric Statistics, 3.2.

    Raises:
        ValueError: No samples, or one that isn't finite.
    """
    ordered = sorted(_checked(samples))
    n = len(ordered)
    k = _rank(n)
    return Spread(
        n=n,
        median=statistics.median(ordered),
        mad=median_absolute_deviation(ordered),
        low=ordered[max(k, 1) - 1],
        high=ordered[n - max(k, 1)],
        method="median; 95 % interval between order statistics" if k else "median; range, too few for 95 %",
    )


def bootstrap_interval(
    blocks: Sequence[Block],
    statistic: Callable[[Sequence[Block]], float],
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int,
) -> Interval:
    """The percentile bootstrap interval of `statistic`, drawing whole blocks with replacement.

    Samples of one block resemble each other, so drawing single samples would claim too much; blocks are
    the independent unit. The statistic runs once a resample, so reduce each block beforehand to the one
    value that it needs. Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapters 8 and 13.

    The plain percentile interval is too narrow for a dozen blocks (it misses 8 to 10 % of the time instead
    of 5 %), so its percentiles are moved outwards as far as Student's t is wider than the normal
    distribution: the expanded percentile interval of Hesterberg, What Teachers Should Know About the
    Bootstrap, The American Statistician 69 (2015), 5.3.

    Args:
        blocks: One sequence a block.
        statistic: Takes as many blocks as there are; some drawn more than once.
        resamples: Number of draws.
        confidence: Probability that the interval is to cover.
        seed: The same seed gives the same interval.

    Raises:
        ValueError: No blocks, an empty one, or a resample count or confidence out of range.
    """
    return stratified_interval(
        [blocks], lambda strata: statistic(strata[0]), resamples=resamples, confidence=confidence, seed=seed
    )


def stratified_interval(
    strata: Sequence[Sequence[Block]],
    statistic: Callable[[Sequence[Sequence[Block]]], float],
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int,
) -> Interval:
    """Like `bootstrap_interval`, with several strata (cases), each resampled within itself.

    The stratum with the fewest blocks sets the expansion.

    Raises:
        ValueError: As `bootstrap_interval`, or no strata.
    """
    if not strata or not all(strata) or not all(len(block) for blocks in strata for block in blocks):
        raise ValueError("nothing to resample: every stratum needs blocks and every block samples")
    if resamples < 1 or not 0 < confidence < 1:
        raise ValueError("resamples must be 1 or more and confidence between 0 and 1")
    generator = random.Random(seed)
    estimates = sorted(
        statistic([generator.choices(blocks, k=len(blocks)) for blocks in strata]) for _ in range(resamples)
    )
    tail = _expanded_tail((1 - confidence) / 2, min(len(blocks) for blocks in strata))
    return Interval(_quantile(estimates, tail), _quantile(estimates, 1 - tail))


def _checked(samples: Sequence[float]) -> Sequence[float]:
    if not samples:
        raise ValueError("no samples")
    if not all(math.isfinite(sample) for sample in samples):
        raise ValueError("a sample is not a finite number")
    return samples


def _rank(n: int) -> int:
    """The largest k with P(Binomial(n, 1/2) < k) <= 2.5 %; 0 where there is none. Exact in integers."""
    k, below, term = 0, 0, 1
    while (below + term) * 40 <= 1 << n:
        below += term
        term = term * (n - k) // (k + 1)
        k += 1
    return k


def _expanded_tail(tail: float, n: int) -> float:
    """Phi(-sqrt(n / (n - 1)) * t), where t leaves `tail` above it in Student's distribution of n - 1."""
    if n < 2:
        return tail  # One block resamples to itself; no percentile can widen that.
    z, freedom = -statistics.NormalDist().inv_cdf(tail), n - 1
    # Cornish-Fisher expansion, Abramowitz and Stegun 26.7.5; off by less than 0.2 % from five degrees on.
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return statistics.NormalDist().cdf(-math.sqrt(n / freedom) * t)


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    """The value at `fraction` of sorted values, interpolated between neighbours."""
    position = fraction * (len(ordered) - 1)
    index = math.floor(position)
    after = ordered[min(index + 1, len(ordered) - 1)]
    return ordered[index] + (position - index) * (after - ordered[index])
