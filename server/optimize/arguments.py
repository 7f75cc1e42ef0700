"""What the commands `optimize` and `evaluate` take."""

import argparse
import math
from typing import Final

from ..runs_arguments import Commands

ROUNDS_LIMIT: Final = 1000
PARALLEL_LIMIT: Final = 16


def add_commands(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `optimize` and `evaluate` to the command line."""
    optimize = commands.add_parser(
        "optimize",
        parents=[shared],
        help="let an agent's CLI, or any program, optimize a kernel without a person",
        description="Start a run and let an agent drive it to its end. The exit code is 0 where something was "
        "accepted, 1 where nothing was gained, 2 for misuse.",
        allow_abbrev=False,
    )
    optimize.add_argument("kernel", metavar="KERNEL", help="the kernel file, which is the baseline")
    optimize.add_argument("--task", metavar="FILE", help="the task file (default: the agent writes it first)")
    optimize.add_argument(
        "--agent",
        required=True,
        metavar="AGENT",
        help="claude, codex or gemini (its CLI has to be on PATH and signed in), or a command line that reads a JSON "
        "request on standard input and writes a JSON answer, once a round",
    )
    optimize.add_argument(
        "--agent-args", metavar="WORDS", default="", help="more arguments of the agent's CLI, as in '--model NAME'"
    )
    optimize.add_argument("--rounds", metavar="N", type=_rounds, default=8, help="candidates at most (default: 8)")
    optimize.add_argument(
        "--parallel", metavar="N", type=_parallel, default=1, help="agents that work on the run at once (default: 1)"
    )
    optimize.add_argument(
        "--target-pct", metavar="P", type=_percent, default=95.0,
        help="share of the speed of light that is enough (default: 95)",
    )  # fmt: skip
    optimize.add_argument(
        "--target-ratio", metavar="R", type=_ratio, help="times the baseline's speed that are enough (default: none)"
    )
    optimize.add_argument(
        "--wall-s", metavar="S", type=_seconds, default=7200.0, help="seconds for the whole (default: 7200)"
    )
    optimize.add_argument(
        "--call-s", metavar="S", type=_seconds, default=600.0, help="seconds for one call of a command (default: 600)"
    )
    optimize.add_argument("--target", metavar="GPU", help="what is compiled for (default: this machine's GPU)")
    optimize.add_argument(
        "--hidden-cases", metavar="FILE", help="a Python file with HIDDEN_CASES that the agent is not shown"
    )
    optimize.add_argument("--to", metavar="DIR", help="folder that the winner is exported to (default: the run's id)")
    optimize.add_argument("--force", action="store_true", help="replace files there that are no export of this run")
    optimize.add_argument(
        "--workspace", metavar="DIR",
        help="folder that the agent writes its files into (default: a new one in the state folder)",
    )  # fmt: skip
    optimize.add_argument("--json", action="store_true", help="print only the final result, as JSON")

    evaluate = commands.add_parser(
        "evaluate",
        parents=[shared],
        help="score one candidate against a baseline, as search frameworks want it",
        description="Check and time a candidate: a score (0 for one that fails), feedback and side information. The "
        "exit code is 0 for a candidate that is right and was timed, 1 for any other, 2 for misuse.",
        allow_abbrev=False,
    )
    evaluate.add_argument("candidate", metavar="CANDIDATE", help="the kernel file to score; - for standard input")
    evaluate.add_argument("--task", metavar="FILE", required=True, help="the task file")
    evaluate.add_argument("--baseline", metavar="FILE", required=True, help="the kernel file that it is compared with")
    evaluate.add_argument("--hidden-cases", metavar="FILE", help="a Python file with HIDDEN_CASES")
    evaluate.add_argument("--target", metavar="GPU", help="what is compiled for (default: this machine's GPU)")
    evaluate.add_argument("--json", action="store_true", help="print the evaluation as JSON")


def _rounds(word: str) -> int:
    return _whole(word, ROUNDS_LIMIT)


def _parallel(word: str) -> int:
    return _whole(word, PARALLEL_LIMIT)


def _whole(word: str, most: int) -> int:
    number = int(word)
    if not 1 <= number <= most:
        raise ValueError
    return number


def _percent(word: str) -> float:
    number = float(word)
    if not 0 < number <= 100:
        raise ValueError
    return number


def _ratio(word: str) -> float:
    number = float(word)
    if not 1 < number < math.inf:
        raise ValueError
    return number


def _seconds(word: str) -> float:
    number = float(word)
    if not 0 < number < math.inf:
        raise ValueError
    return number


# argparse names a type in its message by the function's name.
_rounds.__name__ = f"whole number from 1 to {ROUNDS_LIMIT}"
_parallel.__name__ = f"whole number from 1 to {PARALLEL_LIMIT}"
_percent.__name__ = "percentage above 0 and up to 100"
_ratio.__name__ = "ratio above 1"
_seconds.__name__ = "number of seconds above 0"
