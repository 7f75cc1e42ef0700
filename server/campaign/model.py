"""What a campaign is asked for, and what it keeps of each kernel."""

from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue

from ...profiling.comparison import Outcome as Comparison
from ...sandbox.wire import Wire
from ..optimize.model import Ablation

SUCCESS_RATIO: Final = 1.05
"""From this speed-up on a kernel counts as sped up, as in the TritonForge paper."""


class Plan(Wire):
    """One campaign, as far as its results depend on it."""

    folder: Path
    """Of the artefacts that become tasks."""
    agent: str
    """`none`, `tune`, `claude`, `codex`, `gemini`, or a command line."""
    agent_words: tuple[str, ...] = ()
    subset: int | None = None
    """So many of them, chosen by `seed`; None: all."""
    seed: int = 0
    only: tuple[str, ...] = ()
    """Names; empty: all."""
    ablations: frozenset[Ablation] = frozenset()
    rounds: int = 8
    search_s: float = 30.0
    """For one search of the agent `tune`, in seconds."""
    wall_s: float = 1800.0
    """For one kernel, in seconds."""
    at_once: int = 1
    """Kernels that are worked on at a time on each GPU. Measurements have the GPU to themselves all the same: what
    overlaps is the compiler's work and that of agents."""
    performance: Path | None = None
    """Folder of TritonBench performance files; looked for in its repository by default."""
    unseen: bool = True
    """Whether winners are tried on shapes that they were not optimized for."""


class Entry(Wire):
    """An artefact of the folder."""

    name: str
    path: Path
    lines: int
    """Of its kernel part, without blank lines and comments."""


class CaseTime(Wire):
    """A baseline in one case."""

    case: str
    device_us: float
    speed_of_light_pct: float | None = None


class Gain(Wire):
    """The baseline's time over another's: weighted over the cases, with its 95 % interval."""

    ratio: float
    ratio_low: float
    ratio_high: float
    comparison: Comparison


class Unseen(Wire):
    """A winner on a shape that it was not optimized for."""

    case: str
    parameters: dict[str, JsonValue] = {}
    kind: str
    """`ok`: right and timed; else what it ended as, such as `wrong`."""
    gain: Gain | None = None
    problem: str | None = None


Outcome = Literal["not_loaded", "baseline_failed", "unjudged", "measured", "untimed", "no_gain", "gained", "failed"]
"""`not_loaded`: no task could be made of it. `baseline_failed`: it does not run. `unjudged`: it was timed, but it
disagrees with itself, or its results prove nothing: no candidate can be judged by it. `measured`: the baseline was, and
there was no agent. `untimed`: there is no GPU. `no_gain`, `gained`: the agent's work, verified. `failed`: the
campaign could not go on with it, through no fault of the kernel's."""


class KernelRecord(Wire):
    """What became of one kernel."""

    name: str
    path: str
    """Relative to the folder."""
    lines: int
    outcome: Outcome
    why: str | None = None
    """Why it is not `gained`, in a sentence."""
    failure_kind: str | None = None
    """Of what is `not_loaded`, `baseline_failed`, `unjudged` or `failed`: the kind, such as `compile_error`."""
    form: str | None = None
    """Of the artefact, such as `tritonbench`."""
    entry: str | None = None
    cases: int = 0
    """Of the task, without hidden ones."""
    assumptions: list[str] = []
    gpu: str | None = None
    """Name of the device, as torch gives it."""
    gpu_uuid: str | None = None
    run_id: str | None = None
    baseline: list[CaseTime] = []
    """Cases that were timed; empty: none was."""
    gain: Gain | None = None
    """Of the winner, as it was measured when it was accepted."""
    verified: Gain | None = None
    """The same once more at the end, with fresh inputs."""
    device_gain: Gain | None = None
    """On the device alone, of the candidate that gained most there and was right on the visible cases; it need not have
    been accepted."""
    device_gain_refused: str | None = None
    """Why that one was not accepted; None: it was, or there is none."""
    hidden_checked: int = 0
    """Hidden cases in which the winner was compared."""
    attempts: int = 0
    """Candidates submitted."""
    attempt_kinds: dict[str, int] = {}
    """How many candidates ended as `ok`, `wrong`, `compile_error` …"""
    chosen: dict[str, JsonValue] | None = None
    """Of the agent `tune`: the values of the winner's knobs."""
    unseen: list[Unseen] = []
    unseen_absent: str | None = None
    """Why a winner was not tried on other shapes."""
    unseen_left_out: list[str] = []
    """Why some of them were left out, in sentences."""
    seconds: dict[str, float] = {}
    """By stage: adapt, baseline, agent, unseen; total."""

    @property
    def speedup(self) -> float | None:
        """What counts: a winner's verified gain, else its gain; 1 where the baseline stays; None: not measured."""
        if self.outcome == "gained":
            found = self.verified or self.gain
            return None if found is None else found.ratio
        return 1.0 if self.outcome == "no_gain" else None
