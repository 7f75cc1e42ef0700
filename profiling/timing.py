"""Times a kernel, and its baseline beside it: interleaved blocks in separate processes."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..sandbox.errors import Stopped, rejected
from ..sandbox.facts import Block
from ..sandbox.outcome import Kind, Problem
from ..sandbox.workers import KernelWorker
from .comparison import PairBlock
from .statistics import median

BLOCK_LIMIT_US: Final = 30_000.0
"""Calls in a block become fewer where they would take longer than this together."""
FLUSH_BYTES: Final = 512 << 20
"""Read before each call: eight times the largest L2 of the catalogue's Hopper GPUs, and long enough (about 130 us) for
the host to queue the call's launches behind it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is timed."""

    blocks: int = 12
    """ABBA blocks: enough for an interval of the median that is 0.1 to 0.4 % wide on kernels of 70 us and more."""
    calls_per_block: int = 10
    """Of each side, early and again late in the block."""
    warm_up_s: float = 0.3
    warm_up_calls: int = 200
    call_times: int = 20
    """Whole calls, timed on the host."""


FULL: Final = Plan()


@dataclass(slots=True)
class Times:
    """What was measured of one kernel in one case; one entry a call, in microseconds, unless it says otherwise."""

    device_us: list[float] = field(default_factory=list[float])
    """First start to last end on the device."""
    kernel_us: list[float] = field(default_factory=list[float])
    """Sum over the kernels and copies."""
    call_us: list[float] = field(default_factory=list[float])
    """Host call to completion."""
    kernels: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Kernel or copy by name -> mean time a call, one entry a block."""
    sm_clock_hz: list[float] = field(default_factory=list[float])
    """SM clock at the end of each block."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of the candidate and, where there is one, of the baseline in the same blocks."""

    candidate: Times
    baseline: Times | None
    pairs: list[PairBlock]


async def time_entry(candidate: KernelWorker, baseline: KernelWorker | None, plan: Plan = FULL) -> Timing:
    """Time loaded kernels whose inputs have been set.

    Each block calls every side once early and once late (ABBA, the first side drawn at random), so that drift of the
    clock within it cancels.

    Raises:
        Stopped: a call failed, put nothing on the GPU, or was not recorded.
    """
    workers = [worker for worker in (candidate, baseline) if worker is not None]
    calls = await _warm_up(workers, plan)
    times = [Times() for _ in workers]
    pairs: list[PairBlock] = []
    for number in range(plan.blocks):
        order = list(range(len(workers)))
        random.shuffle(order)
        block: list[list[float]] = [[] for _ in workers]
        for side in [*order, *reversed(order)]:
            block[side] += _take(times[side], await workers[side].block(calls, number), calls)
        if len(block) == 2:
            pairs.append(PairBlock(baseline_us=block[1], candidate_us=block[0]))
    for worker, mine in zip(workers, times, strict=True):
        mine.call_us = await worker.call_times(plan.call_times)
    return Timing(times[0], times[1] if len(times) == 2 else None, pairs)


async def _warm_up(workers: Sequence[KernelWorker], plan: Plan) -> int:
    """Compile, autotune, let clocks settle; how many calls a block can have."""
    slowest_us = 0.0
    for worker in workers:
        # One after the other: a kernel that tunes itself must have the device alone.
        await worker.prepare(FLUSH_BYTES)
        await worker.first_call()
    for worker in workers:
        slowest_us = max(slowest_us, (await worker.warm_up(plan.warm_up_s, plan.warm_up_calls)).call_us)
    return max(1, min(plan.calls_per_block, int(BLOCK_LIMIT_US / max(slowest_us, 1.0))))


def _take(times: Times, block: Block, calls: int) -> list[float]:
    """Add a block's samples; its device times."""
    if len(block.samples) != calls:
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="benchmark",
                message=f"CUPTI recorded {len(block.samples)} of {calls} timed calls",
                likely_cause="Another profiler is active in this process or on this GPU.",
                likely_fix="End other profilers and time again.",
            ),
        )
    if any(sample.activities == 0 or sample.device_us <= 0 for sample in block.samples):
        raise rejected(
            "benchmark",
            "a timed call put nothing on the GPU: no kernel and no copy was recorded",
            fix="The entry must do its work on the GPU in every call; it must not return a cached result.",
        )
    device_us = [sample.device_us for sample in block.samples]
    times.device_us += device_us
    times.kernel_us += [sample.kernel_us for sample in block.samples]
    if block.sm_clock_hz is not None:
        times.sm_clock_hz.append(block.sm_clock_hz)
    for name, us in block.kernels.items():
        times.kernels.setdefault(name, []).append(us)
    return device_us


def longest(times: Times, count: int) -> list[tuple[str, float]]:
    """The kernels and copies that a call spends most time in: name and mean microseconds, longest first."""
    means = {name: sum(us) / len(us) for name, us in times.kernels.items()}
    return sorted(means.items(), key=lambda item: -item[1])[:count]


def launch_bound(times: Times) -> bool:
    """Whether a caller waits mostly for the host: the call takes more than twice what the device works, and that is
    short."""
    device_us = median(times.device_us)
    return device_us < 50 and median(times.call_us) > 2 * device_us
