"""What a prompt may know of an optimization run: only what the tools tell anybody who submits to it.

There is no field for a hidden case, and none for what a reference returned.
"""

from ..sandbox.outcome import Kind, Problem
from ..sandbox.wire import Wire


class Ratio(Wire):
    """Time of another attempt over one's own: above 1 is faster."""

    middle: float
    low: float
    high: float
    """95 % interval, from `low` to `high`."""


class CaseFact(Wire):
    """One visible case of an attempt."""

    case: str
    device_us: float
    ratio: Ratio | None
    """Beside the baseline; None for the baseline itself."""
    comparison: str | None
    speed_of_light_pct: float | None


class FindingFact(Wire):
    """One diagnosed inefficiency."""

    id: str
    title: str
    line: int | None
    expected_pct: float | None
    recipe: str


class HintFact(Wire):
    """What to change next."""

    attempt: int
    """The one after which it was given."""
    text: str
    because: list[str]


class LaunchFact(Wire):
    """One launch as compiled; None: the compiler does not tell."""

    case: str
    kernel: str
    num_warps: int
    num_stages: int
    registers: int | None
    spill_bytes: int | None
    mma: str
    async_copies: int | None
    load_widths_bytes: list[int]


class ProfileFact(Wire):
    """One launch as its counters saw it; None: they did not."""

    kernel: str
    duration_us: float | None
    memory_pct: float | None
    compute_pct: float | None
    stalls: list[str]
    """Reason and share of the warps' time, the largest first."""


class AttemptFacts(Wire):
    """One attempt, whole."""

    number: int
    """0 is the baseline."""
    strategy: str
    shown_as: str
    """Path as it was given, or `<source>`."""
    source: str | None
    """Its text; None: too long for this prompt."""
    kind: Kind
    problem: Problem | None
    verdict: str | None
    reasons: list[str]
    ratio: Ratio | None
    """Beside the baseline."""
    cases: list[CaseFact]
    diagnosed: int | None
    """The attempt that the findings are of: itself, or the nearest that it was made from."""
    diagnosed_case: str | None
    """The case of its own profiles."""
    findings: list[FindingFact]
    """By expected gain."""
    done: str | None
    """Why nothing is left to win, where that is so."""
    hints: list[HintFact]
    launches: list[LaunchFact]
    profiles: list[ProfileFact]


class TriedFact(Wire):
    """An attempt in one line."""

    number: int
    parent: int | None
    strategy: str
    kind: Kind
    ratio: Ratio | None
    accepted: bool
    why: str | None
    """The first reason of its verdict, or what failed."""


class LessonFact(Wire):
    """What a kind of strategy did for a finding in earlier runs."""

    finding: str | None
    strategy: str
    helped: int
    tried: int
    gain_pct: float | None
    gain_low_pct: float | None
    gain_high_pct: float | None
    why: str
    stale: str | None


class RunFacts(Wire):
    """A run, and the attempt that a role is about."""

    run_id: str
    title: str
    state: str
    ended_by: str | None
    entry: str
    target: str
    device: str
    """The GPU in a few lines."""
    gpu: str | None
    """None: nothing is timed here, so nothing is accepted."""
    kernel: str
    """The baseline's path as it was given, or `<source>`."""
    task: str
    """The task's, likewise. Its text is not here: it may hold hidden cases."""
    attempts: int
    attempts_left: int
    elapsed_s: float
    wall_s: float | None
    target_pct: float
    target_ratio: float | None
    incumbent: int
    incumbent_shown_as: str
    incumbent_ratio: Ratio | None
    parent: int
    """Attempt that the next candidate is best made from."""
    parent_why: str | None
    tried: list[TriedFact]
    """The best and the newest, by number."""
    tried_omitted: int
    lessons: list[LessonFact]
    focus: AttemptFacts
    """The attempt that the role is about."""
