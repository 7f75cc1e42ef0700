"""What the compiler's output lets one expect of a variant's time: a prior for the search, never a result.

Each part is a log(time) that a variant loses to one that does not have the fault. They only set the order in which
variants are measured; what is measured overrules them, and each part's weight is learned from it (`surrogate`).
"""

import math
import re
from collections.abc import Sequence
from typing import Final

from ..compiler.launch import LaunchFacts
from ..compiler.ttgir import Dot
from ..hardware.model import Target
from .prune import tensor_rank
from .stream import SM_COUNT, stream

PARTS: Final = (
    "bytes", "latency", "launch", "reread", "masked", "idle", "narrow", "unfilled", "tail", "tensor", "copies",
    "spills", "tile", "thread", "buffers", "depth",
)  # fmt: skip
"""What they are of."""
WIDTH_BYTES: Final = 16
EACH: Final = 16
EACH_SUM: Final = 128
"""Elements a thread, and sums of a product, that kernels do well with as a rule."""
BUFFERS: Final = 3
DEPTH_BYTES: Final = 128
"""Of a row of a product's operand in a trip of a loop: what shared memory is swizzled by, at most."""


def parts(launches: Sequence[LaunchFacts], target: Target, input_bytes: int | None = None) -> tuple[float, ...]:
    """The parts of a call: of its heaviest launch, the one with the largest grid times tile, where that multiplies
    matrices; else of all that it launches.

    Args:
        launches: of the call.
        target: what they are compiled for.
        input_bytes: of the call's largest tensor; None: unknown.
    """
    if not launches:
        return (0.0,) * len(PARTS)
    one = max(launches, key=_weight)
    found = _shared(one) | (_multiplying(one, launches, target) if one.dots else _moving(launches, target, input_bytes))
    return tuple(found.get(name, 0.0) for name in PARTS)


def _shared(one: LaunchFacts) -> dict[str, float]:
    widest = max((*one.load_widths_bytes, *one.store_widths_bytes), default=WIDTH_BYTES)
    return {
        "narrow": (0.3 if one.dots else 0.1) * math.log2(WIDTH_BYTES / min(widest, WIDTH_BYTES)),
        "spills": 0.1 * math.log2(1 + (one.spill_bytes or 0) / 8),
    }


def _multiplying(one: LaunchFacts, launches: Sequence[LaunchFacts], target: Target) -> dict[str, float]:
    dots = [dot for dot in one.dots if dot.in_loop] or one.dots
    reuse = max(dot.m * dot.n / (dot.m + dot.n) for dot in dots)
    sums = max(dot.m * dot.n for dot in dots)
    sms = target.gpu.sm_count if target.gpu is not None else SM_COUNT
    return {
        "unfilled": math.log(max(1.0, sms / max(math.prod(one.grid), 1))),
        "tail": _tail(one),
        "tensor": (2 - tensor_rank(launches)) * 0.6,
        "copies": 0.5 if one.loops and not one.pipeline_buffers else 0.0,
        "tile": 0.6 * math.log(max(1.0, 64.0 / reuse)),
        "thread": 0.05 * abs(math.log2(sums / (one.num_warps * target.limits.warp_threads) / EACH_SUM)),
        "buffers": 0.05 * max(0, BUFFERS - one.pipeline_buffers) if one.loops else 0.0,
        "depth": 0.12 * math.log2(max(1.0, DEPTH_BYTES / max(map(_depth_bytes, dots)))) if one.loops else 0.0,
    }


def _depth_bytes(dot: Dot) -> float:
    """Of what a product sums over in a trip."""
    bits = re.search(r"\d+", dot.a_dtype)
    return dot.k * (int(bits[0]) if bits is not None else 16) / 8


def _moving(launches: Sequence[LaunchFacts], target: Target, input_bytes: int | None) -> dict[str, float]:
    times = [stream(one, target, input_bytes) for one in launches]
    in_bytes, waiting, launching, again = (math.fsum(each[place] for each in times) for place in range(4))
    one = max(launches, key=_weight)
    each = (one.elements_per_program_max or 1) / (one.num_warps * target.limits.warp_threads)
    return {
        "bytes": math.log(in_bytes),
        "latency": math.log(waiting / in_bytes),
        "launch": math.log(launching / waiting),
        "reread": math.log(again / launching),
        "masked": 0.3 * max(time.masked for time in times),
        "idle": 0.3 * math.log(max(1.0, 1 / each)),
        # Full waves follow one another without a gap where blocks are short.
        "tail": 0.3 * _tail(one),
        "thread": 0.05 * abs(math.log2(each / EACH)),
    }


def _tail(one: LaunchFacts) -> float:
    return math.log1p((one.tail_lost_pct_at_most or 0.0) / 100)


def elements(one: LaunchFacts) -> int:
    """Of a program's largest tile, that of a product's sums among them."""
    sums = max((dot.m * dot.n for dot in one.dots), default=0)
    return max(1, sums, one.elements_per_program_max or 0)


def _weight(one: LaunchFacts) -> float:
    return math.prod(one.grid) * max(
        (dot.m * dot.n * dot.k for dot in one.dots), default=one.elements_per_program_max or 1
    )
