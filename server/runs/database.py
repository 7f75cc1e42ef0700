"""The runs' SQLite database: opened when it is first needed, one transaction at a time, its errors explained."""

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Final

from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind, Problem
from . import migrations
from .owners import Owners, locked

DATABASE: Final = "runs.sqlite3"
OPENING_LOCK: Final = "opening.lock"
OWNERS: Final = "owners"
BUSY_S: Final = 30.0
"""How long a transaction waits for those of other processes."""


class Database:
    """One connection that threads share, and the owner that this process is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / DATABASE
        self.owners = Owners(folder / OWNERS, folder / OPENING_LOCK)
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.RLock()
        _databases.add(self)

    def close(self) -> None:
        """Close what is open; the next use opens it again, as another owner."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            self.owners.close()

    def owner(self) -> str:
        """The token of what this process evaluates. Not asked for within a transaction: it waits for who opens a
        database, and that one may wait for transactions.

        Raises:
            Stopped: ``unavailable``: the folder can't be used.
        """
        with self.reading():
            return self.owners.token()

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """For statements that each see the database as it is.

        Raises:
            Stopped: ``unavailable``: the database can't be used.
        """
        with self._lock, self.explained():
            yield self._opened()

    @contextlib.contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """For statements that happen together or not at all; nobody else writes meanwhile.

        Raises:
            Stopped: ``unavailable``: the database can't be used.
        """
        with self.reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def explained(self) -> Generator[None]:
        """Says of what went wrong with the files what it was, and what to do.

        Raises:
            Stopped: ``unavailable``.
        """
        try:
            yield
        except (sqlite3.ProgrammingError, sqlite3.IntegrityError):
            raise
        except sqlite3.OperationalError as error:
            raise self._unusable(str(error)) from error
        except sqlite3.DatabaseError as error:
            message = f"the runs' database {self.path} is damaged: {error}"
            fix = "Move it and the files beside it away or put a copy back, then start the server again."
            raise _unavailable(message, fix) from error
        except migrations.NewerDatabase as error:
            message = f"the runs' database {self.path} was written by a newer version of tritonforge-mcp: {error}"
            fix = "Update tritonforge-mcp, or start it with --state-dir naming another folder."
            raise _unavailable(message, fix) from error
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error

    def _unusable(self, reason: str) -> Stopped:
        if "locked" in reason:
            fix = "Another process keeps it locked: wait and call again, or end that process."
        elif "full" in reason or "space" in reason:
            fix = "Make room on that disk, then call again."
        else:
            fix = "Start the server with --state-dir naming a folder on a local disk that it may write."
        return _unavailable(f"runs can't be stored in {self.folder}: {reason}", fix)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Two that open a new database at once would find it locked by each other, without waiting.
            with locked(self.folder / OPENING_LOCK):
                self._connection = _open(self.path)
        return self._connection

    def leave_to_parent(self) -> None:
        """In a forked child: the connection is the parent's; the child opens its own, as another owner."""
        self._lock = threading.RLock()
        if self._connection is not None:
            # Closing it, as its deletion does, would work on the parent's files.
            _parents.append(self._connection)
            self._connection = None
        self.owners.leave_to_parent()


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        # Synchronized at each commit: what was answered for survives a power cut too.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        migrations.migrate(connection, migrations.MIGRATIONS)
    except BaseException:
        connection.close()
        raise
    return connection


def _unavailable(message: str, fix: str) -> Stopped:
    return Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message=message, likely_fix=fix))


_databases: "weakref.WeakSet[Database]" = weakref.WeakSet()
_parents: list[sqlite3.Connection] = []
"""Connections of the process that this one was forked from."""


def _after_fork() -> None:
    for database in list(_databases):
        database.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
