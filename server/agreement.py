"""Whether replayed calls can stand for ordinary ones, and timed ones for those that were checked."""

from collections.abc import Sequence
from typing import Final

from ..profiling.statistics import interquartile_mean, median
from ..profiling.times import Side
from ..sandbox.errors import Stopped
from ..sandbox.outcome import Kind, Problem
from ..sandbox.replay_plan import Recorded

AGREEMENT: Final = 0.03
AGREEMENT_US: Final = 0.5
"""Replayed and ordinary calls agree where they are no further apart than this, relatively or absolutely."""


def why_not(recorded: Sequence[Recorded]) -> str | None:
    """Why the kernels can't be replayed; None where all can."""
    for name, one in zip(("the kernel", "the baseline"), recorded, strict=False):
        if one.reason is not None:
            return f"{name} can't be replayed: {one.reason}"
    return None


def ratio_of(one: Side, other: Side) -> float:
    """Time of a call of one side over that of another timed together, on the device."""
    return interquartile_mean(one.times.device_us()) / interquartile_mean(other.times.device_us())


def disagreement(ordinary: Sequence[Side], replayed: Sequence[Side]) -> tuple[str | None, str | None]:
    """Why replayed calls can't stand for ordinary ones, None where they can; and what speaks against the ordinary ones.

    A process in which the kernel file has run is not believed when it claims to be faster than its own launches are.
    """
    reason = doubt = None
    for number, (its, mine) in enumerate(zip(ordinary, replayed, strict=True)):
        call_us, replayed_us = median(its.times.device_us()), median(mine.times.device_us())
        slack_us = max(AGREEMENT_US, AGREEMENT * replayed_us)
        apart = f"{its.name}: an ordinary call takes {call_us:.2f} us on the device, the same launches by a replayer "
        if call_us < replayed_us - slack_us:
            doubt = f"{apart}{replayed_us:.2f} us: the latter counts"
            if number == 0:
                # Whatever the baseline does, the candidate's own word counts for nothing then.
                return None, doubt
        elif call_us > replayed_us + slack_us:
            reason = reason or f"{apart}{replayed_us:.2f} us"
    return reason, None if reason is not None else doubt


def wrong_while_timed(message: str) -> Stopped:
    """The failure of a kernel whose results were right before it was timed."""
    return Stopped(
        Kind.WRONG,
        Problem(
            stage="compare",
            message=f"a timed call's results are wrong, though they were right before: {message}",
            likely_cause="Results of an earlier call, or of other inputs: the kernel keeps something between calls, "
            "does not do its work in each, or has a race.",
            likely_fix="Do the whole work in every call; run_correctness with sanitize=true looks for races.",
        ),
    )
