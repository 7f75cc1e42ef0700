"""The warm executor: what it keeps ready and lets go of, and which devices it trusts."""

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.sandbox.light import (
    JOB,
    PATIENCE_S,
    RUNS,
    Ground,
    KnownHost,
    Watched,
    children_of,
    itself,
    look,
    run,
)
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors import local
from tritonforge.sandbox.executors.base import Job, Role
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.pool import Pool
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.spares import Preloader
from tritonforge.sandbox.usage import tree

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("harmless_race")]


@pytest.fixture(scope="module", params=["local sealed", "local unsealed"])
async def ground(request: pytest.FixtureRequest) -> Ground:
    return await look(request.param)


async def test_idle_spares_and_preloaders_end_and_the_next_job_works_again(ground: Ground, light: None) -> None:
    async with LocalExecutor(KnownHost(ground), spares=2, idle_s=0.01) as executor:
        for _ in range(2):
            async with executor.submit(JOB) as worker:
                await run(worker, RUNS)
                watched = Watched(executor.own_processes())
            with watched:
                await watched.end()
        assert executor.own_processes() == set()


async def test_idle_spares_end_beside_a_job_that_goes_on(ground: Ground, light: None) -> None:
    async with LocalExecutor(KnownHost(ground), spares=2, idle_s=0.01) as executor:
        with anyio.fail_after(PATIENCE_S):
            async with executor.submit(JOB) as worker:
                job = tree(worker.handle.pid)
                (top,) = [pid for pid in children_of(os.getpid()) if pid in executor.own_processes()]
                others = set(children_of(itself(top, ground))) - job
                with Watched(others) as idle:
                    await idle.end()
                await run(worker, RUNS)


async def test_a_flavor_has_a_preloader_of_its_own_where_it_needs_one(ground: Ground, light: None) -> None:
    async with LocalExecutor(KnownHost(ground), spares=1) as executor:
        expected: list[tuple[Role, bool, int]] = [("task", False, 1), ("interpret", True, 2), ("capture", False, 2)]
        for role, interprets, preloaders in expected:
            async with executor.submit(Job(role)) as worker:
                assert has_in_environment(worker, b"TRITON_INTERPRET=1") is interprets
                assert len(executor.own_processes() & set(children_of(os.getpid()))) == preloaders


def has_in_environment(worker: WorkerProcess, setting: bytes) -> bool:
    """Whether a worker's preloader was started with this setting."""
    last = max(tree(worker.handle.pid), key=lambda pid: len(ancestors_of(pid)))
    return setting in Path(f"/proc/{last}/environ").read_bytes().split(b"\0")


def ancestors_of(pid: int) -> list[int]:
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return [parent, *ancestors_of(parent)] if parent > 0 else []


async def test_own_processes_are_preloaders_spares_and_workers(ground: Ground, light: None) -> None:
    outside = tree(os.getpid())
    async with LocalExecutor(KnownHost(ground), spares=2) as executor:
        assert executor.own_processes() == set()
        async with executor.submit(JOB) as worker, executor.submit(Job("cuda", wrapper=("env",))) as cold:
            await executor.settle()
            own = executor.own_processes()
            assert tree(worker.handle.pid) | tree(cold.handle.pid) <= own
            assert own == tree(os.getpid()) - outside
    assert executor.own_processes() == set()


@pytest.mark.parametrize("whom", ["itself", "what was started"])
async def test_a_killed_preloader_is_replaced_on_the_next_job(ground: Ground, light: None, whom: str) -> None:
    async with LocalExecutor(KnownHost(ground), spares=2) as executor:
        async with executor.submit(JOB):
            await executor.settle()
        own = executor.own_processes()
        (top,) = own & set(children_of(os.getpid()))
        with Watched(own) as watched:
            os.kill(top if whom == "what was started" else itself(top, ground), signal.SIGKILL)
            await watched.end()
        with anyio.fail_after(PATIENCE_S):
            async with executor.submit(JOB) as worker:
                await run(worker, RUNS)
        await executor.settle()
        assert not executor.own_processes() & own


async def test_a_preloader_that_is_killed_during_a_job_is_not_the_jobs_fault(ground: Ground, light: None) -> None:
    async def job(executor: LocalExecutor) -> None:
        async with executor.submit(JOB) as worker:
            (top,) = executor.own_processes() & set(children_of(os.getpid()))
            os.kill(top, signal.SIGKILL)
            await run(worker, "import signal\nsignal.pause()\n")

    async with LocalExecutor(KnownHost(ground), spares=1) as executor:
        with pytest.raises(Stopped) as stopped:
            await job(executor)
        assert stopped.value.kind is Kind.UNAVAILABLE
        assert "killed from outside" in stopped.value.problem.message
        async with executor.submit(JOB) as worker:
            await run(worker, RUNS)


async def test_a_spare_that_dies_before_it_has_its_job_is_replaced(
    ground: Ground, light: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    real = Pool.take

    async def take_a_victim(self: Pool) -> WorkerProcess:
        spare = await real(self)
        if len(killed) < 2:
            killed.append(spare.handle.pid)
            spare.handle.kill()
            await spare.handle.wait()
        return spare

    monkeypatch.setattr(Pool, "take", take_a_victim)
    with anyio.fail_after(PATIENCE_S):
        async with LocalExecutor(KnownHost(ground), spares=1) as executor, executor.submit(JOB) as worker:
            await run(worker, RUNS)
    assert len(killed) == 2


async def test_spares_that_all_die_before_they_have_a_job_are_an_outcome(
    ground: Ground, light: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Pool.take

    async def take_a_victim(self: Pool) -> WorkerProcess:
        spare = await real(self)
        spare.handle.kill()
        await spare.handle.wait()
        return spare

    monkeypatch.setattr(Pool, "take", take_a_victim)
    async with LocalExecutor(KnownHost(ground), spares=1) as executor:
        with anyio.fail_after(PATIENCE_S), pytest.raises(Stopped) as caught:
            async with executor.submit(JOB):
                pass
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_preloader_that_dies_while_a_spare_is_made_is_replaced_for_who_waits(
    ground: Ground, light: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    real = Preloader.fork

    async def fork_from_a_victim(self: Preloader, *arguments: Any) -> WorkerProcess:
        if not killed:
            killed.append(itself(self.pid, ground))
            os.kill(killed[0], signal.SIGKILL)
        return await real(self, *arguments)

    monkeypatch.setattr(Preloader, "fork", fork_from_a_victim)
    with anyio.fail_after(PATIENCE_S):
        async with LocalExecutor(KnownHost(ground), spares=1) as executor, executor.submit(JOB) as worker:
            await run(worker, RUNS)
    assert killed


async def test_all_who_wait_for_a_preloader_that_can_not_start_are_told_after_one_attempt(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, told = list[str](), list[str]()

    async def fail(*_: object) -> Preloader:
        attempts.append("one")
        await anyio.lowlevel.checkpoint()
        raise Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message="no torch"))

    async def work(executor: LocalExecutor) -> None:
        with pytest.raises(Stopped) as caught:
            async with executor.submit(JOB):
                pass
        told.append(caught.value.problem.message)

    monkeypatch.setattr(local, "start_preloader", fail)
    async with LocalExecutor(KnownHost(ground), spares=4) as executor:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(work, executor)
        assert (told, len(attempts)) == (["no torch"] * 3, 1)
        await work(executor)
        assert len(attempts) == 2


async def test_what_the_system_refuses_is_unavailable(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> Preloader:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(local, "start_preloader", fail)
    async with LocalExecutor(KnownHost(ground)) as executor:
        with pytest.raises(Stopped, match="Too many open files") as caught:
            async with executor.submit(JOB):
                pass
    assert caught.value.kind is Kind.UNAVAILABLE
