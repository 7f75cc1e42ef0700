"""The command `optimize`."""

import argparse
import gc
import shlex
import time
from pathlib import Path
from typing import Final

import anyio

from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind
from ..settings import Settings
from .beginning import Stages
from .headless import optimize
from .model import NONE, TUNE, Ablation, OptimizeResult, Plan, Says
from .process import ending_with_us

OK: Final = 0
FAILED: Final = 1
MISUSE: Final = 2


def run_optimize(settings: Settings, given: argparse.Namespace, *, say: Says, tell: Says) -> int:
    """Run the command; returns the exit code: 0 something was accepted, 1 nothing was gained, 2 misuse.

    Args:
        settings: of this process.
        given: the arguments.
        say: takes results, and progress unless only the result is wanted.
        tell: takes errors, and progress where only the result is wanted.
    """

    at, stages = time.monotonic(), Stages()
    run_ids: list[str] = []

    async def work() -> OptimizeResult:
        plan, progress = plan_of(given), tell if given.json else say
        return await optimize(plan, settings, say=progress, begun=run_ids.append, stages=stages)

    def stopped_early() -> None:
        for run_id in run_ids:
            tell(
                f"stopped; run {run_id} is kept: `tritonforge-mcp runs show {run_id}` shows it, and `tritonforge-mcp "
                f"runs resume {run_id}` evaluates what was left behind"
            )

    # Starting quickly has turned it off; this may take hours.
    gc.enable()
    try:
        with ending_with_us(stopped_early):
            result = anyio.run(work)
    except Stopped as stopped:
        problem = stopped.problem
        fix = "" if problem.likely_fix is None else f". {problem.likely_fix}"
        tell(f"{problem.message}{fix}")
        if given.json:
            failed = OptimizeResult(
                gained=False,
                summary=problem.message,
                why_not=problem.message,
                run_id=run_ids[0] if run_ids else None,
                stage=problem.stage,
                seconds=round(time.monotonic() - at, 3),
                seconds_by_stage=stages.seconds,
            )
            say(failed.model_dump_json(indent=2))
        return MISUSE if stopped.kind is Kind.REJECTED else FAILED
    if given.json:
        say(result.model_dump_json(indent=2))
    return OK if result.gained else FAILED


def plan_of(given: argparse.Namespace) -> Plan:
    """The arguments as a plan.

    Raises:
        Stopped: ``rejected``: words for the agent that no shell would take, or what does not go with the agent.
    """
    if given.agent == NONE:
        raise rejected(
            "agent", "--agent none optimizes nothing: it is for campaigns, which measure baselines with it",
            fix="Name an agent; tune needs neither a model nor a key.",
        )  # fmt: skip
    if given.search_s is not None and given.agent != TUNE:
        raise rejected("agent", "--search-s is for --agent tune", fix="Leave it out.")
    try:
        words = tuple(shlex.split(given.agent_args))
    except ValueError as error:
        raise rejected(
            "agent", f"--agent-args can't be split: {error}", fix="Quote them as a shell wants it."
        ) from None
    return Plan(
        kernel=given.kernel,
        task=given.task,
        agent=given.agent,
        agent_words=words,
        hidden_cases=given.hidden_cases,
        target=given.target,
        rounds=given.rounds,
        parallel=given.parallel,
        target_pct=given.target_pct,
        target_ratio=given.target_ratio,
        wall_s=given.wall_s,
        call_s=given.call_s,
        export_to=None if given.to is None else Path(given.to),
        force=given.force,
        workspace=None if given.workspace is None else Path(given.workspace),
        ablations=frozenset(each for each in Ablation if getattr(given, each.name.lower())),
        **({} if given.search_s is None else {"search_s": given.search_s}),
    )
