"""Is a candidate anything new? What its file, and what its strategy, have in common with earlier attempts.

Files are hostile: they are parsed, never imported, and what can't be parsed or is too large is compared as text.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal

from ...sandbox.outcome import Kind
from ...sandbox.wire import Wire
from ..diagnosis.source.syntax import CHARACTERS_LIMIT
from .model import BASELINE, Attempt, FindingNote
from .reading import labels, read
from .scores import name_of, score_of, short

_BETWEEN: Final = "\x1f"
"""Between parts that hold no such character: it is escaped in constants, and no part of a name."""
NEAR: Final = 0.9
"""Share of statements that two files have in common, names and constants apart, from which on they are called near."""
REPEATED: Final = 0.6
"""Share of words, of those that either strategy has, from which on one is called a repetition."""
SHOWN_CHARACTERS: Final = 24
"""Of a constant."""
CHANGES_SHOWN: Final = 4
REPEATS_SHOWN: Final = 2
UNTRIED_SHOWN: Final = 3
STRATEGY_CHARACTERS: Final = 2000

Likeness = Literal["same", "names", "constants", "names_and_constants", "statements"]
"""What two files differ in: nothing but comments, docstrings and formatting; names; constants; both; few statements."""
_CLOSEST: Final[tuple[Likeness, ...]] = ("same", "names", "constants", "names_and_constants", "statements")


class Near(Wire):
    """The attempt whose file is closest to a candidate's."""

    number: int
    likeness: Likeness
    differs: str
    """In words: `differs from attempt 3 only in num_stages 3 -> 4`."""


class Repeat(Wire):
    """An earlier attempt whose strategy reads like the same."""

    number: int
    strategy: str
    shared: list[str]
    """Words that both have, shortened to their stems."""


@dataclass(frozen=True, slots=True)
class _Code:
    """What is compared of a file: hashes, so that large files may be remembered."""

    identity: str
    named: str = ""
    """Of all but constants."""
    renamed: str = ""
    """Of all but the names that the file itself gives."""
    shape: str = ""
    """Of all but both. Empty, as are the others, where the file can't be parsed."""
    constants: str = ""
    """Their values, in order."""
    statements: Mapping[int, int] | None = None
    """Hashes of statements, without such names and constants, and how often each is there."""


def text_identity(text: str) -> str:
    """A hash, the same for files that differ in comments, docstrings and formatting only.

    Of a file that can't be parsed, or is too large to be, it is the text's.
    """
    return _read(text).identity


def near(text: str, others: Mapping[int, str]) -> Near | None:
    """The closest of other attempts' files, by number; None where none is close.

    Of equally close ones it is the last.
    """
    mine = _read(text)
    best: tuple[int, float, int] | None = None
    for number, other in others.items():
        likeness = _likeness(mine, _read(other))
        if likeness is not None:
            rank = (-_CLOSEST.index(likeness[0]), likeness[1], number)
            best = max(best, rank) if best else rank
    if best is None:
        return None
    likeness, number = _CLOSEST[-best[0]], best[2]
    return Near(number=number, likeness=likeness, differs=_words(likeness, number, others[number], text))


def constants_changed(before: str, after: str) -> list[str] | None:
    """What changed, such as `num_stages 3 -> 4`, where nothing but constants, and names that the file gives, did.

    None where more did, or where either can't be parsed. Empty where no constant did.
    """
    if not (shape := _read(before).shape) or shape != _read(after).shape:
        return None
    stream = read(after)
    if stream is None:
        return None
    old, new = (_read(text).constants.split(_BETWEEN) for text in (before, after))
    named = dict(labels(stream.holders))
    changes = Counter(
        f"{named.get(id(node), f'line {node.lineno}:')[:SHOWN_CHARACTERS]} {_shown(was)} -> {_shown(now)}"
        for was, now, node in zip(old, new, stream.constants, strict=True)
        if was != now
    )
    return [change if count == 1 else f"{change} ({count} times)" for change, count in changes.items()]


def repeated(strategy: str, attempts: Iterable[Attempt]) -> list[Repeat]:
    """Earlier attempts whose strategy has mostly the same words, whatever its numbers, last first."""
    found: list[Repeat] = []
    for attempt in attempts:
        if attempt.number != BASELINE and (shared := alike(strategy, attempt.strategy)):
            found.append(Repeat(number=attempt.number, strategy=attempt.strategy, shared=sorted(shared)))
    return sorted(found, key=lambda each: -each.number)


def untried(attempts: Sequence[Attempt], parent: int = BASELINE, strategy: str = "") -> list[FindingNote]:
    """Findings that nothing was tried for, in the diagnosis' order: a parent's, or its nearest diagnosed ancestor's.

    A finding was tried where a strategy names its id, or has half of its title's words, at least two.

    Args:
        attempts: those before.
        parent: whose findings.
        strategy: what is being tried now, beside them.
    """
    number = diagnosed_one(attempts, parent)
    its = next((attempt.evidence for attempt in attempts if attempt.number == number), None)
    findings = its.diagnosed.findings if its is not None and its.diagnosed is not None else []
    strategies = [each.strategy for each in attempts if each.number != BASELINE and each.duplicate_of is None]
    tried = [(each, _stems(each)) for each in (*strategies, strategy)]
    return [finding for finding in findings if not any(_addresses(each, stems, finding) for each, stems in tried)]


def diagnosed_one(attempts: Sequence[Attempt], parent: int) -> int | None:
    """The attempt, or its nearest ancestor, that was diagnosed."""
    by_number = {attempt.number: attempt for attempt in attempts}
    number, seen = parent, set[int]()
    while number in by_number and number not in seen:
        seen.add(number)
        its = by_number[number]
        if its.evidence is not None and its.evidence.diagnosed is not None:
            return number
        number = BASELINE if its.parent is None else its.parent
    return None


def remarks(text: str, strategy: str, attempts: Sequence[Attempt], texts: Mapping[int, str]) -> list[str]:
    """What a submitter is told of a candidate that is much like an earlier attempt, and what was not tried instead.

    Args:
        text: the candidate's file.
        strategy: what it tries, in its submitter's words.
        attempts: those before it, the baseline included.
        texts: their files, by number.
    """
    by_number = {attempt.number: attempt for attempt in attempts}
    found: list[str] = []
    close = near(text, texts)
    # A few statements are what any edit changes.
    if close is not None and close.likeness != "statements":
        found.append(short(f"the file {close.differs}{_fate(by_number.get(close.number))}"))
    for repeat in repeated(strategy, attempts)[:REPEATS_SHOWN]:
        said = short(repeat.strategy, 60)
        found.append(short(f"{name_of(repeat.number)} tried the like, '{said}'{_fate(by_number.get(repeat.number))}"))
    left = untried(attempts, max((each.number for each in attempts if each.accepted), default=BASELINE), strategy)
    if found and left:
        names = ", ".join(f"{each.id} {each.title}" for each in left[:UNTRIED_SHOWN])
        found.append(short(f"nothing was tried yet for {names}"))
    return found


def _fate(attempt: Attempt | None) -> str:
    """What came of an attempt."""
    if attempt is None or attempt.number == BASELINE or attempt.evidence is None:
        return ""
    if attempt.evidence.kind is not Kind.OK:
        return f", which ended as {attempt.evidence.kind}"
    score = score_of(attempt)
    came = "accepted" if attempt.accepted else "not accepted"
    return f", which was {came}" if score is None else f", which was {came} at {score} beside the baseline"


def alike(one: str, other: str) -> frozenset[str]:
    """The stems that two texts share, numbers apart, where these are most of what either has; else none."""
    mine, its = _stems(one), _stems(other)
    shared = mine & its
    return shared if len(shared) >= REPEATED * len(mine | its) else frozenset()


def addresses(strategy: str, finding: FindingNote) -> bool:
    """Whether a strategy names a finding: its id, or half of its title's words, at least two."""
    return _addresses(strategy, _stems(strategy), finding)


def _addresses(strategy: str, stems: frozenset[str], finding: FindingNote) -> bool:
    if re.search(rf"\b{re.escape(finding.id)}\b", strategy[:STRATEGY_CHARACTERS]):
        return True
    title = _stems(finding.title)
    return len(title & stems) >= max(2, len(title) / 2)


_STOP: Final = frozenset(
    re.findall(
        r"\w+",
        "a an and another as at attempt be by candidate change code do for from in instead into is it its kernel make "
        "more now of on only or per so some than that the then this to try use version with without",
    )
)
_ENDINGS: Final = ("ization", "izing", "ized", "ize", "ing", "ed", "es", "er", "s")


def _stems(words: str) -> frozenset[str]:
    """Words without their endings; numbers don't count."""
    found = re.findall(r"[a-z]+", words[:STRATEGY_CHARACTERS].lower())
    return frozenset(_stem(word) for word in found if word not in _STOP and len(word) > 1)


def _stem(word: str) -> str:
    ending = next((each for each in _ENDINGS if word.endswith(each) and len(word) - len(each) >= 3), "")
    return word.removesuffix(ending).removesuffix("e")


def _likeness(one: _Code, two: _Code) -> tuple[Likeness, float] | None:
    if one.identity == two.identity:
        return "same", 1.0
    if one.statements is None or two.statements is None:
        return None
    if one.renamed == two.renamed:
        return "names", 1.0
    if one.named == two.named:
        return "constants", 1.0
    if one.shape == two.shape:
        return "names_and_constants", 1.0
    shared = sum(min(count, two.statements.get(each, 0)) for each, count in one.statements.items())
    total = sum(one.statements.values()) + sum(two.statements.values())
    return ("statements", 2 * shared / total) if total and 2 * shared >= NEAR * total else None


def _words(likeness: Likeness, number: int, before: str, after: str) -> str:
    other = name_of(number)
    match likeness:
        case "same":
            return f"is {other} again, apart from comments, docstrings and formatting"
        case "names":
            return f"differs from {other} only in names"
        case "constants" | "names_and_constants":
            changes = constants_changed(before, after) or []
            more = f" and {len(changes) - CHANGES_SHOWN} more" if len(changes) > CHANGES_SHOWN else ""
            names = "names and " if likeness == "names_and_constants" else ""
            return f"differs from {other} only in {names}{', '.join(changes[:CHANGES_SHOWN])}{more}"
        case "statements":
            old, new = (Counter[int](_read(each).statements or {}) for each in (before, after))
            changed = max((new - old).total(), (old - new).total())
            if not changed:
                return f"differs from {other} only in where names and constants stand, or in the order of statements"
            return f"differs from {other} in {changed} of {new.total()} statements, names and constants apart"


def _read(text: str) -> _Code:
    return _remembered(text) if len(text) <= CHARACTERS_LIMIT else _as_text(text)


@lru_cache(maxsize=2048)
def _remembered(text: str) -> _Code:
    stream = read(text)
    if stream is None:
        return _as_text(text)
    try:
        constants = [f"{type(each.value).__name__} {each.value!r}" for each in stream.constants]
    except ValueError:  # an integer with more digits than Python cares to print
        return _as_text(text)
    # Names count by where they first appear, unless they are Python's.
    places: dict[str, str] = {}
    renamed = [places.setdefault(name, f"={len(places)}") if name in stream.given else name for name in stream.names]
    statements = list(stream.tokens)
    for place, name in zip(stream.places, stream.names, strict=True):
        if name not in stream.given:
            statements[place] = name
    body = hashlib.sha256(_BETWEEN.join(stream.tokens).encode())

    def hashed(*more: list[str]) -> str:
        whole = body.copy()
        for part in more:
            whole.update(_BETWEEN.join(["", "", *part]).encode())
        return whole.hexdigest()

    return _Code(
        identity=hashed(stream.names, constants),
        named=hashed(stream.names),
        renamed=hashed(renamed, constants),
        shape=hashed(renamed),
        constants=_BETWEEN.join(constants),
        statements=Counter(hash(tuple(statements[a:b])) for a, b in pairwise([*stream.starts, len(statements)])),
    )


def _as_text(text: str) -> _Code:
    # No stream begins like this.
    return _Code(hashlib.sha256(f"text{_BETWEEN}{text}".encode(errors="surrogatepass")).hexdigest())


def _shown(value: str) -> str:
    shown = value.partition(" ")[2]
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[: SHOWN_CHARACTERS - 1]}…"
