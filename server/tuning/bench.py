"""The bench of a search on this machine: capture workers compile, and each variant is timed in a worker of its own."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import anyio

from ...profiling.comparison import log_ratios
from ...profiling.compiler.backends import backend_of
from ...profiling.compiler.launch import LaunchFacts
from ...profiling.correctness import check_case
from ...profiling.hardware.model import Target
from ...profiling.rounds import ONCE
from ...profiling.statistics import median
from ...profiling.times import Side, pairs
from ...profiling.timing import FULL, Interleaving, Plan, first_calls, lay_out, until
from ...profiling.tuning.race import Standing, standing
from ...profiling.tuning.space import Point, Space
from ...profiling.tuning.variant import variant
from ...sandbox.errors import Stopped, rejected
from ...sandbox.executors.base import Executor
from ...sandbox.facts import CapturedLaunch
from ...sandbox.outcome import Kind, Problem
from ...sandbox.protocol import Blob, SharedBlob
from ...sandbox.replies import Values
from ...sandbox.source import Source
from ...sandbox.task import Task
from ...sandbox.workers import KernelWorker, TaskWorker, capture_worker, gpu_worker
from ..services import target_facts
from .variants import Variant

PLAN: Final[Plan] = replace(FULL, settling_blocks=2, time_limit_s=2.0)
"""Of a race: it is about percents, and `benchmark` decides in the end."""
LEAST_LIMIT_S: Final = 5.0
SLOWER: Final = 4.0
"""A variant may take so many times as long to compile as the file as it is: huge tiles of few warps take minutes."""
SEED: Final = 11
"""Of the inputs, which are the same in all calls; results are checked on others."""


@dataclass(eq=False)
class _Timed(Variant):
    """A variant with its worker."""

    worker: KernelWorker = field(kw_only=True)
    calls: int = field(kw_only=True)
    layouts: int = field(kw_only=True)
    device_us: list[float] = field(default_factory=list[float], kw_only=True)
    """Of all calls that were timed."""


class Compiler:
    """Compiles variants for a target, each in a worker of its own."""

    def __init__(self, executor: Executor, kernel: Source, spec: Task, target: Target) -> None:
        self.executor, self.kernel, self.spec, self.target = executor, kernel, spec, target
        self.space: Space | None = None
        """Known once the file as it is has been compiled."""
        self.captured: dict[str, list[CapturedLaunch]] = {}
        """Launches of the file as it is, by case."""
        self._first: Mapping[str, Sequence[LaunchFacts]] | None = None
        self._limit_s = LEAST_LIMIT_S
        self._backend = backend_of(target)
        self.inputs: dict[str, Values] = {}
        """By case, on the CPU: for their form alone."""

    async def make_inputs(self, tasks: TaskWorker, cases: Sequence[str]) -> None:
        """Inputs on the CPU, for their form alone."""
        for case in cases:
            self.inputs[case] = await tasks.make_inputs(case, seed=0, contents="repeated")

    @property
    def input_bytes(self) -> dict[str, int]:
        """Of each case's largest tensor."""
        sizes = {case: [_size(blob) for blob in values.blobs] for case, values in self.inputs.items()}
        return {case: max(each) for case, each in sizes.items() if each}

    def source(self, point: Point | None) -> Source:
        """A variant's text.

        Raises:
            Stopped: it can't be made.
        """
        if point is None or self.space is None:
            return self.kernel
        text = variant(self.kernel.text, self.space, point)
        if text is None:
            raise rejected("tune", "the edited file would be no Python")
        return Source(text, self.kernel.shown_as, self.kernel.origin)

    async def compile(self, point: Point | None) -> Mapping[str, Sequence[LaunchFacts]]:
        """See `Bench.compile`."""
        if point is None:
            if self._first is None:
                started = anyio.current_time()
                self._first = await self._compiled(None)
                self._limit_s = max(LEAST_LIMIT_S, SLOWER * (anyio.current_time() - started))
            return self._first
        with anyio.move_on_after(self._limit_s):
            return await self._compiled(point)
        message = f"its compilation was ended after {self._limit_s:.0f} s"
        raise Stopped(Kind.TIMEOUT, Problem(stage="compile", message=message))

    async def _compiled(self, point: Point | None) -> Mapping[str, Sequence[LaunchFacts]]:
        found: dict[str, list[LaunchFacts]] = {}
        async with capture_worker(self.executor, target=target_facts(self.target)) as worker:
            await worker.load(self.source(point), self.spec)
            for case, inputs in self.inputs.items():
                await worker.set_inputs(inputs)
                capture = await worker.capture()
                launches = [one for one in capture.launches if not one.tuning]
                if not launches:
                    raise rejected(
                        "capture", f"the entry {self.spec.entry!r} launches no Triton kernel in case {case!r}"
                    )
                if point is None:
                    self.captured[case] = launches
                found[case] = await anyio.to_thread.run_sync(
                    lambda launches=launches, capture=capture: [
                        self._backend.facts(capture, one, self.target) for one in launches
                    ]
                )
        return found


class GpuBench:
    """Times variants on this machine's GPU. Its owner holds the GPU's turn."""

    def __init__(
        self, compiler: Compiler, tasks: TaskWorker, baseline: KernelWorker | None, inputs: Mapping[str, Values]
    ) -> None:
        """
        Args:
            compiler: compiles.
            tasks: worker of the loaded task, on the GPU.
            baseline: where the task has no reference, a worker with the file as it is, which says what is right.
            inputs: of each case.
        """
        self._compiler, self._tasks, self._baseline, self._inputs = compiler, tasks, baseline, inputs
        self.compile = compiler.compile

    @asynccontextmanager
    async def prepared(self, case: str, point: Point | None) -> AsyncGenerator[Variant]:
        """See `Bench.prepared`."""
        source = self._compiler.source(point)
        async with gpu_worker(self._compiler.executor) as worker:
            await worker.load(source, self._compiler.spec)
            await worker.set_inputs(self._inputs[case])
            side = Side("variant", worker)
            firsts = await first_calls([side], PLAN, None)
            calls = await lay_out([side], PLAN, firsts)
            call_us = firsts[0].second_call_us
            yield _Timed(case, point, call_us, worker=worker, calls=calls, layouts=side.layouts)

    async def race(self, challenger: Variant, champion: Variant) -> Standing:
        """See `Bench.race`."""
        both = [_timed(challenger), _timed(champion)]
        sides = [Side("challenger", both[0].worker, both[0].layouts), Side("champion", both[1].worker, both[1].layouts)]
        timing = Interleaving(sides, min(one.calls for one in both), PLAN)
        await timing.settle()

        def now() -> Standing:
            return standing(log_ratios(pairs(sides[0].times, sides[1].times)))

        deadline = anyio.current_time() + PLAN.time_limit_s
        await until(timing, lambda: timing.blocks > 0, float("inf"))
        await until(timing, lambda: now().verdict != "open", deadline)
        for one, side in zip(both, sides, strict=True):
            one.device_us += side.times.device_us()
        found = now()
        # What time did not suffice for changes nothing.
        return found if found.verdict != "open" else found._replace(verdict="not faster")

    async def is_alive(self, variant: Variant) -> bool:
        """See `Bench.is_alive`."""
        its = _timed(variant)
        try:
            await its.worker.visit(0, [0] * its.calls)
        except Stopped:
            return False
        return True

    async def check(self, variant: Variant) -> None:
        """See `Bench.check`."""
        its, spec = _timed(variant), self._compiler.spec
        reference = None if spec.has_reference else self._baseline
        found = await check_case(its.case, ONCE, spec, self._tasks, its.worker, reference=reference)
        if found.kind is not Kind.OK:
            raise Stopped(found.kind, Problem(stage="compare", message=found.message or "the results are wrong"))
        await its.worker.set_inputs(self._inputs[its.case])
        found = await its.worker.lay_out(its.calls)
        its.layouts, its.calls = found.layouts, min(its.calls, found.calls)


def _size(blob: Blob) -> int:
    return blob.size_bytes if isinstance(blob, SharedBlob) else len(blob)


def device_us(variant: Variant) -> float | None:
    """Median of all calls timed so far, on the device; None where there were none."""
    timed = _timed(variant).device_us
    return median(timed) if timed else None


def _timed(variant: Variant) -> _Timed:
    assert isinstance(variant, _Timed)
    return variant
