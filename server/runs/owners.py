"""Who evaluates an attempt: a token whose file its process keeps locked. The kernel lets go of it however the process
ends, so nobody relies on process ids, which come again."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Final

_SUFFIX: Final = ".lock"


class Owners:
    """The owners of one store, this one among them. It raises OSError, for its caller to explain."""

    def __init__(self, folder: Path, folder_lock: Path) -> None:
        """
        Args:
            folder: where the owners' files are.
            folder_lock: a file that is locked while owners come and stale ones are swept.
        """
        self.folder = folder
        self._folder_lock = folder_lock
        self._token: str | None = None
        self._descriptor = -1

    def token(self) -> str:
        """This owner's, for as long as it is not closed."""
        if self._token is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Nobody sweeps between the making of the file and its lock.
            with locked(self._folder_lock):
                self._sweep()
                token = secrets.token_hex(16)
                flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self._descriptor = os.open(self._path(token), flags, 0o600)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._token = token
        return self._token

    def is_own(self, token: str | None) -> bool:
        """Whether it is this owner's token."""
        return token is not None and token == self._token

    def is_gone(self, token: str) -> bool:
        """Whether an owner that was alive once is no more."""
        return not self.is_own(token) and _is_free(self._path(token))

    def close(self) -> None:
        """Be no owner any more: what this one owned is anybody's."""
        if self._token is None:
            return
        token, self._token = self._token, None
        self._path(token).unlink(missing_ok=True)
        os.close(self._descriptor)

    def leave_to_parent(self) -> None:
        """In a forked child: the lock is the parent's, and must end with it."""
        if self._token is not None:
            self._token = None
            # Closing a copy of the descriptor does not unlock what the parent's still holds.
            os.close(self._descriptor)

    def _sweep(self) -> None:
        """Remove the files of owners that are gone."""
        for path in self.folder.glob(f"*{_SUFFIX}"):
            if _is_free(path):
                path.unlink(missing_ok=True)

    def _path(self, token: str) -> Path:
        return self.folder / f"{token}{_SUFFIX}"


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Wait for a file's lock, and hold it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_free(path: Path) -> bool:
    """Whether nobody keeps a file locked, or it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        # Shared: two who look at once must not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
