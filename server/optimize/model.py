"""What a headless optimization is asked for, and what it comes to."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import anyio

from ...sandbox.source import Source
from ...sandbox.wire import Wire
from ..runs.machine import Machine
from ..tools.run_shown import Confirmed

Says = Callable[[str], None]
HowEnded = Literal["exited", "run_over", "wall_time", "rounds"]
"""`exited`: by itself; `run_over`: ended, as the run was over and its time for a last word too; `wall_time`: ended, as
the time was up; `rounds`: a program has been called as often as it may be."""


class Plan(NamedTuple):
    """One headless optimization."""

    kernel: str
    """Path of the kernel file, or its text."""
    task: str | None
    """The same of the task; None: the agent writes it first."""
    agent: str
    """`claude`, `codex`, `gemini`, or a command line."""
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
    """Folder that agents work in; by default one of their own in the state folder."""


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
    seconds: float = 0.0


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
