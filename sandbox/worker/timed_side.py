# pyright: basic
"""Requests that every timed worker answers alike, whatever it times."""

from __future__ import annotations

from typing import Any

Reply = tuple[dict[str, Any], list[Any]]


class TimedSide:
    """What a worker needs to be timed: an entry, its inputs, and what is measured of it."""

    stage: str
    _device: str
    _entry: Any
    _inputs: Any
    _in_place: list[str]
    _alternatives: Any = None
    _measurement: Any = None

    def do_set_alternatives(self, blobs: list[Any], *, tree: dict[str, Any]) -> Reply:
        """Other values for integer and boolean inputs of timed calls."""
        from . import values
        from .contents import Alternatives

        self.stage = "inputs"
        self._alternatives = Alternatives(**values.decode(tree, blobs, self._device))
        return {}, []

    def do_prepare(self, _: list[Any], *, flush_bytes: int, seed: int | None) -> Reply:
        """Allocate what timing needs."""
        from .contents import NONE
        from .measure import Measurement

        self.stage = "run"
        self._before_timing(last=False)
        self._free()
        self._measurement = Measurement(
            self._entry,
            self._inputs,
            self._in_place,
            flush_bytes=flush_bytes,
            seed=seed,
            alternatives=self._alternatives or NONE,
        )
        return {}, []

    def do_first_call(self, _: list[Any]) -> Reply:
        self.stage = "run"
        return self._measurement.first_call(), []

    def do_lay_out(self, _: list[Any], *, calls: int) -> Reply:
        self.stage = "run"
        # A check may have come in between.
        self._before_timing(last=True)
        return self._measurement.lay_out(calls), []

    def do_visit(self, _: list[Any], *, number: int, contents: list[int]) -> Reply:
        self.stage = "run"
        return self._measurement.visit(number, contents), []

    def do_outputs(self, _: list[Any], *, index: int) -> Reply:
        """Results of one call of the last visit."""
        from . import values

        self.stage = "run"
        blobs: list[Any] = []
        tree = values.encode(self._measurement.outputs(index), blobs, stage="run", where="the entry's result")
        return {"tree": {"dict": [["outputs", tree]]}}, blobs

    def do_call_times(self, _: list[Any], *, calls: int) -> Reply:
        self.stage = "run"
        return {"call_us": self._measurement.call_times(calls)}, []

    def do_graph_floor(self, _: list[Any], *, calls: int) -> Reply:
        """What a call takes as a CUDA graph; the last request of a worker."""
        from . import graphs, values

        self.stage = "run"
        return graphs.floor(self._entry, values.copy(self._inputs), calls, self._measurement.empty_cache), []

    def do_release(self, _: list[Any]) -> Reply:
        """Give memory back: another case comes, which may need it elsewhere."""
        self._free()
        self._inputs = None
        return {}, []

    def _free(self) -> None:
        if self._measurement is not None:
            self._measurement.free()
            self._measurement = None

    def _before_timing(self, *, last: bool) -> None:
        """Let go of what would make calls longer; ``last``: timed calls are next."""
