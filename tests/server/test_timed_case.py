"""A case timed with fake workers: what is replayed, which processes are started, and what stops it."""

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.sandbox.fake_timed import FakeTimed
from tests.server.fake_timing import FakeReplayer, World, one, timing
from tritonforge.profiling.comparison import LOOKS, compare
from tritonforge.profiling.deciding import PAIR_BLOCKS, PAIR_ENDS
from tritonforge.profiling.statistics import median
from tritonforge.profiling.times import call_pairs
from tritonforge.profiling.timing import FULL
from tritonforge.sandbox.conditions import Conditions
from tritonforge.server.timed_result import TimedCase

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    random.seed(1)


@pytest.fixture
def world() -> World:
    return World()


def on_device_us(timed: TimedCase) -> float:
    return median(timed.candidate.device_us())


# Whether calls are replayed


async def test_calls_are_replayed_where_both_kernels_can_be_and_replayed_calls_agree(world: World) -> None:
    world.us["candidate"] = 80.0
    world.replayed["candidate"] = 0.98
    timed, found = await one(world)
    assert (timed.how, timed.how_reason) == ("replayed", None)
    assert on_device_us(timed) == pytest.approx(80 * 0.98, rel=0.002)
    assert timed.replay_ratio == pytest.approx(1 / 0.98, rel=0.002)
    assert compare(timed.groups).ratio == pytest.approx(100 / (80 * 0.98), rel=0.002)
    assert found.started() == {"task": 1, "cuda": 2, "replay": 2}


async def test_whole_calls_are_always_the_entrys_own(world: World) -> None:
    world.call_us = lambda us: us + 33.0
    timed, found = await one(world)
    assert timed.how == "replayed"
    assert timed.baseline is not None
    assert {us for block in timed.candidate.call_us for us in block} == {133.0}
    assert {us for block in timed.baseline.call_us for us in block} == {133.0}
    assert all(process.count("call_times") == 0 for process in found.executor.of("replay"))


async def test_whole_calls_that_tell_of_a_loss_are_timed_in_other_processes_too(world: World) -> None:
    slow: list[FakeTimed] = []

    def first_candidate_is_slow(process: FakeTimed) -> None:
        if process.name == "candidate" and not slow:
            slow.append(process)
            process.call_us = lambda: 150.0

    world.changed = first_candidate_is_slow
    timed, found = await one(world)
    assert timed.baseline is not None
    alone = compare([call_pairs(timed.candidate, timed.baseline)])
    assert alone.ratio_high < 0.9
    assert found.started()["cuda"] == 4
    (again,) = timed.further_calls
    both = compare([call_pairs(timed.candidate, timed.baseline), again])
    assert both.ratio_high > 1


async def test_whole_calls_without_a_loss_are_timed_once(world: World) -> None:
    timed, found = await one(world)
    assert timed.further_calls == []
    assert found.started()["cuda"] == 2


@pytest.mark.parametrize(("name", "told"), [("candidate", "the kernel"), ("baseline", "the baseline")])
async def test_one_kernel_that_cannot_be_replayed_has_both_timed_by_their_own_calls(
    world: World, name: str, told: str
) -> None:
    world.reasons[name] = "aten.mm computes outside of Triton"
    world.us["candidate"] = 80.0
    timed, found = await one(world)
    assert timed.how == "in_candidate"
    assert timed.how_reason == f"{told} can't be replayed: aten.mm computes outside of Triton"
    assert timed.replay_ratio is None
    assert on_device_us(timed) == pytest.approx(80, rel=0.002)
    assert found.started()["replay"] == 0


@pytest.mark.parametrize(("name", "share"), [("candidate", 0.9), ("candidate", 0.95), ("baseline", 0.95)])
async def test_ordinary_calls_count_where_they_are_slower_than_replayed_ones(
    world: World, name: str, share: float
) -> None:
    world.us["candidate"] = 80.0
    world.replayed[name] = share
    timed, _ = await one(world)
    assert (timed.how, timed.doubt) == ("in_candidate", None)
    reason = timed.how_reason or ""
    assert reason.startswith(f"{name}: an ordinary call takes ")
    own_us, other_us = (float(words.rpartition(" ")[2]) for words in reason.split(" us")[:2])
    assert own_us == pytest.approx(world.us[name], rel=0.002)
    assert other_us == pytest.approx(world.us[name] * share, rel=0.002)
    assert on_device_us(timed) == pytest.approx(80, rel=0.002)
    assert compare(timed.groups).ratio == pytest.approx(100 / 80, rel=0.002)
    if name == "candidate":
        assert timed.replay_ratio == pytest.approx(1 / share, rel=0.01)


@pytest.mark.parametrize("name", ["candidate", "baseline"])
async def test_replayed_calls_count_where_the_entrys_own_claim_to_be_faster(world: World, name: str) -> None:
    """Only in the process of the kernel file could something have made them so."""
    world.us["candidate"] = 80.0
    world.replayed[name] = 1.1
    timed, _ = await one(world)
    assert (timed.how, timed.how_reason) == ("replayed", None)
    assert (timed.doubt or "").startswith(f"{name}: an ordinary call takes ")
    assert (timed.doubt or "").endswith("the latter counts")
    shares = world.replayed
    assert compare(timed.groups).ratio == pytest.approx(1.25 * shares["baseline"] / shares["candidate"], rel=0.002)


async def test_half_a_microsecond_apart_is_agreement_for_short_kernels(world: World) -> None:
    world.us = {"candidate": 3.0, "baseline": 3.0}
    world.replayed = {"candidate": 0.85, "baseline": 0.85}
    timed, _ = await one(world)
    assert (timed.how, timed.doubt) == ("replayed", None)
    world.replayed["candidate"] = 0.8
    assert (await one(world))[0].how == "in_candidate"


async def test_a_kernel_alone_is_timed_too(world: World) -> None:
    timed, found = await one(world, baseline=False)
    assert (timed.how, timed.baseline, timed.groups, timed.baseline_tuned) == ("replayed", None, [], [])
    assert len(timed.candidate.blocks) == FULL.alone_blocks
    assert timed.checked > 0
    assert found.started() == {"task": 1, "cuda": 1, "replay": 1}


async def test_what_was_tuned_and_what_the_inputs_are_is_told(world: World) -> None:
    timed, _ = await one(world)
    assert [tuned.kernel for tuned in timed.tuned] == ["candidate_kernel"]
    assert [tuned.kernel for tuned in timed.baseline_tuned] == ["baseline_kernel"]
    assert (timed.dtypes, timed.input_bytes, timed.results_bytes) == ({"float32"}, 4096, 8192)
    assert (timed.varies, timed.first.first_call_s) == (True, 0.5)


async def test_the_baseline_has_its_inputs_before_the_candidate_can_write_to_them(world: World) -> None:
    order: list[str] = []

    def watched(process: FakeTimed) -> None:
        def set_inputs(**_: Any) -> dict[str, Any]:
            order.append(process.name)
            return {}

        process.do_set_inputs = set_inputs  # pyright: ignore[reportAttributeAccessIssue]

    world.changed = watched
    async with timing(world) as found:
        await found.timer.start("train")
    assert order == ["baseline", "candidate"]


# How many pairs of processes


async def test_a_clear_effect_is_decided_by_one_pair_of_processes(world: World) -> None:
    world.us["candidate"] = 110.0
    timed, found = await one(world)
    assert [len(group) for group in timed.groups] == [LOOKS[0]]
    assert compare(timed.groups).comparison == "slower"
    assert found.started()["replay"] == 2


@pytest.mark.parametrize("us", [100.0, 101.5, 98.5])
async def test_an_effect_that_is_not_clear_has_to_hold_in_a_second_pair(world: World, us: float) -> None:
    world.us["candidate"] = us
    timed, found = await one(world)
    assert timed.how == "replayed"
    assert len(timed.groups) == 2
    assert PAIR_BLOCKS <= len(timed.groups[0]) <= PAIR_ENDS[0]
    assert len(timed.groups[1]) >= PAIR_BLOCKS
    assert sum(map(len, timed.groups)) in LOOKS
    assert compare(timed.groups).comparison == ("same" if us == 100 else "slower" if us > 100 else "faster")
    assert found.started() == {"task": 1, "cuda": 2, "replay": 4}


async def test_pairs_that_disagree_call_for_a_third(world: World) -> None:
    """The processes of the first pair have a bias of one percent that those of the others have not."""
    async with timing(world) as found:
        await found.case()
        biased = found.executor.of("replay")[0]
        assert isinstance(biased, FakeReplayer)
        biased.bias = 1.01
        timed = await found.case()
        assert found.started() == {"task": 1, "cuda": 2, "replay": 6}
    first, second, third = (compare([group]).ratio for group in timed.groups)
    assert first == pytest.approx(1 / 1.01, rel=0.002)
    assert second == pytest.approx(1, rel=0.002)
    assert third == pytest.approx(1, rel=0.002)
    assert compare(timed.groups).comparison == "ambiguous"
    ends = [sum(map(len, timed.groups[:count])) for count in (1, 2, 3)]
    assert ends[0] <= PAIR_ENDS[0]
    assert ends[1:] == list(PAIR_ENDS[1:])


async def test_a_third_pair_loads_kernel_files_anew_too(world: World) -> None:
    world.reasons["candidate"] = "it computes outside of Triton"

    def scattering(process: FakeTimed) -> None:
        process.noise = 0.03

    world.changed = scattering
    async with timing(world) as found:
        for _ in range(2):
            timed = await found.case()
            assert [sum(map(len, timed.groups[:count])) for count in (1, 2, 3)] == list(PAIR_ENDS)
            assert [process.name for process in found.executor.of("cuda")] == ["candidate", "baseline"] * 3
            assert all(process.count("visit") for process in found.executor.of("cuda"))


async def test_kernels_that_cannot_be_replayed_are_loaded_anew_for_the_second_pair(world: World) -> None:
    world.reasons["candidate"] = "it computes outside of Triton"
    async with timing(world) as found:
        timed = await found.case()
        assert len(timed.groups) == 2
        assert found.started() == {"task": 1, "cuda": 4, "replay": 0}
        assert [process.name for process in found.executor.of("cuda")] == ["candidate", "baseline"] * 2
        timed = await found.case()
        assert len(timed.groups) == 2
        assert found.started()["cuda"] == 4


async def test_the_second_pair_is_not_used_where_starting_it_takes_too_long(world: World) -> None:
    world.reasons["candidate"] = "it computes outside of Triton"

    def slow_and_scattering(process: FakeTimed) -> None:
        process.first["first_call_s"] = 30.0
        process.noise = 0.03

    world.changed = slow_and_scattering
    timed, found = await one(world)
    assert [len(group) for group in timed.groups] == [LOOKS[-1]]
    assert found.started()["cuda"] == 2


async def test_replayers_need_no_compiling_so_they_are_started_however_long_it_took(world: World) -> None:
    world.changed = lambda process: process.first.update(first_call_s=30.0)
    timed, _ = await one(world)
    assert (timed.how, len(timed.groups)) == ("replayed", 2)


async def test_replayers_serve_all_cases(world: World) -> None:
    async with timing(world) as found:
        for _ in range(3):
            assert (await found.case()).how == "replayed"
        replayers = found.executor.of("replay")
        assert len(replayers) == 4
        assert [process.count("load_plan") for process in replayers] == [3] * 4
        assert found.started()["cuda"] == 2


async def test_time_that_is_up_leaves_what_was_measured(world: World) -> None:
    world.us["candidate"] = 110.0
    timed, _ = await one(world, plan=replace(FULL, time_limit_s=-1.0))
    assert timed.how == "replayed"
    assert sum(map(len, timed.groups)) > 0
    assert compare(timed.groups).comparison in ("ambiguous", "slower")


@pytest.mark.parametrize("baseline", [True, False])
async def test_a_kernel_so_slow_that_settling_takes_all_the_time_has_times_all_the_same(
    world: World, baseline: bool
) -> None:
    world.reasons = {"candidate": "no", "baseline": "no"}
    timed, _ = await one(world, baseline=baseline, plan=replace(FULL, time_limit_s=-1.0))
    assert timed.candidate.device_us()
    assert baseline == (sum(map(len, timed.groups)) > 0)


# Conditions


async def test_conditions_of_both_pairs_are_kept(world: World) -> None:
    cool = Conditions(
        sm_clock_hz=1, memory_clock_hz=1, temperature_c=40, power_w=1.0, power_limit_w=1.0, throttle_reasons=[]
    )

    async def watch() -> Conditions:
        return cool

    timed, _ = await one(world, watch=watch)
    assert len(timed.groups) == 2
    assert len(timed.conditions) == sum(map(len, timed.groups))


async def test_blocks_that_were_timed_again_are_counted_over_both_pairs(world: World) -> None:
    def swinging(process: FakeTimed) -> None:
        drawn = random.Random(process.name)
        process.clock_hz = lambda: 1.5e9 if drawn.random() < 0.03 else 1.98e9

    world.changed = swinging
    timed, _ = await one(world)
    assert timed.repeated > 0
