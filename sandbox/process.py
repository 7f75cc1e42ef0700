"""One worker process: started, spoken to, drained, and killed with its process group."""

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
from anyio.abc import ByteReceiveStream, Process, SocketStream

from . import protocol, scratch
from .errors import ProtocolViolation, Stopped
from .limits import Limits, worker_environment
from .outcome import Kind, Problem
from .remediation import explain_death, explain_failure, explain_timeout

WORKER = Path(__file__).parent / "worker" / "__main__.py"
EXIT_GRACE_S = 2.0
"""After the process has ended, how long its last frame may take to arrive from the socket's buffer."""
CLOSED_GRACE_S = 5.0
"""After the socket was closed, how long the process may take to end, so that its exit status can be told."""

_groups: set[int] = set()
"""Process groups of running workers."""


def abandon() -> None:
    """Kill every running worker with its process group and remove all scratch: for a server that must end at once."""
    for group in list(_groups):
        _kill_group(group)
    scratch.remove_all()


class OutputTail:
    """The end of what a process printed, and how much there was."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._tail = b""
        self.total_bytes = 0

    async def drain(self, stream: ByteReceiveStream) -> None:
        """Read until the stream ends; never more in memory than the limit and one chunk."""
        with contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                chunk = await stream.receive()
                self.total_bytes += len(chunk)
                self._tail = (self._tail + chunk)[-self._limit :]

    def text(self) -> str:
        """The tail as text, with a note of what was cut."""
        text = self._tail.decode("utf-8", errors="replace")
        cut = self.total_bytes - len(self._tail)
        return f"[{cut:,} bytes before this are not shown]\n{text}" if cut > 0 else text


class WorkerProcess:
    """A running worker. Every failure of it is raised as `Stopped`, with a kind and a problem."""

    def __init__(self, process: Process, stream: SocketStream, folder: Path, limits: Limits) -> None:
        self._process = process
        self._stream = stream
        self._limits = limits
        self.scratch = folder
        self.stdout = OutputTail(limits.output_bytes)
        self.stderr = OutputTail(limits.output_bytes)
        self._receiving: anyio.CancelScope | None = None
        self._exited = False
        self._hello: dict[str, Any] | None = None

    async def hello(self) -> dict[str, Any]:
        """What the worker's interpreter has (see `worker/environment.py`); waits until it is there.

        Raises:
            Stopped: ``unavailable``, where this interpreter can't do the role.
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

    async def request(
        self,
        operation: str,
        blobs: list[bytes] | None = None,
        *,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> protocol.Frame:
        """Ask the worker to do something and wait for its reply.

        Raises:
            Stopped: it failed, ran out of time, or died.
        """
        await self.hello()
        try:
            await protocol.send(self._stream, {"op": operation, **fields}, blobs or [])
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise await self._death(operation) from None
        except ProtocolViolation as error:
            # Only what another worker sent can be unfit to be passed on.
            raise Stopped(Kind.CHEATING, Problem(stage="worker", message=str(error))) from error
        frame = await self._receive(operation, timeout_s or self._limits.request_s)
        if frame.fields.get("ok") is True:
            return frame
        kind, problem = explain_failure(frame.fields.get("failure"), await self._last_words())
        raise Stopped(kind, problem)

    async def finish(self, timeout_s: float) -> int | None:
        """Let the worker end by itself, as a profiler around it needs; its exit code, or None if it did not end."""
        await self._stream.aclose()
        with anyio.move_on_after(timeout_s):
            return await self._process.wait()
        return None

    def output(self) -> str:
        """The end of what the worker printed, standard error last."""
        return "\n".join(part for part in (self.stdout.text().rstrip(), self.stderr.text().rstrip()) if part)

    async def watch(self) -> None:
        """Notice the end of the process, also where a descendant of it keeps the socket open."""
        await self._process.wait()
        self._exited = True
        if self._receiving is not None:
            self._receiving.deadline = anyio.current_time() + EXIT_GRACE_S

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
        raise Stopped(Kind.TIMEOUT, explain_timeout(operation, timeout_s, self.output()))

    async def _death(self, operation: str) -> Stopped:
        """The worker closed its socket: find out how it ended."""
        with anyio.move_on_after(CLOSED_GRACE_S):
            await self._process.wait()
        output = await self._last_words()
        kind, problem = explain_death(operation, self._process.returncode, output)
        return Stopped(kind, problem)

    async def _last_words(self) -> str:
        """The output, after the drains have had a turn to read what is still in the pipes."""
        await anyio.sleep(0.05)
        return self.output()


@contextlib.asynccontextmanager
async def start_worker(
    python: str,
    role: str,
    *,
    limits: Limits,
    target: dict[str, Any] | None = None,
    device: str = "cpu",
    wrapper: Sequence[str] = (),
) -> AsyncGenerator[WorkerProcess]:
    """Start a worker of the given role; on leaving, it and its process group are gone and its scratch removed.

    Args:
        python: the interpreter that has torch and triton.
        role: ``task``, ``capture``, ``interpret``, ``cuda`` or ``probe``.
        target: architecture facts for ``capture`` and ``interpret``.
        device: the torch device of its tensors.
        wrapper: a command to put in front, such as the profiler's.

    Raises:
        Stopped: ``unavailable``, where the interpreter can't be started.
    """
    async with scratch.scratch_folder() as folder:
        ours, theirs = socket.socketpair()
        options = {
            "socket": theirs.fileno(),
            "role": role,
            "target": target,
            "device": device,
            "scratch": str(folder),
        }
        command = [*wrapper, python, "-P", str(WORKER), json.dumps(options)]
        try:
            with theirs:
                process = await _spawn(command, python, folder, theirs.fileno(), interpret=role == "interpret")
        except BaseException:
            ours.close()
            raise
        _groups.add(process.pid)
        try:
            async with _attended(process, await SocketStream.from_socket(ours), folder, limits) as worker:
                yield worker
        finally:
            _kill_group(process.pid)
            _groups.discard(process.pid)


@contextlib.asynccontextmanager
async def _attended(
    process: Process, stream: SocketStream, folder: Path, limits: Limits
) -> AsyncGenerator[WorkerProcess]:
    """Drain the worker's output and watch for its end; on leaving it is dead."""
    worker = WorkerProcess(process, stream, folder, limits)
    try:
        async with anyio.create_task_group() as tasks:
            assert process.stdout is not None
            assert process.stderr is not None
            tasks.start_soon(worker.stdout.drain, process.stdout)
            tasks.start_soon(worker.stderr.drain, process.stderr)
            tasks.start_soon(worker.watch)
            try:
                yield worker
            finally:
                _kill_group(process.pid)
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await stream.aclose()
                    await process.aclose()
    except BaseExceptionGroup as group:
        # The tasks here raise nothing of their own: what the group wraps is the caller's, and goes on as it came.
        (raised,) = group.exceptions
        raise raised from raised.__cause__


async def _spawn(command: list[str], python: str, folder: Path, descriptor: int, *, interpret: bool) -> Process:
    try:
        return await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=worker_environment(str(folder), interpret=interpret),
            start_new_session=True,
            pass_fds=(descriptor,),
        )
    except OSError as error:
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="environment",
                message=f"the worker's interpreter {python!r} can't be started: {error.strerror}",
                likely_fix="Point --python at a Python interpreter that has torch and triton.",
            ),
        ) from error


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
