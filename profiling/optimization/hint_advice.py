"""What to do about something that got worse: from the facts of the launch before and after. Pure."""

from typing import NamedTuple

from ..compiler.launch import LaunchFacts
from .hint_context import Setting, kib, settings, tile_grew, warp_threads

GROUP_WARPS = 4
GROUP_ROWS = 64
WIDEST_BYTES = 16
NARROWEST_ASYNC_BYTES = 4
ACCUMULATORS_PER_THREAD = 128
"""Above this many, one thread's part of an accumulator leaves too few of its registers for the rest."""
MOST_WARPS = 16


class Advice(NamedTuple):
    """What to change next."""

    text: str
    """A clause."""
    undoes: Setting | None = None
    """The setting of the attempt that it takes back or changes; the others are to be kept."""
    finding: str | None = None
    """Id of the catalogue that it belongs to."""


def against_spills(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """Fewer registers a thread."""
    narrow = _narrowest(after)
    if narrow is not None and narrow < NARROWEST_ASYNC_BYTES and narrow < (_narrowest(before) or 0):
        return Advice(f"widen the {narrow}-byte loads first: an address for each element takes registers", None, "R1")
    dot = max(after.dots, key=lambda dot: dot.batch * dot.m * dot.n, default=None)
    threads = after.num_warps * warp_threads(after)
    each = 0 if dot is None else dot.batch * dot.m * dot.n // threads
    if each > ACCUMULATORS_PER_THREAD:
        return Advice(
            f"the accumulator takes {each} registers a thread: {_more_warps(after)} or halve the tile", "tiling", "R1"
        )
    return _back(before, after, "R1") or Advice(
        "shorten the life of large values, or loop over smaller chunks", None, "R1"
    )


def for_room(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """What admits the blocks that were lost."""
    by_registers = after.occupancy_limiter == "registers"
    if (back := _back(before, after, "R3" if by_registers else "P2")) is not None:
        return back
    if by_registers:
        return Advice(f"shorten the life of large values{_next_block(after)}", None, "R3")
    return Advice(f"use less shared memory a block: narrower tiles or fewer stages{_next_block(after)}", None, "P2")


def for_tensor_cores(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """The condition of warp-group products that the edit broke; else the parent's operands."""
    dot = max(after.dots, key=lambda dot: dot.batch * dot.m * dot.n * dot.k)
    if after.num_warps % GROUP_WARPS:
        return Advice(f"use num_warps=4 or 8: {after.num_warps} can't form a warp group", "num_warps", "T1")
    if dot.precision == "ieee":
        return Advice('use input_precision="tf32" where its error is allowed: tensor cores have no fp32', None, "T4")
    if dot.batch > 1:
        return Advice(f"put the batch of {dot.batch} into the grid or a loop over 2-D dots", "tiling", "T11")
    if dot.n % 16:
        return Advice(f"make the dot's N of {dot.n} a multiple of 16", "tiling", "T3")
    if dot.m < GROUP_ROWS:
        return Advice(f"raise the dot's M from {dot.m} to {GROUP_ROWS} or more, or swap the operands", "tiling", "T2")
    return Advice("give the dot operands of the parent's types, straight from loads")


def for_a_pipeline(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """What keeps loads from being copied ahead."""
    looped = [dot for dot in after.dots if dot.in_loop]
    if after.num_stages == 1:
        more = before.num_stages if before.num_stages > 1 else 3
        return Advice(f"use num_stages={more}: with 1 nothing is loaded ahead", "num_stages", "P1")
    if looped and all(dot.in_while for dot in looped):
        return Advice("write the while loop as `for _ in range(n)`", None, "P3")
    narrow = _narrowest(after)
    if narrow is not None and narrow < NARROWEST_ASYNC_BYTES:
        return Advice(
            f"restore the alignment of the {narrow}-byte loads: asynchronous copies take 4 or more", None, "P8"
        )
    return Advice("take the load out of run-time conditions, static_range and hand-written prefetches; other=0")


def for_wide_accesses(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """What keeps a thread from moving 16 bytes at once."""
    elements, size = after.elements_per_program_max, after.element_bytes
    threads = after.num_warps * warp_threads(after)
    if elements is not None and size is not None and elements * size < threads * WIDEST_BYTES:
        fewer = elements * size // (warp_threads(after) * WIDEST_BYTES)
        warps = f", or num_warps={fewer}" if 0 < fewer < after.num_warps and fewer & (fewer - 1) == 0 else ""
        return Advice(
            f"give a program at least {threads * WIDEST_BYTES // size} elements for {after.num_warps} warps{warps}",
            "tiling", "V6",
        )  # fmt: skip
    return Advice(
        "a stride, offset or mask limit lost its divisibility by 16: round it in the kernel, or leave full blocks "
        "unmasked", None, "V2",
    )  # fmt: skip


def for_a_full_grid(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """More programs."""
    return Advice("make the tile smaller, or split the reduced axis over programs", "tiling", "G1")


def against_a_tail(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """Waves that come out even."""
    return Advice("choose a tile whose blocks fill whole waves, or let programs loop over tiles", "tiling", "G2")


def against_conversions(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """The operand where it is wanted."""
    return Advice(
        "compute the value in the layout that its dot or store takes, or change it after the loop", None, "L1"
    )


def against_ordered_atomics(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """Relaxed ones."""
    return Advice('use sem="relaxed" where the atomic publishes no other data', None, "A1")


def against_atomics(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """Sums within a program first."""
    return Advice("reduce within the program first, and add once", None, "A2")


def against_barriers(before: LaunchFacts, after: LaunchFacts) -> Advice:
    """Fewer meetings."""
    if not after.loops:
        return Advice("reduce over fewer warps, or several values in one reduction")
    return Advice("reduce once after the loop rather than in each step, or use fewer warps")


def _back(before: LaunchFacts, after: LaunchFacts, finding: str) -> Advice | None:
    """The setting that took the room; None where none of them did."""
    # With fewer than two stages nothing is loaded ahead.
    stages = max(before.num_stages, 2)
    if after.num_stages > stages:
        return Advice(f"cut stages to {stages}{_next_block(after)}", "num_stages", finding)
    if after.num_warps < before.num_warps:
        return Advice(f"go back to num_warps={before.num_warps}{_next_block(after)}", "num_warps", finding)
    if tile_grew(before, after):
        return Advice(f"{_more_warps(after)} for this tile, or halve it{_next_block(after)}", "tiling", finding)
    if "num_warps" in settings(before, after) and after.occupancy_limiter == "warps":
        return Advice(f"go back to num_warps={before.num_warps}", "num_warps", finding)
    return None


def _more_warps(facts: LaunchFacts) -> str:
    return f"use num_warps={2 * facts.num_warps}" if 2 * facts.num_warps <= MOST_WARPS else "use fewer stages"


def _next_block(facts: LaunchFacts) -> str:
    """What admits one more block, by what limits them."""
    if facts.occupancy_limiter == "registers" and facts.registers_for_next_block is not None:
        return f" (the next block fits at {facts.registers_for_next_block} registers)"
    if facts.occupancy_limiter == "shared_memory" and facts.shared_bytes_for_next_block is not None:
        return f" (the next block fits at {kib(facts.shared_bytes_for_next_block)})"
    return ""


def _narrowest(facts: LaunchFacts) -> int | None:
    return min(facts.load_widths_bytes, default=None)
