"""How what executors started ends, whoever wants it and when: nothing of it stays behind."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.sandbox.conftest import open_descriptors
from tests.sandbox.executors.conftest import CHILDREN, at_rest, processes_of
from tests.sandbox.light import (
    JOB,
    PATIENCE_S,
    RUNS,
    CancelledAt,
    Ground,
    KnownHost,
    Variant,
    Watched,
    descriptors_become,
    executor_of,
    run,
    say,
)
from tritonforge.sandbox import process
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.executors.end import abandon
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.usage import tree

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("harmless_race")]
JOBS = 12


async def test_leaving_ends_the_worker_and_all_that_it_started(executor: Executor, ground: Ground) -> None:
    async with executor.submit(JOB) as worker:
        told = await say(worker, CHILDREN + "say(pids)")
        running = processes_of(worker, ground, told)
        assert len(running) >= len(told)
        watched = Watched(running)
    with watched:
        await watched.end()


async def test_a_worker_that_is_gone_has_ended_with_all_that_it_started(executor: Executor, ground: Ground) -> None:
    async with executor.submit(JOB) as worker:
        told = await say(worker, CHILDREN + "say(pids)")
        watched = Watched(processes_of(worker, ground, told))
        with pytest.raises(Stopped):
            await run(worker, "import os\nos._exit(3)")
    with watched:
        await watched.end()


async def test_cancelling_the_caller_ends_the_worker_and_frees_everything(executor: Executor, ground: Ground) -> None:
    await at_rest(executor)
    before, hangs, watched = open_descriptors(), anyio.Event(), Watched([])

    async def work() -> None:
        nonlocal watched
        async with executor.submit(JOB) as worker:
            told = await say(worker, CHILDREN + "say(pids)")
            watched = Watched(processes_of(worker, ground, told))
            hangs.set()
            await run(worker, "import signal\nsignal.pause()")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await hangs.wait()
        tasks.cancel_scope.cancel()
    with watched:
        await watched.end()
    await at_rest(executor)
    await descriptors_become(before)


async def test_cancelling_at_any_moment_leaves_nothing_behind(executor: Executor) -> None:
    async def work() -> None:
        async with executor.submit(JOB) as worker:
            await run(worker, RUNS)

    await at_rest(executor)
    before, number, reached = open_descriptors(), 0, True
    while reached:
        number += 1
        scope = anyio.CancelScope()
        attempt = CancelledAt(work(), number, scope)
        with scope:
            await attempt
        reached = attempt.reached
        if isinstance(executor, LocalExecutor):
            await at_rest(executor)
        await descriptors_become(before)
    assert number > 10
    # Whoever comes next is served.
    await work()


async def test_what_the_system_refuses_is_unavailable_and_leaves_nothing_open(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at_rest(executor)
    before, real, made = open_descriptors(), process.make_pipe, 0

    def refuse_the_second() -> tuple[int, int]:
        nonlocal made
        made += 1
        if made % 2 == 0:
            raise OSError(24, "Too many open files")
        return real()

    with monkeypatch.context() as patch:
        for module in ("spares", "executors.cold"):
            patch.setattr(f"tritonforge.sandbox.{module}.make_pipe", refuse_the_second)
        if isinstance(executor, LocalExecutor):
            # The one that is ready.
            async with executor.submit(JOB):
                pass
        with pytest.raises(Stopped, match="Too many open files") as caught:
            async with executor.submit(JOB):
                pass
    assert caught.value.kind is Kind.UNAVAILABLE
    await at_rest(executor)
    await descriptors_become(before)


async def test_after_closing_nothing_is_accepted(executor: Executor) -> None:
    await executor.close()
    for _ in range(2):
        with pytest.raises(Stopped, match="closed") as caught:
            async with executor.submit(JOB):
                pass
        assert caught.value.kind is Kind.UNAVAILABLE
        with pytest.raises(Stopped, match="closed"):
            await executor.environment()
    await executor.close()


async def test_closing_ends_running_work(executor: Executor, ground: Ground) -> None:
    hangs, watched, ends = anyio.Event(), Watched([]), list[Stopped]()

    async def work() -> None:
        nonlocal watched
        try:
            async with executor.submit(JOB) as worker:
                told = await say(worker, CHILDREN + "say(pids)")
                watched = Watched(processes_of(worker, ground, told))
                hangs.set()
                await run(worker, "import signal\nsignal.pause()")
        except Stopped as stopped:
            ends.append(stopped)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await hangs.wait()
        with anyio.fail_after(PATIENCE_S):
            await executor.close()
    assert [stopped.kind for stopped in ends] == [Kind.UNAVAILABLE]
    with watched:
        await watched.end()


async def test_closing_ends_those_who_wait_for_a_worker(variant: Variant, ground: Ground, light: None) -> None:
    waits = anyio.Event()

    class SlowHost(KnownHost):
        async def ground(self) -> Ground:
            waits.set()
            await anyio.sleep_forever()
            raise AssertionError

    ends: list[Kind] = []

    async def work(executor: Executor) -> None:
        with pytest.raises(Stopped) as caught:
            async with executor.submit(JOB):
                pass
        ends.append(caught.value.kind)

    with anyio.fail_after(PATIENCE_S):
        async with executor_of(variant, SlowHost(ground)) as executor, anyio.create_task_group() as tasks:
            tasks.start_soon(work, executor)
            tasks.start_soon(work, executor)
            await waits.wait()
            await executor.close()
    assert ends == [Kind.UNAVAILABLE] * 2


async def test_whoever_has_a_worker_can_close_all(executor: Executor) -> None:
    async def work() -> None:
        async with executor.submit(JOB) as worker:
            await executor.close()
            await run(worker, RUNS)

    with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped, match="closed"):
        await work()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests of this process have started lives on."""
    monkeypatch.setattr("tritonforge.sandbox.spares._running", set[Any]())
    monkeypatch.setattr("tritonforge.sandbox.executors.cold._handles", set[Any]())
    monkeypatch.setattr("tritonforge.sandbox.scratch._folders", dict[Path, int]())


async def test_abandoning_ends_everything_at_once(alone: None, executor: Executor, ground: Ground) -> None:
    async with executor.submit(JOB) as worker:
        told = await say(worker, CHILDREN + "say(pids)")
        with Watched(processes_of(worker, ground, told)) as watched:
            abandon()
            await watched.end()


async def test_many_jobs_leave_no_descriptor_and_no_process(variant: Variant, ground: Ground, light: None) -> None:
    outside, before = tree(os.getpid()), open_descriptors()
    async with executor_of(variant, KnownHost(ground)) as executor:
        await at_rest(executor)
        in_use = open_descriptors()
        for _ in range(JOBS):
            await at_rest(executor)
        await descriptors_become(in_use)
        watched = Watched(tree(os.getpid()) - outside)
    with watched:
        await watched.end()
    await descriptors_become(before)
