"""What an attempt is worth: its ratio to the baseline, its share of the speed of light, its whole calls."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...sandbox.outcome import Kind
from ..statistics import Interval, interval_of_sum
from .model import BASELINE, Attempt, CaseTime, CaseTiming, Memory, Timing


class Ratio(NamedTuple):
    """How many times faster one attempt is than another, with its 95 % interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 3 if self.high < 10 else 1
        return f"{self.ratio:.{digits}f}x ({self.low:.{digits}f} to {self.high:.{digits}f})"


def sound(attempt: Attempt) -> bool:
    """Whether it is right, as far as was looked, and was timed."""
    evidence = attempt.evidence
    if attempt.state != "finished" or evidence is None or evidence.kind is not Kind.OK or evidence.untimed is not None:
        return False
    return evidence.confirmation is None or evidence.confirmation.kind is Kind.OK


def evaluated(memory: Memory) -> list[Attempt]:
    """Attempts that are right and were timed, the baseline and duplicates apart."""
    return [
        attempt
        for attempt in memory.attempts
        if attempt.number != BASELINE and attempt.duplicate_of is None and sound(attempt)
    ]


def score_of(attempt: Attempt) -> Ratio | None:
    """How many times faster than the baseline; None unless it is right and was timed beside that."""
    if attempt.evidence is None or not sound(attempt):
        return None
    if attempt.number == BASELINE:
        return Ratio(1.0, 1.0, 1.0)
    timing = attempt.evidence.timing(BASELINE)
    return None if timing is None else ratio_of(timing)


def ratio_of(timing: Timing | CaseTiming) -> Ratio:
    """A comparison's ratio."""
    return Ratio(timing.ratio, timing.ratio_low, timing.ratio_high)


def latest(attempt: Attempt) -> Timing | None:
    """The comparison with what was the incumbent when it was timed."""
    if attempt.evidence is None or attempt.number == BASELINE:
        return None
    timings = attempt.evidence.timings
    return next((timing for timing in reversed(timings) if timing.against != BASELINE), timings[0] if timings else None)


def share_of_light(cases: Iterable[CaseTime | CaseTiming]) -> float | None:
    """Share of the speed of light in percent: the weighted geometric mean of the visible cases' shares.

    None unless each of them has one.
    """
    visible = [case for case in cases if not (isinstance(case, CaseTiming) and case.hidden)]
    parts = [(case.weight, case.speed_of_light_pct) for case in visible]
    known = [(weight, pct) for weight, pct in parts if pct is not None and pct > 0 and weight > 0]
    if not known or len(known) < len(parts):
        return None
    total = math.fsum(weight for weight, _ in known)
    return math.exp(math.fsum(weight / total * math.log(pct) for weight, pct in known))


def whole_calls(cases: Sequence[CaseTiming]) -> Ratio | None:
    """The weighted geometric mean of the ratios of whole calls, host included; None unless each case has one.

    Its interval is that of a sum of logarithms, as is a score's (`profiling.comparison.combine`).
    """
    parts: list[tuple[float, float, Interval]] = []
    for case in cases:
        ratio, low, high = case.call_ratio, case.call_ratio_low, case.call_ratio_high
        if ratio is None or low is None or high is None or case.weight <= 0 or not 0 < low <= ratio <= high:
            return None
        parts.append((case.weight, math.log(ratio), Interval(math.log(low), math.log(high))))
    if not parts:
        return None
    total = math.fsum(weight for weight, _, _ in parts)
    shares = [
        (weight / total * value, Interval(weight / total * around.low, weight / total * around.high))
        for weight, value, around in parts
    ]
    low, high = interval_of_sum(shares)
    return Ratio(math.exp(math.fsum(value for value, _ in shares)), math.exp(low), math.exp(high))


def by_number(memory: Memory, number: int) -> Attempt | None:
    """An attempt of a run; None if it isn't there."""
    return next((attempt for attempt in memory.attempts if attempt.number == number), None)


def next_number(memory: Memory) -> int:
    """A number that no finished attempt has: 0 for the baseline, else one more than the last."""
    return max((attempt.number for attempt in memory.attempts), default=BASELINE - 1) + 1


def name_of(number: int) -> str:
    """What an attempt is called."""
    return "the baseline" if number == BASELINE else f"attempt {number}"


def short(text: str, characters: int = 190) -> str:
    """One line of text, cut where it is too long: some of it is a candidate's."""
    line = " ".join(text[: 4 * characters].split())
    return line if len(line) <= characters else f"{line[: characters - 1]}…"
