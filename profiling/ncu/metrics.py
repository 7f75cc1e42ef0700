"""The counters that this package reads from Nsight Compute: names, meanings, units.

Every name was seen in a report of ncu 2025.3.1 on GH100 or is in its list of that chip's metrics. Names that look
right often don't exist, so a quantity may list several: the first one present counts.
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
    """The base unit, as a report names it; empty for pure numbers."""


DURATION: Final = Metric(("gpu__time_duration.sum",), "GPU time of the launch", "ns")
CYCLES: Final = Metric(
    ("sm__cycles_elapsed.max", "gpc__cycles_elapsed.max"), "SM clock cycles from start to end", "cycle"
)
CYCLES_AVERAGE: Final = Metric(
    ("sm__cycles_elapsed.avg", "gpc__cycles_elapsed.avg"), "SM clock cycles from start to end, mean of the SMs", "cycle"
)
CYCLES_ACTIVE_MAX: Final = Metric(("sm__cycles_active.max",), "cycles in which the busiest SM had a warp", "cycle")
CYCLES_ACTIVE: Final = Metric(("sm__cycles_active.avg",), "cycles in which an SM had a warp, mean of the SMs", "cycle")

MEMORY: Final = Metric(
    ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",),
    "busiest part of the memory system (DRAM, L2, L1, shared memory) as a share of its peak",
    "%",
)
COMPUTE: Final = Metric(
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed",), "busiest SM pipe as a share of its peak", "%"
)
DRAM: Final = Metric(
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
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
L1_HIT: Final = Metric(("l1tex__t_sector_hit_rate.pct",), "sectors found in L1", "%")
L2_HIT: Final = Metric(("lts__t_sector_hit_rate.pct",), "sectors found in L2", "%")

_GLOBAL: Final = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
LOAD_SECTORS: Final = Metric((_GLOBAL.format("sectors", "ld"),), "sectors of global loads", "sector")
LOAD_REQUESTS: Final = Metric((_GLOBAL.format("requests", "ld"),), "warp instructions that load global memory", "")
STORE_SECTORS: Final = Metric((_GLOBAL.format("sectors", "st"),), "sectors of global stores", "sector")
STORE_REQUESTS: Final = Metric((_GLOBAL.format("requests", "st"),), "warp instructions that store globally", "")
LOAD_BYTES_PER_SECTOR: Final = Metric(
    ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",), "bytes used of a loaded sector", "byte/sector"
)
STORE_BYTES_PER_SECTOR: Final = Metric(
    ("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",), "bytes used of a stored sector", "byte/sector"
)
GLOBAL_SECTORS: Final = Metric(
    ("memory_l2_theoretical_sectors_global",), "sectors that the addresses of global accesses touch", "sectors"
)
GLOBAL_SECTORS_NEEDED: Final = Metric(
    ("memory_l2_theoretical_sectors_global_ideal",), "sectors that would do if they lay side by side", "sectors"
)
SHARED_WAVEFRONTS: Final = Metric(
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",), "passes that accesses to shared memory take", ""
)
BANK_CONFLICTS: Final = Metric(
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",), "passes that bank conflicts in shared memory add", ""
)
LOCAL_LOADS: Final = Metric(("l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",), "loads from local memory", "")
LOCAL_STORES: Final = Metric(("l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",), "stores to local memory", "")

_THREADS: Final = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def _flops(letter: str, kind: str, lanes: int) -> tuple[tuple[Metric, int], ...]:
    """Each instruction with the floating-point operations of one thread that executes it."""
    return tuple(
        (Metric((_THREADS.format(letter + operation),), f"{kind} {what}, counted by thread", "inst"), lanes * each)
        for operation, what, each in (("add", "additions", 1), ("mul", "products", 1), ("fma", "fused", 2))
    )


FP32_FLOPS: Final = _flops("f", "fp32", 1)
FP64_FLOPS: Final = _flops("d", "fp64", 1)
HALF_FLOPS: Final = _flops("h", "packed fp16 or bf16", 2)
"""Weights as in NVIDIA's sections SpeedOfLight_RooflineChart and SpeedOfLight_Hierarchical*RooflineChart."""
TENSOR_FLOPS: Final = tuple(
    Metric((f"sm__ops_path_tensor_src_{source}.sum",), f"additions and products of tensor cores, {source}", "")
    for source in ("fp16", "bf16_dst_fp32", "tf32_dst_fp32", "fp64", "fp8", "int8")
)
"""As in the section SpeedOfLight_HierarchicalTensorRooflineChart. A matmul counts 2 M N K."""
TENSOR: Final = Metric(
    ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",), "tensor pipe as a share of its peak", "%"
)
_TENSOR_OP: Final = "sm__inst_executed_pipe_tensor_op_{}.sum"
GMMA: Final = Metric((_TENSOR_OP.format("gmma"),), "HGMMA, QGMMA, IGMMA, BGMMA", "inst")
HMMA: Final = Metric((_TENSOR_OP.format("hmma"),), "HMMA, HGMMA, QGMMA and HFMA2.MMA", "inst")
HFMA2: Final = Metric((_TENSOR_OP.format("hmma_type_hfma2"),), "HFMA2.MMA, no matrix product", "inst")
IMMA: Final = Metric((_TENSOR_OP.format("imma"),), "IMMA, IGMMA, BMMA, BGMMA", "inst")
DMMA: Final = Metric((_TENSOR_OP.format("dmma"),), "DMMA", "inst")

ISSUE: Final = Metric(("smsp__issue_active.avg.per_cycle_active",), "instructions a scheduler issues a cycle", "")
ELIGIBLE: Final = Metric(
    ("smsp__warps_eligible.avg.per_cycle_active",), "warps of a scheduler that are ready to issue", "warp"
)
PIPES: Final = {
    **{pipe: f"sm__pipe_{pipe}_cycles_active" for pipe in ("alu", "fma", "fp64", "tensor", "tma")},
    **{pipe: f"sm__inst_executed_pipe_{pipe}" for pipe in ("lsu", "xu", "uniform", "adu", "cbu", "tex")},
}
PIPE_METRICS: Final = {
    pipe: Metric((f"{base}.avg.pct_of_peak_sustained_active",), f"{pipe} pipe as a share of its peak", "%")
    for pipe, base in PIPES.items()
}
"""Pipe -> its use while the SM was active, as in the section ComputeWorkloadAnalysis."""

ACHIEVED_OCCUPANCY: Final = Metric(
    ("sm__warps_active.avg.pct_of_peak_sustained_active",), "resident warps as a share of the maximum", "%"
)
THEORETICAL_OCCUPANCY: Final = Metric(
    ("sm__maximum_warps_per_active_cycle_pct",), "warps that the launch's resources allow, as a share", "%"
)
OCCUPANCY_LIMITS: Final = {
    resource: Metric((f"launch__occupancy_limit_{resource}",), f"blocks that fit on an SM by {resource}", "block")
    for resource in ("registers", "shared_mem", "warps", "blocks", "barriers")
}
REGISTERS: Final = Metric(("launch__registers_per_thread",), "registers a thread", "register/thread")
SHARED_STATIC: Final = Metric(("launch__shared_mem_per_block_static",), "shared, static", "byte/block")
SHARED_DYNAMIC: Final = Metric(("launch__shared_mem_per_block_dynamic",), "shared, dynamic", "byte/block")
WAVES: Final = Metric(("launch__waves_per_multiprocessor",), "grid size over the blocks that are resident at once", "")
GRID: Final = tuple(Metric((f"launch__grid_dim_{axis}",), f"blocks in {axis}", "") for axis in "xyz")
BLOCK: Final = tuple(Metric((f"launch__block_dim_{axis}",), f"threads a block in {axis}", "block") for axis in "xyz")
"""ncu 2025.3.1 reports threads a block in the unit `block`."""

WARP_LATENCY: Final = Metric(
    ("smsp__average_warp_latency_per_inst_issued.ratio",), "time between two instructions of a warp", "cycle"
)
SAMPLES: Final = Metric(("smsp__pcsamp_sample_count",), "warps that the sampler looked at", "")
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
"""Short reason -> what a warp with that state is doing. The state `selected` issues, and is no stall."""
_SAMPLED_AS: Final = {"gmma": "warpgroup_arrive", "no_instruction": "no_instructions"}


def stall_metric(reason: str) -> str:
    """The ncu name of the warps in stall `reason` per issued instruction."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


def sampled_stall_metric(reason: str) -> str:
    """The ncu name of the samples that met a warp in stall `reason`; two reasons have another name there."""
    return f"smsp__pcsamp_warps_issue_stalled_{_SAMPLED_AS.get(reason, reason)}"


def _names(*metrics: Metric) -> tuple[str, ...]:
    return tuple(name for metric in metrics for name in metric.names)


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

SECOND_LOOK: Final = (
    "smsp__inst_executed.sum",
    *_names(GMMA, HMMA, HFMA2, IMMA, DMMA, TENSOR, L2_HIT),
    *_names(LOAD_REQUESTS, STORE_REQUESTS, LOCAL_LOADS, LOCAL_STORES),
)
"""Adds to `FIRST_LOOK` whether tensor cores work and how, and whether accesses are narrow or spill."""

TARGETED: Final = _names(
    *(metric for metric, _ in (*FP32_FLOPS, *FP64_FLOPS, *HALF_FLOPS)),
    *TENSOR_FLOPS,
    *(GMMA, HMMA, HFMA2, IMMA, DMMA),
    *(LOAD_SECTORS, LOAD_REQUESTS, STORE_SECTORS, STORE_REQUESTS, LOAD_BYTES_PER_SECTOR, STORE_BYTES_PER_SECTOR),
    *(SHARED_WAVEFRONTS, BANK_CONFLICTS, LOCAL_LOADS, LOCAL_STORES, DRAM_READ_BYTES, DRAM_WRITTEN_BYTES),
)
"""What sections don't hold, or only the costly ones: work done, kinds of tensor instructions, access patterns."""

LAUNCH_FACTS: Final = (
    "launch__grid_size",
    "launch__block_size",
    *_names(*GRID, *BLOCK, *OCCUPANCY_LIMITS.values()),
    *_names(REGISTERS, SHARED_STATIC, SHARED_DYNAMIC, WAVES, THEORETICAL_OCCUPANCY),
)
"""Facts of the launch that cost no pass; add them to `FIRST_LOOK`."""

WANTED: Final = (
    *FIRST_LOOK,
    *SECOND_LOOK,
    *TARGETED,
    *LAUNCH_FACTS,
    *_names(CYCLES, CYCLES_AVERAGE, CYCLES_ACTIVE, CYCLES_ACTIVE_MAX, MEMORY, COMPUTE, DRAM, L1, L2),
    *_names(DRAM_BYTES, DRAM_BYTES_PER_S, GLOBAL_SECTORS, GLOBAL_SECTORS_NEEDED, SAMPLES),
    "smsp__pcsamp_interval_cycles",
    "smsp__pcsamp_dropped_bytes",
    *_names(*PIPE_METRICS.values()),
    *(stall_metric(reason) for reason in STALL_REASONS),
    *(sampled_stall_metric(reason) for reason in STALL_REASONS),
)
"""All that a profile is made of; some names stand in it twice."""
