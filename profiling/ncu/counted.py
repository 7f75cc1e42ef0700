"""What CUPTI counted in a worker, in the form of a report of Nsight Compute: so both are read alike."""

from math import prod
from typing import Final

from ...sandbox.profile_facts import CountedLaunch, ReportedLaunch, ReportedMetric
from ..compiler.occupancy import occupancy
from ..hardware.model import SmLimits
from . import metrics

UNITS: Final = {
    name: metric.unit
    for metric in vars(metrics).values()
    if isinstance(metric, metrics.Metric)
    for name in metric.names
}
"""Name -> base unit, of every quantity that a profile has."""

LIMITS: Final = {"shared_memory": "shared_mem"}
"""What limits occupancy, as Nsight Compute calls it where it has another word."""


def reported(launch: CountedLaunch, limits: SmLimits, sm_count: int | None) -> ReportedLaunch:
    """A launch with its counters, and what follows from its registers, shared memory and grid.

    Args:
        launch: as CUPTI told.
        limits: of one SM.
        sm_count: of the device; without it waves are left out.
    """
    shared_bytes = launch.static_shared_bytes + launch.dynamic_shared_bytes
    threads = prod(launch.block)
    warps = -(-threads // limits.warp_threads)
    held = occupancy(launch.registers, warps, shared_bytes, limits)
    values: dict[str, float] = {
        **dict(zip((metric.names[0] for metric in metrics.GRID), launch.grid, strict=True)),
        **dict(zip((metric.names[0] for metric in metrics.BLOCK), launch.block, strict=True)),
        metrics.REGISTERS.names[0]: launch.registers,
        metrics.SHARED_STATIC.names[0]: launch.static_shared_bytes,
        metrics.SHARED_DYNAMIC.names[0]: launch.dynamic_shared_bytes,
        metrics.THEORETICAL_OCCUPANCY.names[0]: held.theoretical_occupancy_pct,
        **{
            metrics.OCCUPANCY_LIMITS[LIMITS.get(limiter, limiter)].names[0]: blocks
            for limiter, blocks in held.by_limiter.items()
        },
        **launch.metrics,
    }
    if sm_count is not None and held.blocks_per_sm:
        values[metrics.WAVES.names[0]] = prod(launch.grid) / (held.blocks_per_sm * sm_count)
    return ReportedLaunch(
        kernel=launch.kernel,
        metrics={name: ReportedMetric(value=value, unit=UNITS.get(name, "")) for name, value in values.items()},
        rules=[],
        files=[],
    )
