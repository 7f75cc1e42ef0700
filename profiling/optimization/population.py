"""The attempts of a run as a population: which are worth keeping in mind, where they come from, whom to go on from."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...sandbox.outcome import Kind
from ...sandbox.wire import Wire
from .model import BASELINE, Attempt, CaseTime, Memory
from .scores import Ratio, evaluated, name_of, ratio_of, score_of, short, sound

MISSES: Final = 2
"""After so many attempts in a row from the incumbent that were no better, one from elsewhere is suggested."""
STRONG: Final = 0.8
"""Of the incumbent's speed: what an attempt of another branch must have to be gone on from."""
CHILDREN: Final = 2
"""A branch from which so many were made already is not suggested again."""
STRATEGY_CHARACTERS: Final = 60


class FrontMember(Wire):
    """An attempt that no other one beats in every case."""

    number: int
    ratio: float
    """Baseline time over its own: the score."""
    ratios: dict[str, float]
    """The same by visible case."""
    best_in: list[str]
    """Cases where none is faster."""


class Front(Wire):
    """The Pareto front over a run's visible cases, by the medians: noise is not taken into account."""

    cases: list[str]
    members: list[FrontMember]
    """The fastest by score first. None without a GPU."""


class ParentSuggestion(Wire):
    """Whom the next candidate is best made from."""

    number: int
    why: str


class _Scored(NamedTuple):
    """An attempt that is right and was timed beside the baseline."""

    attempt: Attempt
    score: Ratio
    cases: dict[str, Ratio]
    """Beside the baseline, by visible case."""

    @property
    def number(self) -> int:
        return self.attempt.number


def front(memory: Memory) -> Front:
    """Attempts, the baseline among them, than which no other is as fast in every case and faster in one.

    Those count that are right and were timed in every visible case. Of equal ones the first is kept.
    """
    everyone = _scored(memory)
    baseline = next((each for each in everyone if each.number == BASELINE), None)
    cases = sorted(baseline.cases if baseline is not None else {case for each in everyone for case in each.cases})
    everyone = [each for each in everyone if all(case in each.cases for case in cases)]
    members = [each for each in everyone if not any(_dominates(other, each, cases) for other in everyone)]
    best = {case: max((each.cases[case].ratio for each in members), default=0.0) for case in cases}
    return Front(
        cases=cases,
        members=[
            FrontMember(
                number=each.number,
                ratio=each.score.ratio,
                ratios={case: each.cases[case].ratio for case in cases},
                best_in=[case for case in cases if each.cases[case].ratio == best[case]],
            )
            for each in sorted(members, key=lambda each: (-each.score.ratio, each.number))
        ],
    )


def lineage(attempts: Sequence[Attempt], number: int) -> list[int]:
    """An attempt and those that it was made from, the first one in front. Empty if it isn't there."""
    parents = {attempt.number: attempt.parent for attempt in attempts}
    chain: list[int] = []
    at: int | None = number
    while at is not None and at in parents and at not in chain:
        chain.append(at)
        at = parents[at]
    return chain[::-1]


def suggest_parent(memory: Memory) -> ParentSuggestion:
    """Whom to make the next candidate from: mostly the incumbent.

    Each time that two attempts from it were no better, one from elsewhere is due: in turn from the fastest of another
    branch that was hardly followed, and from one that is faster in the case where most is left. The same history gives
    the same suggestion; attempts that failed are no reason to leave a parent. In a run that is not timed nothing is
    accepted, and it is the newest attempt that is right.
    """
    if not is_timed(memory):
        return _newest_right(memory)
    incumbent = memory.incumbent
    everyone = _scored(memory)
    best = next((each for each in everyone if each.number == incumbent), None)
    since = _since_accepted(memory)
    missed = sum(attempt.parent == incumbent for attempt in since)
    elsewhere = len(since) - missed
    if best is None or missed // MISSES <= elsewhere:
        return ParentSuggestion(number=incumbent, why=_why_incumbent(memory, best))
    ways = [_other_branch, _specialist] if elsewhere % 2 == 0 else [_specialist, _other_branch]
    for way in ways:
        found = way(memory, best, [each for each in everyone if each.number != incumbent])
        if found is not None:
            why = f"{missed} attempts from {name_of(incumbent)} were no better; {found.why}"
            return ParentSuggestion(number=found.number, why=short(why))
    return ParentSuggestion(number=incumbent, why="it is the fastest, and no other attempt comes near it in any case")


def is_timed(memory: Memory) -> bool:
    """Whether a run's attempts are timed: not where one that is right could not be, and no candidate was."""
    found = [attempt.evidence for attempt in memory.attempts if attempt.evidence is not None]
    return any(each.timings for each in found) or all(each.untimed is None for each in found)


def _newest_right(memory: Memory) -> ParentSuggestion:
    right = [
        attempt
        for attempt in memory.attempts
        if attempt.state == "finished"
        and attempt.duplicate_of is None
        and attempt.evidence is not None
        and attempt.evidence.kind is Kind.OK
    ]
    number = max((attempt.number for attempt in right), default=memory.incumbent)
    if number == BASELINE:
        return ParentSuggestion(number=number, why="nothing is timed here, and no attempt is right yet")
    return ParentSuggestion(number=number, why="nothing is timed here: it is the newest attempt that is right")


def _since_accepted(memory: Memory) -> list[Attempt]:
    """What was tried, and timed, since the incumbent is that."""
    timed = {attempt.number for attempt in evaluated(memory)}
    places = [place for place, attempt in enumerate(memory.attempts) if attempt.number == memory.incumbent]
    after = memory.attempts[places[-1] + 1 :] if places else memory.attempts
    return [attempt for attempt in after if attempt.number in timed]


def _why_incumbent(memory: Memory, best: _Scored | None) -> str:
    if best is None:
        return "nothing was timed that could be better"
    if memory.incumbent == BASELINE:
        return "nothing faster was accepted yet"
    return short(f"it is the fastest that was accepted: {best.score} beside the baseline")


def _other_branch(memory: Memory, best: _Scored, others: Sequence[_Scored]) -> ParentSuggestion | None:
    """The fastest attempt that neither the incumbent was made from nor is made from that."""
    above = lineage(memory.attempts, best.number)

    def related(number: int) -> bool:
        # Of the baseline all are made.
        return number in above or (best.number != BASELINE and best.number in lineage(memory.attempts, number))

    near = [
        each
        for each in others
        if not related(each.number)
        and each.score.ratio >= STRONG * best.score.ratio
        and _children(memory, each.number) < CHILDREN
    ]
    if not near:
        return None
    chosen = max(near, key=lambda each: (each.score.ratio, -each.number))
    share = 100 * chosen.score.ratio / best.score.ratio
    strategy = short(chosen.attempt.strategy, STRATEGY_CHARACTERS)
    why = f"'{strategy}' reaches {share:.0f} % of its speed another way, and was hardly followed"
    return ParentSuggestion(number=chosen.number, why=why)


def _specialist(memory: Memory, best: _Scored, others: Sequence[_Scored]) -> ParentSuggestion | None:
    """The fastest in the case where most is left, if that is not the incumbent, by the intervals."""
    evidence = best.attempt.evidence
    left = {case.case: _left(case) for case in (evidence.own if evidence is not None else [])}
    found: list[tuple[float, _Scored, str]] = []
    for case, its in best.cases.items():
        faster = [each for each in others if case in each.cases and each.cases[case].low > its.high]
        if faster:
            fastest = max(faster, key=lambda each: (each.cases[case].ratio, -each.number))
            found.append((left.get(case, 0.0), fastest, case))
    if not found:
        return None
    _, chosen, case = max(found, key=lambda each: (each[0], -each[1].number))
    gain = chosen.cases[case].ratio / best.cases[case].ratio
    why = f"this one is {gain:.2f}x as fast in case {case}, where most is left of those that others do better"
    return ParentSuggestion(number=chosen.number, why=why)


def _left(case: CaseTime) -> float:
    """How much a case may still bring to the score; 0 where that is not known."""
    return case.weight * math.log(case.headroom) if case.headroom is not None and case.headroom > 1 else 0.0


def _children(memory: Memory, number: int) -> int:
    return sum(attempt.parent == number for attempt in evaluated(memory))


def _scored(memory: Memory) -> list[_Scored]:
    """Attempts that are right and were timed beside the baseline, which is among them, by number."""
    found = [_one(attempt) for attempt in memory.attempts if attempt.duplicate_of is None and sound(attempt)]
    return sorted((each for each in found if each is not None), key=lambda each: each.number)


def _one(attempt: Attempt) -> _Scored | None:
    score, evidence = score_of(attempt), attempt.evidence
    if score is None or evidence is None:
        return None
    if attempt.number == BASELINE:
        return _Scored(attempt, score, {case.case: Ratio(1.0, 1.0, 1.0) for case in evidence.own})
    timing = evidence.timing(BASELINE)
    cases = timing.cases if timing is not None else []
    return _Scored(attempt, score, {case.case: ratio_of(case) for case in cases if not case.hidden})


def _dominates(one: _Scored, two: _Scored, cases: Sequence[str]) -> bool:
    """Whether one is at least as fast in each case, and faster in one; of equals the first does."""
    pairs = [(one.cases[case].ratio, two.cases[case].ratio) for case in cases]
    if not all(mine >= its for mine, its in pairs):
        return False
    return one.number < two.number if all(mine == its for mine, its in pairs) else True
