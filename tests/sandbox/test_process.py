"""One worker: whatever the code in it does, the parent gets one typed outcome and nothing stays behind."""

import contextlib
import os
import select
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.sandbox.conftest import FIND_SOCKET, SHORT_S, Load, Sort, Start, describe_task, outcome, own_workers, serving
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Job
from tritonforge.sandbox.executors.cold import cold_worker
from tritonforge.sandbox.executors.end import abandon
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.isolation import Interpreter, Seal
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.process import WorkerProcess, oom_kills
from tritonforge.sandbox.source import read_source
from tritonforge.sandbox.spares import start_preloader
from tritonforge.sandbox.usage import tree
from tritonforge.sandbox.workers import KernelWorker, Values, probe

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
    assert caught.value.__cause__ is cause


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
    text = FIND_SOCKET + "send(frame({'ok': True, 'blobs': []}))\nos.kill(os.getpid(), signal.SIGSTOP)\n"
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
        text = FIND_SOCKET + "send(frame({'ok': True, 'blobs': []}))\nos._exit(0)\n"
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


@pytest.mark.parametrize("during", ["while it works", "after its answer"])
async def test_more_memory_than_allowed_is_an_outcome_with_the_figure(start: Start, load: Load, during: str) -> None:
    answer = "send(frame({'ok': True, 'blobs': []}))\n" if during == "after its answer" else ""
    text = f"{FIND_SOCKET}{answer}kept = bytearray(300 << 20)\nsignal.pause()\n"
    async with start(memory_bytes=200 << 20) as worker:
        running = processes(worker)
        with pytest.raises(Stopped) as caught:
            await (await load(worker, text)).call()
    problem = caught.value.problem
    assert caught.value.kind is Kind.OUT_OF_MEMORY
    assert problem.stage == ("run" if answer else "load")
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
    sort: Sort, load: Load, light_cold: None, monkeypatch: pytest.MonkeyPatch
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


async def test_a_first_frame_that_is_no_hello_is_cheating(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = (
        "import json, os, sys\n"
        'os.write(json.loads(sys.argv[1])["socket"], b"TFW1\\0\\0\\0\\x0d" + b\'{"blobs": []}\')\n'
    )
    serving(monkeypatch, odd)
    with pytest.raises(Stopped) as caught:
        async with cold_worker(Host(sys.executable, Limits()), Job("capture"), None):
            pass
    assert caught.value.kind is Kind.CHEATING


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/no/such/python", "can't be started: No such file or directory"),
        ("/", "can't be started: Permission denied"),
        ("/etc/passwd", "can't be started: Permission denied"),
        ("/bin/true", "is no Python 3.11 or newer"),
        ("/bin/cat", "is no Python 3.11 or newer"),
    ],
)
async def test_what_is_no_interpreter_is_unavailable_with_a_remedy(python: str, words: str) -> None:
    async with LocalExecutor(Host(python, Limits())) as executor:
        environment = await probe(executor)
    assert environment.problem is not None
    assert environment.problem.stage == "environment"
    assert words in environment.problem.message
    assert python in environment.problem.message
    assert "--python" in (environment.problem.likely_fix or "")


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """A program that never says anything."""
    path = tmp_path / "endless"
    path.write_text("#!/bin/sh\nexec sleep 1000\n")
    path.chmod(0o755)
    return str(path)


async def test_an_interpreter_that_never_answers_is_unavailable(endless: str) -> None:
    async with LocalExecutor(Host(endless, Limits(start_s=0.2))) as executor:
        environment = await probe(executor)
    assert environment.problem is not None
    assert "did not answer within 0.2 s" in environment.problem.message
    assert "--python" in (environment.problem.likely_fix or "")


async def test_a_preloader_that_is_never_ready_is_unavailable(endless: str) -> None:
    async with anyio.create_task_group() as tasks:
        with pytest.raises(Stopped) as caught:
            await start_preloader(Interpreter(endless, ()), "cpu", Seal(None), Limits(start_s=0.2), tasks)
        assert caught.value.kind is Kind.UNAVAILABLE
        assert caught.value.problem.message == "starting the worker took longer than 0.2 s"
        assert "doctor" in (caught.value.problem.likely_fix or "")


async def test_a_worker_from_nothing_that_is_never_ready_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    serving(monkeypatch, "import signal\nsignal.pause()\n")
    host = Host(sys.executable, Limits())
    # Looking at the interpreter takes longer.
    await host.ground()
    host.limits = Limits(start_s=0.2)
    with pytest.raises(Stopped) as caught:
        async with cold_worker(host, Job("capture"), None):
            pass
    assert caught.value.kind is Kind.TIMEOUT
    assert "doctor" in (caught.value.problem.likely_fix or "")
