"""Finished attempts as they were read: their records are long, many are asked for with each call, and none changes."""

import sqlite3
from collections import OrderedDict
from typing import Final, NamedTuple

from ...profiling.optimization.model import Attempt
from .rows import attempt_record, read

CHARACTERS_LIMIT: Final = 1 << 25
"""Of the records of all that is remembered: thousands of usual attempts."""


class _Kept(NamedTuple):
    attempt: Attempt
    record: str
    """As it was read."""
    view: int
    """The view of the database in which it was found so."""


class Remembered:
    """A bounded memory of one database's finished attempts. It is not asked for what a transaction that is under way
    has changed: that may be undone.

    What anybody else writes to the database, whichever way, begins a new view of it. In each, a record is read once,
    and checked again where its text is another one.
    """

    def __init__(self, characters_limit: int = CHARACTERS_LIMIT) -> None:
        self._limit = characters_limit
        self._kept: OrderedDict[tuple[str, int], _Kept] = OrderedDict()
        self._characters = 0
        self._view = 0
        self._seen: tuple[sqlite3.Connection, int] | None = None

    def attempts(self, rows: sqlite3.Connection, run_id: str) -> list[Attempt]:
        """A run's attempts, by number.

        Raises:
            Stopped: ``unavailable``: the record of one is damaged.
        """
        found = rows.execute("SELECT number, state FROM attempts WHERE run_id = ? ORDER BY number", (run_id,))
        standing, view = found.fetchall(), self._view_of(rows)
        return [self._read(rows, (run_id, number), state, view) for number, state in standing]

    def attempt(self, rows: sqlite3.Connection, run_id: str, number: int) -> Attempt:
        """One attempt.

        Raises:
            Stopped: ``rejected``: there is no such run or attempt; ``unavailable``: its record is damaged.
        """
        found = rows.execute("SELECT state FROM attempts WHERE run_id = ? AND number = ?", (run_id, number)).fetchone()
        state = "" if found is None else found[0]
        return self._read(rows, (run_id, number), state, self._view_of(rows))

    def forget(self, run_id: str) -> None:
        """A run is deleted: one that is made later may have its name."""
        for key in [key for key in self._kept if key[0] == run_id]:
            self._characters -= len(self._kept.pop(key).record)

    def _read(self, rows: sqlite3.Connection, key: tuple[str, int], state: str, view: int) -> Attempt:
        kept = self._kept.get(key) if state == "finished" else None
        if kept is not None and kept.view == view:
            self._kept.move_to_end(key)
            return kept.attempt
        run_id, number = key
        record = attempt_record(rows, run_id, number)
        if kept is not None and kept.record == record:
            attempt = kept.attempt
        else:
            attempt = read(Attempt, record, f"attempt {number} of run {run_id}")
        # By its record: it may have been finished by another process since its state was read.
        if attempt.state == "finished":
            self._keep(key, _Kept(attempt, record, view))
        return attempt

    def _view_of(self, rows: sqlite3.Connection) -> int:
        (version,) = rows.execute("PRAGMA data_version").fetchone()
        # The version counts what others wrote since this connection was opened.
        if self._seen is None or self._seen[0] is not rows or self._seen[1] != version:
            self._seen = (rows, version)
            self._view += 1
        return self._view

    def _keep(self, key: tuple[str, int], kept: _Kept) -> None:
        before = self._kept.pop(key, None)
        self._characters += len(kept.record) - (0 if before is None else len(before.record))
        self._kept[key] = kept
        while self._characters > self._limit and self._kept:
            _, dropped = self._kept.popitem(last=False)
            self._characters -= len(dropped.record)
