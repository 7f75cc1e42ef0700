"""Workers that a profiler's command starts, and those that read reports."""

import pytest

from tests.sandbox.light import Ground, KnownHost, Variant, say
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor, Job
from tritonforge.sandbox.executors.cold import start_cold
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.profilers import report_worker

pytestmark = pytest.mark.anyio
each_ground = pytest.mark.parametrize("variant", ["cold sealed", "cold unsealed"], scope="module")
"""What starts from nothing whatever the executor."""
TELLS = ("/bin/sh", "-c", 'echo told > {folder}/report; exec "$@"', "sh")


@each_ground
@pytest.mark.usefixtures("light_cold")
async def test_a_profiler_writes_into_the_workers_own_folder_which_goes_with_it(ground: Ground) -> None:
    worker = await start_cold(KnownHost(ground), Job("cuda", profiler=TELLS), None)
    folder = worker.folder
    assert folder is not None
    try:
        await worker.hello()
        assert (folder / "report").read_text() == "told\n"
    finally:
        await worker.discard()
    assert not folder.exists()


@each_ground
@pytest.mark.usefixtures("light_cold")
async def test_a_profiled_worker_ends_by_itself_with_its_job(ground: Ground) -> None:
    worker = await start_cold(KnownHost(ground), Job("cuda", profiler=TELLS), None)
    async with worker.attended():
        await worker.hello()
        assert await worker.finish(60) == 0


@each_ground
@pytest.mark.usefixtures("light_cold")
async def test_what_a_profiler_says_at_its_end_is_told_though_nobody_drained_it(ground: Ground) -> None:
    job = Job("cuda", profiler=("/bin/sh", "-c", "echo no counters >&2; exit 9", "sh"))
    worker = await start_cold(KnownHost(ground), job, None)
    try:
        with pytest.raises(Stopped) as caught:
            await worker.hello()
    finally:
        await worker.discard()
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "no counters" in (caught.value.problem.output or "")


async def test_a_reader_of_reports_is_without_torch_and_triton(executor: Executor) -> None:
    job = Job("report")
    assert job.cold
    async with executor.submit(job) as worker:
        await worker.begin("cuda", "cpu", None)
        loaded = await say(worker, "import sys\nsay([name for name in ('torch', 'triton') if name in sys.modules])")
    assert loaded == []


async def test_a_report_that_can_not_be_read_is_an_outcome(executor: Executor, variant: Variant) -> None:
    async with report_worker(executor) as reader:
        assert reader.process.folder is not None
        with pytest.raises(Stopped) as caught:
            await reader.read(b"none", reader_folder=reader.process.folder, wanted=[], launches_limit=1, texts=True)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "ncu_report.py" in caught.value.problem.message


def test_only_profilers_that_are_asked_for_ahead_are_kept_ready() -> None:
    assert Job("cuda", on_gpu=True, profiler=TELLS).cold
    assert not Job("cuda", on_gpu=True, profiler=TELLS, ahead=True).cold
