"""A run whose servers are killed at random moments loses nothing that was answered, and is driven to its end.

TRITONFORGE_KILLS says how often, for the long run.
"""

import random
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from tests.server.runs.accounts import wrong
from tests.server.runs.nursery import KILLS, Nursery, nursery
from tests.server.runs.store_writer import fingerprint
from tritonforge.profiling.optimization.model import BASELINE
from tritonforge.server.runs.store import Store

KILLS_PER_RUN: Final = 10


@pytest.fixture(scope="module")
def drivers() -> Generator[Nursery]:
    with nursery("tests.server.runs.run_driver", latest_s=0.12, lines_at_most=12) as made:
        yield made


@pytest.mark.parametrize("seed", range(0, KILLS, KILLS_PER_RUN))
def test_a_run_whose_servers_are_killed_loses_no_answer_and_comes_to_its_end(
    drivers: Nursery, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    answered: dict[int, str] = {}
    taken: dict[int, str] = {}
    for _ in range(min(KILLS_PER_RUN, KILLS - seed)):
        _holds(tmp_path, drivers.killed(tmp_path, seed, chance), taken, answered)
    _holds(tmp_path, drivers.done(tmp_path, seed), taken, answered)
    store = Store(tmp_path)
    (run,) = store.runs()
    run_id, attempts = run.frozen.run_id, store.attempts(run.frozen.run_id)
    assert (run.state, store.orphans()) == ("finished", [])
    assert {attempt.state for attempt in attempts} == {"finished"}
    assert (run.verified is None) == (run.incumbent == BASELINE)
    judged = [each for each in attempts if each.number != BASELINE and each.duplicate_of is None]
    assert sum(lesson.tried for lesson in store.lessons()) == len(judged)
    assert sum(sum(lesson.failed.values()) for lesson in store.lessons()) <= len(judged)
    assert all(lesson.runs == [run_id] for lesson in store.lessons())
    store.close()


def _holds(folder: Path, told: list[list[str]], taken: dict[int, str], answered: dict[int, str]) -> None:
    """All that was told, now and before, is there as it was told, and the books are right."""
    for did, *words in told:
        match did:
            case "answered":
                assert answered.setdefault(int(words[0]), words[1]) == words[1]
            case "taken":
                assert taken.setdefault(int(words[0]), words[1]) == words[1]
            case "started" | "resumed" | "done":
                pass
            case _:
                pytest.fail(f"what is {did}?")
    store = Store(folder)
    for run in store.runs():
        run_id = run.frozen.run_id
        assert wrong(store, run_id) == []
        assert {number: store.attempt(run_id, number).kernel_sha256 for number in taken} == taken
        assert {number: fingerprint(store.attempt(run_id, number)) for number in answered} == answered
        if run.state == "measuring":
            assert [attempt.number for attempt in store.attempts(run_id)] == [BASELINE]
    assert store.runs() or not told
    store.close()
