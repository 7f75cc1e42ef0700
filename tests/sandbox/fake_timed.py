"""Timed workers without processes: each answers the requests of the real ones, its times as the test says."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from anyio.lowlevel import checkpoint

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.protocol import Blob, Frame

NOISE = 0.0004
"""Standard deviation of a visit, relative; that of its calls is the same."""
INPUTS: dict[str, Any] = {
    "tuple": [
        {
            "tensor": {
                "dtype": "float32", "shape": [1024], "stride": [1], "device": "cuda", "requires_grad": False,
            },
            "blob": 0,
        }
    ]
}  # fmt: skip


def stopped(kind: Kind, message: str) -> Stopped:
    return Stopped(kind, Problem(stage="run", message=message))


class FakeProcess(WorkerProcess):
    """Answers requests by methods that are named like the operations."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """Operations and their fields, in order."""
        self.faults: dict[str, Stopped] = {}
        """Operations that fail."""
        self.forged: dict[str, dict[str, Any]] = {}
        """Replies in place of the honest ones."""
        self.killed = 0
        self.handle: Any = SimpleNamespace(kill=self._kill)

    def _kill(self) -> None:
        self.killed += 1

    async def request(
        self, operation: str, blobs: list[Blob] | None = None, *, timeout_s: float | None = None, **fields: Any
    ) -> Frame:
        await checkpoint()
        self.asked.append((operation, {**fields, "blobs": blobs} if blobs else fields))
        if operation in self.faults:
            raise self.faults[operation]
        answer: dict[str, Any] = getattr(self, f"do_{operation}")(**fields)
        given: list[Blob] = answer.pop("blobs", [])
        if operation in self.forged:
            answer = self.forged[operation]
        return Frame({"ok": True, **answer}, given)

    def count(self, operation: str) -> int:
        """How often it was asked for."""
        return sum(name == operation for name, _ in self.asked)

    def fields(self, operation: str) -> list[dict[str, Any]]:
        """What it was asked for."""
        return [fields for name, fields in self.asked if name == operation]


class FakeTimed(FakeProcess):
    """Times an entry that takes ``us`` on the device."""

    def __init__(self, name: str, us: float = 100.0, diary: list[tuple[str, int, list[int]]] | None = None) -> None:
        super().__init__(name)
        self.us = us
        self.noise = NOISE
        self.diary = [] if diary is None else diary
        """Visits of all that share it: name, number, contents."""
        self.random = random.Random(name)
        self.call_us: Callable[[], float] = lambda: self.us + 20.0
        self.first: dict[str, Any] = {
            "first_call_s": 0.5, "second_call_us": 120.0, "results_bytes": 4096, "varies": True,
        }  # fmt: skip
        self.laid_out_calls: int | None = None
        """So many calls have room at most."""
        self.activities, self.lost = 1, 0
        self.strays: list[str] = []
        self.clock_hz: Callable[[], float | None] = lambda: 1.98e9
        self.right: Callable[[int], bool] = lambda contents: True
        """Whether the results for these contents are right."""
        self.graph: dict[str, Any] = {"graph_call_us": 9.0, "graph_device_us": 3.0}
        self._last: list[int] = []

    def do_set_inputs(self, **_: Any) -> dict[str, Any]:
        return {}

    def do_set_alternatives(self, **_: Any) -> dict[str, Any]:
        return {}

    def do_release(self) -> dict[str, Any]:
        return {}

    def do_prepare(self, *, flush_bytes: int, seed: int | None) -> dict[str, Any]:
        self.first["varies"] = seed is not None
        return {}

    def do_first_call(self) -> dict[str, Any]:
        return dict(self.first)

    def do_lay_out(self, *, calls: int) -> dict[str, Any]:
        return {"layouts": 8, "calls": min(calls, self.laid_out_calls or calls)}

    def do_visit(self, *, number: int, contents: list[int]) -> dict[str, Any]:
        self.diary.append((self.name, number, contents))
        self._last = contents
        visit = self.us * (1 + self.random.gauss(0, self.noise))
        samples: list[dict[str, Any]] = []
        for index in range(len(contents) - self.lost):
            us = visit * (1 + self.random.gauss(0, self.noise)) + (0.7 if index == 0 else 0.0)
            samples.append({"kernel_us": us, "device_us": us, "activities": self.activities, "event_us": us + 0.5})
        return {
            "samples": samples,
            "kernels": {f"{self.name}_kernel": self.us},
            "sm_clock_hz": self.clock_hz(),
            "strays": self.strays,
        }

    def do_outputs(self, *, index: int) -> dict[str, Any]:
        contents = self._last[index]
        return {"tree": {"dict": [["outputs", {"value": contents if self.right(contents) else -1}]]}}

    def do_call_times(self, *, calls: int) -> dict[str, Any]:
        return {"call_us": [self.call_us() for _ in range(calls)]}

    def do_graph_floor(self, *, calls: int) -> dict[str, Any]:
        return self.graph
