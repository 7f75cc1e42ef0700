"""One launch of a kernel that was compiled for AMD's GPUs, in the same record as NVIDIA's."""

import re
from dataclasses import replace
from math import prod
from typing import Final

from ...sandbox.facts import CapturedLaunch, line
from ..hardware.model import Target
from . import amdgcn, ttgir
from .amdgcn import AmdFacts
from .launch import BY_COMPILER, OF_THE_FIT, LaunchFacts, absent_fit, absent_tiles, fit_grid
from .occupancy import occupancy

# "%x = amdg.buffer_load %a[%offsets] … : tensor<64x64xf16, #blocked>"; since Triton 3.9 "… -> tensor<…>". The dialect
# was called amdgpu once.
_BUFFER = re.compile(r"amdg(?:pu)?\.buffer_(load|store)$")
_TILE = re.compile(r"(?::|->) tensor<((?:\d{1,9}x){1,8})[a-z]+(\d{1,3})")

_NVIDIA_FACTS: Final = {
    "async_copies": "an NVIDIA fact: cp.async; amd.loads_to_lds is its like",
    "tma_copies": "an NVIDIA fact: TMA",
    "sync_loads_beside_dots": "an NVIDIA fact: here loads go to registers, ahead of the dot that needs them",
    "layout_conversions_in_loops": "an NVIDIA fact: which conversions pass shared memory is known for its layouts only",
    "acq_rel_atomics": "an NVIDIA fact: here instructions of their own order memory, amd.cache_fences",
}


def build(launch: CapturedLaunch, code: str, ir_text: str, target: Target) -> LaunchFacts:
    """Reads the compiler's output for one launch on one target.

    Args:
        launch: as the worker captured it.
        code: its amdgcn.
        ir_text: its TTGIR.
        target: one of AMD's.
    """
    facts, ir = amdgcn.parse(code), _with_buffer_operations(ir_text)
    usage, limits = facts.usage, target.limits
    shared_bytes = launch.shared_bytes + (usage.lds_bytes if usage else 0)
    by_compiler = None if facts.waves_per_simd is None else facts.waves_per_simd * limits.partitions_per_sm
    fit = (
        occupancy(usage.vgprs, launch.num_warps, shared_bytes, limits, warps_by_compiler=by_compiler) if usage else None
    )
    last = fit_grid(launch.grid, launch.num_ctas, fit.blocks_per_sm if fit else None, target)
    next_block = fit.next_block if fit else None
    largest, load, store = ir.largest_access(), ir.largest_by_threads("load"), ir.largest_by_threads("store")
    absent = {**_NVIDIA_FACTS, **absent_tiles(ir)}
    if launch.ptxas_log is not None:
        absent["hsaco"] = line(launch.ptxas_log)
    if fit is None:
        why = "the amdgcn does not hold this kernel's metadata"
        absent |= dict.fromkeys((*BY_COMPILER, *OF_THE_FIT, "amd"), why)
    else:
        absent |= absent_fit(fit, last, launch.grid, target)
    return LaunchFacts(
        kernel=launch.symbol,
        grid=launch.grid,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        num_ctas=launch.num_ctas,
        registers=usage.vgprs if usage else None,
        stack_bytes=usage.scratch_bytes if usage else None,
        spill_bytes=facts.spill_store_bytes if usage else None,
        shared_bytes=shared_bytes,
        theoretical_occupancy_pct=fit.theoretical_occupancy_pct if fit else None,
        blocks_per_sm=fit.blocks_per_sm if fit else None,
        occupancy_limiter=fit.limiter if fit else None,
        registers_for_next_block=next_block.registers_at_most if next_block else None,
        shared_bytes_for_next_block=next_block.shared_bytes_at_most if next_block else None,
        waves=last.waves if last else None,
        last_wave_filled_pct=last.tail.last_wave_filled_pct if last else None,
        tail_lost_pct_at_most=last.tail.lost_pct_at_most if last else None,
        mma="mfma" if facts.mfma else "none",
        dots=list(ir.dots),
        loops=ir.loops,
        async_copies=None,
        tma_copies=None,
        barriers=facts.barriers,
        warp_specialized=ir.warp_specialized,
        pipeline_buffers=ir.buffers,
        sync_loads_beside_dots=None,
        layout_conversions_in_loops=None,
        load_widths_bytes=list(facts.load_widths_bytes),
        store_widths_bytes=list(facts.store_widths_bytes),
        atomics=facts.atomics,
        acq_rel_atomics=None,
        elements_per_program_max=largest.elements if largest else None,
        element_bytes=largest.element_bytes if largest else None,
        load_tile_bytes=load.tile_bytes if load else None,
        store_tile_bytes=store.tile_bytes if store else None,
        code_hash=amdgcn.code_hash(code, launch.num_warps, launch.shared_bytes),
        ptxas_notes=[],
        amd=_own(facts, usage) if usage else None,
        absent=absent,
    )


def _own(facts: amdgcn.AmdgcnFacts, usage: amdgcn.AmdgcnUsage) -> AmdFacts:
    return AmdFacts(
        vgprs=usage.vgprs,
        agprs=usage.agprs,
        sgprs=usage.sgprs,
        vgpr_spills=usage.vgpr_spills,
        sgpr_spills=usage.sgpr_spills,
        mfma=facts.mfma,
        loads_to_lds=facts.loads_to_lds,
        cache_fences=facts.cache_fences,
    )


def _with_buffer_operations(text: str) -> ttgir.TtgirFacts:
    """The TTGIR's facts, with those loads and stores that AMD's dialect has operations of its own for."""
    ir = ttgir.parse(text)
    own = tuple(access for op in ttgir.operations(text) if (access := _buffer_access(op)))
    return replace(ir, accesses=ir.accesses + own)


def _buffer_access(op: ttgir.Operation) -> ttgir.Access | None:
    kind, tile = _BUFFER.match(op.name), _TILE.search(op.text)
    if kind is None or tile is None:
        return None
    shape = [int(size) for size in tile[1].rstrip("x").split("x")]
    return ttgir.Access(
        kind="load" if kind[1] == "load" else "store",
        elements=prod(shape),
        element_bytes=max(int(tile[2]) // 8, 1),
        rank=len(shape),
        is_async=False,
        by_tma=False,
        loop=op.loop.number if op.loop else None,
    )
