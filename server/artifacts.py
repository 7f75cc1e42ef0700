"""Files that a result links to instead of quoting: stored by content, served as resources."""

import hashlib
import re
import secrets
from pathlib import Path
from typing import NamedTuple

import anyio

from ..sandbox.errors import Stopped
from ..sandbox.outcome import Kind, Problem

SCHEME = "tritonforge://artifacts/"
DIGEST_LENGTH = 16
_DIGEST = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,120}")


class Artifact(NamedTuple):
    """One stored file."""

    path: Path
    digest: str
    name: str

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.digest}/{self.name}"


class ArtifactStore:
    """Content-addressed files under ``<state folder>/artifacts``."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / "artifacts"

    async def prepare(self) -> None:
        """See to it before the work that its artifacts can be kept.

        Raises:
            Stopped: ``unavailable``, where the state folder can't be written.
        """
        try:
            await anyio.Path(self.folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    async def put(self, name: str, data: bytes) -> Artifact:
        """Store ``data``; the same content under the same name is stored once.

        Raises:
            Stopped: ``unavailable``, where the state folder can't be written.
        """
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[-120:]
        digest = hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH]
        path = self.folder / digest / safe
        try:
            await anyio.to_thread.run_sync(_write, path, data)
        except OSError as error:
            raise self._unwritable(error) from error
        return Artifact(path, digest, safe)

    def _unwritable(self, error: OSError) -> Stopped:
        return Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="environment",
                message=f"artifacts can't be stored in {self.folder}: {error.strerror}",
                likely_fix="Start the server with --state-dir naming a folder that it may write.",
            ),
        )

    def find(self, digest: str, name: str) -> Path | None:
        """The path of a stored file; None where there is none of that name."""
        if not _DIGEST.fullmatch(digest) or not _NAME.fullmatch(name) or name in {".", ".."}:
            return None
        path = self.folder / digest / name
        return path if path.is_file() else None


def _write(path: Path, data: bytes) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and renamed: a reader never sees half a file, and two writers of one file never meet.
    partial = path.with_name(f"{secrets.token_hex(8)}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
