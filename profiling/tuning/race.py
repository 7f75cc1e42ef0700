"""When a challenger's race against a champion is over: blocks until the interval tells, few for clear losers."""

import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from ..statistics import median

Verdict = Literal["faster", "not faster", "open"]

LEAST: Final = 3
"""Blocks of any race. Other variants get ready on the same GPU meanwhile, and a process that makes its CUDA context can
make one side of a block ten times slower (H200): of three blocks, the middle one tells."""
CLEAR: Final = 0.15
"""Who is so much slower in the middle one of the first blocks, as a log(ratio), needs no more of them."""
PRIOR_SPREAD: Final = 0.01
"""Of a block's log(ratio), standard deviation, before any is seen: identical kernels have 0.15 to 1.3 % (H200)."""
PRIOR_BLOCKS: Final = 3
WIDTH: Final = 2.5
"""Standard errors to each side. What is told here is told again by `benchmark` in the end: it only steers."""
MEDIAN_ERROR: Final = math.sqrt(math.pi / 2)
"""A median's standard error over a mean's, of normal values."""
OUTLYING: Final = 3.0
"""Blocks further from the middle one, in robust standard deviations, count as if they were so far."""
TO_DEVIATION: Final = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
LEAST_WON: Final = 4
MOST: Final = 12
RESOLUTION: Final = 0.002
"""Nothing smaller is worth another champion."""
NEGLIGIBLE: Final = 0.005
"""Whoever is not ahead by more, for sure, after `ENOUGH` blocks has lost: the champion stays."""
ENOUGH: Final = 6


class Standing(NamedTuple):
    """What a race's blocks tell."""

    center: float
    """log(champion's time / challenger's): above 0 the challenger is faster."""
    error: float
    """To each side."""
    verdict: Verdict


def standing(log_ratios: Sequence[float]) -> Standing:
    """How a race stands.

    Args:
        log_ratios: log(champion's time / challenger's) of each block, at least one.
    """
    count = len(log_ratios)
    center = median(log_ratios)
    deviations = [abs(one - center) for one in log_ratios]
    farthest = OUTLYING * max(PRIOR_SPREAD, TO_DEVIATION * median(deviations))
    squares = math.fsum(min(one, farthest) ** 2 for one in deviations)
    spread = math.sqrt((PRIOR_BLOCKS * PRIOR_SPREAD**2 + squares) / (PRIOR_BLOCKS + count - 1))
    error = WIDTH * MEDIAN_ERROR * spread / math.sqrt(count)
    return Standing(center, error, _verdict(count, center, error))


def _verdict(count: int, center: float, error: float) -> Verdict:
    low, high = center - error, center + error
    if count < LEAST:
        return "open"
    if center < -CLEAR or high < 0:
        return "not faster"
    if count >= LEAST_WON and low > RESOLUTION:
        return "faster"
    if (count >= ENOUGH and high < NEGLIGIBLE) or count >= MOST:
        return "not faster"
    return "open"
