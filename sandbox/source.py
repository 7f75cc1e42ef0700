"""Kernel and task sources as the caller gives them: a path, or the text itself."""

import difflib
import stat
from pathlib import Path
from typing import NamedTuple

from .errors import Unfit, rejected

SIZE_LIMIT_BYTES = 1_000_000
INLINE = "<source>"


class Source(NamedTuple):
    """A Python source that has been read and not yet been parsed or run."""

    text: str
    shown_as: str
    """The path as the caller gave it, or `<source>`."""
    origin: str | None
    """The folder that the file's own imports are resolved in; None for source text."""


def read_source(given: str | Source, what: str) -> Source:
    """Read ``given``: a text with a newline is source, anything else is a path; what has been read stays as it is.

    Args:
        given: source text or path (relative ones count from the current folder, ``~`` is expanded).
        what: ``kernel``, ``task`` or ``baseline``, for messages.

    Raises:
        Stopped: ``rejected``, with what was wrong and what is allowed.
    """
    if isinstance(given, Source):
        return given
    if "\n" in given:
        _check_text(given, what, INLINE)
        return Source(given, INLINE, None)
    if not given.strip():
        raise rejected("source", f"{what} is empty", fix=f"Give {what} as a path to a Python file or as source text.")
    return read_file(given, what)


def source_text(text: str, what: str) -> Source:
    """A text that is source whatever stands in it, such as a model's: no file is looked for under its name.

    Args:
        text: the source.
        what: as of `read_source`.

    Raises:
        Unfit: it is empty, too long, or no text of a Python file.
    """
    if not text.strip():
        raise Unfit(f"the {what} source is empty", file=INLINE, fix="Give the whole file.")
    _check_text(text, what, INLINE)
    return Source(text, INLINE, None)


def read_file(given: str, what: str) -> Source:
    """Read the file at a path; arguments as of `read_source`.

    Raises:
        Stopped: ``rejected``: there is no such file, or it can't be read; `Unfit`: it is no text of a Python file.
    """
    if "\0" in given:
        raise rejected("source", f"the {what} path contains a NUL byte", fix="Give a plain path or source text.")
    if _has_lone_surrogate(given):
        raise rejected("source", f"the {what} path is not valid UTF-8", fix="Give a plain path or source text.")
    try:
        path = Path(given).expanduser()
    except RuntimeError as error:
        raise rejected("source", f"the {what} path can't be expanded: {error}", fix="Give an absolute path.") from None
    try:
        facts = path.stat()
        if stat.S_ISDIR(facts.st_mode):
            raise rejected("source", f"{given} is a folder, not a file", file=given, fix=_files_in(path))
        if not stat.S_ISREG(facts.st_mode):
            # A pipe or a device may never end.
            raise rejected(
                "source", f"{given} is not a regular file", file=given, fix="Give the path of a Python file."
            )
        if facts.st_size > SIZE_LIMIT_BYTES:
            raise Unfit(f"{given} has {facts.st_size:,} bytes; {SIZE_LIMIT_BYTES:,} are allowed", file=given)
        data = path.read_bytes()
    except FileNotFoundError:
        raise rejected(
            "source",
            f"there is no {what} file {given} (looked in {Path.cwd()})",
            file=given,
            fix=_nearest(path) or "Give an absolute path, or the source text itself (text with a newline is source).",
        ) from None
    except OSError as error:
        raise rejected(
            "source", f"the {what} file can't be read: {error.strerror}: {given[:200]}", file=given[:200]
        ) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unfit(f"{given} is not UTF-8 text: {error.reason} at byte {error.start}", file=given) from None
    _check_text(text, what, given)
    return Source(text, given, str(path.resolve().parent))


def _check_text(text: str, what: str, shown_as: str) -> None:
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > SIZE_LIMIT_BYTES:
        raise Unfit(f"the {what} source has {size:,} bytes; {SIZE_LIMIT_BYTES:,} are allowed", file=shown_as)
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise Unfit(f"the {what} source contains a NUL byte on line {line}", file=shown_as)
    if _has_lone_surrogate(text):
        raise Unfit(f"the {what} source contains a lone surrogate, which is not valid UTF-8", file=shown_as)


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _files_in(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.glob("*.py"))[:8]
    return f"Name one of its files: {', '.join(names)}." if names else "Give the path of a Python file."


def _nearest(path: Path) -> str | None:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix == ".py"]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"Did you mean {path.parent / near[0]}?" if near else None
