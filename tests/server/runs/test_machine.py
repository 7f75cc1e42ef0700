"""What the runs of a server keep, driven without a client."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tritonforge.profiling.optimization.model import BASELINE, Budget, Limits
from tritonforge.sandbox.source import Source
from tritonforge.server.runs.machine import Beginning, Machine
from tritonforge.server.runs.memory import hidden_cases, hidden_text, sources_of
from tritonforge.server.runs.record import HiddenCases, Run
from tritonforge.server.runs.store import Store
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
