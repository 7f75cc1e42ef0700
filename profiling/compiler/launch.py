"""Everything the compiler's output says about one launch, joined into one record."""

from dataclasses import dataclass
from math import prod

from ...sandbox.wire import Wire
from ..hardware.model import Target
from . import identity, ptx, ptxas, ttgir
from .occupancy import Limiter, Occupancy, occupancy, waves
from .ptx import Mma
from .ttgir import Dot


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
    """One launch of one compiled kernel. What could not be found out is null; `absent` says why."""

    kernel: str
    grid: tuple[int, int, int]
    """Programs in x, y and z."""
    num_warps: int
    num_stages: int
    num_ctas: int
    registers: int | None
    """Per thread."""
    stack_bytes: int | None
    """Local memory per thread; sine and cosine need some without any spill."""
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
    mma: Mma
    """Tensor-core instructions: `wgmma` (Hopper warp groups), `mma` (warps), `tcgen05` (Blackwell) or `none`."""
    dots: list[Dot]
    """Matrix products of tiles, in order of appearance."""
    loops: int
    async_copies: int
    """`cp.async` instructions."""
    tma_copies: int
    """TMA instructions."""
    pipeline_buffers: int
    """Copies of a tile kept in shared memory by the software pipeline; 0 without one."""
    sync_loads_beside_dots: int
    """Tile loads that wait for their data in the loop that holds a dot."""
    layout_conversions_in_loops: int
    load_widths_bytes: list[int]
    """Distinct bytes that one thread moves by one global load, widest first; 16 is the best."""
    store_widths_bytes: list[int]
    atomics: int
    acq_rel_atomics: int
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
    filled = _waves(raw, fit, target)
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
        waves=filled,
        mma=code.mma,
        dots=list(ir.dots),
        loops=ir.loops,
        async_copies=code.async_copies,
        tma_copies=code.tma_copies,
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
        absent={
            **_absent_usage(raw, usage, fit),
            **({} if fit is None or filled is not None else {"waves": _no_waves(fit, target)}),
            **_absent_tiles(ir),
        },
    )


def _waves(raw: RawLaunch, fit: Occupancy | None, target: Target) -> float | None:
    if fit is None or target.gpu is None:
        return None
    filled = waves(prod(raw.grid) * raw.num_ctas, target.gpu.sm_count, fit.blocks_per_sm)
    return None if filled is None else round(filled, 3)


def _absent_usage(raw: RawLaunch, usage: ptxas.PtxasUsage | None, fit: Occupancy | None) -> dict[str, str]:
    next_block = ("registers_for_next_block", "shared_bytes_for_next_block")
    if fit is None or usage is None:
        why = "there is no ptxas log" if raw.ptxas_log is None else "the ptxas log does not hold this kernel"
        derived = ("theoretical_occupancy_pct", "blocks_per_sm", "occupancy_limiter", "waves", *next_block)
        return {
            **dict.fromkeys(("registers", "stack_bytes", "spill_bytes"), why),
            **dict.fromkeys(derived, f"needs the register count, and {why}"),
        }
    if fit.next_block is None:
        return dict.fromkeys(next_block, "no change of registers or shared memory admits another block")
    return {}


def _no_waves(fit: Occupancy, target: Target) -> str:
    if not fit.fits:
        return "no block fits on an SM"
    return f"target {target.name} is an architecture, not a GPU: its number of SMs is unknown"


def _absent_tiles(ir: ttgir.TtgirFacts) -> dict[str, str]:
    absent: dict[str, str] = {}
    if ir.largest_access() is None:
        why = "no load or store of a tile in the TTGIR"
        absent |= {"elements_per_program_max": why, "element_bytes": why}
    if ir.largest_by_threads("load") is None:
        absent["load_tile_bytes"] = "no load of a tile without TMA in the TTGIR"
    if ir.largest_by_threads("store") is None:
        absent["store_tile_bytes"] = "no store of a tile without TMA in the TTGIR"
    return absent
