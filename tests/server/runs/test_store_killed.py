"""A store whose writers are killed at random moments has lost nothing that was told, and goes on.

TRITONFORGE_KILLS says how often, for the long run.
"""

import random
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from tests.server.runs.in_store import begun, claimed, finished, opened
from tests.server.runs.nursery import KILLS, Nursery, nursery
from tests.server.runs.store_writer import evaluate, fingerprint, steps
from tritonforge.profiling.optimization.model import BASELINE
from tritonforge.server.runs.store import Store

KILLS_PER_STORE: Final = 10


@pytest.fixture(scope="module")
def writers() -> Generator[Nursery]:
    with nursery("tests.server.runs.store_writer", latest_s=0.15, lines_at_most=60) as made:
        yield made


@pytest.mark.parametrize("seed", range(0, KILLS, KILLS_PER_STORE))
def test_what_a_killed_server_had_told_is_kept_and_the_rest_can_be_taken_up(
    writers: Nursery, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    # Where another server is alive, SQLite recovers nothing at the next opening; where none is, it has to.
    other = Store(tmp_path) if chance.random() < 0.5 else None
    alive = claimed(other, begun(other, "alive")).number if other is not None else None
    for kill in range(seed, min(seed + KILLS_PER_STORE, KILLS)):
        told = writers.killed(tmp_path, kill, chance)
        store = Store(tmp_path)
        assert store.check() == []
        _holds(store, told)
        left = [(run_id, attempt.number) for run_id, attempt in store.orphans()]
        assert left == [place for place in _running(store) if place[0] != "alive"]
        for run_id, number in left:
            attempt = store.adopt(run_id, number)
            assert attempt is not None
            if number == BASELINE:
                assert store.finish(run_id, finished(attempt), expected_incumbent=None, run=opened)
            else:
                evaluate(store, run_id, attempt)
        assert store.orphans() == []
        _agrees(store)
        assert store.check() == []
        if left:
            # Its own and the other's: those of the killed are swept.
            assert len(list((tmp_path / "owners").iterdir())) == (1 if other is None else 2)
        store.close()
    if other is not None and alive is not None:
        evaluate(other, "alive", other.attempt("alive", alive))
        other.close()


def _holds(store: Store, told: list[list[str]]) -> None:
    """Every transaction that was told is there."""
    deleted = {line[1] for line in told if line[0] == "delete"}
    over = {(line[1], line[2]) for line in told if line[0] in ("finish", "cancel")}
    known = {run.frozen.run_id for run in store.runs()}
    for did, what, *more in told:
        if did == "file":
            continue
        if what in deleted:
            assert what not in known
            continue
        if what not in known:
            # It was being deleted: nothing else was told after the last line.
            assert what == _last_run(told)
            continue
        match did:
            case "create":
                assert store.run(what).state == "open"
            case "claim" if (what, more[0]) not in over:
                assert store.attempt(what, int(more[0])).state in ("running", "finished", "cancelled")
            case "claim":
                assert store.attempt(what, int(more[0])).state != "running"
            case "change":
                assert steps(store.run(what)) >= int(more[0])
            case "cancel":
                assert store.attempt(what, int(more[0])).state == "cancelled"
            case "finish":
                assert fingerprint(store.attempt(what, int(more[0]))) == more[1]
            case _:
                pytest.fail(f"what is {did}?")
    _files_are_there(store, told, known)
    _agrees(store)


def _last_run(told: list[list[str]]) -> str:
    return [line[1] for line in told if line[0] == "create"][-1]


def _files_are_there(store: Store, told: list[list[str]], known: set[str]) -> None:
    """Files that were told are readable, those of deleted runs apart."""
    run_id = None
    for did, what, *_ in told:
        if did == "create":
            run_id = what
        elif did == "file" and run_id in known:
            assert store.file(what).startswith(run_id)


def _agrees(store: Store) -> None:
    """A finished attempt, its run's incumbent and its lesson came at once or not at all."""
    lessons = {lesson.key: lesson.tried for lesson in store.lessons()}
    for run in store.runs():
        run_id = run.frozen.run_id
        done = [each.number for each in store.attempts(run_id) if each.state == "finished" and each.number]
        assert lessons.get(run_id, 0) == len(done)
        assert run.incumbent in ([*done] or [0])


def _running(store: Store) -> list[tuple[str, int]]:
    return sorted(
        (run.frozen.run_id, attempt.number)
        for run in store.runs()
        for attempt in store.attempts(run.frozen.run_id)
        if attempt.state == "running"
    )
