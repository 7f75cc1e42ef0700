"""The judge of a run: accept, continue or finish. Pure functions over measurements, budget and limits.

What speaks against a candidate is in `objections`, what ends a run in `ending`; the decision table that both make up is
in docs/optimization-runs.md.
"""

import math
from typing import Final

from ...sandbox.outcome import Kind
from .ending import EndedBy, ending, ends, incumbent_share
from .model import Attempt, Evidence, Memory, Verdict
from .novelty import diagnosed_one, untried
from .objections import Refusal, of_first_look, of_second_look
from .population import suggest_parent
from .scores import by_number, name_of, next_number, ratio_of, score_of, share_of_light, short, whole_calls

__all__ = ["EndedBy", "Refusal", "decide", "ends", "promising", "refusal", "score_of", "share_of_light"]

REASONS: Final = 5
"""Of a verdict, at most."""


def promising(evidence: Evidence, memory: Memory) -> Refusal | None:
    """Whether a candidate's first measurement earns it a second look: None if it does, else what speaks against it."""
    return of_first_look(evidence, memory)


def refusal(evidence: Evidence, memory: Memory) -> Refusal | None:
    """What speaks against accepting a candidate after both looks; None: nothing does."""
    return of_first_look(evidence, memory) or of_second_look(evidence, memory)


def decide(evidence: Evidence, memory: Memory, strategy: str = "") -> Verdict:
    """The verdict over a candidate or, where `memory` has no attempts yet, over the baseline, which is never accepted:
    it is the incumbent as it is.

    Args:
        evidence: what was found.
        memory: what the run knew before.
        strategy: what the candidate tries: that is not advised next.
    """
    first = not memory.attempts
    refused = None if first else refusal(evidence, memory)
    accepted = not first and refused is None
    after = _after(evidence, memory, strategy, accepted=accepted)
    over = ending(after)
    if first:
        reasons = _of_baseline(evidence, after)
    elif refused is None:
        reasons = _of_accepted(evidence, after, memory.incumbent)
    else:
        reasons = refused.reasons
    if over is not None:
        reasons = [over.reason, *reasons]
    lever = None
    if over is None:
        lever = short((refused.lever if refused is not None else None) or _next(after))
    return Verdict(
        verdict="finish" if over is not None else "accept" if accepted else "continue",
        accepted=accepted,
        reasons=[short(reason) for reason in reasons[:REASONS]],
        lever=lever,
        ended_by=None if over is None else over.by,
    )


def _after(evidence: Evidence, memory: Memory, strategy: str, *, accepted: bool) -> Memory:
    """What is known of the run once this attempt is finished."""
    number = next_number(memory)
    attempt = Attempt(
        number=number,
        state="finished",
        parent=memory.incumbent if number else None,
        strategy=strategy,
        kernel_sha256="",
        text_identity="",
        submitted_at="",
        counted=number > 0 and (evidence.kind is Kind.OK or memory.budget.failed_count),
        accepted=accepted,
        evidence=evidence,
    )
    incumbent = number if accepted else memory.incumbent
    return memory.model_copy(update={"attempts": [*memory.attempts, attempt], "incumbent": incumbent})


def _of_baseline(evidence: Evidence, after: Memory) -> list[str]:
    if evidence.kind is not Kind.OK:
        problem = evidence.problem
        return [f"the baseline itself ended as {evidence.kind}{f': {problem.message}' if problem is not None else ''}"]
    if evidence.untimed is not None:
        return [evidence.untimed]
    share = incumbent_share(after)
    known = "how far the baseline is from the speed of light is not known"
    reasons = [known if share is None else f"the baseline is at {share:.1f} % of the speed of light"]
    diagnosed = evidence.diagnosed
    if diagnosed is not None and diagnosed.done is not None:
        reasons.append(f"the diagnosis of case {diagnosed.case}: {diagnosed.done}")
    elif diagnosed is not None and diagnosed.findings:
        reasons.append(f"the diagnosis of case {diagnosed.case} has {len(diagnosed.findings)} findings")
    return reasons


def _of_accepted(evidence: Evidence, after: Memory, before: int) -> list[str]:
    """Why, with the numbers of both looks; what it costs; where it stands."""
    timing, confirmation = evidence.timing(before), evidence.confirmation
    if timing is None or confirmation is None or confirmation.timing is None:
        raise AssertionError("accepted without both measurements")
    hidden = f", right in {confirmation.hidden_checked} hidden cases" if confirmation.hidden_checked else ""
    reasons = [
        f"faster than {name_of(before)}: {ratio_of(timing)}, and {ratio_of(confirmation.timing)} at a second look with "
        f"fresh seeds{hidden}"
    ]
    overall = evidence.timing(0)
    if before != 0 and overall is not None:
        reasons.append(f"beside the baseline: {ratio_of(overall)}")
    share = incumbent_share(after)
    if share is not None:
        reasons.append(f"at {share:.1f} % of the speed of light")
    visible = [case for case in timing.cases if not case.hidden]
    lost = [f"{case.case} {ratio_of(case)}" for case in visible if case.comparison == "slower"]
    if lost:
        reasons.append(f"slower within the limit: {', '.join(lost)}")
    bound = [case for case in visible if case.launch_bound]
    calls = whole_calls(bound)
    if bound and calls is not None:
        names = ", ".join(case.case for case in bound)
        reasons.append(f"callers wait for the host in {names}: whole calls {calls}")
    return reasons


def _next(after: Memory) -> str:
    """What to try next where nothing is to be mended: a finding that nothing was tried for, or where most is left."""
    at_hand = after.attempts[-1]
    parent = suggest_parent(after).number
    findings = untried(after.attempts, parent)
    if findings:
        first = findings[0]
        whose = diagnosed_one(after.attempts, parent)
        of = "" if whose is None or whose == at_hand.number else f" of {name_of(whose)}"
        line = f" (line {first.line}{of})" if first.line is not None else ""
        return f"{first.id} {first.title}{line}: {first.recipe}"
    its = by_number(after, parent)
    own = its.evidence.own if its is not None and its.evidence is not None else []
    left = [(case.headroom, case) for case in own if case.headroom is not None and case.headroom > 1]
    if left:
        headroom, most = max(left, key=lambda each: each[1].weight * math.log(each[0]))
        return f"most is left in case {most.case}: at most {headroom:.2f}x"
    return "another algorithm, tiling or order of the work than before"
