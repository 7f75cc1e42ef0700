"""Spares without processes, each made when the test says so, and jobs that want them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.pool import Gate, Pool
from tritonforge.sandbox.process import ProcessHandle, WorkerProcess

TURNS = 100
PATIENCE_S = 30.0
"""What hangs fails after this; nothing takes nearly as long."""


async def everybody_waits() -> None:
    """Let all go on until they wait for the test; nothing here takes time, only turns."""
    for _ in range(TURNS):
        await checkpoint()


class FakeHandle(ProcessHandle):
    """A process that dies when the test says so."""

    def __init__(self) -> None:
        self.dead = False

    def ended(self) -> bool:
        return self.dead

    async def wait(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        self.dead = True

    async def release(self) -> bool:
        raise NotImplementedError


class FakeSpare(WorkerProcess):
    """A spare without a process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.handle = FakeHandle()
        self.facts: dict[str, Any] | Stopped = {"number": number}
        self.discarded = False

    async def hello(self) -> dict[str, Any]:
        if isinstance(self.facts, Stopped):
            raise self.facts
        return self.facts

    async def discard(self) -> None:
        self.handle.kill()
        self.discarded = True


class Maker:
    """Makes spares, at once or each when it is told to."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.made: list[FakeSpare] = []
        self.begun = 0
        self.failure: Stopped | None = None
        self._waiting: list[anyio.Event] = []

    async def __call__(self) -> WorkerProcess:
        self.begun += 1
        if not self.at_once:
            turn = anyio.Event()
            self._waiting.append(turn)
            await turn.wait()
        if self.failure is not None:
            raise self.failure
        self.made.append(FakeSpare(len(self.made)))
        return self.made[-1]

    async def finish(self, count: int = 1) -> None:
        """Let the oldest of those that are being made be ready, and all that follows from that happen."""
        for turn in self._waiting[:count]:
            turn.set()
        del self._waiting[:count]
        await everybody_waits()


class Takes:
    """Jobs that want a spare, and what each got."""

    def __init__(self, pool: Pool, tasks: TaskGroup) -> None:
        self._pool = pool
        self._tasks = tasks
        self.got: dict[str, FakeSpare | Stopped] = {}

    async def begin(self, *names: str) -> None:
        for name in names:
            self._tasks.start_soon(self._take, name)
            await everybody_waits()

    async def _take(self, name: str) -> None:
        try:
            self.got[name] = await take(self._pool)
        except Stopped as stopped:
            self.got[name] = stopped

    @property
    def numbers(self) -> dict[str, int]:
        return {name: got.number for name, got in self.got.items() if isinstance(got, FakeSpare)}

    @property
    def failed(self) -> list[str]:
        return [name for name, got in self.got.items() if isinstance(got, Stopped)]


async def take(pool: Pool) -> FakeSpare:
    with anyio.fail_after(PATIENCE_S):
        spare = await pool.take()
    assert isinstance(spare, FakeSpare)
    return spare


def refusal(words: str) -> Stopped:
    return Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message=words))


@asynccontextmanager
async def open_pool(maker: Maker, size: int = 2, gate: Gate | None = None) -> AsyncGenerator[tuple[Pool, Takes]]:
    async with anyio.create_task_group() as tasks:
        pool = Pool(maker, size=size, gate=gate, tasks=tasks)
        yield pool, Takes(pool, tasks)
        tasks.cancel_scope.cancel()
