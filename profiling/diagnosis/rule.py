"""A rule of the catalogue: data with the functions that look, explain, and offer an edit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from .facts import Facts, Need
from .model import Evidence, Level, Prediction, Rewrite

Relieves = Literal["time", "bytes", "call"]
"""`bytes`: it also makes the launch move fewer bytes to and from device memory, so that it helps at that roof. `call`:
it is about what the entry does besides, however fast the launch is; a profile of the call confirms it."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where a rule found what it looks for."""

    evidence: tuple[Evidence, ...]
    line: int | None = None
    subject: tuple[str, ...] = ()
    """Names in the source that it is about, such as arguments."""
    bound_pct: float | None = None
    """The most of the launch's time that the edit can save, where that is certain."""
    bound_why: str = ""
    expected_pct: float | None = None
    """What it is expected to save, where this place tells it better than the rule's model."""
    unsure: bool = False
    """A hypothesis until a profile shows that it costs time, whatever the code says."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of the catalogue. Those of a family stand in one module of `rules`, each with its test."""

    id: str
    name: str
    level: Level
    """Of the evidence that decides it."""
    needs: frozenset[Need]
    """Without these it isn't applied, and the diagnosis says so."""
    weight: int
    """Order among findings whose gain nobody measured: the catalogue's decision tree, 100 first."""
    detect: Callable[[Facts], Sequence[Hit]]
    explain: Callable[[Facts, Hit], str]
    rewrite: Callable[[Facts, Hit], Rewrite]
    predicts: Callable[[Facts, Hit], list[Prediction]]
    falsified_by: str
    """What one would see if the finding were wrong."""
    example: str
    """A worked rewrite: code before, an arrow on a line of its own, code after."""
    risks: tuple[str, ...] = ()
    explains: frozenset[str] = frozenset()
    """Ids of findings that vanish with this one, wherever they are in the kernel."""
    explains_here: frozenset[str] = frozenset()
    """The same, on its line only."""
    relieves: Relieves = "time"
    if_busy: bool = False
    """It saves instructions only: a hypothesis until a profile shows a busy SM, and nothing where that is not."""
    demoted: str = ""
    """Measured figures by which its rewrite does not pay: it is told for information, last and without a gain."""


def seen(
    level: Level, text: str, line: int | None = None, fact: str | None = None, value: int | float | str | None = None
) -> Evidence:
    """One piece of evidence."""
    return Evidence(level=level, text=text, line=line, fact=fact, value=value)


def advice(recipe: str, why: str) -> Callable[[Facts, Hit], Rewrite]:
    """An edit that can't be written from the source alone, and why."""
    return lambda facts, hit: Rewrite(recipe=recipe, no_diff=why)


def silenced(id: str) -> Callable[[Facts, Hit], list[Prediction]]:
    """The compiler no longer says it."""

    def predicts(facts: Facts, hit: Hit) -> list[Prediction]:
        now = sum(one.id == id for one in facts.remarks or ())
        return [Prediction(fact=f"remark.{id}", now=now, expected="becomes", to=0)]

    return predicts
