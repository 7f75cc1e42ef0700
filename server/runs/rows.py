"""Runs, attempts and lessons as rows: read and written within whatever transaction their caller is in."""

import difflib
import sqlite3
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from ...profiling.optimization.lesson import Lesson, merge
from ...profiling.optimization.model import Attempt, AttemptState
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind, Problem
from ...sandbox.wire import Wire
from .files import Files
from .record import Run

NAMED_AT_MOST: Final = 3
"""Runs that an error names."""

_Record = TypeVar("_Record", bound=Wire)


class Standing(NamedTuple):
    """What is known of an attempt without its record."""

    state: AttemptState
    owner: str | None
    """Token of who evaluates it, while it is running."""
    counts: bool
    """Whether it costs an attempt of the budget, as far as is known."""


def written(record: Wire) -> str:
    """A record as it is stored: never what could not be read again.

    Raises:
        ValidationError: it was made, without checks, of what its fields don't take.
    """
    text = record.model_dump_json()
    type(record).model_validate_json(text)
    return text


def read(model: type[_Record], text: str, what: str) -> _Record:
    """A record that was stored.

    Raises:
        Stopped: ``unavailable``: it is damaged.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "its text"
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="environment",
                message=f"the record of {what} is damaged: {where}: {first['msg']}",
                likely_cause="It was changed by something else than this program.",
                likely_fix="Start a new run: the others can go on. To be rid of this one, delete it with "
                "`tritonforge-mcp runs delete`.",
            ),
        ) from error


def require_run(rows: sqlite3.Connection, run_id: str) -> str:
    """A run's record, unread.

    Raises:
        Stopped: ``rejected``: there is no such run; the nearest ids are named.
    """
    found = rows.execute("SELECT record FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is not None:
        return found[0]
    known = [known for (known,) in rows.execute("SELECT run_id FROM runs ORDER BY rowid DESC")]
    near = difflib.get_close_matches(run_id, known, NAMED_AT_MOST)
    if near:
        fix = f"Did you mean {' or '.join(map(repr, near))}?"
    elif known:
        fix = f"The newest runs are: {', '.join(known[:NAMED_AT_MOST])}."
    else:
        fix = "There are no runs here: start one with start_optimization."
    raise rejected("run", f"there is no run {run_id[:100]!r}", fix=fix)


def run_of(rows: sqlite3.Connection, run_id: str) -> Run:
    """One run.

    Raises:
        Stopped: ``rejected``: there is no such run; ``unavailable``: its record is damaged.
    """
    return read(Run, require_run(rows, run_id), f"run {run_id}")


def attempt_of(rows: sqlite3.Connection, run_id: str, number: int) -> Attempt:
    """One attempt.

    Raises:
        Stopped: ``rejected``: there is no such run or attempt; ``unavailable``: its record is damaged.
    """
    return read(Attempt, attempt_record(rows, run_id, number), f"attempt {number} of run {run_id}")


def attempt_record(rows: sqlite3.Connection, run_id: str, number: int) -> str:
    """An attempt's record, unread.

    Raises:
        Stopped: ``rejected``: there is no such run or attempt.
    """
    return _of_attempt(rows, run_id, number, "record")[0]


def standing(rows: sqlite3.Connection, run_id: str, number: int) -> Standing:
    """What is known of an attempt without its record.

    Raises:
        Stopped: ``rejected``: there is no such run or attempt.
    """
    state, owner, counts = _of_attempt(rows, run_id, number, "state, owner, counts")
    return Standing(state, owner, bool(counts))


def used(rows: sqlite3.Connection, run_id: str) -> int:
    """Attempts of a run that cost its budget one, or may do so when they are finished."""
    (count,) = rows.execute(
        "SELECT count(*) FROM attempts WHERE run_id = ? AND counts AND state IN ('finished', 'running')", (run_id,)
    ).fetchone()
    return count


def add_run(rows: sqlite3.Connection, run: Run) -> None:
    """Store a new run."""
    rows.execute(
        "INSERT INTO runs (run_id, created_at, state, incumbent, record) VALUES (?, ?, ?, ?, ?)",
        (run.frozen.run_id, run.frozen.created_at, run.state, run.incumbent, written(run)),
    )


def set_run(rows: sqlite3.Connection, run: Run) -> None:
    """Store a known run as it is now."""
    rows.execute(
        "UPDATE runs SET state = ?, incumbent = ?, record = ? WHERE run_id = ?",
        (run.state, run.incumbent, written(run), run.frozen.run_id),
    )


def add_attempt(rows: sqlite3.Connection, run_id: str, attempt: Attempt, owner: str) -> None:
    """Store a new attempt, which is running."""
    rows.execute(
        "INSERT INTO attempts (run_id, number, state, owner, counts, text_identity, kernel_sha256, record) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run_id, attempt.number, attempt.state, owner, attempt.counted, attempt.text_identity,
            attempt.kernel_sha256, written(attempt),
        ),
    )  # fmt: skip


def set_attempt(
    rows: sqlite3.Connection, run_id: str, attempt: Attempt, *, owner: str | None, counts: bool
) -> None:  # fmt: skip
    """Store a known attempt as it is now; file and text identity stay what they were."""
    identity = attempt.evidence.identity if attempt.evidence is not None else None
    rows.execute(
        "UPDATE attempts SET state = ?, owner = ?, counts = ?, identity = ?, record = ? "
        "WHERE run_id = ? AND number = ?",
        (attempt.state, owner, counts, identity, written(attempt), run_id, attempt.number),
    )


def merge_lessons(rows: sqlite3.Connection, lessons: Iterable[Lesson]) -> None:
    """Store lessons, merged with those of the same keys."""
    for lesson in lessons:
        found = rows.execute("SELECT record FROM lessons WHERE key = ?", (lesson.key,)).fetchone()
        both = lesson if found is None else merge(read(Lesson, found[0], f"lesson {lesson.key}"), lesson)
        rows.execute("INSERT OR REPLACE INTO lessons (key, record) VALUES (?, ?)", (lesson.key, written(both)))


def name_files(rows: sqlite3.Connection, run: Run, files: Files) -> None:
    """Note which files a run names; one that it named once stays its own until it is deleted.

    Raises:
        Stopped: ``unavailable``: one is gone.
    """
    frozen = run.frozen
    for sha256 in (frozen.kernel_sha256, frozen.task_sha256, frozen.hidden_sha256):
        if sha256 is not None:
            files.require(sha256)
            rows.execute("INSERT OR IGNORE INTO run_files (run_id, sha256) VALUES (?, ?)", (frozen.run_id, sha256))


def files_of(rows: sqlite3.Connection, run_id: str) -> list[str]:
    """Files that a run or its attempts name."""
    found = rows.execute(
        "SELECT kernel_sha256 FROM attempts WHERE run_id = ? UNION SELECT sha256 FROM run_files WHERE run_id = ?",
        (run_id, run_id),
    ).fetchall()
    return [sha256 for (sha256,) in found]


def is_named(rows: sqlite3.Connection, sha256: str) -> bool:
    """Whether any run or attempt names a file."""
    found = rows.execute(
        "SELECT 1 FROM attempts WHERE kernel_sha256 = ? UNION SELECT 1 FROM run_files WHERE sha256 = ?",
        (sha256, sha256),
    ).fetchone()
    return found is not None


def _of_attempt(rows: sqlite3.Connection, run_id: str, number: int, columns: str) -> tuple[Any, ...]:
    """Some columns of an attempt; what is unknown is told with what there is."""
    found = rows.execute(f"SELECT {columns} FROM attempts WHERE run_id = ? AND number = ?", (run_id, number)).fetchone()
    if found is not None:
        return found
    require_run(rows, run_id)
    (last,) = rows.execute("SELECT max(number) FROM attempts WHERE run_id = ?", (run_id,)).fetchone()
    has = "It has none so far." if last is None else f"Its attempts are 0 to {last}; 0 is the baseline."
    raise rejected("run", f"run {run_id} has no attempt {number}", fix=has)
