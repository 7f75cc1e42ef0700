"""The surrogate, the race, and the order of a search on landscapes that are made up."""

import math
import random
from collections.abc import Callable

import pytest

from tests.profiling.tuning.landscapes import Landscape, knob, matmul, rough, space_of
from tritonforge.profiling.tuning.order import FLOOR, Order, place_of
from tritonforge.profiling.tuning.race import LEAST, MOST, standing
from tritonforge.profiling.tuning.space import Knob, Point
from tritonforge.profiling.tuning.surrogate import Expected, Observed, Surrogate, expected_gain


def observed(at: float, value: float, *parts: float, case: int = 0) -> Observed:
    return Observed((at,), parts, case, value)


def test_what_was_measured_is_expected_and_far_points_are_uncertain() -> None:
    model = Surrogate([observed(0, 0.0), observed(1, 0.2), observed(2, 0.5), observed(3, 0.4)])
    at_one, far = model.expected((1.0,), (), 0), model.expected((12.0,), (), 0)
    assert at_one.mean == pytest.approx(0.2, abs=0.05)
    assert at_one.deviation < far.deviation / 3


def test_a_part_counts_as_much_as_measurements_say() -> None:
    # The part foretells nothing here, and all there.
    idle = Surrogate([observed(n, 0.0, float(n % 3)) for n in range(8)])
    true = Surrogate([observed(n, -float(n % 3), float(n % 3)) for n in range(8)])
    assert idle.expected((20.0,), (2.0,), 0).mean > true.expected((20.0,), (2.0,), 0).mean + 0.5
    # Before anything is known it is believed.
    assert Surrogate([]).expected((0.0,), (0.7,), 0).mean == pytest.approx(-0.7)


def test_a_case_learns_from_another_but_less_than_from_itself() -> None:
    model = Surrogate([observed(0, 0.0), observed(4, 1.0), observed(0, 0.0, case=1)])
    own, others = model.expected((4.0,), (), 0), model.expected((4.0,), (), 1)
    assert 0.2 < others.mean < own.mean
    assert others.deviation > own.deviation


def test_gain_is_expected_of_what_is_better_or_unknown() -> None:
    sure, unsure = Expected(0.1, 1e-3), Expected(0.1, 0.3)
    assert expected_gain(sure, 0.0) == pytest.approx(0.1, abs=1e-3)
    assert expected_gain(sure, 0.2) < 1e-9 < expected_gain(unsure, 0.2)


@pytest.mark.parametrize(
    ("role", "values", "apart"),
    [("tile", (64, 128), 1.0), ("stages", (2, 3), 1.0), ("flag", (False, True), 1.0), ("warps", (None, 8), 0.75)],
)
def test_a_doubling_and_a_stage_are_one_step(role: str, values: tuple[int | None, int], apart: float) -> None:
    one = Knob("A", "k", "A", role, values[0], values, (), assumed=values[0] or 4)  # pyright: ignore[reportArgumentType]
    near, far = (place_of(space_of(one), (value,))[0] for value in values)
    assert abs(far - near) == pytest.approx(apart)


def test_pending_points_are_not_chosen_again_and_make_their_neighbours_less_attractive() -> None:
    space = space_of(knob("A", 1, *(1 << n for n in range(10))))
    order = Order(space, {"train": 1.0})
    order.measured["train", (1,)] = 0.0
    order.measured["train", (8,)] = 0.3
    points = [(value,) for value in space.knobs[0].values if value not in (1, 8)]
    first = order.choose({"train": points})
    assert first is not None
    rest = [point for point in points if point != first.point]
    second = order.choose({"train": rest}, [("train", first.point)])
    assert second is not None
    assert second.point != first.point


def test_nothing_is_chosen_where_nothing_is_left() -> None:
    assert Order(space_of(knob("A", 1, 1, 2)), {"train": 1.0}).choose({"train": []}) is None


def searched(land: Landscape, count: int, seed: int) -> float:
    """How far the best of some measured points is behind the best of all, as log(time)."""
    drawn, order = random.Random(seed), Order(land.space, {"train": 1.0}, seed)
    base = land.space.present if land.space.present in land.log_time else next(iter(land.log_time))
    order.measured["train", base] = 0.0
    left: dict[Point, None] = dict.fromkeys(point for point in land.log_time if point != base)
    for _ in range(count):
        found = order.choose({"train": list(left)})
        assert found is not None
        del left[found.point]
        order.measured["train", found.point] = land.log_time[base] - land.log_time[found.point] + drawn.gauss(0, 0.005)
    best = max(order.measured, key=lambda key: order.measured[key])[1]
    return land.log_time[best] - land.best


def at_random(land: Landscape, count: int, seed: int) -> float:
    return min(land.log_time[point] for point in random.Random(seed).sample(list(land.log_time), count)) - land.best


@pytest.mark.parametrize(("made", "count"), [(matmul, 16), (rough, 30)], ids=["matmul", "rough"])
def test_few_measurements_find_what_chance_does_not(made: Callable[[int], Landscape], count: int) -> None:
    lands = [made(seed) for seed in range(4)]
    ours = [searched(land, count, seed) for seed, land in enumerate(lands)]
    chance = [at_random(land, count, seed) for seed, land in enumerate(lands)]
    assert sum(ours) < sum(chance) / 2
    assert sum(one < 0.03 for one in ours) >= 3


def race(center: float, spread: float, seed: int) -> tuple[str, int]:
    """How a race ends, and after how many blocks."""
    drawn, blocks = random.Random(seed), list[float]()
    while not blocks or standing(blocks).verdict == "open":
        blocks.append(drawn.gauss(center, spread))
    return standing(blocks).verdict, len(blocks)


def test_a_clear_loser_is_out_at_once() -> None:
    assert race(-0.4, 0.01, 0) == ("not faster", LEAST)
    assert race(-0.05, 0.002, 0) == ("not faster", LEAST)


@pytest.mark.parametrize("disturbed", [-2.6, 2.6])
@pytest.mark.parametrize("place", range(4))
def test_a_block_that_another_process_disturbed_decides_nothing(disturbed: float, place: int) -> None:
    blocks = [0.05, 0.052, 0.048, 0.05, 0.051, 0.049, 0.05, 0.05]
    blocks[place] = disturbed
    standings = [standing(blocks[:count]) for count in range(1, len(blocks) + 1)]
    assert all(found.verdict != "not faster" for found in standings)
    assert standings[-1].center == pytest.approx(0.05, abs=0.001)
    assert standings[-1].verdict == "faster"


@pytest.mark.parametrize("spread", [0.002, 0.008])
def test_a_race_tells_winners_from_equals_and_ends(spread: float) -> None:
    winners = [race(0.03, spread, seed) for seed in range(50)]
    equals = [race(0.0, spread, seed) for seed in range(50)]
    assert sum(verdict == "faster" for verdict, _ in winners) >= 45
    assert sum(verdict == "faster" for verdict, _ in equals) <= 3
    assert max(count for _, count in [*winners, *equals]) <= MOST


def test_a_standing_is_the_middle_and_its_error() -> None:
    found = standing([0.1, 0.12, 0.11, 0.11])
    assert found.center == pytest.approx(0.11)
    assert 0.005 < found.error < 0.02
    assert math.isfinite(found.error)


def test_what_is_bad_as_expected_does_not_teach_that_its_faults_cost_little() -> None:
    space = space_of(knob("A", 1, *(1 << n for n in range(10))))
    order = Order(space, {"train": 1.0})
    for value, (gain, part) in {1: (0.0, 0.0), 256: (3.0, -3.0), 512: (2.95, -2.9)}.items():
        order.measured["train", (value,)] = gain
        order.parts["train", (value,)] = (part,)
    found = order.model().expected(order.place((2,)), (0.1,), 0)
    assert found.mean < 1.0
    # One that nothing foretold teaches something, but no more than that it is bad.
    order.parts["train", (1,)] = (-3.0,)
    assert order.model().expected(order.place((1,)), (-3.0,), 0).mean == pytest.approx(3.0 - FLOOR, abs=0.3)
