"""The parent's side of a preloader: starts it, sealed where that is possible, and has it fork spares."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, Literal

import anyio
from anyio.abc import Process, TaskGroup, UNIXSocketStream

from .errors import Stopped
from .isolation import PRIVATE, Interpreter, Seal
from .limits import Limits, worker_environment
from .outcome import Kind, Problem
from .process import KILL_GRACE_S, OutputTail, WorkerProcess, make_pipe, program
from .scratch import make_folder, remove_folder
from .spare_handle import MESSAGE_BYTES, SpareHandle, readable

Flavor = Literal["cpu", "interpret", "gpu"]
"""What a spare has got ready: nothing, Triton's interpreter, or a CUDA context."""
LOST_GRACE_S: Final = 0.2
LAST_WORDS_S: Final = 1.0
"""How long a spare, or a preloader, that died before it was ready is listened to."""
OUTPUT_SHOWN: Final = 1500
"""Characters of captured output in a problem."""
SEALED_SCRATCH: Final = "/tmp/work"
"""A sealed spare's working folder, in a `/tmp` of its own."""


class Preloader:
    """A process with torch and triton imported that forks spares; every spare is for one job."""

    def __init__(self, process: Process, control: socket.socket, seal: Seal, folder: Path | None) -> None:
        self._process = process
        self._control = control
        self._seal = seal
        self._folder = folder
        self._sending = anyio.Lock()
        self.output = OutputTail(Limits().output_bytes)
        self.environment: dict[str, Any] = {}
        """What its interpreter has (see `worker/environment.py`)."""

    @property
    def pid(self) -> int:
        """Of the process that was started: bubblewrap, or the preloader itself."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs; told at once, also before its end has been noticed elsewhere."""
        # It says nothing after its environment, so what can be read now is the end.
        control = self._control.fileno()
        return self._process.returncode is None and control >= 0 and not readable(control)

    async def lost(self) -> bool:
        """Whether it has ended, where a spare could not be made: those that die with it may be seen dead first."""
        with anyio.move_on_after(LOST_GRACE_S):
            await self._process.wait()
        return not self.alive

    async def fork(self, flavor: Flavor, device: str | None, limits: Limits) -> WorkerProcess:
        """A new spare, ready for its job.

        Args:
            flavor: what it gets ready.
            device: UUID of the only GPU that it sees.
            limits: its limits.

        Raises:
            Stopped: ``unavailable``, where it can't be made or gets not ready.
        """
        try:
            worker = await self._born(flavor, device, limits)
        except OSError as error:
            raise self.failure(f"no worker could be made: {error.strerror}") from error
        try:
            await worker.hello()
        except Stopped as stopped:
            # Nothing foreign has run in it, so whatever went wrong is this machine's, and a crash has been printed.
            worker.handle.kill()
            with anyio.move_on_after(LAST_WORDS_S):
                await worker.stderr.drain(worker.handle.stderr)
            output = worker.output()[-OUTPUT_SHOWN:] or None
            await worker.discard()
            raise Stopped(Kind.UNAVAILABLE, stopped.problem.model_copy(update={"output": output})) from stopped
        except BaseException:
            await worker.discard()
            raise
        return worker

    async def _born(self, flavor: Flavor, device: str | None, limits: Limits) -> WorkerProcess:
        with contextlib.ExitStack() as passed:
            with contextlib.ExitStack() as kept:
                ours, theirs = socket.socketpair()
                kept.callback(ours.close)
                passed.callback(theirs.close)
                status, its_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                kept.callback(status.close)
                passed.callback(its_status.close)
                status.setblocking(False)
                status.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                out, its_out = make_pipe()
                kept.callback(os.close, out)
                passed.callback(os.close, its_out)
                err, its_err = make_pipe()
                kept.callback(os.close, err)
                passed.callback(os.close, its_err)
                scratch = SEALED_SCRATCH if self._seal.sealed else tempfile.mkdtemp(prefix="spare-", dir=self._folder)
                kept.pop_all()
            request = {
                "flavor": flavor,
                "scratch": scratch,
                "limits": limits.resources(),
                "environment": {"HOME": scratch, **({} if device is None else {"CUDA_VISIBLE_DEVICES": device})},
                "hidden_devices": [] if flavor == "gpu" else [str(node) for node in self._seal.device_nodes],
            }
            handle = SpareHandle(status, out, err, None if self._seal.sealed else Path(scratch))
            try:
                await self._send(request, [theirs.fileno(), its_out, its_err, its_status.fileno()])
                # With copies of these here, the end of the spare would not be seen.
                passed.close()
                await handle.born()
                return WorkerProcess(handle, await UNIXSocketStream.from_socket(ours), limits)
            except BaseException:
                ours.close()
                with anyio.CancelScope(shield=True):
                    await handle.release()
                raise

    async def _send(self, request: dict[str, Any], descriptors: list[int]) -> None:
        try:
            async with self._sending:
                if not self.alive:
                    raise self.failure("the preloader has ended")
                await anyio.wait_writable(self._control)
                socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        except OSError as error:
            raise self.failure("the preloader has ended") from error

    def failure(self, what: str) -> Stopped:
        """Why there is no worker."""
        return Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="environment",
                message=what,
                likely_fix="Run `tritonforge-mcp doctor`; check that --python names a working interpreter.",
                output=self.output.text()[-OUTPUT_SHOWN:] or None,
            ),
        )

    def kill(self) -> None:
        """Kill it with all its spares."""
        # Once it has been waited for, its number may be another's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._folder is not None:
            kill_marked(self._folder)

    async def close(self) -> None:
        """Kill it with all its spares, and wait for it."""
        self.kill()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(KILL_GRACE_S):
                await self._process.wait()
            self._control.close()
            if self._folder is not None:
                await anyio.to_thread.run_sync(remove_folder, self._folder)
        _running.discard(self)


_running: set[Preloader] = set()


def kill_preloaders() -> None:
    """Kill every preloader with all its spares: for a server that must end at once."""
    for preloader in list(_running):
        preloader.kill()


def kill_marked(folder: Path) -> None:
    """Kill all that was started with this folder as its place for temporary files, whatever became of its parents.

    Without namespaces nothing else holds them together: each process can leave its group, its session and its parent.
    """
    mark, killed = f"TMPDIR={folder}".encode(), set[int]()
    while found := {pid for pid in _processes() if mark in _environment(pid).split(b"\0")} - killed:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _environment(pid: int) -> bytes:
    """What a process was started with; nothing where it has ended or is another user's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


async def start_preloader(
    interpreter: Interpreter, flavor: Flavor, seal: Seal, limits: Limits, tasks: TaskGroup
) -> Preloader:
    """Start a preloader and wait until it has imported everything.

    Args:
        interpreter: the workers' Python.
        flavor: what its spares are for; one for ``cpu`` serves ``gpu`` as well.
        seal: how it is isolated.
        limits: how long it may take.
        tasks: where its output is drained.

    Raises:
        Stopped: ``unavailable``, with what its interpreter lacks.
    """
    folder = None if seal.sealed else make_folder()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    home = PRIVATE if folder is None else str(folder)
    environment = worker_environment("/tmp" if folder is None else home, interpret=flavor == "interpret")
    if interpreter.user_base is not None:
        environment["PYTHONUSERBASE"] = interpreter.user_base
    layout = seal.layout(interpreter, environment)
    options = {
        "control": theirs.fileno(),
        "flavor": flavor,
        "sealed": seal.sealed,
        "user_namespace": seal.user_namespace,
        "become_nobody": seal.become_nobody,
        "folder": home,
        "reopened": layout.reopened,
        "driver": bool(seal.device_nodes),
    }
    command = seal.wrap(layout, program(interpreter.executable, "preload", options))
    reading, writing = make_pipe()
    with theirs:
        try:
            process = await anyio.open_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd="/",
                env=environment,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        except BaseException as error:
            ours.close()
            os.close(reading)
            if folder is not None:
                remove_folder(folder)
            if not isinstance(error, OSError):
                raise
            message = f"the worker can't be started: {error.strerror}"
            raise Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message=message)) from error
        finally:
            os.close(writing)
    preloader = Preloader(process, ours, seal, folder)
    _running.add(preloader)
    try:
        drained = anyio.Event()
        tasks.start_soon(_drain, preloader.output, reading, drained)
        with anyio.move_on_after(limits.start_s):
            await anyio.wait_readable(ours)
            try:
                message = ours.recv(MESSAGE_BYTES)
            except ConnectionResetError:
                message = b""
            if not message:
                await process.wait()
                # What it said last may still be on its way.
                with anyio.move_on_after(LAST_WORDS_S):
                    await drained.wait()
                raise preloader.failure(f"the worker ended before it was ready (exit code {process.returncode})")
            preloader.environment = json.loads(message)["environment"]
            problem = preloader.environment["problem"]
            if problem is not None:
                shown = Problem(stage="environment", message=problem["message"], likely_fix=problem["fix"])
                raise Stopped(Kind.UNAVAILABLE, shown)
            return preloader
        raise preloader.failure(f"starting the worker took longer than {limits.start_s:g} s")
    except BaseException:
        await preloader.close()
        raise


async def _drain(tail: OutputTail, descriptor: int, drained: anyio.Event) -> None:
    try:
        await tail.drain(descriptor)
    finally:
        os.close(descriptor)
        drained.set()
