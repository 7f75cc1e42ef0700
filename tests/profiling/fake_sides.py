"""Sides of an interleaving whose workers are fakes."""

from collections.abc import Sequence
from typing import Any

from tests.sandbox.fake_timed import FakeTimed
from tritonforge.profiling.times import Side
from tritonforge.profiling.timing import FULL, Interleaving
from tritonforge.sandbox.timed import TimedWorker


def processes(*us: float) -> list[FakeTimed]:
    """Workers with one diary."""
    diary: list[tuple[str, int, list[int]]] = []
    return [FakeTimed(f"side{index}", one, diary) for index, one in enumerate(us)]


def sides_of(workers: Sequence[FakeTimed]) -> list[Side]:
    return [Side(worker.name, TimedWorker(worker)) for worker in workers]


def interleaved(workers: Sequence[FakeTimed], calls: int = 5, **more: Any) -> Interleaving:
    return Interleaving(sides_of(workers), calls, FULL, **more)
