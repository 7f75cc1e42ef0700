"""Scratch folders: private, removed when their user is done, and all at once when the server must end."""

import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio

PREFIX = "tritonforge-"
_folders: set[Path] = set()


@contextlib.asynccontextmanager
async def scratch_folder() -> AsyncGenerator[Path]:
    """A new folder that only this user can enter; it and all in it are gone on leaving."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    _folders.add(folder)
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))
        _folders.discard(folder)


def remove_all() -> None:
    """Remove every folder in use, without waiting for its user."""
    for folder in list(_folders):
        shutil.rmtree(folder, ignore_errors=True)
