"""Which candidates a run takes, and under which number."""

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ...profiling.optimization.model import BASELINE, Attempt
from ...sandbox.errors import rejected
from .record import Run
from .rows import standing, used


class Claim(NamedTuple):
    """An attempt as it is submitted."""

    parent: int | None
    strategy: str
    kernel_sha256: str
    """Of its file, which is kept."""
    text_identity: str
    counts: bool
    """Whether it costs an attempt of the budget, as far as is known."""
    kernel_shown_as: str = "<source>"
    kernel_origin: str | None = None
    remarks: Sequence[str] = ()


def admitted(rows: sqlite3.Connection, run: Run, claim: Claim) -> Attempt:
    """A new attempt of a run, which is being evaluated from now on; it is not stored yet.

    Raises:
        Stopped: ``rejected``: the run is not open, its budget is spent, or there is no such finished parent.
    """
    require_room(rows, run, parent=claim.parent, counts=claim.counts)
    return Attempt(
        number=next_number(rows, run.frozen.run_id),
        state="running",
        parent=claim.parent,
        strategy=claim.strategy,
        kernel_sha256=claim.kernel_sha256,
        kernel_shown_as=claim.kernel_shown_as,
        kernel_origin=claim.kernel_origin,
        text_identity=claim.text_identity,
        submitted_at=max(datetime.now(UTC).isoformat(timespec="milliseconds"), run.frozen.created_at),
        counted=claim.counts,
        remarks=list(claim.remarks),
    )


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
