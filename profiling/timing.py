"""Times kernels side by side: interleaved visits to processes of their own, in blocks that each give one ratio."""

import math
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio

from ..sandbox.conditions import Conditions
from ..sandbox.errors import Stopped, rejected
from ..sandbox.outcome import Kind, Problem
from ..sandbox.replies import Values
from ..sandbox.timing_facts import FirstCall, Sample, Visit
from .statistics import interquartile_mean, median
from .times import Side

VISIT_LIMIT_US: Final = 4_000.0
"""Calls of a visit become fewer where they would take longer than this together: under a power limit the clock swings
within tens of milliseconds, and only sides that take turns faster than that meet the same clock."""
FIRST_CALL_US: Final = 1.0
"""By so much a visit's first call is slower at most (H200)."""
NEGLIGIBLE: Final = 0.0005
"""Share of a time that the first call's delay may be, for it to be used all the same."""
FLUSH_BYTES: Final = 512 << 20
"""Read before each call: eight times the largest L2 of the catalogue's Hopper GPUs, and long enough (about 130 us) for
the host to queue the call's launches behind it."""
CONTENTS: Final = 1 << 13
"""Different contents of one seed; each visit has a seed of its own, which nobody knows before."""
SEEDS: Final = 1 << 31
SETTLED: Final = 0.01
"""Two blocks whose times differ by no more follow a warm-up that was long enough."""
AWAKE_AFTER: Final = 2
LATER_CHECKS: Final = 0.25
LEAST_US: Final = 0.001
"""Activity records count nanoseconds."""
UNEQUAL_CLOCKS: Final = 0.02
UNUSUAL: Final = 5.0
"""A block whose sides ran at clocks further apart than in other blocks, by this much and by so many times the median
deviation, is timed again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one case is timed."""

    calls: int = 10
    """Of a visit; the first, which is slower by up to `FIRST_CALL_US`, is not used where that matters."""
    settling_blocks: int = 8
    """Before the first that counts, at most."""
    time_limit_s: float = 6.0
    """For the blocks of one case."""
    alone_blocks: int = 12
    """Where there is nothing to compare with."""
    call_limit_s: float = 1.0
    """For whole calls of a side; there is one a visit at least."""
    call_blocks: int = 6
    calls_timed: int = 8
    """Whole calls of a visit, timed on the host; the first two wake the process up and are not used."""
    flush_bytes: int = FLUSH_BYTES
    """0 leaves L2 warm."""


FULL: Final = Plan()


Check = Callable[[int, Values, Values | None], Awaitable[None]]
"""Takes the number of a timed call's contents, what it returned, and what is expected where another side says that.

Raises:
    Stopped: it is not right.
"""
Watch = Callable[[], Awaitable[Conditions | None]]


async def first_calls(sides: Sequence[Side], plan: Plan, seed: int | None) -> list[FirstCall]:
    """Have each side, whose inputs are set, compile and autotune; what its first calls were like.

    Args:
        sides: one after the other: a kernel that tunes itself must have the device alone.
        plan: how they are timed.
        seed: of the contents of their inputs; None: they do not vary.

    Raises:
        Stopped: a call failed.
    """
    firsts: list[FirstCall] = []
    for side in sides:
        await side.worker.prepare(plan.flush_bytes, seed)
        firsts.append(await side.worker.first_call())
    return firsts


async def lay_out(sides: Sequence[Side], plan: Plan, firsts: Sequence[FirstCall]) -> int:
    """Have sides make room, all at once; how many calls a visit has.

    Raises:
        Stopped: a call failed.
    """
    slowest_us = max(max(first.second_call_us for first in firsts), 1.0)
    calls = max(1, min(plan.calls, int(VISIT_LIMIT_US / slowest_us)))
    possible: list[int] = []

    async def make_room(side: Side) -> None:
        found = await side.worker.lay_out(calls)
        side.layouts = found.layouts
        possible.append(found.calls)

    await together([partial(make_room, side) for side in sides])
    # A worker may say what it likes.
    return min(calls, *possible)


async def together(steps: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Do all at once; the first that is stopped stops the others.

    Raises:
        Stopped: one was.
    """
    stopped: list[Stopped] = []

    async def do(step: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        try:
            await step()
        except Stopped as error:
            stopped.append(error)
            scope.cancel()

    async with anyio.create_task_group() as group:
        for step in steps:
            group.start_soon(do, step, group.cancel_scope)
    if stopped:
        raise stopped[0]


class Interleaving:
    """Blocks of visits to some sides, until it is known what was asked.

    Attributes:
        blocks: that counted.
        repeated: blocks that were timed again, since the sides' clocks differed.
        checked: timed calls whose results were found right.
        failed: the side whose results were found wrong.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        calls: int,
        plan: Plan,
        *,
        check: Check | None = None,
        watch: Watch | None = None,
    ) -> None:
        """
        Args:
            sides: two or more to compare, the candidate first; or one alone.
            calls: of a visit.
            plan: how they are timed.
            check: for the results of timed calls of the sides that are checked.
            watch: asked for the conditions after each block.
        """
        self.sides = list(sides)
        self.blocks = self.repeated = self.checked = 0
        self.failed: Side | None = None
        self.conditions: list[Conditions] = []
        self._calls, self._plan, self._watch = calls, plan, watch
        self._check = check
        self._clock_ratios: list[list[float]] = []
        self._walls: list[list[float]] = []
        self._number = random.randrange(1 << 16)

    async def settle(self) -> None:
        """Blocks that don't count, until two in a row agree, or a quarter of the time is gone.

        Raises:
            Stopped: as `block`.
        """
        before: list[float] = []
        started = anyio.current_time()
        for _ in range(self._plan.settling_blocks):
            if anyio.current_time() - started > self._plan.time_limit_s / 4:
                return
            visits = await self._visits()
            now = [interquartile_mean([one.device_us for one in self._samples(mine)]) for mine in visits]
            if before and all(abs(new / old - 1) < SETTLED for new, old in zip(now, before, strict=True)):
                return
            before = now

    async def block(self) -> None:
        """One more block: every side early and late, the first drawn at random.

        Raises:
            Stopped: a call failed, put nothing on the GPU or was not recorded, or its results are wrong.
        """
        visits = await self._visits()
        clocks = [_mean([one.sm_clock_hz for one in mine if one.sm_clock_hz is not None]) for mine in visits]
        if self._unequal(clocks) and self.repeated <= self.blocks:
            self.repeated += 1
            return
        self.blocks += 1
        for side, mine, clock, walls in zip(self.sides, visits, clocks, self._walls, strict=True):
            times = side.times
            times.wall_us += walls
            times.first_us += [visit.samples[0].device_us for visit in mine]
            times.blocks.append(self._samples(mine))
            times.layouts.append(self._number % side.layouts)
            times.visits += len(mine)
            if clock is not None:
                times.sm_clock_hz.append(clock)
            for visit in mine:
                for name, us in visit.kernels.items():
                    times.kernels.setdefault(name, []).append(us)
                for name in visit.strays:
                    times.strays[name] = times.strays.get(name, 0) + 1
        if self._watch is not None and (seen := await self._watch()) is not None:
            self.conditions.append(seen)

    async def call_times(self, call_us: float) -> None:
        """Whole calls, interleaved in the same way; the slowest side's take so many microseconds."""
        visits = 2 * self._plan.call_blocks
        calls = max(1, min(self._plan.calls_timed, int(self._plan.call_limit_s * 1e6 / visits / max(call_us, 1.0))))
        for _ in range(self._plan.call_blocks):
            found: list[list[float]] = [[] for _ in self.sides]
            for index in self._order():
                side, started = self.sides[index], anyio.current_time()
                times = await side.worker.call_times(calls)
                side.times.call_wall_us.append((anyio.current_time() - started) * 1e6 / calls)
                found[index] += times[AWAKE_AFTER:] or times
            for side, mine in zip(self.sides, found, strict=True):
                side.times.call_us.append(mine)

    async def _visits(self) -> list[list[Visit]]:
        """Two visits of each side; contents and layouts are the same for all."""
        self._number += 1
        early, late = (self._contents() for _ in range(2))
        found: list[list[Visit]] = [[] for _ in self.sides]
        self._walls = [[] for _ in self.sides]
        for index in self._order():
            contents = late if found[index] else early
            started = anyio.current_time()
            visit = await self.sides[index].worker.visit(self._number, contents)
            self._walls[index].append((anyio.current_time() - started) * 1e6 / self._calls)
            found[index].append(_recorded(visit, self._calls, self.sides[index].name))
        await self._look_at(late)
        return found

    def _contents(self) -> list[int]:
        seed = secrets.randbelow(SEEDS)
        return [seed * CONTENTS + random.randrange(CONTENTS) for _ in range(self._calls)]

    async def _look_at(self, contents: Sequence[int]) -> None:
        """Have the results of one of the calls just timed checked."""
        due = [
            side
            for side in self.sides
            if side.checks and (side.checked < side.checks or random.random() < LATER_CHECKS)
        ]
        if self._check is None or not due:
            return
        # Those that were looked at least come first: two blocks of ordinary calls beside the replayed ones are enough.
        least = min(side.checked for side in due)
        # Only now is it drawn: whoever made the results could not know which would be looked at.
        side, index = random.choice([side for side in due if side.checked == least]), random.randrange(self._calls)
        returned = await side.worker.outputs(index)
        expected = await side.expected.worker.outputs(index) if side.expected is not None else None
        try:
            await self._check(contents[index], returned, expected)
        except Stopped:
            self.failed = side
            raise
        side.checked += 1
        self.checked += 1

    def keep(self, sides: Sequence[Side]) -> None:
        """Go on with some of the sides."""
        self.sides = list(sides)
        self._clock_ratios.clear()

    def _order(self) -> list[int]:
        order = list(range(len(self.sides)))
        random.shuffle(order)
        return [*order, *reversed(order)]

    def _samples(self, visits: Sequence[Visit]) -> list[Sample]:
        shortest_us = min(visit.samples[-1].device_us for visit in visits)
        skipped = int(self._calls > 1 and shortest_us * NEGLIGIBLE < FIRST_CALL_US)
        return [sample for visit in visits for sample in visit.samples[skipped:]]

    def _unequal(self, clocks: Sequence[float | None]) -> bool:
        """Whether a side ran at another clock than the first, more than it does in other blocks."""
        known = [clock for clock in clocks if clock is not None]
        if len(known) < len(self.sides) or len(known) < 2:
            return False
        ratios = [math.log(clock / known[0]) for clock in known[1:]]
        self._clock_ratios.append(ratios)
        return any(_is_unusual(ratio, [block[i] for block in self._clock_ratios]) for i, ratio in enumerate(ratios))


def _is_unusual(value: float, all_of_them: Sequence[float]) -> bool:
    middle = median(all_of_them)
    deviation = median([abs(other - middle) for other in all_of_them])
    return abs(value - middle) > max(UNEQUAL_CLOCKS, UNUSUAL * deviation)


async def until(interleaving: Interleaving, done: Callable[[], bool], deadline: float) -> None:
    """Time blocks until ``done`` says so, or until it is too late for another: `anyio.current_time`."""
    while not done() and anyio.current_time() < deadline:
        await interleaving.block()


def _recorded(visit: Visit, calls: int, side: str) -> Visit:
    """The same visit, where every call of it was recorded and did something."""
    if len(visit.samples) > calls:
        raise Stopped(
            Kind.CHEATING,
            Problem(
                stage="benchmark",
                message=f"{side}: {len(visit.samples)} timed calls were recorded where {calls} were made: the entry "
                "sets marks like those that stand around timed calls",
                likely_fix="Leave the fills away that imitate the benchmark's.",
            ),
        )
    if len(visit.samples) != calls:
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="benchmark",
                message=f"CUPTI recorded {len(visit.samples)} of {calls} timed calls ({side})",
                likely_cause="Another profiler is active in this process or on this GPU.",
                likely_fix="End other profilers and time again.",
            ),
        )
    if any(sample.activities == 0 or min(sample.device_us, sample.kernel_us) < LEAST_US for sample in visit.samples):
        raise rejected(
            "benchmark",
            f"a timed call put nothing on the GPU ({side}): no kernel and no copy was recorded",
            fix="The entry must do its work on the GPU in every call; it must not return a cached result.",
        )
    return visit


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
