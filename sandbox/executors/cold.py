"""A process from nothing for each job: for what must be started by another program, and to compare with."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process, UNIXSocketStream

from ..errors import Stopped
from ..isolation import Seal
from ..limits import worker_environment
from ..outcome import Kind, Problem
from ..process import KILL_GRACE_S, ProcessHandle, WorkerProcess, make_pipe, program
from ..scratch import make_folder, remove_folder
from ..spares import kill_marked
from .base import Device, Executor, Job
from .host import Host
from .running import Running

_handles: set["ColdHandle"] = set()
"""Of running workers."""
CHILDREN_WATCHED = 64
SIGNALLED = 128
"""A wrapper tells with an exit code above this which signal ended its program."""
FOLDER = "{folder}"
"""Stands in a profiler's command for the worker's own folder."""


def kill_cold() -> None:
    """Kill every running worker with its process group: for a server that must end at once."""
    for handle in list(_handles):
        handle.kill()


class ColdHandle(ProcessHandle):
    """A process group of its own, inside bubblewrap where that is possible."""

    def __init__(self, process: Process, stdout: int, stderr: int, folder: Path, *, sealed: bool) -> None:
        self._process = process
        self.pid = process.pid
        self.stdout = stdout
        self.stderr = stderr
        self._folder = folder
        """Its scratch folder."""
        self._sealed = sealed
        """It can't leave its group."""
        self._released = False
        _handles.add(self)

    def ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> None:
        code = await self._process.wait()
        self.returncode = SIGNALLED - code if SIGNALLED < code < SIGNALLED + signal.NSIG else code

    def kill(self) -> None:
        # Once it has been waited for, its number may be another's.
        if self._process.returncode is None:
            for child in self._children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(child, signal.SIGKILL)
                os.close(child)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        if not self._sealed:
            kill_marked(self._folder)

    async def release(self) -> bool:
        if self._released:
            return True
        self._released = True
        children = self._children()
        self.kill()
        with anyio.move_on_after(KILL_GRACE_S) as grace:
            await self._process.wait()
            for child in children:
                await anyio.wait_readable(child)
        for descriptor in (self.stdout, self.stderr, *children):
            os.close(descriptor)
        _handles.discard(self)
        await anyio.to_thread.run_sync(remove_folder, self._folder)
        return not grace.cancelled_caught

    def _children(self) -> list[int]:
        """Descriptors of its children; bubblewrap's one is the first of the namespace, which ends after all others."""
        found: list[int] = []
        with contextlib.suppress(OSError):
            for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()[:CHILDREN_WATCHED]:
                found.append(os.pidfd_open(int(pid)))
        return found


@contextlib.asynccontextmanager
async def cold_worker(
    host: Host,
    job: Job,
    device: Device | None,
    *,
    gate: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext,
) -> AsyncGenerator[WorkerProcess]:
    """A new process for the job; on leaving, it and all that it started are gone and its scratch is removed.

    Args:
        host: what is known of this machine.
        job: its one job.
        device: the GPU that it may use.
        gate: entered while a worker under a profiler opens the device.

    Raises:
        Stopped: ``unavailable``, where the interpreter can't be started.
    """
    worker = await start_cold(host, job, device)
    async with worker.attended():
        if job.profiler:
            await worker.hello()
            async with gate():
                await worker.request("warm_up")
        await worker.begin(job.role, "cuda:0" if job.on_gpu else "cpu", job.target)
        yield worker


async def start_cold(host: Host, job: Job, device: Device | None) -> WorkerProcess:
    """A new process for the job, which is told nothing yet; whoever gets it must discard it.

    Raises:
        Stopped: ``unavailable``, where the interpreter can't be started.
    """
    interpreter, seal = await host.ground()
    folder: Path | None = None
    with contextlib.ExitStack() as passed, contextlib.ExitStack() as kept:
        try:
            folder = make_folder()
            kept.callback(remove_folder, folder)
            ours, theirs = socket.socketpair()
            kept.callback(ours.close)
            passed.callback(theirs.close)
            out, its_out = make_pipe()
            kept.callback(os.close, out)
            passed.callback(os.close, its_out)
            err, its_err = make_pipe()
            kept.callback(os.close, err)
            passed.callback(os.close, its_err)
            environment = worker_environment(str(folder), interpret=job.role == "interpret") | (job.environment or {})
            if interpreter.user_base is not None:
                environment["PYTHONUSERBASE"] = interpreter.user_base
            if device is not None:
                environment["CUDA_VISIBLE_DEVICES"] = device.uuid
            options = {
                "socket": theirs.fileno(),
                "flavor": _flavor(job),
                "scratch": str(folder),
                "sealed": seal.sealed,
                "limits": host.limits.resources(),
            }
            around = [word.replace(FOLDER, str(folder)) for word in job.profiler] or list(job.wrapper)
            command = [*around, *program(interpreter.executable, "serve", options)]
            layout = seal.layout(interpreter, environment, around[0] if around else None)
            writable = (folder, *([Path(job.writable)] if job.writable is not None else []))
            if seal.sealed and not seal.user_namespace:
                entering = {
                    "command": command,
                    "writable": [str(path) for path in writable],
                    "become_nobody": seal.become_nobody,
                    "processes": host.limits.processes,
                }
                command = program(interpreter.executable, "enter", entering)
            sealed = replace(layout, devices=seal.device_nodes if device is not None else (), writable=writable)
            process = await anyio.open_process(
                seal.wrap(sealed, command, alone=True),
                stdin=subprocess.DEVNULL,
                stdout=its_out,
                stderr=its_err,
                cwd=folder,
                env=environment,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            problem = Problem(stage="environment", message=f"the worker can't be started: {error.strerror}")
            raise Stopped(Kind.UNAVAILABLE, problem) from error
        kept.pop_all()
    handle = ColdHandle(process, out, err, folder, sealed=seal.sealed)
    worker = WorkerProcess(handle, await UNIXSocketStream.from_socket(ours), host.limits)
    worker.folder = folder
    return worker


def _flavor(job: Job) -> str:
    if job.role == "report":
        return "reader"
    if job.profiler:
        return "profiled"
    return "gpu" if job.on_gpu else "interpret" if job.role == "interpret" else "cpu"


class ColdExecutor(Executor):
    """Starts a process for each job."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.python = host.python
        self._running = Running()

    @contextlib.asynccontextmanager
    async def submit(self, job: Job) -> AsyncGenerator[WorkerProcess]:
        with self._running.entered():
            device = await self._host.usable_device() if job.on_gpu else None
            async with cold_worker(self._host, job, device) as worker:
                with self._running.working(worker):
                    yield worker

    async def environment(self) -> dict[str, Any]:
        async with self.submit(Job("capture")) as worker:
            facts = await worker.hello()
        devices = await self.devices()
        if not devices:
            return facts
        async with self.submit(Job("cuda", on_gpu=True)) as worker:
            return await worker.hello()

    async def seal(self) -> Seal:
        return (await self._host.ground())[1]

    async def devices(self) -> list[Device]:
        return await self._host.devices()

    @contextlib.asynccontextmanager
    async def quiet(self, device: Device) -> AsyncGenerator[None]:
        # Nothing is made ready beside jobs.
        yield

    async def close(self) -> None:
        self._running.close()

    async def __aenter__(self) -> "ColdExecutor":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
