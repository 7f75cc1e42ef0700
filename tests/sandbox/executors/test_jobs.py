"""What every executor owes whoever submits a job, sealed or not, warm or cold: one suite for all of them."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.sandbox.light import (
    JOB,
    PATIENCE_S,
    RUNS,
    Ground,
    KnownHost,
    Variant,
    Watched,
    executor_of,
    run,
    say,
)
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor, Job
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.usage import tree

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("harmless_race")]


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


async def test_without_a_gpu_there_are_no_devices_and_no_jobs_on_them(executor: Executor) -> None:
    assert await executor.devices() == []
    with pytest.raises(Stopped) as caught:
        async with executor.submit(Job("cuda", on_gpu=True)):
            pass
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "no GPU" in caught.value.problem.message


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
