"""The end of a search: finalists are checked in full, and the winner is timed against the file as it is."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import anyio

from ...profiling.tuning.search import FINALISTS, Search
from ...profiling.tuning.space import Point
from ...profiling.tuning.variant import autotune_list, diff, variant
from ...sandbox.errors import Stopped
from ...sandbox.facts import CapturedLaunch
from ...sandbox.outcome import Kind
from ...sandbox.source import Source
from ..services import Services
from ..tools.benchmark import benchmark
from ..tools.benchmark_report import BenchmarkResult
from ..tools.parameters import Progress
from ..tools.run_correctness import run_correctness
from .report import winners

NOT_ITS_DOING: Final = frozenset({Kind.CANCELLED, Kind.UNAVAILABLE, Kind.REJECTED})


class Winner(NamedTuple):
    """What is offered."""

    point: Point | None
    """None: the file as it is."""
    others: list[Point]
    """Those better in single cases, also right."""
    text: str | None
    benchmark: BenchmarkResult | None
    notes: list[str]


async def finish(
    services: Services,
    progress: Progress,
    search: Search,
    kernel: Source,
    task: Source,
    cases: Sequence[str],
    baseline_is_reference: bool,
) -> Winner:
    """Check the best variants with `run_correctness`, the best first, and time the first that is right.

    Raises:
        Stopped: ``cancelled`` or ``unavailable``.
    """
    notes: list[str] = []
    reference = kernel if baseline_is_reference else None
    chosen: Point | None = None
    for choice in search.worth_offering()[:FINALISTS]:
        await progress(3, 4, "checking the best variant on fresh inputs")
        if await _is_right(services, progress, search, kernel, task, cases, reference, choice.point, notes):
            chosen = choice.point
            break
    others: list[Point] = []
    for point in winners(search, chosen)[:FINALISTS]:
        its = [case for case in cases if search.champion(case).point == point]
        if await _is_right(services, progress, search, kernel, task, its, reference, point, notes):
            others.append(point)
    if chosen is None:
        return Winner(None, others, None, None, notes)
    points = [chosen, *others] if search.space.listings else [chosen]
    text = variant(kernel.text, search.space, points[0], *points[1:])
    if text is None:
        return Winner(None, others, None, None, [*notes, "the tuned file could not be written"])
    await progress(3.5, 4, "timing the tuned file against the file as it is")
    timed: BenchmarkResult | None = None
    try:
        timed = await benchmark(
            services, progress, kernel=kernel._replace(text=text), task=task, baseline=kernel, cases=list(cases)
        )
    except Stopped as stopped:
        if stopped.kind in NOT_ITS_DOING:
            raise
        notes.append(f"the final benchmark ended early: {stopped.kind}: {stopped.problem.message[:300]}")
    return Winner(chosen, others, text, timed, notes)


async def _is_right(
    services: Services,
    progress: Progress,
    search: Search,
    kernel: Source,
    task: Source,
    cases: Sequence[str],
    reference: Source | None,
    point: Point,
    notes: list[str],
) -> bool:
    text = variant(kernel.text, search.space, point)
    if text is None or not cases:
        return False
    try:
        found = await run_correctness(
            services, progress, kernel=kernel._replace(text=text), task=task, baseline=reference, cases=list(cases)
        )
    except Stopped as stopped:
        if stopped.kind in NOT_ITS_DOING:
            raise
        kind, said = stopped.kind, stopped.problem.message
    else:
        if found.kind is Kind.OK:
            return True
        kind, said = found.kind, found.problem.message if found.problem is not None else ""
    for case in cases:
        search.failed(case, point, kind)
    changed = search.space.changed(point)
    notes.append(f"{changed} was fast and is {kind}: {said[:200]}")
    return False


def decorator(search: Search, winner: Winner, captured: dict[str, list[CapturedLaunch]]) -> str | None:
    """`@triton.autotune` with the winners; None where one launch suits all cases, or several kernels are tuned."""
    kernels = list(dict.fromkeys(knob.kernel for knob in search.space.knobs))
    points = [point for point in (winner.point, *winner.others) if point is not None]
    if not points or len(kernels) != 1:
        return None
    if winner.point is None:
        points.append(search.space.present)
    return autotune_list(search.space, kernels[0], points, keys(captured, kernels[0]))


def keys(captured: dict[str, list[CapturedLaunch]], kernel: str) -> list[str]:
    """Integer arguments of a kernel that differ between cases: what the choice may depend on."""
    seen: dict[str, set[int]] = {}
    for launches in captured.values():
        for launch in launches:
            for name, value in launch.integers.items() if launch.kernel == kernel else ():
                seen.setdefault(name, set()).add(value)
    differing = [name for name, values in seen.items() if len(values) > 1]
    return differing or list(seen)[:1]


async def in_thread_diff(before: str, after: str) -> str:
    """`diff` of files that may be long."""
    return await anyio.to_thread.run_sync(diff, before, after)
