"""Nsight Compute around a worker: what is refused, what its end means, and what is believed of its report."""

import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonforge.profiling.ncu.command import REPORT
from tritonforge.profiling.ncu.levels import LEVELS
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Job
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.protocol import Frame
from tritonforge.sandbox.workers import KernelWorker
from tritonforge.server.nsight_compute import Collected, Profiler, find_profiler
from tritonforge.server.services import Services

pytestmark = pytest.mark.anyio
DURATION = "gpu__time_duration.sum"
LAUNCH: dict[str, Any] = {"kernel": "k", "metrics": {DURATION: {"value": 5.0, "unit": "ns"}}, "rules": [], "files": []}
FORBIDDEN = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that tells a good version, with its reader beside it."""
    found = program(tmp_path / "nsight/ncu", "echo Version 2025.3.1.0")
    (tmp_path / "nsight/extras/python").mkdir(parents=True)
    (tmp_path / "nsight/extras/python/ncu_report.py").write_text("")
    monkeypatch.setenv("TRITONFORGE_NCU", str(found))
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    return found


async def refusal() -> Problem:
    with pytest.raises(Stopped) as caught:
        await find_profiler()
    assert caught.value.kind is Kind.UNAVAILABLE
    assert caught.value.problem.likely_fix
    return caught.value.problem


async def test_the_installation_is_found_with_its_reader(ncu: Path) -> None:
    assert await find_profiler() == Profiler(ncu, "2025.3.1", ncu.parent / "extras/python")


async def test_without_ncu_the_remedy_says_where_it_comes_from(ncu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONFORGE_NCU", str(ncu.parent / "gone"))
    problem = await refusal()
    assert "not found" in problem.message
    assert "CUDA toolkit" in str(problem.likely_fix)


async def test_an_old_ncu_is_refused_with_both_versions(ncu: Path) -> None:
    program(ncu, "echo Version 2022.4.1.0")
    message = (await refusal()).message
    assert "2022.4.1" in message
    assert "2023.3.0" in message


async def test_what_tells_no_version_is_no_ncu(ncu: Path) -> None:
    program(ncu, "echo hello")
    assert "no version" in (await refusal()).message


async def test_an_ncu_without_its_reader_is_refused(ncu: Path) -> None:
    (ncu.parent / "extras/python/ncu_report.py").unlink()
    assert "ncu_report.py" in (await refusal()).message


async def test_two_profilers_exclude_each_other(ncu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/other.so")
    assert "CUDA_INJECTION64_PATH" in (await refusal()).message


class Processes:
    """An executor of made-up processes: one that ncu starts, and one that reads what it wrote."""

    def __init__(self, folder: Path, *, code: int | None = 0, log: str = "", report: bytes | None = b"report") -> None:
        self.folder, self.code, self.log = folder, code, log
        self.process = self
        self.jobs: list[Job] = []
        self.read: list[dict[str, Any]] = []
        self.answer: bytes = json.dumps([LAUNCH]).encode()
        self.failure: Stopped | None = None
        self.ended: Callable[[], None] = lambda: None
        if report is not None:
            (folder / REPORT).write_bytes(report)

    @asynccontextmanager
    async def submit(self, job: Job) -> AsyncGenerator[Any]:
        self.jobs.append(job)
        yield self

    async def begin(self, role: str, device: str, target: None) -> None:
        assert role == "report"

    async def finish(self, timeout_s: float) -> int | None:
        self.ended()
        return self.code

    def output(self) -> str:
        return self.log

    async def request(self, operation: str, blobs: list[bytes] | None = None, **fields: Any) -> Frame:
        if operation == "load_reader":
            return Frame({"ok": True}, [])
        if self.failure is not None:
            raise self.failure
        assert operation == "read_report"
        self.read.append({"data": (blobs or [b""])[0], **fields})
        return Frame({"ok": True, "launches": 0, "left_out": 2}, [self.answer])


async def collect(processes: Processes, *, failure: Stopped | None = None, **changed: Any) -> Collected:
    @asynccontextmanager
    async def job(worker: KernelWorker) -> AsyncGenerator[None]:
        if failure is not None:
            raise failure
        yield

    services = cast(Services, SimpleNamespace(executor=processes))
    settings: dict[str, Any] = {
        "wanted": [DURATION], "launches": 3, "ahead": True, "texts": lambda: False,
    } | changed  # fmt: skip
    return await Profiler(Path("/ncu"), "2025.3.1", Path("/reader")).collect(services, LEVELS["quick"], job, **settings)


async def test_a_report_is_kept_as_it_is_and_read_elsewhere(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    collected = await collect(processes, kernels=["k"])
    assert collected.data == b"report"
    assert collected.report.launches[0].metrics[DURATION].value == 5.0
    assert collected.report.left_out == 2
    assert processes.read == [
        {"data": b"report", "reader_folder": "/reader", "wanted": [DURATION], "launches_limit": 3, "texts": False}
    ]
    profiled = next(job for job in processes.jobs if job.profiler)
    assert (profiled.on_gpu, profiled.ahead, profiled.profiler[0]) == (True, True, "/ncu")
    assert "regex:^(k)$" in profiled.profiler
    # One more than is read tells whether there are more.
    assert profiled.profiler[profiled.profiler.index("--launch-count") + 1] == "4"


async def outcome(processes: Processes, **changed: Any) -> Stopped:
    with pytest.raises(Stopped) as caught:
        await collect(processes, **changed)
    return caught.value


async def test_what_ncu_says_at_its_end_is_told_with_the_remedy(tmp_path: Path) -> None:
    stopped = await outcome(Processes(tmp_path, code=1, log=FORBIDDEN, report=None))
    assert stopped.kind is Kind.UNAVAILABLE
    assert "NVreg_RestrictProfilingToAdminUsers" in str(stopped.problem.likely_fix)


async def test_a_job_that_dies_of_ncus_failure_is_told_as_that(tmp_path: Path) -> None:
    died = Stopped(Kind.RUNTIME_ERROR, Problem(stage="run", message="it ended", output=FORBIDDEN))
    stopped = await outcome(Processes(tmp_path), failure=died)
    assert stopped.kind is Kind.UNAVAILABLE
    assert "administrators" in stopped.problem.message


async def test_a_kernel_that_fails_under_the_profiler_is_at_fault_and_did_not_end_by_itself(tmp_path: Path) -> None:
    log = '==PROF== Profiling "scan": 0%....100% - 1 pass\n==ERROR== LaunchFailed\n'
    died = Stopped(Kind.RUNTIME_ERROR, Problem(stage="run", message="the process ended (exit code 9)", output=log))
    stopped = await outcome(Processes(tmp_path), failure=died)
    assert stopped.kind is Kind.RUNTIME_ERROR
    assert "kernel scan failed on the GPU" in stopped.problem.message
    assert "sanitize=true" in str(stopped.problem.likely_fix)


async def test_a_job_that_fails_by_itself_is_told_as_it_is(tmp_path: Path) -> None:
    failed = Stopped(Kind.COMPILE_ERROR, Problem(stage="compile", message="no such name", output=FORBIDDEN))
    assert await outcome(Processes(tmp_path), failure=failed) is failed


async def test_nothing_in_the_range_is_the_kernels_doing(tmp_path: Path) -> None:
    log = "==WARNING== No kernels were profiled."
    assert (await outcome(Processes(tmp_path, log=log, report=None))).kind is Kind.REJECTED


async def test_an_ncu_that_does_not_end_is_a_timeout(tmp_path: Path) -> None:
    assert (await outcome(Processes(tmp_path, code=None))).kind is Kind.TIMEOUT


@pytest.mark.parametrize("kind", [Kind.RUNTIME_ERROR, Kind.TIMEOUT, Kind.OUT_OF_MEMORY])
async def test_a_reader_that_fails_is_not_the_kernels_doing(tmp_path: Path, kind: Kind) -> None:
    processes = Processes(tmp_path)
    processes.failure = Stopped(kind, Problem(stage="profile", message="it died", likely_fix="Check offsets."))
    stopped = await outcome(processes)
    assert stopped.kind is Kind.UNAVAILABLE
    assert "it died" in stopped.problem.message
    assert "Nsight Compute" in str(stopped.problem.likely_fix)


async def test_nobody_else_measures_before_the_report_is_there(tmp_path: Path) -> None:
    order: list[str] = []
    processes = Processes(tmp_path)
    processes.ended = lambda: order.append("ncu ended")

    @asynccontextmanager
    async def job(worker: KernelWorker) -> AsyncGenerator[None]:
        yield
        order.append("the turn is over")

    services = cast(Services, SimpleNamespace(executor=processes))
    profiler = Profiler(Path("/ncu"), "2025.3.1", Path("/reader"))
    await profiler.collect(services, LEVELS["quick"], job, wanted=[], launches=1, ahead=False, texts=lambda: False)
    assert order == ["ncu ended", "the turn is over"]


@pytest.mark.parametrize("how", ["missing", "empty", "a link", "a pipe", "a folder"])
async def test_what_is_no_file_of_its_own_is_not_read(tmp_path: Path, how: str) -> None:
    processes = Processes(tmp_path, report=b"" if how == "empty" else None)
    if how == "a link":
        secret = tmp_path / "secret"
        secret.write_text("secret")
        (tmp_path / REPORT).symlink_to(secret)
    if how == "a pipe":
        os.mkfifo(tmp_path / REPORT)
    if how == "a folder":
        (tmp_path / REPORT).mkdir()
    before = os.listdir("/proc/self/fd")
    stopped = await outcome(processes)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert stopped.kind is Kind.UNAVAILABLE
    assert processes.read == []


@pytest.mark.parametrize(
    "answer", [b"no json", b'{"launches": 1}', b"[{}]", b"[" * 100_000, json.dumps([LAUNCH | {"x": 1}]).encode()]
)
async def test_a_reader_that_was_taken_over_is_not_believed(tmp_path: Path, answer: bytes) -> None:
    processes = Processes(tmp_path)
    processes.answer = answer
    assert (await outcome(processes)).kind is Kind.CHEATING
