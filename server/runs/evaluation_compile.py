"""What a candidate's launches compile to, on all cases that it is judged by."""

from collections.abc import Sequence
from typing import NamedTuple

import anyio

from ...profiling.compiler.backends import backend_of
from ...profiling.compiler.launch import LaunchFacts, with_grid
from ...profiling.hardware.model import Target
from ...profiling.optimization.model import CaseLaunch
from ...sandbox.errors import Stopped, rejected
from ...sandbox.facts import Capture
from ...sandbox.outcome import Kind
from ...sandbox.source import Source
from ...sandbox.task import Task
from ...sandbox.workers import KernelWorker, TaskWorker, capture_worker, task_worker
from ..services import Services, target_facts
from .evaluator import Identified
from .hidden import beside
from .identity import Launched, identity
from .record import HiddenCases

NOT_ITS_DOING = frozenset({Kind.CANCELLED, Kind.UNAVAILABLE})
"""Ends that say nothing of a candidate."""


class Judged(NamedTuple):
    """What candidates are judged by."""

    task: Source
    spec: Task
    hidden: HiddenCases
    own: bool
    """Whether the hidden cases are the task's."""

    @property
    def timed(self) -> list[str]:
        """The cases that are optimized for: those for the interpreter only where there are no others."""
        return timed_cases(self.spec)


def timed_cases(spec: Task) -> list[str]:
    """The visible cases that are not marked small, or all."""
    return [name for name, case in spec.cases.items() if not case.small] or list(spec.cases)


async def compiled(services: Services, goal: Target, judged: Judged, candidate: Source) -> Identified:
    """Compile every launch of all cases: hidden ones too, or what differs in these alone would pass for the same.

    Raises:
        Stopped: it does not load, or not compile for a visible case.
    """
    found = _Found(goal)
    whole = beside(judged.task, judged.hidden, own=judged.own)
    async with (
        task_worker(services.executor, on_gpu=False) as tasks,
        capture_worker(services.executor, target=target_facts(goal)) as kernels,
    ):
        await tasks.load(whole)
        await kernels.load(candidate, judged.spec)
        for case in judged.timed:
            await found.add(await _captured(tasks, kernels, case, judged.spec, candidate), case, told=True)
        others = [case for case in judged.spec.cases if case not in judged.timed]
        try:
            for case in (*others, *judged.hidden):
                await found.add(await _captured(tasks, kernels, case, judged.spec, candidate), case, told=False)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            # Checking results will find it, and may tell more of a small case, and less of a hidden one.
            found.complete = False
    digest = await anyio.to_thread.run_sync(
        lambda: identity(candidate, found.launched, found.names, complete=found.complete)
    )
    return Identified(digest, found.launches)


async def _captured(tasks: TaskWorker, kernels: KernelWorker, case: str, spec: Task, candidate: Source) -> Capture:
    await kernels.set_inputs(await tasks.make_inputs(case, seed=0, contents="repeated"))
    capture = await kernels.capture()
    if not capture.launches:
        raise rejected(
            "capture",
            f"the entry {spec.entry!r} ran case {case!r} and launched no Triton kernel",
            file=candidate.shown_as,
            fix="The entry must launch at least one @triton.jit kernel: kernel[grid](...).",
        )
    return capture


class _Found:
    """Launches, case by case."""

    def __init__(self, goal: Target) -> None:
        self._goal, self._backend = goal, backend_of(goal)
        self.launched: list[Launched] = []
        self.launches: list[CaseLaunch] = []
        self.names: set[str] = set()
        self.complete = True

    async def add(self, capture: Capture, case: str, *, told: bool) -> None:
        """Take the launches of a case; `told` are those that someone will read of."""
        self.complete = self.complete and not capture.left_out
        await anyio.to_thread.run_sync(self._add, capture, case, told)

    def _add(self, capture: Capture, case: str, told: bool) -> None:
        known: dict[str, LaunchFacts] = {}
        launches: Sequence[CaseLaunch] = []
        for launch in capture.launches:
            # A code is read once, on however many grids it is launched.
            code = launch.model_copy(update={"grid": (1, 1, 1), "count": 1, "tuning": False}).model_dump_json()
            if code not in known:
                known[code] = self._backend.facts(capture, launch, self._goal)
            facts = with_grid(known[code], launch.grid, self._goal)
            self.names.add(launch.kernel)
            self.launched.append(Launched(case, facts.code_hash, launch.grid, launch.count, launch.tuning))
            if not launch.tuning:
                launches = [*launches, CaseLaunch(case=case, facts=facts)]
        if told:
            self.launches += launches
