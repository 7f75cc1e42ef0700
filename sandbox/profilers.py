"""Workers that profile: under a profiler, by themselves, and those that read what a profiler wrote."""

import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio

from .errors import Stopped
from .executors.base import Executor, Job
from .outcome import Kind, Problem
from .profile_facts import Counted, Report, Uncounted, Unread
from .replies import Replies, fields_of, malformed
from .workers import KernelWorker

REPORT_BYTES_LIMIT: Final = 64 << 20
"""Of what a worker tells of a report: a full one of ten launches takes about 5 MiB."""


_NEWER_CUPTI: Final = (
    "Install a torch with CUDA 12.6 or newer into the workers' environment: CUPTI comes with it. Nsight Compute counts "
    "without it."
)
_REMEDIES: Final = {
    "no_cupti": _NEWER_CUPTI,
    "cupti_too_old": _NEWER_CUPTI,
    "counters_forbidden": "On the host, put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
    "/etc/modprobe.d/nvidia-profiling.conf and reload the nvidia module or reboot. Running the server as root is not "
    "enough: a worker has no privileges. Timing and static diagnosis work without counters.",
    "counters_busy": "Stop it (for DCGM: `dcgmi profile --pause`, afterwards `dcgmi profile --resume`) or wait until "
    "it is done, then profile again.",
    "unsupported_gpu": "For a GPU newer than the workers' CUDA, install a torch with a newer CUDA; on virtual devices, "
    "MIG slices and Windows Subsystem for Linux there may be no counters at all. Timing and static diagnosis work "
    "without them.",
    "other": "Profile again; where it stays, look up CUPTI's error name, and check that driver and torch's CUDA belong "
    "together. Timing and static diagnosis work without counters.",
}
"""What to do about an obstacle, by `Uncounted.code`."""


UNREADABLE: Final = (
    "Install the whole Nsight Compute package and point TRITONFORGE_NCU to its ncu; level='quick' does without it."
)


class ReportWorker(Replies):
    """Reads what a profiler wrote beside foreign code, in a process that has nothing else."""

    async def prepare(self, reader_folder: Path) -> None:
        """Load NVIDIA's module, which takes longer than reading a report with it."""
        await self.process.request("load_reader", reader_folder=str(reader_folder))

    async def read(
        self, report: bytes, *, reader_folder: Path, wanted: Sequence[str], launches_limit: int, texts: bool
    ) -> Report:
        """What a report of Nsight Compute says.

        Args:
            report: the file's bytes.
            reader_folder: where NVIDIA's module `ncu_report` lies.
            wanted: names of the metrics that are told.
            launches_limit: how many launches are read.
            texts: read the texts of machine instructions too, which takes 0.4 s a launch.

        Raises:
            Stopped: ``unavailable``, where the reader can't be loaded or the file is no report.
        """
        frame = await self.process.request(
            "read_report",
            [report],
            reader_folder=str(reader_folder),
            wanted=list(wanted),
            launches_limit=launches_limit,
            texts=texts,
        )
        if "unreadable" in frame.fields:
            why = self.checked(Unread, "reason", {"reason": frame.fields["unreadable"]})
            raise Stopped(Kind.UNAVAILABLE, Problem(stage="profile", message=why.reason, likely_fix=UNREADABLE))
        blob: Any = frame.blobs[0] if frame.blobs else None
        if not isinstance(blob, bytes) or len(blob) > REPORT_BYTES_LIMIT:
            raise malformed("report", ValueError("its text is missing or too long"))
        # Tens of megabytes would keep everybody else waiting.
        return await anyio.to_thread.run_sync(self._parsed, blob, frame.fields.get("left_out"))

    def _parsed(self, text: bytes, left_out: Any) -> Report:
        try:
            launches: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise malformed("report", ValueError(f"its text is no JSON: {error}")) from error
        return self.checked(Report, "report", {"launches": launches, "left_out": left_out})


@contextlib.asynccontextmanager
async def profiled_worker(executor: Executor, command: Sequence[str], *, ahead: bool) -> AsyncGenerator[KernelWorker]:
    """A process that runs a kernel file on the GPU under a profiler, which writes into the process' own folder.

    Args:
        executor: where it comes from.
        command: the profiler's, with `{folder}` where the folder stands.
        ahead: such a worker may wait ready, and the next one is made ready behind this one.
    """
    async with executor.submit(Job("cuda", on_gpu=True, profiler=tuple(command), ahead=ahead)) as process:
        yield KernelWorker(process)


@contextlib.asynccontextmanager
async def report_worker(executor: Executor) -> AsyncGenerator[ReportWorker]:
    """A process that reads a profiler's report."""
    async with executor.submit(Job("report")) as process:
        yield ReportWorker(process)


async def count(worker: KernelWorker, metrics: Sequence[str], launches_limit: int) -> Counted:
    """What the GPU's counters say of one call of the entry, kernel by kernel, without Nsight Compute.

    Args:
        worker: an ordinary one on a GPU, which has its kernel file and inputs; it can be used on.
        metrics: names, as Nsight Compute has them.
        launches_limit: how many launches are told, from the first.

    Raises:
        Stopped: ``unavailable``, where this machine can't count; ``rejected``, where the entry launches nothing;
            ``unsupported``, where it does not launch the same kernels in each call; and how a call ended otherwise.
    """
    wanted = list(dict.fromkeys(metrics))
    frame = await worker.process.request("count", metrics=wanted, launches_limit=launches_limit)
    fields = fields_of(frame)
    if "unavailable" in fields:
        why = worker.checked(Uncounted, "reason", fields["unavailable"])
        problem = Problem(stage="profile", message=why.message, likely_fix=_REMEDIES[why.code])
        raise Stopped(Kind.UNAVAILABLE, problem)
    found = worker.checked(Counted, "counts", fields)
    if not found.answers(set(wanted), launches_limit):
        raise malformed("counts", ValueError("they are not what was asked for"))
    return found
