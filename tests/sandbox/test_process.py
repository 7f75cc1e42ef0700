"""One worker: whatever the code in it does, the parent gets one typed outcome and nothing stays behind."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.sandbox.conftest import ANSWER, SHORT_S, Load, Sort, Start, describe_task, outcome, own_workers
from tests.sandbox.light import all_end, processes
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.end import abandon
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.source import read_source
from tritonforge.sandbox.workers import KernelWorker

pytestmark = pytest.mark.anyio
FORK = """\
import os, signal
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, b"x")
    signal.pause()
    os._exit(0)
os.read(reader, 1)
"""


def gone(folder: str) -> bool:
    """Whether a worker's folder is not there any more; a sealed spare's never was, out here."""
    return not Path(folder).exists()


async def test_a_file_that_loads_is_answered(start: Start, load: Load) -> None:
    async with start() as worker:
        await load(worker, "def entry():\n    pass\n")


async def test_an_exception_is_an_outcome_with_its_line(start: Start, load: Load) -> None:
    async with start() as worker:
        kind, problem = await outcome(load, worker, "x = 1\n\nraise ValueError('odd')\n")
    assert kind is Kind.RUNTIME_ERROR
    assert (problem.stage, problem.message, problem.file, problem.line) == ("load", "ValueError: odd", "kernel.py", 3)
    assert problem.excerpt is not None
    assert ">    3 | raise ValueError('odd')" in problem.excerpt


async def test_a_worker_answers_again_after_an_exception(start: Start, load: Load) -> None:
    async with start() as worker:
        await outcome(load, worker, "1 / 0\n")
        await load(worker, "def entry():\n    pass\n")


async def test_what_the_caller_raises_inside_comes_out_as_it_was(start: Start) -> None:
    raised = LookupError("mine")
    cause = KeyError("why")
    with pytest.raises(LookupError) as caught:
        async with start(), start():
            raise raised from cause
    assert caught.value is raised
    assert (raised.__cause__, raised.__context__, raised.__suppress_context__) == (cause, None, True)


async def test_what_the_caller_raises_keeps_the_exception_that_it_was_raised_over(start: Start) -> None:
    raised = LookupError("mine")
    raised.__context__ = handled = KeyError("handled")
    with pytest.raises(LookupError) as caught:
        async with start(), start():
            raise raised
    assert caught.value is raised
    assert (raised.__cause__, raised.__context__, raised.__suppress_context__) == (None, handled, False)


async def test_a_worker_that_hangs_is_killed_with_what_it_started_and_its_scratch(start: Start, load: Load) -> None:
    async with start(request_s=SHORT_S) as worker:
        text = FORK + "print(os.getpid(), child, os.getcwd(), flush=True)\nsignal.pause()\n"
        kind, problem = await outcome(load, worker, text)
        assert problem.output is not None
        pid, child, folder = problem.output.split()
        running = processes(worker)
        assert {int(pid), int(child)} <= running.keys()
    assert kind is Kind.TIMEOUT
    assert problem.message == "loading the kernel file took longer than 2 s and was killed"
    assert all_end(running)
    assert gone(folder)


async def test_a_worker_that_reads_nothing_more_is_a_timeout(start: Start, load: Load) -> None:
    text = ANSWER + "os.kill(os.getpid(), signal.SIGSTOP)\n"
    async with start(request_s=SHORT_S) as worker:
        kernels = await load(worker, text)
        running = processes(worker)
        with pytest.raises(Stopped) as caught:
            # More than a socket's buffer takes.
            await kernels.set_inputs(Values({"value": None}, [bytes(64 << 20)]))
    assert caught.value.kind is Kind.TIMEOUT
    assert caught.value.problem.message == "taking the inputs took longer than 2 s and was killed"
    assert worker.harmed
    assert all_end(running)


async def test_a_worker_that_was_too_late_answers_nothing_more(start: Start, load: Load) -> None:
    async with start(request_s=SHORT_S) as worker:
        kind, problem = await outcome(load, worker, "import signal\nsignal.pause()\n")
        with pytest.raises(Stopped) as caught:
            await worker.request("call", key=None, upstream=None)
    assert kind is caught.value.kind is Kind.TIMEOUT
    assert caught.value.problem == problem


async def test_a_worker_that_stops_itself_is_a_timeout(start_any: Start, load: Load) -> None:
    async with start_any(request_s=SHORT_S) as worker:
        kind, _ = await outcome(load, worker, "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n")
        running = processes(worker)
    assert kind is Kind.TIMEOUT
    assert all_end(running)


async def test_a_descendant_that_keeps_the_socket_open_does_not_hide_the_death(start: Start, load: Load) -> None:
    # With the default limit of two minutes, an answer in time is only there if the death itself is noticed.
    async with start() as worker:
        with anyio.fail_after(60):
            kind, problem = await outcome(load, worker, FORK + "os._exit(3)\n")
    assert kind is Kind.RUNTIME_ERROR
    assert problem.message == "the process ended during loading the kernel file (exit code 3)"


async def test_an_answer_given_just_before_death_still_counts(start: Start, load: Load) -> None:
    async with start() as worker:
        text = ANSWER + "os._exit(0)\n"
        kernels = await load(worker, text)
        with pytest.raises(Stopped) as caught:
            await kernels.call()
    assert caught.value.kind is Kind.RUNTIME_ERROR
    assert "exit code 0" in caught.value.problem.message


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("import os\nos._exit(0)\n", Kind.RUNTIME_ERROR, "exit code 0"),
        ("import ctypes\nctypes.string_at(0)\n", Kind.RUNTIME_ERROR, "SIGSEGV"),
        ("import os\nos.abort()\n", Kind.RUNTIME_ERROR, "SIGABRT"),
        ("import os, signal\nos.killpg(0, signal.SIGKILL)\n", Kind.RUNTIME_ERROR, "killed by SIGKILL"),
        ("import os\nos.closerange(0, 4096)\n", Kind.RUNTIME_ERROR, "exit code 1"),
        ("import sys\nsys.exit(0)\n", Kind.REJECTED, "kernel.py calls sys.exit(0) while it is imported"),
        ("raise KeyboardInterrupt\n", Kind.RUNTIME_ERROR, "KeyboardInterrupt"),
        ("def f():\n    f()\nf()\n", Kind.RUNTIME_ERROR, "RecursionError: maximum recursion depth"),
        ("x = " + "(" * 5000 + ")" * 5000 + "\n", Kind.REJECTED, "kernel.py is not valid Python"),
        ("x = " + "-" * 100_000 + "1\n", Kind.REJECTED, "kernel.py can't be parsed"),
        ("x = 1\nif True\n    pass\n", Kind.REJECTED, "kernel.py is not valid Python: expected ':'"),
        ("class E(Exception):\n    def __str__(self):\n        1 / 0\nraise E\n", Kind.RUNTIME_ERROR, "exit code 1"),
        ("class E(Exception):\n    stage = 5\n    kind = 'ok'\nraise E('x')\n", Kind.RUNTIME_ERROR, "E: x"),
        ("raise ValueError('\\ud800')\n", Kind.RUNTIME_ERROR, "ValueError: \\ud800"),
        ("raise ValueError('x' * 10_000_000)\n", Kind.RUNTIME_ERROR, "ValueError: xxxx"),
        ("import shutil, os\nshutil.rmtree(os.getcwd(), True)\n1 / 0\n", Kind.RUNTIME_ERROR, "ZeroDivisionError"),
        ("import no_such_module\n", Kind.REJECTED, "No module named 'no_such_module'"),
        ("import threading as t\nt.Thread(target=t.Event().wait).start()\n1 / 0\n", Kind.RUNTIME_ERROR, "Zero"),
        ("import sys\nsys.modules['tritonforge_worker.frames'].send = 1\n", Kind.RUNTIME_ERROR, "exit code 1"),
    ],
    ids=[
        "os._exit", "null pointer", "abort", "kills its group", "closes descriptors", "sys.exit", "interrupt",
        "recursion", "deep parentheses", "deep operators", "syntax", "unprintable", "attributes", "surrogate",
        "long message", "no folder", "import", "thread", "sabotage",
    ],
)  # fmt: skip
async def test_every_end_is_one_outcome(start: Start, load: Load, text: str, kind: Kind, words: str) -> None:
    async with start() as worker:
        running = processes(worker)
        found, problem = await outcome(load, worker, text)
    assert found is kind
    assert words in problem.message
    assert len(problem.message) < 5000
    assert all_end(running)


async def test_a_refusal_of_the_candidates_own_making_cannot_say_ok(start: Start, load: Load) -> None:
    text = "import sys\nraise sys.modules['tritonforge_worker.failures'].Refused('ok', 'load', 'all is well')\n"
    async with start() as worker:
        assert (await outcome(load, worker, text))[0] is Kind.CHEATING


async def test_the_environment_of_the_parent_is_not_visible(
    start: Start, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Preloaders were started with one of the same name.
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    text = "import os\nraise RuntimeError(f'{dict(os.environ)}' + open('/proc/self/environ').read())\n"
    async with start() as worker:
        _, problem = await outcome(load, worker, text)
    assert "'PATH': " in problem.message
    assert "hunter2" not in problem.message
    assert "SECRET_TOKEN" not in problem.message


async def test_caches_and_temporary_files_go_to_a_folder_of_the_workers_own(start: Start, load: Load) -> None:
    text = """\
import os, tempfile
folder = os.getcwd()
assert os.environ["TRITON_CACHE_DIR"] == folder + "/triton-cache"
assert os.environ["TMPDIR"] == tempfile.gettempdir() == folder
open(os.path.expanduser("~/note"), "w").close()
print(tempfile.NamedTemporaryFile(delete=False).name)
1 / 0
"""
    async with start() as worker:
        _, problem = await outcome(load, worker, text)
    assert problem.message == "ZeroDivisionError: division by zero"
    assert problem.output is not None
    # With the folder, all that was in it.
    assert gone(os.path.dirname(problem.output))


async def test_a_worker_sees_no_descriptors_but_its_own(start: Start, load: Load, tmp_path: Path) -> None:
    with (tmp_path / "private").open("w") as private:
        os.set_inheritable(private.fileno(), True)
        text = "import os\nraise RuntimeError(' '.join(sorted(os.listdir('/proc/self/fd'), key=int)))\n"
        async with start() as worker:
            _, problem = await outcome(load, worker, text)
    # Standard input, output, error, the socket, and the one that lists them.
    assert len(problem.message.removeprefix("RuntimeError: ").split()) == 5


async def test_programs_that_a_candidate_starts_do_not_get_the_socket(start: Start, load: Load) -> None:
    text = """\
import os, subprocess
found = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True).stdout
raise RuntimeError(found)
"""
    async with start() as worker:
        _, problem = await outcome(load, worker, text)
    assert "/dev/null" in problem.message
    assert "socket:" not in problem.message


async def test_the_own_modules_of_a_candidates_folder_never_shadow_the_standard_library(
    start: Start, opened: Path
) -> None:
    # Nothing else has imported this one, so that the path decides.
    (opened / "colorsys.py").write_text("raise RuntimeError('shadowed')\n")
    (opened / "neighbour.py").write_text("VALUE = 7\n")
    kernel = opened / "kernel.py"
    kernel.write_text("import colorsys, neighbour\nassert neighbour.VALUE == 7\ndef entry():\n    pass\n")
    async with start() as worker:
        await KernelWorker(worker).load(read_source(str(kernel), "kernel"), describe_task())
    assert not (opened / "__pycache__").exists()


async def test_cancelling_the_caller_kills_the_worker(start: Start, load: Load, opened: Path) -> None:
    fifo = opened / "fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    text = f"import os, signal\nopen({str(fifo)!r}, 'w').write(os.getcwd())\nsignal.pause()\n"
    running: dict[int, int] = {}
    folder = ""

    async def evaluate() -> None:
        async with start() as worker:
            running.update(processes(worker))
            await load(worker, text)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(evaluate)
            # Returns once the candidate has written, that is while it hangs.
            folder = await anyio.to_thread.run_sync(fifo.read_text)
            tasks.cancel_scope.cancel()
    finally:
        fifo.unlink()
    assert all_end(running)
    assert gone(folder)


async def test_abandoning_kills_everything_and_removes_all_scratch(
    sort: Sort, load: Load, light: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What other tests have started must live on.
    monkeypatch.setattr("tritonforge.sandbox.spares._running", set[Any]())
    monkeypatch.setattr("tritonforge.sandbox.executors.cold._handles", set[Any]())
    monkeypatch.setattr("tritonforge.sandbox.scratch._folders", dict[Path, int]())
    hanging = FORK + "print(os.getcwd(), flush=True)\nsignal.pause()\n"
    async with own_workers() as workers, workers.start(sort) as idle, workers.start(sort, request_s=SHORT_S) as busy:
        _, problem = await outcome(load, busy, hanging)
        assert problem.output is not None
        running = [processes(idle), processes(busy)]
        abandon()
        assert all(all_end(each) for each in running)
        assert gone(problem.output)


async def test_a_worker_that_is_let_go_ends_by_itself(start: Start, load: Load) -> None:
    async with start() as worker:
        await load(worker, "def entry():\n    pass\n")
        assert await worker.finish(30) == 0


async def test_a_worker_that_is_let_go_and_does_not_end_is_killed(start: Start, load: Load) -> None:
    text = """\
import os, signal, sys
sys.modules["tritonforge_worker.frames"].receive = lambda sock: signal.pause()
print(os.getcwd(), flush=True)
def entry():
    pass
"""
    async with start() as worker:
        await load(worker, text)
        running = processes(worker)
        assert await worker.finish(SHORT_S) is None
    assert all_end(running)
    assert gone(worker.output())
