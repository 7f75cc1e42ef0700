"""What every executor owes whoever submits a job, sealed or not, warm or cold: one suite for all of them."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.sandbox.conftest import open_descriptors
from tests.sandbox.light import (
    JOB,
    PATIENCE_S,
    RUNS,
    VARIANTS,
    CancelledAt,
    Ground,
    KnownHost,
    Variant,
    Watched,
    descriptors_become,
    executor_of,
    harmless_race,
    light,
    look,
    run,
    say,
)
from tritonforge.sandbox import nvml, process
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor, Job
from tritonforge.sandbox.executors.end import abandon
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.usage import tree

__all__ = ["harmless_race", "light"]
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("harmless_race")]
JOBS = 30
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


async def test_a_job_gets_a_worker_that_answers(executor: Executor) -> None:
    async with executor.submit(JOB) as worker:
        assert await say(worker, "say(6 * 7)") == 42
        await run(worker, RUNS)


async def test_how_workers_are_isolated_is_told(executor: Executor, ground: Ground) -> None:
    assert await executor.seal() == ground[1]


async def test_two_jobs_at_once_have_processes_of_their_own(executor: Executor) -> None:
    async with executor.submit(JOB) as one, executor.submit(JOB) as other:
        assert not tree(one.handle.pid) & tree(other.handle.pid)
        await run(one, "import builtins\nbuiltins.mine = 1\n" + RUNS)
        assert await say(other, "import builtins\nsay(hasattr(builtins, 'mine'))") is False
        assert await say(one, "import builtins\nsay(hasattr(builtins, 'mine'))") is True


async def test_many_jobs_at_once_all_get_a_worker(executor: Executor) -> None:
    told: list[int] = []

    async def work(number: int) -> None:
        async with executor.submit(JOB) as worker:
            told.append(await say(worker, f"say({number})"))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(work, number)
    assert sorted(told) == list(range(8))


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


async def test_what_the_caller_raises_comes_out_as_it_was(executor: Executor) -> None:
    raised, cause = LookupError("mine"), KeyError("why")
    with pytest.raises(LookupError) as caught:
        async with executor.submit(JOB), executor.submit(JOB):
            raise raised from cause
    assert caught.value is raised
    assert caught.value.__cause__ is cause


async def test_a_group_of_exceptions_comes_out_as_it_was(executor: Executor) -> None:
    group = ExceptionGroup("mine", [LookupError("one"), KeyError("two")])
    with pytest.raises(ExceptionGroup) as caught:
        async with executor.submit(JOB):
            raise group
    assert caught.value is group


async def test_a_worker_that_died_is_an_outcome_and_the_next_job_works(executor: Executor) -> None:
    with pytest.raises(Stopped) as caught:
        async with executor.submit(JOB) as worker:
            await run(worker, "import os\nos._exit(3)")
    assert caught.value.kind is Kind.RUNTIME_ERROR
    assert "exit code 3" in caught.value.problem.message
    async with executor.submit(JOB) as worker:
        await run(worker, RUNS)


async def test_a_worker_that_was_killed_from_outside_is_an_outcome_too(executor: Executor) -> None:
    async with executor.submit(JOB) as worker:
        with Watched(tree(worker.handle.pid)) as watched:
            worker.handle.kill()
            await watched.end()
        with pytest.raises(Stopped):
            await run(worker, RUNS)
    async with executor.submit(JOB) as worker:
        await run(worker, RUNS)


async def test_limits_hold_for_each_job(variant: Variant, ground: Ground, light: None) -> None:
    async with executor_of(variant, KnownHost(ground, Limits(descriptors=100, cpu_s=77))) as executor:
        for _ in range(2):
            async with executor.submit(JOB) as worker:
                text = "import resource as r\nsay([r.getrlimit(r.RLIMIT_NOFILE)[1], r.getrlimit(r.RLIMIT_CPU)[0]])"
                assert await say(worker, text) == [100, 77]


async def test_a_wrapper_starts_the_worker_and_writes_where_it_may(executor: Executor, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    wrapper = ("/usr/bin/env", "WRAPPED=yes", "/bin/sh", "-c", f'echo told > {folder}/report; exec "$@"', "sh")
    async with executor.submit(Job("cuda", wrapper=wrapper, writable=str(folder))) as worker:
        assert await say(worker, "import os\nsay(os.environ['WRAPPED'])") == "yes"
        watched = Watched(tree(worker.handle.pid))
    assert (folder / "report").read_text() == "told\n"
    with watched:
        await watched.end()


async def test_a_wrapper_that_can_not_be_started_is_an_outcome(executor: Executor) -> None:
    with pytest.raises(Stopped) as caught:
        async with executor.submit(Job("cuda", wrapper=("/no/such/profiler",))):
            pass
    assert caught.value.kind is Kind.UNAVAILABLE


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


async def test_abandoning_ends_everything_at_once(executor: Executor, ground: Ground) -> None:
    async with executor.submit(JOB) as worker:
        told = await say(worker, CHILDREN + "say(pids)")
        with Watched(processes_of(worker, ground, told)) as watched:
            abandon()
            await watched.end()


async def test_without_a_gpu_there_are_no_devices_and_no_jobs_on_them(executor: Executor) -> None:
    assert await executor.devices() == []
    with pytest.raises(Stopped) as caught:
        async with executor.submit(Job("cuda", on_gpu=True)):
            pass
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "no GPU" in caught.value.problem.message


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


TRACES = """\
import builtins, os, sys, tempfile, torch
from pathlib import Path
cache = Path(os.environ["TRITON_CACHE_DIR"])
places = [tempfile.gettempdir(), os.path.expanduser("~"), os.getcwd(), cache]
places += ["/tmp", "/dev/shm"] if {sealed} else []
"""
LEAVE = """
builtins.left_behind = json.left_behind = True
os.environ["LEFT_BEHIND"] = "yes"
torch.softmax = lambda *_, **__: "left behind"
for place in places:
    (Path(place) / "left_behind").write_text("x")
def entry():
    pass
"""
FIND = """
found = [name for name, there in {
    "a global": hasattr(builtins, "left_behind"),
    "a module's global": hasattr(json, "left_behind"),
    "the environment": "LEFT_BEHIND" in os.environ,
    "torch": torch.softmax(torch.zeros(1), 0) == "left behind",
}.items() if there]
say(found + [str(place) for place in places if (Path(place) / "left_behind").exists()])
"""


@pytest.fixture(scope="module")
async def real(variant: Variant, ground: Ground) -> AsyncGenerator[Executor]:
    """An executor whose workers have torch."""
    async with executor_of(variant, KnownHost(ground)) as executor:
        yield executor


async def test_nothing_of_one_job_is_seen_by_the_next(real: Executor, ground: Ground) -> None:
    traces = TRACES.replace("{sealed}", str(ground[1].sealed))
    async with real.submit(JOB) as worker:
        await run(worker, "import json\n" + traces + LEAVE)
        seen = await say(worker, traces + FIND)
        assert {"a global", "a module's global", "the environment", "torch"} < set(seen)
    async with real.submit(JOB) as worker:
        assert await say(worker, traces + FIND) == []


async def test_what_the_interpreter_has_is_told(real: Executor, ground: Ground, without_gpu: None) -> None:
    facts: dict[str, Any] = await real.environment()
    assert facts["problem"] is None
    assert facts["executable"] == ground[0].executable
    assert {name for name in ("python", "torch", "triton", "numpy") if not facts[name]} == set()
