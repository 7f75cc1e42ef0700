"""What this machine's GPU reaches at best: measured anew when asked for, and kept in the state folder."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import anyio

from ..profiling.hardware import ceilings
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
        facts = await tasks.ceilings()
    now = datetime.now(UTC)
    found = ceilings.known(facts, await services.gpu(), uuid=device.uuid, torch=environment.torch, measured_at=now)
    if found.undisturbed:
        # A state folder that can't be written is no reason to fail.
        with contextlib.suppress(OSError):
            await anyio.to_thread.run_sync(ceilings.store, _folder(services), found)
    return Measurement(found, shared.note)


async def kept(services: Services) -> Ceilings | None:
    """What was measured last of the device that evaluations use."""
    usable = [device for device in await services.executor.devices() if device.quarantined is None]
    if not usable:
        return None
    return await anyio.to_thread.run_sync(ceilings.load, _folder(services), usable[0].uuid)


def _folder(services: Services) -> Path:
    return services.settings.state_dir / "ceilings"
