"""A diagnosis: findings, each with its evidence level by level, its cause, the edit, and what would prove it wrong."""

from enum import IntEnum
from typing import Literal

from ...sandbox.wire import Wire

Scalar = int | float | str


class Level(IntEnum):
    """How deep the evidence goes."""

    SOURCE = 1
    """The source looks like it: a hypothesis."""
    PROFILE = 2
    """A measurement shows that the resource is short."""
    CODE = 3
    """The compiled code shows it, at a line."""
    COMPILER = 4
    """The compiler itself said so, or the condition that its pass checks was evaluated and failed."""


class Evidence(Wire):
    """One observation that a finding rests on."""

    level: Level
    text: str
    line: int | None = None
    """In the kernel file."""
    fact: str | None = None
    """Name of the fact, as `facts.value` knows it."""
    value: Scalar | None = None


class Prediction(Wire):
    """How the signature changes if the finding is right and the edit is made: checked by compiling, without a GPU."""

    fact: str
    """Name of the fact, as `facts.value` knows it."""
    now: Scalar | None
    expected: Literal["becomes", "falls", "rises"]
    to: Scalar | None = None
    """With `becomes`, the value; else the least change that counts, where there is one."""

    def holds(self, after: Scalar | None) -> bool | None:
        """Whether the fact changed so; None where that can't be told."""
        if after is None:
            return None
        if self.expected == "becomes":
            return after == self.to
        if isinstance(after, str) or not isinstance(self.now, int | float):
            return None
        if self.expected == "falls":
            return after < self.now if self.to is None else after <= float(self.to)
        return after > self.now if self.to is None else after >= float(self.to)


class Gain(Wire):
    """What the edit saves, in percent of the launch's time. None where nothing that was measured tells it."""

    expected_pct: float | None = None
    """By a model of what is left when the cause is gone; docs/diagnosis.md says how well it did on a real GPU."""
    at_most_pct: float | None
    """Nothing more can be saved."""
    why: str
    """Where these come from, or why there are none."""


class Rewrite(Wire):
    """What to change."""

    recipe: str
    example: str = ""
    """A worked one: code before, code after. The rule's own where it is empty."""
    applies_if: str | None = None
    """What has to be true and can't be seen in the source."""
    diff: str | None = None
    """A unified diff of the kernel file, where one can be written safely."""
    no_diff: str | None = None
    """Why there is none."""


class Folded(Wire):
    """A symptom that vanishes with the finding that it is folded into."""

    id: str
    title: str
    line: int | None


class Finding(Wire):
    """One inefficiency."""

    id: str
    """Of the catalogue, such as `V1`."""
    title: str
    level: Level
    """Of the deepest evidence."""
    kernel: str
    line: int | None
    excerpt: str | None
    """Text of the line."""
    evidence: list[Evidence]
    cause: str
    """The pass and its condition, where they are known."""
    rewrite: Rewrite
    predicted: list[Prediction]
    gain: Gain
    falsified_by: str
    """What one would see if the finding were wrong."""
    risks: list[str]
    """To results."""
    explains: list[Folded] = []


class Diagnosis(Wire):
    """Of one launch."""

    kernel: str
    findings: list[Finding]
    """What the code confirms, by expected gain."""
    hypotheses: list[Finding]
    """What only the source suggests, or a profile has yet to show, or paid in no kernel yet. Check before acting."""
    done: str | None
    """Why nothing is left to win, as far as that is known; null where findings are."""
    unknown: list[str]
    """What this diagnosis could not look at, and what it therefore can't tell."""
    not_looked_for: list[str] = []
    """Ids of the causes that need it."""
