"""What hints are made from: an attempt beside its parent, launch by launch and profile by profile."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final, Literal, NamedTuple

from ...sandbox.outcome import Kind, Problem
from ..compiler.compare import Compiled, matched
from ..compiler.launch import LaunchFacts
from ..ncu.delta import compare_reports
from ..ncu.model import LaunchProfile
from .lesson_gains import Gain, gain_beside, number_of
from .model import BASELINE, Attempt, CaseLaunch, Diagnosed, Evidence, FindingNote, Memory

TEXT_LIMIT: Final = 220
"""A hint's text is shorter than this."""
KIB: Final = 1024

Result = Literal["failed", "unconfirmed", "unmeasured", "first", "faster", "slower", "same", "ambiguous"]
"""How an attempt ended, beside its parent. `unconfirmed`: right at first, and not in the second look; `unmeasured`:
right, and nothing could be timed; `first`: the baseline, timed alone."""
Setting = Literal["tiling", "num_warps", "num_stages", "num_ctas"]


class Pair(NamedTuple):
    """A launch of the attempt and its counterpart."""

    case: str
    before: LaunchFacts
    after: LaunchFacts

    @property
    def same(self) -> bool:
        """Whether both run the same machine code on the same grid."""
        return self.before.code_hash == self.after.code_hash and self.before.grid == self.after.grid


class Profiles(NamedTuple):
    """A profile of the attempt's and its counterpart."""

    before: LaunchProfile
    after: LaunchProfile


class Beside(NamedTuple):
    """The launches of an attempt beside those of another."""

    pairs: tuple[Pair, ...]
    gone: tuple[LaunchFacts, ...]
    """Of the other, without a counterpart."""
    new: tuple[LaunchFacts, ...]
    """Of the attempt, without a counterpart."""


@dataclass(frozen=True)
class Seen:
    """One evaluation, with what it is looked at against."""

    evidence: Evidence
    parent: Evidence | None
    memory: Memory
    strategy: str

    @cached_property
    def result(self) -> Result:
        """How it ended."""
        if self.evidence.kind is not Kind.OK:
            return "failed"
        confirmation = self.evidence.confirmation
        if confirmation is not None and confirmation.kind is not Kind.OK:
            return "unconfirmed"
        if self.gain is not None:
            return self.gain.comparison
        return "first" if self.parent is None and self.evidence.own and not self.memory.attempts else "unmeasured"

    @cached_property
    def problem(self) -> Problem | None:
        """Why it failed."""
        return self.evidence.problem

    @cached_property
    def parent_number(self) -> int | None:
        """The attempt that it was made from; None where it is not in the memory."""
        return number_of(self.parent, self.memory.attempts)

    @cached_property
    def gain(self) -> Gain | None:
        """Its time beside its parent's."""
        return gain_beside(self.evidence, self.parent, self.parent_number)

    @cached_property
    def beside(self) -> Beside:
        """Its launches beside its parent's, those of the heaviest case first."""
        parent = () if self.parent is None else self.parent.launches
        return launches_beside(parent, self.evidence.launches, heaviest(self.evidence))

    @cached_property
    def profiles(self) -> tuple[Profiles, ...]:
        """Profiles beside the parent's, where both are of the same case; the longest launch first."""
        before, after = self.diagnosed_before, self.evidence.diagnosed
        if before is None or after is None or before.case != after.case:
            return ()
        delta = compare_reports(before.profiles, after.profiles)
        pairs = [Profiles(before.profiles[one.before], after.profiles[one.after]) for one in delta.launches]
        return tuple(sorted(pairs, key=lambda pair: -(pair.after.duration_us or 0)))

    @property
    def diagnosed_before(self) -> Diagnosed | None:
        """The parent's diagnosis."""
        return None if self.parent is None else self.parent.diagnosed

    @cached_property
    def findings(self) -> list[FindingNote]:
        """What its diagnosis names, by expected gain."""
        return [] if self.evidence.diagnosed is None else self.evidence.diagnosed.findings

    @cached_property
    def findings_before(self) -> list[FindingNote] | None:
        """What the parent's diagnosis of the same case names; None where the two don't compare."""
        before, after = self.diagnosed_before, self.evidence.diagnosed
        return None if before is None or after is None or before.case != after.case else before.findings

    @property
    def unchanged(self) -> bool:
        """Whether all launches run the parent's machine code on its grids."""
        beside = self.beside
        return bool(beside.pairs) and not beside.gone and not beside.new and all(pair.same for pair in beside.pairs)

    @cached_property
    def earlier(self) -> list[Attempt]:
        """Candidates before this one."""
        return [one for one in self.memory.attempts if one.number != BASELINE and one.evidence is not self.evidence]


def heaviest(evidence: Evidence) -> str | None:
    """The case that takes most of the score's time; the diagnosed one where nothing was timed."""
    if evidence.own:
        return max(evidence.own, key=lambda case: case.weight * case.device_us).case
    return None if evidence.diagnosed is None else evidence.diagnosed.case


def launches_beside(before: Sequence[CaseLaunch], after: Sequence[CaseLaunch], first: str | None = None) -> Beside:
    """Counterparts of all cases that both have.

    Args:
        before: launches of the other attempt.
        after: launches of the attempt.
        first: the case that comes first.
    """
    pairs: list[Pair] = []
    gone: list[LaunchFacts] = []
    new: list[LaunchFacts] = []
    known = {launch.case for launch in before}
    cases = [case for case in dict.fromkeys(launch.case for launch in after) if case in known]
    for case in sorted(cases, key=lambda case: case != first):
        theirs, mine = ([Compiled(one.facts, "", "") for one in side if one.case == case] for side in (before, after))
        for its, own in matched(theirs, mine):
            if its is not None and own is not None:
                pairs.append(Pair(case, its.facts, own.facts))
            elif own is not None:
                new.append(own.facts)
            elif its is not None:
                gone.append(its.facts)
    return Beside(tuple(pairs), tuple(gone), tuple(new))


def settings(before: LaunchFacts, after: LaunchFacts) -> dict[Setting, str]:
    """What was chosen differently, in words."""
    told: dict[Setting, str] = {}
    if tile(before) != tile(after):
        told["tiling"] = f"tile {tile(before)} -> {tile(after)}"
    for name in ("num_warps", "num_stages", "num_ctas"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            told[name] = f"{name} {was} -> {now}"
    return told


def tile(facts: LaunchFacts) -> str:
    """What a program works on: the largest product, or the elements of its largest access."""
    dot = max(facts.dots, key=lambda dot: dot.batch * dot.m * dot.n * dot.k, default=None)
    if dot is not None:
        return f"{dot.m}x{dot.n}x{dot.k}"
    elements = facts.elements_per_program_max
    return "of unknown size" if elements is None else f"{elements} elements"


def tile_grew(before: LaunchFacts, after: LaunchFacts) -> bool:
    """Whether a program works on more."""
    sizes = [
        max((dot.batch * dot.m * dot.n for dot in facts.dots), default=facts.elements_per_program_max or 0)
        for facts in (before, after)
    ]
    return sizes[1] > sizes[0]


def blocks(facts: LaunchFacts) -> int:
    """Of the grid."""
    return prod(facts.grid) * facts.num_ctas


def warp_threads(facts: LaunchFacts) -> int:
    """Threads of a warp."""
    return 32 if facts.amd is None else 64


def named(number: int | None) -> str:
    """An attempt in words."""
    if number is None:
        return "the parent"
    return "the baseline" if number == BASELINE else f"attempt {number}"


def kib(size_bytes: float) -> str:
    """A size of shared memory."""
    return f"{size_bytes:.0f} bytes" if size_bytes < KIB else f"{size_bytes / KIB:.4g} KiB"


def share(pct: float) -> str:
    """Percent, with a decimal where it matters."""
    return f"{pct:.0f} %" if abs(pct) >= 10 else f"{pct:.1f} %"


def times(us: float) -> str:
    """Microseconds, with four digits."""
    return f"{us:.4g} us"


def counted(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def lowered(sentence: str) -> str:
    """A sentence as a part of another."""
    sentence = sentence.strip().removesuffix(".")
    head = sentence[:2]
    return sentence[:1].lower() + sentence[1:] if head[1:].islower() or head[1:] == " " else sentence


def cropped(text: str, limit: int = TEXT_LIMIT) -> str:
    """A text that is shorter than the limit: whole sentences where the first ones fit, else whole words."""
    text = " ".join(text.split())
    if len(text) < limit:
        return text
    head = text[: limit - 2]
    end = max(head.rfind(". "), head.rfind("; "))
    if end >= limit // 2:
        return head[:end].rstrip(".;") + "."
    return head[: head.rfind(" ")].rstrip(",;:") + "…"
