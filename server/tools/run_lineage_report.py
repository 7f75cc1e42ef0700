"""A run as a whole, as the tools show it: budget, lineage, front, the attempt to go on from, lessons."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ...profiling.optimization.lessons import Lesson, recall
from ...profiling.optimization.model import BASELINE, Attempt
from ...profiling.optimization.population import front, suggest_parent
from ...profiling.optimization.scores import score_of
from ...sandbox.outcome import Kind, Problem
from ..runs.answer import Answer
from ..runs.memory import lessons_of, spent_s
from ..runs.record import Frozen, Run
from .lesson_report import lesson_shown, so_far
from .run_lineage_shown import (
    AttemptLine,
    BudgetShown,
    FrontLine,
    RunLine,
    RunResult,
    StartResult,
    Suggested,
    Working,
)
from .run_report import Told, attempts_left, best, confirmed, outcome_of
from .run_shown import named, words
from .run_words import GO_ON_S, standing_words

RUNS: Final = 20
ATTEMPTS: Final = 15
BEST: Final = 5
"""Of the attempts shown, the ones that are the best; the others are the newest."""
FRONT: Final = 5
FRONT_CASES: Final = 3
LESSONS: Final = 1
STRATEGY_CHARACTERS: Final = 60
MUCH: Final = 100
"""Of each in a detailed answer."""
SOURCE_CHARACTERS: Final = 24_000


class Standing(NamedTuple):
    """A run, with what is being done for it."""

    answer: Answer
    attempts: Sequence[Attempt]
    """All of them, those that are not over too."""
    at_work: Mapping[int, str]
    resumed: Sequence[int]
    notes: Sequence[str]


def started(told: Told, answer: Answer, known: Sequence[Lesson]) -> StartResult:
    """A run that was begun, with its baseline."""
    run, frozen = answer.run, answer.run.frozen
    summary, next_step = told.summary, told.next_step
    lessons = [
        recalled
        for finding in dict.fromkeys(finding.id for finding in told.shown.findings)
        for recalled in recall(known, finding=finding, device=frozen.gpu, triton=frozen.triton)[:1]
    ]
    if run.state == "open":
        timed = f"on {words(frozen.gpu, 60)}" if frozen.gpu is not None else "without a GPU: nothing can be accepted"
        summary = (
            f"Run {frozen.run_id} is open ({timed}): {attempts_left(answer)} attempts, "
            f"{frozen.hidden_count} hidden case(s). {summary}"
        )
    return StartResult(
        kind=told.kind,
        summary=summary,
        next_step=next_step,
        problem=told.problem,
        artifacts=told.artifacts,
        **dict(told.shown),
        title=words(frozen.title, 40),
        entry=words(frozen.entry, 60),
        target=frozen.target,
        gpu=frozen.gpu,
        hidden_cases=frozen.hidden_count,
        budget=_budget(answer),
        lessons=[lesson_shown(recalled) for recalled in lessons[:LESSONS]],
    )


def listed(runs: Sequence[tuple[Run, Sequence[Attempt]]], count: int, notes: Sequence[str] = ()) -> RunResult:
    """The newest runs, of all that are kept."""
    shown = [_run_line(run, attempts) for run, attempts in runs]
    step = "Call start_optimization(kernel=..., task=...)."
    if shown:
        step = f"Call get_run(run_id='{shown[0].run_id}') for the newest, or start_optimization for a new one."
    return RunResult(
        kind=Kind.OK,
        summary=f"{count} run(s) are kept here.",
        next_step=step,
        runs=shown,
        runs_omitted=count - len(shown),
        notes=list(notes),
    )


def about_attempt(told: Told, standing: Standing, source: str | None) -> RunResult:
    """One attempt of a run, with the fields that `submit_candidate` has."""
    result = RunResult(
        kind=told.kind,
        summary=told.summary,
        next_step=told.next_step,
        problem=told.problem,
        artifacts=told.artifacts,
        **dict(told.shown),
    )
    return _with_standing(result, standing, source)


def about_run(standing: Standing, *, detail: bool) -> RunResult:
    """A run as a whole."""
    answer, run = standing.answer, standing.answer.run
    finished = answer.memory.attempts
    lines = _shown_attempts(standing.attempts, run.incumbent, MUCH if detail else ATTEMPTS)
    kind, problem = _run_outcome(run, finished)
    suggestion = suggest_parent(answer.memory) if run.state == "open" else None
    found = front(answer.memory).members
    lessons = so_far(lessons_of(run, finished))
    result = RunResult(
        kind=kind,
        summary=_summary(standing),
        next_step=_next_step(standing, None if suggestion is None else suggestion.number),
        problem=problem,
        run_id=run.frozen.run_id,
        state=run.state,
        incumbent=best(answer),
        verified=confirmed(run.verified),
        attempts_left=attempts_left(answer),
        run_state=run.state,
        attempts=[_attempt_line(attempt, None if detail else STRATEGY_CHARACTERS) for attempt in lines],
        attempts_omitted=len(standing.attempts) - len(lines),
        front=[
            FrontLine(
                attempt=each.number,
                ratio=round(each.ratio, 4),
                best_in=[words(case, 40) for case in each.best_in[: MUCH if detail else FRONT_CASES]],
            )
            for each in found[: MUCH if detail else FRONT]
        ],
        suggested_parent=None
        if suggestion is None
        else Suggested(attempt=suggestion.number, why=words(suggestion.why)),
        lessons=lessons[: MUCH if detail else LESSONS],
    )
    return _with_standing(result, standing, None)


def _with_standing(result: RunResult, standing: Standing, source: str | None) -> RunResult:
    run, frozen = standing.answer.run, standing.answer.run.frozen
    notes = list(standing.notes)
    if standing.resumed:
        numbers = ", ".join(map(str, standing.resumed))
        notes.append(f"attempt(s) {numbers} had been left behind by a server that ended; their evaluation goes on")
    if source is not None:
        shown = "".join(each if each.isprintable() or each in "\n\t" else "?" for each in source[:SOURCE_CHARACTERS])
        if shown != source:
            notes.append(f"the source is cut or has been made printable: tritonforge-mcp runs export {frozen.run_id}")
        source = shown
    return result.model_copy(
        update={
            "title": words(frozen.title, 40),
            "ended_by": run.ended_by,
            "gpu": frozen.gpu,
            "hidden_cases": frozen.hidden_count,
            "budget": _budget(standing.answer),
            "at_work": [
                Working(attempt=number, doing=words(doing, 60)) for number, doing in list(standing.at_work.items())[:8]
            ],
            "resumed": list(standing.resumed)[:8],
            "notes": [words(note) for note in notes],
            "source": source,
        }
    )


def _budget(answer: Answer) -> BudgetShown:
    budget = answer.run.frozen.budget
    return BudgetShown(
        **budget.model_dump(),
        attempts_left=attempts_left(answer),
        elapsed_s=round(spent_s(answer.run), 1),
    )


def _run_line(run: Run, attempts: Sequence[Attempt]) -> RunLine:
    frozen: Frozen = run.frozen
    incumbent = next((attempt for attempt in attempts if attempt.number == run.incumbent != BASELINE), None)
    score = None if incumbent is None else score_of(incumbent)
    return RunLine(
        run_id=frozen.run_id,
        title=words(frozen.title, 40),
        state=run.state,
        ratio=None if score is None else round(score.ratio, 4),
        attempts=sum(attempt.number != BASELINE for attempt in attempts),
        updated_at=run.updated_at,
    )


def _shown_attempts(attempts: Sequence[Attempt], incumbent: int, limit: int) -> list[Attempt]:
    """The best and the newest, by number."""
    if len(attempts) <= limit:
        return list(attempts)
    first = [attempt.number for attempt in attempts if attempt.number in (incumbent, BASELINE)]
    scored = [(score.ratio, attempt.number) for attempt in attempts if (score := score_of(attempt)) is not None]
    by_score = [number for _, number in sorted(scored, reverse=True)][:BEST]
    newest = [attempt.number for attempt in reversed(attempts)]
    chosen = set(list(dict.fromkeys([*first, *by_score, *newest]))[:limit])
    return [attempt for attempt in attempts if attempt.number in chosen]


def _attempt_line(attempt: Attempt, characters: int | None) -> AttemptLine:
    score = None if attempt.number == BASELINE else score_of(attempt)
    return AttemptLine(
        number=attempt.number,
        parent=attempt.parent,
        strategy=words(attempt.strategy, characters or STRATEGY_CHARACTERS * 4),
        kind=outcome_of(attempt),
        ratio=None if score is None else round(score.ratio, 4),
        accepted=attempt.accepted,
        duplicate_of=attempt.duplicate_of,
    )


def _run_outcome(run: Run, finished: Sequence[Attempt]) -> tuple[Kind, Problem | None]:
    if run.state == "measuring":
        return Kind.RUNNING, None
    if run.state != "failed":
        return Kind.OK, None
    baseline = next((attempt.evidence for attempt in finished if attempt.number == BASELINE), None)
    if baseline is not None and baseline.problem is not None:
        return baseline.kind, baseline.problem
    return Kind.CANCELLED, Problem(stage="run", message=words(run.problem or "the baseline was not measured"))


def _summary(standing: Standing) -> str:
    answer, run = standing.answer, standing.answer.run
    count = sum(attempt.number != BASELINE for attempt in standing.attempts)
    told = f"Run {run.frozen.run_id} is {run.state}"
    told += "" if run.ended_by is None else f", ended by {words(run.ended_by, 40)}"
    if run.state == "measuring":
        return f"{told}: its baseline is being measured."
    if run.state == "failed":
        return f"{told}: {words(run.problem or 'its baseline was not measured', 300)}"
    return f"{told}. {count} attempt(s); {standing_words(best(answer), attempts_left(answer))}."


def _next_step(standing: Standing, parent: int | None) -> str:
    run = standing.answer.run
    run_id = run.frozen.run_id
    match run.state:
        case "measuring":
            return f"Call get_run(run_id='{run_id}', attempt=0, wait_s={GO_ON_S})."
        case "failed":
            return "Mend the baseline or the task, and call start_optimization again."
        case "finished" if run.incumbent == BASELINE:
            return "Nothing was faster than the baseline: report that it stays."
        case "finished":
            return (
                f"Report {named(run.incumbent)} with its ratio and interval; get_run(run_id='{run_id}', "
                f"attempt={run.incumbent}, detail=true) has its file."
            )
        case "open":
            chosen = run.incumbent if parent is None else parent
            return (
                f"Change one thing of {named(chosen)}, then submit_candidate(run_id='{run_id}', kernel=..., "
                f"strategy=..., parent={chosen}). get_run(run_id='{run_id}', attempt={chosen}, detail=true) has "
                "its file."
            )
