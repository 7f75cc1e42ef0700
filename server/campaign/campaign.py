"""Runs a campaign: a worker process for each GPU, what they tell, and the report."""

import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Final, Protocol

import anyio
from anyio.abc import ByteReceiveStream
from anyio.streams.buffered import BufferedByteReceiveStream

from ...sandbox import nvml
from ...sandbox.errors import rejected
from ..optimize.process import GRACE_S, SIGNALS, exited, started
from ..settings import Settings
from .adapting import record
from .events import Finished, Halted, Prepared, Preparing, Staged, Started, parse
from .folder import DEATHS_LIMIT, CampaignFolder, Frozen, is_through
from .model import Entry, KernelRecord
from .reasons import line as in_a_line
from .worker import HALTED, OK, PREPARE

FAILURES_LIMIT: Final = 3
"""So often in a row may a worker process end without a finished kernel before its GPU is given up."""
ALL: Final = "all"
LINE_BYTES: Final = 1 << 24
LOG_CHARACTERS: Final = 400
LOG_BYTES: Final = 4096


class Watches(Protocol):
    """Shows how far a campaign is."""

    def preparing(self, name: str, where: str | None) -> None: ...
    def prepared(self, name: str, cases: int) -> None: ...
    def started(self, name: str, where: str | None) -> None: ...
    def staged(self, name: str, stage: str) -> None: ...
    def finished(self, record: KernelRecord) -> None: ...
    def halted(self, where: str | None, why: str, kernels: Collection[str]) -> None: ...


def devices(wanted: str | None) -> list[nvml.GpuDevice]:
    """The GPUs to work on.

    Args:
        wanted: `all`, or numbers or uuids as CUDA_VISIBLE_DEVICES has them; None: the first, or none where there is
            none. Of the first and of all, those that CUDA_VISIBLE_DEVICES hides are left out.

    Raises:
        Stopped: ``rejected``: one that is not there.
    """
    try:
        found = nvml.devices()
        why = "no GPU is visible"
    except nvml.NvmlUnavailable as error:
        found, why = [], str(error).rstrip(".")
    seen = nvml.visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if wanted is None:
        return seen[:1]
    if not found or (wanted == ALL and not seen):
        raise rejected(
            "campaign",
            f"--gpus {wanted} asks for GPUs, and there is none here: {why}",
            fix="Leave --gpus out: results are then compared in the interpreter, and nothing is timed.",
        )
    if wanted == ALL:
        return seen
    chosen = nvml.visible(found, wanted)
    if len(chosen) != len([part for part in wanted.split(",") if part.strip()]):
        listed = ", ".join(f"{device.index} ({device.name}, {device.uuid})" for device in found)
        raise rejected("campaign", f"--gpus {wanted} names a GPU that is not here", fix=f"There are {listed}.")
    return chosen


class Campaign:
    """One sitting of a campaign."""

    def __init__(
        self,
        folder: CampaignFolder,
        frozen: Frozen,
        settings: Settings,
        watch: Watches,
        *,
        only_tasks: bool = False,
        worker: Sequence[str] = (sys.executable, "-m", "tritonforge.server.campaign.worker"),
    ) -> None:
        self.folder, self.frozen, self.watch = folder, frozen, watch
        self._only_tasks = only_tasks
        self._words = [*worker, str(folder.path), settings.model_dump_json(), *([PREPARE] if only_tasks else [])]
        self._entries = {entry.name: entry for entry in frozen.entries}
        self._prepared: set[str] = set()
        self.halted: list[str] = []
        """Why GPUs were given up."""
        self.interrupted: signal.Signals | None = None
        """What told it to end before it was through."""

    async def run(self, gpus: Sequence[nvml.GpuDevice]) -> None:
        """Work on each GPU, or without one, until nothing is left, no process can go on, or a signal says to end."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._until_signal, group.cancel_scope)
            healthy: list[nvml.GpuDevice | None] = list(gpus) or [None]
            while healthy:
                given_up = list[nvml.GpuDevice | None]()
                async with anyio.create_task_group() as keepers:
                    for gpu in healthy:
                        keepers.start_soon(self._keep, gpu, given_up)
                healthy = [gpu for gpu in healthy if gpu not in given_up]
                # The others have passed over what one that was given up had begun.
                if not given_up or self._only_tasks or not await anyio.to_thread.run_sync(self._left):
                    break
            group.cancel_scope.cancel()

    def _left(self) -> bool:
        """Whether there is a kernel that the campaign is not through with."""
        return len(self.folder.records(self.frozen)) < len(self.frozen.entries)

    async def _until_signal(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(*SIGNALS) as signals:
            async for number in signals:
                self.interrupted = signal.Signals(number)
                scope.cancel()
                return

    async def _keep(self, gpu: nvml.GpuDevice | None, given_up: list[nvml.GpuDevice | None]) -> None:
        """A worker process on a GPU, and another one where it ends in the middle, as long as kernels get through."""
        name = None if gpu is None else f"GPU {gpu.index}"
        failures = 0
        while True:
            went, log = _Went(name), self._log(gpu)
            size = log.stat().st_size if log.exists() else 0
            code = await self._once(gpu, went)
            if code == OK:
                return
            failures = 0 if went.finished else failures + 1
            why, worked_on = went.why, went.working or went.preparing
            if code != HALTED or why is None:
                why = in_a_line(f"its process {_ended(code)}{_last(log, size)}", LOG_CHARACTERS)
            self.watch.halted(name, why, went.working)
            if code != HALTED:
                for kernel in sorted(worked_on):
                    await anyio.to_thread.run_sync(self._died, self._entries[kernel], why)
            if failures >= FAILURES_LIMIT:
                self.halted.append(f"{name or 'the worker'}: {why}")
                given_up.append(gpu)
                return

    async def _once(self, gpu: nvml.GpuDevice | None, went: "_Went") -> int:
        environment: Mapping[str, str] = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu.uuid}
        with self._log(gpu).open("ab") as log:
            async with (
                started(
                    self._words, folder=Path.cwd(), environment=environment, output=PIPE, errors=log, asks=True
                ) as process,
                anyio.create_task_group() as group,
            ):
                assert process.stdout is not None
                with anyio.CancelScope() as reading:

                    async def leave() -> None:
                        await exited(process)
                        # What it left behind may hold its output for ever.
                        await anyio.sleep(GRACE_S)
                        reading.cancel()

                    group.start_soon(leave)
                    await self._listen(process.stdout, went)
                await exited(process)
                group.cancel_scope.cancel()
            assert process.returncode is not None
            return process.returncode

    async def _listen(self, output: ByteReceiveStream, went: "_Went") -> None:
        lines = BufferedByteReceiveStream(output)
        try:
            while True:
                self._take(await lines.receive_until(b"\n", LINE_BYTES), went)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.ClosedResourceError):
            return
        except anyio.DelimiterNotFound:
            # Nothing that it should print: read on, so that it can go on.
            async for _ in output:
                pass

    def _take(self, line: bytes, went: "_Went") -> None:
        match parse(line):
            case Preparing(name=name) if name in self._entries:
                went.preparing.add(name)
                self.watch.preparing(name, went.where)
            case Prepared(name=name, cases=cases) if name in self._entries:
                went.preparing.discard(name)
                # Progress, but only once: where a GPU is lost, tasks that are there tell of none.
                went.finished += name not in self._prepared
                self._prepared.add(name)
                self.watch.prepared(name, cases)
            case Started(name=name) if name in self._entries:
                went.working.add(name)
                self.watch.started(name, went.where)
            case Staged(name=name, stage=stage):
                self.watch.staged(name, stage)
            case Finished(record=found) if found.name in self._entries:
                went.working.discard(found.name)
                went.preparing.discard(found.name)
                went.finished += 1
                self.watch.finished(found)
            case Halted(why=why):
                went.why = in_a_line(why)
            case _:
                pass

    def _died(self, entry: Entry, why: str) -> None:
        """A process has ended while it worked on a kernel: not for ever."""
        there = self.folder.record(entry.name)
        if there is not None and is_through(there, self.frozen.plan):
            # It was through with it, and could not say so any more.
            self.watch.finished(there)
            return
        begun = self.folder.begun(entry.name)
        if begun.deaths + 1 < DEATHS_LIMIT:
            self.folder.begin(entry.name, begun.model_copy(update={"deaths": begun.deaths + 1}))
            return
        lost = record(entry, self.frozen.plan, self.folder.adaptation(entry.name)).model_copy(
            update={
                "outcome": "failed",
                "failure_kind": "process_died",
                "why": in_a_line(f"{DEATHS_LIMIT} times the process ended that worked on it; the last time, {why}"),
                "run_id": begun.run_id,
            }
        )
        self.folder.put(lost)
        self.watch.finished(lost)

    def _log(self, gpu: nvml.GpuDevice | None) -> Path:
        return self.folder.path / f"worker-{'cpu' if gpu is None else gpu.index}.log"


class _Went:
    """How one worker process went."""

    def __init__(self, where: str | None) -> None:
        self.where = where
        """Name of its GPU."""
        self.preparing: set[str] = set()
        """Kernels whose task it makes."""
        self.working: set[str] = set()
        """Kernels that it works on."""
        self.finished = 0
        self.why: str | None = None
        """Why it can't go on, as it said."""


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    return f"was ended by {signal.Signals(-code).name if -code in list(signal.Signals) else f'signal {-code}'}"


def _last(log: Path, since: int) -> str:
    """The last line of what a process said, of a log that has what others said before."""
    with log.open("rb") as file:
        file.seek(max(since, file.seek(0, os.SEEK_END) - LOG_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return f" ({lines[-1]})" if lines else ""
