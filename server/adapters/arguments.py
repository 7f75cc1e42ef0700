"""What the command `adapt` takes."""

import argparse

from ..runs_arguments import Commands
from .model import Form


def add_commands(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `adapt` to the command line."""
    adapted = commands.add_parser(
        "adapt",
        parents=[shared],
        help="make a task of a TritonBench file, a KernelBench problem, a GPU MODE folder or a test file",
    )
    adapted.add_argument("artefact", metavar="PATH", help="a file, or a folder with task.yml")
    adapted.add_argument("--kind", choices=[form.value for form in Form], help="what it is (default: found out)")
    adapted.add_argument(
        "--out", metavar="FOLDER", help="where kernel.py and task.py go (default: a folder of its name)"
    )
    adapted.add_argument("--performance", metavar="FILE", help="a TritonBench performance file (default: looked for)")
    adapted.add_argument("--target", default="h100", help="GPU that the baseline is compiled for (default: h100)")
    adapted.add_argument("--no-check", action="store_true", help="write the task without trying it in a worker")
    adapted.add_argument("--force", action="store_true", help="replace files that are there")
