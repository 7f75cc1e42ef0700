"""Where runs, their attempts and lessons are kept: SQLite, and content-addressed files beside it.

Each method is one transaction at most, may be called from any thread, and several processes may use one folder. Only
texts that are kept already can be named by a row, so that a process can be killed anywhere between the two.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ...profiling.optimization.lesson import Lesson
from ...profiling.optimization.model import Attempt
from ...sandbox.errors import Stopped, rejected
from . import integrity
from .admission import Claim, admitted
from .database import Database
from .files import Files
from .record import Run
from .remembered import Remembered
from .rows import (
    add_attempt,
    add_run,
    attempt_of,
    files_of,
    is_named,
    merge_lessons,
    name_files,
    read,
    require_run,
    run_of,
    set_attempt,
    set_run,
    standing,
    used,
)

FILES: Final = "files"
Taught = Callable[[Run, Run, Sequence[Attempt]], Iterable[Lesson]]
"""What a change of a run teaches, by the run before and after it, and its attempts: merged with lessons of the same
keys."""


class Kept(NamedTuple):
    """All runs, newest first, as far as their records can be read."""

    runs: list[Run]
    damaged: dict[str, str]
    """What is wrong with the others, by their ids."""


class Store:
    """The runs of one folder. Every method raises `Stopped`: ``rejected`` for a run or attempt that is not there,
    ``unavailable`` where the folder or its database can't be used."""

    def __init__(self, folder: Path) -> None:
        """
        Args:
            folder: made when something is first asked for.
        """
        self.folder = folder
        self._database = Database(folder)
        self._files = Files(folder / FILES)
        self._remembered = Remembered()
        self._swept = False

    def close(self) -> None:
        """End the use of the folder; attempts that this store still evaluates are left behind."""
        self._database.close()

    # Files

    def put_file(self, text: str) -> str:
        """Keep a text; it is on the disk before this returns.

        Returns:
            Its SHA-256, in hex.
        """
        with self._database.explained():
            if not self._swept:
                self._swept = True
                self._files.sweep()
            return self._files.put(text)

    def file(self, sha256: str) -> str:
        """A text that was kept; ``unavailable`` where its file is gone or damaged."""
        with self._database.explained():
            return self._files.get(sha256)

    def known_file(self, sha256: str) -> str:
        """The same from memory, where it was asked for before: for comparisons, which may be many."""
        with self._database.explained():
            return self._files.known(sha256)

    # Runs

    def create(self, run: Run, baseline: Claim | None = None) -> None:
        """Add a run.

        Args:
            run: the run.
            baseline: its attempt 0, which this process evaluates from now on; None: it is claimed later.
        """
        owner = self._database.owner()
        with self._database.transaction() as rows:
            if rows.execute("SELECT 1 FROM runs WHERE run_id = ?", (run.frozen.run_id,)).fetchone():
                raise rejected("run", f"there is a run {run.frozen.run_id!r} already", fix="Choose another id.")
            add_run(rows, run)
            name_files(rows, run, self._files)
            if baseline is not None:
                self._files.require(baseline.kernel_sha256)
                add_attempt(rows, run.frozen.run_id, admitted(rows, run, baseline), owner)

    def run(self, run_id: str) -> Run:
        """One run."""
        with self._database.reading() as rows:
            return run_of(rows, run_id)

    def runs(self) -> list[Run]:
        """All runs, newest first."""
        with self._database.reading() as rows:
            found = rows.execute("SELECT run_id, record FROM runs ORDER BY rowid DESC").fetchall()
            return [read(Run, record, f"run {run_id}") for run_id, record in found]

    def kept(self) -> Kept:
        """The same where some may be damaged."""
        with self._database.reading() as rows:
            kept = Kept([], {})
            for run_id, record in rows.execute("SELECT run_id, record FROM runs ORDER BY rowid DESC").fetchall():
                try:
                    kept.runs.append(read(Run, record, f"run {run_id}"))
                except Stopped as stopped:
                    kept.damaged[run_id] = stopped.problem.message
            return kept

    def size(self, run_id: str) -> int:
        """How many attempts a run has, its baseline among them; whatever their records hold."""
        with self._database.reading() as rows:
            require_run(rows, run_id)
            (count,) = rows.execute("SELECT count(*) FROM attempts WHERE run_id = ?", (run_id,)).fetchone()
            return count

    def change(self, run_id: str, change: Callable[[Run], Run], taught: Taught | None = None) -> Run:
        """Replace a run by what `change` makes of it, and keep what is learnt from that; nobody else writes meanwhile,
        so it has to be quick."""
        with self._database.transaction() as rows:
            before = run_of(rows, run_id)
            after = self._change(rows, before, change)
            if taught is not None:
                merge_lessons(rows, taught(before, after, self._remembered.attempts(rows, run_id)))
            return after

    def delete(self, run_id: str) -> None:
        """Forget a run with its attempts, and the files that nothing else names; ``rejected`` while a process that is
        alive evaluates one of them."""
        with self._database.transaction() as rows:
            require_run(rows, run_id)
            running = "SELECT number, owner FROM attempts WHERE run_id = ? AND state = 'running' ORDER BY number"
            for number, owner in rows.execute(running, (run_id,)).fetchall():
                if not self._database.owners.is_gone(owner):
                    raise rejected(
                        "run",
                        f"attempt {number} of run {run_id} is still being evaluated",
                        fix="Wait until it is over, or end the server that evaluates it, and delete the run then.",
                    )
            sha256s = files_of(rows, run_id)
            rows.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
            self._remembered.forget(run_id)
        # Not before the rows are gone for good: they would name what is not there.
        with self._database.transaction() as rows:
            for sha256 in sha256s:
                if not is_named(rows, sha256):
                    self._files.remove(sha256)

    # Attempts

    def claim(self, run_id: str, claim: Claim, *, answered: Callable[[Attempt], Attempt] | None = None) -> Attempt:
        """Add an attempt under the run's next number, which this process evaluates from now on.

        Args:
            run_id: its run.
            claim: the attempt.
            answered: finishes it at once, where an earlier one answers for it.

        Returns:
            The attempt. ``rejected``: the run takes none, its budget is spent, or there is no such finished parent.
        """
        owner = self._database.owner()
        with self._database.transaction() as rows:
            attempt = admitted(rows, run_of(rows, run_id), claim)
            self._files.require(claim.kernel_sha256)
            add_attempt(rows, run_id, attempt, owner)
            if answered is not None:
                attempt = answered(attempt)
                set_attempt(rows, run_id, attempt, owner=None, counts=attempt.counted)
            return attempt

    def attempt(self, run_id: str, number: int) -> Attempt:
        """One attempt."""
        with self._database.reading() as rows:
            return self._remembered.attempt(rows, run_id, number)

    def attempts(self, run_id: str) -> list[Attempt]:
        """A run's attempts, by number."""
        with self._database.reading() as rows:
            require_run(rows, run_id)
            return self._remembered.attempts(rows, run_id)

    def find(self, run_id: str, *, text_identity: str | None = None, identity: str | None = None) -> Attempt | None:
        """The earliest finished attempt that has one of the identities."""
        with self._database.reading() as rows:
            require_run(rows, run_id)
            found = rows.execute(
                "SELECT number FROM attempts WHERE run_id = ? AND state = 'finished' "
                "AND (text_identity = ? OR identity = ?) ORDER BY number LIMIT 1",
                (run_id, text_identity, identity),
            ).fetchone()
            return None if found is None else self._remembered.attempt(rows, run_id, found[0])

    def finish(
        self, run_id: str, attempt: Attempt, *, expected_incumbent: int | None,
        run: Callable[[Run], Run] | None = None, taught: Taught | None = None,
    ) -> bool:  # fmt: skip
        """Keep a finished attempt, what it makes of its run, and what it taught.

        Args:
            run_id: its run.
            attempt: in state `finished`; it must be running, and evaluated by this process.
            expected_incumbent: what it was compared with; None: whatever the incumbent is.
            run: what becomes of the run.
            taught: what is learnt from it.

        Returns:
            Whether that is done. False: the incumbent is another one, and nothing was changed.
        """
        if attempt.state != "finished":
            raise ValueError(f"attempt {attempt.number} is {attempt.state}, not finished")
        with self._database.transaction() as rows:
            before, at = run_of(rows, run_id), standing(rows, run_id, attempt.number)
            if at.state != "running" or not self._database.owners.is_own(at.owner):
                whose = "another process evaluates it now" if at.state == "running" else f"it is {at.state} already"
                raise rejected(
                    "run",
                    f"this evaluation of attempt {attempt.number} of run {run_id} is not kept: {whose}",
                    fix="Read what became of it with get_run.",
                )
            if expected_incumbent is not None and before.incumbent != expected_incumbent:
                return False
            # Before it is stored: what is done here may still be undone, and is not to be remembered.
            others = [] if taught is None else self._others(rows, run_id, attempt.number)
            set_attempt(rows, run_id, attempt, owner=None, counts=attempt.counted)
            after = before if run is None else self._change(rows, before, run)
            if taught is not None:
                merge_lessons(rows, taught(before, after, sorted([*others, attempt], key=lambda each: each.number)))
            return True

    def abandon(self, run_id: str, number: int, state: Literal["interrupted", "cancelled"]) -> None:
        """End the evaluation of an attempt without a result. Nothing happens where it is finished, or where another
        process that is alive evaluates it."""
        with self._database.transaction() as rows:
            at = standing(rows, run_id, number)
            if at.state not in ("running", "interrupted") or (at.owner is not None and not self._is_free(at.owner)):
                return
            attempt = attempt_of(rows, run_id, number).model_copy(update={"state": state, "counted": False})
            set_attempt(rows, run_id, attempt, owner=None, counts=at.counts)

    def orphans(self, run_id: str | None = None) -> list[tuple[str, Attempt]]:
        """Attempts that nobody evaluates: running ones whose process is gone, and, in runs that go on, interrupted
        ones; of one run or of all, by run and number."""
        with self._database.reading() as rows:
            if run_id is not None:
                require_run(rows, run_id)
            found = rows.execute(
                "SELECT run_id, number, attempts.state, owner, attempts.record FROM attempts JOIN runs USING (run_id) "
                "WHERE (attempts.state = 'running' OR (attempts.state = 'interrupted' "
                "AND runs.state IN ('measuring', 'open'))) AND (? IS NULL OR run_id = ?) ORDER BY run_id, number",
                (run_id, run_id),
            ).fetchall()
            return [
                (of, read(Attempt, record, f"attempt {number} of run {of}"))
                for of, number, state, owner, record in found
                if state == "interrupted" or self._database.owners.is_gone(owner)
            ]

    def adopt(self, run_id: str, number: int) -> Attempt | None:
        """Evaluate an attempt from now on that nobody evaluates.

        Returns:
            The attempt. None: somebody evaluates it, it is over, or (interrupted) its run is or has no room for it.
        """
        owner = self._database.owner()
        with self._database.transaction() as rows:
            run, at = run_of(rows, run_id), standing(rows, run_id, number)
            match at.state:
                case "running":
                    free = at.owner is None or self._database.owners.is_gone(at.owner)
                case "interrupted":
                    room = not at.counts or used(rows, run_id) < run.frozen.budget.attempts
                    free = run.state in ("measuring", "open") and room
                case "finished" | "cancelled":
                    free = False
            if not free:
                return None
            update = {"state": "running", "counted": at.counts}
            attempt = attempt_of(rows, run_id, number).model_copy(update=update)
            set_attempt(rows, run_id, attempt, owner=owner, counts=at.counts)
            return attempt

    # Lessons

    def lessons(self, *, newest_first: bool = False) -> list[Lesson]:
        """All lessons, by key, or by when they were last added to, whatever the clock said then."""
        # One that is added to is replaced, and so becomes the last row.
        order = "rowid DESC" if newest_first else "key"
        with self._database.reading() as rows:
            found = rows.execute(f"SELECT key, record FROM lessons ORDER BY {order}").fetchall()
            return [read(Lesson, record, f"lesson {key}") for key, record in found]

    def put_lessons(self, lessons: Iterable[Lesson]) -> None:
        """Add lessons; those of a key that is known are merged with it."""
        with self._database.transaction() as rows:
            merge_lessons(rows, lessons)

    def forget(self, ids: Iterable[str]) -> int:
        """Delete lessons by their keys; how many there were."""
        with self._database.transaction() as rows:
            return sum(rows.execute("DELETE FROM lessons WHERE key = ?", (key,)).rowcount for key in set(ids))

    def check(self) -> list[str]:
        """What is wrong with the store, a line each; empty: nothing is lost or damaged."""
        with self._database.transaction() as rows:
            return integrity.faults(rows, self._files)

    def _others(self, rows: sqlite3.Connection, run_id: str, number: int) -> list[Attempt]:
        return [each for each in self._remembered.attempts(rows, run_id) if each.number != number]

    def _is_free(self, owner: str) -> bool:
        """Whether an attempt of that owner is this process's, or nobody's."""
        return self._database.owners.is_own(owner) or self._database.owners.is_gone(owner)

    def _change(self, rows: sqlite3.Connection, before: Run, change: Callable[[Run], Run]) -> Run:
        run_id = before.frozen.run_id
        run = change(before)
        if (run.frozen.run_id, run.frozen.created_at) != (run_id, before.frozen.created_at):
            raise ValueError(f"run {run_id} can't become run {run.frozen.run_id}: the run is the same")
        set_run(rows, run)
        name_files(rows, run, self._files)
        return run
