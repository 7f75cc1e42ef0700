"""Everything the compiler's output says about one launch, joined into one record."""

from dataclasses import dataclass
from math import prod
from typing import Final, Literal, NamedTuple

from ...sandbox.wire import Wire
from ..hardware.model import Target
from . import identity, ptx, ptxas, ttgir
from .amdgcn import AmdFacts
from .occupancy import Limiter, Occupancy, Tail, occupancy, tail, waves
from .ptx import Mma
from .ttgir import Dot

OF_THE_GRID: Final = ("waves", "last_wave_filled_pct", "tail_lost_pct_at_most")
"""Fields that need the target's number of SMs."""
_NEXT_BLOCK: Final = ("registers_for_next_block", "shared_bytes_for_next_block")
BY_COMPILER: Final = ("registers", "stack_bytes", "spill_bytes")
OF_THE_FIT: Final = (
    "theoretical_occupancy_pct",
    "blocks_per_sm",
    "occupancy_limiter",
    *OF_THE_GRID,
    *_NEXT_BLOCK,
)
"""Fields that need `BY_COMPILER`."""


@dataclass(frozen=True, slots=True)
class RawLaunch:
    """One launch as the worker captured and compiled it: nothing but its parameters and compiler output."""

    kernel: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    num_ctas: int
    shared_bytes: int
    """Dynamic shared memory of a block."""
    ptx: str
    ttgir: str
    ptxas_log: str | None
    """Output of `ptxas -v`, or None where it was not to be had."""


class LaunchFacts(Wire):
    """One launch of one compiled kernel. What could not be found out is null; `absent` says why.

    Of AMD's GPUs a warp is a wave of 64 threads, an SM a compute unit, shared memory LDS.
    """

    kernel: str
    grid: tuple[int, int, int]
    """Programs in x, y and z."""
    num_warps: int
    num_stages: int
    num_ctas: int
    registers: int | None
    """Per thread; on AMD vector registers."""
    stack_bytes: int | None
    """Local memory (on AMD scratch) per thread; sine and cosine need some without any spill."""
    spill_bytes: int | None
    """Bytes of registers that each thread has to park in local memory."""
    shared_bytes: int
    """Per block, static and dynamic, without the system's reserve."""
    theoretical_occupancy_pct: float | None
    blocks_per_sm: int | None
    occupancy_limiter: Limiter | None
    registers_for_next_block: int | None
    """Registers per thread at or below which one more block fits on an SM, shared memory permitting."""
    shared_bytes_for_next_block: int | None
    """Shared memory per block at or below which one more block fits on an SM, registers permitting."""
    waves: float | None
    """Blocks of the grid over blocks that the GPU holds at once."""
    last_wave_filled_pct: float | None
    """Blocks of the last wave, of those that the GPU holds at once; 100 where the waves come out even."""
    tail_lost_pct_at_most: float | None
    """Of the launch's time, what is idle in the last wave, if every block takes equally long."""
    mma: Mma | Literal["mfma"]
    """Tensor-core instructions: `wgmma` (Hopper warp groups), `mma` (warps), `tcgen05` (Blackwell), `mfma` (AMD) or
    `none`."""
    dots: list[Dot]
    """Matrix products of tiles, in order of appearance."""
    loops: int
    async_copies: int | None
    """`cp.async` instructions."""
    tma_copies: int | None
    """TMA instructions."""
    barriers: int
    """Instructions at which the threads of a block wait for one another: `bar.sync` and its like, or `s_barrier`."""
    warp_specialized: bool
    """Whether warps of a block run different code, such as one that loads and others that multiply."""
    pipeline_buffers: int
    """Copies of a tile kept in shared memory by the software pipeline; 0 without one."""
    sync_loads_beside_dots: int | None
    """Tile loads that wait for their data in the loop that holds a dot."""
    layout_conversions_in_loops: int | None
    load_widths_bytes: list[int]
    """Distinct bytes that one thread moves by one global load, widest first; 16 is the best."""
    store_widths_bytes: list[int]
    atomics: int
    acq_rel_atomics: int | None
    """Atomics that also order other memory accesses."""
    elements_per_program_max: int | None
    """Elements of the largest tile that one load or store of a program moves."""
    element_bytes: int | None
    """Size of one of those elements."""
    load_tile_bytes: int | None
    """Bytes of the largest tile that one load moves, TMA apart: it has no width per thread."""
    store_tile_bytes: int | None
    """The same for stores."""
    code_hash: str
    """Same for launches of the same code, whatever its names and comments."""
    ptxas_notes: list[str]
    amd: AmdFacts | None
    """What only code for AMD's GPUs has; null, and not in `absent`, for others'."""
    absent: dict[str, str]
    """Why a field is null, by field."""


def build(raw: RawLaunch, target: Target) -> LaunchFacts:
    """Reads the compiler's output for one launch on one target."""
    code = ptx.parse(raw.ptx)
    ir = ttgir.parse(raw.ttgir)
    kernel = code.entry or raw.kernel
    usage = ptxas.parse_log(raw.ptxas_log, kernel) if raw.ptxas_log is not None else None
    shared_bytes = raw.shared_bytes + (usage.static_shared_bytes if usage else 0)
    fit = occupancy(usage.registers, raw.num_warps, shared_bytes, target.limits) if usage else None
    last = fit_grid(raw.grid, raw.num_ctas, fit.blocks_per_sm if fit else None, target)
    largest = ir.largest_access()
    load = ir.largest_by_threads("load")
    store = ir.largest_by_threads("store")
    next_block = fit.next_block if fit else None
    return LaunchFacts(
        kernel=raw.kernel,
        grid=raw.grid,
        num_warps=raw.num_warps,
        num_stages=raw.num_stages,
        num_ctas=raw.num_ctas,
        registers=usage.registers if usage else None,
        stack_bytes=usage.stack_bytes if usage else None,
        spill_bytes=usage.spill_store_bytes if usage else None,
        shared_bytes=shared_bytes,
        theoretical_occupancy_pct=fit.theoretical_occupancy_pct if fit else None,
        blocks_per_sm=fit.blocks_per_sm if fit else None,
        occupancy_limiter=fit.limiter if fit else None,
        registers_for_next_block=next_block.registers_at_most if next_block else None,
        shared_bytes_for_next_block=next_block.shared_bytes_at_most if next_block else None,
        waves=last.waves if last else None,
        last_wave_filled_pct=last.tail.last_wave_filled_pct if last else None,
        tail_lost_pct_at_most=last.tail.lost_pct_at_most if last else None,
        mma=code.mma,
        dots=list(ir.dots),
        loops=ir.loops,
        async_copies=code.async_copies,
        tma_copies=code.tma_copies,
        barriers=_barriers(raw.ptx),
        warp_specialized=ir.warp_specialized,
        pipeline_buffers=ir.buffers,
        sync_loads_beside_dots=ir.sync_loads_beside_dots,
        layout_conversions_in_loops=ir.layout_conversions_in_loops,
        load_widths_bytes=list(code.load_widths_bytes),
        store_widths_bytes=list(code.store_widths_bytes),
        atomics=code.atomics,
        acq_rel_atomics=code.acq_rel_atomics,
        elements_per_program_max=largest.elements if largest else None,
        element_bytes=largest.element_bytes if largest else None,
        load_tile_bytes=load.tile_bytes if load else None,
        store_tile_bytes=store.tile_bytes if store else None,
        code_hash=identity.code_hash(raw.ptx, raw.num_warps, raw.shared_bytes),
        ptxas_notes=list(usage.notes) if usage else [],
        amd=None,
        absent={
            **(_absent_usage(raw) if fit is None else absent_fit(fit, last, raw.grid, target)),
            **absent_tiles(ir),
        },
    )


class Filled(NamedTuple):
    """How a grid fills the GPU."""

    waves: float
    tail: Tail


def with_grid(facts: LaunchFacts, grid: tuple[int, int, int], target: Target) -> LaunchFacts:
    """The facts of the same code on another grid."""
    last = fit_grid(grid, facts.num_ctas, facts.blocks_per_sm, target)
    absent = facts.absent
    if facts.blocks_per_sm is not None:
        absent = {field: why for field, why in absent.items() if field not in OF_THE_GRID}
        if last is None:
            absent |= dict.fromkeys(OF_THE_GRID, no_waves(grid, facts.blocks_per_sm, target))
    return facts.model_copy(
        update={
            "grid": grid,
            "waves": last.waves if last else None,
            "last_wave_filled_pct": last.tail.last_wave_filled_pct if last else None,
            "tail_lost_pct_at_most": last.tail.lost_pct_at_most if last else None,
            "absent": absent,
        }
    )


def fit_grid(grid: tuple[int, int, int], num_ctas: int, blocks_per_sm: int | None, target: Target) -> Filled | None:
    """How often a grid fills the target, and how much of its last wave; None where `no_waves` says why."""
    if blocks_per_sm is None or target.gpu is None:
        return None
    blocks, sms = prod(grid) * num_ctas, target.gpu.sm_count
    filled, last = waves(blocks, sms, blocks_per_sm), tail(blocks, sms, blocks_per_sm)
    return None if filled is None or last is None else Filled(round(filled, 3), last)


def _barriers(code: str) -> int:
    found = map(ptx.instruction, ptx.strip_debug(code).split(";"))
    return sum(
        each is not None and each.root in ("bar", "barrier") and not {"warp", "arrive"} & set(each.parts)
        for each in found
    )


def _absent_usage(raw: RawLaunch) -> dict[str, str]:
    why = "there is no ptxas log" if raw.ptxas_log is None else "the ptxas log does not hold this kernel"
    return {**dict.fromkeys(BY_COMPILER, why), **dict.fromkeys(OF_THE_FIT, f"needs the register count, and {why}")}


def absent_fit(fit: Occupancy, last: Filled | None, grid: tuple[int, int, int], target: Target) -> dict[str, str]:
    """Why fields are null although it is known how many blocks fit on an SM."""
    absent: dict[str, str] = {}
    if last is None:
        absent |= dict.fromkeys(OF_THE_GRID, no_waves(grid, fit.blocks_per_sm, target))
    if fit.next_block is None:
        absent |= dict.fromkeys(_NEXT_BLOCK, "no change of registers or shared memory admits another block")
    return absent


def no_waves(grid: tuple[int, int, int], blocks_per_sm: int, target: Target) -> str:
    """Why `fit_grid` has no answer."""
    if not blocks_per_sm:
        return "no block fits on an SM"
    if 0 in grid:
        return "the grid is empty"
    return f"target {target.name} is an architecture, not a GPU: its number of SMs is unknown"


def absent_tiles(ir: ttgir.TtgirFacts) -> dict[str, str]:
    """Why the fields of the largest tiles are null."""
    absent: dict[str, str] = {}
    if ir.largest_access() is None:
        why = "no load or store of a tile in the TTGIR"
        absent |= {"elements_per_program_max": why, "element_bytes": why}
    if ir.largest_by_threads("load") is None:
        absent["load_tile_bytes"] = "no load of a tile without TMA in the TTGIR"
    if ir.largest_by_threads("store") is None:
        absent["store_tile_bytes"] = "no store of a tile without TMA in the TTGIR"
    return absent
