"""Texts that rows name by their hash: each is one file, whole or not there."""

import contextlib
import hashlib
import os
import secrets
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Final

from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind, Problem

KNOWN_CHARACTERS_LIMIT: Final = 1 << 24
"""Of the texts that are remembered."""
PARTIAL: Final = ".partial"
PARTIAL_LATEST_S: Final = 3600.0
"""No write takes so long: what is older was left by a process that was killed."""


class Files:
    """Content-addressed files of one folder. What it raises beside `Stopped` is OSError, for its caller to explain."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: OrderedDict[str, str] = OrderedDict()
        self._known_characters = 0
        self._lock = threading.Lock()

    def put(self, text: str) -> str:
        """Keep a text; it is on the disk before this returns.

        Returns:
            Its SHA-256, in hex.
        """
        data = text.encode("utf-8", "surrogatepass")
        sha256 = hashlib.sha256(data).hexdigest()
        path = self._path(sha256)
        # One that was damaged is written again.
        if _read(path) != data:
            _write(path, data)
        return sha256

    def get(self, sha256: str) -> str:
        """A text that was kept.

        Raises:
            Stopped: ``unavailable``: its file is gone or damaged.
        """
        if (fault := self.fault(sha256)) is not None:
            raise Stopped(
                Kind.UNAVAILABLE,
                Problem(
                    stage="environment",
                    message=fault,
                    likely_cause="The file was changed or removed by something else than this program, or the disk is "
                    "faulty.",
                    likely_fix="Put the same file back from a copy, or start a new run: the other runs can go on.",
                ),
            )
        return self._path(sha256).read_bytes().decode("utf-8", "surrogatepass")

    def known(self, sha256: str) -> str:
        """The same from memory, where it was asked for before.

        Raises:
            Stopped: ``unavailable``: its file is gone or damaged.
        """
        with self._lock:
            text = self._known.get(sha256)
            if text is not None:
                self._known.move_to_end(sha256)
                return text
        text = self.get(sha256)
        with self._lock:
            if sha256 not in self._known:
                self._known[sha256] = text
                self._known_characters += len(text)
            while self._known_characters > KNOWN_CHARACTERS_LIMIT:
                _, dropped = self._known.popitem(last=False)
                self._known_characters -= len(dropped)
        return text

    def require(self, sha256: str) -> None:
        """See to it that a row may name a file. Files are removed within transactions only, and none that is named:
        what is there in a transaction that names it stays.

        Raises:
            Stopped: ``unavailable``: it is gone.
        """
        if not self._path(sha256).is_file():
            raise Stopped(
                Kind.UNAVAILABLE,
                Problem(
                    stage="environment",
                    message=f"the stored file {self._path(sha256)} is gone",
                    likely_cause="A run with the same file was deleted at this moment.",
                    likely_fix="Make the same call again.",
                ),
            )

    def fault(self, sha256: str) -> str | None:
        """What is wrong with a kept file; None: it is there and as it was."""
        path = self._path(sha256)
        data = _read(path)
        if data is None:
            return f"the stored file {path} is gone"
        return None if hashlib.sha256(data).hexdigest() == sha256 else f"the stored file {path} is damaged"

    def remove(self, sha256: str) -> None:
        """Forget a text."""
        self._path(sha256).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what processes that were killed have left half written."""
        for path in self.folder.glob(f"*/*{PARTIAL}"):
            # Another process may be faster.
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > PARTIAL_LATEST_S:
                    path.unlink()

    def _path(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and renamed: a reader never sees half a file, and two writers of one file never meet.
    partial = path.with_name(f"{secrets.token_hex(8)}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    # The names too, up to that of the files' own folder.
    for folder in (path.parent, path.parent.parent):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
