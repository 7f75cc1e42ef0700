"""What many kernels' results come to: shares and geometric means with their intervals, groups by length, buckets."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

from ...profiling.statistics import CONFIDENCE, bootstrap_interval
from ...sandbox.wire import Wire
from .model import SUCCESS_RATIO, KernelRecord

SEED: Final = 0
"""Of the bootstrap: the same records give the same interval."""
FEWEST: Final = 6
"""Of fewer ratios a bootstrap tells no 95 % interval: it can't reach beyond the least and the most of them."""
GROUPS: Final = 4
EDGES: Final = (1.0, 1.02, SUCCESS_RATIO, 1.1, 1.25, 1.5, 2.0, 5.0)
"""Where a bucket of speed-ups ends and the next one begins; each holds its lower edge."""


class Share(Wire):
    """So many of so many, with Wilson's 95 % interval."""

    count: int
    of: int
    pct: float
    low_pct: float
    high_pct: float


class GeometricMean(Wire):
    """Of ratios, with the 95 % interval of a bootstrap over them; null where they are fewer than six."""

    n: int
    value: float
    low: float | None = None
    high: float | None = None


class Bucket(NamedTuple):
    """Speed-ups from `low` (None: any) to below `high` (None: any)."""

    low: float | None
    high: float | None

    def holds(self, ratio: float) -> bool:
        return (self.low is None or ratio >= self.low) and (self.high is None or ratio < self.high)


BUCKETS: Final = tuple(Bucket(low, high) for low, high in zip((None, *EDGES), (*EDGES, None), strict=True))


def share(count: int, of: int) -> Share | None:
    """A share with its interval; None of nothing.

    Source: Wilson, Probable Inference, the Law of Succession, and Statistical Inference, Journal of the American
    Statistical Association 22 (1927).
    """
    if of == 0:
        return None
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    found, weight = count / of, z * z / of
    center = (found + weight / 2) / (1 + weight)
    reach = z * math.sqrt(found * (1 - found) / of + weight / (4 * of)) / (1 + weight)
    # The ends of none and of all are exact; rounding must not leave the value outside.
    low, high = min(max(0.0, center - reach), found), max(min(1.0, center + reach), found)
    return Share(count=count, of=of, pct=100 * found, low_pct=100 * low, high_pct=100 * high)


def center(ratios: Sequence[float]) -> float | None:
    """The geometric mean of positive ratios; None of nothing."""
    return math.exp(fmean(map(math.log, ratios))) if ratios else None


def geometric_mean(ratios: Sequence[float]) -> GeometricMean | None:
    """The geometric mean of positive ratios with the interval of `bootstrap_interval` over their logarithms: kernels
    are drawn, so it tells how far other kernels of the same sort may lie, not how well each one was timed. No interval
    of fewer than `FEWEST`; None of nothing."""
    value = center(ratios)
    if value is None or len(ratios) < FEWEST:
        return None if value is None else GeometricMean(n=len(ratios), value=value)
    low, high = bootstrap_interval([math.log(ratio) for ratio in ratios], fmean, seed=SEED)
    # Sums of another order round otherwise.
    return GeometricMean(n=len(ratios), value=value, low=min(math.exp(low), value), high=max(math.exp(high), value))


def paired(ratios: Sequence[float], reference: Sequence[float]) -> GeometricMean | None:
    """How many times as large `ratios` are as `reference`, kernel by kernel, in the geometric mean.

    Args:
        ratios: speed-ups of one campaign.
        reference: of another one, of the same kernels in the same order.
    """
    return geometric_mean([one / other for one, other in zip(ratios, reference, strict=True)])


def by_length(records: Sequence[KernelRecord]) -> list[list[KernelRecord]]:
    """The records in four groups, shortest kernels first: each ends at a quartile of the number of lines (nearest
    rank), and kernels of the same number of lines are in the same group. Groups may be empty."""
    ordered = sorted(record.lines for record in records)
    cuts = [ordered[math.ceil(len(ordered) * k / GROUPS) - 1] for k in range(1, GROUPS)] if ordered else []
    groups: list[list[KernelRecord]] = [[] for _ in range(GROUPS)]
    for record in records:
        groups[sum(cut < record.lines for cut in cuts)].append(record)
    return groups


def bucket_of(ratio: float) -> Bucket:
    """The bucket that holds a speed-up."""
    return next(bucket for bucket in BUCKETS if bucket.holds(ratio))
