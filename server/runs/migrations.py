"""The schema of the runs' database: versions that follow each other, each reached in one transaction."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

Migration = Callable[[sqlite3.Connection], None]
"""Leads a database from one version to the next. It runs within a transaction and must not end it."""

_FIRST: Final = (
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        created_at TEXT NOT NULL,
        state TEXT NOT NULL,
        incumbent INTEGER NOT NULL,
        record TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE run_files (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (run_id, sha256)
    )
    """,
    # The record stands last: what is searched for is found without reading it.
    """
    CREATE TABLE attempts (
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        number INTEGER NOT NULL CHECK (number >= 0),
        state TEXT NOT NULL,
        owner TEXT CHECK ((owner IS NOT NULL) = (state = 'running')),
        counts INTEGER NOT NULL,
        text_identity TEXT NOT NULL,
        identity TEXT,
        kernel_sha256 TEXT NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (run_id, number)
    )
    """,
    "CREATE INDEX attempts_by_state ON attempts (state)",
    "CREATE INDEX attempts_by_kernel ON attempts (kernel_sha256)",
    "CREATE INDEX run_files_by_file ON run_files (sha256)",
    "CREATE TABLE lessons (key TEXT PRIMARY KEY, record TEXT NOT NULL)",
)


def _first(connection: sqlite3.Connection) -> None:
    for statement in _FIRST:
        connection.execute(statement)


MIGRATIONS: Final[tuple[Migration, ...]] = (_first,)
"""The one at place n leads from version n to n + 1. Ones that were released are never changed, only followed."""


class NewerDatabase(Exception):
    """The database was written by a later version of this program."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"its schema is version {found}, and this program knows versions up to {known}")


def version(connection: sqlite3.Connection) -> int:
    """The version of a database's schema; 0: it is empty."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return found


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Lead a database to the newest version.

    Args:
        connection: in autocommit mode.
        migrations: as `MIGRATIONS`.

    Raises:
        NewerDatabase: it is beyond that already.
    """
    while (found := version(connection)) != len(migrations):
        if found > len(migrations):
            raise NewerDatabase(found, len(migrations))
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been faster.
            if version(connection) == found:
                migrations[found](connection)
                connection.execute(f"PRAGMA user_version = {found + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
