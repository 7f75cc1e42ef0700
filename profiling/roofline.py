"""The least time that the useful work can take on the hardware: the speed of light."""

import math
from typing import Final, Literal

from ..sandbox.wire import Wire

SLACK_PCT: Final = 5.0
"""Beyond 100 % by this much a time is impossible, not merely good: peaks and short times are known to a few
percent only. Work that never reaches device memory isn't allowed for yet: a kernel whose inputs or outputs
fit in L2 can beat its memory floor honestly, since the last writes may still be there when it ends."""


class SpeedOfLight(Wire):
    """How far a time is from the hardware's limit. None: see `absent`."""

    floor_us: float | None
    """The least time for the work: the larger of the floors that are known."""
    memory_floor_us: float | None
    """Bytes over the memory bandwidth."""
    compute_floor_us: float | None
    """Operations over the arithmetic peak."""
    bound: Literal["memory", "compute"] | None
    """Which of the known floors is the larger."""
    pct: float | None
    """The floor as a share of the time: 100 is the limit."""
    headroom: float | None
    """How many times faster it could get at most; 1 is the limit."""
    faster_than_light: bool
    """The time is impossible for this work on this hardware: the work wasn't done, is stated too high, or
    the time is wrong."""
    absent: dict[str, str]
    """Field -> why it isn't known."""


def speed_of_light(
    work_bytes: float | None,
    work_flops: float | None,
    *,
    duration_us: float,
    memory_bytes_per_s: float | None,
    flops_per_s: float | None,
) -> SpeedOfLight:
    """Holds a time against the roofline. Source: Williams, Waterman, Patterson, CACM 52 (2009).

    With only one of the two floors known that one still is a lower bound, so it is used, and `absent` tells
    about the other.

    Args:
        work_bytes: Least bytes that the work must move to and from device memory.
        work_flops: Least floating-point operations, of the kind that `flops_per_s` counts.
        duration_us: The time that it took.
        memory_bytes_per_s: Bandwidth of device memory.
        flops_per_s: Peak of the pipe and type that the work uses.

    Raises:
        ValueError: A negative or non-finite amount of work, or a peak or duration that isn't positive and
            finite.
    """
    if not (math.isfinite(duration_us) and duration_us > 0):
        raise ValueError("duration_us must be positive and finite")
    absent: dict[str, str] = {}
    memory_floor_us = _floor_us("memory_floor_us", "bytes", work_bytes, memory_bytes_per_s, absent)
    compute_floor_us = _floor_us("compute_floor_us", "flops", work_flops, flops_per_s, absent)
    floor_us = max(memory_floor_us or 0.0, compute_floor_us or 0.0)
    if floor_us == 0:
        reason = "; ".join(absent.values()) or "the work is zero bytes and zero flops"
        absent |= dict.fromkeys(("floor_us", "bound", "pct", "headroom"), reason)
        return SpeedOfLight(
            floor_us=None,
            memory_floor_us=memory_floor_us,
            compute_floor_us=compute_floor_us,
            bound=None,
            pct=None,
            headroom=None,
            faster_than_light=False,
            absent=absent,
        )
    pct = 100 * floor_us / duration_us
    return SpeedOfLight(
        floor_us=floor_us,
        memory_floor_us=memory_floor_us,
        compute_floor_us=compute_floor_us,
        bound="memory" if floor_us == memory_floor_us else "compute",
        pct=pct,
        headroom=duration_us / floor_us,
        faster_than_light=pct > 100 + SLACK_PCT,
        absent=absent,
    )


def _floor_us(field: str, unit: str, work: float | None, per_s: float | None, absent: dict[str, str]) -> float | None:
    if work is not None and not (math.isfinite(work) and work >= 0):
        raise ValueError(f"work in {unit} must be zero or more and finite")
    if per_s is not None and not (math.isfinite(per_s) and per_s > 0):
        raise ValueError(f"the peak in {unit} per second must be positive and finite")
    if work is None:
        absent[field] = f"the task doesn't state its work in {unit}"
        return None
    if per_s is None:
        absent[field] = f"the peak in {unit} per second is not known for this hardware"
        return None
    return work / per_s * 1e6
