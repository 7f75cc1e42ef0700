"""The agent `tune`: a search on made-up workers, whose finalists are submitted to a run that is made up, too."""

from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, cast

import anyio
import pytest

from tests.server.optimize.workshop import Workshop
from tests.server.runs import fake_evaluator
from tests.server.runs.fake_evaluator import FakeEvaluator, Script, task
from tests.server.test_tune_kernel import SIN, Times, Whole, made_up, named
from tritonforge.profiling.optimization.model import Attempt
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.optimize import tune_agent
from tritonforge.server.optimize.headless import optimize_with
from tritonforge.server.optimize.model import OptimizeResult
from tritonforge.server.runs.machine import Machine
from tritonforge.server.runs.store import Store
from tritonforge.server.services import Services

pytestmark = pytest.mark.anyio

PRESENT: Final = "1024-4"
BEST: Final = "2048-8"


class Tuned:
    """Optimizes the kernel of an example with the search; candidates are as fast as the search's variants."""

    def __init__(self, workshop: Workshop, whole: Whole, machine: Machine) -> None:
        self.workshop, self.whole, self.machine = workshop, whole, machine
        self.failing: Callable[[str], Kind] = lambda name: Kind.OK
        """How a candidate ends, by what it is called."""

    def script(self, text: str) -> Script:
        """Stands in for the comment that says how a file ends."""
        if "block = " not in text:
            return self.before(text)
        return Script(kind=self.failing(named(text)), ratio=Times()[PRESENT] / Times()[named(text)], light_pct=1.0)

    before = staticmethod(fake_evaluator.script)

    async def run(self, **fields: Any) -> OptimizeResult:
        services = cast(Services, self.whole.services)
        plan = self.workshop.plan("tune", **fields)
        return await optimize_with(plan, services, self.machine, say=self.workshop.said.append)

    def attempts(self, result: OptimizeResult) -> list[Attempt]:
        assert result.run_id is not None
        return self.machine.store.attempts(result.run_id)[1:]

    def tried(self, result: OptimizeResult) -> list[str]:
        """What the candidates are called."""
        return [named(self.machine.store.file(each.kernel_sha256)) for each in self.attempts(result)]


@pytest.fixture
async def tuned(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Tuned]:
    workshop.kernel.write_text((SIN / "candidate.py").read_text())
    whole = made_up(workshop.folder, monkeypatch)
    services = cast(Any, whole.services)
    services.settings, services.evaluations = workshop.settings, anyio.Semaphore(1)
    async with Machine(
        Store(workshop.settings.state_dir / "runs"), FakeEvaluator(), lambda: services.evaluations
    ) as machine:
        found = Tuned(workshop, whole, machine)
        monkeypatch.setattr(fake_evaluator, "script", found.script)
        yield found
    assert whole.services.executor.alive == 0


async def test_the_best_variant_is_submitted_and_wins(tuned: Tuned) -> None:
    result = await tuned.run()
    assert (result.gained, result.attempts) == (True, 1)
    assert result.chosen == {"BLOCK": 2048, "num_warps": 8}
    (attempt,) = tuned.attempts(result)
    assert attempt.strategy.startswith("tune: BLOCK 1024 -> 2048, num_warps 4 -> 8 (search: ")
    measured = int(attempt.strategy.partition("search: ")[2].split()[0])
    assert 0 < measured < 45
    assert attempt.strategy.endswith(f"{measured} of 45 points measured)")
    assert attempt.parent == 0
    assert attempt.kernel_origin == str(tuned.workshop.folder)
    assert named((tuned.workshop.folder / "won" / "entry.py").read_text()) == BEST
    (end,) = result.agents
    assert (end.ended, end.no_idea, end.chosen) == ("exited", None, result.chosen)


async def test_the_run_alone_checks_and_times_what_was_found(tuned: Tuned) -> None:
    await tuned.run()
    assert tuned.whole.final.checked == []
    assert tuned.whole.final.timed == []


async def test_a_finalist_that_is_wrong_gives_way_to_the_next_best(tuned: Tuned) -> None:
    tuned.failing = lambda name: Kind.WRONG if name == BEST else Kind.OK
    result = await tuned.run()
    tried = tuned.tried(result)
    assert tried[0] == BEST
    assert len(set(tried)) == len(tried) == 2
    assert result.gained
    assert result.chosen is not None
    assert f"{result.chosen['BLOCK']}-{result.chosen['num_warps']}" == tried[1]


@pytest.mark.parametrize(("rounds", "count"), [(8, 3), (2, 2)])
async def test_no_more_finalists_are_tried_than_three_or_the_rounds(tuned: Tuned, rounds: int, count: int) -> None:
    tuned.failing = lambda name: Kind.OK if name == PRESENT else Kind.WRONG
    result = await tuned.run(rounds=rounds)
    assert len(tuned.tried(result)) == count
    assert (result.gained, result.chosen) == (False, None)
    assert "none of the search's best was accepted" in (result.agents[0].no_idea or "")


async def test_where_nothing_is_faster_nothing_is_submitted(tuned: Tuned) -> None:
    text = tuned.workshop.kernel.read_text().replace("block = 1024", "block = 2048")
    tuned.workshop.kernel.write_text(text.replace("num_warps=4", "num_warps=8"))
    result = await tuned.run()
    assert (result.gained, result.attempts, result.chosen) == (False, 0, None)
    assert result.why_not is not None
    assert "the search found nothing faster" in result.why_not
    assert "of 45 points measured" in result.why_not


async def test_a_file_without_knobs_is_not_searched(tuned: Tuned) -> None:
    tuned.workshop.kernel.write_text("def entry(x):\n    return x\n")
    result = await tuned.run()
    assert (result.gained, result.attempts) == (False, 0)
    assert "there is nothing to search: the kernel file exposes no knob" in result.summary
    assert set(result.seconds_by_stage) == {"baseline", "agent", "finish"}


async def test_without_a_gpu_nothing_is_searched(tuned: Tuned) -> None:
    tuned.workshop.task.write_text(task("made up", timed=False))
    result = await tuned.run()
    assert (result.gained, result.attempts) == (False, 0)
    assert result.agents[0].no_idea == "this machine has no GPU, so no variant can be timed"
    assert "nothing can be timed" in result.summary


@pytest.mark.parametrize("kind", [Kind.COMPILE_ERROR, Kind.UNAVAILABLE])
async def test_a_search_that_fails_is_a_result_unless_it_is_no_kernels_doing(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise Stopped(kind, Problem(stage="compile", message="as it should be"))

    monkeypatch.setattr(tune_agent, "prepare", fails)
    if kind is Kind.UNAVAILABLE:
        with pytest.raises(Stopped, match="as it should be"):
            await tuned.run()
    else:
        result = await tuned.run()
        assert "the search ended as compile_error: as it should be" in result.summary
    (ended,) = tuned.machine.store.runs()
    assert ended.state == "finished"


async def test_the_search_has_the_time_it_is_given_and_no_more_than_most_of_what_is_left(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    begin: list[float] = []
    race = tune_agent.race

    async def watched(services: Any, ground: Any, search: Any, budget_s: float, *, begin_s: float) -> Any:
        given.append(budget_s)
        begin.append(begin_s)
        return await race(services, ground, search, budget_s, begin_s=begin_s)

    monkeypatch.setattr(tune_agent, "race", watched)
    await tuned.run(search_s=17.0, wall_s=120.0)
    await tuned.run(search_s=1000.0, wall_s=120.0, force=True)
    assert given[0] == 17.0
    assert begin[0] == tune_agent.BEGIN_S
    assert 0 < given[1] < 120
    assert begin[1] == 0


async def test_it_searches_once_whatever_is_asked_for(tuned: Tuned) -> None:
    with pytest.raises(Stopped, match="tune searches once"):
        await tuned.run(parallel=2)
    assert tuned.machine.store.runs() == []
