"""One worker process: whatever the code in it does, the parent gets one typed outcome and nothing stays behind."""

import os
import select
import sys
from pathlib import Path

import anyio
import pytest

from tests.sandbox.conftest import FIND_SOCKET, SHORT_S, Load, StartLight, describe_task, outcome
from tritonforge.sandbox import process
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.process import WorkerProcess, start_worker
from tritonforge.sandbox.source import read_source
from tritonforge.sandbox.workers import KernelWorker, probe

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


def await_end(descriptor: int) -> bool:
    """Wait until the process behind a descriptor of `os.pidfd_open` has ended; False if it lives on."""
    try:
        return bool(select.select([descriptor], [], [], 20)[0])
    finally:
        os.close(descriptor)


def processes_of(session: int) -> list[int]:
    """Processes of a session that still run (a zombie does not)."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(its_session) == session and state not in {"Z", "X"}:
                found.append(int(entry.name))
    return found


async def test_a_file_that_loads_is_answered(start_light: StartLight, load: Load) -> None:
    async with start_light() as worker:
        await load(worker, "def entry():\n    pass\n")


async def test_an_exception_is_an_outcome_with_its_line(start_light: StartLight, load: Load) -> None:
    async with start_light() as worker:
        kind, problem = await outcome(load, worker, "x = 1\n\nraise ValueError('odd')\n")
    assert kind is Kind.RUNTIME_ERROR
    assert (problem.stage, problem.message, problem.file, problem.line) == ("load", "ValueError: odd", "kernel.py", 3)
    assert problem.excerpt is not None
    assert ">    3 | raise ValueError('odd')" in problem.excerpt


async def test_a_worker_answers_again_after_an_exception(start_light: StartLight, load: Load) -> None:
    async with start_light() as worker:
        await outcome(load, worker, "1 / 0\n")
        await load(worker, "def entry():\n    pass\n")


async def test_what_the_caller_raises_inside_comes_out_as_it_was(start_light: StartLight) -> None:
    raised = LookupError("mine")
    cause = KeyError("why")
    with pytest.raises(LookupError) as caught:
        async with start_light(), start_light():
            raise raised from cause
    assert caught.value is raised
    assert caught.value.__cause__ is cause


async def test_a_worker_that_hangs_is_killed_with_its_group_and_its_scratch(
    start_light: StartLight, load: Load
) -> None:
    async with start_light(request_s=SHORT_S) as worker:
        assert worker.scratch.is_dir()
        text = (
            FORK + "open('pids', 'w').write(f'{os.getpid()} {child}')\nprint('waiting', flush=True)\nsignal.pause()\n"
        )
        kind, problem = await outcome(load, worker, text)
        session, child = map(int, (worker.scratch / "pids").read_text().split())
        descriptors = [os.pidfd_open(session), os.pidfd_open(child)]
        assert set(processes_of(session)) == {session, child}
    assert kind is Kind.TIMEOUT
    assert problem.message == "loading the kernel file took longer than 2 s and was killed"
    assert problem.output == "waiting"
    assert all(await_end(descriptor) for descriptor in descriptors)
    assert processes_of(session) == []
    assert not worker.scratch.exists()


async def test_a_descendant_that_keeps_the_socket_open_does_not_hide_the_death(
    start_light: StartLight, load: Load
) -> None:
    # With the default limit of two minutes, an answer in time is only there if the death itself is noticed.
    async with start_light() as worker:
        with anyio.fail_after(60):
            kind, problem = await outcome(load, worker, FORK + "os._exit(3)\n")
    assert kind is Kind.RUNTIME_ERROR
    assert problem.message == "the process ended during loading the kernel file (exit code 3)"


async def test_an_answer_given_just_before_death_still_counts(start_light: StartLight, load: Load) -> None:
    async with start_light() as worker:
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
        ("import os, signal\nos.killpg(0, signal.SIGKILL)\n", Kind.OUT_OF_MEMORY, "SIGKILL"),
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
        ("import shutil, os\nshutil.rmtree(os.getcwd())\n1 / 0\n", Kind.RUNTIME_ERROR, "ZeroDivisionError"),
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
async def test_every_end_is_one_outcome(start_light: StartLight, load: Load, text: str, kind: Kind, words: str) -> None:
    async with start_light() as worker:
        found, problem = await outcome(load, worker, text)
    assert found is kind
    assert words in problem.message
    assert len(problem.message) < 5000
    assert not worker.scratch.exists()


async def test_a_refusal_of_the_candidates_own_making_cannot_say_ok(start_light: StartLight, load: Load) -> None:
    text = "import sys\nraise sys.modules['tritonforge_worker.failures'].Refused('ok', 'load', 'all is well')\n"
    async with start_light() as worker:
        assert (await outcome(load, worker, text))[0] is Kind.CHEATING


async def test_megabytes_of_output_are_drained_and_only_their_end_is_kept(start_light: StartLight, load: Load) -> None:
    text = """\
import sys
for _ in range(64):
    sys.stdout.write("o" * 65536)
    sys.stderr.write("e" * 65536)
print("the last word")
1 / 0
"""
    async with start_light(output_bytes=1000) as worker:
        _, problem = await outcome(load, worker, text)
    assert worker.stdout.total_bytes == 64 * 65536 + len("the last word\n")
    assert worker.stderr.total_bytes == 64 * 65536
    kept = worker.stdout.text()
    assert kept.startswith("[4,193,318 bytes before this are not shown]\no")
    assert kept.endswith("the last word\n")
    assert len(kept) < 1100
    assert problem.output is not None
    assert "the last word" in problem.output


async def test_output_that_is_not_utf8_is_shown_all_the_same(start_light: StartLight, load: Load) -> None:
    async with start_light() as worker:
        _, problem = await outcome(load, worker, "import os\nos.write(1, b'\\xff\\xfe!')\n1 / 0\n")
    assert problem.output == "\ufffd\ufffd!"


async def test_the_environment_of_the_parent_is_not_visible(
    start_light: StartLight, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    text = "import os\nraise RuntimeError(f'{dict(os.environ)}' + open('/proc/self/environ').read())\n"
    async with start_light() as worker:
        _, problem = await outcome(load, worker, text)
    assert "hunter2" not in problem.message
    assert "SECRET_TOKEN" not in problem.message
    assert f"'TMPDIR': '{worker.scratch}'" in problem.message


async def test_a_worker_sees_no_descriptors_but_its_own(start_light: StartLight, load: Load, tmp_path: Path) -> None:
    with (tmp_path / "private").open("w") as private:
        os.set_inheritable(private.fileno(), True)
        text = "import os\nraise RuntimeError(' '.join(sorted(os.listdir('/proc/self/fd'), key=int)))\n"
        async with start_light() as worker:
            _, problem = await outcome(load, worker, text)
    # Standard input, output, error, the socket, and the one that lists them.
    assert len(problem.message.removeprefix("RuntimeError: ").split()) == 5


async def test_programs_that_a_candidate_starts_do_not_get_the_socket(start_light: StartLight, load: Load) -> None:
    text = """\
import os, subprocess
found = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True).stdout
raise RuntimeError(found)
"""
    async with start_light() as worker:
        _, problem = await outcome(load, worker, text)
    assert "/dev/null" in problem.message
    assert "socket:" not in problem.message


async def test_temporary_files_of_a_candidate_go_with_its_scratch(start_light: StartLight, load: Load) -> None:
    async with start_light() as worker:
        text = "import tempfile\nraise RuntimeError(tempfile.NamedTemporaryFile(delete=False).name)\n"
        _, problem = await outcome(load, worker, text)
        name = Path(problem.message.removeprefix("RuntimeError: "))
        assert name.parent == worker.scratch
    # With the folder, all that was in it.
    assert not worker.scratch.exists()


async def test_the_own_modules_of_a_candidates_folder_never_shadow_the_standard_library(
    start_light: StartLight, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    # Nothing else has imported this one, so that the path decides.
    (folder / "colorsys.py").write_text("raise RuntimeError('shadowed')\n")
    (folder / "neighbour.py").write_text("VALUE = 7\n")
    kernel = folder / "kernel.py"
    kernel.write_text("import colorsys, neighbour\nassert neighbour.VALUE == 7\ndef entry():\n    pass\n")
    async with start_light() as worker:
        await KernelWorker(worker).load(read_source(str(kernel), "kernel"), describe_task())
    assert not (folder / "__pycache__").exists()


async def test_cancelling_the_caller_kills_the_worker(start_light: StartLight, load: Load, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    kept: list[WorkerProcess] = []
    session, descriptor = 0, -1

    async def evaluate() -> None:
        async with start_light() as worker:
            kept.append(worker)
            await load(worker, f"import os, signal\nopen({str(fifo)!r}, 'w').write(str(os.getpid()))\nsignal.pause()\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(evaluate)
        # Returns once the candidate has written, that is while it hangs.
        session = int(await anyio.to_thread.run_sync(fifo.read_text))
        descriptor = os.pidfd_open(session)
        tasks.cancel_scope.cancel()
    assert await_end(descriptor)
    assert processes_of(session) == []
    assert not kept[0].scratch.exists()


async def test_abandoning_kills_every_worker_and_removes_its_scratch(start_light: StartLight, load: Load) -> None:
    async with start_light() as worker, start_light() as other:
        pids: list[int] = []
        for each in (worker, other):
            _, problem = await outcome(load, each, "import os\nraise RuntimeError(os.getpid())\n")
            pids.append(int(problem.message.removeprefix("RuntimeError: ")))
        descriptors = [os.pidfd_open(pid) for pid in pids]
        process.abandon()
        assert all(await_end(descriptor) for descriptor in descriptors)
        assert not worker.scratch.exists()
        assert not other.scratch.exists()


async def test_a_worker_that_is_let_go_ends_by_itself(start_light: StartLight, load: Load) -> None:
    async with start_light() as worker:
        await load(worker, "def entry():\n    pass\n")
        assert await worker.finish(30) == 0


async def test_a_worker_that_is_let_go_and_does_not_end_is_killed(start_light: StartLight, load: Load) -> None:
    async with start_light() as worker:
        await load(worker, "import atexit, signal\natexit.register(signal.pause)\ndef entry():\n    pass\n")
        assert await worker.finish(SHORT_S) is None
    assert not worker.scratch.exists()


async def test_a_first_frame_that_is_no_hello_is_cheating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "odd.py"
    script.write_text(
        "import json, os, sys\n"
        'os.write(json.loads(sys.argv[1])["socket"], b"TFW1\\0\\0\\0\\x0d" + b\'{"blobs": []}\')\n'
    )
    monkeypatch.setattr(process, "WORKER", script)
    with pytest.raises(Stopped) as caught:
        async with start_worker(sys.executable, "light", limits=Limits()) as worker:
            await worker.hello()
    assert caught.value.kind is Kind.CHEATING


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/no/such/python", "can't be started: No such file or directory"),
        ("/", "can't be started: Permission denied"),
        ("/etc/passwd", "can't be started: Permission denied"),
        ("/bin/true", "ended before it was ready (exit code 0)"),
        ("/bin/cat", "ended before it was ready (exit code 1)"),
    ],
)
async def test_what_is_no_interpreter_is_unavailable_with_a_remedy(python: str, words: str) -> None:
    environment = await probe(python, limits=Limits())
    assert environment.problem is not None
    assert environment.problem.stage == "environment"
    assert words in environment.problem.message
    assert "--python" in (environment.problem.likely_fix or "")


async def test_an_interpreter_that_never_answers_is_a_timeout(tmp_path: Path) -> None:
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 1000\n")
    endless.chmod(0o755)
    with pytest.raises(Stopped) as caught:
        async with start_worker(str(endless), "probe", limits=Limits(start_s=0.2)) as worker:
            await worker.hello()
    assert caught.value.kind is Kind.TIMEOUT
    assert "doctor" in (caught.value.problem.likely_fix or "")
