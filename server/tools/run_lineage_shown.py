"""What start_optimization and get_run tell of a run: the models, and the same in words."""

from collections.abc import Sequence

from ...sandbox.outcome import Kind
from ...sandbox.wire import Wire
from ..results import Result
from .lesson_report import LessonShown, lesson_line
from .run_shown import AttemptShown, named
from .run_words import attempt_lines, confirmed_words


class RunLine(Wire):
    """A run in one line."""

    run_id: str
    title: str
    state: str
    ratio: float | None
    """Of its baseline's time over its best attempt's; null: none was accepted."""
    attempts: int
    updated_at: str


class AttemptLine(Wire):
    """An attempt in one line."""

    number: int
    parent: int | None
    strategy: str
    kind: Kind
    ratio: float | None
    """Of the baseline's time over its own; null: not timed."""
    accepted: bool
    duplicate_of: int | None


class FrontLine(Wire):
    """An attempt that no other one beats on all cases."""

    attempt: int
    ratio: float
    best_in: list[str]
    """Cases in which none is faster; none: it is a trade-off."""


class Suggested(Wire):
    """Which attempt to go on from."""

    attempt: int
    why: str


class BudgetShown(Wire):
    """What the run may cost, and what is enough."""

    attempts: int
    attempts_left: int
    wall_s: float | None
    elapsed_s: float
    target_pct: float
    """Of the speed of light."""
    target_ratio: float | None
    failed_count: bool


class Working(Wire):
    """An evaluation that goes on."""

    attempt: int
    doing: str


class StartResult(AttemptShown, Result):
    """What `start_optimization` returns: the run, and its baseline as attempt 0."""

    title: str | None = None
    entry: str | None = None
    target: str | None = None
    gpu: str | None = None
    """Null: nothing can be timed here, so nothing can be accepted."""
    hidden_cases: int = 0
    """Judged before a candidate is accepted; nothing else of them is told."""
    budget: BudgetShown | None = None
    lessons: list[LessonShown] = []
    """Of earlier runs, about the findings of this baseline."""

    def in_words(self) -> str:
        return "\n".join([self.summary, *attempt_lines(self, self.summary), *_lessons_lines(self.lessons)])


class RunResult(AttemptShown, Result):
    """What `get_run` returns: runs, a run, or one attempt with the fields that `submit_candidate` has."""

    runs: list[RunLine] = []
    """Without run_id, newest first."""
    runs_omitted: int = 0
    title: str | None = None
    ended_by: str | None = None
    gpu: str | None = None
    hidden_cases: int = 0
    """Judged before a candidate is accepted; nothing else of them is told."""
    budget: BudgetShown | None = None
    attempts: list[AttemptLine] = []
    """The best and the newest, by number."""
    attempts_omitted: int = 0
    front: list[FrontLine] = []
    """Attempts that no other one beats on all cases."""
    suggested_parent: Suggested | None = None
    lessons: list[LessonShown] = []
    """Of this run so far."""
    at_work: list[Working] = []
    resumed: list[int] = []
    """Attempts whose evaluation was begun again: their server had ended."""
    notes: list[str] = []
    source: str | None = None
    """With attempt and detail: its file."""

    def in_words(self) -> str:
        told = [self.summary, *(f"- {_run_words(line)}" for line in self.runs)]
        if self.runs_omitted:
            told.append(f"{self.runs_omitted} more run(s) not shown.")
        told += [f"Note: {note}" for note in self.notes]
        told += [f"At work: attempt {each.attempt}: {each.doing}" for each in self.at_work]
        told += attempt_lines(self, self.summary) if self.attempt is not None else _run_lines(self)
        if self.source is not None:
            told += ["Its file:", self.source]
        return "\n".join(told)


def _run_words(line: RunLine) -> str:
    ratio = "none accepted" if line.ratio is None else f"best {line.ratio:.3g}x"
    return f"{line.run_id} ({line.title}): {line.state}, {ratio}, {line.attempts} attempt(s), {line.updated_at}"


def _run_lines(result: RunResult) -> list[str]:
    told: list[str] = []
    if result.budget is not None:
        budget = result.budget
        wall = "" if budget.wall_s is None else f" of {budget.wall_s:g}"
        ratio = "" if budget.target_ratio is None else f" or {budget.target_ratio:g}x"
        told.append(
            f"Budget: {budget.attempts_left} of {budget.attempts} attempts left, {budget.elapsed_s:g}{wall} s gone; "
            f"target {budget.target_pct:g} % of the speed of light{ratio}. {result.hidden_cases} hidden case(s), "
            f"{'timed on ' + result.gpu if result.gpu is not None else 'nothing is timed: there is no GPU'}."
        )
    if result.verified is not None:
        told.append(f"The best one beside the baseline, once more at the end: {confirmed_words(result.verified)}.")
    told += [_attempt_words(line) for line in result.attempts]
    if result.attempts_omitted:
        told.append(f"  {result.attempts_omitted} more attempt(s) not shown.")
    for each in result.front:
        on = f"best in {', '.join(each.best_in)}" if each.best_in else "a trade-off"
        told.append(f"Front: {named(each.attempt)}, {each.ratio:.3g}x, {on}")
    if result.suggested_parent is not None:
        told.append(f"Go on from {named(result.suggested_parent.attempt)}: {result.suggested_parent.why}")
    return told + _lessons_lines(result.lessons)


def _attempt_words(line: AttemptLine) -> str:
    ratio = "" if line.ratio is None else f" {line.ratio:.3g}x"
    told = "" if line.parent is None else f" (from {line.parent})"
    again = "" if line.duplicate_of is None else f", same as {line.duplicate_of}"
    return f"  {line.number}{told} {line.kind}{ratio}{', accepted' if line.accepted else ''}{again}: {line.strategy}"


def _lessons_lines(lessons: Sequence[LessonShown]) -> list[str]:
    return ["Lessons:", *map(lesson_line, lessons)] if lessons else []
