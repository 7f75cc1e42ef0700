"""Where the time of a call goes, from what it takes without one kind of work each.

With T the original's time and t a variant's, t / T of the time is left and 1 - t / T is saved. That is what the work
took that nothing else hid: work that overlaps with other work saves less than it takes, down to nothing.
"""

from collections.abc import Sequence
from typing import Final, Literal

from ...sandbox.wire import Wire
from ..comparison import Comparison
from ..statistics import Interval, interval_of_sum
from .probes import ProbeName, ProbeVariant, Unmade

ALL_PCT: Final = 100.0
MOSTLY_PCT: Final = 90.0
"""What is left with neither loads nor math is then what the time goes to."""
CLOCK_PCT: Final = 2.0
"""Clocks further apart are told; `timing.UNEQUAL_CLOCKS` is the same."""

_LEFT: Final[dict[ProbeName, str]] = {
    "no_loads": "without loads",
    "idle_loads": "without what loads fetch",
    "no_stores": "without what stores write",
    "no_math": "without the math",
    "half_trips": "with half of the iterations",
    "neither": "with neither what loads fetch nor the math",
}
_SAVED: Final[dict[ProbeName, str]] = {
    "no_loads": "loads, and what waits for them, take",
    "idle_loads": "fetching from memory, and what waits for it, takes",
    "no_stores": "writing to memory takes",
    "no_math": "math takes",
    "half_trips": "half of the iterations take",
    "neither": "loads and math together take",
}

_SHORT: Final = "what was removed is short, or hidden behind other work"
_HIDDEN: Final[dict[ProbeName, str]] = {
    "half_trips": "each loop has one iteration, or the time goes to what is outside of loops"
}

Effect = Literal["saves", "adds", "same", "unclear"]
"""`same`: a difference within what counts as the same. `unclear`: a difference that this measurement can't tell."""


class PlacedProbe(Wire):
    """One variant: what it leaves out, and the time of a call that is left, or why it has none."""

    name: ProbeName
    removes: str | None = None
    adds: str | None = None
    """What it does beside, so that less is saved than was removed."""
    lines: list[int] = []
    """That were changed."""
    stays: list[str] = []
    """What of this kind is still there."""
    device_us: float | None = None
    """A call on the device, median."""
    left_pct: float | None = None
    """Its time over the original's."""
    left_low_pct: float | None = None
    """Lower end of the 95 % interval of `left_pct`."""
    left_high_pct: float | None = None
    effect: Effect | None = None
    visible_pct: float | None = None
    """Smallest change of time that this measurement would have seen."""
    clock_pct: float | None = None
    """Its SM clock over the original's: what a variant saves of power can be spent on the clock."""
    not_measured: str | None = None


def unplaced(made: ProbeVariant | Unmade, reason: str | None = None) -> PlacedProbe:
    """A variant without a time."""
    if isinstance(made, Unmade):
        return PlacedProbe(name=made.name, not_measured=made.reason)
    return PlacedProbe(
        name=made.name, removes=made.removes, adds=made.adds, lines=list(made.lines), stays=list(made.left),
        not_measured=reason,
    )  # fmt: skip


def placed(made: ProbeVariant, found: Comparison, device_us: float, clock_ratio: float | None = None) -> PlacedProbe:
    """A variant with its time.

    Args:
        made: the variant.
        found: its comparison with the original as the baseline: the ratio is the original's time over the variant's.
        device_us: the variant's time on the device.
        clock_ratio: its SM clock over the original's, where that is known.
    """
    effects: dict[str, Effect] = {"faster": "saves", "slower": "adds", "same": "same", "ambiguous": "unclear"}
    return unplaced(made).model_copy(
        update={
            "device_us": device_us,
            "left_pct": ALL_PCT / found.ratio,
            "left_low_pct": ALL_PCT / found.ratio_high,
            "left_high_pct": ALL_PCT / found.ratio_low,
            "effect": effects[found.comparison],
            "visible_pct": found.min_detectable_pct,
            "clock_pct": None if clock_ratio is None else ALL_PCT * clock_ratio,
        }
    )


def told(probes: Sequence[PlacedProbe]) -> list[str]:
    """What follows from the times, a sentence each."""
    measured: dict[ProbeName, PlacedProbe] = {probe.name: probe for probe in probes if probe.effect is not None}
    said = [_of_one(probe) for probe in measured.values()]
    saving = [probe for probe in measured.values() if probe.effect == "saves" and probe.name in _ALONE]
    if saving:
        most = min(saving, key=lambda probe: probe.left_pct or ALL_PCT)
        said.append(f"Of these, {most.name} saves most: {_WORK_ON[most.name]} first.")
    elif any(name in measured for name in _ALONE):
        said.append(
            "No kind of work alone is shown to cost time: they hide each other, or the time goes to what no variant "
            "removes (launch, addresses, barriers, waits for other programs)."
        )
    return [*said, *_of_all(measured)]


_ALONE: Final[tuple[ProbeName, ...]] = ("no_loads", "idle_loads", "no_stores", "no_math")
_WORK_ON: Final[dict[ProbeName, str]] = {
    "no_loads": "fewer or wider loads, or more of them in flight,",
    "idle_loads": "fewer bytes, or more loads in flight,",
    "no_stores": "fewer or wider stores",
    "no_math": "cheaper math",
}


def _of_one(probe: PlacedProbe) -> str:
    left, (low, high) = _part(probe)
    start = f"{probe.name}: {_LEFT[probe.name]} {left:.1f} % of the time is left [{low:.1f}, {high:.1f}]"
    match probe.effect:
        case "saves":
            saved, least, most = ALL_PCT - left, max(0.0, ALL_PCT - high), ALL_PCT - low
            start += f": {_SAVED[probe.name]} {saved:.1f} % [{least:.1f}, {most:.1f}] that nothing else hides"
            if probe.name == "half_trips":
                loops = min(ALL_PCT, 2 * least)
                start += f", so these loops take at least {loops:.0f} %, as far as their iterations are alike"
        case "adds":
            start += (
                ": slower, by what the variant adds or by another schedule, so it tells nothing of what was removed"
            )
        case "same":
            start += (
                f": no different; {_HIDDEN.get(probe.name, 'what was removed is short, or hidden behind other work')}"
            )
        case _:
            seen = "" if probe.visible_pct is None else f" (one of {probe.visible_pct:.2g} % would have been seen)"
            start += f": no difference that could be told{seen}; it is short or hidden, or takes longer timing to see"
    if probe.clock_pct is not None and abs(probe.clock_pct - ALL_PCT) > CLOCK_PCT:
        start += f" (its SM clock was {probe.clock_pct:.1f} % of the original's, which is a part of that)"
    return f"{start}."


def _of_all(measured: dict[ProbeName, PlacedProbe]) -> list[str]:
    """Whether loads and math overlap, and what is left without both.

    With loads taking L alone, math M and the rest R, and nothing overlapping, T = L + M + R; measured are
    T_math = M + R (idle_loads), T_loads = L + R (no_math) and R (neither). T_math + T_loads - R beyond T is overlap.
    """
    rest, math, loads = (measured.get(name) for name in ("neither", "idle_loads", "no_math"))
    said: list[str] = []
    if rest is not None and (rest.left_low_pct or 0.0) > MOSTLY_PCT:
        said.append(
            f"With neither loads nor math at least {rest.left_low_pct:.0f} % of the time is left: neither limits the "
            "call; look at its other kernels, the grid, launches, stores, addresses and barriers."
        )
    if rest is None or math is None or loads is None or "adds" in (rest.effect, math.effect, loads.effect):
        return said
    parts = [_part(math), _part(loads), _negative(_part(rest)), (-ALL_PCT, Interval(-ALL_PCT, -ALL_PCT))]
    overlap, (low, high) = sum(value for value, _ in parts), interval_of_sum(parts)
    much = f"{abs(overlap):.1f} % of the time"
    if low > 0:
        said.append(
            f"Loads and math overlap for {much} [{low:.1f}, {high:.1f}]: one after the other they would take that much "
            "longer."
        )
    elif high < 0:
        said.append(
            f"Loads and math take {much} [{-high:.1f}, {-low:.1f}] more together than one after the other: they get in "
            "each other's way, over registers or shared memory for example."
        )
    else:
        said.append(
            f"Loads and math are not shown to overlap ({overlap:.1f} % of the time [{low:.1f}, {high:.1f}]): each "
            "waits for the other, or one of them is short. More loads in flight (num_stages, more warps or programs) "
            "may help."
        )
    return said


def _part(probe: PlacedProbe) -> tuple[float, Interval]:
    return probe.left_pct or 0.0, Interval(probe.left_low_pct or 0.0, probe.left_high_pct or 0.0)


def _negative(part: tuple[float, Interval]) -> tuple[float, Interval]:
    return -part[0], Interval(-part[1].high, -part[1].low)
