"""What the GPU ran at during a measurement, and what of it a reader of the times must know."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ..sandbox.conditions import Conditions
from ..sandbox.wire import Wire
from .statistics import median, median_absolute_deviation

FALL_PCT: Final = 3.0
"""A clock that changes by more during a measurement is told: sides are timed in turns, so a ratio survives it, times do
not. One reading of the clock is off by up to 1.6 % (H200)."""
UNEQUAL_PCT: Final = 1.0
"""Between the median clocks of two sides."""
ENDS: Final = 4
"""A quarter of a side's readings, from its start and from its end, is compared."""
READINGS_NEEDED: Final = 8
ERRORS: Final = 3.3
"""Standard errors that medians must be apart: identical sides are by chance in one of a thousand measurements."""
DEVIATION_OF_MAD: Final = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
MEDIAN_VARIANCE: Final = math.pi / 2
"""The variance of a median over that of a mean, for many normally distributed readings."""
SET_BY_HAND: Final = frozenset({"application clocks", "sync boost", "display clocks"})
"""Reasons for a lower clock that hold all the time: no disturbance, but no throttling either."""


class Range(Wire):
    """Lowest and highest of the readings."""

    low: float
    high: float


class ConditionsSummary(Wire):
    """Conditions over a whole measurement; null where the driver never told."""

    sm_clock_hz: Range | None
    """Under load, at the end of each visit, over all sides."""
    side_clocks_hz: dict[str, float]
    """Side -> median of its SM clocks."""
    memory_clock_hz: Range | None
    temperature_c: Range | None
    power_w: Range | None
    """Between visits, each a mean of about a second."""
    power_limit_w: float | None
    throttle_reasons: list[str]
    """All that held the SM clock down at any moment, the most frequent first."""
    notes: list[str]
    """What a reader of the times must know."""


def summarize(
    samples: Sequence[Conditions],
    clocks: Mapping[str, Sequence[float]],
    *,
    ratio: float | None = None,
    sides: tuple[str, str] = ("candidate", "baseline"),
) -> ConditionsSummary:
    """Ranges and notes from what was read between and during visits.

    Args:
        samples: the device's state between visits, in the order of time.
        clocks: side -> SM clocks in Hz, one a visit in the order of time, as workers told; what can't be a clock is
            passed over.
        ratio: time of the second of `sides` over that of the first, as it was measured.
        sides: whose clocks are compared.
    """
    told = {side: [hz for hz in readings if math.isfinite(hz) and hz > 0] for side, readings in clocks.items()}
    told = {side: readings for side, readings in told.items() if readings}
    medians = {side: median(readings) for side, readings in told.items()}
    reasons = Counter(reason for sample in samples for reason in sample.throttle_reasons or ())
    limits = [sample.power_limit_w for sample in samples if sample.power_limit_w is not None]
    notes = [
        *_throttling(reasons, sum(sample.throttle_reasons is not None for sample in samples)),
        *_changes(told),
        *_unequal(told, sides, ratio),
    ]
    return ConditionsSummary(
        sm_clock_hz=_range([hz for readings in told.values() for hz in readings]),
        side_clocks_hz=medians,
        memory_clock_hz=_range([sample.memory_clock_hz for sample in samples]),
        temperature_c=_range([sample.temperature_c for sample in samples]),
        power_w=_range([sample.power_w for sample in samples]),
        # Whoever lowers it meanwhile has disturbed the measurement with it.
        power_limit_w=min(limits, default=None),
        throttle_reasons=[reason for reason, _ in reasons.most_common()],
        notes=notes,
    )


def _range(values: Sequence[float | None]) -> Range | None:
    known = [value for value in values if value is not None]
    return Range(low=min(known), high=max(known)) if known else None


def _throttling(reasons: Counter[str], looks: int) -> list[str]:
    found = [(reason, count) for reason, count in reasons.most_common() if reason not in SET_BY_HAND]
    if not found:
        return []
    listed = ", ".join(f"{reason} (at {count} of {looks} looks)" for reason, count in found)
    return [f"throttled: the GPU held its SM clock down: {listed}"]


def _changes(clocks: Mapping[str, Sequence[float]]) -> list[str]:
    """The side whose clock changed most, if it is worth telling."""
    changes: list[tuple[float, str]] = []
    for side, readings in clocks.items():
        if len(readings) < READINGS_NEEDED:
            continue
        count = len(readings) // ENDS
        before, after = median(readings[:count]), median(readings[-count:])
        pct = 100 * (after / before - 1)
        if abs(pct) > FALL_PCT:
            how = "fell" if pct < 0 else "rose"
            text = f"the SM clock {how} by {abs(pct):.1f} % during the measurement: {side} from {_mhz(before)}"
            changes.append((abs(pct), f"{text} to {_mhz(after)} MHz"))
    return [max(changes)[1]] if changes else []


def _unequal(clocks: Mapping[str, Sequence[float]], sides: tuple[str, str], ratio: float | None) -> list[str]:
    """Whether two sides ran at different clocks, by more than their readings scatter."""
    first, second = sides
    if first not in clocks or second not in clocks:
        return []
    own, other = median(clocks[first]), median(clocks[second])
    apart = abs(math.log(other / own))
    if apart <= max(math.log1p(UNEQUAL_PCT / 100), ERRORS * _error(clocks[first], clocks[second])):
        return []
    # Cycles are time times clock.
    in_cycles = f"{ratio * other / own:.3f}" if ratio is not None else f"{other / own:.3f} times the one in time"
    return [
        f"{first} at {_mhz(own)} MHz, {second} at {_mhz(other)}: the kernels draw different power; in cycles the "
        f"ratio is {in_cycles}"
    ]


def _error(*sides: Sequence[float]) -> float:
    """Standard error of the logarithm of the ratio of two sides' medians, from how far their readings scatter."""
    found = 0.0
    for readings in sides:
        middle = median(readings)
        scatter = DEVIATION_OF_MAD * median_absolute_deviation(readings) / middle
        found += MEDIAN_VARIANCE * scatter**2 / len(readings)
    return math.sqrt(found)


def _mhz(hz: float) -> str:
    return f"{hz / 1e6:,.0f}"
