"""Observers that disagree with the clock, and those that do not."""

import pytest

from tritonforge.profiling.times import Times
from tritonforge.profiling.witness import call_doubt, doubts, event_note, stray_work
from tritonforge.sandbox.timing_facts import Sample


def times(device_us: float, event_us: float | None = None, wall_us: float = 0.0, blocks: int = 6) -> Times:
    sample = Sample(kernel_us=device_us, device_us=device_us, activities=1, event_us=event_us)
    return Times(blocks=[[sample] * 4] * blocks, wall_us=[wall_us] * 2 * blocks)


@pytest.mark.parametrize(
    ("device_us", "event_us"),
    [(100.0, 100.5), (100.0, 99.0), (100.0, 98.1), (2.0, 1.2), (2.0, 500.0), (1000.0, 981.0)],
)
def test_events_as_far_apart_as_the_work_between_them_say_nothing(device_us: float, event_us: float) -> None:
    assert event_note(times(device_us, event_us)) is None


@pytest.mark.parametrize(("device_us", "event_us"), [(100.0, 97.0), (100.0, 5.0), (2.0, 0.9), (1000.0, 979.0)])
def test_events_closer_together_than_the_work_between_them_tell_of_another_stream(
    device_us: float, event_us: float
) -> None:
    note = event_note(times(device_us, event_us))
    assert note is not None
    assert f"{event_us:.2f} us apart" in note
    assert f"spans {device_us:.2f} us" in note
    assert "another stream" in note


def test_without_events_the_records_stand_alone() -> None:
    note = event_note(times(100.0))
    assert note is not None
    assert note.startswith("no events")


def doubt(mine: Times, its: Times | None = None, *, launch_bound: bool = False) -> str | None:
    """The only one."""
    found = doubts(mine, its, launch_bound=launch_bound)
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(
    ("mine", "its"),
    [
        # By our clock and by the samples 50 us longer.
        (times(150.0, wall_us=450.0), times(100.0, wall_us=400.0)),
        # The clock sees it only roughly.
        (times(150.0, wall_us=480.0), times(100.0, wall_us=400.0)),
        (times(10_000.0, wall_us=11_000.0), times(10_000.0, wall_us=10_300.0)),
    ],
)
def test_sides_that_differ_by_our_clock_as_by_their_samples_say_nothing(mine: Times, its: Times) -> None:
    assert doubt(mine, its) is None


@pytest.mark.parametrize(
    ("mine", "its"),
    [
        (times(100.0, wall_us=440.0), times(100.0, wall_us=400.0)),
        # Its samples say that it is much faster; our clock does not see it.
        (times(20.0, wall_us=900.0), times(500.0, wall_us=900.0)),
        # Its work goes on outside of what our clock sees.
        (times(100.0, wall_us=300.0), times(100.0, wall_us=400.0)),
    ],
)
def test_calls_that_our_clock_sees_otherwise_than_their_samples_are_doubted(mine: Times, its: Times) -> None:
    told = doubt(mine, its)
    assert told is not None
    seen_us = mine.wall_us[0] - its.wall_us[0]
    assert f"takes {seen_us:+.0f} us beside the baseline's" in told
    assert f"by its samples {mine.device_us()[0] - its.device_us()[0]:+.1f} us" in told


def test_visits_that_something_disturbed_are_passed_over() -> None:
    mine, its = times(100.0, wall_us=400.0), times(100.0, wall_us=400.0)
    mine.wall_us = [400.0, 3000.0, 900.0, 2000.0, 401.0, 1500.0, 402.0, 800.0, 700.0, 1200.0, 5000.0, 403.0]
    assert doubt(mine, its) is None


def test_what_scatters_by_our_clock_doubts_nothing() -> None:
    mine, its = times(100.0), times(100.0)
    mine.wall_us = [400.0 + 12.0 * (index % 12) for index in range(60)]
    its.wall_us = [360.0 + 12.0 * (index % 12) for index in range(60)]
    assert doubt(mine, its) is None
    mine.wall_us, its.wall_us = [400.0] * 60, [360.0] * 60
    assert doubt(mine, its) is not None


@pytest.mark.parametrize("visits", [0, 11])
def test_a_few_visits_are_not_enough_for_our_clock(visits: int) -> None:
    mine, its = times(20.0, wall_us=900.0), times(500.0, wall_us=900.0)
    mine.wall_us = mine.wall_us[:visits]
    assert doubt(mine, its) is None


@pytest.mark.parametrize(
    ("device_us", "event_us", "doubted"),
    [(100.0, 100.5, False), (100.0, 149.0, False), (100.0, 151.0, True), (3.0, 23.0, False), (3.0, 25.0, True)],
)
def test_events_far_further_apart_than_what_was_recorded_are_doubted(
    device_us: float, event_us: float, doubted: bool
) -> None:
    told = doubt(times(device_us, event_us))
    assert (told is not None) == doubted
    if told is not None:
        assert f"events around a call are {event_us:.1f} us apart, and only {device_us:.1f} us of work" in told
        assert doubt(times(device_us, event_us), launch_bound=True) is None


@pytest.mark.parametrize(
    ("device_us", "first_us", "doubted"),
    [(100.0, 101.0, False), (100.0, 127.0, False), (100.0, 129.0, True), (3.0, 6.5, False), (3.0, 7.0, True)],
)
def test_a_first_call_that_does_more_than_the_others_is_doubted(
    device_us: float, first_us: float, doubted: bool
) -> None:
    mine = times(device_us, device_us + 0.5)
    mine.first_us = [first_us] * 12
    told = doubt(mine)
    assert (told is not None) == doubted
    if told is not None:
        assert f"the first call of a visit takes {first_us:.1f} us, the others {device_us:.1f} us" in told


def test_every_doubt_is_told() -> None:
    mine = times(20.0, 900.0, wall_us=1900.0)
    mine.first_us = [500.0] * 12
    assert len(doubts(mine, times(500.0, wall_us=900.0), launch_bound=False)) == 3


@pytest.mark.parametrize(
    ("call_us", "wall_us", "doubted"),
    [(50.0, 350.0, False), (50.0, 375.0, False), (50.0, 400.0, True), (10.0, 400.0, True)],
)
def test_whole_calls_that_our_clock_sees_otherwise_are_not_compared(
    call_us: float, wall_us: float, doubted: bool
) -> None:
    mine, its = times(10.0), times(10.0)
    mine.call_us, mine.call_wall_us = [[call_us] * 6] * 6, [wall_us] * 12
    its.call_us, its.call_wall_us = [[100.0] * 6] * 6, [400.0] * 12
    told = call_doubt(mine, its)
    assert (told is not None) == doubted
    if told is not None:
        assert (
            f"takes {wall_us - 400:+.0f} us beside the baseline's, by its process' clock {call_us - 100:+.0f}" in told
        )


@pytest.mark.parametrize(("call_us", "doubted"), [(81.0, False), (78.5, False), (78.0, True), (48.0, True)])
def test_a_call_is_not_shorter_than_its_work_on_the_device(call_us: float, doubted: bool) -> None:
    mine, its = times(80.0), times(80.0)
    for side, name in ((mine, "a whole call takes"), (its, "a whole call of the baseline takes")):
        mine.call_us = its.call_us = [[100.0] * 6] * 6
        side.call_us = [[call_us] * 6] * 6
        told = call_doubt(mine, its)
        assert (told is not None) == doubted
        if told is not None:
            assert told.startswith(f"{name} {call_us:.1f} us by its process' clock, less than its work on the device")


def test_what_runs_between_timed_calls_once_is_an_accident_and_time_after_time_is_none() -> None:
    found = Times(visits=40, strays={"once": 1, "seldom": 9, "often": 10, "always": 40})
    assert stray_work(found) == ["often", "always"]
    assert stray_work(Times(visits=2, strays={"once": 1})) == []
    assert stray_work(Times(visits=2, strays={"twice": 2})) == ["twice"]
    assert stray_work(Times(visits=40)) == []
