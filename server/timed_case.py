"""One case of a task timed: the kernels in processes of their own and, where they can be, replayed by trusted ones."""

import math
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import anyio

from ..profiling.audit import blaming_baseline
from ..profiling.comparison import PairBlock, compare
from ..profiling.deciding import blocks_to_decide
from ..profiling.times import Side, call_pairs, launch_bound
from ..profiling.timing import FULL, Interleaving, Plan, first_calls, lay_out, together, until
from ..profiling.verdict import value_faults
from ..sandbox.conditions import Conditions
from ..sandbox.errors import Stopped
from ..sandbox.executors.base import Executor
from ..sandbox.outcome import Kind
from ..sandbox.protocol import SharedBlob
from ..sandbox.replay_plan import Recorded
from ..sandbox.replies import Values
from ..sandbox.source import Source
from ..sandbox.task import Task
from ..sandbox.timed import TimedWorker
from ..sandbox.timing_facts import FirstCall, GraphFloor, Tuned
from ..sandbox.workers import KernelWorker, ReplayWorker, TaskWorker, gpu_worker, replay_worker, task_worker
from .agreement import disagreement, ratio_of, why_not, wrong_while_timed
from .timed_result import Against, Reference, Started, TimedCase, dtypes_of

SLOW_START_S: Final = 10.0
"""A kernel that compiles and tunes for longer is not started in a second pair of processes."""
GRAPH_CALLS: Final = 20
AGREEING_BLOCKS: Final = 2
"""After so many blocks of ordinary calls beside replayed ones it is known whether they agree."""
ORDINARY_CHECKS: Final = 8
"""Of timed calls' results, at least: to shift an interquartile mean, a kernel must be wrong in a quarter of its calls,
and gets away with that in one of ten evaluations; with half of them in one of 256."""
EXACT_CHECKS: Final = 2
"""Of timed calls' results for their accuracy as well: a kernel may compute coarsely only while it is timed."""
ALTERNATIVES: Final = 2
"""Other values of integer and boolean inputs, which noise can't vary."""
REPLAYED_CHECKS: Final = 6
"""Where no foreign host code runs, nothing is kept between calls but in device memory that was written before."""


class _Again(NamedTuple):
    """What another pair of processes needs, to do the same."""

    started: Started
    recorded: Sequence[Recorded] | None
    """None: they load the kernel files."""
    calls: int
    made: list[Interleaving]
    """The pairs so far, beside the first."""


class CaseTimer:
    """Times cases of one task with workers that live as long as ``stack``."""

    def __init__(
        self,
        executor: Executor,
        stack: AsyncExitStack,
        spec: Task,
        task: Source,
        tasks: TaskWorker,
        kernels: Sequence[tuple[Source, KernelWorker]],
        *,
        plan: Plan = FULL,
        against: Sequence[Reference] = (),
        watch: Callable[[], Awaitable[Conditions | None]] | None = None,
    ) -> None:
        """
        Args:
            executor: where further workers come from.
            stack: ends them.
            spec: the task.
            task: its file.
            tasks: worker of the loaded task.
            kernels: the candidate and, where there is one, the baseline, each loaded.
            plan: how cases are timed.
            against: the reference to time beside them.
            watch: asked for the conditions after each block.
        """
        self._executor, self._stack = executor, stack
        self._spec, self._task, self._tasks = spec, task, tasks
        self._kernels, self._plan, self._against, self._watch = list(kernels), plan, against, watch
        self._exact_checks = 0
        self._known_tuned: dict[int, list[Tuned]] = {}
        self._replayers: list[ReplayWorker] = []
        self._others: list[KernelWorker] = []
        self._references: dict[Reference, TaskWorker] = {}

    async def start(self, case: str) -> Started:
        """Make a case's inputs, compile and autotune.

        Raises:
            Stopped: a call failed.
        """
        seed = secrets.randbelow(1 << 31)
        inputs = await self._tasks.make_inputs(case, seed)
        seeds = [secrets.randbelow(1 << 31) for _ in range(ALTERNATIVES)]
        alternatives = await self._tasks.make_alternatives(case, seeds)
        contents, results_bytes = await self._contents()
        sides = self._sides([worker for _, worker in self._kernels], "", ORDINARY_CHECKS)
        # The baseline first, and copied by it before the candidate gets the same memory, to which it could write.
        for side in reversed(sides):
            await side.worker.set_inputs(inputs)
            await side.worker.set_alternatives(alternatives)
        firsts = await first_calls(sides[:1], self._plan, contents)
        with blaming_baseline():
            firsts += await first_calls(sides[1:], self._plan, contents)
        return Started(case, seed, inputs, seeds, alternatives, contents, results_bytes, sides, firsts)

    async def time(self, started: Started) -> TimedCase:
        """Time a case whose results have been found right since.

        Raises:
            Stopped: a call failed or could not be timed, or its results are wrong.
        """
        ordinary = started.sides
        self._exact_checks = EXACT_CHECKS
        tuned = [await self._tuned(worker) for _, worker in self._kernels]
        recorded = await self._record(started)
        reason = why_not(recorded)
        replayed: list[Side] = []
        if reason is None:
            try:
                replayed = await self._replayed(recorded, started, 0)
            except Stopped as stopped:
                if stopped.kind is Kind.CANCELLED:
                    raise
                # A driver that is too old for it, or launches that fail by themselves.
                self._end_replayers()
                reason = f"its launches can't be replayed: {stopped.problem.message}"
        against = [await self._reference(name, started) for name in self._against]
        others = [side for _, side, _ in against if side is not None]
        firsts = [*started.firsts, *(first for _, side, first in against if side is not None and first is not None)]
        calls = await lay_out(ordinary, self._plan, firsts)
        if replayed:
            try:
                calls = min(calls, await lay_out(replayed, self._plan, firsts))
            except Stopped as stopped:
                if stopped.kind is Kind.CANCELLED:
                    raise
                self._end_replayers()
                reason, replayed = f"its launches can't be replayed: {stopped.problem.message}", []
        if others:
            calls = min(calls, await lay_out(others, self._plan, firsts))

        deadline = anyio.current_time() + self._plan.time_limit_s
        first = self._interleaving([*(replayed or ordinary), *others], calls)
        used, ratio, doubt = ordinary, None, None
        try:
            await first.settle()
            if replayed:
                first.keep([*replayed, *others, *ordinary])
                await until(first, lambda: first.blocks >= AGREEING_BLOCKS, math.inf)
                ratio = ratio_of(ordinary[0], replayed[0])
                reason, doubt = disagreement(ordinary, replayed)
                used = ordinary if reason is not None else replayed
        except Stopped as stopped:
            if stopped.kind is not Kind.WRONG or first.failed not in replayed:
                raise
            # Work that is put on the device past torch and Triton, which nothing records.
            reason, replayed = f"its launches by a replayer give other results: {stopped.problem.message}", []
            for side in [*ordinary, *others]:
                side.times.clear()
            first = self._interleaving([*ordinary, *others], calls)
            await first.settle()
        first.keep([*used, *others])
        again = _Again(started, None if used is ordinary else recorded, calls, [])
        groups: list[list[PairBlock]] = []
        if len(used) == 2:
            groups = await blocks_to_decide(first, others, partial(self._another_pair, again), deadline)
        else:
            await until(first, lambda: first.blocks > 0, math.inf)
            await until(first, lambda: first.blocks >= self._plan.alone_blocks, deadline)
        timings = [first, *again.made]

        slowest_us = max(first.second_call_us for first in firsts)
        await Interleaving([*ordinary, *others], calls, self._plan).call_times(slowest_us)
        for side, its in zip(used, ordinary, strict=True):
            side.times.call_us, side.times.call_wall_us = its.times.call_us, its.times.call_wall_us
        further_calls: list[list[PairBlock]] = []
        if groups and compare(groups).comparison != "slower":
            further_calls = await self._calls_again(again, slowest_us)
        candidate = used[0].times
        blobs = started.inputs.blobs
        graph = await self._graph() if replayed and launch_bound(candidate) else None
        await self._release()
        return TimedCase(
            case=started.case,
            how="replayed" if used is replayed else "in_candidate",
            how_reason=reason,
            candidate=candidate,
            baseline=used[1].times if len(used) == 2 else None,
            groups=groups,
            first=started.firsts[0],
            tuned=tuned[0],
            baseline_tuned=tuned[1] if len(tuned) == 2 else [],
            dtypes=dtypes_of(started.inputs.tree),
            input_bytes=sum(blob.size_bytes if isinstance(blob, SharedBlob) else len(blob) for blob in blobs),
            results_bytes=started.results_bytes,
            varies=started.firsts[0].varies,
            checked=sum(timing.checked for timing in timings),
            repeated=sum(timing.repeated for timing in timings),
            replay_ratio=ratio,
            doubt=doubt,
            graph=graph,
            against=[entry for entry, _, _ in against],
            conditions=[seen for timing in timings for seen in timing.conditions],
            further=[[side.times for side in timing.sides] for timing in again.made],
            further_calls=further_calls,
        )

    def end(self) -> None:
        """Its own workers' work is done: they may go side by side."""
        for worker in (*self._replayers, *self._others, *self._references.values()):
            worker.end()

    def _interleaving(self, sides: Sequence[Side], calls: int) -> Interleaving:
        check = self._check if self._spec.has_reference or len(self._kernels) == 2 else None
        return Interleaving(sides, calls, self._plan, check=check, watch=self._watch)

    async def _contents(self) -> tuple[int | None, int | None]:
        """A seed of contents that the task's worker is ready for, or None where they must not vary; and the bytes of
        what is expected, where there is a reference."""
        seed = secrets.randbelow(1 << 31)
        varies = await self._tasks.keep_contents(seed)
        if not self._spec.has_reference:
            return (seed if varies else None), None
        try:
            return (seed if varies else None), (await self._tasks.vary(0)).bytes
        except Stopped as stopped:
            if stopped.kind in (Kind.CANCELLED, Kind.TIMEOUT):
                raise
        # The reference can't bear them: a matrix that must be positive definite, for example.
        await self._tasks.keep_contents(None)
        return None, (await self._tasks.vary(0)).bytes

    def _sides(self, workers: Sequence[TimedWorker], prefix: str, checks: int) -> list[Side]:
        """The candidate's side and, where there is one, the baseline's."""
        names = ("candidate", "baseline")
        sides = [Side(f"{prefix}{name}", worker) for name, worker in zip(names, workers, strict=False)]
        sides[0].checks = checks
        if not self._spec.has_reference and len(sides) == 2:
            sides[0].expected = sides[1]
        return sides

    async def _replayed(self, recorded: Sequence[Recorded], started: Started, pair: int) -> list[Side]:
        """Replayers of both kernels, which have made their first calls.

        Args:
            recorded: a plan of each kernel.
            started: the case.
            pair: number of the pair of processes, which outlive a case: no foreign host code is in them.
        """
        wanted = (pair + 1) * len(recorded)
        while len(self._replayers) < wanted:
            self._replayers.append(await self._stack.enter_async_context(replay_worker(self._executor)))
        workers = self._replayers[wanted - len(recorded) : wanted]

        async def load(worker: ReplayWorker, plan: Recorded) -> None:
            await worker.load_plan(plan)
            await worker.set_inputs(started.inputs)
            await worker.set_alternatives(started.alternatives)

        await together([partial(load, worker, plan) for worker, plan in zip(workers, recorded, strict=True)])
        sides = self._sides(workers, "replayed ", REPLAYED_CHECKS)
        await first_calls(sides, self._plan, started.contents)
        return sides

    async def _reference(self, name: Reference, started: Started) -> tuple[Against, Side | None, FirstCall | None]:
        """The reference in a process of its own, ready to be timed."""
        if not self._spec.has_reference:
            return Against(name, reason="the task has no reference"), None, None
        if name not in self._references:
            worker = await self._stack.enter_async_context(task_worker(self._executor, on_gpu=True))
            await worker.load(self._task)
            self._references[name] = worker
        side = Side(name, self._references[name])
        try:
            await self._references[name].make_inputs(started.case, started.seed)
            await self._references[name].make_alternatives(started.case, started.seeds)
            await self._references[name].time_reference(compiled=name == "torch.compile")
            (first,) = await first_calls([side], self._plan, started.contents)
        except Stopped as stopped:
            if stopped.kind is Kind.CANCELLED:
                raise
            # Whatever it was, another case starts from a clean process.
            self._references.pop(name).end()
            return Against(name, reason=stopped.problem.message), None, None
        return Against(name, times=side.times, first_call_s=first.first_call_s), side, first

    def _end_replayers(self) -> None:
        for replayer in self._replayers:
            replayer.end()
        self._replayers.clear()

    async def _tuned(self, worker: KernelWorker) -> list[Tuned]:
        """What the autotuner has chosen since it was asked last."""
        known = self._known_tuned.setdefault(id(worker), [])
        new = [one for one in await worker.tuned() if one not in known]
        known += new
        return new

    async def _record(self, started: Started) -> list[Recorded]:
        """What each kernel's call puts on the device, of the case's own inputs: checks have had others since."""
        found: list[Recorded] = []
        for _, worker in reversed(self._kernels):
            await worker.set_inputs(started.inputs)
            try:
                found.append(await worker.record())
            except Stopped as stopped:
                if stopped.kind is Kind.CANCELLED:
                    raise
                # What only fails while it is recorded can be timed all the same.
                found.append(Recorded(reason=stopped.problem.message))
        return found[::-1]

    async def _release(self) -> None:
        """Free what this case's helpers hold, for the next one's."""
        for worker in (*self._replayers, *self._others, *self._references.values()):
            await worker.release()

    async def _graph(self) -> GraphFloor:
        """The candidate's recorded launches as a CUDA graph."""
        try:
            found = await self._replayers[0].graph_floor(GRAPH_CALLS)
        except Stopped as stopped:
            if stopped.kind is Kind.CANCELLED:
                raise
            found = GraphFloor(reason=stopped.problem.message)
        if found.reason is not None:
            # torch's allocator is not itself after a capture that failed.
            self._end_replayers()
        return found

    async def _another_pair(self, again: "_Again", pair: int) -> Interleaving | None:
        """Other processes of the same kernels, ready to be timed; None where that would take too long, or too much."""
        started = again.started
        if again.recorded is None and any(first.first_call_s > SLOW_START_S for first in started.firsts):
            return None
        try:
            if again.recorded is not None:
                sides = await self._replayed(again.recorded, started, pair)
            else:
                sides = await self._ordinary(started, pair)
            await lay_out(sides, replace(self._plan, calls=again.calls), started.firsts)
            found = self._interleaving(sides, again.calls)
            await found.settle()
        except Stopped as stopped:
            if stopped.kind in (Kind.CANCELLED, Kind.CHEATING, Kind.WRONG):
                raise
            # There is an answer already: memory for another pair, for example, is no condition of it.
            return None
        again.made.append(found)
        return found

    async def _calls_again(self, again: "_Again", slowest_us: float) -> list[list[PairBlock]]:
        """Whole calls of another pair of processes, where those of the first tell of a loss that the device does not: a
        process that shares its core with something else is slower for as long as it lives."""
        if compare([call_pairs(*(side.times for side in again.started.sides))]).ratio_high >= 1:
            return []
        made = again.made[0] if again.recorded is None and again.made else None
        pair = made or await self._another_pair(again._replace(recorded=None, made=[]), 1)
        if pair is None:
            return []
        sides = pair.sides[:2]
        await Interleaving(sides, again.calls, self._plan).call_times(slowest_us)
        return [call_pairs(*(side.times for side in sides))]

    async def _ordinary(self, started: Started, pair: int) -> list[Side]:
        """Another pair of processes that load the kernel files."""
        count = len(self._kernels)
        for source, _ in self._kernels[len(self._others) - (pair - 1) * count :]:
            worker = await self._stack.enter_async_context(gpu_worker(self._executor))
            await worker.load(source, self._spec)
            self._others.append(worker)
        workers = self._others[(pair - 1) * count : pair * count]
        for worker in reversed(workers):
            await worker.set_inputs(started.inputs)
            await worker.set_alternatives(started.alternatives)
        sides = self._sides(workers, "other ", ORDINARY_CHECKS)
        await first_calls(sides, self._plan, started.contents)
        return sides

    async def _check(self, number: int, returned: Values, expected: Values | None) -> None:
        """Compare what a timed call returned with what is expected of its contents."""
        await self._tasks.vary(number, expected)
        exact, self._exact_checks = self._spec.has_reference and self._exact_checks > 0, self._exact_checks - 1
        faults = value_faults(await self._tasks.judge_outputs(returned, slot=1, exact=exact))
        if faults:
            raise wrong_while_timed(faults[0].message)
