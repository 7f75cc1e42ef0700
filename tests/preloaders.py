"""Preloaders that the servers of a test process have one after the other: each takes seconds to import torch."""

from typing import Any

import anyio
from anyio.abc import TaskGroup

from tritonforge.sandbox.isolation import Interpreter, Seal
from tritonforge.sandbox.limits import Limits, worker_environment
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.spares import Flavor, Preloader, start_preloader


class Lent:
    """A preloader as one executor has it: its end is that of the spares which were made for this executor."""

    def __init__(self, kept: Preloader) -> None:
        self._kept = kept
        self._made: list[WorkerProcess] = []
        self._closed = False

    @property
    def pid(self) -> int:
        return self._kept.pid

    @property
    def environment(self) -> dict[str, Any]:
        return self._kept.environment

    @property
    def alive(self) -> bool:
        return not self._closed and self._kept.alive

    async def lost(self) -> bool:
        return await self._kept.lost()

    async def fork(self, flavor: Flavor, device: str | None, limits: Limits) -> WorkerProcess:
        worker = await self._kept.fork(flavor, device, limits)
        self._made.append(worker)
        return worker

    def kill(self) -> None:
        self._closed = True
        for worker in self._made:
            worker.handle.kill()

    async def close(self) -> None:
        self.kill()


class SharedPreloaders:
    """Those that were started so far, by what they are and what can be seen inside."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._starting = anyio.Lock()
        self._kept: dict[object, Preloader] = {}

    async def start(
        self, interpreter: Interpreter, flavor: Flavor, seal: Seal, limits: Limits, tasks: TaskGroup
    ) -> Preloader | Lent:
        """Stands in for `start_preloader`."""
        if not seal.sealed:
            # It has a folder of its own among this process's temporary files, which a test may look through.
            return await start_preloader(interpreter, flavor, seal, limits, tasks)
        environment = worker_environment("/tmp", interpret=flavor == "interpret")
        inside = seal.wrap(seal.layout(interpreter, environment), [])
        key = flavor, interpreter, seal.become_nobody, *inside, *sorted(environment.items())
        async with self._starting:
            kept = self._kept.get(key)
            if kept is None or not kept.alive:
                if kept is not None:
                    await kept.close()
                kept = self._kept[key] = await start_preloader(interpreter, flavor, seal, limits, self._tasks)
            return Lent(kept)

    async def close(self) -> None:
        for kept in self._kept.values():
            await kept.close()
