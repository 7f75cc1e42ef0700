"""The command `optimize`."""

import argparse
import gc
import shlex
from pathlib import Path
from typing import Final

import anyio

from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind
from ..settings import Settings
from .headless import optimize
from .model import OptimizeResult, Plan, Says
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

    async def work() -> OptimizeResult:
        return await optimize(plan_of(given), settings, say=tell if given.json else say)

    # Starting quickly has turned it off; this may take hours.
    gc.enable()
    try:
        with ending_with_us():
            result = anyio.run(work)
    except Stopped as stopped:
        problem = stopped.problem
        fix = "" if problem.likely_fix is None else f". {problem.likely_fix}"
        tell(f"{problem.message}{fix}")
        if given.json:
            say(
                OptimizeResult(gained=False, summary=problem.message, why_not=problem.message).model_dump_json(indent=2)
            )
        return MISUSE if stopped.kind is Kind.REJECTED else FAILED
    if given.json:
        say(result.model_dump_json(indent=2))
    return OK if result.gained else FAILED


def plan_of(given: argparse.Namespace) -> Plan:
    """The arguments as a plan.

    Raises:
        Stopped: ``rejected``: words for the agent that no shell would take.
    """
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
    )
