"""Which blocks count, what is no measurement at all, and that results of timed calls are looked at."""

import math
import random
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from tests.profiling.fake_sides import interleaved, processes
from tests.sandbox.fake_timed import FakeTimed, stopped
from tritonforge.profiling.timing import FULL, until
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.replies import Values

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    random.seed(1)


# Settling, and blocks that are timed again


async def test_settling_ends_when_two_blocks_agree_and_nothing_of_it_counts() -> None:
    workers = processes(10, 20)
    found = interleaved(workers)
    await found.settle()
    assert len(workers[0].diary) == 2 * 4
    assert (found.blocks, found.sides[0].times.blocks) == (0, [])


@pytest.mark.parametrize("which", [0, 1])
async def test_settling_goes_on_while_any_side_becomes_faster_and_not_for_ever(which: int) -> None:
    class Warming(FakeTimed):
        def do_visit(self, *, number: int, contents: list[int]) -> dict[str, Any]:
            self.us *= 0.98
            return super().do_visit(number=number, contents=contents)

    workers = processes(10, 20)
    workers[which] = Warming("warming", 100, workers[0].diary)
    await interleaved(workers).settle()
    assert len(workers[0].diary) == FULL.settling_blocks * 4


def clocks_of(values: Sequence[float]) -> Any:
    """Told visit by visit, the last for ever."""
    told = iter(values)
    return lambda: next(told, values[-1])


async def test_a_block_whose_sides_ran_at_unequal_clocks_is_timed_again() -> None:
    workers = processes(10, 20)
    workers[1].clock_hz = clocks_of([1.98e9] * 10 + [1.7e9] * 2 + [1.98e9])
    found = interleaved(workers)
    for _ in range(8):
        await found.block()
    assert (found.blocks, found.repeated) == (7, 1)
    assert [len(side.times.blocks) for side in found.sides] == [7, 7]
    assert 1.7e9 not in found.sides[1].times.sm_clock_hz


async def test_clocks_that_always_differ_by_as_much_are_the_kernels_own() -> None:
    workers = processes(10, 20)
    workers[1].clock_hz = lambda: 1.6e9
    found = interleaved(workers)
    for _ in range(8):
        await found.block()
    assert (found.blocks, found.repeated) == (8, 0)


async def test_clocks_that_are_never_alike_do_not_keep_blocks_from_counting() -> None:
    workers = processes(10, 20)
    drawn = random.Random(3)
    workers[1].clock_hz = lambda: drawn.choice([1.2e9, 1.98e9])
    found = interleaved(workers)
    with anyio.fail_after(30):
        await until(found, lambda: found.blocks >= 10, math.inf)
    assert found.repeated <= 11


async def test_without_clocks_every_block_counts() -> None:
    workers = processes(10, 20)
    workers[0].clock_hz = lambda: None
    workers[1].clock_hz = clocks_of([1.98e9, 1.2e9, 1.98e9, 1.5e9])
    found = interleaved(workers)
    for _ in range(5):
        await found.block()
    assert (found.blocks, found.repeated) == (5, 0)
    assert found.sides[0].times.sm_clock_hz == []


async def test_clocks_are_forgotten_when_other_sides_go_on() -> None:
    workers = processes(10, 20, 30)
    workers[2].clock_hz = lambda: 1.5e9
    found = interleaved(workers)
    for _ in range(4):
        await found.block()
    found.keep([found.sides[2], found.sides[0]])
    await found.block()
    assert (found.blocks, found.repeated) == (5, 0)
    assert [name for name, _, _ in workers[0].diary[-4:]].count("side1") == 0


async def test_blocks_go_on_until_it_is_known_or_too_late() -> None:
    found = interleaved(processes(10))
    await until(found, lambda: found.blocks == 4, math.inf)
    assert found.blocks == 4
    await until(found, lambda: False, anyio.current_time())
    assert found.blocks == 4


# What is no measurement


async def test_a_call_without_device_work_is_refused() -> None:
    workers = processes(10)
    workers[0].activities = 0
    with pytest.raises(Stopped, match="nothing on the GPU") as caught:
        await interleaved(workers).block()
    assert caught.value.kind is Kind.REJECTED
    assert "cached" in (caught.value.problem.likely_fix or "")


@pytest.mark.parametrize("us", [0.0, 1e-310])
async def test_a_call_of_no_time_is_refused(us: float) -> None:
    workers = processes(10)
    sample = {"kernel_us": us, "device_us": us, "activities": 1}
    workers[0].forged["visit"] = {"samples": [sample] * 5, "kernels": {}, "sm_clock_hz": None}
    with pytest.raises(Stopped) as caught:
        await interleaved(workers).block()
    assert caught.value.kind is Kind.REJECTED


async def test_more_timed_calls_than_were_made_are_cheating() -> None:
    """Only the entry itself can have put marks there."""
    workers = processes(10)
    workers[0].lost = -1
    with pytest.raises(Stopped, match="6 timed calls were recorded where 5 were made") as caught:
        await interleaved(workers).block()
    assert caught.value.kind is Kind.CHEATING


async def test_lost_records_make_the_measurement_unavailable() -> None:
    workers = processes(10)
    workers[0].lost = 1
    with pytest.raises(Stopped, match="CUPTI recorded") as caught:
        await interleaved(workers).settle()
    assert caught.value.kind is Kind.UNAVAILABLE


# Results of timed calls


class Looks:
    """What was given to be checked."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Values, Values | None]] = []

    async def __call__(self, number: int, returned: Values, expected: Values | None) -> None:
        self.seen.append((number, returned, expected))
        if returned.tree != {"dict": [["outputs", {"value": number}]]}:
            raise stopped(Kind.WRONG, "not right")


async def test_a_call_of_the_last_visit_is_checked_against_its_own_contents() -> None:
    workers, look = processes(10, 20), Looks()
    found = interleaved(workers, check=look)
    found.sides[0].checks = 100
    for _ in range(6):
        await found.block()
    assert (found.sides[0].checked, found.sides[1].checked) == (6, 0)
    assert workers[1].count("outputs") == 0
    late = [contents for name, _, contents in workers[0].diary if name == "side0"][1::2]
    indices = [fields["index"] for fields in workers[0].fields("outputs")]
    assert [number for number, _, _ in look.seen] == [
        contents[index] for contents, index in zip(late, indices, strict=True)
    ]
    assert len(set(indices)) > 1
    assert {expected for _, _, expected in look.seen} == {None}


async def test_it_is_drawn_only_after_the_visit_which_call_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """All visits are over when the index is asked for, and the request before it tells nothing of it."""
    workers = processes(10)
    found = interleaved(workers, check=Looks())
    found.sides[0].checks = 1
    await found.block()
    assert [name for name, _ in workers[0].asked] == ["visit", "visit", "outputs"]


async def test_wrong_results_of_a_timed_call_stop_the_measurement() -> None:
    workers = processes(10, 20)
    workers[0].right = lambda contents: False
    found = interleaved(workers, check=Looks())
    found.sides[0].checks = 1
    with pytest.raises(Stopped, match="not right"):
        await found.block()
    assert found.sides[0].checked == found.checked == 0
    assert found.failed is found.sides[0]


async def test_a_side_may_be_checked_against_another() -> None:
    workers, look = processes(10, 20), Looks()
    found = interleaved(workers, check=look)
    found.sides[0].checks, found.sides[0].expected = 1, found.sides[1]
    await found.block()
    assert workers[0].fields("outputs") == workers[1].fields("outputs")
    ((number, _, expected),) = look.seen
    assert expected is not None
    assert expected.tree == {"dict": [["outputs", {"value": number}]]}


async def test_after_enough_checks_one_block_in_four_is_checked() -> None:
    workers, look = processes(10), Looks()
    found = interleaved(workers, check=look)
    found.sides[0].checks = 5
    for _ in range(5):
        await found.block()
    assert len(look.seen) == 5
    for _ in range(200):
        await found.block()
    assert 25 < len(look.seen) - 5 < 80


async def test_one_side_a_block_is_checked_where_several_are_due() -> None:
    workers, look = processes(10, 20), Looks()
    found = interleaved(workers, check=look)
    for side in found.sides:
        side.checks = 4
    for blocks in range(1, 9):
        await found.block()
        assert len(look.seen) == blocks
        # None waits for long: two blocks are enough for both.
        assert [side.checked for side in found.sides].count(blocks // 2) >= 1
    assert [side.checked for side in found.sides] == [4, 4]
