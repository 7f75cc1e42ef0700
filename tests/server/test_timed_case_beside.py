"""What is timed beside candidate and baseline: the reference, as it is or compiled, and the candidate as a graph."""

import random
from typing import Any

import pytest

from tests.sandbox.fake_timed import FakeTimed, stopped
from tests.server.fake_timing import FakeTask, Timing, World, one, timing
from tritonforge.profiling.comparison import compare
from tritonforge.profiling.statistics import median
from tritonforge.profiling.times import pairs
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.timed_case import GRAPH_CALLS
from tritonforge.server.timed_result import Against, Reference, TimedCase

pytestmark = pytest.mark.anyio
BOTH: list[Reference] = ["eager", "torch.compile"]


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    random.seed(1)


@pytest.fixture
def world() -> World:
    return World()


# The reference


async def test_the_reference_is_timed_in_processes_of_its_own_in_the_same_blocks(world: World) -> None:
    world.us["candidate"] = 80.0
    timed, found = await one(world, against=BOTH)
    assert [(entry.name, entry.reason) for entry in timed.against] == [("eager", None), ("torch.compile", None)]
    for entry in timed.against:
        assert entry.times is not None
        assert median(entry.times.device_us()) == pytest.approx(150, rel=0.002)
        assert compare([pairs(timed.candidate, entry.times)]).ratio == pytest.approx(150 / 80, rel=0.002)
        assert entry.times.call_us
        assert entry.first_call_s == 0.5
    assert found.started() == {"task": 3, "cuda": 2, "replay": 2}
    eager, compiled = found.executor.of("task")[1:]
    assert eager.fields("time_reference") == [{"compiled": False}]
    assert compiled.fields("time_reference") == [{"compiled": True}]


async def test_the_reference_gets_the_same_inputs_and_contents(world: World) -> None:
    _, found = await one(world, against=["eager"])
    tasks, eager = found.executor.of("task")
    assert eager.fields("make_inputs") == tasks.fields("make_inputs")
    assert {fields["contents"] for fields in tasks.fields("make_inputs")} == {"real"}
    assert eager.fields("make_alternatives") == tasks.fields("make_alternatives")
    (seed,) = [fields["seed"] for fields in tasks.fields("keep_contents")]
    assert [fields["seed"] for fields in eager.fields("prepare")] == [seed]


@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize("reason", [None, "no"])
async def test_the_reference_stays_beside_the_candidate_whatever_is_timed(
    world: World, baseline: bool, reason: str | None
) -> None:
    if reason is not None:
        world.reasons["candidate"] = reason
    timed, _ = await one(world, against=["eager"], baseline=baseline)
    (entry,) = timed.against
    assert entry.times is not None
    assert len(entry.times.blocks) == len(timed.candidate.blocks) > 0


async def test_blocks_go_on_until_the_reference_is_compared_too(world: World) -> None:
    world.us["candidate"] = 80.0
    world.reference_us = 80.0
    timed, _ = await one(world, against=["eager"])
    (entry,) = timed.against
    assert entry.times is not None
    assert compare([pairs(timed.candidate, entry.times)]).comparison == "same"
    assert len(timed.groups[0]) > 6


async def test_a_process_with_the_reference_serves_all_cases(world: World) -> None:
    async with timing(world, against=BOTH) as found:
        for _ in range(3):
            await found.case()
        assert found.started()["task"] == 3


async def test_a_reference_that_cannot_be_compiled_is_told_with_its_reason_and_all_else_is_timed(world: World) -> None:
    def change(process: FakeTimed) -> None:
        if isinstance(process, FakeTask):
            plain = process.do_time_reference

            def time_reference(*, compiled: bool) -> dict[str, Any]:
                if compiled:
                    raise stopped(Kind.UNSUPPORTED, "there is no C compiler")
                return plain(compiled=compiled)

            process.do_time_reference = time_reference

    world.changed = change
    timed, _ = await one(world, against=BOTH)
    eager, compiled = timed.against
    assert eager.times is not None
    assert compiled == Against("torch.compile", reason="there is no C compiler")
    assert timed.groups


async def test_after_a_failure_of_the_reference_another_case_has_a_clean_process(world: World) -> None:
    def failing(process: FakeTimed) -> None:
        if isinstance(process, FakeTask):
            process.faults["first_call"] = stopped(Kind.OUT_OF_MEMORY, "no room")

    world.changed = failing
    async with timing(world, against=["eager"]) as found:
        timed = await found.case()
        assert timed.against == [Against("eager", reason="no room")]
        world.changed = lambda process: None
        timed = await found.case()
        assert timed.against[0].times is not None
        assert found.started()["task"] == 3
        assert found.executor.of("task")[1].count("make_inputs") == 1


async def test_a_cancelled_reference_ends_the_evaluation(world: World) -> None:
    def cancelled(process: FakeTimed) -> None:
        if isinstance(process, FakeTask):
            process.faults["first_call"] = stopped(Kind.CANCELLED, "cancelled")

    world.changed = cancelled
    with pytest.raises(Stopped) as caught:
        await one(world, against=["eager"])
    assert caught.value.kind is Kind.CANCELLED


async def test_without_a_reference_there_is_nothing_to_time(world: World) -> None:
    world.description["has_reference"] = False
    timed, found = await one(world, against=BOTH)
    assert [entry.reason for entry in timed.against] == ["the task has no reference"] * 2
    assert found.started()["task"] == 1


# The candidate as a CUDA graph


@pytest.fixture
def launch_bound(world: World) -> World:
    world.us = {"candidate": 3.0, "baseline": 3.0}
    world.call_us = lambda us: 60.0
    return world


async def test_a_launch_bound_candidate_is_timed_as_a_graph_of_its_recorded_launches(launch_bound: World) -> None:
    timed, found = await one(launch_bound)
    assert timed.graph is not None
    assert timed.graph.graph_call_us == 9.0
    asked = [process for process in found.executor.of("replay") if process.count("graph_floor")]
    assert [process.name for process in asked] == ["replayed candidate"]
    assert asked[0].fields("graph_floor") == [{"calls": GRAPH_CALLS}]


async def test_the_graph_comes_after_everything_else(launch_bound: World) -> None:
    _, found = await one(launch_bound)
    assert [name for name, _ in found.executor.of("replay")[0].asked][-2:] == ["graph_floor", "release"]


async def test_no_graph_is_made_of_long_kernels_nor_of_ones_that_are_not_replayed(launch_bound: World) -> None:
    launch_bound.reasons["candidate"] = "no"
    timed, found = await one(launch_bound)
    assert timed.graph is None
    assert all(process.count("graph_floor") == 0 for _, process in found.executor.started)
    launch_bound.reasons.clear()
    launch_bound.us = {"candidate": 100.0, "baseline": 100.0}
    assert (await one(launch_bound))[0].graph is None


async def test_a_graph_that_could_be_made_leaves_the_replayers_to_the_next_case(launch_bound: World) -> None:
    async with timing(launch_bound) as found:
        before = await replayers_of(found)
        assert await replayers_of(found) == before


async def replayers_of(found: Timing) -> int:
    """How many have been started after one more case."""
    timed: TimedCase = await found.case()
    assert timed.graph is not None
    return found.started()["replay"]


async def test_after_a_capture_that_failed_the_next_case_has_other_replayers(launch_bound: World) -> None:
    launch_bound.changed = lambda process: setattr(process, "graph", {"reason": "it synchronizes"})
    async with timing(launch_bound) as found:
        before = await replayers_of(found)
        first = found.executor.of("replay")
        loads = [process.count("load_plan") for process in first]
        timed = await found.case()
        assert timed.graph is not None
        assert timed.graph.reason == "it synchronizes"
        assert timed.how == "replayed"
        assert found.started()["replay"] == 2 * before
        assert [process.count("load_plan") for process in first] == loads
