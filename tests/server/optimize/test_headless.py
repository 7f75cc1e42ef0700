"""Many optimizations with one set of services: each run is ended, and one that is left open can be gone on with."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from tests.server.optimize.workshop import FAST, FASTEST, SLOW, WRONG, Workshop
from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.optimize.command_agent import CommandAgent
from tritonforge.server.optimize.headless import Opened, opened, optimize_with
from tritonforge.server.optimize.model import OptimizeResult
from tritonforge.server.runs.evaluator import Measured, Sources
from tritonforge.server.runs.record import Frozen
from tritonforge.server.tools.parameters import Progress

pytestmark = pytest.mark.anyio


class Counting(FakeEvaluator):
    """Counts the baselines that it measures."""

    def __init__(self) -> None:
        super().__init__()
        self.baselines = 0

    async def baseline(self, frozen: Frozen, sources: Sources, progress: Progress) -> Measured:
        self.baselines += 1
        return await super().baseline(frozen, sources, progress)


@pytest.fixture
def fake() -> Counting:
    return Counting()


@pytest.fixture
async def shared(workshop: Workshop, fake: Counting) -> AsyncGenerator[Opened]:
    async with opened(workshop.settings, evaluator=lambda _: fake) as both:
        yield both


def answering(workshop: Workshop, *kernels: tuple[str, str]) -> str:
    return workshop.program(
        f"text, why = {kernels!r}[request['round'] - 1]\nprint(json.dumps({{'kernel': text, 'strategy': why}}))"
    )


async def run(workshop: Workshop, shared: Opened, agent: str, **fields: Any) -> OptimizeResult:
    return await optimize_with(workshop.plan(agent, **fields), *shared, say=workshop.said.append)


async def test_one_after_the_other_with_the_same_services(workshop: Workshop, shared: Opened) -> None:
    first = await run(workshop, shared, answering(workshop, FAST), rounds=1, export_to=workshop.folder / "first")
    second = await run(workshop, shared, answering(workshop, SLOW), rounds=1, export_to=workshop.folder / "second")
    assert (first.gained, second.gained) == (True, False)
    assert first.run_id != second.run_id
    assert (workshop.folder / "first" / "entry.py").read_text() == FAST[0]
    assert set(first.seconds_by_stage) == {"baseline", "agent", "finish"}
    assert all(seconds >= 0 for seconds in first.seconds_by_stage.values())


async def test_several_at_once_with_the_same_services(workshop: Workshop, shared: Opened) -> None:
    agent = answering(workshop, FAST)
    results: list[OptimizeResult] = []

    async def one(number: int) -> None:
        found = await run(workshop, shared, agent, rounds=1, export_to=workshop.folder / f"won-{number}")
        results.append(found)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(one, number)
    assert [result.gained for result in results] == [True] * 3
    assert len({result.run_id for result in results}) == 3
    assert len(list(workshop.folder.glob("won-*/entry.py"))) == 3


async def test_without_an_agent_the_baseline_is_measured_and_the_run_left_open(
    workshop: Workshop, shared: Opened, fake: Counting
) -> None:
    result = await run(workshop, shared, "none")
    assert (result.gained, result.attempts, result.agents, result.files) == (False, 0, [], [])
    assert result.why_not == "no agent was asked for"
    assert set(result.seconds_by_stage) == {"baseline"}
    assert result.run_id is not None
    left = shared.machine.store.run(result.run_id)
    # Whoever goes on with it later has his own time.
    assert (left.state, left.frozen.budget.wall_s) == ("open", None)
    assert fake.baselines == 1


async def test_a_run_that_is_left_open_is_gone_on_with_and_its_baseline_not_measured_again(
    workshop: Workshop, shared: Opened, fake: Counting
) -> None:
    workshop.task.write_text(task(hidden={"secret": {"n": 12345}}))
    first = await run(workshop, shared, "none")
    frozen = workshop.kernel.read_text()
    workshop.kernel.write_text("changed since\n")
    above = workshop.folder / "own"
    agent = workshop.program(
        f"Path({str(workshop.folder / 'seen.json')!r}).write_text(json.dumps(request))\n"
        f"print(json.dumps({{'kernel': {FAST[0]!r}, 'strategy': 'wider'}}))"
    )
    second = await run(workshop, shared, agent, run_id=first.run_id, rounds=1, workspace=above)
    (folder,) = above.iterdir()
    assert (second.gained, second.run_id, second.attempts, fake.baselines) == (True, first.run_id, 1, 1)
    assert (folder / "baseline.py").read_text() == frozen
    assert "secret" not in (folder / "task.py").read_text()
    assert second.ended_by == "agent"
    assert second.task is None


async def test_a_run_that_is_over_is_not_gone_on_with(workshop: Workshop, shared: Opened) -> None:
    first = await run(workshop, shared, answering(workshop, SLOW), rounds=1)
    with pytest.raises(Stopped, match="is finished and takes no more candidates") as caught:
        await run(workshop, shared, answering(workshop, FAST), run_id=first.run_id)
    assert caught.value.kind is Kind.REJECTED


@pytest.mark.parametrize("agent", ["none", "tune"])
async def test_who_has_no_words_writes_no_task(workshop: Workshop, shared: Opened, agent: str) -> None:
    with pytest.raises(Stopped, match=r"needs (one|--task)") as caught:
        await run(workshop, shared, agent, task=None)
    assert caught.value.kind is Kind.REJECTED


def states(shared: Opened) -> list[str]:
    return [each.state for each in shared.machine.store.runs()]


async def test_a_fault_ends_the_run_and_leaves_the_services_usable(
    workshop: Workshop, shared: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: CommandAgent, site: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(CommandAgent, "work", fails)
        with pytest.raises(ExceptionGroup):
            await run(workshop, shared, answering(workshop, FAST))
    assert states(shared) == ["finished"]
    assert (await run(workshop, shared, answering(workshop, FASTEST), rounds=1)).gained


async def test_what_is_no_candidates_doing_ends_the_run(
    workshop: Workshop, shared: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(self: CommandAgent, site: Any) -> None:
        raise Stopped(Kind.UNAVAILABLE, Problem(stage="run", message="no worker can be had"))

    monkeypatch.setattr(CommandAgent, "work", unavailable)
    with pytest.raises(Stopped):
        await run(workshop, shared, answering(workshop, WRONG))
    assert states(shared) == ["finished"]


async def test_a_baseline_that_takes_too_long_is_measured_no_further(workshop: Workshop, shared: Opened) -> None:
    workshop.kernel.write_text(candidate(1, hold="for ever"))
    with pytest.raises(Stopped) as caught:
        await run(workshop, shared, "none", wall_s=0.5)
    assert caught.value.kind is Kind.TIMEOUT
    (ended,) = shared.machine.store.runs()
    assert ended.state == "failed"
    assert shared.machine.at_work(ended.frozen.run_id) == {}


async def test_who_is_cancelled_leaves_no_run_open(workshop: Workshop, shared: Opened, fake: Counting) -> None:
    agent = answering(workshop, (candidate(2, ratio=1.5, hold="half"), "wider"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: run(workshop, shared, agent))
        await fake.reached("half")
        tasks.cancel_scope.cancel()
    (ended,) = shared.machine.store.runs()
    assert ended.state == "finished"
    assert shared.machine.at_work(ended.frozen.run_id) == {}
    assert shared.machine.store.attempt(ended.frozen.run_id, 1).state == "cancelled"
