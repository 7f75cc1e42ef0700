"""Do independent observers agree with the clock? Each disagreement is a line that a reader can act on."""

from typing import Final

from .statistics import interquartile_mean, median, median_absolute_deviation
from .times import Times
from .timing import FIRST_CALL_US

EVENT_SLACK_US: Final = 1.0
EVENT_SLACK: Final = 0.02
"""Two events around a call can't be closer together than the work between them, but for their resolution (0.5 us)."""
UNRECORDED_US: Final = 20.0
UNRECORDED: Final = 0.3
"""They may be further apart by what the host takes to launch, once the flush before has ended."""
WALL_SLACK_US: Final = 15.0
WALL_SLACK: Final = 0.15
FLOOR: Final = 0.2
"""Our clock's view of a visit: the mean of this share of the shortest, since what disturbs a host only adds to it."""
ERRORS: Final = 4.0
FIRST_SLACK: Final = 0.25
"""A visit's first call may be slower by this share and three times `FIRST_CALL_US`."""
HOST_US: Final = 100.0
"""What a call may take beyond its work on the device, for it to be hidden behind the flush."""
STRAY_SHARE: Final = 0.25
"""Of the visits: work between timed calls in so many is no accident."""
VISITS_NEEDED: Final = 12


def doubts(times: Times, other: Times | None, *, launch_bound: bool) -> list[str]:
    """Why samples that come from the timed code's own process should not be believed; none where nothing contradicts.

    Args:
        times: of the side in question.
        other: of one that was timed beside it.
        launch_bound: the host's part of a call is longer than the device's.
    """
    found = [_first_call_doubt(times), None if launch_bound else _unrecorded_doubt(times)]
    if other is not None:
        found.append(_wall_doubt(times, other))
    return [doubt for doubt in found if doubt is not None]


def event_note(times: Times) -> str | None:
    """Events recorded around the calls against the device's activity records.

    Events see the stream that they are recorded on; activity records see every kernel and copy of the process.
    """
    events, device = times.event_us(), times.device_us()
    if not events:
        return "no events were recorded around the calls: the activity records stand alone"
    event_us, device_us = median(events), median(device)
    if event_us < device_us - max(EVENT_SLACK_US, EVENT_SLACK * device_us):
        return (
            f"events around a call are {event_us:.2f} us apart, its work on the device spans {device_us:.2f} us: part "
            "of it runs on another stream and may outlast what a caller waits for; device_us counts all of it"
        )
    return None


def stray_work(times: Times) -> list[str]:
    """Names of kernels and copies that run between the timed calls time after time: work put off until nobody looks."""
    return [name for name, visits in times.strays.items() if visits >= max(2, STRAY_SHARE * times.visits)]


def call_doubt(times: Times, other: Times) -> str | None:
    """Why a comparison of whole calls, which each process times by itself, should not be believed."""
    for side, name in ((times, "a whole call"), (other, "a whole call of the baseline")):
        calls = [us for block in side.call_us for us in block]
        device_us = median(side.device_us())
        if calls and median(calls) < device_us - max(EVENT_SLACK_US, EVENT_SLACK * device_us):
            return (
                f"{name} takes {median(calls):.1f} us by its process' clock, less than its work on the device "
                f"({device_us:.1f} us): call_ratio is left out"
            )
    if min(len(times.call_wall_us), len(other.call_wall_us)) < VISITS_NEEDED or not (times.call_us and other.call_us):
        return None
    mine_us, its_us = (median([us for block in side.call_us for us in block]) for side in (times, other))
    seen_us = _floor(times.call_wall_us) - _floor(other.call_wall_us)
    if abs(seen_us - (mine_us - its_us)) <= _slack(times.call_wall_us, other.call_wall_us, max(mine_us, its_us)):
        return None
    return (
        f"by our own clock a whole call takes {seen_us:+.0f} us beside the baseline's, by its process' clock "
        f"{mine_us - its_us:+.0f} us: call_ratio is left out"
    )


def _unrecorded_doubt(times: Times) -> str | None:
    """Events far further apart than what was recorded between them."""
    events = times.event_us()
    if not events:
        return None
    event_us, device_us = median(events), median(times.device_us())
    if event_us <= device_us + UNRECORDED_US + UNRECORDED * device_us:
        return None
    return (
        f"events around a call are {event_us:.1f} us apart, and only {device_us:.1f} us of work was recorded between "
        "them: the host makes the device wait, or work goes unrecorded"
    )


def _first_call_doubt(times: Times) -> str | None:
    """A first call that takes much longer than the others of its visit, which alone are counted."""
    if not times.first_us:
        return None
    first_us, usual_us = median(times.first_us), interquartile_mean(times.device_us())
    if first_us <= usual_us * (1 + FIRST_SLACK) + 3 * FIRST_CALL_US:
        return None
    return (
        f"the first call of a visit takes {first_us:.1f} us, the others {usual_us:.1f} us: the others may use what the "
        "first has done"
    )


def _wall_doubt(times: Times, other: Times) -> str | None:
    """What two sides' visits differ by as our own clock sees it, against what their samples do.

    Their visits hold the same flushes and contents, so what they take from request to reply differs by the calls alone.
    """
    if min(len(times.wall_us), len(other.wall_us)) < VISITS_NEEDED:
        return None
    if any(_host_us(side) > HOST_US for side in (times, other)):
        # The host's work is longer than the flush before it, and shows.
        return None
    seen_us = _floor(times.wall_us) - _floor(other.wall_us)
    mine_us, its_us = interquartile_mean(times.device_us()), interquartile_mean(other.device_us())
    if abs(seen_us - (mine_us - its_us)) <= _slack(times.wall_us, other.wall_us, max(mine_us, its_us)):
        return None
    return (
        f"by our own clock a call takes {seen_us:+.0f} us beside the baseline's, by its samples "
        f"{mine_us - its_us:+.1f} us: its host code waits or works outside of calls, or its samples are not true"
    )


def _host_us(times: Times) -> float:
    """What a whole call takes beyond its work on the device; 0 where no whole calls were timed."""
    calls = [us for block in times.call_us for us in block]
    return median(calls) - median(times.device_us()) if calls else 0.0


def _slack(walls: list[float], others: list[float], us: float) -> float:
    """By how much our clock's view may differ."""
    error = sum(median_absolute_deviation(_shortest(seen)) for seen in (walls, others))
    return max(WALL_SLACK_US, ERRORS * error) + WALL_SLACK * us


def _shortest(walls: list[float]) -> list[float]:
    return sorted(walls)[: max(3, round(FLOOR * len(walls)))]


def _floor(walls: list[float]) -> float:
    shortest = _shortest(walls)
    return sum(shortest) / len(shortest)
