"""Theoretical occupancy: how many blocks of a launch an SM can hold, what limits them, and waves over the GPU.

The arithmetic of NVIDIA's cuda_occupancy.h, for the limits that Triton kernels meet. That of LLVM for AMD's GPUs
(AMDGPUBaseInfo.cpp) is the same, with other limits: LDS for shared memory, waves for warps, SIMDs for partitions.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..hardware.model import SmLimits

WARP_THREADS = 32

Limiter = Literal["registers", "shared_memory", "warps", "blocks"]


class NextBlock(NamedTuple):
    """What one more block per SM takes; both bounds must hold."""

    registers_at_most: int
    shared_bytes_at_most: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How a launch fills one SM."""

    blocks_per_sm: int
    theoretical_occupancy_pct: float
    """Resident warps of those that the SM could hold."""
    limiter: Limiter
    """What stops the next block. Where several do, the one that can't be changed: warps, then blocks."""
    next_block: NextBlock | None
    """None where warps or blocks are exhausted, where no register count is small enough, or where registers of another
    kind are what lacks."""
    fits: bool
    """Whether a single block can be launched at all."""
    by_limiter: dict[Limiter, int]
    """Blocks that fit by one of them alone."""


def occupancy(
    registers: int, num_warps: int, shared_bytes: int, limits: SmLimits, *, warps_by_compiler: int | None = None
) -> Occupancy:
    """Counts the resident blocks of an SM.

    Args:
        registers: per thread.
        num_warps: of a block.
        shared_bytes: of a block, static and dynamic; the system's reserve is added here.
        limits: of the SM.
        warps_by_compiler: how many its registers admit by the compiler's own count, which knows of those of other
            kinds too, such as AMD's scalar ones.
    """
    by_these = _warps_by_registers(registers, limits)
    warps = by_these if warps_by_compiler is None else min(by_these, warps_by_compiler)
    by_limiter: dict[Limiter, int] = {
        "warps": limits.warps_per_sm // num_warps,
        "blocks": _most_blocks(num_warps, limits),
        "registers": warps // num_warps,
        "shared_memory": _blocks_by_shared_memory(shared_bytes, limits),
    }
    limiter = min(by_limiter, key=lambda name: by_limiter[name])
    blocks = by_limiter[limiter]
    return Occupancy(
        blocks_per_sm=blocks,
        theoretical_occupancy_pct=100 * blocks * num_warps / limits.warps_per_sm,
        limiter=limiter,
        next_block=None if warps < by_these else _next_block(blocks + 1, num_warps, limits),
        fits=blocks > 0,
        by_limiter=by_limiter,
    )


def waves(grid_blocks: int, sm_count: int, blocks_per_sm: int) -> float | None:
    """How often the GPU is filled: 1.25 means one full wave and a quarter. None where no block fits."""
    slots = sm_count * blocks_per_sm
    return grid_blocks / slots if slots else None


class Tail(NamedTuple):
    """The last wave of a launch."""

    last_wave_filled_pct: float
    """Of the blocks that the GPU holds at once; 100 where the waves come out even."""
    lost_pct_at_most: float
    """Of the launch's time, if every block takes equally long: what is idle in the last wave."""


def tail(grid_blocks: int, sm_count: int, blocks_per_sm: int) -> Tail | None:
    """What the last, partly filled wave costs at most. None where no block fits or the grid is empty.

    With `w = blocks / (SMs * blocks per SM)` waves, the launch takes `ceil(w)` times a block's time, and `w` would do:
    `lost = (ceil(w) - w) / ceil(w)`. Less is lost where blocks that share an SM slow each other down, since those of
    the last wave then run faster.
    """
    slots = sm_count * blocks_per_sm
    if slots <= 0 or grid_blocks <= 0:
        return None
    rounds = -(-grid_blocks // slots)
    idle = rounds * slots - grid_blocks
    return Tail(
        last_wave_filled_pct=round(100 * (slots - idle) / slots, 1),
        lost_pct_at_most=round(100 * idle / (rounds * slots), 1),
    )


def _most_blocks(num_warps: int, limits: SmLimits) -> int:
    return (limits.blocks_of_one_warp_per_sm if num_warps == 1 else None) or limits.blocks_per_sm


def _warps_by_registers(registers: int, limits: SmLimits) -> int:
    """A warp's registers come from its partition, in whole allocation units."""
    if registers > limits.registers_per_thread:
        return 0
    per_warp = _round_up(max(registers, 1) * limits.warp_threads, limits.register_allocation_unit)
    return limits.registers_per_sm // limits.partitions_per_sm // per_warp * limits.partitions_per_sm


def _blocks_by_shared_memory(shared_bytes: int, limits: SmLimits) -> int:
    if shared_bytes > limits.shared_bytes_per_block:
        return 0
    taken = max(shared_bytes + limits.shared_bytes_reserved_per_block, 1)
    return limits.shared_bytes_per_sm // _round_up(taken, limits.shared_allocation_unit_bytes)


def _next_block(blocks: int, num_warps: int, limits: SmLimits) -> NextBlock | None:
    if blocks > _most_blocks(num_warps, limits) or blocks * num_warps > limits.warps_per_sm:
        return None
    warps_per_partition = -(-blocks * num_warps // limits.partitions_per_sm)
    available = limits.registers_per_sm // limits.partitions_per_sm // warps_per_partition
    per_warp = available // limits.register_allocation_unit * limits.register_allocation_unit
    unit = limits.shared_allocation_unit_bytes
    per_block = limits.shared_bytes_per_sm // blocks // unit * unit - limits.shared_bytes_reserved_per_block
    if per_warp == 0 or per_block < 0:
        return None
    return NextBlock(
        registers_at_most=min(per_warp // limits.warp_threads, limits.registers_per_thread),
        shared_bytes_at_most=min(per_block, limits.shared_bytes_per_block),
    )


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
