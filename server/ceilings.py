"""What this machine's GPU reaches at best: measured anew when asked for, and kept in the state folder."""

from typing import NamedTuple

from ..profiling.hardware.ceilings import Ceilings
from ..sandbox.workers import task_worker
from .services import Services


class Measurement(NamedTuple):
    """Ceilings, and what a reader of them must know."""

    ceilings: Ceilings
    note: str | None
    """Who else used the GPU; null where nobody did."""


async def measure(services: Services) -> Measurement:
    """Measure all ceilings, alone on the GPU; kept in place of older ones unless others disturbed it.

    Raises:
        Stopped: ``unavailable``, with the remedy, where there is no GPU to measure.
    """
    environment = await services.require_gpu("environment")
    async with (
        services.gpu_turn() as device,
        services.measuring(device) as shared,
        task_worker(services.executor, on_gpu=True) as tasks,
    ):
        found = await services.measure_ceilings(device, tasks, environment.torch)
    return Measurement(found, shared.note)


async def kept(services: Services) -> Ceilings | None:
    """What was measured last of the device that evaluations use."""
    usable = [device for device in await services.executor.devices() if device.quarantined is None]
    if not usable:
        return None
    return await services.kept_ceilings(usable[0])
