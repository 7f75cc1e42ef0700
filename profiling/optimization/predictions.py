"""What a finding promised, beside what an attempt brought that followed it. Pure."""

from collections.abc import Sequence
from typing import Final

from ...sandbox.outcome import Kind
from .lesson_gains import gain_in_case, saved_pct
from .lesson_kinds import named_findings
from .model import BASELINE, Attempt, Diagnosed, Evidence, FindingNote, Prediction
from .novelty import addresses, alike

LEAST: Final = 0.5
"""Of the expected gain: what was seen to save less was promised too much. Chosen, not measured."""


def prediction(attempt: Attempt, attempts: Sequence[Attempt]) -> Prediction | None:
    """What an attempt was expected to save, and what it did.

    None where it follows no finding of its parent's, or several; where nothing was expected of that one, or where the
    two were not timed beside the same.

    Args:
        attempt: with what was found of it.
        attempts: the run's, its parent among them.
    """
    number = BASELINE if attempt.parent is None else attempt.parent
    parent = next((each for each in attempts if each.number == number), None)
    mine, its = attempt.evidence, None if parent is None else parent.evidence
    if parent is None or its is None or its.diagnosed is None or mine is None or mine.kind is not Kind.OK:
        return None
    note = followed(attempt.strategy, parent)
    share = None if note is None else _share(note, its.diagnosed, its)
    seen = gain_in_case(its.diagnosed.case, mine, its, number)
    if note is None or share is None or seen is None or (note.expected_pct is None and note.at_most_pct is None):
        return None
    expected, most = (None if pct is None else round(pct * share, 1) for pct in (note.expected_pct, note.at_most_pct))
    low, high = saved_pct(seen.low), saved_pct(seen.high)
    came = "as_expected"
    if most is not None and low > most:
        came = "more"
    elif expected is not None and high < LEAST * expected:
        came = "less"
    return Prediction(
        finding=note.id,
        kernel=note.kernel,
        parent=number,
        case=its.diagnosed.case,
        expected_pct=expected,
        at_most_pct=most,
        seen_pct=round(seen.saved_pct, 2),
        seen_low_pct=round(low, 2),
        seen_high_pct=round(high, 2),
        came=came,
    )


def followed(strategy: str, parent: Attempt) -> FindingNote | None:
    """The finding of a parent that a candidate follows: by its id, else by the words of its title, of its recipe or of
    a hint that comes from it. None where there is none, or more than one: then nothing is learnt of either.

    Args:
        strategy: what the candidate tries, in its submitter's words.
        parent: that it was made from.
    """
    evidence = parent.evidence
    notes = [] if evidence is None or evidence.diagnosed is None else evidence.diagnosed.findings
    if named := named_findings(strategy):
        return next((note for note in notes if named == [note.id]), None)
    hinted = {hint.finding for hint in parent.hints if hint.finding is not None and alike(strategy, hint.text)}
    meant = [note for note in notes if addresses(strategy, note) or alike(strategy, note.recipe) or note.id in hinted]
    return meant[0] if len({note.id for note in meant}) == 1 else None


def _share(note: FindingNote, diagnosed: Diagnosed, evidence: Evidence) -> float | None:
    """Of the case's time, what the launches of a finding's kernel take; None: unknown."""
    kernels = {launch.facts.kernel for launch in evidence.launches if launch.case == diagnosed.case}
    if kernels == {note.kernel}:
        return 1.0
    spent = [(profile.kernel, profile.duration_us) for profile in diagnosed.profiles]
    known = [(kernel, us) for kernel, us in spent if us is not None]
    whole = sum(us for _, us in known)
    if not whole or len(known) < len(spent) or note.kernel not in {kernel for kernel, _ in known}:
        return None
    return sum(us for kernel, us in known if kernel == note.kernel) / whole
