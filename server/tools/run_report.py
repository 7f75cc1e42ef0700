"""One attempt of a run, as its tools show it: small enough for a reader's context, whatever a kernel puts into it."""

from collections.abc import Sequence
from typing import Final

from ...profiling.optimization.model import BASELINE, Attempt, CaseTime, CaseTiming, Confirmation, Evidence, Timing
from ...profiling.optimization.scores import latest
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind, Problem
from ...sandbox.wire import Wire
from ..results import Result, readable
from ..runs.answer import Answer
from .run_shown import AttemptShown, Best, CaseShown, Confirmed, FindingShown, HintShown, Score, Versus, within, words
from .run_words import attempt_lines, next_step, same_as, summary

CASES: Final = 6
REASONS: Final = 3
HINTS: Final = 3
HINT_NUMBERS: Final = 2
FINDINGS: Final = 3
REMARKS: Final = 2
ARTIFACTS: Final = 2
MUCH: Final = 40
"""Of each in a detailed answer."""
NAME_CHARACTERS: Final = 40
PROBLEM_CHARACTERS: Final = {
    "message": 400, "file": 120, "excerpt": 400, "likely_cause": 200, "likely_fix": 250, "output": 200,
}  # fmt: skip
"""Of a failed candidate's problem."""


class SubmissionResult(AttemptShown, Result):
    """What `submit_candidate` returns."""

    def in_words(self) -> str:
        return "\n".join([self.summary, *attempt_lines(self, self.summary)])


class Told(Wire):
    """An attempt's answer, for whichever result it goes into."""

    kind: Kind
    summary: str
    next_step: str | None
    problem: Problem | None
    artifacts: list[str]
    shown: AttemptShown


def tell(answer: Answer, *, failure: Stopped | None = None, doing: str | None = None, detail: bool = False) -> Told:
    """An attempt, as it is shown.

    Args:
        answer: the attempt, with its run.
        failure: what its evaluation ended with, where that says nothing of the candidate.
        doing: how far its evaluation is, while it goes on.
        detail: all of its cases, hints and findings.
    """
    attempt = answer.attempt
    kind, problem = _outcome(attempt, failure)
    shown = _shown(answer, failed=problem is not None, detail=detail)
    evidence = attempt.evidence
    return Told(
        kind=kind,
        summary=summary(answer, shown, kind, problem, doing),
        next_step=next_step(answer, kind),
        problem=None if problem is None else _brief(problem),
        artifacts=[] if evidence is None else evidence.artifacts[: MUCH if detail else ARTIFACTS],
        shown=shown,
    )


def submission(told: Told) -> SubmissionResult:
    """It as the result of a tool of its own."""
    return SubmissionResult(
        kind=told.kind,
        summary=told.summary,
        next_step=told.next_step,
        problem=told.problem,
        artifacts=told.artifacts,
        **dict(told.shown),
    )


def attempts_left(answer: Answer) -> int:
    """Candidates that the budget still allows, beside those that are being evaluated."""
    spent = sum(attempt.counted for attempt in answer.memory.attempts)
    return max(0, answer.run.frozen.budget.attempts - spent - answer.counting)


def best(answer: Answer) -> Best:
    """The run's best attempt, with its interval against the baseline."""
    number = answer.run.incumbent
    attempt = next((attempt for attempt in answer.memory.attempts if attempt.number == number), None)
    evidence = None if attempt is None else attempt.evidence
    timing = None if evidence is None or number == BASELINE else evidence.timing(BASELINE)
    if timing is None:
        return Best(attempt=number, ratio=None, ratio_low=None, ratio_high=None)
    return Best(attempt=number, **dict(_score(timing)))


def confirmed(look: Confirmation | None) -> Confirmed | None:
    """A second look."""
    if look is None:
        return None
    timing = look.timing
    return Confirmed(
        kind=look.kind,
        hidden_checked=look.hidden_checked,
        ratio=None if timing is None else round(timing.ratio, 4),
        ratio_low=None if timing is None else round(timing.ratio_low, 4),
        ratio_high=None if timing is None else round(timing.ratio_high, 4),
    )


def outcome_of(attempt: Attempt) -> Kind:
    """How an attempt ended, its second look included; `running` while it has not."""
    match attempt.state:
        case "running":
            return Kind.RUNNING
        case "cancelled":
            return Kind.CANCELLED
        case "interrupted":
            return Kind.UNAVAILABLE
        case "finished":
            pass
    evidence = attempt.evidence
    assert evidence is not None, "a finished attempt has its evidence"
    confirmation = evidence.confirmation
    return evidence.kind if confirmation is None or evidence.kind is not Kind.OK else confirmation.kind


def _outcome(attempt: Attempt, failure: Stopped | None) -> tuple[Kind, Problem | None]:
    if failure is not None:
        return failure.kind, failure.problem
    kind, evidence = outcome_of(attempt), attempt.evidence
    match kind:
        case Kind.OK | Kind.RUNNING:
            return kind, None
        case _ if evidence is not None:
            second = evidence.confirmation
            found = evidence.problem if evidence.kind is not Kind.OK or second is None else second.problem
            return kind, found or Problem(stage=evidence.stage, message=f"it ended as {kind}; no more is known")
        case Kind.CANCELLED:
            message, fix = "the evaluation was cancelled; it cost no attempt", "Submit the candidate again, if wanted."
        case _:
            message = "its evaluation was interrupted: its server ended, or could not go on"
            fix = "Submit the candidate again: unlike a finished one it is not taken for a duplicate."
    return kind, Problem(stage="run", message=message, likely_fix=fix)


def _brief(problem: Problem) -> Problem:
    return problem.model_copy(
        update={
            name: readable(value, len(within(value, limit)))
            for name, limit in PROBLEM_CHARACTERS.items()
            if (value := getattr(problem, name)) is not None
        }
    )


def _shown(answer: Answer, *, failed: bool, detail: bool) -> AttemptShown:
    # There is less room for advice beside what is wrong, and beside the baseline's findings.
    less = failed or answer.attempt.number == BASELINE
    attempt, evidence = answer.attempt, answer.attempt.evidence
    shown = AttemptShown(
        run_id=answer.run.frozen.run_id,
        attempt=attempt.number,
        parent=attempt.parent,
        state=attempt.state,
        verdict=None if attempt.verdict is None else attempt.verdict.verdict,
        accepted=attempt.accepted,
        reasons=[words(reason) for reason in _reasons(answer)[: MUCH if detail else REASONS - less]],
        hints=[
            HintShown(
                text=words(hint.text),
                because=[words(number, 60) for number in hint.because[: MUCH if detail else HINT_NUMBERS]],
                finding=hint.finding,
            )
            for hint in attempt.hints[: MUCH if detail else HINTS - less]
        ],
        duplicate_of=attempt.duplicate_of,
        remarks=[words(remark) for remark in _remarks(attempt)[: MUCH if detail else REMARKS - less]],
        incumbent=best(answer),
        verified=confirmed(answer.run.verified),
        attempts_left=attempts_left(answer),
        run_state=answer.run.state,
    )
    return shown if evidence is None else shown.model_copy(update=_measured(attempt, evidence, detail=detail))


def _measured(attempt: Attempt, evidence: Evidence, *, detail: bool) -> dict[str, object]:
    against, versus = evidence.timing(BASELINE), latest(attempt)
    second, diagnosed = evidence.confirmation, evidence.diagnosed
    cases = _cases(evidence)
    shown = cases[: MUCH if detail else CASES]
    with_findings = detail or attempt.number == BASELINE
    notes = diagnosed.findings if diagnosed is not None and with_findings else []
    return {
        "score": None if against is None else _score(against),
        "versus_incumbent": None
        if versus is None
        else Versus(attempt=versus.against, comparison=versus.comparison, **dict(_score(versus))),
        "confirmed": confirmed(second),
        "cases": shown,
        "cases_omitted": len(cases) - len(shown),
        "findings": [
            FindingShown(
                id=words(note.id, 16),
                title=words(note.title, 60),
                line=note.line,
                recipe=words(note.recipe, 120),
                expected_pct=note.expected_pct,
            )
            for note in notes[: MUCH if detail else FINDINGS]
        ],
        "seconds": {words(stage, 16): round(spent, 1) for stage, spent in list(evidence.seconds.items())[:8]},
    }


def _score(timing: Timing) -> Score:
    return Score(
        ratio=round(timing.ratio, 4), ratio_low=round(timing.ratio_low, 4), ratio_high=round(timing.ratio_high, 4)
    )


def _cases(evidence: Evidence) -> list[CaseShown]:
    """Hidden ones are no one's business."""
    timing = evidence.timing(BASELINE)
    if timing is None:
        by_time = sorted(evidence.own, key=lambda case: -case.weight * case.device_us)
        return [_alone(case) for case in by_time]
    visible = [case for case in timing.cases if not case.hidden]
    visible.sort(key=lambda case: (case.comparison != "slower", -case.weight * case.device_us))
    return [_beside(case) for case in visible]


def _alone(case: CaseTime) -> CaseShown:
    return CaseShown(
        case=words(case.case, NAME_CHARACTERS),
        device_us=round(case.device_us, 2),
        ratio=None,
        low=None,
        high=None,
        comparison=None,
        speed_of_light_pct=_rounded(case.speed_of_light_pct),
    )


def _beside(case: CaseTiming) -> CaseShown:
    return CaseShown(
        case=words(case.case, NAME_CHARACTERS),
        device_us=round(case.device_us, 2),
        ratio=round(case.ratio, 4),
        low=round(case.ratio_low, 4),
        high=round(case.ratio_high, 4),
        comparison=case.comparison,
        speed_of_light_pct=_rounded(case.speed_of_light_pct),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _reasons(answer: Answer) -> list[str]:
    attempt = answer.attempt
    told = [] if attempt.verdict is None else list(attempt.verdict.reasons)
    if (same := same_as(answer)) is not None:
        told.insert(0, f"{same}; it costs no attempt")
    untimed = None if attempt.evidence is None else attempt.evidence.untimed
    if untimed is not None and not any(untimed in reason for reason in told):
        told.append(f"not timed: {untimed}")
    return told


def _remarks(attempt: Attempt) -> Sequence[str]:
    notes = [] if attempt.evidence is None else attempt.evidence.notes
    return [*attempt.remarks, *notes]
