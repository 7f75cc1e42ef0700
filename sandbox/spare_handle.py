"""The parent's hold on one forked spare: that it was born, how it ended, and its end when that is wanted."""

import array
import contextlib
import json
import os
import select
import shutil
import signal
import socket
from pathlib import Path
from typing import Any, Final

import anyio

from .errors import Stopped
from .outcome import Kind, Problem
from .process import KILL_GRACE_S, ProcessHandle

MESSAGE_BYTES: Final = 64 << 10
"""At most, of what a preloader or the first process of a spare says."""
BORN_S: Final = 30.0
"""How long a fork with its namespaces may take."""


class SpareHandle(ProcessHandle):
    """A forked spare: its first process (in a PID namespace of its own where sealed) and how that one says it ended."""

    def __init__(self, status: socket.socket, stdout: int, stderr: int, scratch: Path | None) -> None:
        self.pid = 0
        self.stdout = stdout
        self.stderr = stderr
        self._status = status
        self._scratch = scratch
        self._descriptor: int | None = None
        self._watching = anyio.Lock()
        self._ended = False
        self._released = False

    async def born(self) -> None:
        """Until its first process has said who it is.

        Raises:
            Stopped: ``unavailable``, where it could not be made.
        """
        with anyio.move_on_after(BORN_S):
            await anyio.wait_readable(self._status)
            size = array.array("i").itemsize
            message, ancillary, _, _ = self._status.recvmsg(MESSAGE_BYTES, 256)
            for _, kind, data in ancillary:
                numbers = array.array("i", data[: len(data) // size * size])
                if kind == socket.SCM_RIGHTS:
                    self._descriptor = numbers[0]
                    os.set_inheritable(self._descriptor, False)
                elif kind == socket.SCM_CREDENTIALS:
                    # The kernel translates the number into this process' PID namespace.
                    self.pid = numbers[0]
            if self._descriptor is not None and self.pid:
                return
            raise self._unborn(f": {json.loads(message)['failed']}" if message else "")
        raise self._unborn(f" within {BORN_S:g} s")

    def _unborn(self, why: str) -> Stopped:
        message = f"no worker could be made{why}"
        fix = "Run `tritonforge-mcp doctor`: it tells which layers of isolation this machine allows."
        return Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message=message, likely_fix=fix))

    def ended(self) -> bool:
        if self._descriptor is None:
            return True
        return self._ended or readable(self._descriptor)

    async def wait(self) -> None:
        async with self._watching:
            if self._ended or self._descriptor is None:
                return
            # The first process of a PID namespace ends only when all others in it are gone.
            await anyio.wait_readable(self._descriptor)
            self._ended = True
            self.returncode = self._how_it_ended()

    def _how_it_ended(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            message = self._status.recv(MESSAGE_BYTES)
            ended: Any = json.loads(message).get("ended") if message else None
            return ended if isinstance(ended, int) else -signal.SIGKILL
        return -signal.SIGKILL

    def kill(self) -> None:
        if self._descriptor is not None and not self._ended:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    async def release(self) -> bool:
        if self._released:
            return True
        self._released = True
        self.kill()
        with anyio.move_on_after(KILL_GRACE_S) as grace:
            await self.wait()
        for descriptor in (self.stdout, self.stderr, self._descriptor):
            if descriptor is not None:
                os.close(descriptor)
        self._descriptor = None
        self._status.close()
        if self._scratch is not None:
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(self._scratch or "", ignore_errors=True))
        return not grace.cancelled_caught


def readable(descriptor: int) -> bool:
    """Whether something can be read from it now, or its end has come."""
    # Unlike select, this takes descriptors of any number.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
