"""What a headless optimization is asked for, and what it comes to."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

import anyio

from ...sandbox.source import Source
from ...sandbox.wire import Wire
from ..runs.machine import Machine
from ..tools.run_shown import Confirmed

Says = Callable[[str], None]
HowEnded = Literal["exited", "run_over", "wall_time", "rounds"]
"""`exited`: by itself; `run_over`: ended, as the run was over and its time for a last word too; `wall_time`: ended, as
the time was up; `rounds`: a program has been called as often as it may be."""
NONE: Final = "none"
"""The agent that has no ideas: the baseline is measured, and the run is left open."""
TUNE: Final = "tune"
"""The agent that needs no model: `tune_kernel`'s search."""


class Ablation(StrEnum):
    """What an agent is not given."""

    NO_PROFILE = "no-profile"
    """No profiler, and nothing that rests on it."""
    NO_DIAGNOSIS = "no-diagnosis"
    """No findings, and no hints made of them."""
    ONE_SHOT = "one-shot"
    """One candidate, and no second one in the light of what became of it."""


SWITCHED_OFF: Final = {Ablation.NO_PROFILE: "profile_ncu", Ablation.NO_DIAGNOSIS: "diagnose_kernel"}
"""The tool that goes with each, by its name."""


class Plan(NamedTuple):
    """One headless optimization."""

    kernel: str
    """Path of the kernel file, or its text. With `run_id` it is not read: the run has its own."""
    task: str | None
    """The same of the task; None: the agent writes it first."""
    agent: str
    """`claude`, `codex`, `gemini`, `tune`, `none`, or a command line."""
    agent_words: tuple[str, ...] = ()
    """Further arguments of an agent's CLI."""
    hidden_cases: str | None = None
    target: str | None = None
    rounds: int = 8
    parallel: int = 1
    target_pct: float = 95.0
    target_ratio: float | None = None
    wall_s: float = 7200.0
    """For everything up to the last look at the winner."""
    call_s: float = 600.0
    """For one call of a program."""
    export_to: Path | None = None
    """By default a folder called as the run, in the current one."""
    force: bool = False
    workspace: Path | None = None
    """Folder in which agents get a new one of their own; by default in the state folder."""
    run_id: str | None = None
    """An open run to go on with, whose kernel, task, target and budget stay as they are; None: a new one."""
    search_s: float = 30.0
    """For one search of the agent `tune`, beside what it takes to prepare it."""
    ablations: frozenset[Ablation] = frozenset()


class AgentEnd(Wire):
    """How one agent's work ended."""

    ended: HowEnded
    exit_code: int | None = None
    """Negative: the signal that ended it. Null: of a program that is called once a round."""
    log: str | None = None
    """File with all that it printed."""
    last_words: str | None = None
    """End of what it printed, or of what was wrong with its answers."""
    malformed: int = 0
    """Answers of a program that could not be read; each cost a round."""
    no_idea: str | None = None
    """Of `tune`: why it had nothing (more) to offer."""
    chosen: dict[str, int | bool | str | None] | None = None
    """Of `tune`: the values of the knobs of the candidate that was accepted."""


class OptimizeResult(Wire):
    """What a headless optimization came to."""

    gained: bool
    """Whether a candidate was accepted and stood up to the last look."""
    summary: str
    run_id: str | None = None
    attempt: int | None = None
    """The best accepted one; null: the baseline stays."""
    ratio: float | None = None
    """The baseline's time over its own."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    """95 % interval of `ratio`."""
    verified: Confirmed | None = None
    """The winner beside the baseline, measured once more at the end. Null: there is none, or it could not be."""
    attempts: int = 0
    """Candidates that the run has taken."""
    ended_by: str | None = None
    """What ended the run; `agent`: its agents had no more to offer; `wall_time`."""
    agents: list[AgentEnd] = []
    task: str | None = None
    """File that the task is in, where the agent wrote it."""
    files: list[str] = []
    """What was exported."""
    why_not: str | None = None
    """Why nothing was gained."""
    chosen: dict[str, int | bool | str | None] | None = None
    """Of the agent `tune`: the values of the winner's knobs."""
    stage: str | None = None
    """Of a failure that left nothing to judge: where it happened, as problems name it (`agent`, `source`, ...)."""
    seconds: float | None = None
    """That the whole took."""
    seconds_by_stage: dict[str, float] = {}
    """`task` (written by the agent), `baseline`, `agent`, `finish` (the last look and the export); those there were."""


class Site(NamedTuple):
    """What agents work on."""

    machine: Machine
    run_id: str
    kernel: Path
    """The baseline's file."""
    task: Path
    target: str
    folder: Path
    """Where each agent gets a folder of its own."""
    over: anyio.Event
    """Set when the run takes no more candidates and none is being evaluated."""
    deadline: float
    """By the event loop's clock."""


class TaskAsked(NamedTuple):
    """A task that an agent is to write."""

    kernel: Source
    path: Path
    """Of the kernel's file."""
    folder: Path
    written: Path
    """Where the task is to be."""
    wrong: str | None
    """What was wrong with the one before."""


class Agent(Protocol):
    """Who has the ideas. Either call is cancelled when the time is up."""

    ends: list[AgentEnd]
    """Of all that was started, in the order of their ends."""

    async def write_task(self, asked: TaskAsked) -> str | None:
        """Write the task.

        Returns:
            Path or text of it; None: there is none, and the last of `ends` tells why.
        """
        ...

    async def work(self, site: Site) -> None:
        """Make and submit candidates until the run is over, or there are no more ideas."""
        ...
