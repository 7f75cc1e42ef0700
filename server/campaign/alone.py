"""A baseline timed beside nothing: where it does not run in every case, in those in which it does."""

import ast
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ...sandbox.errors import Stopped
from ...sandbox.source import Source
from ..adapters.settle import NOT_ITS_DOING
from ..tools.benchmark_report import BenchmarkResult
from .model import CaseTime
from .reasons import line

CASES: Final = "CASES"
Alone = Callable[[Source, Source, list[str] | None], Awaitable[BenchmarkResult]]
"""Times a kernel by a task, in some cases or in all that are not small."""


async def timed_alone(alone: Alone, kernel: Source, task: Source) -> tuple[list[CaseTime], list[str]]:
    """Times of a baseline, by case, and why others have none.

    Where it does not run in all cases, each is timed by itself; where it runs in none of these, so are those that are
    marked small.

    Args:
        alone: times a kernel by a task.
        kernel: the baseline.
        task: its task.

    Raises:
        Stopped: it runs in no case; or ``unavailable`` or ``cancelled``.
    """
    try:
        return _times(await alone(kernel, task, None)), []
    except Stopped as stopped:
        if stopped.kind in NOT_ITS_DOING:
            raise
        failure = stopped
    left_out: list[str] = []
    cases = _cases(task.text)
    for small in (False, True):
        times: list[CaseTime] = []
        # A single one is not tried twice; a small one was not tried yet.
        for name in [
            name for name, case in cases.items() if bool(case.get("small")) is small and len(cases) + small > 1
        ]:
            try:
                times += _times(await alone(kernel, task, [name]))
            except Stopped as stopped:
                if stopped.kind in NOT_ITS_DOING:
                    raise
                left_out.append(f"case {name} is not timed: {stopped.kind}: {line(stopped.problem.message)}")
        if times:
            return times, left_out
    raise failure


def _times(result: BenchmarkResult) -> list[CaseTime]:
    return [
        CaseTime(case=each.case, device_us=each.device_us, speed_of_light_pct=each.speed_of_light_pct)
        for each in result.cases
    ]


def _cases(text: str) -> dict[str, dict[str, Any]]:
    """Those that a task has written down; none where it makes them when it is loaded."""
    try:
        nodes = ast.parse(text).body
        assigned = [node for node in nodes if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == CASES]
        # The last one counts.
        found: Any = ast.literal_eval(assigned[-1].value) if assigned else {}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(case, dict) for case in found.values()) else {}  # pyright: ignore[reportUnknownVariableType]
