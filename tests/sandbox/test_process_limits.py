"""One worker: what it takes too much of is told as one outcome, and its output is kept within bounds."""

from pathlib import Path

import pytest

from tests.sandbox.conftest import ANSWER, FIND_SOCKET, Load, Start, outcome
from tests.sandbox.light import all_end, processes
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.process import oom_kills

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("during", ["while it works", "after its answer"])
async def test_more_memory_than_allowed_is_an_outcome_with_the_figure(start: Start, load: Load, during: str) -> None:
    answers = during == "after its answer"
    text = (ANSWER if answers else FIND_SOCKET) + "kept = bytearray(300 << 20)\nsignal.pause()\n"
    async with start(memory_bytes=200 << 20) as worker:
        running = processes(worker)
        with pytest.raises(Stopped) as caught:
            await (await load(worker, text)).call()
    problem = caught.value.problem
    assert caught.value.kind is Kind.OUT_OF_MEMORY
    assert problem.stage == ("run" if answers else "load")
    figure = int(problem.message.partition("it took ")[2].partition(" bytes")[0].replace(",", ""))
    assert 200 << 20 < figure < 800 << 20
    assert problem.message.endswith("bytes of host memory, of 209,715,200 that are allowed")
    assert all_end(running)


async def test_memory_of_children_counts_as_the_workers_own(start: Start, load: Load) -> None:
    text = """\
import os, signal
for _ in range(3):
    if os.fork() == 0:
        kept = bytearray(100 << 20)
        signal.pause()
signal.pause()
"""
    async with start(memory_bytes=250 << 20) as worker:
        kind, _ = await outcome(load, worker, text)
    assert kind is Kind.OUT_OF_MEMORY


async def test_more_processes_than_allowed_are_refused_or_an_outcome_with_the_figure(start: Start, load: Load) -> None:
    text = """\
import os, signal
for _ in range(100):
    if os.fork() == 0:
        signal.pause()
signal.pause()
"""
    async with start(processes=20) as worker:
        kind, problem = await outcome(load, worker, text)
        running = processes(worker)
    match kind:
        case Kind.RUNTIME_ERROR:
            assert "Resource temporarily unavailable" in problem.message
        case _:
            assert kind is Kind.OUT_OF_MEMORY
            assert problem.message.endswith(" processes and threads, of 20 that are allowed")
    assert all_end(running)


async def test_more_cpu_time_than_allowed_is_a_timeout(start_any: Start, load: Load) -> None:
    async with start_any(cpu_s=1) as worker:
        kind, problem = await outcome(load, worker, "while True:\n    pass\n")
    assert kind is Kind.TIMEOUT
    assert "loading the kernel file took more CPU time than one process may have" in problem.message


async def test_memory_that_is_given_back_does_no_harm(start: Start, load: Load) -> None:
    text = """\
for _ in range(6):
    bytearray(60 << 20)
def entry():
    pass
"""
    async with start(memory_bytes=200 << 20) as worker:
        await load(worker, text)


@pytest.mark.parametrize(
    ("counts", "kind", "words"),
    [
        ([7, 7], Kind.RUNTIME_ERROR, "the process ended during loading the kernel file (killed by SIGKILL)"),
        ([7, 8], Kind.OUT_OF_MEMORY, "was killed (SIGKILL), most likely for using too much memory"),
        ([None, None], Kind.OUT_OF_MEMORY, "was killed (SIGKILL), most likely for using too much memory"),
    ],
    ids=["nothing was killed for memory", "something was", "unknown"],
)
async def test_a_kill_is_put_down_to_memory_only_if_the_kernel_ran_out_of_it(
    start_any: Start,
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    counts: list[int | None],
    kind: Kind,
    words: str,
) -> None:
    remaining = iter(counts)
    monkeypatch.setattr("tritonforge.sandbox.process.oom_kills", lambda: next(remaining))
    async with start_any() as worker:
        found, problem = await outcome(load, worker, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert found is kind
    assert words in problem.message
    assert problem.likely_cause is not None
    assert "itself" in problem.likely_cause


def test_the_kernels_count_of_kills_for_memory_is_read(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_free_pages 5\noom_kill 42\nnuma_hit 3\n")
    assert oom_kills(vmstat) == 42


@pytest.mark.parametrize("text", [None, "", "nr_free_pages 5\n", "oom_kill many\n"])
def test_a_count_that_the_kernel_lacks_is_unknown(tmp_path: Path, text: str | None) -> None:
    vmstat = tmp_path / "vmstat"
    if text is not None:
        vmstat.write_text(text)
    assert oom_kills(vmstat) is None


async def test_megabytes_of_output_are_drained_and_only_their_end_is_kept(start: Start, load: Load) -> None:
    text = """\
import sys
for _ in range(64):
    sys.stdout.write("o" * 65536)
    sys.stderr.write("e" * 65536)
print("the last word")
1 / 0
"""
    async with start(output_bytes=1000) as worker:
        _, problem = await outcome(load, worker, text)
    assert worker.stdout.total_bytes == 64 * 65536 + len("the last word\n")
    assert worker.stderr.total_bytes == 64 * 65536
    kept = worker.stdout.text()
    assert kept.startswith("[4,193,318 bytes before this are not shown]\no")
    assert kept.endswith("the last word\n")
    assert len(kept) < 1100
    assert problem.output is not None
    assert "the last word" in problem.output


async def test_output_that_is_not_utf8_is_shown_all_the_same(start: Start, load: Load) -> None:
    async with start() as worker:
        _, problem = await outcome(load, worker, "import os\nos.write(1, b'\\xff\\xfe!')\n1 / 0\n")
    assert problem.output == "\ufffd\ufffd!"
