"""How long a launch without matrix products should take: memory's rate, its latency, and that of launching blocks.

A roofline with Little's law: what an SM has on its way is limited by the blocks that it holds, and each of them waits
for its loads trip by trip. The constants were fitted by hand to every point of `examples/sin` and `examples/softmax` on
an H200: of these 71 variants, whose times span a factor of 20, half are within 0.2 of what is measured, as log(time),
and nine tenths within 0.8 (sin) and 0.3 (softmax). They are of that GPU and of those kernels, so they only say which
variants to measure first; the weight of each part is learned anew.
"""

import math
from typing import Final, NamedTuple

from ..compiler.launch import LaunchFacts
from ..hardware.model import Target

SM_COUNT: Final = 132
BYTES_PER_S: Final = 3.35e12
"""Of a target that names no product: an H100's."""
REACHED: Final = 0.92
"""Of the data sheet's rate, by a kernel that only copies."""
BLOCK_US: Final = 0.8
"""From a block's launch through one load and one store to its end."""
TRIP_US: Final = 0.35
"""A trip of a loop waits for its load, from L2 as often as not, and for the block's warps."""
ELEMENT_US: Final = 0.01
"""Of issuing what a thread does to one element: some eight instructions of a warp that has few others beside it."""
BLOCKS_PER_US: Final = 1770.0
"""Of the whole GPU: about one a clock, however small they are."""
L2_BYTES_PER_S: Final = 11e12
"""At which what no longer fits into L1 comes again; half of it is found there all the same."""
LONG: Final = 4096
"""Elements of a row, where the inputs are not known."""


class Stream(NamedTuple):
    """Times of a launch in microseconds, each with one more thing that takes time than the one before."""

    bytes_us: float
    """All that is read and written, at memory's rate."""
    latency_us: float
    """With blocks waiting for it."""
    launch_us: float
    """With blocks being launched."""
    reread_us: float
    """With what is read again by the next loop when L1 has lost it."""
    masked: float
    """log2 of the tile's length over that of what it is to hold; 0 where it is filled."""


def stream(one: LaunchFacts, target: Target, input_bytes: int | None) -> Stream:
    """What is to be expected of a launch.

    Args:
        one: the launch.
        target: what it is compiled for.
        input_bytes: of the call's largest tensor: what is larger than all tiles together is gone through in loops;
            None: unknown.
    """
    gpu, threads = target.gpu, one.num_warps * target.limits.warp_threads
    sms = gpu.sm_count if gpu is not None else SM_COUNT
    rate = REACHED * ((gpu.memory_bytes_per_s if gpu is not None else None) or BYTES_PER_S) / 1e6
    programs = max(1, math.prod(one.grid))
    elements = one.elements_per_program_max or threads
    read = one.load_tile_bytes or elements * (one.element_bytes or 4)
    # Of each loop.
    exact = 1.0
    if one.loops:
        exact = max(1.0, LONG / elements) if input_bytes is None else input_bytes / (programs * read)
    trips = max(1, math.ceil(exact - 1e-9))
    loops = max(1, one.loops)
    resident = max(1, min(one.blocks_per_sm or 1, math.ceil(programs / sms)))
    per_block = BLOCK_US + trips * loops * max(1.0, elements / threads) * ELEMENT_US
    if one.loops:
        per_block += trips * loops * TRIP_US / max(1, one.pipeline_buffers)
    in_bytes = programs * (read + (one.store_tile_bytes or 0)) * exact / rate
    waiting = math.hypot(in_bytes, max(1.0, programs / (sms * resident)) * per_block)
    launching = max(waiting, programs / BLOCKS_PER_US)
    again, kept = 0.0, target.limits.shared_bytes_per_sm - resident * one.shared_bytes
    if one.loops > 1 and resident * exact * read > kept:
        again = (one.loops - 1) * programs * read * exact / (L2_BYTES_PER_S / 1e6)
    return Stream(in_bytes, waiting, launching, launching + again, math.log2(max(1.0, 1 / exact)))
