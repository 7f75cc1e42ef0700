"""Eight clients of one server over HTTP, four of which share a run: nothing is lost or mixed, and verdicts are fair."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import pytest
from mcp.client import Client

from tests.server.runs.accounts import wrong
from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, script, task
from tests.server.runs.over_http import served
from tritonforge.profiling.optimization.model import BASELINE, Attempt
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.app import build_server
from tritonforge.server.runs.store import Store
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

CLIENTS: Final = 8
SHARED: Final = 4
"""Clients of the same run; each of the others has its own."""
CANDIDATES: Final = 8
BUDGET: Final = 100
WAIT_S: Final = 30
LIGHT_PCT: Final = 0.2
AGAIN: Final = "# once more\n"
COMMON: Final = "x * 1000"
"""In the file that all clients have."""


class Idea(NamedTuple):
    """What a client submits."""

    strategy: str
    text: str


class Given(NamedTuple):
    """What it was answered."""

    idea: Idea
    answer: Mapping[str, Any]


def ideas(client: int) -> list[Idea]:
    """A client's, of all kinds: no two ideas of any clients have the same gain."""
    chance = random.Random(client)
    made: list[Idea] = []
    for place in range(CANDIDATES):
        number = 1 + client + CLIENTS * place
        seconds = round(chance.uniform(0.0, 0.02), 4)
        ratio = round(1.02 ** ((number * 37) % 101), 4)
        match place:
            case 2:
                fake: dict[str, Any] = {"kind": "wrong"}
            case 4:
                fake = {"ratio": 3 * ratio, "confirm": "wrong"}
            case 5:
                # All clients have this one.
                number, seconds, fake = 1000, 0.01, {"ratio": 1.01}
            case _:
                fake = {"ratio": ratio}
        text = candidate(number, light_pct=LIGHT_PCT, seconds=seconds, **fake)
        made.append(Idea(f"idea {place} of client {client}", text))
    made[6] = Idea(f"once more, says client {client}", f"{AGAIN}{made[3].text}")
    return made


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def test_eight_clients_at_once_four_of_them_on_one_run(state: Path) -> None:
    given: dict[int, list[Given]] = {}
    runs: dict[int, str] = {}
    settings = Settings(state_dir=state)

    async def one(url: str, number: int) -> None:
        async with Client(url, read_timeout_seconds=60) as client:
            if number >= SHARED:
                runs[number] = await _begun(client, f"of client {number}")
            given[number] = [Given(idea, await _submitted(client, runs[number], idea)) for idea in ideas(number)]

    with anyio.fail_after(60):
        async with served(build_server(settings, lambda _: FakeEvaluator())) as url:
            async with Client(url) as client:
                runs.update(dict.fromkeys(range(SHARED), await _begun(client, "shared")))
            async with anyio.create_task_group() as tasks:
                for number in range(CLIENTS):
                    tasks.start_soon(one, url, number)
    assert len(set(runs.values())) == 1 + CLIENTS - SHARED
    store = Store(state / "runs")
    for run_id in set(runs.values()):
        its = [each for number, of in runs.items() if of == run_id for each in given[number]]
        assert wrong(store, run_id) == []
        _accounted(store, run_id, its)
        _fair(store.attempts(run_id), store)
    store.close()


def _accounted(store: Store, run_id: str, given: list[Given]) -> None:
    """Each idea is one attempt, under its own number, and that is the answer that its client got; who has another's at
    the same moment gets that one's."""
    run, attempts = store.run(run_id), store.attempts(run_id)
    assert {attempt.state for attempt in attempts} == {"finished"}
    assert sorted({answer["attempt"] for _, answer in given}) == [attempt.number for attempt in attempts[1:]]
    for idea, answer in given:
        attempt = attempts[int(answer["attempt"])]
        assert answer["run_id"] == run_id
        assert attempt.strategy in {other.strategy for other, its in given if its["attempt"] == attempt.number}
        assert store.file(attempt.kernel_sha256) == idea.text
        assert attempt.evidence is not None
        verdict = None if attempt.verdict is None else attempt.verdict.verdict
        assert (answer["verdict"], answer["accepted"]) == (verdict, attempt.accepted)
        assert answer["duplicate_of"] == attempt.duplicate_of
        assert attempt.counted is (attempt.duplicate_of is None)
    counted = sum(attempt.counted for attempt in attempts)
    places = {idea.text: answer["attempt"] for idea, answer in given}
    again = [(idea.text.removeprefix(AGAIN), answer) for idea, answer in given if idea.text.startswith(AGAIN)]
    assert all(answer["duplicate_of"] == places[text] for text, answer in again)
    # What several have is measured once, though they had it at the same moment.
    common = sum(COMMON in idea.text for idea, _ in given)
    assert counted == len(given) - len(again) - common + 1
    assert min(answer["attempts_left"] for _, answer in given) >= run.frozen.budget.attempts - counted
    assert run.state == "open"


def _fair(attempts: list[Attempt], store: Store) -> None:
    """Whatever was accepted beat the incumbent of that moment, and the best one won."""
    accepted = sorted((each for each in attempts if each.accepted), key=lambda each: (each.finished_at, each.number))
    incumbent = BASELINE
    for attempt in accepted:
        evidence = attempt.evidence
        assert evidence is not None
        beside = evidence.timing(incumbent)
        assert beside is not None
        assert beside.ratio_low > 1
        assert max(timing.against for timing in evidence.timings) == incumbent
        incumbent = attempt.number
    texts = {each.number: store.file(each.kernel_sha256) for each in attempts}
    right = [number for number, text in texts.items() if {script(text).kind, script(text).confirm} == {Kind.OK}]
    best = max(right, key=lambda number: (script(texts[number]).ratio, -number))
    assert incumbent == best
    for attempt in attempts[1:]:
        if attempt.duplicate_of is None and not attempt.accepted and attempt.number in right:
            # It was beside one that is at least as good.
            assert attempt.evidence is not None
            assert any(timing.ratio_low <= 1 for timing in attempt.evidence.timings)


async def _begun(client: Client, title: str) -> str:
    files = {"kernel": candidate(0, light_pct=LIGHT_PCT), "task": task(title), "attempts": BUDGET, "target_pct": 100.0}
    started = await _called(client, "start_optimization", {**files, "wait_s": WAIT_S})
    assert started["run_state"] == "open", started
    return str(started["run_id"])


async def _submitted(client: Client, run_id: str, idea: Idea) -> Mapping[str, Any]:
    given = {"run_id": run_id, "kernel": idea.text, "strategy": idea.strategy, "wait_s": WAIT_S}
    return await _called(client, "submit_candidate", given)


async def _called(client: Client, tool: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert result.structured_content is not None, result.content
    return result.structured_content
