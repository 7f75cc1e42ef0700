"""Launch facts that no compiler made."""

from typing import Any

from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.compiler.ttgir import Dot


def launch(**changed: Any) -> LaunchFacts:
    """A launch of a kernel that moves 1,024 numbers with 128 threads, without a fault."""
    given: dict[str, Any] = {
        "kernel": "kernel", "grid": (4096, 1, 1), "num_warps": 4, "num_stages": 3, "num_ctas": 1, "registers": 32,
        "stack_bytes": 0, "spill_bytes": 0, "shared_bytes": 0, "theoretical_occupancy_pct": 100.0, "blocks_per_sm": 16,
        "occupancy_limiter": None, "registers_for_next_block": None, "shared_bytes_for_next_block": None, "waves": 2.0,
        "last_wave_filled_pct": 100.0, "tail_lost_pct_at_most": 0.0, "mma": "none", "dots": [], "loops": 0,
        "async_copies": 0, "tma_copies": 0, "barriers": 0, "warp_specialized": False, "pipeline_buffers": 0,
        "sync_loads_beside_dots": None, "layout_conversions_in_loops": None, "load_widths_bytes": [16],
        "store_widths_bytes": [16], "atomics": 0, "acq_rel_atomics": 0, "elements_per_program_max": 1024,
        "element_bytes": 4, "load_tile_bytes": 4096, "store_tile_bytes": 4096, "code_hash": "0", "ptxas_notes": [],
        "amd": None, "absent": {},
    }  # fmt: skip
    return LaunchFacts(**given | changed)


def dot(m: int = 64, n: int = 64, k: int = 32) -> Dot:
    return Dot(
        m=m, n=n, k=k, a_dtype="f16", b_dtype="f16", accumulator_dtype="f32", precision=None, in_loop=True,
        in_while=False,
    )  # fmt: skip
