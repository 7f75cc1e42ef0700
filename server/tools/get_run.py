"""get_run: where runs and their attempts stand; waits, cancels, ends, and picks up what a server has left behind."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import anyio
from mcp_types import ToolAnnotations

from ...profiling.optimization.model import BASELINE, Attempt
from ...sandbox.errors import Stopped, rejected
from ..runs.machine import Machine
from ..runs.memory import source_of
from ..runs.record import Run
from ..runs.visible import visible_kernel
from .parameters import Progress
from .run_lineage_report import RUNS, Standing, about_attempt, about_run, listed
from .run_lineage_shown import RunResult
from .run_report import tell
from .run_shown import words
from .run_words import predicted_words
from .submit_candidate import settled

NAME: Final = "get_run"
TITLE: Final = "Where an optimization run stands"
DESCRIPTION: Final = """\
Tells where optimization runs stand. Without run_id: the runs, newest first. With run_id: state (measuring, open, \
finished, failed), budget and what is left of it, incumbent (the best accepted attempt, with its ratio to the \
baseline), attempts[] (number, parent, strategy, kind, ratio, accepted, duplicate_of; the newest and best 15), front[] \
(attempts that are the best in some case, or a trade-off), suggested_parent (which attempt to go on from, and why: not \
always the best), lessons[] so far, at_work[] (what is being evaluated, and how far it is). With attempt too: that \
attempt's whole answer, as submit_candidate gives it.
wait_s (0 to 600, default 0) waits until the attempt, or whatever is being evaluated, is over: use it where a call \
returned kind 'running'. cancel=true ends the evaluation of that attempt; end=true ends the run and keeps its lessons. \
detail=true tells more; with attempt also that file's source. Evaluations that a server left behind when it ended are \
begun again, and resumed[] says so: a run can be gone on with after a crash, or by another agent."""
ANNOTATIONS: Final = ToolAnnotations(
    title=TITLE,
    # It can end evaluations and runs, and begins again what was left behind.
    read_only_hint=False,
    idempotent_hint=True,
    destructive_hint=False,
    open_world_hint=True,
)


DAMAGED: Final = 3
"""Runs that are named though they can't be read."""
DAMAGED_CHARACTERS: Final = 300


class Wanted(NamedTuple):
    """What is asked of a run."""

    attempt: int | None
    wait_s: float
    cancel: bool
    end: bool
    detail: bool


async def get_run(machine: Machine, progress: Progress, *, run_id: str | None, wanted: Wanted) -> RunResult:
    """Tell where runs, a run, or one attempt of it stand.

    Raises:
        Stopped: ``rejected``: there is no such run or attempt, or arguments that don't go together.
    """
    if run_id is None:
        if wanted.attempt is not None or wanted.cancel or wanted.end:
            raise rejected(
                "run",
                "attempt, cancel and end need a run_id",
                fix="Call get_run() for the list of runs, then get_run(run_id=..., ...).",
            )
        return await anyio.to_thread.run_sync(_runs, machine)
    if wanted.cancel and wanted.attempt is None:
        raise rejected("run", "cancel ends the evaluation of one attempt, and none is named", fix="Give attempt too.")
    notes: list[str] = []
    resumed = [] if wanted.end else await machine.resume(run_id)
    if wanted.attempt is not None:
        # Whether there is one at all, before anything is done.
        await machine.answer(run_id, wanted.attempt)
    if wanted.cancel and wanted.attempt is not None:
        ended = await machine.cancel(run_id, wanted.attempt)
        how = "was ended" if ended else "was not going on in this server"
        notes.append(f"the evaluation of attempt {wanted.attempt} {how}")
    if wanted.end:
        await machine.end(run_id)
        notes.append("the run was ended")
    number = wanted.attempt
    if number is None and wanted.wait_s > 0:
        attempts = await anyio.to_thread.run_sync(machine.store.attempts, run_id)
        number = min(_at_work(machine, run_id, attempts), default=None)
    failure = None if number is None else await settled(machine, run_id, number, wanted.wait_s, progress)
    if wanted.attempt is not None:
        return await _attempt(machine, run_id, wanted, failure, resumed, notes)
    if failure is not None:
        notes.append(f"attempt {number} could not be evaluated: {failure.kind}: {failure.problem.message}")
    answer = await machine.answer(run_id, BASELINE)
    attempts = await anyio.to_thread.run_sync(machine.store.attempts, run_id)
    standing = Standing(answer, attempts, _at_work(machine, run_id, attempts), resumed, notes)
    return about_run(standing, detail=wanted.detail)


async def _attempt(
    machine: Machine, run_id: str, wanted: Wanted, failure: Stopped | None, resumed: list[int], notes: list[str]
) -> RunResult:
    assert wanted.attempt is not None
    answer = await machine.answer(run_id, wanted.attempt)
    working = _at_work(machine, run_id, [answer.attempt])
    told = tell(answer, failure=failure, doing=working.get(wanted.attempt), detail=wanted.detail)
    source = None
    if wanted.detail and answer.attempt.predicted is not None:
        notes.append(predicted_words(answer.attempt.predicted))
    if wanted.detail:
        # A file may be kernel and task at once.
        source = visible_kernel((await anyio.to_thread.run_sync(source_of, machine.store, answer.attempt)).text)
    return about_attempt(told, Standing(answer, [], working, resumed, notes), source)


def _at_work(machine: Machine, run_id: str, attempts: Sequence[Attempt]) -> dict[int, str]:
    """Which of a run's attempts are being evaluated, here and by other servers, and how far they are."""
    here = machine.at_work(run_id)
    running = [attempt.number for attempt in attempts if attempt.state == "running"]
    return {number: here.get(number, "another server evaluates it") for number in running}


def _runs(machine: Machine) -> RunResult:
    """The newest runs, and those that can't be read."""
    kept = machine.store.kept()
    shown: list[tuple[Run, list[Attempt]]] = []
    damaged = list(kept.damaged.values())
    for run in kept.runs[:RUNS]:
        try:
            shown.append((run, machine.store.attempts(run.frozen.run_id)))
        except Stopped as stopped:
            damaged.append(stopped.problem.message)
    notes = [f"not listed: {words(each, DAMAGED_CHARACTERS)}" for each in damaged[:DAMAGED]]
    if len(damaged) > DAMAGED:
        notes.append(f"{len(damaged) - DAMAGED} more can't be read either")
    return listed(shown, len(kept.runs) + len(kept.damaged), notes)
