"""The artefacts of a campaign's folder."""

import io
import random
import re
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...sandbox.errors import rejected
from ..adapters.triton_bench import SEPARATOR
from .model import Entry

NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
NAMES_SHOWN: Final = 8
_BLANK: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
)


def entries(folder: Path, *, subset: int | None = None, seed: int = 0, only: Sequence[str] = ()) -> list[Entry]:
    """The artefacts in a folder, by name: folders with a task.yml below it, or else its Python files.

    Args:
        folder: where to look.
        subset: so many of them, chosen at random.
        seed: decides which; the same seed chooses the same ones of the same folder.
        only: names; empty for all.

    Raises:
        Stopped: ``rejected``: there is no such folder, nothing in it, or no artefact of a name.
    """
    if not folder.is_dir():
        raise rejected("campaign", f"there is no folder {folder}", fix="Name a folder of kernels.")
    try:
        found = _found(folder)
    except OSError as error:
        raise rejected(
            "campaign", f"{folder} can't be read: {error.strerror or error}", fix="Name a folder of kernels."
        ) from None
    if not found:
        raise rejected(
            "campaign",
            f"{folder} has neither Python files nor folders with a task.yml",
            fix="Point at a folder of TritonBench-G files, KernelBench problems, test files, or GPU MODE tasks.",
        )
    named: dict[str, Path] = {}
    for path in found:
        name = NAME.sub("_", path.name.removesuffix(".py") if path.suffix == ".py" else path.name)
        # Two folders of one name below different ones.
        while name in named:
            name += "_"
        named[name] = path
    if unknown := [name for name in only if name not in named]:
        listed = ", ".join(list(named)[:NAMES_SHOWN])
        more = f" and {len(named) - NAMES_SHOWN} more" if len(named) > NAMES_SHOWN else ""
        note = passed_over(folder)
        fix = f"It has {listed}{more}.{f' Note: {note}.' if note else ''}"
        raise rejected("campaign", f"{folder} has no {', '.join(unknown)}", fix=fix)
    chosen = sorted(only) if only else list(named)
    if subset is not None and subset < len(chosen):
        chosen = sorted(random.Random(seed).sample(chosen, subset))
    return [Entry(name=name, path=named[name], lines=_lines(named[name])) for name in chosen]


def passed_over(folder: Path) -> str | None:
    """Which Python files of a folder are no artefacts since there are folders with a task.yml below it; None: none.

    Those of benchmarks are helpers that their tasks share.
    """
    folders, files = _both(folder)
    # Those of a folder that is an artefact itself are its own.
    if not folders or folder in folders or not files:
        return None
    names = sorted(file.name for file in files)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    counted = "1 Python file" if len(names) == 1 else f"{len(names)} Python files"
    return (
        f"{counted} of {folder.name} passed over, since artefacts are the folders with a task.yml below it "
        f"({', '.join(names[:NAMES_SHOWN])}{more}); to have them worked on, name a folder that holds them alone"
    )


def _found(folder: Path) -> list[Path]:
    """Artefacts: what is hidden, and what is no regular file, is none.

    Raises:
        OSError: a folder can't be read.
    """
    folders, files = _both(folder)
    # The names of all of them are names of folders, below the one of the campaign.
    return sorted(each for each in folders or files if not each.name.startswith("."))


def _both(folder: Path) -> tuple[set[Path], list[Path]]:
    """Folders with a task.yml below a folder, and its Python files."""
    tasks = [file.relative_to(folder) for file in folder.rglob("task.yml") if file.is_file()]
    folders = {folder / file.parent for file in tasks if not any(part.startswith(".") for part in file.parts)}
    return folders, [file for file in folder.glob("[!.]*.py") if file.is_file() and file.name != "__init__.py"]


def _lines(path: Path) -> int:
    """Of the kernel's source: lines with code on them."""
    files = [path] if path.is_file() else [path / "submission.py", path / "reference.py"]
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        return 0
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    separator = SEPARATOR.search(text)
    return code_lines(text if separator is None else text[: separator.start()])


def code_lines(text: str) -> int:
    """Lines of a source without blank ones and those that hold nothing but a comment."""
    try:
        tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in _BLANK]
    except (tokenize.TokenError, SyntaxError):
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1) if token.string}
    return len(lines)
