"""When a run is over: what it has reached, what it has cost, and whether its own history promises anything more."""

import math
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from ...sandbox.outcome import Kind
from ..diagnosis.floor import DONE_PCT
from .model import BASELINE, Attempt, Budget, Memory, Timing
from .scores import by_number, evaluated, latest, name_of, score_of, share_of_light, short

EndedBy = Literal["target", "speed_of_light", "budget", "wall_time", "diminishing_returns"]

WORTHWHILE: Final = 0.01
"""Gains up to 1 % are no reason to go on."""
FEW_MISSES: Final = 3
SOME_MISSES: Final = 4
MANY_MISSES: Final = 6
"""So many attempts in a row without a gain end a run: where hardly anything is left to win; where nobody knows; where
much is. By Laplace's rule of succession the next one gains with a probability of 1 / (n + 2) then: 20, 17 and 13 %."""


class Ending(NamedTuple):
    """Why a run is over."""

    by: EndedBy
    reason: str


def ends(memory: Memory) -> EndedBy | None:
    """What ends a run of which nothing but finished attempts is left; None while it goes on."""
    found = ending(memory)
    return None if found is None else found.by


def ending(memory: Memory) -> Ending | None:
    """Why a run is over, by the first rule that says so; None while it goes on."""
    for by, rule in ENDINGS.items():
        reason = rule(memory)
        if reason is not None:
            return Ending(by, short(reason))
    return None


def incumbent_share(memory: Memory) -> float | None:
    """Share of the speed of light that the incumbent reaches, in percent."""
    incumbent = by_number(memory, memory.incumbent)
    if incumbent is None or incumbent.evidence is None or incumbent.evidence.kind is not Kind.OK:
        return None
    return share_of_light(incumbent.evidence.own)


def _target(memory: Memory) -> str | None:
    """The incumbent is `target_ratio` times faster than the baseline, by the lower end of its interval."""
    target, incumbent = memory.budget.target_ratio, by_number(memory, memory.incumbent)
    if target is None or incumbent is None or incumbent.number == BASELINE:
        return None
    score = score_of(incumbent)
    if score is None or score.low < target:
        return None
    return f"{name_of(incumbent.number)} reached the target: {score} beside the baseline, {target:g}x were asked for"


def _speed_of_light(memory: Memory) -> str | None:
    """The incumbent, which may be the baseline, reaches `target_pct` of the speed of light: the weighted geometric mean
    over the visible cases, all of which need a share."""
    share, target = incumbent_share(memory), memory.budget.target_pct
    if share is None or share < target:
        return None
    return f"{name_of(memory.incumbent)} is at {share:.1f} % of the speed of light, {target:g} % were asked for"


def _budget(memory: Memory) -> str | None:
    """As many attempts have counted as the budget has."""
    used = sum(attempt.counted for attempt in memory.attempts)
    if used < memory.budget.attempts:
        return None
    return f"all {memory.budget.attempts} attempts of the budget are used up"


def _wall_time(memory: Memory) -> str | None:
    """The run has taken `wall_s`."""
    limit = memory.budget.wall_s
    if limit is None or memory.elapsed_s < limit:
        return None
    return f"the run has taken {memory.elapsed_s:.0f} s, {limit:g} s were allowed"


def _diminishing_returns(memory: Memory) -> str | None:
    """The last attempts that were timed gained nothing worthwhile: 3 that can't have gained more than 1 %, where the
    incumbent is at 85 % of the speed of light or its diagnosis knows nothing more; or 4, and half of the budget, that
    were not seen to, where nobody knows what is left; or 6, and three quarters of it, where much is."""
    timed = [(attempt, timing) for attempt in evaluated(memory) if (timing := latest(attempt)) is not None]
    left = _left(memory)
    # Near the end only a measurement that excludes a gain counts; before, one that doesn't show any.
    sharp = _streak(timed, lambda timing: timing.ratio_high <= 1 + WORTHWHILE)
    if left == "little" and sharp >= FEW_MISSES:
        best = max(timing.ratio_high for _, timing in timed[-sharp:])
        return (
            f"the last {sharp} attempts that were timed gained {_gain(best)} at most, and {_known(memory)}: "
            "little is left to win"
        )
    blunt = _streak(timed, lambda timing: timing.comparison != "faster" or timing.ratio_high <= 1 + WORTHWHILE)
    if blunt < _patience(left, memory.budget):
        return None
    return f"none of the last {blunt} attempts that were timed was seen to gain more than {100 * WORTHWHILE:g} %"


ENDINGS: Final[Mapping[EndedBy, Callable[[Memory], str | None]]] = {
    "target": _target,
    "speed_of_light": _speed_of_light,
    "budget": _budget,
    "wall_time": _wall_time,
    "diminishing_returns": _diminishing_returns,
}
"""In the order in which they are asked."""


def _left(memory: Memory) -> Literal["little", "unknown", "much"]:
    share, incumbent = incumbent_share(memory), by_number(memory, memory.incumbent)
    diagnosed = None if incumbent is None or incumbent.evidence is None else incumbent.evidence.diagnosed
    if (share is not None and share >= DONE_PCT) or (diagnosed is not None and diagnosed.done is not None):
        return "little"
    return "unknown" if share is None else "much"


def _known(memory: Memory) -> str:
    share = incumbent_share(memory)
    if share is not None and share >= DONE_PCT:
        return f"{name_of(memory.incumbent)} is at {share:.0f} % of the speed of light"
    return f"the diagnosis of {name_of(memory.incumbent)} found nothing more"


def _patience(left: Literal["little", "unknown", "much"], budget: Budget) -> int:
    if left == "much":
        return max(MANY_MISSES, math.ceil(0.75 * budget.attempts))
    return max(SOME_MISSES, math.ceil(0.5 * budget.attempts))


def _streak(timed: list[tuple[Attempt, Timing]], missed: Callable[[Timing], bool]) -> int:
    """How many of the last attempts missed, accepted ones included."""
    count = 0
    for _, timing in reversed(timed):
        if not missed(timing):
            break
        count += 1
    return count


def _gain(ratio: float) -> str:
    return f"{max(0.0, 100 * (ratio - 1)):.1f} %"
