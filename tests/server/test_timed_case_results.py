"""Timed calls on contents that differ, and their results: what is compared with what, and what stops a case."""

import random
from typing import Any

import pytest

from tests.sandbox.fake_timed import FakeTimed, stopped
from tests.server.fake_timing import FakeTask, Timing, World, one, timing
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.timed_case import EXACT_CHECKS

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    random.seed(1)


@pytest.fixture
def world() -> World:
    return World()


# Results of timed calls


async def test_results_of_timed_calls_are_checked_of_ordinary_and_of_replayed_ones(world: World) -> None:
    timed, found = await one(world)
    sides = ("candidate", "replayed candidate")
    asked = {name: sum(process.count("outputs") for process in found.executor.named(name)) for name in sides}
    assert timed.checked == sum(asked.values())
    assert min(asked.values()) >= 1
    assert sum(process.count("outputs") for process in found.executor.named("baseline")) == 0
    tasks = found.executor.of("task")[0]
    assert tasks.count("judge_outputs") == timed.checked


@pytest.mark.parametrize("reason", [None, "it computes outside of Triton"])
async def test_wrong_results_of_a_timed_call_stop_it(world: World, reason: str | None) -> None:
    if reason is not None:
        world.reasons["candidate"] = reason
    world.right["candidate"] = lambda contents: False
    with pytest.raises(Stopped) as caught:
        await one(world)
    assert caught.value.kind is Kind.WRONG
    assert "a timed call's results are wrong, though they were right before" in caught.value.problem.message
    assert "keeps something between calls" in (caught.value.problem.likely_cause or "")


async def test_launches_that_give_other_results_when_they_are_replayed_are_timed_in_the_entry(world: World) -> None:
    """Something that was not recorded belongs to them."""
    world.us["candidate"] = 80.0
    world.right["replayed candidate"] = lambda contents: False
    timed, _ = await one(world)
    assert timed.how == "in_candidate"
    assert (timed.how_reason or "").startswith("its launches by a replayer give other results: ")
    assert timed.candidate.visits == 2 * len(timed.candidate.blocks) == 2 * len(timed.groups[0])
    assert timed.checked > 0
    assert timed.graph is None


async def test_alternatives_are_handed_to_all_sides(world: World) -> None:
    _, found = await one(world)
    ((made,),) = [
        [fields["seeds"] for fields in process.fields("make_alternatives")] for process in found.executor.of("task")
    ]
    for process in [*found.executor.of("cuda"), *found.executor.of("replay")]:
        (given,) = [fields["tree"] for fields in process.fields("set_alternatives")]
        assert given == {"list": [{"list": [{"value": seed}]} for seed in made]}
        names = [name for name, _ in process.asked]
        assert names.index("set_inputs") < names.index("set_alternatives") < names.index("prepare")


async def test_a_kernel_that_is_wrong_in_half_of_its_calls_is_found_out(world: World) -> None:
    world.reasons["candidate"] = "it computes outside of Triton"
    world.right["candidate"] = lambda contents: contents % 2 == 0
    with pytest.raises(Stopped, match="a timed call's results are wrong"):
        await one(world)


async def test_results_that_are_coarse_only_while_they_are_timed_are_found_out(world: World) -> None:
    world.coarse = True
    with pytest.raises(Stopped, match="a timed call's results are wrong") as caught:
        await one(world)
    assert caught.value.kind is Kind.WRONG


async def test_of_each_case_some_results_are_compared_exactly(world: World) -> None:
    async with timing(world) as found:
        for _ in range(2):
            await found.case()
        exact = [fields["exact"] for fields in found.executor.of("task")[0].fields("judge_outputs")]
    assert exact.count(True) == 2 * EXACT_CHECKS
    assert exact[:EXACT_CHECKS] == [True] * EXACT_CHECKS


async def test_at_least_eight_results_of_ordinary_calls_are_checked(world: World) -> None:
    world.reasons["candidate"] = "it computes outside of Triton"
    timed, _ = await one(world)
    assert timed.checked >= 8


async def test_without_a_reference_the_baselines_results_for_the_same_contents_are_expected(world: World) -> None:
    world.description["has_reference"] = False
    async with timing(world) as found:
        timed = await found.case()
        tasks = found.executor.of("task")[0]
        assert tasks.count("vary") == 0
        assert tasks.count("vary_from") == timed.checked > 0
        assert not any(fields["exact"] for fields in tasks.fields("judge_outputs"))
        assert timed.results_bytes is None
        world.right["candidate"] = lambda contents: False
        with pytest.raises(Stopped) as caught:
            await found.case()
    assert caught.value.kind is Kind.WRONG


async def test_without_anything_that_is_expected_nothing_is_checked(world: World) -> None:
    world.description["has_reference"] = False
    world.right["candidate"] = lambda contents: False
    timed, found = await one(world, baseline=False)
    assert timed.checked == 0
    assert all(process.count("outputs") == 0 for _, process in found.executor.started)


# Contents


def seeds(found: Timing) -> set[int | None]:
    """Those that kernels and replayers prepared contents with."""
    workers = [*found.executor.of("cuda"), *found.executor.of("replay")]
    return {fields["seed"] for process in workers for fields in process.fields("prepare")}


async def test_all_sides_and_the_task_have_contents_of_the_same_seed(world: World) -> None:
    _, found = await one(world)
    (seed,) = seeds(found)
    assert seed is not None
    assert found.executor.of("task")[0].fields("keep_contents") == [{"seed": seed}]


def unbearable(kind: Kind) -> Any:
    """The reference fails on contents other than the inputs' own."""

    def change(process: FakeTimed) -> None:
        if isinstance(process, FakeTask):
            plain = process.do_vary

            def vary(*, number: int) -> dict[str, Any]:
                if process.fields("keep_contents")[-1]["seed"] is not None:
                    raise stopped(kind, "not positive definite")
                return plain(number=number)

            process.do_vary = vary

    return change


async def test_contents_that_the_reference_cannot_bear_stay_the_same(world: World) -> None:
    world.changed = unbearable(Kind.REJECTED)
    timed, found = await one(world)
    assert not timed.varies
    assert seeds(found) == {None}
    assert timed.results_bytes == 8192
    assert timed.checked > 0


@pytest.mark.parametrize("kind", [Kind.CANCELLED, Kind.TIMEOUT])
async def test_a_reference_that_was_cancelled_or_hangs_is_not_asked_again(world: World, kind: Kind) -> None:
    world.changed = unbearable(kind)
    with pytest.raises(Stopped) as caught:
        await one(world)
    assert caught.value.kind is kind


async def test_inputs_without_floating_numbers_do_not_vary(world: World) -> None:
    world.changed = lambda process: process.forged.update(keep_contents={"varies": False})
    timed, found = await one(world)
    assert not timed.varies
    assert seeds(found) == {None}
