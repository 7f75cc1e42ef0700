"""What a planted fault is."""

from typing import NamedTuple


class Planted(NamedTuple):
    """One launch with a fault."""

    id: str
    file: str
    """Of the kernels: those of the signatures, or `options` of this folder."""
    faulty: str
    mark: str
    """A part of the line, which is the first one with it in `kernel`."""
    kernel: str
    twin: str | None
    deepest: int = 3
    """Level of the deepest evidence."""
