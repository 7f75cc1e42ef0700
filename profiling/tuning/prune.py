"""What is not worth running, as the compiler's output of a variant already tells."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from ...sandbox.outcome import Kind, Problem
from ..compiler.launch import LaunchFacts
from ..hardware.model import SmLimits

Reason = Literal[
    "shared memory", "does not compile", "registers", "spills in a loop", "tensor cores lost", "idle threads",
    "slow to compile", "unusable",
]  # fmt: skip
FEW_SPILLED_BYTES: Final = 64
"""A thread: the fastest of large tiles may spill as much, and more costs in every iteration."""
IDLE: Final = 2
"""A variant with more threads than this many for each element of its largest tile is left out."""
_RANKS: Final = {"none": 0, "mma": 1, "mfma": 1, "wgmma": 2, "tcgen05": 2}


class Pruned(NamedTuple):
    """A variant that is not run."""

    reason: Reason
    why: str


class Best(NamedTuple):
    """What the best of a kernel's variants reach, as far as they have been compiled."""

    tensor_rank: int = 0
    spill_bytes: int | None = None
    """The least; None while none is known."""


def refused(kind: Kind, problem: Problem) -> Pruned:
    """A variant that could not be compiled or launched."""
    message = problem.message
    if kind is Kind.TIMEOUT:
        return Pruned("slow to compile", message)
    if kind is Kind.LAUNCH_ERROR or "shared memory" in message or "out of resource" in message:
        return Pruned("shared memory" if "shared" in message else "registers", message)
    return Pruned("does not compile" if kind is Kind.COMPILE_ERROR else "unusable", message)


def best_of(known: Sequence[Sequence[LaunchFacts]]) -> Best:
    """What the variants so far reach.

    Args:
        known: the launches of each variant.
    """
    ranks = [tensor_rank(launches) for launches in known]
    spills = [sum(one.spill_bytes or 0 for one in launches) for launches in known]
    return Best(max(ranks, default=0), min(spills, default=None))


def prune(launches: Sequence[LaunchFacts], limits: SmLimits, best: Best) -> Pruned | None:
    """Why a variant is not worth running; None where it may be.

    Args:
        launches: of one call.
        limits: the target's.
        best: what other variants of the same file reach.
    """
    for one in launches:
        if limits.shared_bytes_per_block and one.shared_bytes > limits.shared_bytes_per_block:
            return Pruned("shared memory", f"{one.shared_bytes} of {limits.shared_bytes_per_block} bytes a block")
        if one.blocks_per_sm == 0:
            return Pruned("registers", f"no block fits: {one.registers} registers, {one.num_warps} warps")
        spilled = one.spill_bytes or 0
        if one.loops and best.spill_bytes is not None and spilled > max(FEW_SPILLED_BYTES, 2 * best.spill_bytes):
            return Pruned("spills in a loop", f"{spilled} bytes a thread")
        threads, elements = one.num_warps * limits.warp_threads, one.elements_per_program_max
        if elements is not None and not one.dots and elements * IDLE < threads:
            return Pruned("idle threads", f"{threads} threads, {elements} elements in the largest tile")
    if tensor_rank(launches) < best.tensor_rank and (lost := _lost(launches, best.tensor_rank)) is not None:
        return Pruned("tensor cores lost", lost)
    return None


def tensor_rank(launches: Sequence[LaunchFacts]) -> int:
    """How strong the tensor-core instructions are: 0 for none."""
    return max((_RANKS.get(one.mma, 0) for one in launches if one.dots), default=0)


def _lost(launches: Sequence[LaunchFacts], best: int) -> str | None:
    for one in launches:
        rank = _RANKS.get(one.mma, 0)
        if not one.dots or rank == best:
            continue
        # Few rows are no fault: an instruction for 64 rows of a warp group would leave most of them empty.
        if rank == 0 or max(dot.m for dot in one.dots) >= 64:
            return f"{one.mma} where other variants have more"
    return None


def counted(pruned: Sequence[Pruned]) -> dict[str, int]:
    """How many for each reason, the most frequent first."""
    return dict(Counter(one.reason for one in pruned).most_common())
