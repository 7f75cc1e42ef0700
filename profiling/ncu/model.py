"""What the profiler measured: one launch, what limited it, and why its warps waited."""

from typing import Literal

from ...sandbox.wire import Wire


class Stall(Wire):
    """One reason why warps did not issue."""

    reason: str
    """Short name, such as `long_scoreboard`."""
    pct: float
    """Share of the time between two instructions of a warp, in percent."""
    cycles: float | None
    """Cycles of that time. None where warps were sampled: only shares are known."""
    meaning: str
    """What a warp in that state waits for."""


class Pipe(Wire):
    """One pipe of the SM."""

    name: str
    """Such as `alu`, `fma`, `tensor`, `lsu`, `xu`."""
    pct: float
    """Its use while the SM was active, as a share of its peak."""


class LaunchProfile(Wire):
    """What the profiler measured for one launch of one kernel. None: see `absent`; never a stand-in zero."""

    kernel: str
    """Name of the kernel function."""
    duration_us: float | None
    """GPU time of the launch under the profiler, in microseconds."""
    sm_clock_hz: float | None
    """Clock of the SMs while it ran."""
    cycles: float | None
    """SM clock cycles from start to end."""
    memory_pct: float | None
    """Busiest part of the memory system, as a share of its peak."""
    compute_pct: float | None
    """Busiest SM pipe, as a share of its peak."""
    dram_pct: float | None
    """Device memory throughput, as a share of its peak."""
    l1_pct: float | None
    """L1 and shared memory throughput, as a share of peak."""
    l2_pct: float | None
    """L2 throughput, as a share of its peak."""
    dram_bytes: float | None
    """Bytes moved to and from device memory."""
    l1_hit_pct: float | None
    """Sectors found in L1. Data that is read once has none to find."""
    l2_hit_pct: float | None
    """Sectors found in L2; stores count as found."""
    flops: float | None
    """Operations done: fp32 and fp64 additions, products and twice the fused ones, by threads whose predicate was on,
    and what tensor cores did (int8 included). Special functions count nothing. `half_flops` is not in it."""
    tensor_flops: float | None
    """Operations of tensor cores alone; a matmul has 2 M N K."""
    half_flops: float | None
    """Operations of packed fp16 and bf16 instructions outside tensor cores, two lanes each. At most: compilers use
    the same instructions to convert (HADD2.F32) and to load constants (HFMA2.MMA), so fp32 kernels show some."""
    flops_per_dram_byte: float | None
    """Arithmetic intensity: `flops` over `dram_bytes`."""
    tensor_pct: float | None
    """Tensor pipe, as a share of its peak. Constants that HFMA2.MMA loads keep it busy too, at some 2 %."""
    mma: Literal["gmma", "hmma", "imma", "dmma", "none"] | None
    """Which matrix instructions ran: those of warpgroups on sm_90 (gmma), or the older ones of a warp."""
    issue_slot_pct: float | None
    """Cycles in which a scheduler issued an instruction."""
    eligible_warps: float | None
    """Warps of a scheduler that were ready to issue, on average; under 1 it often has none to choose."""
    load_sectors_per_request: float | None
    """32-byte sectors that one warp's global load asks L1 for: 4 for 4 bytes a thread side by side, 16 for 16."""
    store_sectors_per_request: float | None
    """The same of global stores."""
    load_bytes_per_sector: float | None
    """Bytes used of each sector by plain global loads, 32 at best. Loads through cp.async are not in it."""
    store_bytes_per_sector: float | None
    """The same of global stores."""
    needed_sectors_pct: float | None
    """Sectors that all global accesses would touch if their data lay side by side, over those they do touch."""
    bank_conflict_pct: float | None
    """Passes of shared memory that bank conflicts added, as a share of all; some 1 % is arbitration."""
    local_requests: float | None
    """Warp instructions on local memory: spilled registers, and arrays with an index known at run time only."""
    pipes: tuple[Pipe, ...]
    """The busiest five."""
    sm_imbalance: float | None
    """Active cycles of the busiest SM over the mean: 1 where work is spread evenly."""
    achieved_occupancy_pct: float | None
    """Resident warps, averaged over time, as a share of the SM's maximum."""
    theoretical_occupancy_pct: float | None
    """Resident warps that the launch's resources allow, as a share of the SM's maximum."""
    occupancy_limiter: str | None
    """The resource that fits the fewest blocks on an SM: registers, shared_mem, warps, blocks or barriers.
    Resources that tie are all named, as in `registers and shared_mem`: easing one alone gains nothing."""
    occupancy_limits: dict[str, int]
    """Resource -> blocks that fit on one SM by that resource alone."""
    registers: int | None
    """Registers a thread."""
    shared_bytes: int | None
    """Shared memory a block, static and dynamic, without what the driver reserves."""
    grid: tuple[int, int, int] | None
    """Blocks in x, y, z."""
    block: tuple[int, int, int] | None
    """Threads a block in x, y, z."""
    waves_per_sm: float | None
    """Blocks of the grid over the blocks that are resident at once."""
    stalls: tuple[Stall, ...]
    """The reasons that cost most, worst first; those under 1 % are left out."""
    stalls_from: Literal["counted", "sampled"] | None
    """Counters of every warp's state, or the states of the warps that a sampler met."""
    absent: dict[str, str]
    """Field -> why this report doesn't have it."""
