"""Causes that leave the GPU waiting: too little work at once, spread unevenly, or warps that wait for each other."""

from math import floor
from typing import Final

from .cause import LATENCY_PCT, Cause, Facts, at, cause, hottest, pct

LOW_OCCUPANCY_PCT: Final = 80.0
"""TheoreticalOccupancy."""
USED_OCCUPANCY: Final = 0.7
"""Achieved over theoretical; below it, it isn't room for blocks that is missing (own)."""
TAIL_SHARE: Final = 0.2
TAIL_OCCUPANCY: Final = 0.8
"""LaunchConfiguration: a partial wave is told from that share of the time, and where achieved occupancy is below that
share of the theoretical."""
IMBALANCE_GAIN: Final = 0.05
"""WorkloadImbalance."""
STALL_PCT: Final = 30.0
STALL_ISSUE_PCT: Final = 80.0
"""CPIStall: of the time between two instructions of a warp, where schedulers issue in fewer cycles than that."""
STARTS_PER_CYCLE: Final = 0.3
"""Own. An H200 starts about one block a cycle at most: 0.84 were seen, of 4 warps that do next to nothing each."""
TINY_THREADS: Final = 64
TINY_WAVES: Final = 4.0
"""Own: blocks of at most so many threads, in so many waves, that still don't fill the places for warps."""
BUSY_WARPS_PCT: Final = 60.0
"""Tensor cores that are busy so much need no more warps: one or two blocks of an SM are enough (own)."""

_RESOURCES: Final = {"registers": "registers", "shared_mem": "shared", "blocks": "blocks", "barriers": "barriers"}
"""Limit -> its cause's name after `occupancy_`."""
_ROOM: Final = {
    "registers": "Use fewer registers a thread: a smaller tile or more warps for it, a loop over chunks.",
    "shared_mem": "Use less shared memory a block: smaller tiles or fewer stages.",
    "blocks": "Use larger blocks: more warps for each.",
    "barriers": "Use fewer barriers a block.",
}
STALL_SUGGESTIONS: Final = {
    "long_scoreboard": "Put more loads in flight: wider or independent ones, more warps, or those of the next step "
    "before this one's are used (num_stages).",
    "short_scoreboard": "Use shared memory or special functions less: fewer layout changes and sums across threads.",
    "barrier": "Make threads meet less often: reduce once after the loop, not in each step; fewer warps a block.",
    "gmma": "Let loads and matrix products overlap: more stages, or a second group of warps.",
    "mio_throttle": "Access shared memory less often and wider; avoid layout changes and exp or log in the inner loop.",
    "lg_throttle": "Make accesses of global memory fewer and wider: 16 bytes a thread.",
    "math_pipe_throttle": "Do less arithmetic on that pipe: hoist, fuse, or move matrix products to tensor cores.",
    "wait": "Give each warp more independent work, or run more warps.",
    "no_instruction": "Shorten the code: less unrolling, smaller tiles.",
    "membar": "Use fewer fences: relaxed atomics, or none.",
    "branch_resolving": "Branch less: masks, or a loop bound that all threads share.",
    "drain": "Write less or wider at the end, or give each block more work before it.",
}


def tiny_block(facts: Facts) -> Cause | None:
    """Blocks that end faster than the GPU starts new ones."""
    profile, blocks, threads = facts.profile, facts.blocks, facts.threads
    achieved, theoretical = profile.achieved_occupancy_pct, profile.theoretical_occupancy_pct
    if achieved is None or theoretical is None or blocks is None or threads is None or profile.waves_per_sm is None:
        return None
    rate = None if not profile.cycles else blocks / profile.cycles
    started = rate is not None and rate >= STARTS_PER_CYCLE
    if not (started or threads <= TINY_THREADS) or profile.waves_per_sm < TINY_WAVES:
        return None
    if achieved >= TAIL_OCCUPANCY * theoretical:
        return None
    speed = "" if rate is None else f", {rate:.2f} a cycle,"
    return cause(
        "tiny_block",
        f"{blocks:,} blocks of {threads} threads start{speed} and end at once: warps fill {pct(achieved)} of an "
        f"SM's places where {pct(theoretical)} would fit",
        "Give each program more work: a larger BLOCK, several elements a thread, or a loop over blocks.",
        threads=threads,
        blocks=blocks,
        blocks_per_cycle=rate,
        achieved_occupancy_pct=achieved,
        theoretical_occupancy_pct=theoretical,
    )


def small_grid(facts: Facts) -> Cause | None:
    """LaunchConfiguration: fewer blocks than SMs, or than two for each."""
    blocks, spread = facts.blocks, facts.blocks_per_sm
    tensor = facts.profile.tensor_pct
    if blocks is None or spread is None or spread >= 2:
        return None
    if spread >= 1 and tensor is not None and tensor >= BUSY_WARPS_PCT:
        return None
    few = "SMs stay empty" if spread < 1 else "too few to fill them evenly or to hide what one waits for"
    return cause(
        "small_grid",
        f"A grid of {blocks:,} blocks is {spread:.2f} for each SM: {few}",
        "Split the work into more programs: smaller tiles, or a split along the reduced axis (split-K).",
        blocks=blocks,
        blocks_per_sm=spread,
        achieved_occupancy_pct=facts.profile.achieved_occupancy_pct,
    )


def occupancy(facts: Facts) -> Cause | None:
    """TheoreticalOccupancy, where warps fill what room there is; not of warpgroup products, which want few blocks."""
    profile = facts.profile
    theoretical, achieved, limiter = (
        profile.theoretical_occupancy_pct,
        profile.achieved_occupancy_pct,
        profile.occupancy_limiter,
    )
    if theoretical is None or limiter is None or theoretical >= LOW_OCCUPANCY_PCT:
        return None
    if profile.mma == "gmma" or (profile.tensor_pct or 0) >= BUSY_WARPS_PCT:
        return None
    if achieved is not None and achieved < USED_OCCUPANCY * theoretical:
        return None
    resource = next((one for one in limiter.split(" and ") if one in _RESOURCES), None)
    if resource is None:
        return None
    measure = {"registers": profile.registers, "shared_mem": profile.shared_bytes}.get(resource)
    unit = {"registers": " registers a thread", "shared_mem": " bytes of shared memory a block"}.get(resource, "")
    told = "" if measure is None else f" ({measure:,}{unit})"
    return cause(
        f"occupancy_{_RESOURCES[resource]}",
        f"Only {pct(theoretical)} of an SM's warps fit, limited by {limiter}{told}; {pct(achieved)} are there",
        _ROOM[resource],
        theoretical_occupancy_pct=theoretical,
        achieved_occupancy_pct=achieved,
        occupancy_limiter=limiter,
        registers=profile.registers,
        shared_bytes=profile.shared_bytes,
        threads=facts.threads,
    )


def tail(facts: Facts) -> Cause | None:
    """LaunchConfiguration: a last wave that only fills some SMs."""
    profile = facts.profile
    waves, achieved, theoretical = (
        profile.waves_per_sm,
        profile.achieved_occupancy_pct,
        profile.theoretical_occupancy_pct,
    )
    if waves is None or achieved is None or theoretical is None or waves < 1 or waves == floor(waves):
        return None
    if 1 / (floor(waves) + 1) < TAIL_SHARE or achieved >= TAIL_OCCUPANCY * theoretical:
        return None
    return cause(
        "tail",
        f"{waves:.2f} waves of blocks: the last one fills {pct(100 * (waves - floor(waves)))} of the GPU and takes up "
        f"to {pct(100 / (floor(waves) + 1))} of the time",
        "Choose tiles so that waves come out whole, or a persistent kernel with as many programs as fit.",
        waves_per_sm=waves,
        achieved_occupancy_pct=achieved,
        theoretical_occupancy_pct=theoretical,
    )


def imbalance(facts: Facts) -> Cause | None:
    """WorkloadImbalance: SMs that are done before others."""
    ratio = facts.profile.sm_imbalance
    if ratio is None or ratio < 1 or 1 - 1 / ratio < IMBALANCE_GAIN:
        return None
    return cause(
        "imbalance",
        f"The busiest SM works {ratio:.2f} times as long as the mean of all",
        "Spread the work: smaller programs, the longest first, or programs that fetch their next piece.",
        sm_imbalance=ratio,
    )


def stall(facts: Facts) -> Cause | None:
    """CPIStall: one reason for which warps wait most of the time."""
    profile = facts.profile
    worst = next((one for one in profile.stalls if one.reason in STALL_SUGGESTIONS), None)
    if worst is None or worst.pct <= STALL_PCT or (profile.issue_slot_pct or 0) >= STALL_ISSUE_PCT:
        return None
    if worst.reason == "gmma" and (profile.tensor_pct or 0) >= BUSY_WARPS_PCT:
        return None
    line = hottest(facts, lambda spot: spot.pct if spot.stall == worst.reason else 0.0)
    return cause(
        f"stall_{worst.reason}",
        f"Between two instructions a warp spends {pct(worst.pct)} of the time stalled: {worst.meaning}{at(line)}",
        STALL_SUGGESTIONS[worst.reason],
        stall=worst.reason,
        stall_pct=worst.pct,
        issue_slot_pct=profile.issue_slot_pct,
        line=line,
    )


def latency_bound(facts: Facts) -> Cause | None:
    """SOLBottleneck: neither side is busy."""
    memory, compute = facts.memory_pct, facts.compute_pct
    if memory is None or compute is None or memory >= LATENCY_PCT or compute >= LATENCY_PCT:
        return None
    return cause(
        "latency_bound",
        f"Neither memory ({pct(memory)}) nor compute ({pct(compute)}) is busy: the launch waits",
        "Put more work in flight: more programs or warps, more independent loads, a deeper pipeline.",
        memory_pct=memory,
        compute_pct=compute,
        eligible_warps=facts.profile.eligible_warps,
    )
