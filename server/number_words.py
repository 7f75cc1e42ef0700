"""Numbers on the command line."""

import argparse
from collections.abc import Callable
from typing import TypeVar

N = TypeVar("N", int, float)


def numeric(what: str, kind: Callable[[str], N], fits: Callable[[N], bool]) -> Callable[[str], N]:
    """A type of an option.

    Args:
        what: it has to be, after `a`.
        kind: reads it; raises ValueError where it is none.
        fits: whether one that was read is allowed.
    """

    def read(word: str) -> N:
        try:
            found = kind(word)
        except ValueError:
            found = None
        if found is None or not fits(found):
            raise argparse.ArgumentTypeError(f"{word!r} is not a {what}")
        return found

    return read


def whole(least: int, most: int) -> Callable[[str], int]:
    """The same for whole numbers, both bounds included."""
    return numeric(f"whole number from {least} to {most}", int, lambda found: least <= found <= most)
