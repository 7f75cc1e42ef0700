"""Advice for candidates that are right: what an edit left undone, where time is left, what limits now.

To add some, declare a `HintRule` in `RULES`. What an edit did to the code and to its counters is told by signs, in
`hint_signs` and `hint_counters`.
"""

import math
from collections.abc import Iterable
from typing import Final

from ..ncu.causes import causes
from .hint_context import Seen, counted, lowered, named, settings, share, times
from .hint_counters import limiting_stall
from .hint_rule import ALONE, FASTER, MEASURED, NOT_FASTER, UNMEASURED, HintRule, Values
from .hint_signs import compiled_marks
from .lesson_gains import saved_pct
from .lesson_kinds import named_findings
from .model import CaseTiming, FindingNote, Timing

LAUNCH_BOUND: Final = 2.0
"""Time of a call over that of its kernels, from which kernels are not what limits."""
HEADROOM_LEAST: Final = 1.1
"""How many times faster a case could get, to be worth naming."""


def visible(timing: Timing | None) -> list[CaseTiming]:
    """The cases that may be told."""
    return [] if timing is None else [case for case in timing.cases if not case.hidden]


def _nothing_changed(seen: Seen) -> Values | None:
    if not seen.unchanged:
        return None
    pairs = seen.beside.pairs
    same_host = seen.parent is not None and seen.evidence.identity == seen.parent.identity
    return {
        "parent": named(seen.parent_number),
        "why": "the edit is optimized away or is the same in other words" if same_host else "only host code differs",
        "launches": f"launches of equal code and grid: {len(pairs)}",
        "hash": f"code {pairs[0].after.code_hash[:12]}",
    }  # fmt: skip


def _still_there(seen: Seen) -> Values | None:
    """A finding that the strategy names, in the diagnoses before and after."""
    before = seen.findings_before
    if before is None:
        return None
    known = {finding.id for finding in before}
    for id in named_findings(seen.strategy):
        left = next((finding for finding in seen.findings if finding.id == id), None)
        if left is not None and id in known:
            return _of_finding(left)
    return None


def _gone_in_vain(seen: Seen) -> Values | None:
    before = seen.findings_before
    if before is None or any(not mark.better for mark in compiled_marks(seen.beside.pairs)):
        return None
    left = {finding.id for finding in seen.findings}
    gone = next((finding for finding in before if finding.id not in left), None)
    if gone is None:
        return None
    after = seen.findings[0] if seen.findings else None
    then = "look at what limits now" if after is None else f"next is {after.id}, {lowered(after.title)}{_line(after)}"
    return _of_finding(gone) | {"then": then, "saved": time_moved(seen)}


def _appeared(seen: Seen) -> Values | None:
    if seen.findings_before is None:
        return None
    known = {finding.id for finding in seen.findings_before}
    new = next((finding for finding in seen.findings if finding.id not in known), None)
    return None if new is None else _of_finding(new)


def _next_finding(seen: Seen) -> Values | None:
    """The weightiest finding that no attempt was aimed at yet; the weightiest where all were tried."""
    tried = {id for text in _strategies(seen) for id in named_findings(text)}
    known = {finding.id for finding in seen.findings_before or ()}
    # What came with this edit is told by another rule.
    open_ones = [one for one in seen.findings if seen.findings_before is None or one.id in known]
    untried = [one for one in open_ones if one.id not in tried]
    if not untried:
        return None
    return _of_finding(untried[0]) | {"rest": _others(untried[1:3])}


def _strategies(seen: Seen) -> Iterable[str]:
    yield seen.strategy
    for attempt in seen.earlier:
        yield attempt.strategy


def _others(findings: list[FindingNote]) -> str:
    return f"then: {', '.join(f'{one.id} {lowered(one.title)}' for one in findings)}" if findings else ""


def _of_finding(finding: FindingNote) -> Values:
    expected = "" if finding.expected_pct is None else f"expected to save {share(finding.expected_pct)} of the launch"
    at_most = "" if finding.at_most_pct is None else f"at most {share(finding.at_most_pct)} to save"
    return {
        "id": finding.id, "title": lowered(finding.title), "line": _line(finding), "recipe": lowered(finding.recipe),
        "finding": finding.id, "expected": expected or at_most or "what it saves is not measured",
    }  # fmt: skip


def _line(finding: FindingNote) -> str:
    return "" if finding.line is None else f" at line {finding.line}"


def _done(seen: Seen) -> Values | None:
    diagnosed = seen.evidence.diagnosed
    if diagnosed is None or diagnosed.done is None:
        return None
    return {"done": lowered(diagnosed.done), "case": diagnosed.case, "light": _light(seen)}


def _light(seen: Seen) -> str:
    shares = [f"{case.case} {share(case.speed_of_light_pct)}" for case in seen.evidence.own
              if case.speed_of_light_pct is not None]  # fmt: skip
    return f"speed of light: {', '.join(shares)}" if shares else ""


def _most_left(seen: Seen) -> Values | None:
    """The case whose headroom is worth most of the score."""
    cases = [case for case in seen.evidence.own if case.headroom is not None and case.headroom >= HEADROOM_LEAST]
    if len(seen.evidence.own) < 2 or not cases:
        return None
    # The score is a weighted mean of logarithms: a case counts by its weight, however short it is.
    most = max(cases, key=lambda case: case.weight * math.log(case.headroom or 1.0))
    light = most.speed_of_light_pct
    reached = "" if light is None else f" at {share(light)} of the speed of light:"
    return {
        "case": most.case, "headroom": f"{most.headroom:.3g}", "reached": reached, "light": _light(seen),
        "own": f"{most.case}: {times(most.device_us)}, weight {most.weight:g}",
    }  # fmt: skip


def _mixed_cases(seen: Seen) -> Values | None:
    """Some cases gained and others lost."""
    cases = visible(None if seen.gain is None else seen.gain.timing)
    lost = min((case for case in cases if case.comparison == "slower"), key=lambda case: case.ratio, default=None)
    won = max((case for case in cases if case.comparison == "faster"), key=lambda case: case.ratio, default=None)
    if lost is None or won is None:
        return None
    return {
        "lost": lost.case, "lost_pct": share(-saved_pct(lost.ratio)), "won": won.case,
        "won_pct": share(saved_pct(won.ratio)), "lost_ratio": _interval(lost), "won_ratio": _interval(won),
    }  # fmt: skip


def _interval(case: CaseTiming) -> str:
    return f"{case.case}: ratio {case.ratio:.3f} ({case.ratio_low:.3f} to {case.ratio_high:.3f})"


def _launch_bound(seen: Seen) -> Values | None:
    flagged = {case.case for timing in seen.evidence.timings for case in visible(timing) if case.launch_bound}
    bound = [one for one in seen.evidence.own if one.case in flagged or one.call_us > LAUNCH_BOUND * one.device_us]
    if not bound:
        return None
    worst = max(bound, key=lambda one: one.weight * (one.call_us - one.device_us))
    launches = sum(launch.case == worst.case for launch in seen.evidence.launches)
    return {
        "case": worst.case, "call": times(worst.call_us), "device": times(worst.device_us),
        "launches": f"{launches} distinct launches" if launches > 1 else "",
    }  # fmt: skip


def _calls_lost(seen: Seen) -> Values | None:
    """Kernels gained what the host lost."""
    for case in visible(None if seen.gain is None else seen.gain.timing):
        if case.call_ratio is None or case.call_ratio_high is None or case.call_ratio_high >= 1:
            continue
        if case.ratio_low > 1:
            return {
                "case": case.case, "won": share(saved_pct(case.ratio)), "lost": share(-saved_pct(case.call_ratio)),
                "device": _interval(case),
                "call": f"{case.case}: ratio of calls {case.call_ratio:.3f}, at most {case.call_ratio_high:.3f}",
            }  # fmt: skip
    return None


def _onto_the_incumbent(seen: Seen) -> Values | None:
    """Faster than its parent, and slower than the incumbent."""
    incumbent = seen.memory.incumbent
    timing = seen.evidence.timing(incumbent)
    if seen.parent_number is None or incumbent == seen.parent_number or timing is None:
        return None
    if timing.comparison != "slower":
        return None
    return {
        "incumbent": named(incumbent), "parent": named(seen.parent_number), "saved": time_moved(seen),
        "behind": f"ratio to {named(incumbent)} {timing.ratio:.3f} ({timing.ratio_low:.3f} to {timing.ratio_high:.3f})",
    }  # fmt: skip


def _more_launches(seen: Seen) -> Values | None:
    new, gone = len(seen.beside.new), len(seen.beside.gone)
    if new <= gone:
        return None
    names = dict.fromkeys(facts.kernel for facts in seen.beside.new)
    total = len(seen.beside.pairs) + new
    return {"names": ", ".join(names), "before": str(total - new + gone), "after": str(total)}


def _limit(seen: Seen) -> Values | None:
    """What its longest launch waits for or fills, where no finding says more."""
    diagnosed = seen.evidence.diagnosed
    if diagnosed is None or not diagnosed.profiles:
        return None
    profile = max(diagnosed.profiles, key=lambda one: one.duration_us or 0)
    found = causes(profile)
    if not found:
        return None
    return {
        "suggestion": lowered(found[0].suggestion), "text": found[0].text, "case": diagnosed.case,
        "kernel": profile.kernel,
    }  # fmt: skip


def _no_hold(seen: Seen) -> Values | None:
    """Something was set differently and nothing came of it."""
    changed = list(dict.fromkeys(
        text for pair in seen.beside.pairs for text in settings(pair.before, pair.after).values()
    ))  # fmt: skip
    if not changed or seen.unchanged:
        return None
    return {"changed": ", ".join(changed), "saved": time_moved(seen), "stall": limiting_stall(seen.profiles) or ""}


def _too_small_to_tell(seen: Seen) -> Values | None:
    least = [case.min_detectable_pct for case in visible(None if seen.gain is None else seen.gain.timing)
             if case.min_detectable_pct is not None]  # fmt: skip
    if not least:
        return None
    return {"least": share(max(least)), "saved": time_moved(seen)}


def time_moved(seen: Seen) -> str:
    """The gain beside the parent, as a number with its interval."""
    gain = seen.gain
    if gain is None:
        return ""
    what = "saved" if gain.ratio >= 1 else "lost"
    interval = f"ratio {gain.ratio:.3f}, {gain.low:.3f} to {gain.high:.3f}"
    return f"time {what} beside {named(gain.against)}: {share(abs(gain.saved_pct))} ({interval})"


def _unmeasured(seen: Seen) -> Values | None:
    device = seen.evidence.device
    return {"checked": "" if device is None else f"results checked on {device}"}


def _unconfirmed(seen: Seen) -> Values | None:
    confirmation = seen.evidence.confirmation
    if confirmation is None:
        return None
    problem = confirmation.problem
    fix = (problem.likely_fix if problem is not None else None) or (
        "mask every edge, and take nothing from the sizes or values of the visible cases"
    )
    return {
        "kind": confirmation.kind.value.replace("_", " "), "fix": lowered(fix),
        "checked": counted(confirmation.hidden_checked, "hidden case") + " checked",
    }  # fmt: skip


RULES: Final[tuple[HintRule, ...]] = (
    HintRule(
        "unconfirmed", frozenset({"unconfirmed"}), 100, _unconfirmed,
        "right and fast at first, {kind} in the second look with fresh seeds and shapes: {fix}", ("{checked}",),
    ),
    HintRule(
        "nothing_changed", NOT_FASTER | UNMEASURED, 100, _nothing_changed,
        "nothing changed on the GPU beside {parent}: {why}; change what the compiler sees and check it with "
        "compile_kernel first",
        ("{launches}", "{hash}"),
    ),
    HintRule(
        "still_there", MEASURED | UNMEASURED, 98, _still_there,
        "{id} is still there{line}: the edit did not reach its cause; {recipe}", ("{expected}",),
    ),
    HintRule(
        "mixed_cases", MEASURED, 92, _mixed_cases,
        "case {won} gained {won_pct} and case {lost} lost {lost_pct}: choose tile or warps by shape on the host, the "
        "old ones for {lost}",
        ("{won_ratio}", "{lost_ratio}"),
    ),
    HintRule(
        "onto_the_incumbent", FASTER, 91, _onto_the_incumbent,
        "faster than {parent}, behind {incumbent}: make the same edit there", ("{saved}", "{behind}"),
    ),
    HintRule(
        "appeared", NOT_FASTER, 90, _appeared,
        "{id} came with this edit{line}, {title}: {recipe}", ("{expected}",),
    ),
    HintRule(
        "done", MEASURED | ALONE, 89, _done, "little is left in case {case}: {done}", ("{light}",),
    ),
    HintRule(
        "calls_lost", FASTER, 88, _calls_lost,
        "kernels of case {case} gained {won}, whole calls lost {lost}: take host work or launches out of the entry",
        ("{device}", "{call}"),
    ),
    HintRule(
        "launch_bound", MEASURED | ALONE, 87, _launch_bound,
        "a call of case {case} takes {call}, its kernels {device}: fewer launches and less host code, not a faster "
        "kernel",
        ("{case}: call {call}, device {device}", "{launches}"),
    ),
    HintRule(
        "next", FASTER | ALONE | UNMEASURED, 86, _next_finding, "next {id}{line}, {title}: {recipe}",
        ("{expected}", "{rest}"),
    ),
    HintRule(
        "gone_in_vain", NOT_FASTER, 80, _gone_in_vain,
        "{id} is gone and no time with it, so it was not what limits: {then}", ("{saved}", "{expected}"),
    ),
    HintRule(
        "more_launches", NOT_FASTER | UNMEASURED, 74, _more_launches,
        "{after} launches instead of {before}, {names} is new: fuse them, or let one pass write what the next reads",
        ("launches {before} -> {after}",),
    ),
    HintRule(
        "next_instead", NOT_FASTER, 70, _next_finding, "instead try {id}{line}, {title}: {recipe}",
        ("{expected}", "{rest}"),
    ),
    HintRule(
        "most_left", MEASURED | ALONE, 65, _most_left,
        "most is left in case {case},{reached} it could be {headroom} times faster at most; "
        "tune for it and profile it",
        ("{own}", "{light}"),
    ),
    HintRule(
        "no_hold", frozenset({"same"}), 50, _no_hold,
        "{changed} made no difference: this lever has no hold here, try one of another kind", ("{saved}", "{stall}"),
    ),
    HintRule(
        "limit", MEASURED | ALONE, 45, _limit, "what limits {kernel} now: {suggestion}", ("{text}", "case {case}")
    ),
    HintRule("came_with", FASTER, 40, _appeared, "{id} came with this edit{line}, {title}: {recipe}", ("{expected}",)),
    HintRule(
        "too_small", frozenset({"ambiguous"}), 35, _too_small_to_tell,
        "too small to tell: a change under {least} is not seen here; make a larger one, or leave it", ("{saved}",),
    ),
    HintRule(
        "unmeasured", UNMEASURED, 30, _unmeasured,
        "judge by compiled code only, and time it on a GPU before relying on it", ("{checked}",),
    ),
)  # fmt: skip
