"""A foreign program in a process group of its own, which never outlives whoever asked for it."""

import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE
from types import FrameType
from typing import IO, Final

import anyio
from anyio.abc import Process

TERM_S: Final = 5.0
"""For a program to end by itself once it was told to."""
LAST_MOMENT_S: Final = 0.2
"""The same where this process is itself told to end. A server needs a tenth of it."""
POLL_S: Final = 0.05
GRACE_S: Final = 1.0
"""For what a program wrote before it exited to be read; a child that it left behind may hold its output for ever."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_groups: set[int] = set()


@contextlib.asynccontextmanager
async def started(
    words: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | int | None = None,
    errors: IO[bytes] | int | None = None,
    asks: bool = False,
) -> AsyncGenerator[Process]:
    """A program with the leadership of a group; leaving ends the whole group, whatever has become of its leader.

    Args:
        words: program and arguments.
        folder: that it runs in.
        environment: added to this process's.
        output: where its standard output goes.
        errors: where its standard error goes; by default to ours.
        asks: whether its standard input is a pipe; it is empty otherwise.
    """
    process = await anyio.open_process(
        list(words),
        stdin=PIPE if asks else DEVNULL,
        stdout=output,
        stderr=errors,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    _groups.add(process.pid)
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
        _groups.discard(process.pid)


async def exited(process: Process) -> int:
    """Wait for a program itself: `Process.wait` may also wait for children that hold its output; its exit code."""
    while process.returncode is None:
        with anyio.move_on_after(POLL_S):
            await process.wait()
    return process.returncode


async def _end(process: Process) -> None:
    """Ask the group to end, and kill what is left of it: also those that its leader has left behind."""
    if _signal(process.pid, signal.SIGTERM):
        with anyio.move_on_after(TERM_S):
            while _signal(process.pid, 0):
                # Reaped as soon as it is dead: a zombie would stand for its group.
                if process.returncode is None:
                    with anyio.move_on_after(POLL_S):
                        await process.wait()
                else:
                    await anyio.sleep(POLL_S)
    _signal(process.pid, signal.SIGKILL)
    await process.aclose()


def _signal(group: int, number: int) -> bool:
    """Send a signal to a group; whether anybody is left in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def ending_with_us(last: Callable[[], None] | None = None) -> Generator[None]:
    """A signal that ends this process ends all programs first; their servers get a moment to end their workers.

    Args:
        last: called then, as the last of all.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def end(number: int, frame: FrameType | None) -> None:
        groups = [group for group in _groups if _signal(group, signal.SIGTERM)]
        if groups:
            time.sleep(LAST_MOMENT_S)
        for group in groups:
            _signal(group, signal.SIGKILL)
        if last is not None:
            # Whatever it can't say: this process ends.
            with contextlib.suppress(Exception):
                last()
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        else:
            os._exit(128 + number)

    for number in SIGNALS:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
