"""What the compiler's output lets one expect of a variant's time: a prior for the search, never a result.

Each part is a log(time) that a variant loses to one that does not have the fault. They only set the order in which
variants are measured; what is measured overrules them, and each part's weight is learned from it (`surrogate`).
"""

import math
from collections.abc import Sequence
from typing import Final

from ..compiler.launch import LaunchFacts
from .prune import tensor_rank

PARTS: Final = (
    "programs", "idle", "narrow", "unfilled", "tail", "tensor", "copies", "spills", "tile", "occupancy", "trips",
    "thread", "buffers",
)  # fmt: skip
"""What they are of."""
WIDTH_BYTES: Final = 16
ENOUGH_BYTES: Final = 32 << 10
"""In flight on an SM: Little's law at some 600 ns and 3 to 5 TB/s over 132 SMs."""
LONG_TILE: Final = 4096
"""Elements: loops over longer ones take few steps as it is."""
EACH: Final = 16
EACH_SUM: Final = 128
"""Elements a thread, and sums of a product, that kernels do well with as a rule."""
BUFFERS: Final = 3


def parts(launches: Sequence[LaunchFacts], sm_count: int | None) -> tuple[float, ...]:
    """The parts of a call, of its heaviest launch: the one with the largest grid times tile."""
    if not launches:
        return (0.0,) * len(PARTS)
    one = max(launches, key=_weight)
    programs = math.prod(one.grid)
    threads = one.num_warps * 32
    elements = one.elements_per_program_max or threads
    size = one.element_bytes or 4
    widths = [*one.load_widths_bytes, *one.store_widths_bytes]
    widest = max(widths, default=WIDTH_BYTES)
    rank = tensor_rank(launches)
    blocks = one.blocks_per_sm or 1
    sms = sm_count or 132
    # What an SM has on its way at once, if each thread of a resident block waits for one access of its tile.
    resident = min(blocks, max(1.0, programs / sms))
    flying = resident * min(elements, threads * WIDTH_BYTES // size * 4) * size * max(1, one.pipeline_buffers)
    dots = [dot for dot in one.dots if dot.in_loop] or one.dots
    reuse = max((dot.m * dot.n / (dot.m + dot.n) for dot in dots), default=0.0)
    sums = max((dot.m * dot.n for dot in dots), default=0)
    found = {
        "programs": 0.15 * math.log1p(programs / (sms * 256)) if not dots else 0.0,
        "idle": math.log(max(1.0, threads / elements)) if not dots else 0.0,
        "narrow": 0.3 * math.log2(WIDTH_BYTES / min(widest, WIDTH_BYTES)),
        "unfilled": math.log(max(1.0, sms / max(programs, 1))),
        "tail": math.log1p((one.tail_lost_pct_at_most or 0.0) / 100),
        "tensor": (2 - rank) * 0.6 if dots else 0.0,
        "copies": 0.5 if dots and one.loops and not one.pipeline_buffers else 0.0,
        "spills": 0.1 * math.log2(1 + (one.spill_bytes or 0) / 8),
        "tile": 0.6 * math.log(max(1.0, 64.0 / reuse)) if reuse else 0.0,
        "occupancy": 0.35 * math.log2(max(1.0, ENOUGH_BYTES / flying)) if not dots else 0.0,
        "trips": 0.1 * math.log2(max(1.0, LONG_TILE / elements)) if one.loops and not dots else 0.0,
        "thread": 0.05 * abs(math.log2((sums or elements) / threads / (EACH_SUM if sums else EACH))),
        "buffers": 0.05 * max(0, BUFFERS - one.pipeline_buffers) if dots and one.loops else 0.0,
    }
    return tuple(found[name] for name in PARTS)


def elements(one: LaunchFacts) -> int:
    """Of a program's largest tile, that of a product's sums among them."""
    sums = max((dot.m * dot.n for dot in one.dots), default=0)
    return max(1, sums, one.elements_per_program_max or 0)


def _weight(one: LaunchFacts) -> float:
    return math.prod(one.grid) * max(
        (dot.m * dot.n * dot.k for dot in one.dots), default=one.elements_per_program_max or 1
    )
