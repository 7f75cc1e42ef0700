"""When a challenger's race against a champion is over: blocks until the interval tells, few for clear losers."""

import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

Verdict = Literal["faster", "not faster", "open"]

CLEAR: Final = 0.15
"""A first block that is so much slower, as a log(ratio), needs no second: no noise of an interleaved block is."""
PRIOR_SPREAD: Final = 0.01
"""Of a block's log(ratio), standard deviation, before any is seen: identical kernels have 0.15 to 1.3 % (H200)."""
PRIOR_BLOCKS: Final = 3
WIDTH: Final = 2.5
"""Standard errors to each side. What is told here is told again by `benchmark` in the end: it only steers."""
LEAST_LOST: Final = 2
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
    center = math.fsum(log_ratios) / count
    squares = math.fsum((one - center) ** 2 for one in log_ratios)
    spread = math.sqrt((PRIOR_BLOCKS * PRIOR_SPREAD**2 + squares) / (PRIOR_BLOCKS + count - 1))
    error = WIDTH * spread / math.sqrt(count)
    return Standing(center, error, _verdict(count, center, error))


def _verdict(count: int, center: float, error: float) -> Verdict:
    low, high = center - error, center + error
    if center < -CLEAR or (count >= LEAST_LOST and high < 0):
        return "not faster"
    if count >= LEAST_WON and low > RESOLUTION:
        return "faster"
    if (count >= ENOUGH and high < NEGLIGIBLE) or count >= MOST:
        return "not faster"
    return "open"
