"""What run tools tell of one attempt: the models. Of hidden cases none tells more than how many there are."""

import json
from typing import Final, Literal

from ...profiling.comparison import Outcome
from ...profiling.optimization.model import BASELINE, AttemptState, RunState
from ...sandbox.outcome import Kind
from ...sandbox.wire import Wire

SENTENCE_CHARACTERS: Final = 192


class Score(Wire):
    """Weighted over the cases: time of the baseline over that of the attempt, above 1 is faster."""

    ratio: float
    ratio_low: float
    ratio_high: float
    """95 % interval of `ratio`."""


class Versus(Score):
    """The same against the attempt that was the best when this one was measured."""

    attempt: int
    comparison: Outcome


class Confirmed(Wire):
    """The second look before acceptance: a fresh process, fresh seeds, hidden cases, times once more."""

    kind: Kind
    hidden_checked: int
    """Hidden cases whose results were compared; nothing else of them is told."""
    ratio: float | None
    """Against the best attempt until then, measured a second time."""
    ratio_low: float | None
    ratio_high: float | None


class CaseShown(Wire):
    """One case: its time, and beside the baseline's."""

    case: str
    device_us: float
    ratio: float | None
    """Time of the baseline over that of the attempt; null for the baseline itself."""
    low: float | None
    high: float | None
    comparison: Outcome | None
    speed_of_light_pct: float | None
    """Null: the task has no work()."""


class FindingShown(Wire):
    """A finding of the diagnosis, in short."""

    id: str
    title: str
    line: int | None
    recipe: str
    expected_pct: float | None


class HintShown(Wire):
    """What to change next, with the numbers that say so."""

    text: str
    because: list[str]
    finding: str | None


class Best(Wire):
    """The best accepted attempt so far; 0 is the baseline."""

    attempt: int
    ratio: float | None
    """Of the baseline's time over its own; null for the baseline."""
    ratio_low: float | None
    ratio_high: float | None


class AttemptShown(Wire):
    """One attempt and where its run stands."""

    run_id: str | None = None
    attempt: int | None = None
    """0 is the baseline."""
    parent: int | None = None
    state: AttemptState | RunState | None = None
    """Of the attempt; of the run where no attempt was asked for."""
    verdict: Literal["accept", "continue", "finish"] | None = None
    """`finish`: the run has ended with this attempt; `accepted` says whether it is its best one. Null: none was
    needed, as for a duplicate, or there is none yet."""
    accepted: bool = False
    reasons: list[str] = []
    score: Score | None = None
    """Against the baseline."""
    versus_incumbent: Versus | None = None
    confirmed: Confirmed | None = None
    cases: list[CaseShown] = []
    """Those that lost first, then by weight and time."""
    cases_omitted: int = 0
    findings: list[FindingShown] = []
    """Of the baseline, by expected gain; of others with detail."""
    hints: list[HintShown] = []
    duplicate_of: int | None = None
    remarks: list[str] = []
    """What it has in common with earlier attempts, and what has not been tried."""
    incumbent: Best | None = None
    verified: Confirmed | None = None
    """Of a run that is over: its best attempt against the baseline, measured once more at the end. Null: not yet, or
    nothing was accepted."""
    attempts_left: int | None = None
    run_state: RunState | None = None
    seconds: dict[str, float] = {}
    """What each stage took."""


def words(text: str, limit: int = SENTENCE_CHARACTERS) -> str:
    """One line of printable characters, cut where it is too long as JSON: parts of it are a caller's, or a kernel's."""
    text = "".join(each if each.isprintable() else "?" for each in " ".join(text[: 4 * limit].split()))
    return text if json_length(text) <= limit else f"{within(text, limit - 4).rstrip()} ..."


def within(text: str, limit: int) -> str:
    """The beginning of a text that is no longer than the limit as JSON."""
    text = text[:limit]
    left = limit
    for place, each in enumerate(text):
        left -= json_length(each)
        if left < 0:
            return text[:place]
    return text


def json_length(text: str) -> int:
    """What a text takes in an answer: in JSON, a character of another script is six or twelve."""
    return len(json.dumps(text)) - 2


def named(number: int) -> str:
    """An attempt, in words."""
    return "the baseline" if number == BASELINE else f"attempt {number}"
