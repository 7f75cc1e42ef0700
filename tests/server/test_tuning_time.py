"""How a search uses its time, by a clock that jumps: small budgets, slow machines, and the last races."""

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.diagnosis.made_up import H200
from tests.profiling.tuning.landscapes import knob, space_of
from tests.server.test_tuning_loop import SMALL, FakeBench, log_time, stopped
from tests.server.virtual_clock import virtual
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.tuning.race import Standing
from tritonforge.profiling.tuning.search import WORTH_IT, Search
from tritonforge.profiling.tuning.space import Point
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.tuning.loop import Tuning, Variant

WARPS = space_of(knob("num_warps", 4, 1, 2, 4, 8, 16))


class SlowBench(FakeBench):
    """One on which everything takes its time, in seconds."""

    compile_s, file_s, variant_s, race_s, check_s = 0.1, 1.0, 1.0, 0.1, 0.2
    uneven = 0.0

    def __init__(self, cost: Callable[[str, Point], float], **given: Any) -> None:
        super().__init__(given.pop("space", SMALL), cost)
        self.ready_most = self.ready = 0
        for name, value in given.items():
            setattr(self, name, value)

    async def compile(self, point: Point | None) -> Mapping[str, Sequence[LaunchFacts]]:
        if point is not None:
            # Compilers don't end together.
            await anyio.sleep(self.compile_s * (1 + self.uneven * len(self.compiled)))
        return await super().compile(point)

    @asynccontextmanager
    async def prepared(self, case: str, point: Point | None) -> AsyncGenerator[Variant]:
        self.ready += point is not None
        self.ready_most = max(self.ready_most, self.ready)
        await anyio.sleep(self.file_s if point is None else self.variant_s)
        self.ready -= point is not None
        async with super().prepared(case, point) as variant:
            yield variant

    async def race(self, challenger: Variant, champion: Variant) -> Standing:
        await anyio.sleep(self.race_s)
        return await super().race(challenger, champion)

    async def check(self, variant: Variant) -> None:
        await anyio.sleep(self.check_s)
        await super().check(variant)


def plain(case: str, point: Point) -> float:
    return log_time(point)


def by_warps(case: str, point: Point) -> float:
    return 0.1 * abs(math.log2(int(point[0] or 4)) - 3)


async def tuned(bench: SlowBench, budget_s: float, most: int | None = None, begin_s: float = 0.0) -> Tuning:
    search = Search(bench.space, dict.fromkeys(bench.cases, 1 / len(bench.cases)), H200, most)
    tuning = Tuning(search, bench, compilers=4)
    await tuning.run(budget_s, begin_s)
    assert bench.alive == 0
    return tuning


@virtual
async def test_a_small_budget_is_used_by_several_variants_at_a_time() -> None:
    bench = SlowBench(plain)
    tuning = await tuned(bench, 8.0)
    assert tuning.search.evaluations >= 8
    assert bench.ready_most == 4
    assert tuning.search.champion("train").point == (4, 2)


@virtual
async def test_variants_get_ready_while_the_file_as_it_is_does() -> None:
    bench = SlowBench(plain, file_s=3.0, variant_s=3.0)
    tuning = await tuned(bench, 5.0)
    assert tuning.ready_s == pytest.approx(3.0)
    assert len(bench.raced) >= 4


@virtual
async def test_where_the_file_as_it_is_takes_the_time_the_search_gets_its_own() -> None:
    slow: dict[str, Any] = {"space": WARPS, "file_s": 7.5, "variant_s": 2.0}
    bench = SlowBench(by_warps, **slow, cases=["a", "b", "c"])
    tuning = await tuned(bench, 8.0, begin_s=10.0)
    assert tuning.ready_s == pytest.approx(7.5)
    assert tuning.search.evaluations >= 8
    assert tuning.stopped_because != "time is up"
    assert tuning.search.worth_offering()[0].point == (8,)


@virtual
async def test_a_search_without_a_measurement_does_not_end_because_nothing_better_is_expected() -> None:
    # The last fifth, in which the best is completed for all cases, begins before anything was measured.
    bench = SlowBench(by_warps, space=WARPS, cases=["a", "b"], file_s=6.9, variant_s=7.2)
    tuning = await tuned(bench, 8.0)
    assert tuning.search.evaluations >= 1
    assert tuning.stopped_because == "time is up"


@virtual
async def test_few_compiled_in_the_time_are_measured_all_the_same() -> None:
    bench = SlowBench(plain, compile_s=2.0, uneven=0.1)
    tuning = await tuned(bench, 8.0)
    assert tuning.search.evaluations >= 4
    # As soon as one has compiled, not after the eighth.
    assert tuning.timeline[0].at_s < 3.0


@virtual
async def test_with_numbered_evaluations_all_is_compiled_first() -> None:
    compiled: list[int] = []
    space = space_of(knob("A", 1, *(1 << power for power in range(8))), knob("B", 1, 1, 2, 4, 8, 16))
    bench = SlowBench(plain, space=space, compile_s=0.4)
    search = Search(space, {"train": 1.0}, H200, 3)
    tuning = Tuning(search, bench, compilers=2)
    race = bench.race

    async def counted(challenger: Variant, champion: Variant) -> Standing:
        compiled.append(len(bench.compiled))
        return await race(challenger, champion)

    bench.race = counted
    await tuning.run(60.0)
    assert compiled[0] == space.size - 1


@virtual
async def test_it_tells_where_the_time_of_each_evaluation_went() -> None:
    bench = SlowBench(plain, faults={(8, 4): Kind.RUNTIME_ERROR})
    tuning = await tuned(bench, 60.0)
    assert len(tuning.timeline) == tuning.search.evaluations
    by_point = {step.point: step for step in tuning.timeline}
    assert by_point[8, 4].how == "runtime_error"
    assert by_point[8, 4].race_s == 0
    won = [step for step in tuning.timeline if step.how == "faster"]
    assert won
    for step in won:
        assert (step.ready_s, step.race_s, step.check_s) == pytest.approx((1.0, 0.1, 0.2))
    assert all(step.check_s == 0 for step in tuning.timeline if step.how == "not faster")
    assert tuning.compile_s == pytest.approx([0.1] * len(bench.compiled))


def flattered(bench: SlowBench, point: Point, by: float) -> None:
    """The first race of a variant looks better than it is."""
    race = bench.race

    async def better(challenger: Variant, champion: Variant) -> Standing:
        first = bench.raced.count((challenger.case, point)) == 0
        found = await race(challenger, champion)
        return found._replace(center=by, verdict="faster") if challenger.point == point and first else found

    bench.race = better


@virtual
async def test_what_only_chance_put_ahead_is_raced_again_and_not_offered() -> None:
    bench = SlowBench(lambda case, point: 0.0, space=WARPS)
    flattered(bench, (8,), 0.025)
    tuning = await tuned(bench, 60.0)
    search = tuning.search
    assert len(bench.raced) > search.evaluations
    assert search.worth_offering() == []
    assert bench.raced.count(("train", (8,))) > 1
    assert search.value("train", (8,)) == pytest.approx(0.0, abs=0.01)


@virtual
async def test_what_holds_is_offered_and_what_is_far_ahead_is_not_raced_again() -> None:
    bench = SlowBench(plain)
    tuning = await tuned(bench, 60.0)
    assert len(bench.raced) == tuning.search.evaluations
    best, *_ = tuning.search.worth_offering()
    assert best.point == (4, 2)
    close = SlowBench(lambda case, point: 0.0 if point == (8,) else 0.02, space=WARPS)
    tuning = await tuned(close, 60.0)
    assert close.raced[-1] == ("train", (8,))
    assert len(close.raced) > tuning.search.evaluations
    (only,) = tuning.search.worth_offering()
    assert only.point == (8,)
    assert WORTH_IT < tuning.search.sure(only) < only.value == pytest.approx(0.02, abs=0.01)


@virtual
async def test_time_is_kept_for_the_last_races() -> None:
    space = space_of(knob("A", 1, *(1 << power for power in range(8))), knob("B", 1, 1, 2, 4, 8))
    bench = SlowBench(lambda case, point: 0.02 if point == (1, 1) else 0.0, space=space, variant_s=2.0)
    tuning = await tuned(bench, 8.0)
    assert tuning.search.evaluations < space.size - 1
    assert bench.raced[-1] in bench.raced[:-1]
    assert tuning.search.worth_offering()


@virtual
async def test_a_finalist_that_fails_in_the_last_races_gives_way() -> None:
    bench = SlowBench(lambda case, point: 0.02 if point == (4,) else 0.0, space=WARPS)
    race = bench.race

    async def dies(challenger: Variant, champion: Variant) -> Standing:
        if (challenger.case, challenger.point) in bench.raced and champion.point is None:
            raise stopped(Kind.RUNTIME_ERROR)
        return await race(challenger, champion)

    bench.race = dies
    tuning = await tuned(bench, 60.0)
    assert "runtime_error" in tuning.search.failures.values()
