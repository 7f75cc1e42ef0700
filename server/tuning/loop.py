"""Runs a search: compilers on the CPU, variants that get ready, and one race at a time on the GPU.

Each variant lives in a task of its own, with its worker, from its start until it has lost: workers end in the task that
started them. Champions are the variants that have not lost yet, one a case.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ...profiling.tuning.search import Search
from ...profiling.tuning.space import Point
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind
from .finals import Finals
from .variants import Bench, Compiles, Step, Variant

BATCH: Final = 8
"""Points chosen at a time for the compilers, once so many are known: choosing takes longer, the more is known."""
FIRST_COMPILED: Final = 16
FIRST_SHARE: Final = 0.125
FIRST_S: Final = 5.0
"""Before the first variant is chosen so many are compiled, unless that takes longer than this share of the time."""
FEW_COMPILED: Final = 128
FEW_SHARE: Final = 0.25
FEW_S: Final = 15.0
"""The same where the evaluations are numbered: compiling costs none of them."""
AHEAD: Final = 4
"""Variants that are raced or get ready at a time, at most: each was chosen without knowing how the others end."""
SLOWER: Final = 4.0
"""A call that takes so many times the champion's, and `HOST_US` more, needs no race."""
HOST_US: Final = 30_000.0
"""A process that makes its CUDA context meanwhile delays a single call by several milliseconds."""
FILL_SHARE: Final = 0.8
"""Of the time or the evaluations: after that, what is known of the best is completed for all cases."""
CONFIRM_SHARE: Final = 0.9
"""Of the time: after that, the best is raced against the file as it is once more, unless it is far ahead."""


@dataclass
class Tuning:
    """One search as it runs."""

    search: Search
    bench: Bench
    compilers: int
    started: dict[str, Variant] = field(default_factory=dict[str, Variant])
    """The file as it is, by case."""
    champions: dict[str, Variant] = field(default_factory=dict[str, Variant])
    stopped_because: str = "time is up"
    timeline: list[Step] = field(default_factory=list[Step])
    compile_s: list[float] = field(default_factory=list[float])
    """How long each compilation took."""
    ready_s: float | None = None
    """When the file as it is was ready to be timed in all cases, from the start; None: never."""
    _begun: float = 0.0
    _fill_at: float = math.inf
    _confirm_at: float = math.inf
    _first_until: float = math.inf
    """By `anyio.current_time`: when the last parts begin, and how long the first choice waits for compilers."""
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _to_compile: list[Point] = field(default_factory=list[Point])
    _early: list[Variant] = field(default_factory=list[Variant])
    """Ready before the file as it is was."""
    _compiling: int = 0
    _underway: int = 0
    _fatal: Stopped | None = None
    _nothing_at: tuple[object, ...] | None = None
    """How much was known when nothing was found that is worth measuring."""

    async def run(self, budget_s: float, begin_s: float = 0.0) -> None:
        """Search until nothing better is expected, or the time is over.

        Args:
            budget_s: for the search.
            begin_s: so much more, at most, until the file as it is can be timed: on a busy machine that takes as long
                as a short search.

        Raises:
            Stopped: the file as it is fails, or the call was cancelled.
        """
        self._begun = anyio.current_time()
        self._plan_times(self._begun, budget_s)
        with anyio.move_on_after(budget_s + begin_s) as scope:
            try:
                async with anyio.create_task_group() as group:
                    await self._run(group, scope, budget_s)
                    group.cancel_scope.cancel()
            finally:
                for variant in (*self.champions.values(), *self.started.values()):
                    variant.done.set()
        if self._fatal is not None:
            raise self._fatal

    def _plan_times(self, begun: float, budget_s: float) -> None:
        self._fill_at = begun + FILL_SHARE * budget_s
        self._confirm_at = begun + CONFIRM_SHARE * budget_s
        share, longest = (FIRST_SHARE, FIRST_S) if self.search.most is None else (FEW_SHARE, FEW_S)
        self._first_until = self._begun + min(longest, share * budget_s)

    async def _run(self, group: TaskGroup, scope: anyio.CancelScope, budget_s: float) -> None:
        sender, receiver = anyio.create_memory_object_stream[Variant](AHEAD + len(self.search.shares))
        async with sender, receiver:
            for case in self.search.shares:
                group.start_soon(self._live, group, sender, case, None)
            try:
                self.search.baseline(await self.bench.compile(None))
            except Stopped as stopped:
                self._end(group, stopped)
                return
            for _ in range(self.compilers):
                group.start_soon(self._compile, group)
            while len(self.started) < len(self.search.shares):
                await self._begin(group, sender, receiver)
            now = anyio.current_time()
            self.ready_s = now - self._begun
            scope.deadline = min(scope.deadline, now + budget_s)
            self._plan_times(scope.deadline - budget_s, budget_s)
            self.search.filling = False
            await self._races(group, sender, receiver)
            try:
                await self._finals().run()
            except Stopped as stopped:
                self._end(group, stopped)

    def _finals(self) -> Finals:
        return Finals(self.search, self.bench, self.champions, self.started)

    async def _begin(
        self, group: TaskGroup, sender: MemoryObjectSendStream[Variant], receiver: MemoryObjectReceiveStream[Variant]
    ) -> None:
        """Until the file as it is is ready, the first variants get ready, too."""
        changed = self._changed
        self._feed(group, sender)
        try:
            variant = receiver.receive_nowait()
        except anyio.WouldBlock:
            with anyio.move_on_after(self._until_next()):
                await changed.wait()
            return
        if variant.point is None:
            self.started[variant.case] = self.champions[variant.case] = variant
        else:
            self._early.append(variant)

    def _until_next(self) -> float:
        """Seconds until something is due."""
        later = [at - anyio.current_time() for at in (self._first_until, self._fill_at, self._confirm_at)]
        return min((one for one in later if one > 0), default=math.inf)

    async def _races(
        self, group: TaskGroup, sender: MemoryObjectSendStream[Variant], receiver: MemoryObjectReceiveStream[Variant]
    ) -> None:
        while True:
            changed = self._changed
            if anyio.current_time() >= self._confirm_at and self._finals().unsure is not None:
                return
            self._feed(group, sender)
            if self._underway == 0 and self._is_over():
                return
            try:
                challenger = self._early.pop(0) if self._early else receiver.receive_nowait()
            except anyio.WouldBlock:
                with anyio.move_on_after(self._until_next()):
                    await changed.wait()
                continue
            await self._meet(group, challenger)
            self._underway -= 1
            self._notify()

    def _feed(self, group: TaskGroup, sender: MemoryObjectSendStream[Variant]) -> None:
        """Have variants get ready, as many as there should be."""
        search, now = self.search, anyio.current_time()
        if not search.filling and len(search.shares) > 1 and (now >= self._fill_at or self._is_mostly_spent()):
            search.filling = True
        known = search.compiled_count + len(search.pruned)
        wanted = FIRST_COMPILED if search.most is None else FEW_COMPILED
        if known < wanted and now < self._first_until and (self._compiling or self._to_compile or known <= 1):
            return
        # Working out what comes next takes longer than compiling: not for each variant anew.
        count = search.compiled_count
        known = (
            search.evaluations, count if count < FIRST_COMPILED else count // BATCH, self._compiling == 0,
            search.filling,
        )  # fmt: skip
        while self._underway < self._ahead() and known != self._nothing_at:
            found = search.next()
            if found is None:
                self._nothing_at = known
                return
            self._underway += 1
            group.start_soon(self._live, group, sender, found.case, found.point)

    def _ahead(self) -> int:
        """Few where evaluations are numbered: none is to be wasted on what another would have told."""
        if self.search.most is None:
            return min(AHEAD, max(2, self.compilers))
        return max(1, min(AHEAD, 1 + self.search.evaluations // 6, self.search.most // 10))

    def _is_mostly_spent(self) -> bool:
        most = self.search.most
        return most is not None and self.search.evaluations >= FILL_SHARE * most

    def _is_over(self) -> bool:
        """Whether the search is over, with nothing underway."""
        search = self.search
        candidates = any(search.candidates().values())
        if search.most is not None and search.evaluations >= search.most:
            self.stopped_because = "all evaluations are used"
        elif self._compiling or self._to_compile or search.may_compile or (candidates and not search.is_spent):
            return False
        elif len(search.shares) > 1 and not search.filling:
            search.filling = True
            self._notify()
            return False
        elif candidates or search.left_count:
            self.stopped_because = "nothing better is expected"
        else:
            self.stopped_because = "every variant was measured or ruled out"
        return True

    async def _compile(self, group: TaskGroup) -> None:
        """One compiler."""
        while True:
            if not self._to_compile:
                few = self.search.compiled_count < FIRST_COMPILED
                self._to_compile = self.search.to_compile(min(BATCH, self.compilers) if few else BATCH)
            if not self._to_compile:
                if not self.search.may_compile:
                    self._notify()
                    return
                await self._changed.wait()
                continue
            self._compiling += 1
            started = anyio.current_time()
            try:
                await compile_one(self.search, self.bench, self._to_compile.pop(0))
            except Stopped as stopped:
                self._end(group, stopped)
                return
            finally:
                self._compiling -= 1
            self.compile_s.append(anyio.current_time() - started)
            self._notify()

    async def _live(
        self, group: TaskGroup, sender: MemoryObjectSendStream[Variant], case: str, point: Point | None
    ) -> None:
        """A variant from its start to its end."""
        raced, chosen_at = False, anyio.current_time()
        try:
            async with self.bench.prepared(case, point) as variant:
                variant.chosen_at, variant.ready_at = chosen_at, anyio.current_time()
                await sender.send(variant)
                raced = True
                self._notify()
                await variant.done.wait()
        except Stopped as stopped:
            if point is None or stopped.kind in (Kind.CANCELLED, Kind.UNAVAILABLE):
                self._end(group, stopped)
            elif not raced:
                ready_s = anyio.current_time() - chosen_at
                self.timeline.append(
                    Step(case, point, chosen_at - self._begun, ready_s, 0.0, 0.0, 0.0, stopped.kind.value)
                )
                self.search.failed(case, point, stopped.kind)
                self._underway -= 1
                self._notify()

    async def _meet(self, group: TaskGroup, challenger: Variant) -> None:
        """Race a challenger against its case's champion; the winner stays."""
        search, champion = self.search, self.champions[challenger.case]
        case, point = challenger.case, challenger.point
        assert point is not None
        base, base_error = search.champion_value(case, champion.point), search.error(case, champion.point)
        begun = raced = anyio.current_time()
        how = "slow"
        try:
            if challenger.call_us > SLOWER * champion.call_us + HOST_US:
                search.measured(case, point, base - math.log(challenger.call_us / champion.call_us))
                challenger.done.set()
                return
            found = await self.bench.race(challenger, champion)
            raced, how = anyio.current_time(), found.verdict
            if found.verdict == "faster":
                # A wrong kernel's time is worth nothing, and others would be held against it.
                await self.bench.check(challenger)
                search.right(point)
        except Stopped as stopped:
            how = stopped.kind.value
            challenger.done.set()
            if stopped.kind in (Kind.CANCELLED, Kind.UNAVAILABLE):
                self._end(group, stopped)
            search.failed(case, point, stopped.kind)
            if not await self.bench.is_alive(champion):
                self._lost(group, champion, stopped)
            return
        finally:
            its, now = challenger, anyio.current_time()
            ready_s, waited_s = its.ready_at - its.chosen_at, begun - its.ready_at
            at_s = its.chosen_at - self._begun
            self.timeline.append(Step(case, point, at_s, ready_s, waited_s, raced - begun, now - raced, how))
        search.measured(case, point, base + found.center, math.hypot(base_error, found.error))
        if found.verdict == "faster":
            self.champions[case] = challenger
            if champion.point is not None:
                # The file as it is stays: the best is held against it in the end.
                champion.done.set()
        else:
            challenger.done.set()

    def _lost(self, group: TaskGroup, champion: Variant, stopped: Stopped) -> None:
        """A champion can't be timed any more: nothing can be held against it."""
        if champion.point is None:
            self._end(group, stopped)
            return
        self.search.failed(champion.case, champion.point, stopped.kind)
        self.stopped_because = "the best variant so far can no longer be timed"
        group.cancel_scope.cancel()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _end(self, group: TaskGroup, stopped: Stopped) -> None:
        self._fatal = self._fatal or stopped
        group.cancel_scope.cancel()


async def compile_one(search: Search, bench: Compiles, point: Point) -> None:
    """Have a variant compiled, and tell the search.

    Raises:
        Stopped: it is not the variant's doing that it was not.
    """
    try:
        search.compiled(point, await bench.compile(point))
    except Stopped as stopped:
        if stopped.kind in (Kind.CANCELLED, Kind.UNAVAILABLE):
            raise
        search.refused(point, stopped.kind, stopped.problem)


async def compile_only(search: Search, bench: Compiles, compilers: int, budget_s: float) -> None:
    """Compile as many variants as the time allows, for what that alone tells.

    Raises:
        Stopped: the file as it is fails.
    """
    search.baseline(await bench.compile(None))
    failures: list[Stopped] = []

    async def compiler() -> None:
        try:
            while points := search.to_compile(1):
                await compile_one(search, bench, points[0])
        except Stopped as stopped:
            failures.append(stopped)

    with anyio.move_on_after(budget_s):
        async with anyio.create_task_group() as group:
            for _ in range(compilers):
                group.start_soon(compiler)
    if failures:
        raise failures[0]
