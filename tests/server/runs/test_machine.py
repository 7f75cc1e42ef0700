"""What the runs of a server keep, driven without a client."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tritonforge.profiling.optimization.model import BASELINE, Budget, Limits
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.source import Source
from tritonforge.server.optimize.model import Site
from tritonforge.server.optimize.requests import Round, candidate_request
from tritonforge.server.prompt_context import facts_of
from tritonforge.server.runs.machine import Beginning, Machine
from tritonforge.server.runs.memory import hidden_cases, hidden_text, memory_of, sources_of, spent_s
from tritonforge.server.runs.record import HiddenCases, Run
from tritonforge.server.runs.store import Store
from tritonforge.server.tools.get_run import Wanted, get_run
from tritonforge.server.tools.run_report import attempts_left

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
HIDDEN: HiddenCases = {"ragged": {"rows": 7}}


@pytest.fixture
def fake() -> FakeEvaluator:
    return FakeEvaluator()


@pytest.fixture
async def machine(tmp_path: Path, fake: FakeEvaluator) -> AsyncGenerator[Machine]:
    async with Machine(Store(tmp_path), fake) as made:
        yield made


async def begin(machine: Machine, **baseline: Any) -> Run:
    files = Source(candidate(1, **baseline), "k.py", None), Source(task(hidden=HIDDEN), "t.py", None)
    return await machine.start(Beginning(*files, None, None, Budget(), Limits()))


async def silent(done: float, total: float, message: str) -> None:
    """Nobody is told."""


async def test_a_run_has_its_baseline_from_its_first_moment(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise ZeroDivisionError

    # Whatever comes after the run is there: it can be measured.
    monkeypatch.setattr(machine.store, "claim", killed)
    monkeypatch.setattr(machine, "_begin", killed)
    with pytest.raises(ZeroDivisionError):
        await begin(machine)
    (run,) = machine.store.runs()
    (baseline,) = machine.store.attempts(run.frozen.run_id)
    assert (run.state, baseline.state, baseline.kernel_sha256) == ("measuring", "running", run.frozen.kernel_sha256)
    machine.store.close()
    assert [attempt.number for _, attempt in machine.store.orphans()] == [BASELINE]


async def test_runs_that_can_not_be_read_hide_no_others(machine: Machine) -> None:
    broken, whole = (await begin(machine)).frozen.run_id, (await begin(machine)).frozen.run_id
    for run_id in (broken, whole):
        assert await machine.wait(run_id, BASELINE, PATIENCE_S, silent)
    with machine.store._database.transaction() as rows:  # pyright: ignore[reportPrivateUsage] - behind its back
        rows.execute("UPDATE runs SET record = '{}' WHERE run_id = ?", (broken,))
    wanted = Wanted(None, 0, cancel=False, end=False, detail=False)
    found = await get_run(machine, silent, run_id=None, wanted=wanted)
    assert [line.run_id for line in found.runs] == [whole]
    assert any(f"the record of run {broken} is damaged" in note for note in found.notes)


async def test_the_time_of_a_run_that_has_ended_stands_still(machine: Machine) -> None:
    run = await begin(machine)
    long_ago = "2020-01-01T12:00:00.000+00:00"
    run = run.model_copy(update={"frozen": run.frozen.model_copy(update={"created_at": long_ago})})
    assert spent_s(run) > 10_000_000
    for state in ("finished", "failed"):
        ended = run.model_copy(update={"state": state, "updated_at": "2020-01-01T12:01:30.500+00:00"})
        assert spent_s(ended) == 90.5
        assert memory_of(ended, []).elapsed_s == 90.5


async def test_a_task_whose_hidden_cases_agents_would_see_begins_no_run(machine: Machine) -> None:
    told = f"{task()}if True:\n    HIDDEN_CASES = {{'secret': {{'n': 97531}}}}\n"
    beginning = Beginning(
        Source(candidate(1), "k.py", None), Source(told, "t.py", None), None, None, Budget(), Limits()
    )  # fmt: skip
    with pytest.raises(Stopped, match=r"can't be kept from agents: line \d of t\.py"):
        await machine.start(beginning)
    assert machine.store.runs() == []


async def test_a_candidate_without_neighbours_of_its_own_gets_the_baselines(machine: Machine, tmp_path: Path) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    for folder in (home, away):
        folder.mkdir()
    (home / "helper.py").touch()
    baseline = Source(f"import helper\n{candidate(1)}", "k.py", str(home))
    beginning = Beginning(baseline, Source(task(), "t.py", None), None, None, Budget(), Limits())
    run_id = (await machine.start(beginning)).frozen.run_id
    assert await machine.wait(run_id, BASELINE, PATIENCE_S, silent)

    async def origin(text: str) -> str | None:
        return (await machine.submit(run_id, Source(text, "c.py", str(away)), "an idea", None)).kernel_origin

    assert await origin(candidate(2)) == str(away)
    assert await origin(f"import helper\n{candidate(3)}") == str(home)
    (away / "helper.py").touch()
    assert await origin(f"import helper\n{candidate(4)}") == str(away)


async def test_attempts_that_are_being_evaluated_are_not_left_any_more(machine: Machine, fake: FakeEvaluator) -> None:
    run_id = (await begin(machine)).frozen.run_id
    assert await machine.wait(run_id, BASELINE, PATIENCE_S, silent)
    assert attempts_left(await machine.answer(run_id, BASELINE)) == 8
    held = await machine.submit(run_id, Source(candidate(2, hold="gate"), "k.py", None), "held", None)
    await fake.reached("gate")
    assert attempts_left(await machine.answer(run_id, held.number)) == 7
    again = await machine.submit(run_id, Source(f"# Again.\n{candidate(1)}", "k.py", None), "again", None)
    assert (again.duplicate_of, again.counted) == (BASELINE, False)
    assert attempts_left(await machine.answer(run_id, again.number)) == 7
    fake.release("gate")
    assert await machine.wait(run_id, held.number, PATIENCE_S, silent)
    assert attempts_left(await machine.answer(run_id, held.number)) == 7


async def test_prompts_and_programs_are_told_the_same_of_what_is_left(
    machine: Machine, fake: FakeEvaluator, tmp_path: Path
) -> None:
    baseline = Source(f"{candidate(1)}\nHIDDEN_CASES = {{'ragged': {{'rows': 1823}}}}\n", "k.py", None)
    beginning = Beginning(baseline, Source(task(), "t.py", None), None, None, Budget(), Limits())
    run_id = (await machine.start(beginning)).frozen.run_id
    assert await machine.wait(run_id, BASELINE, PATIENCE_S, silent)
    held = await machine.submit(run_id, Source(candidate(2, hold="gate"), "k.py", None), "held", None)
    await fake.reached("gate")
    site = Site(
        machine=machine, run_id=run_id, kernel=tmp_path / "k.py", task=tmp_path / "t.py", target="h200",
        folder=tmp_path, over=anyio.Event(), deadline=anyio.current_time(),
    )  # fmt: skip
    answer = await machine.answer(run_id, BASELINE)
    request = candidate_request(site, answer, Round(1, 3, 60.0, None))
    assert request["remaining"]["attempts"] == attempts_left(answer) == 7
    assert facts_of(machine.store, run_id, "baseline").attempts_left == 7
    # A file may be kernel and task at once.
    wanted = Wanted(BASELINE, 0, cancel=False, end=False, detail=True)
    shown = (await get_run(machine, silent, run_id=run_id, wanted=wanted)).source
    for kernel in (request["parent"]["kernel"], shown or ""):
        assert "return x * 1" in kernel
        assert "1823" not in kernel
    fake.release("gate")
    assert await machine.wait(run_id, held.number, PATIENCE_S, silent)


async def test_hidden_cases_cant_be_guessed_by_their_hash(machine: Machine) -> None:
    one, other = [(await begin(machine)).frozen for _ in range(2)]
    for frozen in (one, other):
        assert await machine.wait(frozen.run_id, BASELINE, PATIENCE_S, silent)
        kept = machine.store.run(frozen.run_id).frozen
        # All of them passed: they stay what they were.
        assert kept.hidden_sha256 == frozen.hidden_sha256
        assert sources_of(machine.store, kept).hidden == HIDDEN
    assert one.hidden_sha256 != other.hidden_sha256
    assert machine.store.check() == []


@pytest.mark.parametrize("cases", [HIDDEN, {"salt": {"cases": 3}, "cases": {"salt": 1}}])
async def test_hidden_cases_are_read_with_and_without_a_salt(cases: HiddenCases) -> None:
    assert hidden_cases(hidden_text(cases)) == cases
    assert hidden_cases(json.dumps(cases)) == cases
    assert hidden_text(cases) != hidden_text(cases)
