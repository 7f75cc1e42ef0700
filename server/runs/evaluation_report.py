"""An evaluation's evidence while it is gathered, and how far it is."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ...profiling.optimization.model import Evidence, Stage
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind, Problem
from ..tools.parameters import Progress
from ..tools.run_correctness import CorrectnessResult
from .evaluation_compile import NOT_ITS_DOING
from .evaluation_facts import bounded
from .evaluator import Identified

LAUNCHES_KEPT: Final = 64
BASELINES: Final = "the baseline failed: "
"""How `blaming_baseline` begins."""


class Steps:
    """Tells how far a sequence of tools is, each of which tells its own part."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._number = progress, total, -1

    def next(self, words: str = "") -> Progress:
        """What the next tool tells its progress to; `words` go before what it says."""
        self._number += 1
        number = self._number

        async def told(done: float, total: float, message: str) -> None:
            part = min(done / total, 1.0) if total else 0.0
            await self._progress(number + part, self._total, " ".join(filter(None, [words, message])))

        return told


class Report:
    """What becomes an `Evidence`."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        self._notes: list[str] = []
        self._artifacts: list[str] = []

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Time a stage, however it ends."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = round(time.perf_counter() - started, 3)

    def reached(self, name: str) -> bool:
        """Whether a stage was begun and has ended, well or not."""
        return name in self._seconds

    def add(self, **fields: Any) -> None:
        """Fields of the evidence."""
        self._fields |= fields

    def found(self, known: Identified, checked: CorrectnessResult | None) -> None:
        """What compiling and checking found."""
        self.add(identity=known.identity, launches=known.launches[:LAUNCHES_KEPT])
        if len(known.launches) > LAUNCHES_KEPT:
            self.note([f"{len(known.launches) - LAUNCHES_KEPT} further distinct launches are not kept"], [])
        if checked is not None:
            self.add(device=checked.device)
            smaller = ", ".join(checked.made_smaller)
            self.note([f"made smaller for the interpreter: {smaller}"] if smaller else [], checked.artifacts)

    def note(self, notes: Sequence[str], artifacts: Sequence[str]) -> None:
        """What a reader must know, and files of the tools."""
        self._notes = list(dict.fromkeys([*self._notes, *notes]))
        self._artifacts = list(dict.fromkeys([*self._artifacts, *artifacts]))

    def evidence(self, kind: Kind, stage: Stage, problem: Problem | None = None) -> Evidence:
        """Everything together."""
        return Evidence(
            kind=kind,
            stage=stage,
            problem=problem,
            seconds=self._seconds,
            notes=self._notes,
            artifacts=self._artifacts,
            **self._fields,
        )


def failing(stopped: Stopped, stage: Stage) -> tuple[Kind, Stage, Problem]:
    """How a candidate failed.

    Raises:
        Stopped: ``cancelled`` or ``unavailable``: it was not the candidate's doing.
    """
    if stopped.kind in NOT_ITS_DOING:
        raise stopped
    if stopped.problem.message.startswith(BASELINES):
        # The file that it is compared with was right before.
        message = f"what the candidate is compared with failed: {stopped.problem.message.removeprefix(BASELINES)}"
        fix = "Submit it again; where this stays, the machine or the frozen file has changed."
        problem = stopped.problem.model_copy(update={"message": message, "likely_fix": fix})
        raise Stopped(Kind.UNAVAILABLE, bounded(problem)) from stopped
    return stopped.kind, stage, bounded(stopped.problem)
