"""What the GPU ran at during a measurement: ranges, and notes for what matters."""

import math
from typing import Any

import pytest

from tritonforge.profiling.conditions import Range, summarize
from tritonforge.sandbox.conditions import Conditions

MHZ = 1e6


def sample(**changed: Any) -> Conditions:
    fields: dict[str, Any] = {
        "sm_clock_hz": 1_980_000_000, "memory_clock_hz": 3_201_000_000, "temperature_c": 40, "power_w": 300.0,
        "power_limit_w": 700.0, "throttle_reasons": [],
    }  # fmt: skip
    return Conditions.model_validate({**fields, **changed})


UNTOLD = Conditions(
    sm_clock_hz=None,
    memory_clock_hz=None,
    temperature_c=None,
    power_w=None,
    power_limit_w=None,
    throttle_reasons=None,
)


def steady(mhz: float, visits: int = 16) -> list[float]:
    """Readings that are off by up to 1.6 % each, as the spins' are."""
    return [mhz * MHZ * (1 + 0.016 * math.sin(3 * number)) for number in range(visits)]


def test_an_undisturbed_measurement_has_ranges_and_no_notes() -> None:
    found = summarize(
        [sample(), sample(temperature_c=47, power_w=412.5)],
        {"candidate": [1980 * MHZ, 1985 * MHZ, 1978 * MHZ], "baseline": [1980 * MHZ, 1981 * MHZ, 1979 * MHZ]},
    )
    assert found.notes == []
    assert found.sm_clock_hz == Range(low=1978 * MHZ, high=1985 * MHZ)
    assert found.side_clocks_hz == {"candidate": 1980 * MHZ, "baseline": 1980 * MHZ}
    assert found.memory_clock_hz == Range(low=3201 * MHZ, high=3201 * MHZ)
    assert found.temperature_c == Range(low=40, high=47)
    assert found.power_w == Range(low=300, high=412.5)
    assert found.power_limit_w == 700
    assert found.throttle_reasons == []


@pytest.mark.parametrize("samples", [[], [UNTOLD, UNTOLD]])
def test_what_was_never_told_is_null(samples: list[Conditions]) -> None:
    found = summarize(samples, {"candidate": []})
    assert found.model_dump() == {
        "sm_clock_hz": None,
        "side_clocks_hz": {},
        "memory_clock_hz": None,
        "temperature_c": None,
        "power_w": None,
        "power_limit_w": None,
        "throttle_reasons": [],
        "notes": [],
    }


def test_what_was_told_once_counts() -> None:
    found = summarize([UNTOLD, sample(temperature_c=51)], {})
    assert found.temperature_c == Range(low=51, high=51)


def test_the_lowest_power_limit_is_the_one_that_was_felt() -> None:
    assert summarize([sample(), sample(power_limit_w=500.0), UNTOLD], {}).power_limit_w == 500


def test_throttling_is_told_with_its_reasons_the_most_frequent_first() -> None:
    samples = [
        sample(throttle_reasons=["thermal slowdown", "power cap"]),
        sample(throttle_reasons=["power cap"]),
        sample(),
        UNTOLD,
    ]
    found = summarize(samples, {})
    assert found.throttle_reasons == ["power cap", "thermal slowdown"]
    assert found.notes == [
        "throttled: the GPU held its SM clock down: power cap (at 2 of 3 looks), thermal slowdown (at 1 of 3 looks)"
    ]


def test_clocks_that_somebody_set_are_listed_and_not_called_throttling() -> None:
    found = summarize([sample(throttle_reasons=["application clocks"])], {})
    assert found.throttle_reasons == ["application clocks"]
    assert found.notes == []


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [
        (1980, 1900, "the SM clock fell by 4.0 % during the measurement: candidate from 1,980 to 1,900 MHz"),
        (1900, 1980, "the SM clock rose by 4.2 % during the measurement: candidate from 1,900 to 1,980 MHz"),
    ],
)
def test_a_clock_that_changes_during_the_measurement_is_told(first: float, last: float, told: str) -> None:
    between = (first + last) / 2
    readings = [mhz * MHZ for mhz in [first] * 4 + [between] * 8 + [last] * 4]
    assert summarize([], {"candidate": readings, "baseline": [between * MHZ] * 16}).notes == [told]


def test_the_side_that_changed_most_is_named() -> None:
    falling = {"candidate": [*[1900 * MHZ] * 8, *[1800 * MHZ] * 8], "baseline": [*[1900 * MHZ] * 8, *[1700 * MHZ] * 8]}
    note = summarize([], falling).notes[0]
    assert note == "the SM clock fell by 10.5 % during the measurement: baseline from 1,900 to 1,700 MHz"


def test_readings_that_are_merely_off_are_no_change_and_no_difference() -> None:
    assert summarize([], {"candidate": steady(1980), "baseline": steady(1980)}).notes == []


def test_a_few_readings_tell_no_change() -> None:
    assert summarize([], {"candidate": [1980 * MHZ, 1600 * MHZ]}).notes == []


def test_sides_at_unequal_clocks_are_told_with_the_ratio_in_cycles() -> None:
    clocks = {"candidate": [1620 * MHZ] * 5, "baseline": [1710 * MHZ] * 5, "eager": [1400 * MHZ] * 5}
    (note,) = summarize([], clocks, ratio=0.9796).notes
    assert note == (
        "candidate at 1,620 MHz, baseline at 1,710: the kernels draw different power; in cycles the ratio is 1.034"
    )
    (without,) = summarize([], clocks).notes
    assert without.endswith("in cycles the ratio is 1.056 times the one in time")


def test_other_sides_than_the_usual_can_be_compared() -> None:
    clocks = {"candidate": [1620 * MHZ], "eager": [1710 * MHZ]}
    assert summarize([], clocks).notes == []
    (note,) = summarize([], clocks, sides=("candidate", "eager")).notes
    assert note.startswith("candidate at 1,620 MHz, eager at 1,710")


@pytest.mark.parametrize(("other", "told"), [(1998, False), (2001, True), (1962, False), (1959, True)])
def test_one_percent_of_difference_is_not_told(other: float, told: bool) -> None:
    notes = summarize([], {"candidate": [1980 * MHZ], "baseline": [other * MHZ]}).notes
    assert bool(notes) == told


@pytest.mark.parametrize("wrong", [0.0, -1980 * MHZ, math.nan, math.inf])
def test_what_cannot_be_a_clock_is_passed_over(wrong: float) -> None:
    found = summarize([], {"candidate": [1980 * MHZ, wrong, 1980 * MHZ], "baseline": [wrong]})
    assert found.sm_clock_hz == Range(low=1980 * MHZ, high=1980 * MHZ)
    assert found.side_clocks_hz == {"candidate": 1980 * MHZ}
    assert found.notes == []
