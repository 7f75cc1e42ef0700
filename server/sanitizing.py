"""Checks one call of an entry under Compute Sanitizer: its four tools side by side, each around a worker of its own."""

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import anyio

from ..profiling.sanitizer.command import ENVIRONMENT, TOOLS, Tool, command, find_sanitizer
from ..profiling.sanitizer.report import CANDIDATE_FILE, Finding, Report, parse, printable, ranked
from ..sandbox.errors import Stopped
from ..sandbox.outcome import Kind, Problem
from ..sandbox.replies import Values
from ..sandbox.scratch import scratch_folder
from ..sandbox.source import Source
from ..sandbox.task import Task
from ..sandbox.wire import Wire
from ..sandbox.workers import TaskWorker, gpu_worker
from .services import Services

FINDINGS_SHOWN: Final = 10
LOG_LIMIT_BYTES: Final = 1 << 20
"""Of a log, which the candidate can write to as well; what the sanitizer writes itself is far below."""
TOOL_S: Final = 300.0
"""All that one tool takes: some 12 s of start, and a call that is 10 to 100 times as slow as without it."""
FINISH_S: Final = 60.0
"""Until the sanitizer has written its log, after the last call."""


class SanitizerReport(Wire):
    """What Compute Sanitizer found in one call of the entry.

    It helps whoever writes the kernel and proves nothing about a hostile one, which could change the logs.
    """

    case: str
    tools: list[Tool]
    """Those that ran to their end or found something."""
    findings: list[Finding]
    """The worst first."""
    findings_omitted: int = 0
    """Further findings that are not listed."""
    elsewhere: int = 0
    """Errors in torch's own and libraries' kernels and in CUDA calls, which are not listed."""
    failures: dict[str, str] = {}
    """Why a tool could not run, or not check everything, by its name."""


async def sanitize(
    services: Services, kernel_source: Source, spec: Task, tasks: TaskWorker, case: str, seed: int
) -> SanitizerReport:
    """Run the entry once under each tool, all on the same inputs.

    Args:
        services: where workers come from; the GPU's turn must be the caller's.
        kernel_source: the candidate; it is expected to load and to run, for what fails is only told as a reason.
        spec: its task.
        tasks: the worker that has loaded the task.
        case: a case of the task; a small one is enough, and racecheck takes long over a large one.
        seed: of the inputs.

    Raises:
        Stopped: ``unavailable``, where there is no compute-sanitizer; any failure of `make_inputs`.
    """
    sanitizer = find_sanitizer()
    if sanitizer is None:
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="environment",
                message="Compute Sanitizer (compute-sanitizer) was not found on PATH or in its usual places",
                likely_fix="Install it (it comes with the CUDA toolkit; its own package is cuda-sanitizer-<version>), "
                "or set TRITONFORGE_SANITIZER to its path.",
            ),
        )
    values = await tasks.make_inputs(case, seed)
    reports: dict[Tool, Report] = {}
    failures: dict[Tool, str] = {}

    async def check(tool: Tool) -> None:
        reports[tool], failure = await _check(services, str(sanitizer), tool, kernel_source, spec, values)
        if failure is not None:
            failures[tool] = failure

    async with anyio.create_task_group() as checks:
        for tool in TOOLS:
            checks.start_soon(check, tool)
    found = [finding for tool in TOOLS for finding in reports[tool].findings]
    shown = [
        finding.model_copy(update={"file": kernel_source.shown_as}) if finding.file == CANDIDATE_FILE else finding
        for finding in ranked(found)[:FINDINGS_SHOWN]
    ]
    return SanitizerReport(
        case=case,
        # One whose program was killed may still have written a summary.
        tools=[tool for tool in TOOLS if reports[tool].findings or tool not in failures],
        findings=shown,
        findings_omitted=len(found) - len(shown),
        elsewhere=sum(report.elsewhere for report in reports.values()),
        failures={tool: failures[tool] for tool in TOOLS if tool in failures},
    )


async def _check(
    services: Services, sanitizer: str, tool: Tool, kernel_source: Source, spec: Task, values: Values
) -> tuple[Report, str | None]:
    """One tool's report, and why it is none or not a whole one."""
    async with scratch_folder() as folder:
        log = folder / f"{tool}.txt"
        wrapper = command(sanitizer, tool, log)
        ended = f"it took longer than {TOOL_S:g} s"
        with anyio.move_on_after(TOOL_S):
            ended = await _run(services, wrapper, folder, kernel_source, spec, values)
        # Nothing that could write to it is left.
        report = await anyio.to_thread.run_sync(_read, log, tool)
    if report.trouble is not None:
        return report, report.trouble
    if report.findings:
        # An error that a tool has found may well have ended the call.
        return report, None
    return report, ended or (None if report.total is not None else "it ended without a summary in its log")


async def _run(
    services: Services, wrapper: list[str], folder: Path, kernel_source: Source, spec: Task, values: Values
) -> str | None:
    """One call of the entry in a worker that a tool has started; how that failed, if it did."""
    failure = None
    try:
        async with gpu_worker(
            services.executor, wrapper=wrapper, writable=str(folder), environment=ENVIRONMENT
        ) as worker:
            try:
                await worker.load(kernel_source, spec)
                await worker.set_inputs(values)
                await worker.run_once()
            except Stopped as stopped:
                if stopped.kind is Kind.TIMEOUT:
                    raise
                failure = _words(stopped)
            # Also a tool whose program has failed writes what it found when that ends.
            if await worker.process.finish(FINISH_S) is None and failure is None:
                failure = f"it did not end within {FINISH_S:g} s after the call"
    except Stopped as stopped:
        return failure or _words(stopped)
    return failure


def _words(stopped: Stopped) -> str:
    """Why a worker stopped, with what was printed last: a sanitizer that does not start says why there."""
    last = (stopped.problem.output or "").strip().rpartition("\n")[2]
    return printable(stopped.problem.message) + (f" [{printable(last, 200)}]" if last else "")


def _read(path: Path, tool: Tool) -> Report:
    """What a log says; nothing where the candidate has put something else in its place."""
    data = b""
    # Neither is a link followed elsewhere, nor a pipe waited for.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                with open(descriptor, "rb", closefd=False) as file:
                    data = file.read(LOG_LIMIT_BYTES)
        finally:
            os.close(descriptor)
    return parse(data.decode("utf-8", errors="replace"), tool)
