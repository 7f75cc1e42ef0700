"""What the compiler's output alone already gives away: known inefficiencies, each with its evidence.

Every rule is one small function from facts to an observation or None. Nothing here was timed: a rule speaks of
what the code can't do, not of how much that costs. Rules stay silent where the same sight is harmless: one
or two blocks per SM on a warp-group kernel, stack without spills, layout changes outside loops.
"""

from collections.abc import Callable
from math import prod

from ...sandbox.wire import Wire
from ..hardware.model import SmLimits
from .launch import LaunchFacts
from .occupancy import WARP_THREADS
from .ttgir import Dot

WIDEST_ACCESS_BYTES = 16
LOW_OCCUPANCY_PCT = 25
_GROUP_WARPS = 4
_GROUP_M = 64
# An async copy moves 4, 8 or 16 bytes.
_NARROWEST_ASYNC_BYTES = 4
# Above this many, one thread's part of an fp32 accumulator leaves too few of its 255 registers for the rest.
_ACCUMULATORS_PER_THREAD = 128

# Tensor-core instructions that need a group of warps, by compute capability.
_GROUP_MMA = {90: "wgmma", 100: "tcgen05"}


class Observation(Wire):
    """One known inefficiency that the compiled code shows."""

    id: str
    """Catalogue id such as `V6`; a letter alone (`T`, `P`) where the family is clear and the entry is not."""
    title: str
    detail: str
    """The evidence, with its numbers."""
    suggestion: str
    """What to change."""


Rule = Callable[[LaunchFacts, SmLimits, int | None], Observation | None]


def observe(facts: LaunchFacts, limits: SmLimits, sm_count: int | None) -> list[Observation]:
    """Applies all rules.

    Args:
        facts: the launch.
        limits: of the SM it was compiled for.
        sm_count: SMs of the GPU, or None for a bare architecture.

    Returns:
        Observations, most important first: what keeps the launch from running, then causes before the
        symptoms that vanish with them.
    """
    found = (rule(facts, limits, sm_count) for rule in _RULES)
    return [observation for observation in found if observation]


def _too_much_shared_memory(facts: LaunchFacts, limits: SmLimits, _: int | None) -> Observation | None:
    limit = limits.shared_bytes_per_block
    if facts.shared_bytes <= limit:
        return None
    return Observation(
        id="P2",
        title="More shared memory than a block can have: the launch will fail",
        detail=f"{facts.shared_bytes} bytes a block, of at most {limit}; num_stages={facts.num_stages}.",
        suggestion="Lower num_stages, or make the tiles smaller.",
    )


def _narrow_accesses(facts: LaunchFacts, _limits: SmLimits, _: int | None) -> Observation | None:
    loads = _narrow_width(facts, facts.load_widths_bytes, facts.load_tile_bytes, WIDEST_ACCESS_BYTES)
    # A store shares its layout with the loads: half their width is normal where its elements are half as wide.
    stores = _narrow_width(facts, facts.store_widths_bytes, facts.store_tile_bytes, _NARROWEST_ASYNC_BYTES)
    narrow = [(kind, width) for kind, width in (("load", loads), ("store", stores)) if width is not None]
    if not narrow:
        return None
    scalar = any(width < _NARROWEST_ASYNC_BYTES or width == facts.element_bytes for _, width in narrow)
    return Observation(
        id="V2" if scalar else "V13",
        title=f"{' and '.join(f'{kind}s' for kind, _ in narrow).capitalize()} narrower than they could be",
        detail=" ".join(f"The widest {kind} moves {width} bytes a thread." for kind, width in narrow)
        + f" The tile has enough for {WIDEST_ACCESS_BYTES} bytes in every thread.",
        suggestion="The compiler could not prove alignment: a row stride, an offset or the limit in the mask is "
        "not known to be divisible by 16, or the fast dimension's stride is not the constant 1. Round the value "
        "in the kernel where it is true (`stride = (stride // 8) * 8`), make it tl.constexpr, pad the tensor, or "
        "give full blocks a path without mask. tl.multiple_of on a kernel argument has no effect.",
    )


def _narrow_width(facts: LaunchFacts, widths: list[int], tile_bytes: int | None, enough_bytes: int) -> int | None:
    """The widest access, where it is below `enough_bytes` and the tile is large enough for more."""
    if not widths or tile_bytes is None or tile_bytes < _full_width_bytes(facts):
        return None
    return widths[0] if widths[0] < enough_bytes else None


def _block_too_small(facts: LaunchFacts, _limits: SmLimits, sm_count: int | None) -> Observation | None:
    elements, element_bytes = facts.elements_per_program_max, facts.element_bytes
    if elements is None or element_bytes is None:
        return None
    tile_bytes, needed = elements * element_bytes, _full_width_bytes(facts)
    if tile_bytes >= needed:
        return None
    threads = facts.num_warps * WARP_THREADS
    idle = max(threads - elements, 0)
    whole_bytes = prod(facts.grid) * tile_bytes
    if not idle and not facts.loops and sm_count is not None and whole_bytes <= sm_count * needed:
        return None  # the whole launch is that small: starting it costs more than its accesses
    fewer_warps = tile_bytes // (WARP_THREADS * WIDEST_ACCESS_BYTES)
    widest = max(facts.load_widths_bytes + facts.store_widths_bytes, default=None)
    return Observation(
        id="V6",
        title="Block too small for its threads",
        detail=f"The largest tile of a program has {elements} elements of {element_bytes} bytes, {tile_bytes} bytes "
        f"for {threads} threads; {needed} bytes let every thread move {WIDEST_ACCESS_BYTES}."
        + (f" The widest access is {widest} bytes." if widest else "")
        + (f" {idle} of {threads} threads have no element of their own." if idle else ""),
        suggestion=f"Use a block of at least {needed // element_bytes} elements at num_warps={facts.num_warps}"
        + (f", or num_warps={fewer_warps} for this block." if 0 < fewer_warps < facts.num_warps else "."),
    )


def _dot_without_group_mma(facts: LaunchFacts, limits: SmLimits, _: int | None) -> Observation | None:
    wanted = _GROUP_MMA.get(limits.capability)
    dot = _largest_dot(facts)
    if wanted is None or dot is None or facts.mma in ("wgmma", "tcgen05") or dot.a_dtype == "f64":
        return None
    shape = f"{_describe(dot, facts)} instead of {wanted}"
    if facts.num_warps % _GROUP_WARPS:
        return Observation(
            id="T1",
            title=f"{facts.num_warps} warps can't form a warp group",
            detail=f"{shape}: it takes a multiple of {_GROUP_WARPS} warps.",
            suggestion="Use num_warps=4, or 8 with a tile of 128x256.",
        )
    if dot.precision == "ieee":
        return Observation(
            id="T4",
            title="fp32 dot with IEEE precision",
            detail=f"{shape}: tensor cores have no fp32.",
            suggestion='Where 1e-3 relative is enough, use input_precision="tf32"; else "tf32x3", or bf16 inputs.',
        )
    if dot.batch > 1:
        return Observation(
            id="T11",
            title="Batched dot",
            detail=f"{shape}: it has a batch of {dot.batch} in one operation.",
            suggestion="Put the batch into the grid, or into a loop over 2-D dots.",
        )
    if dot.n % 16:
        return Observation(
            id="T3",
            title=f"N of {dot.n} is not a multiple of 16",
            detail=f"{shape}.",
            suggestion="Pad N to a multiple of 16.",
        )
    if dot.m < _GROUP_M:
        return None  # _dot_with_small_m
    return Observation(
        id="T",
        title=f"Dot without {wanted}",
        detail=f"{shape}.",
        suggestion="Check the operands: fp16, bf16, fp8, int8 or tf32, K of at least 32 bytes, and for fp8 no "
        "max_num_imprecise_acc.",
    )


def _dot_with_small_m(facts: LaunchFacts, limits: SmLimits, _: int | None) -> Observation | None:
    wanted = _GROUP_MMA.get(limits.capability)
    dot = _largest_dot(facts)
    if wanted is None or dot is None or facts.mma in ("wgmma", "tcgen05"):
        return None
    if facts.num_warps % _GROUP_WARPS or dot.m >= _GROUP_M or dot.batch > 1 or dot.precision == "ieee":
        return None
    return Observation(
        id="T2",
        title=f"M of {dot.m} is below {_GROUP_M}",
        detail=f"{_describe(dot, facts)} instead of {wanted}, which takes at least {_GROUP_M} rows.",
        suggestion="Swap the operands so that the larger dimension is M (`tl.dot(b_T, a_T)`), or pad M. A kernel "
        "that is limited by memory, as in decoding, gains nothing from either.",
    )


def _loads_not_pipelined(facts: LaunchFacts, _limits: SmLimits, _: int | None) -> Observation | None:
    looped = [dot for dot in facts.dots if dot.in_loop]
    if not looped or not facts.sync_loads_beside_dots:
        return None
    count = facts.sync_loads_beside_dots
    waiting = f"{count} tile {'load waits' if count == 1 else 'loads wait'} for data in the loop with the dot"
    if facts.num_stages == 1:
        return Observation(
            id="P1",
            title="No software pipeline",
            detail=f"{waiting}: num_stages=1.",
            suggestion="Use num_stages=3 or 4, as far as shared memory goes.",
        )
    if all(dot.in_while for dot in looped):
        return Observation(
            id="P3",
            title="A while loop is never pipelined",
            detail=f"{waiting}, with num_stages={facts.num_stages}.",
            suggestion="Write it as `for _ in range(n)`.",
        )
    if facts.load_widths_bytes and facts.load_widths_bytes[-1] < _NARROWEST_ASYNC_BYTES:
        return Observation(
            id="P8",
            title="Loads too narrow for asynchronous copies",
            detail=f"{waiting}: {facts.load_widths_bytes[-1]}-byte accesses, where an asynchronous copy moves at "
            f"least {_NARROWEST_ASYNC_BYTES}. {facts.async_copies} asynchronous copies.",
            suggestion="Restore the alignment of that load's address and mask first (V1, V2), then compile again.",
        )
    return Observation(
        id="P",
        title="Loads in the dot's loop are not pipelined",
        detail=f"{waiting}, with num_stages={facts.num_stages}, {facts.async_copies} asynchronous copies and "
        f"{facts.tma_copies} TMA copies.",
        suggestion="Look for a load under a run-time `if`, a hand-written prefetch, a non-zero `other=`, or "
        "tl.static_range.",
    )


def _spills(facts: LaunchFacts, _limits: SmLimits, _: int | None) -> Observation | None:
    if not facts.spill_bytes:
        return None
    dot = _largest_dot(facts)
    accumulators = dot.m * dot.n * dot.batch // (facts.num_warps * WARP_THREADS) if dot else 0
    if facts.load_widths_bytes and facts.load_widths_bytes[-1] < _NARROWEST_ASYNC_BYTES:
        suggestion = (
            "Widen the loads first (V1, V2): an address for each element takes registers, and spills often vanish."
        )
    elif dot and accumulators > _ACCUMULATORS_PER_THREAD:
        suggestion = (
            f"The accumulator alone takes {accumulators} registers a thread: double num_warps or halve the tile."
        )
    else:
        suggestion = (
            "Give a thread less: a smaller tile, more warps, or a loop over chunks; shorten the life of large values."
        )
    serialized = next((note for note in facts.ptxas_notes if "C7511" in note), None)
    return Observation(
        id="R1",
        title="Registers spill to local memory",
        detail=f"{facts.spill_bytes} bytes a thread at {facts.registers} registers."
        + (f" ptxas: {serialized}" if serialized else ""),
        suggestion=suggestion,
    )


def _grid_too_small(facts: LaunchFacts, _limits: SmLimits, sm_count: int | None) -> Observation | None:
    blocks = prod(facts.grid) * facts.num_ctas
    if sm_count is None or blocks >= sm_count:
        return None
    return Observation(
        id="G1",
        title="Grid smaller than the GPU",
        detail=f"Blocks: {blocks}. SMs: {sm_count}, of which {sm_count - blocks} stay idle.",
        suggestion="Divide the work further: smaller tiles, or a split of the reduction (split-K, split-KV).",
    )


def _low_occupancy(facts: LaunchFacts, limits: SmLimits, _: int | None) -> Observation | None:
    occupancy_pct, blocks = facts.theoretical_occupancy_pct, facts.blocks_per_sm
    if occupancy_pct is None or not blocks or occupancy_pct >= LOW_OCCUPANCY_PCT:
        return None
    if facts.mma in ("wgmma", "tcgen05"):
        return None  # one or two blocks per SM are normal there
    by_registers = facts.occupancy_limiter == "registers"
    needed = facts.registers_for_next_block if by_registers else facts.shared_bytes_for_next_block
    now = f"{facts.registers} registers a thread" if by_registers else f"{facts.shared_bytes} bytes of shared memory"
    unit = "registers a thread" if by_registers else "bytes of shared memory a block"
    return Observation(
        id="R3" if by_registers else "P2",
        title=f"Few warps per SM, limited by {'registers' if by_registers else 'shared memory'}",
        detail=f"{blocks} {'block' if blocks == 1 else 'blocks'} of {facts.num_warps} warps per SM, "
        f"{occupancy_pct:.0f} % of {limits.warps_per_sm} warps, at {now}.",
        suggestion=(f"One more block fits at {needed} {unit} or less. " if needed is not None else "")
        + "It matters only if the kernel waits for memory: profile before changing it.",
    )


def _full_width_bytes(facts: LaunchFacts) -> int:
    """Bytes of a tile of which every thread can move 16 at once."""
    return facts.num_warps * WARP_THREADS * WIDEST_ACCESS_BYTES


def _describe(dot: Dot, facts: LaunchFacts) -> str:
    how = "runs without tensor cores" if facts.mma == "none" else f"compiled to {facts.mma}.sync"
    return f"The {dot.m}x{dot.n}x{dot.k} dot of {dot.a_dtype} and {dot.b_dtype} {how}"


def _largest_dot(facts: LaunchFacts) -> Dot | None:
    return max(facts.dots, key=lambda dot: dot.batch * dot.m * dot.n * dot.k, default=None)


_RULES: tuple[Rule, ...] = (
    _too_much_shared_memory,
    _narrow_accesses,
    _block_too_small,
    _dot_without_group_mma,
    _loads_not_pipelined,
    _spills,
    _grid_too_small,
    _dot_with_small_m,
    _low_occupancy,
)
