"""What the commands `optimize` and `evaluate` take."""

import argparse
import math
from typing import Final

from ..number_words import numeric, whole
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
        help="claude, codex or gemini (its CLI has to be on PATH and signed in); tune, which searches the file's own "
        "knobs without a model; or a command line that reads a JSON request on standard input and writes a JSON "
        "answer, once a round",
    )
    optimize.add_argument(
        "--agent-args", metavar="WORDS", default="", help="more arguments of the agent's CLI, as in '--model NAME'"
    )
    optimize.add_argument("--rounds", metavar="N", type=rounds, default=8, help="candidates at most (default: 8)")
    optimize.add_argument(
        "--parallel", metavar="N", type=parallel, default=1, help="agents that work on the run at once (default: 1)"
    )
    optimize.add_argument(
        "--target-pct", metavar="P", type=percent, default=95.0,
        help="share of the speed of light that is enough (default: 95)",
    )  # fmt: skip
    optimize.add_argument(
        "--target-ratio", metavar="R", type=ratio, help="times the baseline's speed that are enough (default: none)"
    )
    optimize.add_argument(
        "--wall-s", metavar="S", type=seconds, default=7200.0, help="seconds for the whole (default: 7200)"
    )
    optimize.add_argument(
        "--call-s", metavar="S", type=seconds, default=600.0, help="seconds for one call of a command (default: 600)"
    )
    optimize.add_argument(
        "--search-s", metavar="S", type=seconds, help="seconds for the search of --agent tune (default: 30)"
    )
    add_ablations(optimize)
    optimize.add_argument("--target", metavar="GPU", help="what is compiled for (default: this machine's GPU)")
    optimize.add_argument(
        "--hidden-cases", metavar="FILE", help="a Python file with HIDDEN_CASES that the agent is not shown"
    )
    optimize.add_argument("--to", metavar="DIR", help="folder that the winner is exported to (default: the run's id)")
    optimize.add_argument("--force", action="store_true", help="replace files there that are no export of this run")
    optimize.add_argument(
        "--workspace", metavar="DIR",
        help="folder that the agent gets a new folder in, tritonforge-... (default: in the state folder)",
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


def add_ablations(command: argparse.ArgumentParser) -> None:
    """Add the options that take something away from agents, as `Ablation` names them."""
    command.add_argument(
        "--no-profile", action="store_true", help="go without profile_ncu, here and in the server that the agent gets"
    )
    command.add_argument(
        "--no-diagnosis", action="store_true", help="go without findings and hints, here and in the agent's server"
    )
    command.add_argument("--one-shot", action="store_true", help="take one candidate, and no second one after it")


rounds: Final = whole(1, ROUNDS_LIMIT)
parallel: Final = whole(1, PARALLEL_LIMIT)
percent: Final = numeric("percentage above 0 and up to 100", float, lambda found: 0 < found <= 100)
ratio: Final = numeric("ratio above 1", float, lambda found: 1 < found < math.inf)
seconds: Final = numeric("number of seconds above 0", float, lambda found: 0 < found < math.inf)
