"""What is known of one run of optimization: attempts, their measurements, the budget, and verdicts over them."""

from typing import Literal

from pydantic import Field

from ...sandbox.outcome import Kind, Problem
from ...sandbox.wire import Wire
from ..comparison import Outcome
from ..compiler.launch import LaunchFacts
from ..ncu.model import LaunchProfile

BASELINE = 0
"""Number of the attempt that the baseline is."""

Stage = Literal["identity", "compile", "correctness", "benchmark", "acceptance", "done"]
"""How far an evaluation came; `done`: all that applies."""
RunState = Literal["measuring", "open", "finished", "failed"]
"""`measuring`: the baseline is being measured; `open`: takes candidates; `finished`: ended by a verdict or by its user;
`failed`: the baseline could not be measured."""
AttemptState = Literal["running", "finished", "interrupted", "cancelled"]
"""`interrupted`: its server ended before it had; it can be evaluated again."""


class Budget(Wire):
    """What a run may cost, and what is enough."""

    attempts: int = Field(default=8, ge=1, le=1000)
    """Candidates that are evaluated, at most."""
    wall_s: float | None = Field(default=None, gt=0)
    """Seconds since the run was started, at most. None: no limit."""
    target_pct: float = Field(default=95.0, gt=0, le=100)
    """Share of the speed of light at which a run has reached its target."""
    target_ratio: float | None = Field(default=None, gt=1)
    """Baseline time over the incumbent's at which it has; None: only the speed of light counts."""
    failed_count: bool = True
    """Whether candidates that fail (any kind but ok) cost an attempt; duplicates never do."""


class Limits(Wire):
    """What a candidate may not exceed to be accepted, however fast it is."""

    case_regression_pct: float = Field(default=1.0, ge=0)
    """Time that one case may lose against the incumbent, beyond its interval."""
    total_regression_pct: float = Field(default=2.0, ge=0)
    """Time of a whole call, host included, that a case may lose against the incumbent, beyond its interval."""
    first_call_s: float | None = Field(default=120.0, gt=0)
    """Compile and autotuning of a case, at most."""
    registers: int | None = Field(default=None, ge=1)
    """Per thread, at most; None: what the device allows."""
    shared_bytes: int | None = Field(default=None, ge=1)
    """Of a block, at most; None: what the device allows."""


class CaseTime(Wire):
    """One case of an attempt by itself."""

    case: str
    weight: float
    device_us: float
    call_us: float
    speed_of_light_pct: float | None = None
    headroom: float | None = None
    first_call_s: float


class CaseTiming(Wire):
    """One case of a candidate beside another attempt."""

    case: str
    weight: float
    device_us: float
    """The candidate's: first kernel's start to last one's end, median."""
    call_us: float
    """The candidate's: host call to completion, median."""
    other_device_us: float
    """The same of the attempt that it is compared with."""
    ratio: float
    """The other's device time over the candidate's: above 1 the candidate is faster."""
    ratio_low: float
    ratio_high: float
    """95 % interval of `ratio`."""
    comparison: Outcome
    min_detectable_pct: float | None = None
    call_ratio: float | None = None
    """The same ratio of whole calls, host included."""
    call_ratio_low: float | None = None
    call_ratio_high: float | None = None
    launch_bound: bool = False
    speed_of_light_pct: float | None = None
    """Least time that the work can take, over the candidate's; None: the task has no work(), or nothing is known."""
    headroom: float | None = None
    """How many times faster the candidate could get at most."""
    first_call_s: float
    hidden: bool = False
    """Whether this is a hidden case: never shown to who submits."""


class Timing(Wire):
    """A candidate beside one other attempt, interleaved."""

    against: int
    """Number of the other attempt; 0 is the baseline."""
    ratio: float
    """Weighted geometric mean of the cases' ratios: the score."""
    ratio_low: float
    ratio_high: float
    """95 % interval of `ratio`."""
    comparison: Outcome
    cases: list[CaseTiming]


class CaseLaunch(Wire):
    """One distinct launch of one case, as compiled."""

    case: str
    facts: LaunchFacts


class FindingNote(Wire):
    """A finding of the diagnosis, in short."""

    id: str
    title: str
    kernel: str
    line: int | None
    recipe: str
    expected_pct: float | None
    at_most_pct: float | None


class Diagnosed(Wire):
    """What diagnosis and profiler said of an attempt's heaviest case."""

    case: str
    findings: list[FindingNote]
    """By expected gain."""
    done: str | None = None
    """Why nothing is left to win, where that is so."""
    profiles: list[LaunchProfile] = []
    """Empty without counters; see `unmeasured`."""
    unmeasured: str | None = None
    """Why nothing was profiled."""


class Confirmation(Wire):
    """The second look at a candidate that is about to be accepted: fresh processes and seeds, hidden cases."""

    kind: Kind
    """`ok`, or how a hidden case, a fresh seed or the second measurement failed."""
    problem: Problem | None = None
    """Without anything that tells a hidden case's parameters or values."""
    hidden_checked: int
    """Hidden cases whose results were compared."""
    timing: Timing | None = None
    """Measured a second time against the incumbent."""


class Evidence(Wire):
    """All that one evaluation found."""

    kind: Kind
    stage: Stage
    problem: Problem | None = None
    identity: str | None = None
    """Same for files that compile to the same machine code, launched in the same way by the same host code."""
    launches: list[CaseLaunch] = []
    device: str | None = None
    """Where results were checked: `cuda:0` or `interpreter`."""
    own: list[CaseTime] = []
    """Of the visible cases, in the run that compares it with the baseline, or of the baseline alone."""
    timings: list[Timing] = []
    """Against the baseline and, where that is another, the incumbent; none of the baseline itself."""
    untimed: str | None = None
    """Why a right candidate has no times: no GPU."""
    confirmation: Confirmation | None = None
    diagnosed: Diagnosed | None = None
    seconds: dict[str, float] = {}
    """What each stage took."""
    notes: list[str] = []
    artifacts: list[str] = []

    def timing(self, against: int) -> Timing | None:
        """The comparison with an attempt."""
        return next((timing for timing in self.timings if timing.against == against), None)


class Prediction(Wire):
    """What a finding of its parent promised to an attempt that followed it, beside what was measured: time of the
    diagnosed case that is saved, in percent."""

    finding: str
    """Id of the catalogue."""
    kernel: str
    """Whose finding it is."""
    parent: int
    """The attempt that was diagnosed."""
    case: str
    expected_pct: float | None
    at_most_pct: float | None
    seen_pct: float
    """Beside the parent; negative where time was lost."""
    seen_low_pct: float
    seen_high_pct: float
    """95 % interval of `seen_pct`."""
    came: Literal["less", "as_expected", "more"]
    """`less`: not half of what was expected, by the whole interval; `more`: beyond what was to be had at most."""


class Attempt(Wire):
    """One candidate of a run, or (number 0) its baseline."""

    number: int
    state: AttemptState
    parent: int | None
    """The attempt that it was made from."""
    strategy: str
    """What was tried, in the submitter's words."""
    kernel_sha256: str
    """Of the file, which is kept."""
    kernel_shown_as: str = "<source>"
    kernel_origin: str | None = None
    """Folder that its own imports come from; None for source text."""
    text_identity: str
    """Same for files that differ in comments, docstrings and formatting only."""
    submitted_at: str
    finished_at: str | None = None
    counted: bool = False
    """Whether it costs an attempt of the budget."""
    accepted: bool = False
    duplicate_of: int | None = None
    evidence: Evidence | None = None
    verdict: "Verdict | None" = None
    hints: list["Hint"] = []
    remarks: list[str] = []
    """What it has in common with earlier ones, told when it was submitted."""
    predicted: Prediction | None = None
    """Where it follows a finding of its parent and was timed."""


class Verdict(Wire):
    """The arbiter's answer."""

    verdict: Literal["accept", "continue", "finish"]
    """`finish`: the run ends with this attempt."""
    accepted: bool
    """Whether the candidate is the incumbent from now on; also possible with `finish`."""
    reasons: list[str]
    """Most important first, with numbers."""
    lever: str | None = None
    """What to try next, where it goes on."""
    ended_by: Literal["target", "speed_of_light", "budget", "wall_time", "diminishing_returns"] | None = None
    """Why it finishes."""


class Hint(Wire):
    """Advice for the next candidate, with what it rests on."""

    text: str
    because: list[str]
    """Numbers before and after."""
    finding: str | None = None
    """Id of the catalogue that it comes from."""


class Memory(Wire):
    """What the arbiter knows of a run beside the attempt at hand."""

    attempts: list[Attempt]
    """All finished ones before it, the baseline first."""
    incumbent: int
    """Number of the best accepted attempt; 0 while it is the baseline."""
    budget: Budget
    limits: Limits
    elapsed_s: float
    """Since the run was started."""


Attempt.model_rebuild()
