"""A search as it runs, on a bench that is made up: what is measured, what is never run, and how it ends."""

import math
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.diagnosis.made_up import H200
from tests.profiling.tuning.facts import launch
from tests.profiling.tuning.landscapes import Landscape, knob, matmul, space_of
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.tuning.race import Standing, standing
from tritonforge.profiling.tuning.search import Search
from tritonforge.profiling.tuning.space import Point, Space
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.tuning.loop import SLOWER, Tuning, Variant, compile_only

pytestmark = pytest.mark.anyio
SMALL = space_of(knob("A", 1, 1, 2, 4, 8), knob("B", 1, 1, 2, 4))


def log_time(point: Point) -> float:
    """Least at A = 4, B = 2."""
    a, b = (math.log2(int(value or 1)) for value in point)
    return 0.2 * abs(a - 2) + 0.1 * abs(b - 1)


class FakeBench:
    """Times are a formula's, with a little noise."""

    def __init__(self, space: Space, cost: Callable[[str, Point], float]) -> None:
        self.space, self.cost = space, cost
        self.raced: list[tuple[str, Point]] = []
        self.compiled: list[Point] = []
        self.checked: list[Point] = []
        self.alive = 0
        self.code: Callable[[Point], str] = str
        self.faults: dict[Point, Kind] = {}
        """Points that fail when they get ready."""
        self.refused: dict[Point, Kind] = {}
        """Points that don't compile."""
        self.dying: set[Point | None] = set()
        """Points that can't be raced, or not any more."""
        self.wrong: Callable[[Point], bool] = lambda point: False
        self.cases = ["train"]
        self._random = random.Random(1)

    async def compile(self, point: Point | None) -> Mapping[str, Sequence[LaunchFacts]]:
        at = self.space.present if point is None else point
        if point is not None:
            self.compiled.append(point)
        if at in self.refused:
            raise stopped(self.refused[at])
        return {case: [launch(code_hash=self.code(at))] for case in self.cases}

    @asynccontextmanager
    async def prepared(self, case: str, point: Point | None) -> AsyncGenerator[Variant]:
        if point in self.faults:
            raise stopped(self.faults[point])
        self.alive += 1
        try:
            yield Variant(case, point, 1e3 * math.exp(self._cost(case, point)))
        finally:
            self.alive -= 1

    async def race(self, challenger: Variant, champion: Variant) -> Standing:
        assert challenger.point is not None
        self.raced.append((challenger.case, challenger.point))
        if {challenger.point, champion.point} & self.dying:
            raise stopped(Kind.RUNTIME_ERROR)
        ahead = self._cost(champion.case, champion.point) - self._cost(challenger.case, challenger.point)
        blocks: list[float] = []
        while not blocks or standing(blocks).verdict == "open":
            blocks.append(ahead + self._random.gauss(0, 0.003))
        return standing(blocks)

    async def is_alive(self, variant: Variant) -> bool:
        return variant.point not in self.dying

    async def check(self, variant: Variant) -> None:
        assert variant.point is not None
        self.checked.append(variant.point)
        if self.wrong(variant.point):
            raise stopped(Kind.WRONG)

    def _cost(self, case: str, point: Point | None) -> float:
        return self.cost(case, self.space.present if point is None else point)


def stopped(kind: Kind) -> Stopped:
    return Stopped(kind, Problem(stage="run", message="it failed"))


def searching(space: Space = SMALL, cases: Sequence[str] = ("train",), most: int | None = None) -> Search:
    return Search(space, dict.fromkeys(cases, 1 / len(cases)), H200, most)


async def tuned(bench: FakeBench, search: Search, budget_s: float = 60.0) -> Tuning:
    tuning = Tuning(search, bench, compilers=2)
    await tuning.run(budget_s)
    assert bench.alive == 0
    return tuning


@pytest.fixture
def bench() -> FakeBench:
    return FakeBench(SMALL, lambda case, point: log_time(point))


async def test_the_best_point_is_found_and_none_is_measured_twice(bench: FakeBench) -> None:
    search = searching()
    tuning = await tuned(bench, search)
    assert search.champion("train").point == (4, 2)
    assert search.champion("train").value == pytest.approx(log_time((1, 1)), abs=0.02)
    assert len(set(bench.raced)) == len(bench.raced) == search.evaluations < SMALL.size
    assert (1, 1) not in bench.compiled
    assert tuning.stopped_because in ("every variant was measured or ruled out", "nothing better is expected")


async def test_it_ends_with_its_evaluations(bench: FakeBench) -> None:
    search = searching(most=3)
    tuning = await tuned(bench, search)
    assert len(bench.raced) == search.evaluations == 3
    assert tuning.stopped_because == "all evaluations are used"


async def test_it_ends_with_its_time(bench: FakeBench) -> None:
    search = searching()
    tuning = await tuned(bench, search, budget_s=0.0)
    assert tuning.stopped_because == "time is up"
    assert search.evaluations == 0


async def test_variants_of_the_same_code_are_measured_once(bench: FakeBench) -> None:
    bench.code = lambda point: str(point[0])
    search = searching()
    await tuned(bench, search)
    assert len({point[0] for _, point in bench.raced}) == len(bench.raced) == 3
    assert search.same_code() == len(bench.compiled) + 1 - 4


async def test_a_variant_that_does_not_compile_is_never_run(bench: FakeBench) -> None:
    bench.refused = {(4, 2): Kind.LAUNCH_ERROR}
    search = searching()
    await tuned(bench, search)
    assert ("train", (4, 2)) not in bench.raced
    assert list(search.pruned) == [(4, 2)]


async def test_a_variant_that_fails_ends_alone(bench: FakeBench) -> None:
    bench.faults = {(4, 2): Kind.RUNTIME_ERROR}
    search = searching()
    await tuned(bench, search)
    assert search.failures == {("train", (4, 2)): "runtime_error"}
    assert search.champion("train").point in [(4, 1), (4, 4)]


async def test_a_champion_that_dies_ends_the_search_and_is_none(bench: FakeBench) -> None:
    search = searching()

    def right(point: Point) -> bool:
        bench.dying = {point}
        return False

    bench.wrong = right
    tuning = await tuned(bench, search)
    (died,) = bench.checked
    assert search.failures[("train", died)] == "runtime_error"
    assert search.champion("train").point != died
    assert tuning.stopped_because == "the best variant so far can no longer be timed"


async def test_a_fast_and_wrong_variant_is_no_champion(bench: FakeBench) -> None:
    bench.wrong = lambda point: point[0] == 4
    search = searching()
    await tuned(bench, search)
    assert search.champion("train").point[0] != 4
    assert set(search.failures.values()) == {"wrong"}
    # Twice wrong and never right: the value is not tried a third time.
    assert sum(point[0] == 4 for point in bench.checked) == 2


async def test_a_variant_that_is_far_slower_is_not_raced(bench: FakeBench) -> None:
    def cost(case: str, point: Point) -> float:
        return 0.0 if point == (1, 1) else math.log(SLOWER + 40)

    bench.cost = cost
    search = searching()
    await tuned(bench, search)
    assert bench.raced == []
    assert search.evaluations >= 8
    assert search.champion("train").point == (1, 1)


async def test_the_file_as_it_is_failing_ends_the_search(bench: FakeBench) -> None:
    bench.refused = {(1, 1): Kind.COMPILE_ERROR}
    with pytest.raises(Stopped) as caught:
        await tuned(bench, searching())
    assert caught.value.kind is Kind.COMPILE_ERROR


@pytest.mark.parametrize("kind", [Kind.CANCELLED, Kind.UNAVAILABLE])
async def test_what_is_not_a_variants_doing_ends_the_search(bench: FakeBench, kind: Kind) -> None:
    bench.faults = dict.fromkeys(SMALL.points(), kind)
    with pytest.raises(Stopped) as caught:
        await tuned(bench, searching())
    assert caught.value.kind is kind


async def test_cases_have_their_own_winners_and_one_choice_for_all(bench: FakeBench) -> None:
    bench.cases = ["wide", "tall"]
    best = {"wide": (8, 2), "tall": (2, 2)}

    def cost(case: str, point: Point) -> float:
        return sum(
            0.2 * abs(math.log2(int(mine or 1)) - math.log2(int(its or 1)))
            for mine, its in zip(point, best[case], strict=True)
        )

    bench.cost = cost
    search = searching(cases=bench.cases)
    await tuned(bench, search)
    assert {case: search.champion(case).point for case in bench.cases} == best
    # Between the two: as far from both.
    top = search.choices()[0]
    assert top.point[1] == 2
    assert top.value == pytest.approx(0.2 * (2 + 4) / 2 - 0.2, abs=0.02)


async def test_few_evaluations_suffice_on_a_landscape_with_cliffs() -> None:
    land: Landscape = matmul(3)
    bench = FakeBench(land.space, lambda case, point: land.log_time[point])
    bench.refused = {point: Kind.LAUNCH_ERROR for point in land.space.points() if point not in land.log_time}
    search = searching(land.space, most=int(0.15 * land.space.size))
    await tuned(bench, search)
    found = search.champion("train").point
    assert land.log_time[found] - land.best < 0.03


async def test_without_a_gpu_all_is_compiled_and_nothing_is_run(bench: FakeBench) -> None:
    search = searching()
    await compile_only(search, bench, compilers=2, budget_s=60.0)
    assert sorted(bench.compiled) == sorted(set(SMALL.points()) - {(1, 1)})
    assert bench.raced == []
