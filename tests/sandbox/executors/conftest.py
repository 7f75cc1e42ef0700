"""Every executor, sealed or not, warm or cold, each without torch and of a test's own."""

from collections.abc import AsyncGenerator

import anyio
import pytest

from tests.sandbox.light import (
    JOB,
    PATIENCE_S,
    RUNS,
    VARIANTS,
    Ground,
    KnownHost,
    Variant,
    executor_of,
    look,
    run,
)
from tritonforge.sandbox import nvml
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.usage import tree

CHILDREN = """\
import os, signal, sys
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, b"child\\n")
    signal.pause()
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        # Neither its group, nor its session, nor its parent is the worker's any more.
        os.write(writer, b"%d\\n" % os.getpid())
        os.closerange(0, 3)
        signal.pause()
    os._exit(0)
os.wait()
told = b""
while told.count(b"\\n") < 2:
    told += os.read(reader, 100)
(stray,) = [int(line) for line in told.split() if line.isdigit()]
pids = [os.getpid(), child, stray]
"""
"""A child that waits, and one that has left everything behind that could be killed as a whole."""


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Variant:
    return request.param


@pytest.fixture(scope="module")
async def ground(variant: Variant) -> Ground:
    return await look(variant)


@pytest.fixture
async def executor(variant: Variant, ground: Ground, light: None, without_gpu: None) -> AsyncGenerator[Executor]:
    """An executor of this test's own."""
    async with executor_of(variant, KnownHost(ground)) as executor:
        yield executor


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise nvml.NvmlUnavailable("no driver", "install one")

    monkeypatch.setattr(nvml, "devices", refuse)


def processes_of(worker: WorkerProcess, ground: Ground, told: list[int]) -> set[int]:
    """A worker's processes as seen from here: where it is not sealed, the numbers that it tells are the real ones."""
    return tree(worker.handle.pid) | (set() if ground[1].sealed else set(told))


async def at_rest(executor: Executor) -> None:
    """Do one job, which uses what another may have left over, and wait until nothing goes on behind it."""
    with anyio.fail_after(PATIENCE_S):
        async with executor.submit(JOB) as worker:
            await run(worker, RUNS)
        if isinstance(executor, LocalExecutor):
            await executor.settle()
