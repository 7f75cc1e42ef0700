"""Which candidates a run takes."""

import sqlite3

from ...profiling.optimization.model import BASELINE
from ...sandbox.errors import rejected
from .record import Run
from .rows import standing, used


def next_number(rows: sqlite3.Connection, run_id: str) -> int:
    """The number of a run's next attempt."""
    (number,) = rows.execute(
        "SELECT coalesce(max(number) + 1, ?) FROM attempts WHERE run_id = ?", (BASELINE, run_id)
    ).fetchone()
    return number


def require_room(rows: sqlite3.Connection, run: Run, *, parent: int | None, counts: bool) -> None:
    """See to it that a run takes one more attempt.

    Raises:
        Stopped: ``rejected``: it is not open, its budget is spent, or there is no such finished parent.
    """
    run_id = run.frozen.run_id
    measured = next_number(rows, run_id) != BASELINE
    match run.state:
        case "open":
            pass
        case "measuring":
            if measured:
                raise rejected(
                    "run",
                    f"run {run_id} takes no candidates yet: its baseline is being measured",
                    fix=f"Call get_run(run_id='{run_id}') until its state is open, then submit again.",
                )
        case "finished" | "failed":
            raise rejected(
                "run",
                f"run {run_id} takes no candidates: it is {run.state}",
                fix="Read the result with get_run, and call start_optimization to begin another run.",
            )
    if parent is not None and (state := standing(rows, run_id, parent).state) != "finished":
        raise rejected(
            "run",
            f"attempt {parent} of run {run_id} can't be a parent: it is {state}",
            fix="Wait for it with get_run, or name a parent that is finished.",
        )
    budget = run.frozen.budget.attempts
    if counts and (spent := used(rows, run_id)) >= budget:
        raise rejected(
            "run",
            f"the budget of run {run_id} is spent: {spent} of {budget} attempts are finished or being evaluated",
            fix="Read the results with get_run; to go on, call start_optimization with the best attempt as the kernel.",
        )
