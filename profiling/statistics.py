"""Robust summaries and intervals for timing samples: medians, trimmed means, Student's t, bootstraps."""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ..sandbox.wire import Wire

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 2000
TRIM: Final = 0.10
"""Share of the samples that a trimmed mean leaves out at each end."""

PRIOR_GROUPS: Final = 3
"""Two or three groups tell their spread as well as so many more would, since it is known to be small where it isn't
seen to be large. Without, Student's t of two (one degree of freedom) would tell nothing: 573 standard errors at
99.9 %."""


class Interval(NamedTuple):
    """Where the true value lies, at the confidence that was asked for."""

    low: float
    high: float


class Variance(NamedTuple):
    """How far an estimate may be off, squared, and how well that itself is known."""

    value: float
    freedom: float
    """Degrees of freedom."""

    def times(self, factor: float) -> "Variance":
        return Variance(self.value * factor, self.freedom)

    def errors(self, tail: float) -> float:
        """How far an estimate is off with probability `tail` to each side: Student's t times the standard error."""
        return student_quantile(tail, math.floor(self.freedom)) * math.sqrt(self.value)


class Estimate(NamedTuple):
    """A mean and the variance of it (not of the samples)."""

    value: float
    variance: Variance


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


def trimmed_mean(samples: Sequence[float], share: float = TRIM) -> float:
    """The mean without the floor(share * n) smallest and as many largest samples.

    Raises:
        ValueError: No samples, or one that isn't finite.
    """
    kept = _trimmed(samples, share)
    return sum(kept) / len(kept)


def interquartile_mean(samples: Sequence[float]) -> float:
    """The mean of the middle half. Of a block's calls the sharpest all round: an outlier doesn't move it, as it does
    the mean, and it uses more of the samples than the median.

    Raises:
        ValueError: No samples, or one that isn't finite.
    """
    return trimmed_mean(samples, 0.25)


def trimmed_estimate(samples: Sequence[float], share: float = TRIM) -> Estimate:
    """The trimmed mean and its variance, for Student's t.

    With h samples left after trimming, and each trimmed one replaced by the nearest that was left, the variance is
    the sum of squared deviations of these n from their mean over h * (h - 1), with h - 1 degrees of freedom; untrimmed
    that is the usual variance of a mean. Source: Tukey and McLaughlin, Less Vulnerable Confidence and Significance
    Procedures for Location Based on a Single Sample, Sankhya A 25 (1963).

    Raises:
        ValueError: Fewer than two samples left, or one that isn't finite.
    """
    kept = _trimmed(samples, share)
    if len(kept) < 2:
        raise ValueError("one sample has no variance")
    cut = (len(samples) - len(kept)) // 2
    pulled_in = [*[kept[0]] * cut, *kept, *[kept[-1]] * cut]
    center = statistics.fmean(pulled_in)
    squares = math.fsum((sample - center) ** 2 for sample in pulled_in)
    return Estimate(sum(kept) / len(kept), Variance(squares / (len(kept) * (len(kept) - 1)), len(kept) - 1))


def total_variance(parts: Iterable[Variance]) -> Variance:
    """The variance of a sum whose parts have these. Source of its degrees of freedom: Satterthwaite, An Approximate
    Distribution of Estimates of Variance Components, Biometrics Bulletin 2 (1946)."""
    known = [part for part in parts if part.value > 0] or [Variance(0.0, 1)]
    if len(known) == 1:
        return known[0]
    total = math.fsum(part.value for part in known)
    return Variance(total, 1 / math.fsum((part.value / total) ** 2 / part.freedom for part in known))


def between_groups(groups: Sequence[Sequence[float]], share: float = TRIM) -> Variance:
    """What the variance of the trimmed mean of all samples grows by because groups of them differ.

    An analysis of variance of the samples pulled in as for `trimmed_estimate`: with n_i samples of mean m_i in each of
    k groups, and m their mean, sum(n_i * (m_i - m)^2) / (k - 1) takes the place of the samples' variance, which it is
    on average where groups are alike. The larger of the two variances of the trimmed mean counts, as in Roever, Knapp
    and Friede, Hartung-Knapp-Sidik-Jonkman Approach and Its Modification for Random-Effects Meta-Analysis with Few
    Studies, BMC Medical Research Methodology 15 (2015). But the groups' counts only as far as it exceeds the samples'
    1 + 2 / sqrt(k - 1) times, as it does by chance in one case of eleven; else one in three would pay for what isn't
    there. The degrees of freedom are those of the groups and of `PRIOR_GROUPS` more, in the way of Smyth, Linear Models
    and Empirical Bayes Methods, Statistical Applications in Genetics and Molecular Biology 3 (2004).

    Args:
        groups: One sequence of samples for each, none of them empty.
        share: Trimmed at each end.

    Raises:
        ValueError: Fewer than two samples left, or one that isn't finite.
    """
    freedom = len(groups) - 1
    if freedom < 1:
        return Variance(0.0, PRIOR_GROUPS)
    kept = _trimmed([sample for group in groups for sample in group], share)
    if len(kept) < 2:
        raise ValueError("one sample has no variance")
    lowest, highest = kept[0], kept[-1]
    pulled_in = [[min(max(sample, lowest), highest) for sample in group] for group in groups]
    n = sum(map(len, groups))
    center = sum(map(sum, pulled_in)) / n
    of_groups = sum(len(group) * (sum(group) / len(group) - center) ** 2 for group in pulled_in) / freedom
    of_samples = sum((sample - center) ** 2 for group in pulled_in for sample in group) / (n - 1)
    excess = max(0.0, of_groups - (1 + 2 / math.sqrt(freedom)) * of_samples)
    # What is overlooked where the mean rests mostly on few groups; 1 where they are equal.
    concentration = sum((len(group) / n) ** 2 for group in groups)
    uneven = concentration * freedom / (1 - concentration)
    return Variance(excess * uneven * (n - 1) / (len(kept) * (len(kept) - 1)), freedom + PRIOR_GROUPS)


def interval_of_sum(parts: Sequence[tuple[float, Interval]]) -> Interval:
    """The interval of a sum of independent estimates, from theirs: distances to the ends add up as squares. Source: Zou
    and Donner, Construction of Confidence Limits about Effect Measures, Statistics in Medicine 27 (2008)."""
    center = math.fsum(estimate for estimate, _ in parts)
    return Interval(
        center - math.hypot(*(estimate - interval.low for estimate, interval in parts)),
        center + math.hypot(*(interval.high - estimate for estimate, interval in parts)),
    )


@lru_cache(maxsize=1024)
def student_quantile(tail: float, freedom: int) -> float:
    """The value that Student's t exceeds with probability `tail`.

    The exact distribution for whole degrees of freedom (Abramowitz and Stegun, Handbook of Mathematical Functions,
    26.7.3 and 26.7.4), inverted by Newton's method. The tail is convex, so steps that start below the value, at the
    normal distribution's, approach it from there. Good to nine digits for tails from 1e-6 on.

    Raises:
        ValueError: A tail outside 0 to 1/2, or less than one degree of freedom.
    """
    if not 0 < tail < 0.5 or freedom < 1:
        raise ValueError("the tail must be between 0 and 1/2 and there must be a degree of freedom")
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    t, step = -statistics.NormalDist().inv_cdf(tail), math.inf
    while step > 1e-12 * t:
        density = math.exp(scale - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (_student_tail(t, freedom) - tail) / density
        t += step
    return t


def bootstrap_interval(
    samples: Sequence[float],
    statistic: Callable[[Sequence[float]], float],
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int,
) -> Interval:
    """The percentile bootstrap interval of `statistic`, drawing samples with replacement.

    The samples must be independent: reduce what was taken together to one value beforehand. Source: Efron and
    Tibshirani, An Introduction to the Bootstrap, chapters 8 and 13.

    The plain percentile interval is too narrow for a dozen samples (it misses 8 to 10 % of the time instead
    of 5 %), so its percentiles are moved outwards as far as Student's t is wider than the normal
    distribution: the expanded percentile interval of Hesterberg, What Teachers Should Know About the
    Bootstrap, The American Statistician 69 (2015), 5.3.

    Args:
        samples: At least one.
        statistic: Takes as many samples as there are; some drawn more than once.
        resamples: Number of draws.
        confidence: Probability that the interval is to cover.
        seed: The same seed gives the same interval.

    Raises:
        ValueError: No samples, or a resample count or confidence out of range.
    """
    if not samples:
        raise ValueError("nothing to resample")
    if resamples < 1 or not 0 < confidence < 1:
        raise ValueError("resamples must be 1 or more and confidence between 0 and 1")
    n = len(samples)
    drawn = random.Random(seed).choices(samples, k=n * resamples)
    estimates = sorted(statistic(drawn[start : start + n]) for start in range(0, n * resamples, n))
    tail = _expanded_tail((1 - confidence) / 2, n)
    return Interval(_quantile(estimates, tail), _quantile(estimates, 1 - tail))


def _checked(samples: Sequence[float]) -> Sequence[float]:
    if not samples:
        raise ValueError("no samples")
    if not all(map(math.isfinite, samples)):
        raise ValueError("a sample is not a finite number")
    return samples


def _trimmed(samples: Sequence[float], share: float) -> list[float]:
    """What is left of the sorted samples."""
    ordered = sorted(_checked(samples))
    cut = int(share * len(ordered))
    return ordered[cut : len(ordered) - cut]


def _rank(n: int) -> int:
    """The largest k with P(Binomial(n, 1/2) < k) <= 2.5 %; 0 where there is none. Exact in integers."""
    k, below, term = 0, 0, 1
    while (below + term) * 40 <= 1 << n:
        below += term
        term = term * (n - k) // (k + 1)
        k += 1
    return k


def _student_tail(t: float, freedom: int) -> float:
    """The probability that Student's t exceeds `t`, which is positive."""
    angle = math.atan2(t, math.sqrt(freedom))
    power = math.cos(angle) if freedom % 2 else 1.0
    total = 0.0
    for exponent in range(freedom % 2, freedom - 1, 2):
        total += power
        power *= math.cos(angle) ** 2 * (exponent + 1) / (exponent + 2)
    within = total * math.sin(angle)
    if freedom % 2:
        within = (angle + within) * 2 / math.pi
    return (1 - within) / 2


def _expanded_tail(tail: float, n: int) -> float:
    """Phi(-sqrt(n / (n - 1)) * t), where t leaves `tail` above it in Student's distribution of n - 1."""
    if n < 2:
        return tail  # One sample resamples to itself; no percentile can widen that.
    return statistics.NormalDist().cdf(-math.sqrt(n / (n - 1)) * student_quantile(tail, n - 1))


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    """The value at `fraction` of sorted values, interpolated between neighbours."""
    position = fraction * (len(ordered) - 1)
    index = math.floor(position)
    after = ordered[min(index + 1, len(ordered) - 1)]
    return ordered[index] + (position - index) * (after - ordered[index])
