"""Causes that a profile shows, as evidence of findings."""

from collections.abc import Sequence

from ..ncu.cause import Cause
from .facts import Facts
from .model import Evidence, Level
from .rule import seen


def caused(facts: Facts, id: str) -> Cause | None:
    """A cause by its id."""
    return next((each for each in facts.causes if each.id == id), None)


def measured(found: Cause, fact: str) -> Evidence:
    """What a cause says, with one of its figures."""
    return seen(Level.PROFILE, found.text, line_of(found), fact, found.evidence.get(fact))


def line_of(found: Cause) -> int | None:
    """The kernel file's line on which it shows most."""
    line = found.evidence.get("line")
    return line if isinstance(line, int) else None


def hottest_of(facts: Facts, lines: Sequence[int]) -> int | None:
    """The line of these with most samples; None where none has any."""
    spots = [spot for spot in facts.hotspots if spot.line in lines]
    return max(spots, key=lambda spot: spot.pct).line if spots else None
