"""Warm workers on this machine: pools of sealed spares, forked from preloaders, each used once."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from .. import nvml
from ..errors import Stopped
from ..isolation import Seal
from ..pool import Gate, Pool
from ..process import WorkerProcess
from ..spares import Flavor, Preloader, start_preloader
from ..usage import tree
from .base import Device, Executor, Job
from .cold import closed, cold_worker
from .host import Host

IDLE_CHECKS: Final = 4
"""How often within the idle time pools are looked at."""
PROBE_S: Final = 10.0
"""How long the known kernel may take on a device under suspicion."""
GONE_S: Final = 5.0
"""How long the driver may go on listing a process that has ended."""
GONE_POLL_S: Final = 0.02


class LocalExecutor(Executor):
    """Keeps spares ready: ``spares`` for the CPU and for the interpreter, ``gpu_spares`` on a GPU."""

    def __init__(self, host: Host, *, spares: int = 2, gpu_spares: int = 4, idle_s: float = 600.0) -> None:
        self._host = host
        self.python = host.python
        self._sizes: dict[Flavor, int] = {"cpu": spares, "interpret": spares, "gpu": gpu_spares}
        self._idle_s = idle_s
        self._preloaders: dict[Flavor, Preloader] = {}
        self._starting: dict[Flavor, anyio.Lock] = {"cpu": anyio.Lock(), "interpret": anyio.Lock()}
        self._pools: dict[tuple[Flavor, str | None], Pool] = {}
        self._gates: dict[str, Gate] = {}
        self._jobs: set[WorkerProcess] = set()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> "LocalExecutor":
        self._around = await anyio.create_task_group().__aenter__()
        await self._around.start(self._run)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
        await self._around.__aexit__(None, None, None)

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        """What goes on in the background; apart, so that closing cancels nobody else."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await self._drop_idle()

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            for pool in self._pools.values():
                await pool.drain()
            for preloader in self._preloaders.values():
                await preloader.close()

    @contextlib.asynccontextmanager
    async def submit(self, job: Job) -> AsyncGenerator[WorkerProcess]:
        if self._tasks is None:
            raise closed()
        device = await self._host.usable_device() if job.on_gpu else None
        if device is not None and device.uuid in self._host.suspects:
            await self._examine(device)
        if job.wrapper:
            working = cold_worker(self._host, job, device)
        else:
            working = self._warm_worker(job, await self._pool(_flavor(job), device).take())
        worker, pids = None, set[int]()
        try:
            async with working as worker:
                self._jobs.add(worker)
                pids = tree(worker.handle.pid)
                yield worker
        finally:
            if worker is not None:
                self._jobs.discard(worker)
                if device is not None and worker.harmed:
                    self._host.suspects.add(device.uuid)
                    with anyio.CancelScope(shield=True):
                        await self._confirm_gone(device, pids)

    @contextlib.asynccontextmanager
    async def _warm_worker(self, job: Job, spare: WorkerProcess) -> AsyncGenerator[WorkerProcess]:
        async with spare.attended():
            await spare.begin(job.role, "cuda:0" if job.on_gpu else "cpu", job.target)
            yield spare

    async def environment(self) -> dict[str, Any]:
        preloader = await self._preloader("cpu")
        facts = preloader.environment
        try:
            device = await self._host.usable_device()
            return await self._pool("gpu", device).facts()
        except Stopped:
            return facts

    async def seal(self) -> Seal:
        return (await self._host.ground())[1]

    async def devices(self) -> list[Device]:
        return await self._host.devices()

    @contextlib.asynccontextmanager
    async def quiet(self, device: Device) -> AsyncGenerator[None]:
        async with self._gate(device.uuid).quiet():
            yield

    def own_processes(self) -> set[int]:
        """Process ids of everything that this executor has started."""
        roots = [preloader.pid for preloader in self._preloaders.values() if preloader.alive]
        roots += [worker.handle.pid for worker in self._jobs]
        return {pid for root in roots for pid in tree(root)}

    def _gate(self, uuid: str) -> Gate:
        return self._gates.setdefault(uuid, Gate())

    def _pool(self, flavor: Flavor, device: Device | None) -> Pool:
        key = flavor, device.uuid if device is not None else None
        if key not in self._pools:
            if self._tasks is None:
                raise closed()
            uuid = key[1]
            self._pools[key] = Pool(
                lambda: self._fork(flavor, uuid),
                size=self._sizes[flavor],
                gate=self._gate(uuid) if uuid is not None else None,
                tasks=self._tasks,
            )
        return self._pools[key]

    async def _fork(self, flavor: Flavor, device: str | None) -> WorkerProcess:
        preloader = await self._preloader("interpret" if flavor == "interpret" else "cpu")
        return await preloader.fork(flavor, device, self._host.limits)

    async def _preloader(self, flavor: Flavor) -> Preloader:
        async with self._starting[flavor]:
            running = self._preloaders.get(flavor)
            if running is not None and running.alive:
                return running
            if running is not None:
                await running.close()
            if self._tasks is None:
                raise closed()
            interpreter, seal = await self._host.ground()
            self._preloaders[flavor] = await start_preloader(interpreter, flavor, seal, self._host.limits, self._tasks)
            return self._preloaders[flavor]

    async def _examine(self, device: Device) -> None:
        """Run the known kernel on a device where a worker did harm; twice without success, and it is used no more.

        Raises:
            Stopped: ``unavailable``: the device is in quarantine.
        """
        pool = self._pool("gpu", device)
        problem = ""
        for _ in range(2):
            try:
                spare = await pool.take()
            except Stopped as stopped:
                problem = stopped.problem.message
                continue
            try:
                await spare.request("probe_device", timeout_s=PROBE_S)
            except Stopped as stopped:
                problem = stopped.problem.message
                await spare.discard()
                # Those that waited beside it may be broken as well.
                await pool.drain()
                continue
            except BaseException:
                await spare.discard()
                raise
            # It ran nothing but our own kernel.
            pool.give_back(spare)
            self._host.suspects.discard(device.uuid)
            return
        self._host.quarantine(device, f"the known kernel failed on it after a worker had died there: {problem}")
        await self._host.usable_device()

    async def _confirm_gone(self, device: Device, pids: set[int]) -> None:
        """Wait until the driver lists none of these processes on the device any more."""
        with anyio.move_on_after(GONE_S):
            while True:
                try:
                    listed = {process.pid for process in nvml.processes(device.uuid)}
                except nvml.NvmlUnavailable:
                    return
                if not pids & listed:
                    return
                await anyio.sleep(GONE_POLL_S)
        self._host.quarantine(device, f"process {min(pids)} was killed and still holds it")

    async def _drop_idle(self) -> None:
        """Pools that nobody has used for long are emptied, and preloaders without a use are ended."""
        while True:
            await anyio.sleep(self._idle_s / IDLE_CHECKS)
            idle_since = anyio.current_time() - self._idle_s
            idle = {key: pool.used_at <= idle_since and not pool.busy for key, pool in self._pools.items()}
            for key, is_idle in idle.items():
                if is_idle:
                    await self._pools[key].drain()
            if all(idle.values()) and not self._jobs:
                for flavor, preloader in list(self._preloaders.items()):
                    async with self._starting[flavor]:
                        await preloader.close()
                        self._preloaders.pop(flavor, None)


def _flavor(job: Job) -> Flavor:
    if job.on_gpu:
        return "gpu"
    return "interpret" if job.role == "interpret" else "cpu"
