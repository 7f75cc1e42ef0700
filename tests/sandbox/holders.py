"""Who holds a GPU, or waits for it, and what the lock files show of that."""

import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio

from tritonforge.sandbox.lease import Leases

GPU, OTHER = "GPU-0001", "GPU-0002"
HANG_S = 20.0
"""After this a wait for a lease has failed."""


@contextlib.asynccontextmanager
async def taken(leases: Leases, uuid: str = GPU, *, alone: bool = True) -> AsyncGenerator[None]:
    """A GPU that is held; one that is never given is a failure, not a hang."""
    with anyio.fail_after(HANG_S):
        async with leases.hold(uuid, alone=alone):
            yield


class Caller:
    """Holds a GPU in its own task: notes its name when it gets it, and keeps it until told to let go."""

    def __init__(self, leases: Leases, name: str, got: list[str], *, alone: bool = True) -> None:
        self._leases, self._name, self._got, self._alone = leases, name, got, alone
        self.holds = anyio.Event()
        self.let_go = anyio.Event()
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            async with taken(self._leases, alone=self._alone):
                self._got.append(self._name)
                self.holds.set()
                await self.let_go.wait()


def lock_files(folder: Path, uuid: str = GPU) -> list[Path]:
    """The file of the device and that of its queue."""
    return [folder / f"tritonforge-gpu-{uuid}.lock", folder / f"tritonforge-gpu-{uuid}.queue.lock"]


def locked(path: Path) -> bool:
    """Whether anybody holds the lock of a file."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def descriptors(path: Path) -> list[int]:
    """Where this process has a file open."""
    links = Path("/proc/self/fd")
    return [int(number) for number in os.listdir(links) if os.path.realpath(links / number) == str(path)]
