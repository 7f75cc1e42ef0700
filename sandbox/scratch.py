"""Scratch folders: private, removed when their user is done, all at once when the server must end, and, where it was
killed, by the next server that starts."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import anyio

PREFIX: Final = "tritonforge-"
LOCK: Final = ".tritonforge.lock"
"""A file in each folder, locked as long as the server lives that uses the folder."""
_NEW_LOCK: Final = LOCK + ".new"
_folders: dict[Path, int] = {}
"""Folders in use, with the descriptors that hold their locks."""


@contextlib.asynccontextmanager
async def scratch_folder() -> AsyncGenerator[Path]:
    """A new folder that only this user can enter; it and all in it are gone on leaving."""
    folder = make_folder()
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(remove_folder, folder)


def make_folder() -> Path:
    """A new folder that only this user can enter; `remove_folder` is for its end."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = os.open(folder / _NEW_LOCK, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    _folders[folder] = lock
    # A file system without locks: then nobody but its user removes the folder.
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Under its final name it has always been locked: whoever finds it free there knows that its server is gone.
        (folder / _NEW_LOCK).rename(folder / LOCK)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder that `make_folder` made, with all in it."""
    shutil.rmtree(folder, ignore_errors=True)
    lock = _folders.pop(folder, None)
    if lock is not None:
        os.close(lock)


def remove_all() -> None:
    """Remove every folder in use, without waiting for its user."""
    for folder in list(_folders):
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Remove the folders of this user's servers that ended without doing so: those whose locks are free."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove one folder; OSError where it is not to be removed."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        return
    # What a kernel put in its place must neither lead elsewhere nor block.
    lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The folder itself may have been given to its worker.
        if os.fstat(lock).st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
