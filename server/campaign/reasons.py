"""Reasons as a campaign keeps them: one line, bounded, and without the paths of this machine: reports are passed on."""

import re
from typing import Final

from ..tools.run_shown import words

CHARACTERS: Final = 300
PATH: Final = re.compile(r"(?<![\w:/.~-])~?(?:/[^\s/'\"`,;:()<>|]+){2,}/?")
"""Of two parts at least."""


def line(text: str, limit: int = CHARACTERS) -> str:
    """A message in one line, with names of files where it has paths."""
    return words(without_paths(text), limit)


def without_paths(text: str) -> str:
    """A text with names of files where it has absolute paths."""
    return PATH.sub(lambda found: found[0].rstrip("/").rpartition("/")[2], text)
