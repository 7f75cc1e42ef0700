"""Runs, attempts and lessons as lines for a terminal."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

from ..profiling.optimization.lesson import Lesson
from ..profiling.optimization.model import BASELINE, Attempt, RunState, Timing
from ..sandbox.wire import Wire
from .runs.record import Run
from .runs.verification import run_shown, shown
from .tools.run_report import outcome_of
from .tools.run_shown import named, words

STRATEGY_CHARACTERS: Final = 70
ID_CHARACTERS: Final = 12
"""Of a lesson's id and of hashes: enough to tell them apart."""


class RunLine(Wire):
    """One run, in short."""

    run_id: str
    title: str
    state: RunState
    ended_by: str | None
    incumbent: int
    """The best accepted attempt; 0 is the baseline."""
    ratio: float | None
    """The baseline's time over the incumbent's; null for the baseline."""
    ratio_low: float | None
    ratio_high: float | None
    attempts: int
    """All that were submitted, duplicates among them."""
    counted: int
    """Those that cost an attempt of the budget."""
    budget: int
    running: int
    """Attempts that are being evaluated."""
    left_behind: int
    """Attempts whose server ended before they were evaluated: `runs resume` goes on with them."""
    gpu: str | None
    target: str
    created_at: str
    updated_at: str


def run_line(run: Run, attempts: Sequence[Attempt], left: Collection[int]) -> RunLine:
    """A run, in short.

    Args:
        run: the run.
        attempts: all of it.
        left: numbers of those that a server has left behind.
    """
    frozen, timing = run.frozen, _beside_baseline(attempts, run.incumbent)
    return RunLine(
        run_id=frozen.run_id,
        title=frozen.title,
        state=run.state,
        ended_by=run.ended_by,
        incumbent=run.incumbent,
        ratio=None if timing is None else timing.ratio,
        ratio_low=None if timing is None else timing.ratio_low,
        ratio_high=None if timing is None else timing.ratio_high,
        attempts=sum(attempt.number != BASELINE for attempt in attempts),
        counted=sum(attempt.counted for attempt in attempts if attempt.state == "finished"),
        budget=frozen.budget.attempts,
        running=sum(attempt.state == "running" and attempt.number not in left for attempt in attempts),
        left_behind=len(left),
        gpu=frozen.gpu,
        target=frozen.target,
        created_at=frozen.created_at,
        updated_at=run.updated_at,
    )


def run_table(lines: Sequence[RunLine]) -> str:
    """Runs, one a line."""
    rows = [("RUN", "STATE", "BEST", "SPEED", "ATTEMPTS", "STARTED", "TITLE")]
    for line in lines:
        best = "baseline" if line.incumbent == BASELINE else str(line.incumbent)
        ended = f" ({words(line.ended_by, 30)})" if line.ended_by else ""
        rows.append(
            (
                line.run_id,
                f"{line.state}{ended}",
                best,
                _ratio(line.ratio, line.ratio_low, line.ratio_high),
                _progress(line),
                _time(line.created_at),
                words(line.title, 40),
            )
        )
    return _table(rows)


def run_text(run: Run, attempts: Sequence[Attempt], left: Collection[int]) -> str:
    """A run with its attempts; arguments as of `run_line`."""
    frozen, line = run.frozen, run_line(run, attempts, left)
    state = f"{run.state} ({words(run.ended_by, 40)})" if run.ended_by else run.state
    hidden = f"{frozen.hidden_count} hidden ({frozen.hidden_from})" if frozen.hidden_count else "none hidden"
    hidden += "".join(f"; {count} dropped: {words(why)}" for why, count in _dropped(run).items())
    best = _ratio(line.ratio, line.ratio_low, line.ratio_high)
    parts = [
        f"Run {frozen.run_id}: {words(frozen.title)}, {state}",
        f"  started   {_time(frozen.created_at)}, changed {_time(run.updated_at)}",
        f"  baseline  {words(frozen.kernel_shown_as)} ({frozen.kernel_sha256[:ID_CHARACTERS]}), entry {frozen.entry}",
        f"  task      {words(frozen.task_shown_as)} ({frozen.task_sha256[:ID_CHARACTERS]})",
        f"  cases     {words(', '.join(frozen.cases))}; {hidden}",
        f"  for       {frozen.target} on {frozen.gpu or 'no GPU: nothing can be accepted'}, torch "
        f"{frozen.torch or 'unknown'}, triton {frozen.triton or 'unknown'}",
        f"  budget    attempts: {_progress(line)}; target {frozen.budget.target_pct:g} % of the speed of light",
        f"  best      {named(run.incumbent)}{'' if best == '-' else f', {best} the speed of the baseline'}",
    ]
    if run.problem is not None:
        parts.append(f"  problem   {words(run.problem, 400)}")
    rows = [("", "#", "FROM", "OUTCOME", "VERDICT", "SPEED", "STRATEGY")]
    for attempt in attempts:
        outcome, verdict = ("left behind", "") if attempt.number in left else _outcome(attempt)
        rows.append(
            (
                "*" if attempt.number == run.incumbent else "",
                str(attempt.number),
                "" if attempt.parent is None else str(attempt.parent),
                outcome,
                verdict,
                _speed(attempts, attempt),
                words(attempt.strategy, STRATEGY_CHARACTERS),
            )
        )
    if left:
        parts.append(f"  resume    tritonforge-mcp runs resume {frozen.run_id}")
    return "\n".join([*parts, "", _table(rows)])


def run_json(run: Run, attempts: Sequence[Attempt], *, hidden: bool) -> dict[str, Any]:
    """All that is kept of a run but its files.

    Args:
        run: the run.
        attempts: all of it.
        hidden: whether names and times of hidden cases are in it; without them, of those that were dropped, how many
            there are by reason.
    """
    if hidden:
        return {
            "run": run.model_dump(mode="json"),
            "attempts": [attempt.model_dump(mode="json") for attempt in attempts],
        }
    whole = run_shown(run).model_dump(mode="json")
    whole["frozen"]["hidden_dropped"] = dict(_dropped(run))
    return {"run": whole, "attempts": [shown(attempt).model_dump(mode="json") for attempt in attempts]}


def attempt_line(attempt: Attempt) -> str:
    """How an attempt ended."""
    outcome, verdict = _outcome(attempt)
    reasons = "" if attempt.verdict is None else "; ".join(words(reason) for reason in attempt.verdict.reasons[:2])
    parts = [f"{named(attempt.number)}: {outcome}", verdict, reasons]
    return ", ".join(part for part in parts if part)


def nothing_resumed(run: Run, attempts: Sequence[Attempt]) -> str:
    """Why nothing of a run is evaluated again."""
    run_id = run.frozen.run_id
    left = ", ".join(str(attempt.number) for attempt in attempts if attempt.state == "interrupted")
    if not left:
        return f"Nothing of run {run_id} was left behind; it is {run.state}."
    why = (
        f"its budget of {run.frozen.budget.attempts} attempts is spent" if run.state == "open" else f"it is {run.state}"
    )
    return f"Run {run_id} takes no more: {why}. What was interrupted stays so: attempt {left}."


def lesson_table(lessons: Sequence[Lesson]) -> str:
    """Lessons, one a line."""
    rows = [("ID", "FINDING", "STRATEGY", "DEVICE", "HELPED", "TIME SAVED", "WHY")]
    for lesson in lessons:
        rows.append(
            (
                lesson.key[:ID_CHARACTERS],
                words(lesson.finding or "-", 12),
                words(lesson.strategy, 30),
                words(lesson.device, 30),
                _helped(lesson),
                _gain(lesson),
                words(lesson.why, STRATEGY_CHARACTERS),
            )
        )
    return _table(rows)


def _dropped(run: Run) -> Counter[str]:
    """Hidden cases that were dropped, by reason."""
    return Counter(run.frozen.hidden_dropped.values())


def _progress(line: RunLine) -> str:
    parts = [f"{line.counted} of {line.budget}"]
    parts += [f"{line.running} at work"] if line.running else []
    parts += [f"{line.left_behind} left behind"] if line.left_behind else []
    return ", ".join(parts)


def _outcome(attempt: Attempt) -> tuple[str, str]:
    verdict = "" if attempt.verdict is None else attempt.verdict.verdict
    if attempt.duplicate_of is not None:
        return f"same as {attempt.duplicate_of}", ""
    if attempt.accepted and verdict != "accept":
        verdict = f"{verdict}, accepted".lstrip(", ")
    # What was interrupted or cancelled has no outcome of its own.
    return (outcome_of(attempt).value if attempt.state == "finished" else attempt.state), verdict


def _beside_baseline(attempts: Sequence[Attempt], number: int) -> Timing | None:
    found = next((attempt for attempt in attempts if attempt.number == number), None)
    return None if found is None or found.evidence is None else found.evidence.timing(BASELINE)


def _speed(attempts: Sequence[Attempt], attempt: Attempt) -> str:
    timing = _beside_baseline(attempts, attempt.number)
    return _ratio(None, None, None) if timing is None else _ratio(timing.ratio, timing.ratio_low, timing.ratio_high)


def _ratio(ratio: float | None, low: float | None, high: float | None) -> str:
    if ratio is None or low is None or high is None:
        return "-"
    return f"{ratio:.4g}x ({low:.4g} to {high:.4g})"


def _gain(lesson: Lesson) -> str:
    if lesson.gain_pct is None or lesson.gain_low_pct is None or lesson.gain_high_pct is None:
        return "not timed"
    return f"{lesson.gain_pct:.1f} % ({lesson.gain_low_pct:.1f} to {lesson.gain_high_pct:.1f})"


def _helped(lesson: Lesson) -> str:
    """How often it helped; what was never timed was right or not."""
    right = lesson.tried - sum(lesson.failed.values())
    if lesson.gain_pct is not None or right <= 0:
        return f"{lesson.helped} of {lesson.tried}"
    return f"right {right} of {lesson.tried}, not timed"


def _time(stamp: str) -> str:
    """To the minute, UTC."""
    return stamp[:16].replace("T", " ")


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
