"""Compute Sanitizer's tools around real cold workers: a shell script stands in for it, a few lines for the worker."""

import contextlib
import json
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from tests.sandbox.light import Ground, KnownHost, look
from tritonforge.profiling.sanitizer.command import TOOLS
from tritonforge.sandbox import process
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Job
from tritonforge.sandbox.executors.cold import ColdExecutor
from tritonforge.sandbox.isolation import WORKER_FOLDER
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.task import Task
from tritonforge.server import sanitizing
from tritonforge.server.sanitizing import FINDINGS_SHOWN, SanitizerReport, sanitize

pytestmark = pytest.mark.anyio

RECORDINGS = Path(__file__).parents[1] / "recordings" / "sanitizer"
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
INPUTS = Values({"tuple": []}, [])
SPEC = Task.model_validate(
    {
        "entry": "entry", "title": None, "cases": {}, "hidden_cases": {}, "has_reference": True, "has_work": False,
        "in_place": [], "tolerances": {},
    }
)  # fmt: skip
HEAD = """\
#!/bin/sh
while [ "${1#--}" != "$1" ]; do
    case $1 in
        --tool) TOOL=$2;;
        --log-file) LOG=$2;;
    esac
    shift 2
done
export TOOL LOG
logs=$(dirname "$0")
"""
# The sanitizer itself writes its log when the program has ended.
AFTER = HEAD + '"$@"\ncode=$?\ncat "$logs/$TOOL.txt" > "$LOG"\nexit $code\n'
BEFORE = HEAD + 'cat "$logs/$TOOL.txt" > "$LOG"\nexec "$@"\n'
WORKER = f"""\
import importlib, importlib.util, json, os, signal, socket, sys
spec = importlib.util.spec_from_file_location("worker_main", {str(WORKER_FOLDER / "__main__.py")!r})
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
main._load_package()
frames = importlib.import_module("tritonforge_worker.frames")
parent = socket.socket(fileno=json.loads(sys.argv[1])["socket"])
frames.send(parent, {{"hello": {{"problem": None}}}})
asked, reply = [], {{"ok": True}}
while (frame := frames.receive(parent)) is not None:
    asked.append(frame.fields["op"])
    if asked[-1] == "load_kernel":
        kernel = frame.blobs[0].decode()
    if asked[-1] == "run_once":
        exec(kernel)
    frames.send(parent, reply)
"""
"""Executes the kernel file as the call of the entry."""
FAIL = """
reply = {{"ok": False, "failure": {{"stage": "run", "kind": None, "exception": "RuntimeError", "bases": ["Exception"],
    "message": {message}, "file": None, "line": None, "excerpt": None}}}}
"""


class OnCpu(ColdExecutor):
    """Takes jobs for a GPU and gives them workers without one."""

    @contextlib.asynccontextmanager
    async def submit(self, job: Job) -> AsyncGenerator[WorkerProcess]:
        async with super().submit(replace(job, on_gpu=False)) as worker:
            yield worker


class Tasks:
    """Stands in for the task's worker."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []

    async def make_inputs(self, case: str, seed: int) -> Values:
        self.made.append((case, seed))
        return INPUTS


Check = Callable[..., Any]


@pytest.fixture(scope="module", params=["cold sealed", "cold unsealed"])
async def ground(request: pytest.FixtureRequest) -> Ground:
    return await look(request.param)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(executable: str, name: str, options: dict[str, Any]) -> list[str]:
        if name != "serve":
            return process.program(executable, name, options)
        return [executable, "-P", "-c", WORKER, json.dumps(options)]

    monkeypatch.setattr("tritonforge.sandbox.executors.cold.program", program)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """What the script copies for each tool; nothing is found."""
    os.chmod(tmp_path, 0o755)
    folder = tmp_path / "tool"
    folder.mkdir()
    for tool in TOOLS:
        (folder / f"{tool}.txt").write_text(CLEAN)
    return folder


@pytest.fixture
def check(ground: Ground, worker: None, logs: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Check a kernel under a script."""

    async def check(kernel: str, script: str = AFTER, tasks: Tasks | None = None, **limits: Any) -> SanitizerReport:
        tool = logs / "compute-sanitizer"
        tool.write_text(script)
        tool.chmod(0o755)
        monkeypatch.setenv("TRITONFORGE_SANITIZER", str(tool))
        async with OnCpu(KnownHost(ground, Limits(**limits))) as executor:
            services = cast(Any, SimpleNamespace(executor=executor))
            with anyio.fail_after(120):
                source = Source(kernel, "mine/candidate.py", None)
                return await sanitize(services, source, SPEC, cast(Any, tasks or Tasks()), "small", 7)

    return check


async def test_what_four_tools_find_comes_together_the_worst_first(check: Check, logs: Path) -> None:
    for tool in TOOLS:
        (logs / f"{tool}.txt").write_text((RECORDINGS / f"{tool}.txt").read_text())
    tasks = Tasks()
    report = await check("", tasks=tasks)
    assert report.tools == list(TOOLS)
    assert report.failures == {}
    assert [(found.tool, found.kind) for found in report.findings] == [
        ("memcheck", "invalid read"),
        ("racecheck", "race"),
        ("synccheck", "barrier"),
        ("initcheck", "uninitialized read"),
    ]
    # The candidate's file is named as the caller named it.
    assert [(found.file, found.line) for found in report.findings[::3]] == [
        ("mine/candidate.py", 22),
        ("mine/candidate.py", 31),
    ]
    assert tasks.made == [("small", 7)]


async def test_nothing_found_is_no_finding_and_no_failure(check: Check) -> None:
    report = await check("")
    assert report == SanitizerReport(case="small", tools=list(TOOLS), findings=[])


async def test_each_tool_has_one_call_and_an_allocator_that_hides_nothing(check: Check) -> None:
    told = "json.dumps([asked, os.environ['PYTORCH_NO_CUDA_MEMORY_CACHING'], os.environ['TOOL']])"
    report = await check(FAIL.format(message=told))
    asked = ["begin", "load_kernel", "set_inputs", "run_once"]
    assert report.failures == {tool: f"RuntimeError: {json.dumps([asked, '1', tool])}" for tool in TOOLS}


@pytest.mark.parametrize(
    "kernel", ["os._exit(6)", "os.kill(os.getpid(), signal.SIGABRT)", FAIL.format(message="'launch failure'")]
)
async def test_a_call_that_a_found_error_has_ended_is_no_failure_and_others_say_why(
    check: Check, logs: Path, kernel: str
) -> None:
    (logs / "memcheck.txt").write_text((RECORDINGS / "memcheck.txt").read_text())
    report = await check(kernel)
    assert [found.line for found in report.findings] == [22]
    assert report.failures.keys() == set(TOOLS) - {"memcheck"}
    assert all("ended during" in why or "launch failure" in why for why in report.failures.values())


async def test_a_call_that_never_ends_is_a_failure_of_each_tool(check: Check) -> None:
    report = await check("signal.pause()", request_s=3.0)
    assert report.tools == []
    assert report.failures.keys() == set(TOOLS)
    assert all("longer than 3 s" in why for why in report.failures.values())


async def test_a_tool_that_takes_too_long_in_all_is_ended(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizing, "TOOL_S", 3.0)
    report = await check("signal.pause()")
    assert report.failures == dict.fromkeys(TOOLS, "it took longer than 3 s")


async def test_a_sanitizer_that_does_not_end_is_not_waited_for(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizing, "FINISH_S", 1.0)
    report = await check("", script=HEAD + '"$@"\nwhile :; do read nothing; done < /dev/zero\n')
    assert report.failures == dict.fromkeys(TOOLS, "it did not end within 1 s after the call")


async def test_a_sanitizer_that_does_not_start_says_why(check: Check) -> None:
    report = await check("", script="#!/bin/sh\necho started\necho unknown option\nexit 255\n")
    assert report.tools == []
    assert report.failures.keys() == set(TOOLS)
    assert all("exit code 255" in why and "[unknown option]" in why for why in report.failures.values())


async def test_what_kept_one_tool_from_checking_is_told(check: Check, logs: Path) -> None:
    trouble = "Error: Device not supported."
    (logs / "racecheck.txt").write_text(f"========= COMPUTE-SANITIZER\n========= {trouble}\n")
    report = await check("")
    assert report.tools == ["memcheck", "initcheck", "synccheck"]
    assert report.failures == {"racecheck": trouble}


async def test_only_the_worst_findings_are_shown(check: Check, logs: Path) -> None:
    head = "========= Invalid __global__ {} of size 4 bytes\n=========     at k{}+0x10\n"
    reads = [head.format("read", number) for number in range(FINDINGS_SHOWN + 4)]
    (logs / "memcheck.txt").write_text("".join([*reads, head.format("write", 99)]) + CLEAN)
    report = await check("")
    assert report.findings[0].kernel == "k99"
    assert (len(report.findings), report.findings_omitted) == (FINDINGS_SHOWN, 5)


@pytest.mark.parametrize(
    "harm",
    [
        "os.symlink(os.environ['LOGS'] + '/memcheck.txt', log)",
        "os.mkfifo(log)",
        "os.mkdir(log)",
        "open(log, 'w').write(' ' * (2 << 20) + '\\n' + open(os.environ['LOGS'] + '/memcheck.txt').read())",
        "open(log, 'wb').write(bytes(range(256)) * 100)",
        "pass",
    ],
)
async def test_what_a_kernel_puts_in_the_place_of_the_log_is_neither_followed_nor_believed_nor_waited_for(
    check: Check, harm: str
) -> None:
    kernel = f"log = os.environ['LOG']\nos.remove(log)\n{harm}\n"
    report = await check(kernel, script=BEFORE.replace("export", "export LOGS=$(dirname $0)\nexport"))
    assert (report.tools, report.findings) == ([], [])
    assert report.failures == dict.fromkeys(TOOLS, "it ended without a summary in its log")


async def test_without_a_sanitizer_nothing_is_started_and_the_remedy_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITONFORGE_SANITIZER", str(tmp_path / "gone"))
    tasks = Tasks()
    with pytest.raises(Stopped) as caught:
        await sanitize(cast(Any, None), Source("", "kernel.py", None), SPEC, cast(Any, tasks), "small", 0)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "TRITONFORGE_SANITIZER" in (caught.value.problem.likely_fix or "")
    assert tasks.made == []
