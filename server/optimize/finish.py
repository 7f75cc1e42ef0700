"""The end of a headless optimization: what was left behind, the last look at the winner, its export."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from ...profiling.optimization.model import BASELINE, Attempt, Confirmation
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind
from ..runs.export import export
from ..runs.machine import WINNER, Machine
from ..runs.record import Run
from ..runs_shown import attempt_line
from ..tools.run_report import best, confirmed
from ..tools.run_shown import words
from ..tools.run_words import confirmed_words, score_words
from .model import Agent, AgentEnd, OptimizeResult, Plan, Says

POLL_S: Final = 0.2
WORDS_CHARACTERS: Final = 240
"""Of an agent's last words in a summary."""
VERIFY_S: Final = 900.0
"""For the last look at the winner."""


class _End(NamedTuple):
    """A run that is over."""

    run: Run
    attempts: list[Attempt]
    ended_by: str | None
    agents: Sequence[AgentEnd]


async def finish(
    plan: Plan, machine: Machine, run_id: str, deadline: float, agent: Agent, *, timely: bool, say: Says
) -> OptimizeResult:
    """End a run, look at its winner once more, and export it.

    Args:
        plan: what was asked for.
        machine: of this process.
        run_id: the run.
        deadline: until when candidates may be evaluated that were left behind.
        agent: that has worked on it.
        timely: whether its agents came to their end before that.
        say: takes progress.
    """
    with anyio.move_on_at(deadline):
        await _finish_left(machine, run_id, say)
    for number in machine.at_work(run_id):
        if number != WINNER:
            await machine.cancel(run_id, number)
    run = await machine.end(run_id, "agent" if timely else "wall_time")
    run = await _verified(machine, run, say)
    attempts = await anyio.to_thread.run_sync(machine.store.attempts, run_id)
    result = await _result(machine, _End(run, attempts, run.ended_by, agent.ends))
    if not result.gained:
        say(result.summary)
        return result
    folder = plan.export_to or Path(run_id)
    try:
        exported = await anyio.to_thread.run_sync(
            lambda: export(machine.store, run_id, folder, run.incumbent, force=plan.force)
        )
    except Stopped as stopped:
        # All that was won is in the store: no reason to lose it for a folder.
        why = f"It could not be exported: {stopped.problem.message}. Use: tritonforge-mcp runs export {run_id} --to DIR"
        say(f"{result.summary} {why}")
        return result.model_copy(update={"summary": f"{result.summary} {why}"})
    say(f"{result.summary} It is in {folder}: {', '.join(path.name for path in exported.paths)}.")
    return result.model_copy(update={"files": [str(path) for path in exported.paths]})


async def _finish_left(machine: Machine, run_id: str, say: Says) -> None:
    """Evaluate to the end what an agent's server has left behind, or still evaluates."""
    told: set[int] = set()
    while True:
        for number in await machine.resume(run_id):
            told.add(number)
            say(f"attempt {number} was left behind by the agent's server; its evaluation goes on")
        attempts = await anyio.to_thread.run_sync(machine.store.attempts, run_id)
        for attempt in attempts:
            if attempt.number in told and attempt.state != "running":
                told.discard(attempt.number)
                say(f"  {attempt_line(attempt)}")
        if not any(attempt.state == "running" for attempt in attempts):
            return
        await anyio.sleep(POLL_S)


async def _verified(machine: Machine, run: Run, say: Says) -> Run:
    """The run once its winner was looked at again, or could not be."""
    run_id = run.frozen.run_id
    if run.incumbent == BASELINE:
        return run
    if WINNER in machine.at_work(run_id):
        say("measuring the winner once more, beside the baseline")
        # That it can't be is told by what is not there.
        with contextlib.suppress(Stopped):
            await machine.wait(run_id, WINNER, VERIFY_S, _silent)
    return await anyio.to_thread.run_sync(machine.store.run, run_id)


async def _result(machine: Machine, end: _End) -> OptimizeResult:
    run_id = end.run.frozen.run_id
    answer = await machine.answer(run_id, BASELINE)
    count = sum(attempt.number != BASELINE for attempt in end.attempts)
    result = OptimizeResult(gained=False, summary="", run_id=run_id, attempts=count, ended_by=end.ended_by)
    if end.run.incumbent == BASELINE:
        why = _why_nothing(end)
        by = "" if end.ended_by is None else f", ended by {end.ended_by}"
        summary = f"Nothing was gained in {count} attempt(s){by}: {why}. The baseline stays."
        return result.model_copy(update={"summary": summary, "why_not": why})
    found, look = best(answer), confirmed(end.run.verified)
    why = _why_not_believed(end.run.verified)
    measured = "" if found.ratio is None else f" at {score_words(found)} the baseline's speed"
    last = "it could not be measured once more" if look is None else f"measured once more: {confirmed_words(look)}"
    won = f"attempt {found.attempt}{measured}"
    return result.model_copy(
        update={
            "gained": why is None,
            "summary": f"The winner is {won}; {last}." if why is None else f"Nothing was gained: {won}, but {why}.",
            "attempt": found.attempt,
            "ratio": found.ratio,
            "ratio_low": found.ratio_low,
            "ratio_high": found.ratio_high,
            "verified": look,
            "why_not": why,
        }
    )


def _why_nothing(end: _End) -> str:
    if end.run.frozen.gpu is None:
        return "this machine has no GPU, so nothing can be timed and nothing accepted"
    if all(attempt.number == BASELINE for attempt in end.attempts):
        if end.ended_by == "speed_of_light":
            return "the baseline is at its target already"
        return f"no candidate was submitted{_how_agents_failed(end.agents)}"
    return "no candidate was right and faster beyond the noise"


def _how_agents_failed(agents: Sequence[AgentEnd]) -> str:
    failed = next((end for end in agents if end.exit_code or end.malformed or end.no_idea), None)
    if failed is None:
        return ""
    if failed.no_idea is not None:
        return f"; {failed.no_idea}"
    how = f"an agent exited with code {failed.exit_code}" if failed.exit_code else "its answers were malformed"
    last = (failed.last_words or "").splitlines()
    return f"; {how}" + (f": {words(last[-1], WORDS_CHARACTERS)}" if last else "")


def _why_not_believed(look: Confirmation | None) -> str | None:
    """Why the last look takes back what was accepted; None: it does not."""
    if look is None:
        return None
    if look.kind is not Kind.OK:
        told = "" if look.problem is None else f": {look.problem.message}"
        return f"the last look at it ended as {look.kind}{told}"
    if look.timing is not None and look.timing.comparison != "faster":
        return f"when it was measured once more, it was {look.timing.comparison}: {look.timing.ratio:.3g}x"
    return None


async def _silent(done: float, total: float, message: str) -> None:
    """It takes seconds."""
