"""The command `evaluate`: one candidate, scored."""

import argparse
import sys
from pathlib import Path
from typing import Final

from ..sandbox.errors import Stopped
from ..sandbox.outcome import Kind
from ..sandbox.source import SIZE_LIMIT_BYTES
from .evaluator_api import evaluate, unknown
from .optimize.model import Says
from .settings import Settings

OK: Final = 0
FAILED: Final = 1
MISUSE: Final = 2
STDIN: Final = "-"


def run_evaluate(settings: Settings, given: argparse.Namespace, *, say: Says, tell: Says) -> int:
    """Run the command; returns the exit code: 0 right and timed, 1 any other outcome, 2 misuse.

    Args:
        settings: of this process.
        given: the arguments.
        say: takes the evaluation.
        tell: takes errors.
    """
    try:
        evaluation = evaluate(
            _candidate(given.candidate),
            baseline=given.baseline,
            task=given.task,
            hidden_cases=given.hidden_cases,
            target=given.target,
            settings=settings,
        )
    except Stopped as stopped:
        problem = stopped.problem
        tell(problem.message if problem.likely_fix is None else f"{problem.message}. {problem.likely_fix}")
        if given.json:
            say(unknown(stopped.kind, problem).model_dump_json(indent=2))
        return MISUSE if stopped.kind is Kind.REJECTED else FAILED
    say(evaluation.model_dump_json(indent=2) if given.json else evaluation.feedback)
    return OK if evaluation.kind is Kind.OK else FAILED


def _candidate(given: str) -> str | Path:
    """Text of standard input, or a path. Bytes that are no UTF-8 become what is refused as such in a candidate."""
    if given != STDIN:
        return Path(given)
    return sys.stdin.buffer.read(SIZE_LIMIT_BYTES + 1).decode("utf-8-sig", "surrogateescape")
