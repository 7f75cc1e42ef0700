"""Causes that are roofs: a unit of the GPU that is as busy as it gets, or that is the busiest by far."""

from collections.abc import Callable
from typing import Final, NamedTuple

from .cause import DOMINANT_POINTS, LATENCY_PCT, LIMIT_PCT, Cause, Facts, cause, pct

ACHIEVABLE_PCT: Final = 85.0
"""Of the bandwidth measured on the device: as good as reached (own)."""


class Roof(NamedTuple):
    """A unit and how busy it is."""

    reached: bool
    """As busy as it gets; else the busiest by far."""
    busy_pct: float
    cause: Cause


def dram(facts: Facts) -> Roof | None:
    """Device memory, of its peak and of what was measured on the device."""
    share, busy = facts.achieved_share_pct, facts.profile.dram_pct
    achieved = share is not None and share >= ACHIEVABLE_PCT
    if busy is None or not (achieved or _leads(facts, busy)):
        return None
    measured = "" if share is None else f", {pct(share)} of the bandwidth measured on this device"
    reached = achieved or busy >= LIMIT_PCT
    found = cause(
        "dram_bound",
        f"Device memory is busy {pct(busy)} of its peak{measured}"
        + ("" if reached else ": more than anything else, but not at its limit"),
        "Move fewer bytes (fuse, one pass, narrower types): nothing else helps."
        if reached
        else "Move fewer bytes (fuse, one pass, narrower types), or keep more loads in flight.",
        dram_pct=busy,
        achieved_share_pct=share,
        dram_bytes=facts.profile.dram_bytes,
    )
    return Roof(reached, busy, found)


def l2(facts: Facts) -> Roof | None:
    """The cache between SMs and device memory; where device memory is as busy, that is the roof."""
    busy = _within_memory(facts, facts.profile.l2_pct)
    if busy is None or not _leads(facts, busy):
        return None
    found = cause(
        "l2_bound",
        f"L2 is busy {pct(busy)} of its peak, device memory {pct(facts.profile.dram_pct)}",
        "Ask L2 for less: larger tiles, whole sectors, data kept in shared memory or registers.",
        l2_pct=facts.profile.l2_pct,
        memory_pct=facts.profile.memory_pct,
        l2_hit_pct=facts.profile.l2_hit_pct,
        dram_pct=facts.profile.dram_pct,
    )
    return Roof(busy >= LIMIT_PCT, busy, found)


def l1(facts: Facts) -> Roof | None:
    """The first cache, which shared memory is part of."""
    busy = _within_memory(facts, facts.profile.l1_pct)
    if busy is None or not _leads(facts, busy):
        return None
    found = cause(
        "l1_bound",
        f"L1 and shared memory are busy {pct(busy)} of their peak",
        "Access them less often and wider: 16 bytes a thread, fewer layout changes, reuse in registers.",
        l1_pct=facts.profile.l1_pct,
        memory_pct=facts.profile.memory_pct,
        l1_hit_pct=facts.profile.l1_hit_pct,
    )
    return Roof(busy >= LIMIT_PCT, busy, found)


def tensor(facts: Facts) -> Roof | None:
    """Tensor cores."""
    busy = facts.profile.tensor_pct
    if busy is None or not _leads(facts, busy):
        return None
    found = cause(
        "tensor_bound",
        f"Tensor cores are busy {pct(busy)} of their peak",
        "Do fewer operations, or use a narrower type (fp8, bf16); at the limit nothing else helps.",
        tensor_pct=busy,
        mma=facts.profile.mma,
    )
    return Roof(busy >= LIMIT_PCT, busy, found)


def pipe(facts: Facts) -> Roof | None:
    """HighPipeUtilization: another pipe of the SM."""
    busiest = next((one for one in facts.profile.pipes if one.name != "tensor"), None)
    if busiest is None or busiest.pct < LIMIT_PCT:
        return None
    found = cause(
        "pipe_bound",
        f"The SM's {busiest.name} pipe is busy {pct(busiest.pct)} of its peak",
        "Do less on that pipe: hoist address and mask arithmetic out of loops, wider accesses, cheaper functions.",
        pipe=busiest.name,
        pipe_pct=busiest.pct,
    )
    return Roof(True, busiest.pct, found)


def issue(facts: Facts) -> Roof | None:
    """Schedulers that have something to issue nearly always."""
    busy = facts.profile.issue_slot_pct
    if busy is None or busy < LIMIT_PCT:
        return None
    found = cause(
        "issue_bound",
        f"Schedulers issue an instruction in {pct(busy)} of all cycles: there are too many instructions for the work",
        "Execute fewer: wider accesses, less index and mask arithmetic, conversions out of the loop.",
        issue_slot_pct=busy,
    )
    return Roof(True, busy, found)


def _within_memory(facts: Facts, share: float | None) -> float | None:
    """A cache's share as far as Nsight Compute counts it to the memory system's.

    `lts__throughput` has parts that its `gpu__compute_memory_throughput` leaves out: a softmax on an H200 had 89 % of
    the one and 73 % of the other, which was device memory's.
    """
    memory = facts.profile.memory_pct
    return None if share is None or memory is None else min(share, memory)


def _leads(facts: Facts, busy_pct: float) -> bool:
    """SOLBottleneck: at the limit; or busy, and its side well before the other."""
    memory, compute = facts.memory_pct, facts.compute_pct
    if busy_pct >= LIMIT_PCT:
        return True
    if busy_pct < LATENCY_PCT or memory is None or compute is None:
        return False
    return abs(memory - compute) >= DOMINANT_POINTS and busy_pct > max(memory, compute) - DOMINANT_POINTS


ROOFS: Final[tuple[Callable[[Facts], Roof | None], ...]] = (dram, tensor, l2, l1, pipe, issue)
