"""What speaks against a candidate. Each rule's docstring is a row of the table in docs/optimization-runs.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ...sandbox.outcome import Kind
from .model import BASELINE, CaseTiming, Evidence, Memory, Timing
from .scores import by_number, name_of, ratio_of, score_of, whole_calls


class Objection(NamedTuple):
    """Why a candidate is not accepted."""

    reason: str
    lever: str | None = None
    """What would mend it; None: that takes another idea."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """All that speaks against a candidate."""

    objections: Mapping[str, Objection]
    """By rule, most important first."""

    @property
    def reasons(self) -> list[str]:
        return [objection.reason for objection in self.objections.values()]

    @property
    def lever(self) -> str | None:
        """What would mend the most important one of those that tell it."""
        return next((each.lever for each in self.objections.values() if each.lever is not None), None)


RETRY: Final = "offer it once more with a further change: the same code would be answered from memory"


def of_first_look(evidence: Evidence, memory: Memory) -> Refusal | None:
    """What the first measurement says against a candidate."""
    found = _first(BEFORE, evidence, memory)
    timing = evidence.timing(memory.incumbent)
    if not found and timing is not None:
        found = _all(MEASURED, timing, memory) | _all(HOST, timing, memory) | _all(LIMITS, evidence, memory)
    return Refusal(found) if found else None


def of_second_look(evidence: Evidence, memory: Memory) -> Refusal | None:
    """What its confirmation says against a candidate, or that there is none."""
    found = _first(CONFIRMED, evidence, memory)
    timing = evidence.confirmation.timing if evidence.confirmation is not None else None
    if not found and timing is not None:
        found = {
            f"{AGAIN}{rule}": Objection(f"measured a second time: {each.reason}", each.lever)
            for rule, each in _all(MEASURED, timing, memory).items()
        }
    return Refusal(found) if found else None


# Rules of which the first that objects is the only one: what the others ask is not there then.


def _failed(evidence: Evidence, memory: Memory) -> Objection | None:
    """The candidate failed, or is wrong."""
    if evidence.kind is Kind.OK:
        return None
    problem = evidence.problem
    said = f": {problem.message}" if problem is not None else ""
    fix = problem.likely_fix if problem is not None else None
    return Objection(f"{evidence.kind} at {evidence.stage}{said}", fix or "mend this, from the same parent")


def _untimed(evidence: Evidence, memory: Memory) -> Objection | None:
    """It could not be timed: there is no GPU."""
    if evidence.untimed is None:
        return None
    return Objection(f"right in the visible cases, neither timed nor run on hidden ones: {evidence.untimed}")


def _not_measured(evidence: Evidence, memory: Memory) -> Objection | None:
    """It was not timed beside the incumbent, or not beside the baseline."""
    missing = [number for number in (memory.incumbent, BASELINE) if evidence.timing(number) is None]
    if not missing:
        return None
    beside = evidence.timing(BASELINE)
    if beside is not None and beside.comparison == "slower":
        # That is enough: the incumbent is faster than the baseline.
        return Objection(f"slower than the baseline: {ratio_of(beside)}")
    return Objection(f"it was not timed beside {name_of(missing[0])}", RETRY)


def _incomplete(evidence: Evidence, memory: Memory) -> Objection | None:
    """A case of the baseline was not timed beside the incumbent."""
    timing, baseline = evidence.timing(memory.incumbent), by_number(memory, BASELINE)
    own = baseline.evidence.own if baseline is not None and baseline.evidence is not None else []
    timed = {case.case for case in timing.cases} if timing is not None else set[str]()
    missing = [case.case for case in own if case.case not in timed]
    if timed and not missing:
        return None
    return Objection(f"not timed: {', '.join(f'case {case}' for case in missing) or 'any case'}", RETRY)


def _unconfirmed(evidence: Evidence, memory: Memory) -> Objection | None:
    """There was no second look."""
    if evidence.confirmation is not None:
        return None
    return Objection("its gain was not confirmed by a second look", RETRY)


def _confirmation_failed(evidence: Evidence, memory: Memory) -> Objection | None:
    """The second look failed: a hidden case, a fresh seed or the measurement."""
    confirmation = evidence.confirmation
    if confirmation is None or confirmation.kind is Kind.OK:
        return None
    problem = confirmation.problem
    said = f": {problem.message}" if problem is not None else ""
    fix = problem.likely_fix if problem is not None else None
    return Objection(
        f"the second look, with fresh seeds and hidden cases, ended as {confirmation.kind}{said}",
        fix or "make it right for all shapes and values that the task allows",
    )


def _confirmed_elsewhere(evidence: Evidence, memory: Memory) -> Objection | None:
    """The second look did not time it beside the incumbent."""
    timing = evidence.confirmation.timing if evidence.confirmation is not None else None
    if timing is not None and timing.against == memory.incumbent:
        return None
    return Objection(f"it was not timed a second time beside {name_of(memory.incumbent)}", RETRY)


# Rules that are all asked.


def _slower(timing: Timing, memory: Memory) -> Objection | None:
    """The score is `slower` than the incumbent's."""
    if timing.comparison != "slower":
        return None
    return Objection(f"slower than {name_of(timing.against)}: {ratio_of(timing)}")


def _not_faster(timing: Timing, memory: Memory) -> Objection | None:
    """The score is not `faster` than the incumbent's, or its interval reaches 1."""
    if timing.comparison == "slower" or (timing.comparison == "faster" and timing.ratio_low > 1):
        return None
    smallest = [case.min_detectable_pct for case in timing.cases if case.min_detectable_pct is not None]
    seen = f"; of a case, changes from {max(smallest):.1f} % on can be seen" if smallest else ""
    told = timing.comparison if timing.comparison != "faster" else "the interval reaches 1"
    return Objection(f"not faster than {name_of(timing.against)} beyond noise: {ratio_of(timing)}, {told}{seen}")


def _case_slower(timing: Timing, memory: Memory) -> Objection | None:
    """A case takes more than `case_regression_pct` longer than with the incumbent: by the whole interval, or it is
    `slower` and its ratio says so. Not told where the score is `slower`."""
    lost = _lost(timing, memory)
    if not lost or timing.comparison == "slower":
        return None
    worst = min(lost, key=lambda case: case.ratio)
    more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
    limit = memory.limits.case_regression_pct
    return Objection(
        f"{_called(worst)}{more} is slower than with {name_of(timing.against)}: {ratio_of(worst)}, "
        f"{limit:g} % may be lost",
        "keep the gain of the other cases, and give shapes like this one a configuration of their own",
    )


def _call_slower(timing: Timing, memory: Memory) -> Objection | None:
    """Whole calls of a case, host included, take more than `total_regression_pct` longer than with the incumbent, by
    the whole interval. Not told where the score is `slower`, nor of cases that `case_slower` has."""
    limit, known = memory.limits.total_regression_pct, _lost(timing, memory)
    lost = [
        (case.call_ratio_high, case)
        for case in timing.cases
        if case.call_ratio_high is not None and case.call_ratio_high < _floor(limit) and case not in known
    ]
    if not lost or timing.comparison == "slower":
        return None
    ratio, worst = min(lost, key=lambda each: each[0])
    return Objection(
        f"whole calls of {_called(worst)} are slower than with {name_of(timing.against)}: {ratio:.3f}x at most, "
        f"{limit:g} % may be lost",
        "save host work: allocations, checks, further launches",
    )


def _lost(timing: Timing, memory: Memory) -> list[CaseTiming]:
    floor = _floor(memory.limits.case_regression_pct)
    return [
        case for case in timing.cases if case.ratio_high < floor or (case.comparison == "slower" and case.ratio < floor)
    ]


def _called(case: CaseTiming) -> str:
    return "a hidden case" if case.hidden else f"case {case.case}"


def _host_bound(timing: Timing, memory: Memory) -> Objection | None:
    """The score is `faster`, but there are launch-bound cases, no others that are `faster`, and whole calls of theirs
    did not gain beyond noise, or were not timed."""
    if timing.comparison != "faster":
        return None
    visible = [case for case in timing.cases if not case.hidden]
    bound = [case for case in visible if case.launch_bound]
    if not bound or any(case.comparison == "faster" and not case.launch_bound for case in visible):
        return None
    calls = whole_calls(bound)
    if calls is not None and calls.low > 1:
        return None
    told = "could not be timed" if calls is None else f"did not gain: {calls}"
    return Objection(
        f"only the device gained ({ratio_of(timing)}): callers wait for the host, and whole calls {told}",
        "save launches and host work: what the kernel itself takes no caller sees",
    )


def _below_best(evidence: Evidence, memory: Memory) -> Objection | None:
    """It is `faster` than the incumbent, and beside the baseline slower than that was, by the intervals and
    `case_regression_pct` more: the measurements contradict one another."""
    timing, incumbent = evidence.timing(BASELINE), by_number(memory, memory.incumbent)
    best = score_of(incumbent) if incumbent is not None and incumbent.number != BASELINE else None
    beside = evidence.timing(memory.incumbent)
    if beside is None or beside.comparison != "faster":
        return None  # nothing contradicts
    if timing is None or best is None or timing.ratio_high >= best.low * _floor(memory.limits.case_regression_pct):
        return None
    name = name_of(memory.incumbent)
    return Objection(
        f"the measurements contradict: beside the baseline {ratio_of(timing)}, where {name} had {best}",
        RETRY,
    )


def _registers(evidence: Evidence, memory: Memory) -> Objection | None:
    """A launch takes more than `registers` a thread."""
    limit = memory.limits.registers
    used = max((each.facts.registers or 0 for each in evidence.launches), default=0)
    if limit is None or used <= limit:
        return None
    return Objection(f"{used} registers a thread, {limit} are allowed", "smaller tiles, more warps or fewer stages")


def _shared_memory(evidence: Evidence, memory: Memory) -> Objection | None:
    """A launch takes more than `shared_bytes` a block."""
    limit = memory.limits.shared_bytes
    used = max((each.facts.shared_bytes for each in evidence.launches), default=0)
    if limit is None or used <= limit:
        return None
    return Objection(f"{used} bytes of shared memory a block, {limit} are allowed", "fewer stages or smaller tiles")


def _first_call(evidence: Evidence, memory: Memory) -> Objection | None:
    """Compile and autotuning of a case took more than `first_call_s`."""
    limit = memory.limits.first_call_s
    timed = [case.first_call_s for timing in evidence.timings for case in timing.cases]
    used = max([case.first_call_s for case in evidence.own] + timed, default=0.0)
    if limit is None or used <= limit:
        return None
    return Objection(f"compile and autotuning took {used:.0f} s, {limit:g} s are allowed", "tune fewer configurations")


AGAIN: Final = "again_"

OfEvidence = Callable[[Evidence, Memory], Objection | None]
OfTiming = Callable[[Timing, Memory], Objection | None]

BEFORE: Final[Mapping[str, OfEvidence]] = {
    "failed": _failed,
    "untimed": _untimed,
    "not_measured": _not_measured,
    "incomplete": _incomplete,
}
MEASURED: Final[Mapping[str, OfTiming]] = {
    "slower": _slower,
    "not_faster": _not_faster,
    "case_slower": _case_slower,
    "call_slower": _call_slower,
}
"""Asked of both measurements, of the second with `AGAIN` in front."""
HOST: Final[Mapping[str, OfTiming]] = {"host_bound": _host_bound}
LIMITS: Final[Mapping[str, OfEvidence]] = {
    "below_best": _below_best,
    "registers": _registers,
    "shared_memory": _shared_memory,
    "first_call": _first_call,
}
CONFIRMED: Final[Mapping[str, OfEvidence]] = {
    "unconfirmed": _unconfirmed,
    "confirmation_failed": _confirmation_failed,
    "confirmed_elsewhere": _confirmed_elsewhere,
}

_Subject = TypeVar("_Subject", Evidence, Timing)


def _all(
    rules: Mapping[str, Callable[[_Subject, Memory], Objection | None]], subject: _Subject, memory: Memory
) -> dict[str, Objection]:
    """What each rule says."""
    said = {name: rule(subject, memory) for name, rule in rules.items()}
    return {name: each for name, each in said.items() if each is not None}


def _first(
    rules: Mapping[str, Callable[[_Subject, Memory], Objection | None]], subject: _Subject, memory: Memory
) -> dict[str, Objection]:
    """What the first rule that objects says."""
    for name, rule in rules.items():
        said = rule(subject, memory)
        if said is not None:
            return {name: said}
    return {}


def _floor(lost_pct: float) -> float:
    """The ratio of a candidate that takes so much longer."""
    return 1 / (1 + lost_pct / 100)
