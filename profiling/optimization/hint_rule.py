"""A rule for hints: data with the function that looks. `hint_rules.RULES` and `hint_failures.FAILURES` hold them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .hint_context import Result, Seen, cropped
from .model import Hint

MEASURED: Final[frozenset[Result]] = frozenset({"faster", "slower", "same", "ambiguous"})
NOT_FASTER: Final[frozenset[Result]] = MEASURED - {"faster"}
FASTER: Final[frozenset[Result]] = frozenset({"faster"})
ALONE: Final[frozenset[Result]] = frozenset({"first"})
FAILED: Final[frozenset[Result]] = frozenset({"failed"})
UNMEASURED: Final[frozenset[Result]] = frozenset({"unmeasured"})
BECAUSE_LIMIT: Final = 120
"""Characters of one number with its name."""
BECAUSE_SHOWN: Final = 4

Values = dict[str, str]
"""For a rule's texts. `finding`, where it is there, is the id of the catalogue that the hint comes from."""


@dataclass(frozen=True, slots=True)
class HintRule:
    """One kind of advice."""

    id: str
    after: frozenset[Result]
    """How an attempt has to end for it."""
    weight: int
    """Order among hints: 100 first."""
    look: Callable[[Seen], Values | None]
    """What it finds, as values for its texts; None: it has nothing to say."""
    text: str
    """The advice, filled with the values."""
    because: tuple[str, ...] = ()
    """The numbers that it rests on, filled with the values; what comes out empty is left out."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A hint and its place among others."""

    weight: int
    hint: Hint


def apply(rule: HintRule, seen: Seen) -> Ranked | None:
    """The hint of a rule; None where it doesn't apply."""
    if seen.result not in rule.after:
        return None
    values = rule.look(seen)
    if values is None:
        return None
    because = [each.format_map(values) for each in rule.because]
    return Ranked(rule.weight, hint_of(rule.text.format_map(values), because, values.get("finding")))


def hint_of(text: str, because: list[str], finding: str | None) -> Hint:
    """A hint within its limits."""
    kept = [cropped(each, BECAUSE_LIMIT) for each in dict.fromkeys(because) if each]
    return Hint(text=cropped(text), because=kept[:BECAUSE_SHOWN], finding=finding)
