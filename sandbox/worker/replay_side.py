# pyright: basic
# torch ships incomplete types.
"""Requests that a replayer's worker answers: it carries a recorded call out and never sees the kernel file."""

from __future__ import annotations

from typing import Any

from .failures import Refused, Sources
from .timed_side import TimedSide

Reply = tuple[dict[str, Any], list[Any]]


class ReplaySide(TimedSide):
    """A plan and the inputs that it was given."""

    def __init__(self, device: str, sources: Sources) -> None:
        self._device = device
        self._sources = sources
        self.stage = "worker"
        self._replayer: Any = None
        self._entry: Any = None
        self._in_place: list[str] = []
        self._inputs: Any = None

    def do_load_plan(self, blobs: list[Any], *, plan: dict[str, Any], in_place: list[str]) -> Reply:
        """Load the machine code and get ready."""
        from .replay import Replayer

        self.stage = "load"
        self._replayer = Replayer(plan, blobs, self._device)
        self._entry, self._in_place = self._replayer.entry, in_place
        return {}, []

    def do_set_inputs(self, blobs: list[Any], *, tree: dict[str, Any], offset: int = 0, reuse: bool = False) -> Reply:
        """Hand over the inputs of the next calls, which have to be of the recorded call's form.

        ``offset`` and ``reuse`` are for calls between margins, which a replay has none of.
        """
        from . import values

        self.stage = "inputs"
        self._inputs = values.decode(tree, blobs, self._device)
        if (difference := self._replayer.differs(self._inputs)) is not None:
            raise Refused("unsupported", "inputs", difference[:300])
        return {}, []
