"""A headless optimization from kernel to export: task, run, agent, last look, winner."""

import contextlib
import shlex
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import NamedTuple

import anyio

from ...profiling.optimization.model import BASELINE
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind, Problem
from ..runs.evaluation import ToolEvaluator
from ..runs.evaluator import Evaluator
from ..runs.machine import WINNER, Machine
from ..runs.record import Run
from ..runs.store import Store
from ..services import Services
from ..settings import Settings
from ..tools import diagnose_kernel
from .agents import AGENTS, Attached, attached
from .beginning import BASELINE_FILE, TASK_FILE, Stages, Start
from .cli_agent import CliAgent
from .command_agent import CommandAgent
from .finish import finish
from .model import NONE, SWITCHED_OFF, TUNE, Ablation, Agent, OptimizeResult, Plan, Says, Site
from .no_agent import NoAgent
from .tune_agent import TuneAgent
from .watch import Watch


class Opened(NamedTuple):
    """What optimizations share in one process."""

    services: Services
    machine: Machine


@contextlib.asynccontextmanager
async def opened(
    settings: Settings,
    ablations: frozenset[Ablation] = frozenset(),
    evaluator: Callable[[Services], Evaluator] = ToolEvaluator,
) -> AsyncGenerator[Opened]:
    """Services and runs for `optimize_with`, for as many optimizations with these ablations as one likes.

    Args:
        settings: of this process.
        ablations: of all plans that are worked on with them.
        evaluator: what measures here.
    """
    services = Services(ablated(settings, ablations))
    machine = Machine(
        Store(settings.state_dir / "runs"),
        evaluator(services),
        lambda: services.evaluations,
        state_dir=settings.state_dir,
        advises=diagnose_kernel.NAME not in services.settings.without,
    )
    async with services, machine:
        yield Opened(services, machine)


def ablated(settings: Settings, ablations: frozenset[Ablation]) -> Settings:
    """The same with the tools switched off that go with some ablations: here, and in servers that agents start."""
    tools = [SWITCHED_OFF[each] for each in sorted(ablations) if each in SWITCHED_OFF]
    return settings.model_copy(update={"without": tuple(dict.fromkeys([*settings.without, *tools]))})


async def optimize(
    plan: Plan,
    settings: Settings,
    *,
    say: Says,
    evaluator: Callable[[Services], Evaluator] = ToolEvaluator,
    server: Attached | None = None,
    begun: Says | None = None,
    stages: Stages | None = None,
) -> OptimizeResult:
    """Let an agent optimize a kernel, and export what it won.

    Args:
        plan: what is asked for.
        settings: of this process, and of the server that the agent's CLI gets.
        say: takes progress, a line each.
        evaluator: what measures here: baseline, winner, and the candidates of programs.
        server: what the agent's CLI starts; by default this server with the same settings.
        begun: takes the run's id as soon as there is one.
        stages: take how long each took, also where this fails.

    Raises:
        Stopped: ``rejected``: a file, the task or the agent can't be used; others: the baseline can't be measured.
    """
    async with opened(settings, plan.ablations, evaluator) as (services, machine):
        return await optimize_with(plan, services, machine, say=say, server=server, begun=begun, stages=stages)


async def optimize_with(
    plan: Plan,
    services: Services,
    machine: Machine,
    *,
    say: Says,
    server: Attached | None = None,
    begun: Says | None = None,
    stages: Stages | None = None,
) -> OptimizeResult:
    """The same with what `opened` gives: one after the other, or several at once, each with a folder of its own.

    A run is ended however this ends, unless the agent is `none`, whose run is left open with its baseline measured.

    Args:
        plan: what is asked for.
        services: open, with the plan's ablations.
        machine: open, of these services.
        say: takes progress, a line each.
        server: what the agent's CLI starts; by default this server with the same settings.
        begun: takes the run's id as soon as there is one.
        stages: take how long each took, also where this fails.

    Raises:
        Stopped: ``rejected``: a file, the task, the run or the agent can't be used; others: the baseline can't be
            measured, or what is no candidate's doing.
        ValueError: the services were opened without the plan's ablations.
    """
    at = time.monotonic()
    if ablated(services.settings, plan.ablations) != services.settings:
        raise ValueError(f"the services were opened without {', '.join(sorted(plan.ablations))}")
    if Ablation.ONE_SHOT in plan.ablations:
        plan = plan._replace(rounds=1)
    await anyio.to_thread.run_sync(_require_room, plan)
    agent = _agent(plan, services, server or attached(services.settings), say)
    stages = stages or Stages()
    start = Start(
        plan, agent, machine, services.settings.state_dir, anyio.current_time() + plan.wall_s, say, stages, begun
    )
    try:
        result = await _optimized(plan, agent, machine, start, say)
    except BaseException:
        if start.run_id is not None:
            with anyio.CancelScope(shield=True):
                await _abandon(machine, start.run_id)
        raise
    task = None if start.task_file is None else str(start.task_file)
    return result.model_copy(
        update={
            "agents": list(agent.ends),
            "chosen": agent.ends[-1].chosen if result.gained and agent.ends else None,
            "task": task,
            "seconds": round(time.monotonic() - at, 1),
            "seconds_by_stage": stages.seconds,
        }
    )


async def _optimized(plan: Plan, agent: Agent, machine: Machine, start: Start, say: Says) -> OptimizeResult:
    run: Run | None = None
    timely = False
    with anyio.move_on_at(start.deadline):
        run = await start.run()
        if plan.agent != NONE:
            with start.stages.stage("agent"):
                await _work(agent, machine, run, start, say)
        timely = True
    if run is None:
        raise Stopped(
            Kind.TIMEOUT,
            Problem(
                stage="run",
                message=f"there was no run with a measured baseline within {plan.wall_s:g} s",
                likely_fix="Allow more time: --wall-s.",
            ),
        )
    if plan.agent == NONE:
        return await _left_open(machine, run)
    with start.stages.stage("finish"):
        return await finish(plan, machine, run.frozen.run_id, start.deadline, agent, timely=timely, say=say)


async def _left_open(machine: Machine, run: Run) -> OptimizeResult:
    run_id = run.frozen.run_id
    attempts = await anyio.to_thread.run_sync(machine.store.attempts, run_id)
    left = "the run is left open" if run.state == "open" else f"the run is {run.state} ({run.ended_by})"
    return OptimizeResult(
        gained=False,
        summary=f"The baseline of run {run_id} is measured, and {left}.",
        run_id=run_id,
        attempts=sum(each.number != BASELINE for each in attempts),
        ended_by=run.ended_by,
        why_not="no agent was asked for",
    )


async def _abandon(machine: Machine, run_id: str) -> None:
    """End a run that nobody goes on with, and what is evaluated of it here."""
    for number in machine.at_work(run_id):
        if number != WINNER:
            await machine.cancel(run_id, number)
    # What went wrong before says more than that it can't be ended, too.
    with contextlib.suppress(Stopped):
        await machine.end(run_id)


def _agent(plan: Plan, services: Services, server: Attached, say: Says) -> Agent:
    """
    Raises:
        Stopped: ``rejected``: there is no such program, or it does not take what else is asked for.
    """
    if plan.agent in AGENTS:
        return CliAgent(plan, server, say)
    if plan.agent_words:
        raise rejected(
            "agent", "--agent-args are for claude, codex and gemini", fix="Write them into the command line."
        )
    if plan.agent == NONE:
        return NoAgent()
    if plan.agent == TUNE:
        return TuneAgent(plan, services, say)
    try:
        words = shlex.split(plan.agent)
    except ValueError as error:
        raise rejected("agent", f"--agent is no command line: {error}", fix="Quote it as a shell wants it.") from None
    return CommandAgent(plan, words, say)


def _require_room(plan: Plan) -> None:
    """Better told now than when there is a winner.

    Raises:
        Stopped: ``rejected``: the winner's folder holds something, or can't be written.
    """
    folder = plan.export_to or Path()
    if plan.agent == NONE:
        return
    try:
        if plan.export_to is not None and folder.exists():
            if not folder.is_dir():
                raise rejected("export", f"{folder} is a file and no folder", fix="Name another one with --to.")
            if not plan.force and any(folder.iterdir()):
                raise rejected(
                    "export", f"{folder} is not an empty folder", fix="Name another one with --to, or add --force."
                )
        there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise rejected(
            "export", f"the winner can't be written into {folder.absolute()}: {error.strerror}",
            fix="Name another folder with --to.",
        ) from None  # fmt: skip


async def _work(agent: Agent, machine: Machine, run: Run, start: Start, say: Says) -> None:
    """Let the agent work on a run until it is over, or there are no more ideas."""
    watch = Watch(machine.store, run.frozen.run_id, say)
    site = Site(
        machine=machine,
        run_id=run.frozen.run_id,
        kernel=start.folder / BASELINE_FILE,
        task=start.folder / TASK_FILE,
        target=run.frozen.target,
        folder=start.folder,
        over=watch.over,
        deadline=start.deadline,
    )
    if run.state != "open":
        return
    failure: Stopped | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run)
            await agent.work(site)
            await watch.look()
            tasks.cancel_scope.cancel()
    except* Stopped as group:
        failure = _first(group)
    if failure is not None:
        raise failure


def _first(group: BaseExceptionGroup[Stopped]) -> Stopped:
    first = group.exceptions[0]
    return first if isinstance(first, Stopped) else _first(first)
