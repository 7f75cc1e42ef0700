"""Folders, databases, records and files that can't be used are told, with what to do; the rest stays usable."""

import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.server.runs.in_store import BASELINE_TEXT, RUN_ID, begun, claimed, finished, lesson, made_up_run
from tritonforge.profiling.optimization.model import Attempt
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.runs import database
from tritonforge.server.runs.store import Store

READ_ONLY_FOR_ROOT: Final = Path("/proc")
"""A folder in which nobody can make another one."""


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    with closing(Store(tmp_path / "runs")) as store:
        yield store


def unavailable(call: Callable[[], object]) -> str:
    """What a call says that can't be done here."""
    with pytest.raises(Stopped) as stopped:
        call()
    assert stopped.value.kind is Kind.UNAVAILABLE
    assert stopped.value.problem.likely_fix
    return f"{stopped.value.problem.message} {stopped.value.problem.likely_fix}"


def in_database(store: Store, *statements: str) -> None:
    """Change the database behind the store's back."""
    store.close()
    with closing(sqlite3.connect(store.folder / database.DATABASE)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _put(store: Store) -> str:
    return store.put_file("a")


def _attempts(store: Store) -> list[Attempt]:
    return store.attempts(RUN_ID)


@pytest.mark.parametrize("call", [Store.runs, _put, Store.lessons])
@pytest.mark.parametrize("where", ["a file", "nowhere"])
def test_a_folder_that_can_not_be_written_is_told(
    tmp_path: Path, where: str, call: Callable[[Store], object]
) -> None:  # fmt: skip
    (tmp_path / "file").write_text("")
    folder = (tmp_path / "file" if where == "a file" else READ_ONLY_FOR_ROOT) / "runs"
    with closing(Store(folder)) as store:
        told = unavailable(lambda: call(store))
    assert f"runs can't be stored in {folder}: " in told
    assert "--state-dir" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with closing(Store(tmp_path / "runs")) as store:
        assert "Permission denied" in unavailable(store.runs)


def test_a_database_that_stays_locked_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(store)
    store.close()
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with closing(sqlite3.connect(store.folder / database.DATABASE, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert "Another process keeps it locked" in unavailable(lambda: claimed(store))
        # Who reads waits for nobody.
        assert len(store.attempts(RUN_ID)) == 1
    claimed(store)


def test_a_full_disk_is_told_and_nothing_is_half_done(store: Store) -> None:
    begun(store)
    attempt = claimed(store)
    with store._database.reading() as rows:  # pyright: ignore[reportPrivateUsage] - no disk is full here
        rows.execute(f"PRAGMA max_page_count = {rows.execute('PRAGMA page_count').fetchone()[0]}")
    long = finished(attempt, hints=[{"text": "x" * 100_000, "because": []}])
    with pytest.warns(UserWarning, match="serializer"):
        told = unavailable(lambda: store.finish(RUN_ID, long, expected_incumbent=None))
    assert "Make room" in told
    assert store.attempt(RUN_ID, 1) == attempt
    assert store.check() == []


@pytest.mark.parametrize("damage", ["other", "truncated", "overwritten"])
def test_a_damaged_database_is_told(store: Store, damage: str) -> None:
    begun(store)
    for _ in range(8):
        claimed(store)
    store.close()
    path = store.folder / database.DATABASE
    data = path.read_bytes()
    match damage:
        case "other":
            path.write_text("This is no database, but it is long enough to be looked at as one." * 10)
        case "truncated":
            path.write_bytes(data[: len(data) // 2])
        case _:
            path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    told = unavailable(lambda: store.attempts(RUN_ID))
    assert f"{path} is damaged" in told
    assert "put a copy back" in told
    assert _checked(store)


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_file_is_told_and_mended_by_putting_it_again(store: Store, damage: str) -> None:
    begun(store)
    sha256 = store.put_file(BASELINE_TEXT)
    (path,) = store.folder.rglob(sha256)
    path.write_text("something else") if damage == "changed" else path.unlink()
    told = unavailable(lambda: store.file(sha256))
    assert f"{path} is {'damaged' if damage == 'changed' else 'gone'}" in told
    assert store.check() == [f"the stored file {path} is {'damaged' if damage == 'changed' else 'gone'}"]
    assert store.put_file(BASELINE_TEXT) == sha256
    assert store.file(sha256) == BASELINE_TEXT
    assert store.check() == []


def test_a_file_that_was_never_put_is_told(store: Store) -> None:
    assert "is gone" in unavailable(lambda: store.file("0" * 64))


def test_half_a_file_is_no_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        assert "No space left on device Make room" in unavailable(lambda: store.put_file("a"))
    assert [path for path in store.folder.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("statement", "told", "call"),
    [
        ("UPDATE runs SET record = '{}'", "the record of run sin-1a2b3c is damaged: frozen", Store.runs),
        ("UPDATE runs SET record = 'no'", "the record of run sin-1a2b3c is damaged: its text", Store.runs),
        (
            "UPDATE attempts SET record = json_remove(record, '$.strategy') WHERE number = 1",
            "the record of attempt 1 of run sin-1a2b3c is damaged: strategy",
            _attempts,
        ),
        ("UPDATE lessons SET record = '[]'", "the record of lesson 0a1b is damaged: its text", Store.lessons),
    ],
)
def test_a_damaged_record_is_told(
    store: Store, statement: str, told: str, call: Callable[[Store], Any]
) -> None:  # fmt: skip
    _with_attempt(store)
    in_database(store, statement)
    assert told in unavailable(lambda: call(store))
    assert any(told in fault for fault in store.check())
    store.create(made_up_run(store, "another"))
    store.delete(RUN_ID)
    assert store.run("another").state == "measuring"


def test_a_damaged_run_hides_no_other_and_can_be_deleted(store: Store) -> None:
    _with_attempt(store)
    store.create(made_up_run(store, "another"))
    in_database(store, "UPDATE runs SET record = '{}' WHERE run_id = 'sin-1a2b3c'")
    kept = store.kept()
    assert [run.frozen.run_id for run in kept.runs] == ["another"]
    assert list(kept.damaged) == [RUN_ID]
    assert "the record of run sin-1a2b3c is damaged: frozen" in kept.damaged[RUN_ID]
    assert store.size(RUN_ID) == 2
    store.delete(RUN_ID)
    assert store.kept().damaged == {}


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE runs SET state = 'failed'", "run sin-1a2b3c: its record says otherwise than its row"),
        ("UPDATE attempts SET counts = 0 WHERE number = 1", "attempt 1 of run sin-1a2b3c: its record says"),
        ("UPDATE attempts SET identity = 'b' WHERE number = 1", "attempt 1 of run sin-1a2b3c: its record says"),
        ("UPDATE attempts SET number = 2 WHERE number = 1", "attempt 2 of run sin-1a2b3c: 1 is missing before it"),
        ("DELETE FROM run_files", "run sin-1a2b3c: it names a file that is not listed as its own"),
        ("INSERT INTO run_files VALUES ('nobody', '0')", "a row of run_files belongs to no run"),
        ("UPDATE lessons SET key = 'b'", "lesson b: its record is that of 0a1b"),
        (
            "UPDATE runs SET incumbent = 5, record = json_set(record, '$.incumbent', 5)",
            "run sin-1a2b3c: its incumbent 5 is no finished attempt",
        ),
    ],
)  # fmt: skip
def test_rows_that_disagree_are_found(store: Store, statement: str, told: str) -> None:
    _with_attempt(store)
    assert store.check() == []
    in_database(store, statement)
    assert any(told in fault for fault in store.check())


def _checked(store: Store) -> list[str]:
    """What a check finds, or what keeps it from looking."""
    try:
        return store.check()
    except Stopped as stopped:
        return [stopped.problem.message]


def _with_attempt(store: Store) -> None:
    begun(store)
    attempt = finished(claimed(store), identity="a", counted=True)
    store.finish(RUN_ID, attempt, expected_incumbent=None, taught=lambda before, after, attempts: [lesson()])
