"""Whether a store is as it was left: the database by itself, each record, and the files that rows name."""

import sqlite3

from ...profiling.optimization.lesson import Lesson
from ...profiling.optimization.model import BASELINE, Attempt
from ...sandbox.errors import Stopped
from .files import Files
from .record import Run
from .rows import read


def faults(rows: sqlite3.Connection, files: Files) -> list[str]:
    """What is wrong, a line each."""
    broken = [f"database: {line}" for (line,) in rows.execute("PRAGMA integrity_check").fetchall() if line != "ok"]
    if broken:
        # What it holds can't be trusted, or not even be read.
        return broken
    said = [
        f"database: a row of {table} belongs to no run"
        for table, *_ in rows.execute("PRAGMA foreign_key_check").fetchall()
    ]
    for run_id, created_at, state, incumbent, record in rows.execute(
        "SELECT run_id, created_at, state, incumbent, record FROM runs ORDER BY run_id"
    ).fetchall():
        said += _of_run(rows, run_id, (run_id, created_at, state, incumbent), record)
        said += _of_attempts(rows, run_id)
    for (sha256,) in rows.execute(
        "SELECT kernel_sha256 FROM attempts UNION SELECT sha256 FROM run_files ORDER BY 1"
    ).fetchall():
        if (fault := files.fault(sha256)) is not None:
            said.append(fault)
    for key, record in rows.execute("SELECT key, record FROM lessons ORDER BY key").fetchall():
        try:
            lesson = read(Lesson, record, f"lesson {key}")
        except Stopped as stopped:
            said.append(stopped.problem.message)
            continue
        if lesson.key != key:
            said.append(f"lesson {key}: its record is that of {lesson.key}")
    return said


def _of_run(rows: sqlite3.Connection, run_id: str, columns: tuple[str, str, str, int], record: str) -> list[str]:
    try:
        run = read(Run, record, f"run {run_id}")
    except Stopped as stopped:
        return [stopped.problem.message]
    frozen, said = run.frozen, list[str]()
    if (frozen.run_id, frozen.created_at, run.state, run.incumbent) != columns:
        said.append(f"run {run_id}: its record says otherwise than its row")
    named = {sha256 for (sha256,) in rows.execute("SELECT sha256 FROM run_files WHERE run_id = ?", (run_id,))}
    if {frozen.kernel_sha256, frozen.task_sha256, frozen.hidden_sha256} - {None} - named:
        said.append(f"run {run_id}: it names a file that is not listed as its own")
    if (
        run.incumbent != BASELINE
        and not rows.execute(
            "SELECT 1 FROM attempts WHERE run_id = ? AND number = ? AND state = 'finished'", (run_id, run.incumbent)
        ).fetchone()
    ):
        said.append(f"run {run_id}: its incumbent {run.incumbent} is no finished attempt")
    return said


def _of_attempts(rows: sqlite3.Connection, run_id: str) -> list[str]:
    said = list[str]()
    for place, (number, state, counts, text_identity, identity, kernel_sha256, record) in enumerate(
        rows.execute(
            "SELECT number, state, counts, text_identity, identity, kernel_sha256, record FROM attempts "
            "WHERE run_id = ? ORDER BY number",
            (run_id,),
        ).fetchall()
    ):
        what = f"attempt {number} of run {run_id}"
        if number != place:
            said.append(f"{what}: {place} is missing before it")
        try:
            attempt = read(Attempt, record, what)
        except Stopped as stopped:
            said.append(stopped.problem.message)
            continue
        found = attempt.evidence.identity if attempt.evidence is not None else None
        # What was abandoned costs nothing, and costs again when it is taken up.
        counted = attempt.counted if state in ("running", "finished") else bool(counts)
        if (attempt.number, attempt.state, counted, attempt.text_identity, found, attempt.kernel_sha256) != (
            number, state, bool(counts), text_identity, identity, kernel_sha256,
        ):  # fmt: skip
            said.append(f"{what}: its record says otherwise than its row")
    return said
