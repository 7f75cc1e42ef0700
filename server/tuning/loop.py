"""Runs a search: compilers on the CPU, variants that get ready, and one race at a time on the GPU.

Each variant lives in a task of its own, with its worker, from its start until it has lost: workers end in the task that
started them. Champions are the variants that have not lost yet, one a case.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ...profiling.compiler.launch import LaunchFacts
from ...profiling.tuning.race import Standing
from ...profiling.tuning.search import Search
from ...profiling.tuning.space import Point
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind

BATCH: Final = 8
"""Points chosen at a time for the compilers."""
FIRST_COMPILED: Final = 32
"""Before the first variant is chosen so many are compiled, unless that takes longer than `FIRST_S`."""
FIRST_S: Final = 5.0
AHEAD: Final = 4
"""Variants that are raced or get ready at a time, at most: each was chosen without knowing how the others end."""
SLOWER: Final = 4.0
"""A call that takes so many times the champion's, and `HOST_US` more, needs no race."""
HOST_US: Final = 1000.0
FILL_SHARE: Final = 0.8
"""Of the time or the evaluations: after that, what is known of the best is completed for all cases."""


@dataclass(eq=False)
class Variant:
    """A variant ready to be timed in a case."""

    case: str
    point: Point | None
    """None: the file as it is."""
    call_us: float
    """One whole call, host included."""
    done: anyio.Event = field(default_factory=anyio.Event)
    """Set when it is needed no more."""


class Compiles(Protocol):
    """Compiles variants."""

    async def compile(self, point: Point | None) -> Mapping[str, Sequence[LaunchFacts]]:
        """The launches of a variant by case.

        Raises:
            Stopped: it can't be compiled, or launched.
        """
        ...


class Bench(Compiles, Protocol):
    """Prepares, times and checks them as well."""

    def prepared(self, case: str, point: Point | None) -> AbstractAsyncContextManager[Variant]:
        """A variant that has compiled and made its first calls.

        Raises:
            Stopped: it failed.
        """
        ...

    async def race(self, challenger: Variant, champion: Variant) -> Standing:
        """Time both, interleaved, until the race is decided.

        Raises:
            Stopped: one failed.
        """
        ...

    async def is_alive(self, variant: Variant) -> bool:
        """Whether it can still be timed."""
        ...

    async def check(self, variant: Variant) -> None:
        """Whether its results are right.

        Raises:
            Stopped: they are not, or it failed.
        """
        ...


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
    _fill_at: float = math.inf
    _first_until: float = math.inf
    """By `anyio.current_time`: when the last part begins, and how long the first choice waits for compilers."""
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _to_compile: list[Point] = field(default_factory=list[Point])
    _compiling: int = 0
    _underway: int = 0
    _fatal: Stopped | None = None
    _nothing_at: tuple[object, ...] | None = None
    """How much was known when nothing was found that is worth measuring."""

    async def run(self, budget_s: float) -> None:
        """Search until nothing better is expected, or the time is over.

        Raises:
            Stopped: the file as it is fails, or the call was cancelled.
        """
        begun = anyio.current_time()
        self._fill_at = begun + FILL_SHARE * budget_s
        self._first_until = begun + min(FIRST_S, budget_s / 4)
        with anyio.move_on_after(budget_s):
            try:
                async with anyio.create_task_group() as group:
                    await self._run(group)
                    group.cancel_scope.cancel()
            finally:
                for champion in self.champions.values():
                    champion.done.set()
        if self._fatal is not None:
            raise self._fatal

    async def _run(self, group: TaskGroup) -> None:
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
            for _ in self.search.shares:
                variant = await receiver.receive()
                self.started[variant.case] = self.champions[variant.case] = variant
            await self._races(group, sender, receiver)

    async def _races(
        self, group: TaskGroup, sender: MemoryObjectSendStream[Variant], receiver: MemoryObjectReceiveStream[Variant]
    ) -> None:
        while True:
            changed = self._changed
            self._feed(group, sender)
            if self._underway == 0 and self._is_over():
                return
            try:
                challenger = receiver.receive_nowait()
            except anyio.WouldBlock:
                later = [at - anyio.current_time() for at in (self._first_until, self._fill_at)]
                with anyio.move_on_after(min((one for one in later if one > 0), default=math.inf)):
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
        if known < FIRST_COMPILED and now < self._first_until and (self._compiling or self._to_compile or known <= 1):
            return
        # Working out what comes next takes longer than compiling: not for each variant anew.
        known = search.evaluations, search.compiled_count // BATCH, self._compiling == 0, search.filling
        while self._underway < self._ahead() and known != self._nothing_at:
            found = search.next()
            if found is None:
                self._nothing_at = known
                return
            self._underway += 1
            group.start_soon(self._live, group, sender, found.case, found.point)

    def _ahead(self) -> int:
        """Few while little is known, or few evaluations are left to be wasted."""
        ahead = min(AHEAD, 1 + self.search.evaluations // 6)
        return ahead if self.search.most is None else max(1, min(ahead, self.search.most // 10))

    def _is_mostly_spent(self) -> bool:
        most = self.search.most
        return most is not None and self.search.evaluations >= FILL_SHARE * most

    def _is_over(self) -> bool:
        """Whether the search is over, with nothing underway."""
        search = self.search
        if search.most is not None and search.evaluations >= search.most:
            self.stopped_because = "all evaluations are used"
        elif (
            self._compiling
            or self._to_compile
            or search.may_compile
            or (any(search.candidates().values()) and not search.is_spent and not search.filling)
        ):
            return False
        elif len(search.shares) > 1 and not search.filling:
            search.filling = True
            self._notify()
            return False
        elif any(search.candidates().values()) or search.left_count:
            self.stopped_because = "nothing better is expected"
        else:
            self.stopped_because = "every variant was measured or ruled out"
        return True

    async def _compile(self, group: TaskGroup) -> None:
        """One compiler."""
        while True:
            if not self._to_compile:
                self._to_compile = self.search.to_compile(BATCH)
            if not self._to_compile:
                if not self.search.may_compile:
                    self._notify()
                    return
                await self._changed.wait()
                continue
            self._compiling += 1
            try:
                await compile_one(self.search, self.bench, self._to_compile.pop(0))
            except Stopped as stopped:
                self._end(group, stopped)
                return
            finally:
                self._compiling -= 1
            self._notify()

    async def _live(
        self, group: TaskGroup, sender: MemoryObjectSendStream[Variant], case: str, point: Point | None
    ) -> None:
        """A variant from its start to its end."""
        raced = False
        try:
            async with self.bench.prepared(case, point) as variant:
                await sender.send(variant)
                raced = True
                self._notify()
                await variant.done.wait()
        except Stopped as stopped:
            if point is None or stopped.kind in (Kind.CANCELLED, Kind.UNAVAILABLE):
                self._end(group, stopped)
            elif not raced:
                self.search.failed(case, point, stopped.kind)
                self._underway -= 1
                self._notify()

    async def _meet(self, group: TaskGroup, challenger: Variant) -> None:
        """Race a challenger against its case's champion; the winner stays."""
        search, champion = self.search, self.champions[challenger.case]
        case, point = challenger.case, challenger.point
        assert point is not None
        base = search.champion_value(case, champion.point)
        try:
            if challenger.call_us > SLOWER * champion.call_us + HOST_US:
                search.measured(case, point, base - math.log(challenger.call_us / champion.call_us))
                challenger.done.set()
                return
            found = await self.bench.race(challenger, champion)
            if found.verdict == "faster":
                # A wrong kernel's time is worth nothing, and others would be held against it.
                await self.bench.check(challenger)
                search.right(point)
        except Stopped as stopped:
            challenger.done.set()
            if stopped.kind in (Kind.CANCELLED, Kind.UNAVAILABLE):
                self._end(group, stopped)
            search.failed(case, point, stopped.kind)
            if not await self.bench.is_alive(champion):
                self._lost(group, champion, stopped)
            return
        search.measured(case, point, base + found.center)
        if found.verdict == "faster":
            self.champions[case] = challenger
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
