"""Markdown whose parts come from elsewhere: names and messages of kernels stay text, whatever is in them."""

import re
from collections.abc import Sequence
from typing import Final

from ..tools.run_shown import words
from .statistics import GeometricMean, Share

NAME_CHARACTERS: Final = 80
REASON_CHARACTERS: Final = 300
MARKUP: Final = re.compile(r"[\\`*\[\]<>|~]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown takes for more than text inside a line; underscores within words are none."""


def prose(text: str, limit: int = REASON_CHARACTERS) -> str:
    """One line of plain text, cut where it is too long; fit for a table's cell too."""
    return MARKUP.sub(lambda found: f"\\{found[0]}", words(text, limit))


def code(text: str, limit: int = NAME_CHARACTERS) -> str:
    """One line as code, cut where it is too long; fit for a table's cell too."""
    shown = words(text, limit)
    # A bar ends a table's cell in code too; escaped, it shows its backslash outside of tables.
    return prose(text, limit) if not shown or "|" in shown or "`" in shown else f"`{shown}`"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def section(title: str, *paragraphs: str) -> str:
    """A heading with what is below it; empty paragraphs are left out."""
    return "\n\n".join([f"## {title}", *filter(None, paragraphs)])


def number(value: float | None, digits: int = 3) -> str:
    """A fixed number of decimals; blank where there is no value."""
    return "" if value is None else f"{value:,.{digits}f}"


def span(low: float | None, high: float | None, digits: int = 3) -> str:
    """An interval; blank where there is none."""
    return "" if low is None or high is None else f"{number(low, digits)} to {number(high, digits)}"


def extent(low: float, high: float, digits: int) -> str:
    """An interval, or the one value where its ends show the same."""
    one, other = number(low, digits), number(high, digits)
    return one if one == other else f"{one} to {other}"


def rate(found: Share | None) -> str:
    """A share in per cent with its interval; blank where there is none."""
    return "" if found is None else f"{number(found.pct, 1)} ({span(found.low_pct, found.high_pct, 1)})"


def mean(found: GeometricMean | None) -> str:
    """A geometric mean with its interval, where it has one; blank where there is none."""
    if found is None:
        return ""
    return number(found.value) + (f" ({span(found.low, found.high)})" if found.low is not None else "")
