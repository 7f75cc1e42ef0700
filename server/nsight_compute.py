"""Nsight Compute as this server uses it: found, started around a worker, and what it wrote read by another worker."""

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from ..profiling.ncu.chip import ChipMetrics, parse
from ..profiling.ncu.command import OLDEST, REPORT, command, find_ncu, find_reader, parse_version, query_command
from ..profiling.ncu.failure import NcuFailure, explain
from ..profiling.ncu.levels import Level
from ..sandbox.errors import Stopped
from ..sandbox.outcome import Kind, Problem
from ..sandbox.profile_facts import Report
from ..sandbox.profilers import UNREADABLE, ReportWorker, profiled_worker, report_worker
from ..sandbox.workers import KernelWorker
from .services import Services

CHIPS: Final = {80: "ga100", 86: "ga102", 89: "ad102", 90: "gh100", 100: "gb100", 103: "gb110", 120: "gb202"}
"""Compute capability -> what ncu calls the chip, for lists of its counters."""
VERSION_S: Final = 30.0
QUERY_S: Final = 60.0
FINISH_S: Final = 120.0
REPORT_BYTES_LIMIT: Final = 256 << 20
ENDINGS: Final = frozenset({Kind.RUNTIME_ERROR, Kind.UNAVAILABLE, Kind.OUT_OF_MEMORY, Kind.CHEATING})
"""How a worker's sudden end is reported."""
TARGET_CODES: Final = frozenset({"target_failed", "nothing_profiled", "killed", "other"})
"""What ncu says where the program that it runs is at fault."""
_KINDS: Final = {"nothing_profiled": Kind.REJECTED, "launch_failed": Kind.RUNTIME_ERROR}
"""What is no fault of this machine."""
INJECTIONS: Final = ("CUDA_INJECTION64_PATH",)
"""Variables by which another tool puts itself into every CUDA program."""
LOG_SHOWN: Final = 1500

Job = Callable[[KernelWorker], AbstractAsyncContextManager[None]]
"""What the worker is told to do; left when its report has been written: until then nobody else may measure."""


class Collected(NamedTuple):
    """A report as ncu wrote it, and what was read out of it."""

    data: bytes
    report: Report


class Profiler(NamedTuple):
    """The installation that is used."""

    ncu: Path
    version: str
    reader: Path
    """Folder of NVIDIA's Python module that reads reports."""

    async def collect(
        self,
        services: Services,
        level: Level,
        job: Job,
        *,
        wanted: Sequence[str],
        launches: int,
        kernels: Sequence[str] = (),
        ahead: bool,
        texts: Callable[[], bool],
    ) -> Collected:
        """Do a job in a worker under ncu, and read what was counted.

        Args:
            services: of this server.
            level: what is counted.
            job: entered with the worker; does what is to be profiled, and is left when the report is there.
            wanted: names of the metrics to read.
            launches: how many launches are profiled, from the first.
            kernels: functions whose launches are; all of them without it.
            ahead: keep such a worker ready.
            texts: whether machine instructions are read as well, asked when the report is there.

        Raises:
            Stopped: how the job ended, or ``unavailable`` with the remedy where ncu failed.
        """
        # One more than is read: so it shows whether there are more.
        line = command(str(self.ncu), level.collect, kernels=kernels, launch_count=launches + 1)
        async with _Reading(services, self.reader) as reading:
            try:
                async with profiled_worker(services.executor, line, ahead=ahead) as worker, job(worker):
                    data = await self._finished(worker)
            except Stopped as stopped:
                # Where ncu itself gave up, the worker's end is only what followed from it.
                failure = explain(stopped.problem.output or "", 1)
                if stopped.kind in ENDINGS and failure is not None and failure.code not in TARGET_CODES:
                    raise _stopped(failure) from stopped
                raise
            return Collected(data, await reading.read(data, wanted, launches, texts=texts()))

    async def _finished(self, worker: KernelWorker) -> bytes:
        code = await worker.process.finish(FINISH_S)
        log = worker.process.output()
        assert worker.process.folder is not None
        if code is None:
            message = f"ncu did not write its report within {FINISH_S:g} s"
            raise Stopped(Kind.TIMEOUT, Problem(stage="profile", message=message, output=log[-LOG_SHOWN:]))
        data = await anyio.to_thread.run_sync(_read, worker.process.folder / REPORT)
        if code == 0 and data is not None:
            return data
        failure = explain(log, code)
        if failure is not None:
            raise _stopped(failure)
        message = f"ncu wrote no report that can be read (exit code {code})"
        raise Stopped(Kind.UNAVAILABLE, Problem(stage="profile", message=message, output=log[-LOG_SHOWN:] or None))


class _Reading:
    """A reader of reports that gets ready beside what it is for."""

    def __init__(self, services: Services, folder: Path) -> None:
        self._services, self._folder = services, folder
        self._ready, self._done = anyio.Event(), anyio.Event()
        self._reader: ReportWorker | None = None
        self._failure: Stopped | None = None

    async def __aenter__(self) -> "_Reading":
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._prepare)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._done.set()
        self._tasks.cancel_scope.cancel()
        # Given no error: the group would wrap it, and it goes on by itself.
        await self._tasks.__aexit__(None, None, None)

    async def _prepare(self) -> None:
        try:
            async with report_worker(self._services.executor) as reader:
                await reader.prepare(self._folder)
                self._reader = reader
                self._ready.set()
                await self._done.wait()
        except Stopped as stopped:
            self._failure = stopped
        finally:
            self._ready.set()

    async def read(self, data: bytes, wanted: Sequence[str], launches: int, *, texts: bool) -> Report:
        """What the report says.

        Raises:
            Stopped: it can't be read.
        """
        await self._ready.wait()
        try:
            if self._reader is None:
                assert self._failure is not None
                raise self._failure
            return await self._reader.read(
                data, reader_folder=self._folder, wanted=wanted, launches_limit=launches, texts=texts
            )
        except Stopped as stopped:
            if stopped.kind in {Kind.CHEATING, Kind.UNAVAILABLE}:
                raise
            # Only NVIDIA's code runs there: the kernel is not to blame.
            message = f"NVIDIA's reader of reports failed: {stopped.problem.message}"[:500]
            raise _unavailable(message, UNREADABLE) from stopped


async def find_profiler() -> Profiler:
    """The ncu of this machine.

    Raises:
        Stopped: ``unavailable``, where there is none that can be used, with the remedy.
    """
    ncu = find_ncu()
    if ncu is None:
        raise _unavailable(
            "Nsight Compute (ncu) was not found on PATH or in its usual places",
            "Install it (it comes with the CUDA toolkit, or alone from NVIDIA), or set TRITONFORGE_NCU to its path. "
            "With a task, level='quick' does without it.",
        )
    active = next((name for name in INJECTIONS if os.environ.get(name)), None)
    if active is not None:
        raise _unavailable(
            f"another profiler is active in this server's environment ({active} is set), and two exclude each other",
            f"Start the server without {active}: not under ncu, nsys or compute-sanitizer.",
        )
    version = await ncu_version(ncu)
    if version < OLDEST:
        raise _unavailable(
            f"{ncu} is version {_dotted(version)}; {_dotted(OLDEST)} or newer is needed",
            "Install a newer Nsight Compute, and set TRITONFORGE_NCU to its ncu if another comes first on PATH.",
        )
    reader = find_reader(ncu)
    if reader is None:
        raise _unavailable(
            f"NVIDIA's reader of reports (extras/python/ncu_report.py) was not found beside {ncu}",
            "Install the whole Nsight Compute package (for Debian and Ubuntu: nsight-compute-2025.3.1 or the like), "
            "and set TRITONFORGE_NCU to its own ncu.",
        )
    return Profiler(ncu, _dotted(version), reader)


async def ncu_version(ncu: Path) -> tuple[int, int, int]:
    """Its version.

    Raises:
        Stopped: ``unavailable``, where it can't be run or does not tell.
    """
    remedy = "Set TRITONFORGE_NCU to an ncu that prints its version with --version."
    try:
        with anyio.fail_after(VERSION_S):
            done = await anyio.run_process([str(ncu), "--version"], check=False)
    except (OSError, TimeoutError) as error:
        raise _unavailable(f"{ncu} can't be run: {str(error) or 'no answer'}", remedy) from error
    version = parse_version(done.stdout.decode("utf-8", errors="replace"))
    if version is None:
        raise _unavailable(f"{ncu} --version tells no version", remedy)
    return version


async def chip_metrics(profiler: Profiler, capability: int) -> ChipMetrics:
    """What a GPU can count.

    Raises:
        Stopped: ``unavailable``, for a GPU whose counters ncu does not list.
    """
    chip = CHIPS.get(capability)
    if chip is None:
        raise _unavailable(
            f"no list of counters is known for compute capability {capability / 10:.1f}", "Leave out metrics."
        )
    try:
        with anyio.fail_after(QUERY_S):
            done = await anyio.run_process(query_command(str(profiler.ncu), chip), check=False)
    except (OSError, TimeoutError) as error:
        why = str(error) or f"no answer within {QUERY_S:g} s"
        raise _unavailable(f"{profiler.ncu} can't be asked for counters: {why}", "Leave out metrics.") from error
    try:
        return parse(done.stdout.decode("utf-8", errors="replace"))
    except ValueError as error:
        raise _unavailable(
            f"{profiler.ncu} {profiler.version} lists no counters of chip {chip}: {error}",
            "Install a newer Nsight Compute, or leave out metrics.",
        ) from error


def _read(path: Path) -> bytes | None:
    """The report, which foreign code could write to as well: no link is followed, and no more is read than may be."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(REPORT_BYTES_LIMIT + 1)
        finally:
            os.close(descriptor)
        return data if 0 < len(data) <= REPORT_BYTES_LIMIT else None
    return None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _unavailable(message: str, fix: str) -> Stopped:
    return Stopped(Kind.UNAVAILABLE, Problem(stage="profile", message=message, likely_fix=fix))


def _stopped(failure: NcuFailure) -> Stopped:
    kind = _KINDS.get(failure.code, Kind.UNAVAILABLE)
    problem = Problem(
        stage="profile", message=failure.message, likely_fix=failure.remedy, output=failure.evidence or None
    )
    return Stopped(kind, problem)
