"""How much faster one attempt is than another, and how such gains are pooled. Pure."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final, NamedTuple

from ..comparison import MARGIN, RESOLUTION, Outcome
from .model import BASELINE, Attempt, CaseTiming, Evidence, Timing

_ERRORS: Final = NormalDist().inv_cdf(0.975)
"""Standard errors on each side of a 95 % interval."""


class Gain(NamedTuple):
    """One attempt's time beside another's."""

    against: int
    """Number of the other attempt."""
    ratio: float
    """The other's time over this one's: above 1 this one is faster."""
    low: float
    high: float
    """95 % interval of `ratio`."""
    comparison: Outcome
    timing: Timing | None
    """Where both were measured side by side; None: both beside the baseline, at different times."""

    @property
    def saved_pct(self) -> float:
        """Of the other's time; negative where this one is slower."""
        return saved_pct(self.ratio)


class Pooled(NamedTuple):
    """A gain with its 95 % interval, in percent of time saved."""

    pct: float
    low_pct: float
    high_pct: float


def saved_pct(ratio: float) -> float:
    """Time saved in percent, by the ratio of times."""
    return 100 * (1 - 1 / ratio)


def number_of(evidence: Evidence | None, attempts: Sequence[Attempt]) -> int | None:
    """The attempt that an evaluation belongs to."""
    if evidence is None:
        return None
    same = (one.number for one in attempts if one.evidence is evidence or one.evidence == evidence)
    return next(same, None)


def gain_beside(evidence: Evidence, parent: Evidence | None, number: int | None) -> Gain | None:
    """An attempt beside its parent: measured so, or by what both are beside the baseline; else beside whatever it
    was measured with. None where it was not timed.

    Args:
        evidence: of the attempt.
        parent: of its parent.
        number: the parent's.
    """
    if not evidence.timings:
        return None
    direct = None if number is None else evidence.timing(number)
    if direct is not None:
        return _told(direct)
    mine = evidence.timing(BASELINE)
    its = None if parent is None else parent.timing(BASELINE)
    if mine is not None and its is not None and number is not None:
        return _quotient(mine, its, number)
    others = [timing for timing in evidence.timings if timing.against != BASELINE]
    return _told((others or evidence.timings)[0])


def gain_in_case(case: str, evidence: Evidence, parent: Evidence, number: int) -> Gain | None:
    """The same in one case, beside the parent alone: None where the two were not timed beside the same.

    Args:
        case: its name.
        evidence: of the attempt.
        parent: of its parent.
        number: the parent's.
    """
    direct = _in_case(evidence.timing(number), case)
    if direct is not None:
        return Gain(number, direct.ratio, direct.ratio_low, direct.ratio_high, direct.comparison, None)
    mine, its = (_in_case(each.timing(BASELINE), case) for each in (evidence, parent))
    return None if mine is None or its is None else _quotient(mine, its, number)


def pooled(first: Pooled | None, first_weight: int, second: Pooled | None, second_weight: int) -> Pooled | None:
    """Two gains as one, as logarithms of the ratio of times.

    Each is weighed by the inverse of its variance, to which is added what the two differ by beyond their noise
    (DerSimonian and Laird, two groups), over the number of attempts that it stands for: gains of kernels that truly
    differ are averaged, and the interval says how far they lie apart.

    Args:
        first: one gain; None: nothing was timed.
        first_weight: attempts that it stands for.
        second: the other.
        second_weight: attempts that it stands for.
    """
    if first is None or second is None:
        return first or second
    one, one_error = _logarithm(first)
    other, other_error = _logarithm(second)
    between = max(0.0, ((one - other) ** 2 - one_error**2 - other_error**2) / 2)
    weight = 1 / (one_error**2 + between / max(first_weight, 1))
    other_weight = 1 / (other_error**2 + between / max(second_weight, 1))
    mean = (weight * one + other_weight * other) / (weight + other_weight)
    error = _ERRORS * math.sqrt(1 / (weight + other_weight))
    return Pooled(*(saved_pct(math.exp(each)) for each in (mean, mean - error, mean + error)))


def _in_case(timing: Timing | None, case: str) -> CaseTiming | None:
    found = (each for each in ([] if timing is None else timing.cases) if each.case == case and not each.hidden)
    return next(found, None)


def _quotient(mine: Timing | CaseTiming, its: Timing | CaseTiming, number: int) -> Gain:
    """An attempt beside another one, by what both are beside a third."""
    ratio = mine.ratio / its.ratio
    error = math.hypot(_error(mine.ratio_low, mine.ratio_high), _error(its.ratio_low, its.ratio_high))
    low, high = ratio * math.exp(-_ERRORS * error), ratio * math.exp(_ERRORS * error)
    return Gain(number, ratio, low, high, _outcome(low, high), None)


def _told(timing: Timing) -> Gain:
    return Gain(timing.against, timing.ratio, timing.ratio_low, timing.ratio_high, timing.comparison, timing)


def _outcome(low: float, high: float) -> Outcome:
    if low > 1 + RESOLUTION or high < 1 - RESOLUTION:
        return "faster" if low > 1 else "slower"
    return "same" if low > 1 - MARGIN and high < 1 + MARGIN else "ambiguous"


def _error(low: float, high: float) -> float:
    """Standard error of the ratio's logarithm: never below what identical kernels differ by."""
    return max(math.log(high / low) / 2, RESOLUTION) / _ERRORS


def _logarithm(gain: Pooled) -> tuple[float, float]:
    low, middle, high = (-math.log(1 - pct / 100) for pct in (gain.low_pct, gain.pct, gain.high_pct))
    return middle, max((high - low) / 2, RESOLUTION) / _ERRORS
