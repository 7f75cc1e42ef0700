"""What the tools share in one server process: settings, workers, the machine, the GPU's lease, artifacts."""

import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio

from ..profiling.hardware import ceilings
from ..profiling.hardware.catalog import UnknownTarget, find_gpu, resolve_target
from ..profiling.hardware.ceilings import Ceilings
from ..profiling.hardware.model import Gpu, Target
from ..profiling.ncu.command import find_ncu, find_reader
from ..sandbox import scratch
from ..sandbox.errors import Stopped, lacks_memory, rejected
from ..sandbox.executors.base import Device
from ..sandbox.executors.host import Host
from ..sandbox.executors.local import LocalExecutor
from ..sandbox.facts import Environment, TargetFacts
from ..sandbox.lease import Leases, Sharing, sharing
from ..sandbox.outcome import Kind, Problem
from ..sandbox.workers import TaskWorker, probe
from .artifacts import ArtifactStore
from .audits import Audits
from .background import Background
from .memo import Memo
from .settings import Settings

if TYPE_CHECKING:
    from .tools.profile_case import CaseProfile

GPU_DEVICE_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""One of these exists wherever an NVIDIA GPU can be used (the second under WSL)."""


EVALUATIONS_AT_ONCE = 4

R = TypeVar("R")


@dataclass(slots=True)
class Shared:
    """Who else was on the device before and after a measurement."""

    before: Sharing
    after: Sharing | None = None

    @property
    def note(self) -> str | None:
        """What a reader of the measurement must know; None where the device was ours alone."""
        looks = [look for look in (self.before, self.after) if look is not None]
        foreign = {process.pid: process.name or "unknown" for look in looks for process in look.foreign}
        if foreign:
            names = ", ".join(f"{name} (pid {pid})" for pid, name in sorted(foreign.items())[:5])
            return f"other processes used this GPU before or after the measurement, so times may be disturbed: {names}"
        unchecked = [look.reason for look in looks if not look.checked]
        return f"whether others use this GPU could not be checked: {unchecked[0]}" if unchecked else None


class Services:
    """State of one server process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.artifacts = ArtifactStore(settings.state_dir)
        self._host = Host(
            settings.python,
            settings.limits,
            allowed=(*settings.allow_read, *_profilers()),
            hidden=(Path(os.path.expanduser("~")),),
            # Where the state folder also holds what workers need, its artifacts are hidden all the same.
            masked=(settings.state_dir, self.artifacts.folder),
            require_sandbox=settings.require_sandbox,
        )
        self.executor = LocalExecutor(
            self._host, spares=settings.spares, gpu_spares=settings.gpu_spares, idle_s=settings.idle_s
        )
        """Where everything that runs foreign code gets its workers from."""
        self.audits = Audits()
        self.profiles: Memo[CaseProfile] = Memo()
        """What profile_ncu has measured."""
        self._leases = Leases()
        self._background = Background()
        self.evaluations = anyio.Semaphore(EVALUATIONS_AT_ONCE)
        """Entered by each evaluation: clients may call in parallel, and each takes two or three workers."""
        self._environment: Environment | None = None
        self._probing = anyio.Lock()

    async def __aenter__(self) -> "Services":
        await anyio.to_thread.run_sync(scratch.sweep)
        await self.executor.__aenter__()
        await self._background.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._background.__aexit__(*error)
        await self.executor.__aexit__(*error)

    async def answered(self, evaluate: Callable[[Callable[[R], None]], Awaitable[None]]) -> R:
        """What an evaluation calls its argument with; its workers end behind that, and until then it has the GPU.

        Raises:
            Stopped: ``unavailable``, where the server is being closed; and whatever the evaluation raises.
        """
        return await self._background.answered(evaluate)

    @contextlib.asynccontextmanager
    async def gpu_turn(self, *, alone: bool = True) -> AsyncGenerator[Device]:
        """A turn on the GPU: whoever measures has it for himself, also among several servers on this host.

        Args:
            alone: False for what measures nothing: it has the GPU beside others of its like, and beside no measurement.

        Raises:
            Stopped: ``unavailable``, where no device can be used.
        """
        device = await self._host.usable_device()
        async with self._leases.hold(device.uuid, alone=alone):
            yield device

    async def beside_others(self, evaluate: Callable[[bool], Awaitable[R]]) -> R:
        """Something that measures nothing, on the GPU beside others; alone where it runs out of memory beside them.

        Args:
            evaluate: takes whether to have the GPU alone, for its `gpu_turn`; called a second time where its own memory
                may not have been too much.

        Raises:
            Stopped: whatever it raises.
        """
        try:
            return await evaluate(False)
        except Stopped as stopped:
            if not lacks_memory(stopped) or not await self.has_gpu():
                raise
        return await evaluate(True)

    @contextlib.asynccontextmanager
    async def measuring(self, device: Device) -> AsyncGenerator["Shared"]:
        """While something is measured: no worker is being made ready, and who else uses the device is noted."""
        async with self.executor.quiet(device):
            shared = Shared(await self._sharing(device))
            yield shared
            if shared.after is None:
                await self.look_again(device, shared)

    async def look_again(self, device: Device, shared: "Shared") -> None:
        """Who else uses the device when it has been measured, for those who tell their result before all has ended."""
        shared.after = await self._sharing(device)

    async def _sharing(self, device: Device) -> Sharing:
        own = self.executor.own_processes()
        return await anyio.to_thread.run_sync(sharing, device.uuid, own)

    async def environment(self) -> Environment:
        """What the workers' interpreter has; looked up once, unless it had a problem."""
        async with self._probing:
            if self._environment is None or self._environment.problem is not None:
                self._environment = await probe(self.executor)
            return self._environment

    async def has_gpu(self) -> bool:
        """Whether workers can use a GPU. Where the driver has no device file, no worker is started to find out."""
        if not any(path.exists() for path in GPU_DEVICE_FILES):
            return False
        return (await self.environment()).gpu is not None

    async def require_gpu(self, stage: str) -> Environment:
        """The environment with its GPU.

        Raises:
            Stopped: ``unavailable``, with the remedy.
        """
        if not any(path.exists() for path in GPU_DEVICE_FILES):
            raise Stopped(
                Kind.UNAVAILABLE,
                Problem(
                    stage=stage,
                    message="this machine has no NVIDIA GPU (no /dev/nvidiactl)",
                    likely_fix="Run the server on a machine with an H100-class GPU. Here, compile_kernel tells what "
                    "the compiler did for any target, and run_correctness uses Triton's interpreter.",
                ),
            )
        environment = await self.environment()
        if environment.problem is not None:
            raise Stopped(Kind.UNAVAILABLE, environment.problem)
        if environment.gpu is None:
            raise Stopped(
                Kind.UNAVAILABLE,
                Problem(
                    stage=stage,
                    message=f"torch {environment.torch} of {environment.executable} sees no GPU; the driver is there",
                    likely_fix="Install a CUDA build of torch there, or point --python at one that has it.",
                ),
            )
        return environment

    async def target(self, name: str | None) -> Target:
        """The target asked for; by default this machine's GPU, else the setting.

        Raises:
            Stopped: ``rejected``, for a name that is no target.
        """
        if name is None:
            gpu = await self.gpu()
            name = gpu.name if gpu is not None else self.settings.target
        try:
            return resolve_target(name)
        except UnknownTarget as error:
            nearest = "" if error.nearest is None else f", such as {error.nearest!r}"
            fix = f"Give target as one of the allowed names{nearest}, or leave it out."
            raise rejected("target", str(error), fix=fix) from None

    async def ceilings(self, device: Device, tasks: TaskWorker, torch: str | None) -> Ceilings:
        """The highest rates that a GPU reaches: measured once, by a trusted worker, and kept in the state folder."""
        return await self.kept_ceilings(device) or await self.measure_ceilings(device, tasks, torch)

    async def kept_ceilings(self, device: Device) -> Ceilings | None:
        """What was measured last of a GPU."""
        return await anyio.to_thread.run_sync(ceilings.load, self._ceilings_folder, device.uuid)

    async def measure_ceilings(self, device: Device, tasks: TaskWorker, torch: str | None) -> Ceilings:
        """The same measured anew, and kept in place of what was."""
        facts = await tasks.ceilings()
        now = datetime.now(UTC)
        known = ceilings.known(facts, await self.gpu(), uuid=device.uuid, torch=torch, measured_at=now)
        # A state folder that can't be written, or a device that others used, is no reason to fail: next time.
        if known.undisturbed:
            with contextlib.suppress(OSError):
                await anyio.to_thread.run_sync(ceilings.store, self._ceilings_folder, known)
        return known

    @property
    def _ceilings_folder(self) -> Path:
        return self.settings.state_dir / "ceilings"

    async def gpu(self) -> Gpu | None:
        """The catalogue's entry of this machine's GPU."""
        if not await self.has_gpu():
            return None
        facts = (await self.environment()).gpu
        assert facts is not None
        return find_gpu(facts.name, facts.memory_bytes, facts.sm_count)


def _profilers() -> list[Path]:
    """Nsight Compute's folder: workers that read its reports need what lies in it."""
    ncu = find_ncu()
    reader = None if ncu is None else find_reader(ncu)
    return [] if reader is None else [reader]


def target_facts(target: Target) -> TargetFacts:
    """What a worker needs to know of a target."""
    return TargetFacts(
        name=target.name,
        vendor=target.limits.vendor,
        architecture=target.limits.architecture,
        warp_threads=target.limits.warp_threads,
        capability=target.capability,
        sm_count=target.gpu.sm_count if target.gpu is not None else None,
        shared_bytes_per_block=target.limits.shared_bytes_per_block,
        registers_per_sm=target.limits.registers_per_sm,
    )
