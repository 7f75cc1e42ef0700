"""One measurement on a GPU at a time, also between the servers of one host, and who else uses the GPU meanwhile.

What measures nothing shares the GPU: checks of results run side by side, and never beside a measurement.
"""

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import AsyncGenerator, Collection
from pathlib import Path

import anyio

from . import nvml
from .errors import Stopped
from .outcome import Kind, Problem
from .wire import Wire

POLL_S = 0.02
"""Between two attempts at a lock that another server holds: short beside a measurement, and no load."""
GIVE_WAY_S = 2 * POLL_S
"""In this time, every server that polls has polled."""

# Through no link that another user laid; not inherited by workers; no wait for a writer, should it be a pipe.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Leases:
    """The leases of one server: for each GPU a fair queue here, and locked files between the servers of one host.

    Servers exclude each other where they share the folder; those in containers need it mounted into each. The kernel
    releases the lock of a process that ends, however it ends, so a killed server leaves nothing stuck.
    """

    def __init__(self, folder: Path = Path("/tmp")) -> None:
        self._folder = folder
        self._turns: dict[str, anyio.Lock] = {}
        self._here: Counter[str] = Counter()
        self._queued_until: dict[str, float] = {}
        """By GPU, when the queue's lock was last released here, by `anyio.current_time`."""

    @contextlib.asynccontextmanager
    async def hold(self, uuid: str, *, alone: bool = True) -> AsyncGenerator[None]:
        """Wait for the GPU and have it until leaving; a wait that is cancelled gives up its place at once.

        Args:
            uuid: of the GPU.
            alone: nobody else has it meanwhile; else others may that don't have it alone either. All are served in the
                order they came: those who share wait behind one who wants it alone.

        Raises:
            Stopped: ``unavailable``, where the lock files can't be used.
        """
        device = self._folder / f"tritonforge-gpu-{uuid}.lock"
        queue = self._folder / f"tritonforge-gpu-{uuid}.queue.lock"
        self._here[uuid] += 1
        try:
            async with self._turns.setdefault(uuid, anyio.Lock()):
                # With the device's lock alone, a server that releases and wants again would nearly always win against
                # one that polls. So only the holder of the queue's lock may try for the device, and it keeps that lock
                # until it succeeds. A server whose next caller is waiting lets those of others poll first.
                # Among those who poll for the queue's lock, chance decides, and alike for each.
                await anyio.sleep_until(self._queued_until.get(uuid, 0.0) + GIVE_WAY_S)
                place = await _acquire(queue)
                try:
                    # Each holder has a file of its own open, so those of one server exclude each other alike.
                    lease = await _acquire(device, shared=not alone)
                finally:
                    _release(place)
                    self._queued_until[uuid] = anyio.current_time()
            try:
                yield
            finally:
                _release(lease)
        finally:
            self._here[uuid] -= 1

    def waiting(self, uuid: str) -> int:
        """How many in this process hold the GPU or wait for it."""
        return self._here[uuid]


class Sharing(Wire):
    """Who else computes on the GPU: their kernels take time from those that are measured.

    In a container, newer drivers list only the container's own processes (seen with 580.159): those of the host and of
    other containers then go unseen, also where `checked` is true.
    """

    foreign: list[nvml.GpuProcess]
    """Compute processes that are not ours."""
    checked: bool
    """False where that could not be found out; an empty `foreign` then says nothing."""
    reason: str | None
    """Why not."""


def sharing(uuid: str, own: Collection[int]) -> Sharing:
    """Look for compute processes of others on a GPU.

    Args:
        own: pids of ours, as the host counts them, that have a CUDA context there.
    """
    try:
        running = nvml.processes(uuid)
    except nvml.NvmlUnavailable as error:
        return Sharing(foreign=[], checked=False, reason=str(error))
    # Inside a container a driver may count pids as the host does, and then ours match none of them.
    if own and running and not any(process.pid in own for process in running):
        return Sharing(
            foreign=[],
            checked=False,
            reason="the driver lists compute processes, none with a pid of ours, so ours can't be told from others; "
            "in a container, share the host's pid namespace (docker run --pid=host)",
        )
    foreign = [process for process in running if process.pid not in own]
    return Sharing(foreign=foreign, checked=True, reason=None)


async def _acquire(path: Path, *, shared: bool = False) -> int:
    """Wait for the lock of a file; the descriptor that holds it."""
    while True:
        # flock(2) can wait by itself, but no cancellation would reach a thread that does.
        descriptor = _try_lock(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        if descriptor is not None:
            return descriptor
        await anyio.sleep(POLL_S)


def _try_lock(path: Path, operation: int) -> int | None:
    """A descriptor that holds the lock of this file, or None while another does that it can't be shared with.

    The file is opened anew each time, so one that somebody removed meanwhile is not waited for.
    """
    try:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
    except (BlockingIOError, FileExistsError):  # the second: another server created it just now
        return None
    except OSError as error:
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="benchmark",
                message=f"the lock file {path}, which keeps others off the GPU, can't be used: {error.strerror}",
                likely_fix=f"Let every user of this GPU create files in {path.parent}, and remove {path.name} there "
                "if it is a link or not readable for all.",
            ),
        ) from error
    return descriptor


def _open(path: Path) -> int:
    """The file, created where it is missing so that every user can open it.

    One that may exist is never opened with O_CREAT: in a folder like /tmp that is refused for another user's file
    (fs.protected_regular). Reading is enough for flock.
    """
    try:
        return os.open(path, _FLAGS)
    except FileNotFoundError:
        created = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            os.fchmod(created, 0o666)  # what the umask took
        finally:
            os.close(created)
        return os.open(path, _FLAGS)


def _release(descriptor: int) -> None:
    # Closing alone would leave the lock to a copy of the descriptor, in a child that has not yet executed its program.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
