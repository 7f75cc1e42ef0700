"""How many files of TritonBench-G compile as they are, through the server's own path; needs no GPU.

    python tests/benchmarks/compilable.py --corpus TritonBench/data/TritonBench_G_v1

Each file (https://github.com/thunlp/TritonBench) goes to `compile_kernel` without a task: it is run in a sealed worker
with its own test, every launch compiled for the target. It counts if its test ran to its end and everything that it
launched was compiled. The seconds are those of the tool call, with workers ready; several run at a time.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path
from statistics import median
from typing import NamedTuple

import anyio

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.compile_kernel import compile_kernel

KIND = re.compile(rf"\b({'|'.join(Kind)}): ")
REASON_LIMIT = 160
"""Characters of a reason in the table."""


class Row(NamedTuple):
    """What became of one file."""

    file: str
    launches: int
    """Distinct ones, those of the autotuner among them."""
    seconds: float
    reason: str | None
    """Why not everything was compiled; None where it was."""


def main() -> None:
    """Compile all files and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="the folder TritonBench_G_v1")
    parser.add_argument("--target", default="h100", help="GPU or architecture to compile for (default: h100)")
    parser.add_argument("--seconds", type=float, default=120, help="time limit of one file")
    parser.add_argument("--at-once", type=int, default=2, help="files that run side by side (default: 2)")
    parser.add_argument("--only", nargs="*", default=[], help="names of files; default: all")
    options = parser.parse_args()
    files = sorted(file for file in options.corpus.glob("*.py") if not options.only or file.name in options.only)
    rows, versions = anyio.run(run_all, files, options.target, options.seconds, options.at_once)
    sys.stdout.write(report(rows, f"{versions}, target {options.target}, {options.at_once} files at a time"))


async def run_all(files: list[Path], target: str, seconds: float, at_once: int) -> tuple[list[Row], str]:
    """The row of each file, and the versions that it was compiled with."""
    rows: list[Row] = []
    waiting = files[::-1]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(state_dir=Path(folder), limits=Limits(request_s=seconds), spares=at_once + 1)
        async with Services(settings) as services:
            environment = await services.environment()

            async def work() -> None:
                while waiting:
                    rows.append(await row(services, waiting.pop(), target))
                    sys.stderr.write(f"{len(rows)} of {len(files)}: {rows[-1]}\n")

            async with anyio.create_task_group() as group:
                for _ in range(at_once):
                    group.start_soon(work)
    return sorted(rows), f"torch {environment.torch}, triton {environment.triton}, Python {environment.python}"


async def row(services: Services, file: Path, target: str) -> Row:
    """Compile one file."""
    started = time.monotonic()
    launches, reason = 0, None
    try:
        result = await compile_kernel(services, _ignore, kernel=str(file), target=target)
        launches = len(result.launches) + result.launches_omitted
        if result.problem is not None:
            reason = _reason(result.kind, result.problem)
        elif result.notes:
            reason = result.notes[0].partition("; these are")[0]
    except Stopped as stopped:
        reason = _reason(stopped.kind, stopped.problem)
    return Row(file.name, launches, time.monotonic() - started, reason)


async def _ignore(done: float, total: float, message: str) -> None:
    """Nobody waits for progress."""


def _reason(kind: Kind, problem: Problem) -> str:
    where = "" if problem.line is None else f" (line {problem.line})"
    return f"{kind}: {' '.join(problem.message.split())[:REASON_LIMIT]}{where}"


def report(rows: list[Row], conditions: str) -> str:
    """Totals and the table, in Markdown."""
    complete = sum(found.reason is None for found in rows)
    seconds = [found.seconds for found in rows]
    kinds = Counter(KIND.findall(found.reason)[0] for found in rows if found.reason is not None)
    lines = [
        f"{complete} of {len(rows)} files: every launch compiled ({date.today()}; {conditions}).",
        f"Distinct launches: {sum(found.launches for found in rows)}. Seconds a file: median {median(seconds):.2f}, "
        f"most {max(seconds):.1f}, together {sum(seconds):.0f}.",
        f"The others: {', '.join(f'{count} {kind}' for kind, count in kinds.most_common()) or 'none'}.",
        "",
        "| file | launches | seconds | reason where not everything is compiled |",
        "| --- | ---: | ---: | --- |",
    ]
    for found in rows:
        reason = (found.reason or "").replace("|", "\\|")
        lines.append(f"| {found.file} | {found.launches} | {found.seconds:.2f} | {reason} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
