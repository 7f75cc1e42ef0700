"""What the profiler measured: one launch, why its warps waited, and what ncu's own rules found."""

from dataclasses import dataclass

from ...sandbox.wire import Wire


@dataclass(frozen=True, slots=True)
class RawLaunchMetrics:
    """One row of the raw page: all that ncu knows of one launch."""

    kernel: str
    """Function name as ncu shows it."""
    values: dict[str, float | str]
    """Column -> number, or the text where it isn't one (`no data`, `PolicySpread`)."""
    units: dict[str, str]
    """Column -> unit as printed; empty for pure numbers."""


class Stall(Wire):
    """One reason why warps did not issue."""

    reason: str
    """Short name, such as `long_scoreboard`."""
    pct: float
    """Share of the time between two instructions of a warp, in percent."""
    meaning: str
    """What a warp in that state waits for."""


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
    """The reasons that cost most, worst first; five at most."""
    absent: dict[str, str]
    """Field -> why this report doesn't have it."""


class Rule(Wire):
    """One finding of ncu's own rules."""

    launch: int | None
    """Index of the launch in the report."""
    kernel: str
    section: str
    name: str
    """The rule's identifier, such as `SOLBottleneck`."""
    type: str
    """`OPT` (something to improve), `WRN`, `INF`."""
    description: str
    speedup_type: str | None
    """`global` (of the kernel's time) or `local` (of the part that the rule is about)."""
    speedup_pct: float | None
    """ncu's own estimate of the gain."""
