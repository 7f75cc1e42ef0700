"""Databases of older versions are led on, whole or not at all; those of newer ones are left alone."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.server.runs.in_store import AT, BASELINE_TEXT, TASK_TEXT, begun, made_up_run
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.runs import migrations
from tritonforge.server.runs.database import DATABASE
from tritonforge.server.runs.migrations import MIGRATIONS, Migration, NewerDatabase, migrate, version
from tritonforge.server.runs.store import Store

FIRST: Final = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, created_at TEXT NOT NULL, state TEXT NOT NULL, incumbent INTEGER NOT NULL,
    record TEXT NOT NULL
);
CREATE TABLE run_files (
    run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, sha256 TEXT NOT NULL, PRIMARY KEY (run_id, sha256)
);
CREATE TABLE attempts (
    run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, number INTEGER NOT NULL CHECK (number >= 0),
    state TEXT NOT NULL, owner TEXT CHECK ((owner IS NOT NULL) = (state = 'running')), counts INTEGER NOT NULL,
    text_identity TEXT NOT NULL, identity TEXT, kernel_sha256 TEXT NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (run_id, number)
);
CREATE INDEX attempts_by_state ON attempts (state);
CREATE INDEX attempts_by_kernel ON attempts (kernel_sha256);
CREATE INDEX run_files_by_file ON run_files (sha256);
CREATE TABLE lessons (key TEXT PRIMARY KEY, record TEXT NOT NULL);
PRAGMA user_version = 1;
"""
"""A database of version 1, as it was released: never changed with the program."""
OLD_RUN: Final = (
    '{{"frozen":{{"run_id":"old-1","created_at":"{at}","title":"Old.","kernel_sha256":"{kernel}","task_sha256":"{task}",'
    '"kernel_shown_as":"k.py","task_shown_as":"t.py","kernel_origin":null,"task_origin":null,"entry":"entry","cases":'
    '["a"],"hidden_sha256":null,"hidden_from":"none","hidden_count":0,"hidden_dropped":{{}},"target":"h200","gpu":null,'
    '"torch":null,"triton":null,"budget":{{"attempts":8,"wall_s":null,"target_pct":95.0,"target_ratio":null,'
    '"failed_count":true}},"limits":{{"case_regression_pct":1.0,"total_regression_pct":2.0,"first_call_s":120.0,'
    '"registers":null,"shared_bytes":null}}}},"state":"open","incumbent":0,"ended_by":null,"problem":null,'
    '"updated_at":"{at}"}}'
)


def _with_notes(connection: sqlite3.Connection) -> None:
    """A second migration, as there may be one."""
    connection.execute("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT ''")
    connection.execute("UPDATE runs SET note = 'from version 1: ' || run_id")


def _failing(connection: sqlite3.Connection) -> None:
    _with_notes(connection)
    connection.execute("ALTER TABLE missing ADD COLUMN note TEXT")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of version 1 with one run, made by hand."""
    with closing(Store(tmp_path)) as store:
        kernel, task = store.put_file(BASELINE_TEXT), store.put_file(TASK_TEXT)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        connection.executescript(FIRST)
        record = OLD_RUN.format(at=AT, kernel=kernel, task=task)
        connection.execute("INSERT INTO runs VALUES ('old-1', ?, 'open', 0, ?)", (AT, record))
        connection.executemany("INSERT INTO run_files VALUES ('old-1', ?)", [(kernel,), (task,)])
    return tmp_path


def test_a_database_of_version_1_is_used_as_it_is(old: Path) -> None:
    with closing(Store(old)) as store:
        assert store.run("old-1").frozen.title == "Old."
        assert store.check() == []


def test_a_new_database_is_one_that_went_through_all_versions(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        store.runs()
    schema = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY name"
    with closing(sqlite3.connect(tmp_path / DATABASE)) as made, closing(sqlite3.connect(":memory:")) as first:
        first.isolation_level = None
        first.executescript(FIRST)
        migrate(first)
        assert made.execute(schema).fetchall() == first.execute(schema).fetchall()
        assert version(made) == version(first) == len(MIGRATIONS)


def test_an_old_database_is_led_on_when_it_is_opened(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS[:1], _with_notes))
    with closing(Store(old)) as store:
        assert store.run("old-1").state == "open"
        assert store.check() == []
        # Two servers open it, and the second one finds the work done.
        with closing(Store(old)) as other:
            store.create(made_up_run(store, "new"))
            assert [run.frozen.run_id for run in other.runs()] == ["new", "old-1"]
    with closing(sqlite3.connect(old / DATABASE)) as connection:
        assert version(connection) == 2
        notes = connection.execute("SELECT run_id, note FROM runs ORDER BY run_id").fetchall()
    assert notes == [("new", ""), ("old-1", "from version 1: old-1")]


def test_a_migration_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", (*MIGRATIONS[:1], _failing))
        with closing(Store(old)) as store, pytest.raises(Stopped, match="no such table: missing"):
            store.runs()
    with closing(sqlite3.connect(old / DATABASE)) as connection:
        assert version(connection) == 1
        assert "note" not in [column[1] for column in connection.execute("PRAGMA table_info(runs)")]
    with closing(Store(old)) as store:
        assert store.check() == []


def test_a_newer_database_is_left_alone_with_what_to_do(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        begun(store)
    newer = len(MIGRATIONS) + 1
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {newer}")
    before = (tmp_path / DATABASE).read_bytes()
    with closing(Store(tmp_path)) as store:
        for call in (store.runs, store.check, store.lessons):
            with pytest.raises(Stopped) as stopped:
                call()
            assert stopped.value.kind is Kind.UNAVAILABLE
            assert "was written by a newer version of tritonforge-mcp" in stopped.value.problem.message
            assert f"its schema is version {newer}" in stopped.value.problem.message
            assert stopped.value.problem.likely_fix is not None
            assert "Update tritonforge-mcp" in stopped.value.problem.likely_fix
    assert (tmp_path / DATABASE).read_bytes() == before


def test_versions_follow_each_other(tmp_path: Path) -> None:
    done: list[int] = []

    def step(at: int) -> Migration:
        return lambda _: done.append(at)

    steps = [step(at) for at in range(4)]
    with closing(sqlite3.connect(tmp_path / "a", isolation_level=None)) as connection:
        migrate(connection, steps[:1])
        migrate(connection, steps[:3])
        migrate(connection, steps)
        assert done == [0, 1, 2, 3]
        with pytest.raises(NewerDatabase):
            migrate(connection, steps[:2])
