"""Other programs' configuration files: read as they are, replaced whole or not at all."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

BACKUP_SUFFIX: Final = ".before-tritonforge"
PRIVATE: Final = 0o600
"""For new files in a home folder: clients keep credentials there."""
SHARED: Final = 0o644


def read_text(path: Path) -> str:
    """What a file holds, line breaks as they are; empty where there is none.

    Raises:
        ValueError: it can't be read as text.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # A pipe or a device may never end.
            raise ValueError("is not a regular file")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"can't be read: {error.strerror}") from None


def replace_text(path: Path, before: str, after: str, *, mode: int, keep: bool) -> Path | None:
    """Put `after` in place of `before` at once, permissions kept, and leave `before` beside it.

    A link stays a link: what it points to is replaced. A new file gets `mode`.

    Args:
        path: the file.
        before: what it holds.
        after: what it is to hold.
        mode: of a new file.
        keep: whether `before` is worth keeping, in place of what was kept earlier.

    Returns:
        Where `before` is kept; None where it is not, or there was no file.

    Raises:
        ValueError: the file changed since it was read, or can't be written.
    """
    # Clients write their own state into these files while they run.
    if read_text(path) != before:
        raise ValueError("was changed by another program just now; run this again")
    target = Path(os.path.realpath(path))
    backup = path.with_name(path.name + BACKUP_SUFFIX)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            _write(target, after, None, mode)
            return None
        status = target.stat()
        if keep:
            _write(backup, before, status, mode)
        _write(target, after, status, mode)
    except OSError as error:
        raise ValueError(f"can't be written: {error.strerror}") from None
    return backup if keep else None


def _write(path: Path, text: str, like: os.stat_result | None, mode: int) -> None:
    """Write a file next to its place and move it there, with the permissions and the owner of another."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
            os.fchmod(file.fileno(), mode if like is None else stat.S_IMODE(like.st_mode))
            if like is not None:
                # Only an administrator may give files away; for others the owner is the same already.
                with suppress(PermissionError):
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
