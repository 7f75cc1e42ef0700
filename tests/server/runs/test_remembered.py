"""What is remembered of a store is what it holds, whoever writes to it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.runs.in_store import RUN_ID, begun, claimed, finished
from tritonforge.profiling.optimization.model import Attempt
from tritonforge.sandbox.errors import Stopped
from tritonforge.server.runs import remembered
from tritonforge.server.runs.remembered import Remembered
from tritonforge.server.runs.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    kept = Store(tmp_path)
    yield kept
    kept.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    kept = Store(tmp_path)
    yield kept
    kept.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records that were validated."""
    told: list[str] = []

    def read(model: type[Attempt], text: str, what: str) -> Attempt:
        told.append(what)
        return model.model_validate_json(text)

    monkeypatch.setattr(remembered, "read", read)
    return told


def test_a_finished_attempt_is_read_once_and_one_that_is_running_each_time(store: Store, reads: list[str]) -> None:
    begun(store)
    running = claimed(store)
    first = store.attempts(RUN_ID)
    assert reads == [f"attempt 0 of run {RUN_ID}", f"attempt 1 of run {RUN_ID}"]
    assert store.attempts(RUN_ID) == first
    assert store.attempt(RUN_ID, 0) is first[0]
    assert reads[2:] == [f"attempt 1 of run {RUN_ID}"]
    store.finish(RUN_ID, finished(running), expected_incumbent=None)
    assert [attempt.state for attempt in store.attempts(RUN_ID)] == ["finished", "finished"]
    store.attempts(RUN_ID)
    assert len(reads) == 4


def test_what_others_finish_is_seen_and_the_rest_is_not_read_again(
    store: Store, other: Store, reads: list[str]
) -> None:
    begun(store)
    running = claimed(other)
    assert [attempt.state for attempt in store.attempts(RUN_ID)] == ["finished", "running"]
    reads.clear()
    other.finish(RUN_ID, finished(running), expected_incumbent=None)
    assert [attempt.state for attempt in store.attempts(RUN_ID)] == ["finished", "finished"]
    assert reads == [f"attempt 1 of run {RUN_ID}"]


def test_a_run_that_is_made_again_under_the_same_name_is_another_one(store: Store, other: Store) -> None:
    for deletes in (store, other):
        begun(store, title="one")
        store.finish(RUN_ID, finished(claimed(store, RUN_ID, "a\n")), expected_incumbent=None)
        other.attempts(RUN_ID)
        before = store.attempts(RUN_ID)
        deletes.delete(RUN_ID)
        begun(store, title="another")
        store.finish(RUN_ID, finished(claimed(store, RUN_ID, "b\n")), expected_incumbent=None)
        assert store.attempts(RUN_ID)[1].kernel_sha256 != before[1].kernel_sha256
        assert other.attempts(RUN_ID) == store.attempts(RUN_ID)
        store.delete(RUN_ID)


def test_a_record_that_is_damaged_meanwhile_is_told(store: Store) -> None:
    begun(store)
    assert len(store.attempts(RUN_ID)) == 1
    with sqlite3.connect(store.folder / "runs.sqlite3") as rows:
        rows.execute("UPDATE attempts SET record = '{}'")
    rows.close()
    with pytest.raises(Stopped, match="is damaged"):
        store.attempts(RUN_ID)


def test_a_store_that_is_opened_again_believes_nothing_that_it_remembers(store: Store, other: Store) -> None:
    begun(store)
    assert len(store.attempts(RUN_ID)) == 1
    store.close()
    with sqlite3.connect(store.folder / "runs.sqlite3") as rows:
        rows.execute("UPDATE attempts SET record = replace(record, 'made up', 'made over')")
    rows.close()
    (attempt,) = store.attempts(RUN_ID)
    assert attempt.evidence is not None
    assert attempt.evidence.notes == ["made over"]


def test_what_was_undone_is_not_remembered(store: Store) -> None:
    begun(store)
    running = claimed(store)

    def fails(*_: object) -> list[object]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.finish(RUN_ID, finished(running, counted=True), expected_incumbent=None, taught=fails)  # pyright: ignore[reportArgumentType]
    assert store.attempts(RUN_ID)[1].state == "running"
    store.finish(RUN_ID, finished(running, counted=False), expected_incumbent=None)
    assert not store.attempts(RUN_ID)[1].counted


def test_the_memory_is_bounded(store: Store, reads: list[str]) -> None:
    begun(store)
    for number in range(4):
        store.finish(RUN_ID, finished(claimed(store, RUN_ID, f"{number}\n")), expected_incumbent=None)
    one = len(store.attempt(RUN_ID, 1).model_dump_json())
    memory = Remembered(characters_limit=3 * one)
    with sqlite3.connect(store.folder / "runs.sqlite3") as rows:
        for _ in range(2):
            assert [attempt.number for attempt in memory.attempts(rows, RUN_ID)] == [0, 1, 2, 3, 4]
        reads.clear()
        memory.attempt(rows, RUN_ID, 4)
        assert reads == []
        memory.attempt(rows, RUN_ID, 1)
        assert reads == [f"attempt 1 of run {RUN_ID}"]
    rows.close()
