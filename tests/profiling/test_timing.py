"""The interleaving of two kernels, with workers that only keep a diary."""

from typing import cast

import pytest

from tritonforge.profiling.timing import FULL, Plan, Times, launch_bound, longest, time_entry
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.facts import Block, FirstCall, Sample, WarmUp
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.workers import KernelWorker

pytestmark = pytest.mark.anyio


class FakeWorker:
    """A kernel of a fixed time that writes down when it was asked for a block."""

    def __init__(self, name: str, diary: list[tuple[str, int]], us: float, *, slow_call_us: float = 100.0) -> None:
        self.name = name
        self.diary = diary
        self.us = us
        self.slow_call_us = slow_call_us
        self.activities = 1
        self.lost = 0
        self.first_calls = 0

    async def prepare(self, flush_bytes: int) -> None:
        assert flush_bytes > 0

    async def warm_up(self, seconds: float, calls_limit: int) -> WarmUp:
        return WarmUp(call_us=self.slow_call_us)

    async def first_call(self) -> FirstCall:
        self.first_calls += 1
        return FirstCall(first_call_s=1.0)

    async def block(self, calls: int, number: int) -> Block:
        self.diary.append((self.name, number))
        samples = [Sample(kernel_us=self.us, device_us=self.us, activities=self.activities)] * (calls - self.lost)
        return Block(samples=samples, kernels={"k": self.us}, sm_clock_hz=1.98e9)

    async def call_times(self, calls: int) -> list[float]:
        return [self.us + 30.0] * calls

    def as_worker(self) -> KernelWorker:
        return cast(KernelWorker, self)


async def test_each_block_calls_both_sides_early_and_late():
    diary: list[tuple[str, int]] = []
    candidate, baseline = FakeWorker("candidate", diary, 10.0), FakeWorker("baseline", diary, 20.0)
    timing = await time_entry(candidate.as_worker(), baseline.as_worker())
    assert len(diary) == 4 * FULL.blocks
    orders: set[tuple[str, ...]] = set()
    for number in range(FULL.blocks):
        names, numbers = zip(*diary[4 * number : 4 * number + 4], strict=True)
        assert set(numbers) == {number}
        assert names == tuple(reversed(names))
        orders.add(names)
    assert {order[0] for order in orders} <= {"candidate", "baseline"}
    assert len(timing.pairs) == FULL.blocks
    assert set(timing.pairs[0].candidate_us) == {10.0}
    assert set(timing.pairs[0].baseline_us) == {20.0}
    assert len(timing.pairs[0].candidate_us) == 2 * FULL.calls_per_block


async def test_which_side_begins_is_drawn_anew_for_each_block():
    starts: set[str] = set()
    for _ in range(5):
        diary: list[tuple[str, int]] = []
        await time_entry(FakeWorker("a", diary, 1.0).as_worker(), FakeWorker("b", diary, 1.0).as_worker())
        starts |= {name for name, _ in diary[::4]}
    assert starts == {"a", "b"}


async def test_each_side_compiles_once_before_anything_is_timed():
    candidate, baseline = FakeWorker("candidate", [], 10.0), FakeWorker("baseline", [], 20.0)
    await time_entry(candidate.as_worker(), baseline.as_worker())
    assert (candidate.first_calls, baseline.first_calls) == (1, 1)


async def test_a_smaller_plan_times_less():
    plan = Plan(blocks=5, calls_per_block=4, call_times=3)
    timing = await time_entry(FakeWorker("a", [], 1.0).as_worker(), FakeWorker("b", [], 1.0).as_worker(), plan)
    assert len(timing.pairs) == 5
    assert len(timing.pairs[0].candidate_us) == 8
    assert len(timing.candidate.call_us) == 3


async def test_without_a_baseline_there_are_times_and_no_pairs():
    timing = await time_entry(FakeWorker("candidate", [], 10.0).as_worker(), None)
    assert timing.baseline is None
    assert timing.pairs == []
    assert len(timing.candidate.device_us) == 2 * FULL.blocks * FULL.calls_per_block


async def test_blocks_of_slow_kernels_hold_fewer_calls():
    slow = FakeWorker("candidate", [], 10_000.0, slow_call_us=10_000.0)
    timing = await time_entry(slow.as_worker(), None)
    assert len(timing.candidate.device_us) == 2 * FULL.blocks * 3


async def test_a_call_without_device_work_is_refused():
    idle = FakeWorker("candidate", [], 10.0)
    idle.activities = 0
    with pytest.raises(Stopped) as stopped:
        await time_entry(idle.as_worker(), None)
    assert stopped.value.kind is Kind.REJECTED
    assert "nothing on the GPU" in stopped.value.problem.message


async def test_lost_records_make_the_measurement_unavailable():
    deaf = FakeWorker("candidate", [], 10.0)
    deaf.lost = 1
    with pytest.raises(Stopped) as stopped:
        await time_entry(deaf.as_worker(), None)
    assert stopped.value.kind is Kind.UNAVAILABLE


def test_the_longest_kernels_come_first_as_means_over_blocks():
    times = Times(kernels={"short": [1.0, 1.0], "long": [8.0, 10.0], "middle": [5.0]})
    assert longest(times, 2) == [("long", 9.0), ("middle", 5.0)]


@pytest.mark.parametrize(
    ("device_us", "call_us", "expected"), [(3.0, 60.0, True), (40.0, 60.0, False), (60.0, 200.0, False)]
)
def test_only_short_kernels_under_long_calls_are_launch_bound(device_us: float, call_us: float, expected: bool):
    assert launch_bound(Times(device_us=[device_us], call_us=[call_us])) is expected
