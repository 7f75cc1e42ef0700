"""A headless optimization from kernel to export: task, run, agent, last look, winner."""

import json
import secrets
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from ...profiling.optimization.model import BASELINE, Budget, Limits
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import INLINE, Source, read_source
from ..runs.evaluation import ToolEvaluator
from ..runs.evaluator import Evaluator
from ..runs.machine import Beginning, Machine
from ..runs.record import Run
from ..runs.store import Store
from ..services import Services
from ..settings import Settings
from ..tools.parameters import Progress
from ..tools.run_report import tell
from .agents import AGENTS, Attached, attached
from .cli_agent import CliAgent
from .command_agent import CommandAgent
from .finish import finish
from .model import Agent, OptimizeResult, Plan, Says, Site, TaskAsked
from .watch import Watch

TASK_TRIES: Final = 3
"""How often an agent may write a task that is refused."""
WAIT_S: Final = 600.0
"""Of one look at an evaluation; it is looked at again until it is over."""
WORKSPACES: Final = "headless"
BASELINE_FILE: Final = "baseline.py"
TASK_FILE: Final = "task.py"


async def optimize(
    plan: Plan,
    settings: Settings,
    *,
    say: Says,
    evaluator: Callable[[Services], Evaluator] = ToolEvaluator,
    server: Attached | None = None,
) -> OptimizeResult:
    """Let an agent optimize a kernel, and export what it won.

    Args:
        plan: what is asked for.
        settings: of this process, and of the server that the agent's CLI gets.
        say: takes progress, a line each.
        evaluator: what measures here: baseline, winner, and the candidates of programs.
        server: what the agent's CLI starts; by default this server with the same settings.

    Raises:
        Stopped: ``rejected``: a file, the task or the agent can't be used; others: the baseline can't be measured.
    """
    begun = time.monotonic()
    await anyio.to_thread.run_sync(_require_room, plan)
    agent = _agent(plan, server or attached(settings), say)
    kernel = await anyio.to_thread.run_sync(read_source, plan.kernel, "kernel")
    folder = await anyio.to_thread.run_sync(_workspace, plan, settings, kernel)
    services = Services(settings)
    machine = Machine(Store(settings.state_dir / "runs"), evaluator(services), lambda: services.evaluations)
    async with services, machine:
        deadline = anyio.current_time() + plan.wall_s
        run: Run | None = None
        timely = False
        with anyio.move_on_at(deadline):
            run = await _begin(plan, agent, machine, kernel, folder, deadline, say)
            await _work(plan, agent, machine, run, folder, deadline, say)
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
        result = await finish(plan, machine, run.frozen.run_id, deadline, agent, timely=timely, say=say)
    task = str(folder / TASK_FILE) if plan.task is None else None
    return result.model_copy(
        update={"agents": list(agent.ends), "task": task, "seconds": round(time.monotonic() - begun, 1)}
    )


def _agent(plan: Plan, server: Attached, say: Says) -> Agent:
    """
    Raises:
        Stopped: ``rejected``: there is no such program.
    """
    if plan.agent in AGENTS:
        return CliAgent(plan, server, say)
    if plan.agent_words:
        raise rejected(
            "agent", "--agent-args are for claude, codex and gemini", fix="Write them into the command line."
        )
    try:
        words = shlex.split(plan.agent)
    except ValueError as error:
        raise rejected("agent", f"--agent is no command line: {error}", fix="Quote it as a shell wants it.") from None
    return CommandAgent(plan, words, say)


def _require_room(plan: Plan) -> None:
    """Better told now than when there is a winner.

    Raises:
        Stopped: ``rejected``: the winner's folder holds something.
    """
    folder = plan.export_to
    if folder is None or plan.force or not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    raise rejected("export", f"{folder} is not an empty folder", fix="Name another one with --to, or add --force.")


def _workspace(plan: Plan, settings: Settings, kernel: Source) -> Path:
    """The folder that agents work in, with the baseline in it.

    Raises:
        Stopped: ``unavailable``: it can't be written.
    """
    name = "kernel" if kernel.shown_as == INLINE else Path(kernel.shown_as).stem
    folder = plan.workspace or settings.state_dir / WORKSPACES / f"{name}-{secrets.token_hex(3)}"
    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # An agent may read it, and whatever it does to it: the run has its own.
        (folder / BASELINE_FILE).write_text(kernel.text, encoding="utf-8")
    except OSError as error:
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="agent",
                message=f"the folder {folder} can't be written: {error.strerror}",
                likely_fix="Name another one: --workspace DIR.",
            ),
        ) from None
    return folder


async def _begin(
    plan: Plan, agent: Agent, machine: Machine, kernel: Source, folder: Path, deadline: float, say: Says
) -> Run:
    """A run with a measured baseline; its task is written first where there is none.

    Raises:
        Stopped: kernel or task can't be used, or the baseline can't be measured.
    """
    if plan.task is not None:
        task = await anyio.to_thread.run_sync(read_source, plan.task, "task")
        await anyio.Path(folder / TASK_FILE).write_text(task.text, encoding="utf-8")
        return await _start(plan, machine, kernel, task, deadline, say)
    wrong: str | None = None
    path = folder / TASK_FILE
    await anyio.Path(path).unlink(missing_ok=True)
    for number in range(1, TASK_TRIES + 1):
        say(f"the agent writes the task (try {number} of {TASK_TRIES})")
        given = await agent.write_task(TaskAsked(kernel, folder / BASELINE_FILE, folder, path, wrong))
        if given is None:
            words = agent.ends[-1].last_words if agent.ends else None
            wrong = f"there is no file {path}" + ("" if words is None else f"; the last words were: {words}")
            say(f"  {wrong}")
            continue
        try:
            task = await anyio.to_thread.run_sync(read_source, given, "task")
            return await _start(plan, machine, kernel, task, deadline, say)
        except Stopped as stopped:
            if stopped.kind in (Kind.UNAVAILABLE, Kind.CANCELLED):
                raise
            problem = stopped.problem.model_copy(update={"output": None})
            wrong = json.dumps({"kind": stopped.kind, **problem.model_dump(mode="json", exclude_none=True)})
            say(f"  the task was refused: {stopped.kind}: {problem.message}")
    raise rejected(
        "task",
        f"the agent wrote no usable task in {TASK_TRIES} tries; the last one: {wrong}",
        fix="Write the task yourself and give it with --task, or mend the one that is there: " + str(path),
    )


async def _start(plan: Plan, machine: Machine, kernel: Source, task: Source, deadline: float, say: Says) -> Run:
    """Begin a run and measure its baseline.

    Raises:
        Stopped: a file can't be used, or the baseline failed.
    """
    hidden = None
    if plan.hidden_cases is not None:
        hidden = await anyio.to_thread.run_sync(read_source, plan.hidden_cases, "hidden_cases")
    budget = Budget(
        attempts=plan.rounds,
        wall_s=max(1.0, deadline - anyio.current_time()),
        target_pct=plan.target_pct,
        target_ratio=plan.target_ratio,
    )
    run = await machine.start(Beginning(kernel, task, hidden, plan.target, budget, Limits()))
    run_id = run.frozen.run_id
    say(f"run {run_id}: measuring the baseline")
    while not await machine.wait(run_id, BASELINE, WAIT_S, _progress(say)):
        pass
    answer = await machine.answer(run_id, BASELINE)
    told = tell(answer)
    if told.problem is not None:
        raise Stopped(told.kind, told.problem)
    say(f"run {run_id}: {told.summary}")
    return answer.run


async def _work(plan: Plan, agent: Agent, machine: Machine, run: Run, folder: Path, deadline: float, say: Says) -> None:
    """Let the agent work on a run until it is over, or there are no more ideas."""
    watch = Watch(machine.store, run.frozen.run_id, say)
    site = Site(
        machine=machine,
        run_id=run.frozen.run_id,
        kernel=folder / BASELINE_FILE,
        task=folder / TASK_FILE,
        target=run.frozen.target,
        folder=folder,
        over=watch.over,
        deadline=deadline,
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


def _progress(say: Says) -> Progress:
    """Tells each thing that is done once."""
    last = ""

    async def progress(done: float, total: float, message: str) -> None:
        nonlocal last
        if message != last:
            last = message
            say(f"  {message}")

    return progress
