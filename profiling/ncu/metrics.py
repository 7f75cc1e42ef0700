"""The counters that this package reads from Nsight Compute: names, meanings, units.

Every name was seen in a report of ncu 2025.3.1 on GH100 or is accepted by the counter library for that
chip. Names that look right often don't exist (there is no ``sm__cycles_elapsed`` in a section report of that
version, only ``gpc__cycles_elapsed``), so a quantity may list several names: the first one present counts.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity and the counters that can give it."""

    names: tuple[str, ...]
    """ncu names, preferred first."""
    meaning: str
    unit: str
    """The unit ncu prints with ``--print-units base``; empty for pure numbers."""


DURATION: Final = Metric(("gpu__time_duration.sum",), "GPU time of the launch", "ns")
CYCLES: Final = Metric(
    ("sm__cycles_elapsed.max", "gpc__cycles_elapsed.max"), "SM clock cycles from start to end", "cycle"
)
SM_CLOCK: Final = Metric(
    ("sm__cycles_elapsed.avg.per_second", "gpc__cycles_elapsed.avg.per_second"), "SM clock while it ran", "hz"
)

MEMORY: Final = Metric(
    ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",),
    "busiest part of the memory system (DRAM, L2, L1, shared memory) as a share of its peak",
    "%",
)
COMPUTE: Final = Metric(
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "busiest SM pipe as a share of its peak",
    "%",
)
DRAM: Final = Metric(
    (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "device memory throughput as a share of its peak",
    "%",
)
L1: Final = Metric(
    ("l1tex__throughput.avg.pct_of_peak_sustained_active",), "L1 and shared memory as a share of peak", "%"
)
L2: Final = Metric(("lts__throughput.avg.pct_of_peak_sustained_elapsed",), "L2 as a share of its peak", "%")

DRAM_BYTES: Final = Metric(("dram__bytes.sum",), "bytes moved to and from device memory", "byte")
DRAM_READ_BYTES: Final = Metric(("dram__bytes_read.sum",), "bytes read from device memory", "byte")
DRAM_WRITTEN_BYTES: Final = Metric(("dram__bytes_write.sum",), "bytes written to device memory", "byte")
DRAM_BYTES_PER_S: Final = Metric(("dram__bytes.sum.per_second",), "device memory traffic", "byte/s")

ACHIEVED_OCCUPANCY: Final = Metric(
    ("sm__warps_active.avg.pct_of_peak_sustained_active",), "resident warps as a share of the maximum", "%"
)
THEORETICAL_OCCUPANCY: Final = Metric(
    ("sm__maximum_warps_per_active_cycle_pct",), "warps that the launch's resources allow, as a share", "%"
)
OCCUPANCY_LIMITS: Final[dict[str, str]] = {
    "registers": "launch__occupancy_limit_registers",
    "shared_mem": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}
"""Resource -> how many blocks fit on one SM by that resource alone."""

REGISTERS: Final = Metric(("launch__registers_per_thread",), "registers a thread", "register/thread")
SHARED_STATIC: Final = Metric(("launch__shared_mem_per_block_static",), "shared, static", "byte/block")
SHARED_DYNAMIC: Final = Metric(("launch__shared_mem_per_block_dynamic",), "shared, dynamic", "byte/block")
WAVES: Final = Metric(("launch__waves_per_multiprocessor",), "grid size over the blocks that are resident at once", "")
WARP_LATENCY: Final = Metric(
    ("smsp__average_warp_latency_per_inst_issued.ratio",),
    "time between two instructions of a warp",
    "cycle",
)

SECTIONS: Final = ("SpeedOfLight", "LaunchStats", "Occupancy", "WarpStateStats", "SchedulerStats")
"""What every field of `LaunchProfile` comes from; about 20 passes."""

FIRST_LOOK: Final = (
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.max",
    "sm__cycles_active.avg",
    "sm__cycles_active.max",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "smsp__issue_active.avg.per_cycle_active",
    "smsp__warps_active.avg.per_cycle_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "lts__t_sectors.sum",
    "lts__t_bytes.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sector_hit_rate.pct",
    "smsp__average_warp_latency_per_inst_issued.ratio",
)
"""What GH100 counts in a single pass: tells the memory roof, latency and a small grid apart."""

LAUNCH_FACTS: Final = (
    "launch__grid_size",
    "launch__block_size",
    "launch__grid_dim_x",
    "launch__grid_dim_y",
    "launch__grid_dim_z",
    "launch__block_dim_x",
    "launch__block_dim_y",
    "launch__block_dim_z",
    *REGISTERS.names,
    *SHARED_STATIC.names,
    *SHARED_DYNAMIC.names,
    *WAVES.names,
    *OCCUPANCY_LIMITS.values(),
    *THEORETICAL_OCCUPANCY.names,
)
"""Facts of the launch that cost no pass; add them to `FIRST_LOOK`."""


STALL_REASONS: Final[dict[str, str]] = {
    "long_scoreboard": "waits for data from global or local memory or L2",
    "short_scoreboard": "waits for shared memory or for the special-function unit",
    "barrier": "waits for the other warps of the block at a barrier",
    "gmma": "waits for a warpgroup matrix multiply; normal while the tensor cores are busy",
    "mio_throttle": "the queue for shared-memory and special instructions is full",
    "lg_throttle": "the queue for global and local memory instructions is full: many narrow accesses",
    "math_pipe_throttle": "the arithmetic pipe it needs is busy",
    "wait": "fixed latency of the previous instruction; little parallelism within the warp",
    "no_instruction": "waits for instruction fetch: long code, jumps, or a very short kernel",
    "membar": "waits for a memory fence",
    "not_selected": "ready, but another warp was issued: nothing wrong",
    "branch_resolving": "waits for a branch target",
    "drain": "waits for its stores at exit",
    "sleeping": "asleep in nanosleep",
    "tex_throttle": "the texture queue is full",
    "imc_miss": "waits for a constant that missed the cache: many kernel arguments or constants",
    "dispatch_stall": "the dispatcher held the instruction back",
    "misc": "another reason",
}
"""Short reason -> what a warp with that state is doing."""

STALL_PREFIX: Final = "smsp__average_warps_issue_stalled_"
STALL_SUFFIX: Final = "_per_issue_active.ratio"
ISSUING: Final = "selected"
"""The state of the warp that issues: part of the latency, not a stall."""


def stall_metric(reason: str) -> str:
    """The ncu name of the warps in stall `reason` per issued instruction."""
    return f"{STALL_PREFIX}{reason}{STALL_SUFFIX}"
