"""What run tools tell of one attempt, in words."""

from typing import Final

from ...profiling.optimization.model import BASELINE, Prediction
from ...profiling.optimization.population import is_timed, suggest_parent
from ...sandbox.outcome import Kind, Problem
from ..runs.answer import Answer
from .run_shown import AttemptShown, Best, CaseShown, Confirmed, Score, named, words

GO_ON_S: Final = 45
FAILURES: Final = frozenset(Kind) - {Kind.OK, Kind.RUNNING, Kind.CANCELLED, Kind.UNAVAILABLE}
"""Ends that are the candidate's doing."""


def same_as(answer: Answer) -> str | None:
    """What a duplicate has in common with the earlier attempt."""
    attempt = answer.attempt
    if attempt.duplicate_of is None:
        return None
    first = next((each for each in answer.memory.attempts if each.number == attempt.duplicate_of), None)
    if first is not None and first.text_identity == attempt.text_identity:
        return f"is the same file as {named(attempt.duplicate_of)} but for comments and formatting"
    return f"compiles to the same machine code as {named(attempt.duplicate_of)}"


def summary(
    answer: Answer, shown: AttemptShown, kind: Kind, problem: Problem | None, doing: str | None
) -> str:  # fmt: skip
    attempt = answer.attempt
    name = "The baseline" if attempt.number == BASELINE else f"Attempt {attempt.number}"
    if kind is Kind.RUNNING:
        return f"{name} of run {shown.run_id} is being evaluated: {words(doing or 'by another server', 80)}."
    head = name
    if (same := same_as(answer)) is not None:
        head += f" {same}, which ended as {kind}"
    elif shown.verdict is None:
        head += f" has no result: {kind}"
    else:
        head += f": {shown.verdict}" + (", accepted" if shown.accepted and shown.verdict != "accept" else "")
        head += "" if kind is Kind.OK else f" ({kind})"
    # The baseline's reason says it all.
    parts = [] if attempt.number == BASELINE and kind is Kind.OK and shown.reasons else [head + "."]
    if shown.score is not None:
        parts.append(f"{score_words(shown.score)} the baseline's speed{_against_best(shown)}.")
    if problem is not None:
        where = f" (line {problem.line})" if problem.line else ""
        parts.append(f"{words(problem.message, 240)}{where}")
    elif _untimed(answer):
        # Why is a reason of its own.
        parts.append("The baseline is right, and not timed." if attempt.number == BASELINE else "Right, and not timed.")
    elif shown.reasons and attempt.duplicate_of is None:
        parts.append(f"{_sentence(shown.reasons[0])}.")
    return " ".join(parts)


def _untimed(answer: Answer) -> bool:
    """Whether it is right, and nothing is known of its time."""
    attempt, evidence = answer.attempt, answer.attempt.evidence
    return attempt.duplicate_of is None and evidence is not None and evidence.untimed is not None


def _against_best(shown: AttemptShown) -> str:
    versus = shown.versus_incumbent
    if versus is None or versus.attempt == BASELINE:
        return f", {versus.comparison}" if versus is not None else ""
    return f"; {score_words(versus)} that of {named(versus.attempt)}: {versus.comparison}"


def next_step(answer: Answer, kind: Kind) -> str:
    attempt, run = answer.attempt, answer.run
    run_id, number = run.frozen.run_id, attempt.number
    if kind is Kind.RUNNING:
        return f"Call get_run(run_id='{run_id}', attempt={number}, wait_s={GO_ON_S})."
    if run.state == "finished":
        return (
            f"The run is over ({words(run.ended_by or 'ended', 40)}): its best is {named(run.incumbent)}. "
            f"get_run(run_id='{run_id}') shows how it came about; report that ratio with its interval."
        )
    if run.state == "failed":
        return "Mend the baseline or the task, and call start_optimization again."
    submit = f"submit_candidate(run_id='{run_id}', kernel=..., strategy=..., parent="
    if kind in FAILURES and attempt.duplicate_of is None:
        parent = BASELINE if attempt.parent is None else attempt.parent
        return f"Mend it as problem says, or drop the idea; then {submit}{parent})."
    lever = attempt.verdict.lever if attempt.verdict is not None else None
    if lever is None and attempt.hints:
        lever = attempt.hints[0].text
    first = "" if lever is None else f"{_sentence(words(lever, 120))}. "
    suggestion = suggest_parent(answer.memory)
    parent = suggestion.number
    why = ""
    if not is_timed(answer.memory):
        before = next((each.parent for each in answer.memory.attempts if each.number == parent), None)
        why = "" if before is None else f" (of {named(before)}, if compiled code got worse)"
    elif parent != run.incumbent:
        why = f" ({words(suggestion.why)})"
    return f"{first}Change one thing of {named(parent)}{why}, then {submit}{parent})."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")


def score_words(score: Score | Best) -> str:
    """A ratio with its interval."""
    return f"{score.ratio:.3g}x ({score.ratio_low:.3g} to {score.ratio_high:.3g})"


def attempt_lines(shown: AttemptShown, summed_up: str) -> list[str]:
    """What the structured content has beside the summary, in words."""
    told = [f"- {reason}" for reason in shown.reasons if f"{_sentence(reason)}." not in summed_up]
    if shown.confirmed is not None:
        told.append(f"Second look: {confirmed_words(shown.confirmed)}.")
    told += [_case_line(case) for case in shown.cases]
    if shown.cases_omitted:
        told.append(f"  {shown.cases_omitted} more case(s) not shown.")
    for finding in shown.findings:
        where = "" if finding.line is None else f" (line {finding.line})"
        gain = "" if finding.expected_pct is None else f", expected gain {finding.expected_pct:.0f} % of the time"
        told.append(f"Finding {finding.id} {finding.title}{where}{gain} -> {finding.recipe}")
    for hint in shown.hints:
        because = f" [{'; '.join(hint.because)}]" if hint.because else ""
        told.append(f"Hint: {hint.text}{because}" + ("" if hint.finding is None else f" ({hint.finding})"))
    told += [f"Note: {remark}" for remark in shown.remarks]
    if shown.run_state is not None and shown.incumbent is not None:
        told.append(f"Run {shown.run_id} is {shown.run_state}: {standing_words(shown.incumbent, shown.attempts_left)}.")
    if shown.verified is not None:
        told.append(f"Measured once more beside the baseline at the end: {confirmed_words(shown.verified)}.")
    if shown.seconds:
        told.append("Took " + ", ".join(f"{stage} {spent:g} s" for stage, spent in shown.seconds.items()) + ".")
    return told


def standing_words(incumbent: Best, left: int | None) -> str:
    """The best attempt and what is left of the budget, in words."""
    measured = "" if incumbent.ratio is None else f" at {score_words(incumbent)} the baseline's speed"
    return f"best is {named(incumbent.attempt)}{measured}; {left} attempt(s) left"


def _case_line(case: CaseShown) -> str:
    beside = ""
    if case.ratio is not None and case.low is not None and case.high is not None:
        beside = f", {case.ratio:.3g}x ({case.low:.3g} to {case.high:.3g}) {case.comparison}"
    light = "" if case.speed_of_light_pct is None else f", {case.speed_of_light_pct:.0f} % of the speed of light"
    return f"  {case.case}: {case.device_us:g} us{beside}{light}"


def predicted_words(predicted: Prediction) -> str:
    """What a finding promised and what came of it, in one line."""
    parts = [
        *([] if predicted.expected_pct is None else [f"{predicted.expected_pct:g} %"]),
        *([] if predicted.at_most_pct is None else [f"{predicted.at_most_pct:g} % at most"]),
    ]
    verdict = {"less": "less than expected", "more": "more than that", "as_expected": "as expected"}[predicted.came]
    seen = f"{predicted.seen_pct:.1f} % ({predicted.seen_low_pct:.1f} to {predicted.seen_high_pct:.1f})"
    return (
        f"follows {predicted.finding} of {named(predicted.parent)}: promised {', '.join(parts)} of the time in case "
        f"{words(predicted.case, 40)}, saved {seen}: {verdict}"
    )


def confirmed_words(confirmed: Confirmed) -> str:
    """A second look, in words."""
    told = f"{confirmed.kind}, {confirmed.hidden_checked} hidden case(s) checked"
    if confirmed.ratio is None:
        return told
    return f"{told}, {confirmed.ratio:.3g}x ({confirmed.ratio_low:.3g} to {confirmed.ratio_high:.3g}) when timed again"
