"""Executors whose workers do without torch, so that each test can have its own, and ways to watch what they start."""

import contextlib
import json
import os
import select
import sys
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from tests.sandbox.conftest import describe_task, open_descriptors
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor, Job
from tritonforge.sandbox.executors.cold import ColdExecutor
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.isolation import Interpreter, Seal
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.usage import tree
from tritonforge.sandbox.workers import KernelWorker

Ground = tuple[Interpreter, Seal]
"""The interpreter of workers, and how they are isolated."""
Variant = Literal["local sealed", "local unsealed", "cold sealed", "cold unsealed"]
VARIANTS: tuple[Variant, ...] = ("local sealed", "local unsealed", "cold sealed", "cold unsealed")
PATIENCE_S = 60.0
"""What hangs although it must not fails after this; nothing takes nearly as long."""
JOB = Job("cuda")
"""Runs a kernel file as it stands; without a GPU its tensors are on the CPU."""
RUNS = "def entry():\n    pass\n"


class KnownHost(Host):
    """A host that has been looked at before, by another of its kind."""

    def __init__(self, ground: Ground, limits: Limits | None = None) -> None:
        super().__init__(sys.executable, limits or Limits())
        self._known = ground

    async def ground(self) -> Ground:
        return self._known


async def look(variant: Variant) -> Ground:
    """This machine, for executors of this variant; skips where it allows none."""
    with pytest.MonkeyPatch.context() as patch:
        if variant.endswith("unsealed"):
            patch.setattr("tritonforge.sandbox.rehearsal.find_bwrap", lambda: None)
        interpreter, seal = await Host(sys.executable, Limits()).ground()
    if seal.sealed is variant.endswith("unsealed"):
        pytest.skip(f"this machine allows no sandbox: {seal.reason}")
    return interpreter, seal


def executor_of(variant: Variant, host: Host, **settings: Any) -> Executor:
    """An executor with one spare of a kind."""
    return LocalExecutor(host, **{"spares": 1, **settings}) if variant.startswith("local") else ColdExecutor(host)


async def run(worker: WorkerProcess, text: str) -> None:
    """Execute a kernel file."""
    await KernelWorker(worker).load(Source(text, "kernel.py", None), describe_task())


async def say(worker: WorkerProcess, text: str) -> Any:
    """What a kernel file told by `say(...)`, which may be anything that JSON can carry."""
    head = "import json\ndef say(what):\n    raise RuntimeError(json.dumps(what))\n"
    with pytest.raises(Stopped) as caught:
        await run(worker, head + text)
    return json.loads(caught.value.problem.message.removeprefix("RuntimeError: "))


@contextlib.asynccontextmanager
async def background() -> AsyncGenerator[TaskGroup]:
    """What goes on beside a test, and ends with it."""
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        finally:
            tasks.cancel_scope.cancel()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def itself(top: int, ground: Ground) -> int:
    """The preloader behind what was started: bubblewrap, and its first process inside, are around it."""
    for _ in range(2 if ground[1].sealed else 0):
        (top,) = children_of(top)
    return top


class Watched:
    """Processes that must end; they are held by descriptors, so their numbers can't become others'."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.descriptors: list[int] = []
        for pid in pids:
            # One that has ended by now is none to wait for.
            with contextlib.suppress(ProcessLookupError):
                self.descriptors.append(os.pidfd_open(pid))

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *error: object) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)

    async def end(self) -> None:
        """Wait until all have ended."""
        with anyio.fail_after(PATIENCE_S):
            for descriptor in self.descriptors:
                await anyio.wait_readable(descriptor)


def processes(worker: WorkerProcess) -> dict[int, int]:
    """The processes of a worker, as they are numbered inside, with a descriptor of each."""
    found: dict[int, int] = {}
    for pid in tree(worker.handle.pid):
        # It may be ending.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            found[int(fields["NSpid"].split()[-1])] = os.pidfd_open(pid)
    return found


def all_end(descriptors: dict[int, int]) -> bool:
    """Wait until the processes behind these descriptors have ended; False if one lives on."""
    try:
        return all(select.select([descriptor], [], [], 20)[0] for descriptor in descriptors.values())
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


async def descriptors_become(count: int) -> None:
    """Wait until no more are open than this; what is made in the background is let go of in its own time."""
    with anyio.fail_after(PATIENCE_S):
        while open_descriptors() > count:
            await anyio.lowlevel.checkpoint()


class CancelledAt(Generator[Any, Any, Any]):
    """Goes on with a coroutine, and cancels a scope when it has come to wait for the n-th time."""

    def __init__(self, work: Coroutine[Any, Any, Any], number: int, scope: anyio.CancelScope) -> None:
        self._work = work
        self._waits_left = number
        self._scope = scope

    @property
    def reached(self) -> bool:
        """Whether it came to that."""
        return self._waits_left <= 0

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any, /) -> Any:
        return self._counted(self._work.send(value))

    def throw(self, typ: Any, val: Any = None, tb: Any = None, /) -> Any:
        return self._counted(self._work.throw(typ if val is None else val))

    def _counted(self, waited_for: Any) -> Any:
        self._waits_left -= 1
        if self._waits_left == 0:
            self._scope.cancel()
        return waited_for
