"""What an evaluation tells a search framework: side information as data, and feedback in words."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..profiling.optimization.model import BASELINE, CaseTiming, Evidence, Hint
from ..sandbox.outcome import Kind, Problem
from .results import readable
from .tools.run_shown import words

PROBLEM_CHARACTERS: Final = {
    "message": 1200, "file": 200, "excerpt": 1000, "likely_cause": 300, "likely_fix": 400, "output": 600,
}  # fmt: skip
CASES: Final = 20
LAUNCHES: Final = 12
FINDINGS: Final = 5


def side_info(
    evidence: Evidence,
    problem: Problem | None,
    advice: Sequence[Hint],
    why_no_score: str | None,
    reasons: Sequence[str] | None,
) -> dict[str, Any]:
    """What is known of a candidate, as JSON; of hidden cases, no more than whether they passed.

    Args:
        evidence: what was found.
        problem: why it failed.
        advice: what to change next.
        why_no_score: why it was not timed.
        reasons: why a run would not accept it, where it was timed and is right.
    """
    timing, second, diagnosed = evidence.timing(BASELINE), evidence.confirmation, evidence.diagnosed
    cases = [] if timing is None else [case for case in timing.cases if not case.hidden]
    return {
        "stage": evidence.stage,
        "problem": None if problem is None else _problem(problem),
        "device": evidence.device,
        "why_no_score": why_no_score,
        "ratio": None if timing is None else _interval(timing.ratio, timing.ratio_low, timing.ratio_high),
        "comparison": None if timing is None else timing.comparison,
        "reasons": [words(reason) for reason in reasons or ()],
        "cases": [_case(case) for case in cases[:CASES]],
        "second_look": None
        if second is None
        else {
            "kind": second.kind.value,
            "hidden_checked": second.hidden_checked,
            "ratio": None if second.timing is None else round(second.timing.ratio, 4),
        },
        "findings": []
        if diagnosed is None
        else [
            {"id": note.id, "title": words(note.title), "line": note.line, "recipe": words(note.recipe, 400)}
            for note in diagnosed.findings[:FINDINGS]
        ],
        "hints": [
            {"text": words(hint.text, 400), "because": [words(each) for each in hint.because]} for hint in advice
        ],
        "launches": [
            {
                "case": launch.case,
                "kernel": launch.facts.kernel,
                "num_warps": launch.facts.num_warps,
                "registers": launch.facts.registers,
                "spill_bytes": launch.facts.spill_bytes,
                "shared_bytes": launch.facts.shared_bytes,
                "theoretical_occupancy_pct": launch.facts.theoretical_occupancy_pct,
            }
            for launch in evidence.launches[:LAUNCHES]
        ],
        "seconds": {stage: round(spent, 2) for stage, spent in evidence.seconds.items()},
    }


def feedback(kind: Kind, score: float | None, side: Mapping[str, Any]) -> str:
    """The same for a model, most important first."""
    lines = [_headline(kind, score, side)]
    problem: Mapping[str, Any] | None = side["problem"]
    if problem is not None:
        where = f" (line {problem['line']})" if problem.get("line") else ""
        lines.append(f"{problem['stage']}: {problem['message']}{where}")
        lines += [problem["excerpt"]] if problem.get("excerpt") else []
        lines += [f"Likely cause: {problem['likely_cause']}"] if problem.get("likely_cause") else []
        lines += [f"Likely fix: {problem['likely_fix']}"] if problem.get("likely_fix") else []
        lines += [f"It printed:\n{problem['output']}"] if problem.get("output") else []
    lines += [f"- {reason}" for reason in side["reasons"]]
    lines += [_case_line(case) for case in side["cases"]]
    for finding in side["findings"]:
        where = "" if finding["line"] is None else f" (line {finding['line']})"
        lines.append(f"Finding {finding['id']} {finding['title']}{where}: {finding['recipe']}")
    for hint in side["hints"]:
        because = f" [{'; '.join(hint['because'])}]" if hint["because"] else ""
        lines.append(f"Hint: {hint['text']}{because}")
    return "\n".join(lines)


def _headline(kind: Kind, score: float | None, side: Mapping[str, Any]) -> str:
    if score is None:
        return f"Right in all cases that were checked; no score: {side['why_no_score']}."
    if kind is not Kind.OK:
        return f"Score 0: it failed, {kind}."
    second = side["second_look"]
    again = "" if second is None or second["ratio"] is None else f", {second['ratio']:.3g}x when timed again"
    ratio = side["ratio"]
    return (
        f"Score {score:.4g}: right in all cases, {ratio['ratio']:.3g}x ({ratio['low']:.3g} to {ratio['high']:.3g}) the "
        f"baseline's speed{again}: {side['comparison']}."
    )


def _case_line(case: Mapping[str, Any]) -> str:
    share = case["speed_of_light_pct"]
    light = "" if share is None else f", {share:.0f} % of the speed of light"
    return (
        f"  {case['case']}: {case['device_us']:g} us, {case['ratio']:.3g}x ({case['low']:.3g} to {case['high']:.3g}) "
        f"{case['comparison']}{light}"
    )


def _case(case: CaseTiming) -> dict[str, Any]:
    share = case.speed_of_light_pct
    return {
        "case": case.case,
        "device_us": round(case.device_us, 2),
        **_interval(case.ratio, case.ratio_low, case.ratio_high),
        "comparison": case.comparison,
        "speed_of_light_pct": None if share is None else round(share, 1),
    }


def _interval(ratio: float, low: float, high: float) -> dict[str, float]:
    return {"ratio": round(ratio, 4), "low": round(low, 4), "high": round(high, 4)}


def _problem(problem: Problem) -> dict[str, Any]:
    found = problem.model_dump(mode="json", exclude_none=True)
    limited = {name: readable(found[name], limit) for name, limit in PROBLEM_CHARACTERS.items() if name in found}
    return {**found, **limited}
