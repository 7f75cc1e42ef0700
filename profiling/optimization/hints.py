"""Hints: what to change next, from what an attempt did to its parent's code, counters, findings and times. Pure.

Each hint is advice with the numbers that it rests on, all of them from the evidence. Rules are declared in `hint_rules`
and `hint_failures`, signs of what moved in `hint_signs` and `hint_counters`; here they are put together and ranked.
"""

from collections.abc import Iterator
from typing import Final

from .hint_context import TEXT_LIMIT, Seen, Setting, lowered, settings
from .hint_counters import measured_marks
from .hint_failures import FAILURES, REPEATED
from .hint_rule import NOT_FASTER, Ranked, apply, hint_of
from .hint_rules import RULES, time_moved
from .hint_signs import WEAK, Mark, compiled_marks
from .model import Evidence, Hint, Memory

HINTS_SHOWN: Final = 5
UNMEASURED: Final = "Not timed: "
"""Begins each hint that no measurement confirms."""
WORSE_SHOWN: Final = 3
GO_ON: Final = "keep that, and go further the same way only while the numbers move"
GAINED_WEIGHT: Final = 75
"""Of what made a candidate faster."""
_KEEP: Final[dict[Setting, str]] = {
    "tiling": "the tiling",
    "num_warps": "the number of warps",
    "num_stages": "the number of stages",
    "num_ctas": "the cluster",
}


def hints(evidence: Evidence, parent: Evidence | None, memory: Memory, strategy: str) -> list[Hint]:
    """Ranked advice for the next candidate, at most five.

    Args:
        evidence: of the attempt.
        parent: of the attempt that it was made from; None: unknown, so that nothing is compared.
        memory: what the run knew before it.
        strategy: what was tried, in the submitter's words.
    """
    seen = Seen(evidence, parent, memory, strategy)
    if seen.result == "failed":
        first = next(ranked for rule in FAILURES if (ranked := apply(rule, seen)) is not None)
        found = [first, *filter(None, [apply(REPEATED, seen)])]
    else:
        found = [ranked for rule in RULES if (ranked := apply(rule, seen)) is not None]
        if seen.result != "unconfirmed":
            found += _of_signs(seen)
    chosen = _distinct(sorted(found, key=lambda ranked: -ranked.weight))[:HINTS_SHOWN]
    return [_shown(hint, unmeasured=seen.result == "unmeasured") for hint in chosen]


def _of_signs(seen: Seen) -> Iterator[Ranked]:
    """What moved between parent and attempt: what got worse with advice, what got better to be kept."""
    marks = sorted([*compiled_marks(seen.beside.pairs), *measured_marks(seen.profiles)], key=lambda mark: -mark.weight)
    faster = seen.result == "faster"
    better = [mark for mark in marks if mark.better]
    worse = [mark for mark in marks if not mark.better and not (faster and mark.id in WEAK)][:WORSE_SHOWN]
    praised = [mark for mark in better if mark.id not in WEAK] or _gone(seen)
    if faster and (gained := praised[:2]):
        text = f"the gain: {' and '.join(mark.clause for mark in gained)}; {GO_ON}"
        yield Ranked(GAINED_WEIGHT, hint_of(text, [time_moved(seen), *(mark.because[0] for mark in gained)], None))
    for number, mark in enumerate(worse):
        good = praised[0] if praised and number == 0 and not faster else None
        # After a gain, what got worse is what it may be raised by.
        weight = mark.weight // 2 + 15 if faster else mark.weight
        yield Ranked(weight, _traded(seen, good, mark, time_moved(seen) if number == 0 else ""))
    if better and not worse and seen.result in NOT_FASTER:
        mark = better[0]
        text = f"{mark.clause}, yet it is not faster: that was not what limits; look at what does"
        yield Ranked(mark.weight // 2, hint_of(text, list(mark.because), None))


def _traded(seen: Seen, good: Mark | None, bad: Mark, time: str) -> Hint:
    """One hint of what was won and lost: `good, bad: keep this, change that`."""
    assert bad.advice is not None
    keep = _kept(seen, bad)
    because = [*bad.because[:2], *(() if good is None else good.because[:1]), time]
    clause = f"faster although {bad.clause}" if seen.result == "faster" else bad.clause
    ways = [f"{keep}, {bad.advice.text}", bad.advice.text] if keep else [bad.advice.text]
    heads = [f"{good.clause}, {clause}", clause] if good is not None else [clause]
    texts = [f"{head}: {way}" for head in heads for way in ways]
    room = TEXT_LIMIT - (len(UNMEASURED) if seen.result == "unmeasured" else 0)
    text = next((text for text in texts if len(text) < room), texts[-1])
    return hint_of(text, because, bad.advice.finding)


def _gone(seen: Seen) -> list[Mark]:
    """What the edit mended, where neither code nor counters tell it."""
    left = {finding.id for finding in seen.findings}
    gone = [finding for finding in seen.findings_before or () if finding.id not in left]
    return [Mark("gone", 0, True, f"{one.id} is gone", (f"{one.id}: {lowered(one.title)}",), None) for one in gone[:1]]


def _kept(seen: Seen, bad: Mark) -> str:
    """What else the attempt changed, and what the advice therefore leaves."""
    assert bad.advice is not None
    changed = {name for pair in seen.beside.pairs for name in settings(pair.before, pair.after)}
    left = [words for name, words in _KEEP.items() if name in changed and name != bad.advice.undoes]
    return f"keep {' and '.join(left)}" if left and bad.advice.undoes in changed else ""


def _distinct(found: list[Ranked]) -> list[Hint]:
    """The first of those that say the same or come from the same finding."""
    kept: list[Hint] = []
    for hint in (ranked.hint for ranked in found):
        known = (one for one in kept if one.text == hint.text or (one.finding == hint.finding and hint.finding))
        if next(known, None) is None:
            kept.append(hint)
    return kept


def _shown(hint: Hint, *, unmeasured: bool) -> Hint:
    """As a sentence."""
    text = hint.text[:1].upper() + hint.text[1:] if not hint.text.startswith("num_") else hint.text
    if not unmeasured:
        return hint.model_copy(update={"text": text})
    return hint_of(UNMEASURED + hint.text, hint.because, hint.finding)
