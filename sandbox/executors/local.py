"""Warm workers on this machine: pools of sealed spares, forked from preloaders, each used once."""

import contextlib
import functools
import signal
from collections.abc import AsyncGenerator
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from .. import nvml
from ..errors import Stopped, lacks_memory
from ..isolation import Seal
from ..outcome import Kind, Problem
from ..pool import Gate, Pool
from ..process import WorkerProcess
from ..spares import Flavor, Preloader, start_preloader
from ..usage import tree
from .base import Device, Executor, Job
from .cold import cold_worker, start_cold
from .host import Host
from .running import Running, closed

IDLE_CHECKS: Final = 4
"""How often within the idle time pools are looked at."""
PROFILERS: Final = 1
"""Workers kept ready under one profiler's command: each holds a CUDA context of about 0.5 GB, and takes about 8 s."""
REST_S: Final = 0.5
"""Between two measurements that follow each other there is less: ending one's workers takes 0.3 s on an H200."""
PROBE_S: Final = 10.0
"""How long the known kernel may take on a device under suspicion."""
GONE_S: Final = 5.0
"""How long the driver may go on listing a process that has ended."""
GONE_POLL_S: Final = 0.02
LOST: Final = Problem(
    stage="environment",
    message="the process that makes workers was killed from outside, and this evaluation with it",
    likely_fix="Call again: a new one is started. If it happens again, look whether memory ran out (dmesg).",
)


class LocalExecutor(Executor):
    """Keeps spares ready: ``spares`` for the CPU and for the interpreter, ``gpu_spares`` on a GPU."""

    def __init__(self, host: Host, *, spares: int = 2, gpu_spares: int = 6, idle_s: float = 600.0) -> None:
        self._host = host
        self.python = host.python
        self._sizes: dict[Flavor, int] = {"cpu": spares, "interpret": spares, "gpu": gpu_spares}
        self._idle_s = idle_s
        self._preloaders: dict[Flavor, Preloader] = {}
        self._starting: dict[Flavor, anyio.Lock] = {"cpu": anyio.Lock(), "interpret": anyio.Lock()}
        self._failed: dict[Flavor, tuple[float, Stopped]] = {}
        """When a preloader last failed to start, and why."""
        self._pools: dict[tuple[Flavor, str | None], Pool] = {}
        self._profilers: dict[tuple[tuple[str, ...], str], Pool] = {}
        """By command and device."""
        self._gates: dict[str, Gate] = {}
        self._examining = anyio.Lock()
        self._running = Running()
        self._used_at = 0.0
        self._tasks: TaskGroup | None = None
        self._ended = anyio.Event()

    async def __aenter__(self) -> "LocalExecutor":
        self._around = await anyio.create_task_group().__aenter__()
        try:
            await self._around.start(self._run)
        except BaseException as error:
            await self._around.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
        await self._around.__aexit__(None, None, None)

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        """What goes on in the background; apart, so that closing cancels nobody else."""
        try:
            async with anyio.create_task_group() as self._tasks:
                task_status.started()
                await self._drop_idle()
        finally:
            self._ended.set()

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, None
        self._running.close()
        if tasks is None:
            return
        tasks.cancel_scope.cancel()
        for preloader in self._preloaders.values():
            preloader.kill()
        with anyio.CancelScope(shield=True):
            # What is being made is let go of first: nothing may be added to a pool that has been emptied.
            await self._ended.wait()
            for pool in self._all_pools():
                await pool.close(closed())
            for preloader in self._preloaders.values():
                await preloader.close()

    @contextlib.asynccontextmanager
    async def submit(self, job: Job) -> AsyncGenerator[WorkerProcess]:
        with self._running.entered():
            self._used_at = anyio.current_time()
            device = await self._trusted_device() if job.on_gpu else None
            worker = None if job.cold else await self._warm_worker(job, device)
            if worker is not None:
                working = worker.attended()
            else:
                working = cold_worker(self._host, job, device, gate=functools.partial(self._opening, device))
            pids = set[int]()
            try:
                async with working as worker:
                    pids = tree(worker.handle.pid)
                    if device is not None:
                        worker.gpu_memory = functools.partial(_gpu_memory_bytes, device.uuid)
                    with self._running.working(worker):
                        yield worker
            except Stopped as stopped:
                killed = worker is not None and worker.handle.returncode == -signal.SIGKILL
                if killed and not job.cold and await self._lost_preloader(job):
                    raise Stopped(Kind.UNAVAILABLE, LOST) from stopped
                raise
            finally:
                self._used_at = anyio.current_time()
                if worker is not None and device is not None and worker.harmed:
                    self._host.suspects.add(device.uuid)
                    with anyio.CancelScope(shield=True):
                        await self._confirm_gone(device, pids)

    @contextlib.asynccontextmanager
    async def _opening(self, device: Device | None) -> AsyncGenerator[None]:
        """While a process opens a device that nobody measures on."""
        assert device is not None
        async with self._gate(device.uuid).making(urgent=lambda: True):
            yield

    async def _warm_worker(self, job: Job, device: Device | None) -> WorkerProcess:
        """A spare that has taken the job; where one dies before, which is nothing of the job's doing, the next one."""
        flavor = _flavor(job)
        if job.profiler:
            assert device is not None
            pool, most = self._profiler_pool(job, device), PROFILERS + 1
        else:
            pool, most = self._pool(flavor, device), self._sizes[flavor] + 1
        dead = 0
        while True:
            spare = await pool.take()
            try:
                await spare.begin(job.role, "cuda:0" if job.on_gpu else "cpu", job.target)
                return spare
            except Stopped as stopped:
                died = spare.handle.ended()
                await spare.discard()
                if device is not None:
                    self._host.suspects.add(device.uuid)
                dead += 1
                if not died or dead > most:
                    raise Stopped(Kind.UNAVAILABLE, stopped.problem) from stopped
            except BaseException:
                await spare.discard()
                raise

    async def _lost_preloader(self, job: Job) -> bool:
        """Whether a worker died because the process that made it was killed, which is nothing of the job's doing."""
        preloader = self._preloaders.get("interpret" if _flavor(job) == "interpret" else "cpu")
        return preloader is not None and await preloader.lost()

    async def environment(self) -> dict[str, Any]:
        with self._running.entered():
            self._used_at = anyio.current_time()
            facts = (await self._preloader("cpu")).environment
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

    async def settle(self) -> None:
        """Until every pool that is in use is full and nothing is being made.

        Raises:
            Stopped: ``unavailable``, where spares can't be made.
        """
        for pool in self._all_pools():
            await pool.filled()

    def own_processes(self) -> set[int]:
        """Process ids of everything that this executor has started."""
        roots = [preloader.pid for preloader in self._preloaders.values() if preloader.alive]
        roots += [pid for pool in self._profilers.values() for pid in pool.pids]
        return {pid for root in (*roots, *self._running.pids) for pid in tree(root)}

    def _all_pools(self) -> list[Pool]:
        return [*self._pools.values(), *self._profilers.values()]

    def _gate(self, uuid: str) -> Gate:
        return self._gates.setdefault(uuid, Gate(REST_S))

    def _pool(self, flavor: Flavor, device: Device | None) -> Pool:
        key = flavor, device.uuid if device is not None else None
        if self._tasks is None:
            raise closed()
        if key not in self._pools:
            uuid = key[1]
            self._pools[key] = Pool(
                lambda: self._fork(flavor, uuid),
                size=self._sizes[flavor],
                gate=self._gate(uuid) if uuid is not None else None,
                tasks=self._tasks,
            )
        return self._pools[key]

    def _profiler_pool(self, job: Job, device: Device) -> Pool:
        key = job.profiler, device.uuid
        if self._tasks is None:
            raise closed()
        if key not in self._profilers:
            self._profilers[key] = Pool(
                lambda: self._start_profiled(job, device),
                size=PROFILERS,
                gate=self._gate(device.uuid),
                tasks=self._tasks,
                finish=_warm_up,
            )
        return self._profilers[key]

    async def _start_profiled(self, job: Job, device: Device) -> WorkerProcess:
        """A worker under a profiler that has imported everything and not touched its device."""
        worker = await start_cold(self._host, job, device)
        try:
            await worker.hello()
        except BaseException:
            await worker.discard()
            raise
        return worker

    async def _fork(self, flavor: Flavor, device: str | None) -> WorkerProcess:
        needed: Flavor = "interpret" if flavor == "interpret" else "cpu"
        preloader = await self._preloader(needed)
        try:
            return await preloader.fork(flavor, device, self._host.limits)
        except Stopped:
            if not await preloader.lost():
                raise
        # Something outside has just killed it, the out-of-memory killer for example.
        return await (await self._preloader(needed)).fork(flavor, device, self._host.limits)

    async def _preloader(self, flavor: Flavor) -> Preloader:
        asked_at = anyio.current_time()
        async with self._starting[flavor]:
            running = self._preloaders.get(flavor)
            if running is not None and running.alive:
                return running
            if running is not None:
                await running.close()
            failed_at, failure = self._failed.get(flavor, (0.0, None))
            if failure is not None and failed_at > asked_at:
                # For all who waited for the same attempt; whoever asks later has it tried again.
                raise Stopped(failure.kind, failure.problem) from failure
            if self._tasks is None:
                raise closed()
            try:
                interpreter, seal = await self._host.ground()
                started = await start_preloader(interpreter, flavor, seal, self._host.limits, self._tasks)
            except Stopped as stopped:
                self._failed[flavor] = anyio.current_time(), stopped
                raise
            except OSError as error:
                problem = Problem(stage="environment", message=f"the worker can't be started: {error.strerror}")
                raise Stopped(Kind.UNAVAILABLE, problem) from error
            if self._running.closed:
                await started.close()
                raise closed()
            self._preloaders[flavor] = started
            return started

    async def _trusted_device(self) -> Device:
        """The first usable device, after a look at it where a worker did harm there.

        Raises:
            Stopped: ``unavailable``, where there is none.
        """
        while True:
            device = await self._host.usable_device()
            if device.uuid not in self._host.suspects:
                return device
            async with self._examining:
                if device.uuid in self._host.suspects:
                    await self._examine(device)

    async def _examine(self, device: Device) -> None:
        """Run the known kernel on a device where a worker did harm; twice without success, and it is used no more.

        Raises:
            Stopped: ``unavailable``, where the device is not to blame.
        """
        # Without a preloader nothing would be learnt about the device.
        await self._preloader("cpu")
        pool = self._pool("gpu", device)
        problem = ""
        for _ in range(2):
            try:
                spare = await pool.take()
            except Stopped as stopped:
                if lacks_memory(stopped):
                    # Others may have it: another time it will show.
                    raise
                problem = stopped.problem.message
                continue
            try:
                await spare.request("probe_device", timeout_s=PROBE_S)
            except Stopped as stopped:
                problem = stopped.problem.message
                await spare.discard()
                if lacks_memory(stopped):
                    raise Stopped(Kind.UNAVAILABLE, stopped.problem) from stopped
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
        self._host.suspects.discard(device.uuid)

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
            for pool in self._all_pools():
                if pool.used_at <= idle_since and not pool.busy:
                    await pool.drain()
            for flavor in list(self._preloaders):
                async with self._starting[flavor]:
                    # Looked at anew: all of this waits, and jobs come meanwhile.
                    if self._used_at <= idle_since and not self._running and self._empty():
                        await self._preloaders.pop(flavor).close()

    def _empty(self) -> bool:
        return not any(pool.ready or pool.busy for pool in self._all_pools())


async def _warm_up(worker: WorkerProcess) -> None:
    await worker.request("warm_up")


def _gpu_memory_bytes(uuid: str, pids: set[int]) -> int | None:
    try:
        listed = [process for process in nvml.processes(uuid) if process.pid in pids]
    except nvml.NvmlUnavailable:
        return None
    return sum(process.memory_bytes or 0 for process in listed)


def _flavor(job: Job) -> Flavor:
    if job.on_gpu:
        return "gpu"
    return "interpret" if job.role == "interpret" else "cpu"
