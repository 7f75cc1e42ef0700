"""One worker, warm or cold: spoken to, drained, watched, and killed with all that it started."""

import contextlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, cast

import anyio
from anyio.abc import UNIXSocketStream

from . import protocol
from .errors import ProtocolViolation, Stopped
from .isolation import WORKER_FOLDER
from .limits import Limits
from .outcome import Kind, Problem
from .protocol import Blob
from .remediation import explain_death, explain_failure, explain_memory, explain_timeout
from .usage import tree, usage

EXIT_GRACE_S = 2.0
"""After the process has ended, how long its last frame may take to arrive from the socket's buffer."""
CLOSED_GRACE_S = 5.0
"""After the socket was closed, how long the process may take to end, so that its exit status can be told."""
KILL_GRACE_S = 10.0
"""How long killed processes may take to be gone; a kernel that the driver can't stop keeps one alive."""
WRAPPING_PROCESSES = 4
"""At most, around a worker's own: the first one of its namespace, or bubblewrap's."""
POLL_S = 0.1
"""Between two looks at the memory of a busy worker."""


class ProcessHandle(ABC):
    """What stands behind a worker: how to wait for it, how to kill it, and what it prints."""

    pid: int
    """Of the process to watch, in this process' PID namespace; its children count as well."""
    stdout: int
    """Descriptor to read what it prints."""
    stderr: int
    returncode: int | None = None
    """Negative: the signal that killed it. None: it runs, or how it ended is unknown."""

    @abstractmethod
    def ended(self) -> bool:
        """Whether it has ended by now."""

    @abstractmethod
    async def wait(self) -> None:
        """Until it has ended."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it and everything that it started, at once."""

    @abstractmethod
    async def release(self) -> bool:
        """Kill it, wait until all of it is gone, and let go of what this process holds of it; whether it went."""


class OutputTail:
    """The end of what a process printed, and how much there was."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._tail = b""
        self.total_bytes = 0

    async def drain(self, descriptor: int) -> None:
        """Read until the stream ends; never more in memory than the limit and one chunk."""
        with contextlib.suppress(OSError):
            while True:
                await anyio.wait_readable(descriptor)
                if not self.read(descriptor):
                    return

    def read(self, descriptor: int) -> bool:
        """Take what is there, up to a chunk, without waiting; whether there may be more.

        Raises:
            OSError: the descriptor is closed; BlockingIOError: there is nothing by now.
        """
        chunk = os.read(descriptor, protocol.CHUNK_BYTES)
        self.total_bytes += len(chunk)
        self._tail = (self._tail + chunk)[-self._limit :]
        return bool(chunk)

    def text(self) -> str:
        """The tail as text, with a note of what was cut."""
        text = self._tail.decode("utf-8", errors="replace")
        cut = self.total_bytes - len(self._tail)
        return f"[{cut:,} bytes before this are not shown]\n{text}" if cut > 0 else text


class WorkerProcess:
    """A running worker. Every failure of it is raised as `Stopped`, with a kind and a problem."""

    def __init__(
        self,
        handle: ProcessHandle,
        stream: UNIXSocketStream,
        limits: Limits,
    ) -> None:
        self.handle = handle
        self._stream = stream
        self._limits = limits
        self.stdout = OutputTail(limits.output_bytes)
        self.stderr = OutputTail(limits.output_bytes)
        self._receiving: anyio.CancelScope | None = None
        self._busy = anyio.Event()
        self._exited = False
        self._hello: dict[str, Any] | None = None
        self._excess: str | None = None
        self._oom_kills: int | None = None
        self._overdue: Problem | None = None
        """A request that was not answered in time; it answers no other."""
        self.gpu_memory: Callable[[set[int]], int | None] | None = None
        """Tells how much GPU memory these processes have, in bytes; None where that can't be told."""
        self.folder: Path | None = None
        """A folder of this side's that a worker started by itself can write to; it is gone with the worker."""
        self.harmed = False
        """It died, hung, or broke its CUDA context: the device deserves a look before the next one uses it."""

    async def hello(self) -> dict[str, Any]:
        """What the worker's interpreter has (see `worker/environment.py`); waits until it is there.

        Raises:
            Stopped: ``unavailable``, where this interpreter can't do the job.
        """
        if self._hello is None:
            frame = await self._receive("start", self._limits.start_s)
            facts: Any = frame.fields.get("hello")
            if not isinstance(facts, dict):
                raise Stopped(Kind.CHEATING, Problem(stage="worker", message="the worker's first frame is not a hello"))
            self._hello = cast(dict[str, Any], facts)
        problem: Any = self._hello.get("problem")
        if problem is not None:
            raise Stopped(
                Kind.UNAVAILABLE,
                Problem(stage="environment", message=problem["message"], likely_fix=problem["fix"]),
            )
        return self._hello

    async def begin(self, role: str, device: str, target: dict[str, Any] | None) -> None:
        """Give it its one job."""
        await self.request("begin", role=role, device=device, target=target)

    async def request(
        self,
        operation: str,
        blobs: list[Blob] | None = None,
        *,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> protocol.Frame:
        """Ask the worker to do something and wait for its reply.

        Raises:
            Stopped: it failed, ran out of time or memory, or died.
        """
        if self._overdue is not None:
            # A late reply would be taken for that to this request.
            raise Stopped(Kind.TIMEOUT, self._overdue)
        await self.hello()
        limit_s = timeout_s or self._limits.request_s
        self._busy.set()
        with anyio.move_on_after(limit_s) as sending:
            try:
                await protocol.send(self._stream, {"op": operation, **fields}, blobs or [])
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise await self._death(operation) from None
            except ProtocolViolation as error:
                # Only what another worker sent can be unfit to be passed on.
                raise Stopped(Kind.CHEATING, Problem(stage="worker", message=str(error))) from error
        if sending.cancelled_caught:
            raise self._too_late(operation, limit_s)
        frame = await self._receive(operation, limit_s)
        if frame.fields.get("ok") is True:
            return frame
        kind, problem = explain_failure(frame.fields.get("failure"), await self._last_words())
        self.harmed |= kind is Kind.RUNTIME_ERROR
        raise Stopped(kind, problem)

    async def finish(self, timeout_s: float) -> int | None:
        """Let the worker end by itself, as a profiler around it needs; its exit code, or None if it did not end."""
        await self._stream.aclose()
        with anyio.move_on_after(timeout_s):
            await self.handle.wait()
            return self.handle.returncode
        return None

    def output(self) -> str:
        """The end of what the worker printed, standard error last."""
        return "\n".join(part for part in (self.stdout.text().rstrip(), self.stderr.text().rstrip()) if part)

    @contextlib.asynccontextmanager
    async def attended(self) -> AsyncGenerator["WorkerProcess"]:
        """Drain its output, watch its end and its memory; on leaving it and all that it started are gone."""
        self._oom_kills = oom_kills()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.stdout.drain, self.handle.stdout)
                tasks.start_soon(self.stderr.drain, self.handle.stderr)
                tasks.start_soon(self._watch_end)
                tasks.start_soon(self._watch_memory)
                try:
                    yield self
                finally:
                    self.handle.kill()
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # The tasks here raise nothing of their own: what the group wraps is the caller's, and goes on as it came.
            (raised,) = group.exceptions
            context = raised.__context__
            try:
                raise raised
            finally:
                # Raising it here has made the group its context.
                raised.__context__ = context
        finally:
            await self.discard()

    async def discard(self) -> None:
        """Kill it and let go of everything; nothing happens the second time."""
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()
            if not await self.handle.release():
                self.harmed = True

    async def _watch_end(self) -> None:
        """Notice the end of the process, also where a descendant of it keeps the socket open."""
        await self.handle.wait()
        self._exited = True
        if self._receiving is not None:
            self._receiving.deadline = anyio.current_time() + EXIT_GRACE_S

    async def _watch_memory(self) -> None:
        """Kill it when it takes more than it may, in two looks in a row; only once it has something to do."""
        await self._busy.wait()
        seen = 0
        while seen < 2:
            await anyio.sleep(POLL_S)
            # In a thread: a worker with thousands of processes takes long to look at.
            excess = await anyio.to_thread.run_sync(self._look, abandon_on_cancel=True)
            # A child shares its parent's memory between vfork and exec, and is counted again for that moment.
            seen = seen + 1 if excess is not None else 0
            if seen == 2:
                self._excess = excess
        self.handle.kill()

    def _look(self) -> str | None:
        """What it takes too much of."""
        limits, pid = self._limits, self.handle.pid
        limit = limits.host_memory_bytes()
        # Where the kernel keeps count itself, it never comes to this: that count leaves out the wrapping ones.
        processes = limits.processes + WRAPPING_PROCESSES
        used = usage(pid, suspicious_bytes=limit, limit_processes=processes + 1)
        if used.memory_bytes > limit:
            return f"{used.memory_bytes:,} bytes of host memory, of {limit:,} that are allowed"
        if used.threads > processes:
            return f"{used.threads:,} processes and threads, of {limits.processes:,} that are allowed"
        if limits.gpu_memory_bytes is not None and self.gpu_memory is not None:
            on_gpu = self.gpu_memory(tree(pid))
            if on_gpu is not None and on_gpu > limits.gpu_memory_bytes:
                return f"{on_gpu:,} bytes of GPU memory, of {limits.gpu_memory_bytes:,} that are allowed"
        return None

    async def _receive(self, operation: str, timeout_s: float) -> protocol.Frame:
        with anyio.move_on_after(timeout_s):
            with anyio.CancelScope() as self._receiving:
                if self._exited:
                    self._receiving.deadline = anyio.current_time() + EXIT_GRACE_S
                try:
                    return await protocol.receive(self._stream, self._limits.reply_bytes)
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    pass
                except ProtocolViolation as error:
                    raise Stopped(Kind.CHEATING, Problem(stage="worker", message=str(error))) from error
                finally:
                    self._receiving = None
            raise await self._death(operation)
        raise self._too_late(operation, timeout_s)

    def _too_late(self, operation: str, timeout_s: float) -> Stopped:
        self.harmed = True
        self._overdue = explain_timeout(operation, timeout_s, self.output())
        return Stopped(Kind.TIMEOUT, self._overdue)

    async def _death(self, operation: str) -> Stopped:
        """The worker closed its socket: find out how it ended."""
        self.harmed = True
        with anyio.move_on_after(CLOSED_GRACE_S):
            await self.handle.wait()
        output = await self._last_words()
        if self._excess is not None:
            return Stopped(Kind.OUT_OF_MEMORY, explain_memory(operation, self._excess, output))
        kind, problem = explain_death(operation, self.handle.returncode, output, oom_killed=self._oom_killed())
        return Stopped(kind, problem)

    def _oom_killed(self) -> bool | None:
        """Whether memory ran out while this worker was in use; None where the kernel doesn't tell."""
        kills = oom_kills()
        return None if kills is None or self._oom_kills is None else kills > self._oom_kills

    async def _last_words(self) -> str:
        """The output, after the drains have had a turn to read what is still in the pipes."""
        await anyio.sleep(0.05)
        for tail, descriptor in ((self.stdout, self.handle.stdout), (self.stderr, self.handle.stderr)):
            # Nobody drains what is only being made ready.
            with contextlib.suppress(OSError):
                tail.read(descriptor)
        return self.output()


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """How many processes the out-of-memory killer has ended since boot, those over a cgroup's limit included.

    None where the kernel does not count (before Linux 4.13).
    """
    with contextlib.suppress(OSError, ValueError):
        for line in vmstat.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def make_pipe() -> tuple[int, int]:
    """A pipe whose reading end never blocks; the writing end is for a child."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reading, False)
    return reading, writing


def program(executable: str, name: str, options: dict[str, Any]) -> list[str]:
    """Command line of a program of the worker package: ``preload``, ``serve`` or ``rehearse``."""
    return [executable, "-P", str(WORKER_FOLDER / "__main__.py"), name, json.dumps(options)]
