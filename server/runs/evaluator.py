"""The contract between a run and what evaluates its candidates."""

from typing import NamedTuple, Protocol

from ...profiling.optimization.model import CaseLaunch, Confirmation, Evidence
from ...sandbox.source import Source
from ..tools.parameters import Progress
from .record import Frozen, HiddenCases, HiddenFrom


class Sources(NamedTuple):
    """The frozen files of a run."""

    baseline: Source
    task: Source
    hidden: HiddenCases


class Asked(NamedTuple):
    """What a run is started with, as far as the files say it."""

    title: str
    entry: str
    cases: list[str]
    hidden: HiddenCases
    hidden_from: HiddenFrom
    target: str
    gpu: str | None
    torch: str | None
    triton: str | None


class Measured(NamedTuple):
    """The baseline, measured."""

    evidence: Evidence
    hidden: HiddenCases
    """Those that the baseline passes."""
    dropped: dict[str, str]
    """The others of those that were derived, with the reason."""


class Other(NamedTuple):
    """An attempt that a candidate is compared with."""

    number: int
    source: Source
    evidence: Evidence


class Identified(NamedTuple):
    """A candidate that compiles."""

    identity: str
    launches: list[CaseLaunch]


class Evaluator(Protocol):
    """Evaluates baseline and candidates. Failing candidates are data: only what is no candidate's doing is raised."""

    async def look(self, kernel: Source, task: Source, hidden: Source | None, target: str | None) -> Asked:
        """Load and check the files of a new run; derive hidden cases where none are given.

        Args:
            kernel: the baseline.
            task: the task.
            hidden: a Python source that defines HIDDEN_CASES, given to the server alone.
            target: what is compiled for; this machine's GPU by default.

        Raises:
            Stopped: a file can't be used.
        """
        ...

    async def baseline(self, frozen: Frozen, sources: Sources, progress: Progress) -> Measured:
        """Correctness on all cases, times, diagnosis and speed of light of the baseline.

        Raises:
            Stopped: it fails: the run can't begin.
        """
        ...

    async def identify(self, frozen: Frozen, sources: Sources, candidate: Source) -> Identified:
        """Compile a candidate for all cases.

        Raises:
            Stopped: it does not load or compile.
        """
        ...

    async def evaluate(
        self, frozen: Frozen, sources: Sources, candidate: Source, known: Identified, incumbent: Other,
        parent: Other, progress: Progress,
    ) -> Evidence:  # fmt: skip
        """Correctness, then times against the baseline and the incumbent, then diagnosis. Failures are in the
        evidence's kind and problem, `cancelled` and `unavailable` of the server apart.

        Raises:
            Stopped: ``cancelled``, or ``unavailable``, where it is no candidate's doing.
        """
        ...

    async def confirm(
        self, frozen: Frozen, sources: Sources, candidate: Source, incumbent: Other, progress: Progress
    ) -> Confirmation:
        """The second look before acceptance: fresh processes, fresh seeds, hidden cases, times once more.

        Raises:
            Stopped: ``cancelled`` or ``unavailable``.
        """
        ...
