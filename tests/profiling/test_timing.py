"""Blocks of visits to several sides, with workers that take as long as the test says and keep a diary."""

import random
from dataclasses import replace
from itertools import cycle, pairwise
from typing import Any

import anyio
import pytest

from tests.profiling.fake_sides import interleaved, processes, sides_of
from tests.sandbox.fake_timed import FakeTimed, stopped
from tritonforge.profiling.statistics import median
from tritonforge.profiling.times import Times, call_pairs, launch_bound, longest, pairs
from tritonforge.profiling.timing import AWAKE_AFTER, CONTENTS, FULL, SEEDS, first_calls, lay_out, together
from tritonforge.sandbox.conditions import Conditions
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.timing_facts import FirstCall, Sample

pytestmark = pytest.mark.anyio
COOL = Conditions(
    sm_clock_hz=1, memory_clock_hz=1, temperature_c=40, power_w=1.0, power_limit_w=1.0, throttle_reasons=[]
)


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    random.seed(1)


def times(*device_us: float, call_us: float = 100.0) -> Times:
    samples = [Sample(kernel_us=us, device_us=us, activities=1) for us in device_us]
    return Times(blocks=[samples], call_us=[[call_us] * 3])


# Before anything is timed


async def test_sides_compile_one_after_the_other_with_the_plans_flush_and_the_seed() -> None:
    workers = processes(10, 20)
    workers[1].first["second_call_us"] = 77.0
    firsts = await first_calls(sides_of(workers), replace(FULL, flush_bytes=5), 9)
    assert [first.second_call_us for first in firsts] == [120.0, 77.0]
    for worker in workers:
        assert worker.asked == [("prepare", {"flush_bytes": 5, "seed": 9}), ("first_call", {})]


def first(second_call_us: float) -> FirstCall:
    return FirstCall(first_call_s=1, second_call_us=second_call_us, results_bytes=1, varies=True)


@pytest.mark.parametrize(
    ("slowest_us", "calls"), [(0.0, 10), (50.0, 10), (400.0, 10), (800.0, 5), (3000.0, 1), (1e6, 1)]
)
async def test_visits_of_slow_kernels_have_fewer_calls(slowest_us: float, calls: int) -> None:
    workers = processes(10, 20)
    assert await lay_out(sides_of(workers), FULL, [first(1.0), first(slowest_us)]) == calls
    assert [worker.fields("lay_out") for worker in workers] == [[{"calls": calls}]] * 2


async def test_all_have_as_many_calls_as_the_one_with_the_least_room() -> None:
    workers = processes(10, 20, 30)
    workers[1].laid_out_calls = 4
    assert await lay_out(sides_of(workers), FULL, [first(50)]) == 4


async def test_no_worker_can_ask_for_more_calls_than_it_was_told() -> None:
    workers = processes(10)
    workers[0].forged["lay_out"] = {"layouts": 1, "calls": 10**30}
    assert await lay_out(sides_of(workers), FULL, [first(50)]) == FULL.calls


async def test_what_is_done_together_stops_with_the_first_that_is_stopped() -> None:
    ended: list[str] = []

    async def fails() -> None:
        raise stopped(Kind.OUT_OF_MEMORY, "no room")

    async def waits() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("waits")

    with anyio.fail_after(30), pytest.raises(Stopped, match="no room"):
        await together([waits, fails])
    assert ended == ["waits"]


# Blocks


async def test_each_block_visits_every_side_early_and_late() -> None:
    workers = processes(10, 20, 30)
    found = interleaved(workers)
    for _ in range(12):
        await found.block()
    diary = workers[0].diary
    assert len(diary) == 12 * 6
    orders: set[tuple[str, ...]] = set()
    for start in range(0, len(diary), 6):
        names, numbers, contents = zip(*diary[start : start + 6], strict=True)
        assert names == tuple(reversed(names))
        assert len(set(numbers)) == 1
        # The same contents for all sides, others early and late.
        assert contents[0] == contents[1] == contents[2] != contents[3] == contents[4] == contents[5]
        orders.add(names)
    assert {order[0] for order in orders} == {"side0", "side1", "side2"}
    assert found.blocks == 12


async def test_the_layout_changes_from_block_to_block() -> None:
    workers = processes(10, 20)
    found = interleaved(workers)
    for _ in range(5):
        await found.block()
    numbers = [number for _, number, _ in workers[0].diary][::4]
    assert [later - earlier for earlier, later in pairwise(numbers)] == [1] * 4


async def test_contents_are_drawn_anew_for_each_call_with_a_seed_that_is_new_in_each_visit() -> None:
    workers = processes(10)
    found = interleaved(workers, calls=10)
    for _ in range(20):
        await found.block()
    visits = [contents for _, _, contents in workers[0].diary]
    seeds = [{content // CONTENTS for content in contents} for contents in visits]
    assert {len(its) for its in seeds} == {1}
    assert len(set[int]().union(*seeds)) == len(visits) == 40
    assert all(0 <= seed < SEEDS for its in seeds for seed in its)
    drawn = [content % CONTENTS for contents in visits for content in contents]
    assert len(set(drawn)) > 350
    assert min(drawn) < CONTENTS / 8
    assert max(drawn) > CONTENTS * 7 / 8


async def test_seeds_of_contents_cannot_be_foretold_from_our_random_numbers() -> None:
    drawn: list[list[int]] = []
    for _ in range(2):
        random.seed(1)
        workers = processes(10)
        await interleaved(workers).block()
        drawn.append([contents[0] // CONTENTS for _, _, contents in workers[0].diary])
    assert drawn[0] != drawn[1]


async def test_a_visits_first_call_is_not_used_where_its_delay_matters() -> None:
    workers = processes(10, 20)
    found = interleaved(workers, calls=5)
    await found.block()
    short, _ = found.sides
    assert len(short.times.device_us()) == 2 * 4
    assert max(short.times.device_us()) < 10.5


async def test_the_first_call_of_a_long_kernel_is_used() -> None:
    workers = processes(3000)
    found = interleaved(workers, calls=1)
    await found.block()
    assert len(found.sides[0].times.device_us()) == 2


async def test_what_was_measured_is_kept_block_by_block() -> None:
    workers = processes(10, 20)
    workers[1].strays = ["late_kernel"]
    workers[1].clock_hz = lambda: 1.5e9
    found = interleaved(workers)
    await found.block()
    await found.block()
    its = found.sides[1].times
    assert [len(block) for block in its.blocks] == [8, 8]
    assert its.visits == 4
    assert its.strays == {"late_kernel": 4}
    assert its.kernels == {"side1_kernel": [20.0] * 4}
    assert its.sm_clock_hz == [1.5e9, 1.5e9]
    assert median(its.event_us()) == pytest.approx(20.5, abs=0.1)
    assert median(its.kernel_us()) == pytest.approx(20, abs=0.1)
    assert found.sides[0].times.strays == {}


async def test_our_own_clock_sees_each_sides_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Slow(FakeTimed):
        def do_visit(self, *, number: int, contents: list[int]) -> dict[str, Any]:
            now[0] += len(contents) * self.us * 1e-6
            return super().do_visit(number=number, contents=contents)

    workers = [Slow("one", 100), Slow("two", 300)]
    monkeypatch.setattr("tritonforge.profiling.timing.anyio.current_time", lambda: now[0])
    found = interleaved(workers)
    await found.block()
    assert [side.times.wall_us for side in found.sides] == [[pytest.approx(100)] * 2, [pytest.approx(300)] * 2]


async def test_pairs_hold_what_the_sides_gave_in_the_same_block() -> None:
    found = interleaved(processes(10, 20))
    for _ in range(3):
        await found.block()
    candidate, baseline = (side.times for side in found.sides)
    found_pairs = pairs(candidate, baseline)
    assert len(found_pairs) == 3
    for index, pair in enumerate(found_pairs):
        assert pair.candidate_us == [sample.device_us for sample in candidate.blocks[index]]
        assert pair.baseline_us == [sample.device_us for sample in baseline.blocks[index]]


async def test_whole_calls_are_interleaved_in_the_same_way() -> None:
    workers = processes(10, 20)
    found = interleaved(workers)
    await found.call_times(100.0)
    candidate, baseline = (side.times for side in found.sides)
    assert [len(block) for block in candidate.call_us] == [2 * (FULL.calls_timed - AWAKE_AFTER)] * FULL.call_blocks
    pair = call_pairs(candidate, baseline)[0]
    assert (set(pair.candidate_us), set(pair.baseline_us)) == ({30.0}, {40.0})


async def test_whole_calls_that_wake_a_process_up_are_not_used() -> None:
    workers = processes(10)
    told = cycle([900.0] * AWAKE_AFTER + [30.0] * (FULL.calls_timed - AWAKE_AFTER))
    workers[0].call_us = lambda: next(told)
    found = interleaved(workers)
    await found.call_times(100.0)
    assert {us for block in found.sides[0].times.call_us for us in block} == {30.0}


def test_of_whole_calls_the_faster_half_is_compared() -> None:
    mine, its = times(10), times(10)
    mine.call_us, its.call_us = [[90.0, 30.0, 31.0, 500.0]], [[41.0, 40.0, 42.0, 43.0]]
    (pair,) = call_pairs(mine, its)
    assert (pair.candidate_us, pair.baseline_us) == ([30.0, 31.0], [40.0, 41.0])


async def test_a_visits_first_call_is_kept_apart() -> None:
    workers = processes(10)
    workers[0].noise = 0.0
    found = interleaved(workers)
    await found.block()
    await found.block()
    assert found.sides[0].times.first_us == [10.7] * 4


async def test_conditions_are_looked_at_after_each_block_and_kept_where_they_are_told() -> None:
    told = iter([COOL, None, COOL])

    async def watch() -> Conditions | None:
        return next(told)

    found = interleaved(processes(10), watch=watch)
    for _ in range(3):
        await found.block()
    assert found.conditions == [COOL, COOL]


# What times tell


def test_the_longest_kernels_come_first_as_means_over_visits() -> None:
    found = Times(kernels={"short": [1.0, 1.0], "long": [8.0, 10.0], "middle": [5.0]})
    assert longest(found, 2) == [("long", 9.0), ("middle", 5.0)]


@pytest.mark.parametrize(
    ("device_us", "call_us", "expected"),
    [(3.0, 60.0, True), (3.0, 6.0, False), (3.0, 6.1, True), (49.0, 99.0, True), (51.0, 200.0, False)],
)
def test_only_short_kernels_under_long_calls_are_launch_bound(device_us: float, call_us: float, expected: bool) -> None:
    assert launch_bound(times(device_us, call_us=call_us)) is expected
