"""How many artefacts of a benchmark become tasks, and how many baselines compile; needs no GPU.

    python tests/benchmarks/adapted.py TritonBench/data/TritonBench_G_v1 --out adapted.md

Each file of the folder (or each folder with a task.yml below it) goes through the adapters. It counts as loaded if a
task worker loads its task and makes inputs for a case on the CPU, and as compiled if everything that the baseline
launches on every case of the task compiles for the target. With `--load-only`, inputs are not made: some problems need
more memory than a small machine has. One line of JSON a file is kept beside the table, so that a run goes on where it
was stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import NamedTuple

import anyio

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import task_worker
from tritonforge.server.adapters.find import choices
from tritonforge.server.adapters.settle import settle
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings


class Row(NamedTuple):
    """What became of one artefact."""

    name: str
    loaded: bool
    compiled: bool
    entry: str
    cases: int
    dropped: int
    timed_on_sizes: bool
    """Whether a performance file gave the sizes."""
    seconds: float
    reason: str


class Asked(NamedTuple):
    """What is done with each artefact."""

    target: str | None
    load_only: bool
    performance: Path | None


def main() -> None:
    """Adapt all and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", default="h100")
    parser.add_argument("--performance", type=Path, help="folder with NAME_perf.py files")
    parser.add_argument("--inputs-only", action="store_true", help="load the tasks and make inputs, compile nothing")
    parser.add_argument("--load-only", action="store_true", help="load the tasks and make no inputs")
    parser.add_argument("--seconds", type=float, default=60, help="time limit of one request to a worker")
    parser.add_argument("--budget-s", type=float, default=3000, help="after so long, no other artefact is begun")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    asked = Asked(None if options.inputs_only else options.target, options.load_only, options.performance)
    found = sorted({file.parent for file in options.folder.rglob("task.yml")}) or sorted(options.folder.glob("*.py"))
    found = [path for path in found if not options.only or path.stem in options.only]
    kept = options.out.with_suffix(".jsonl")
    rows = {row.name: row for row in _kept(kept)}
    waiting = [path for path in found if path.stem not in rows or options.only][::-1]
    anyio.run(run_all, waiting, rows, asked, options, kept)
    options.out.write_text(report(sorted(rows.values()), len(found), asked))
    sys.stdout.write(options.out.read_text().partition("\n\n")[0] + "\n")


def _kept(file: Path) -> list[Row]:
    return [Row(*json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


async def run_all(
    waiting: list[Path], rows: dict[str, Row], asked: Asked, options: argparse.Namespace, kept: Path
) -> None:
    """Fill in the rows of those that wait, several at a time."""
    stop = time.monotonic() + options.budget_s
    with tempfile.TemporaryDirectory() as folder, kept.open("a") as lines:
        settings = Settings(
            state_dir=Path(folder), limits=Limits(request_s=options.seconds), spares=2 * options.at_once
        )
        async with Services(settings) as services:

            async def work() -> None:
                while waiting and time.monotonic() < stop:
                    row = await adapted_row(services, waiting.pop(), asked)
                    rows[row.name] = row
                    lines.write(json.dumps(row) + "\n")
                    lines.flush()
                    sys.stderr.write(f"{len(rows)}: {row}\n")

            async with anyio.create_task_group() as group:
                for _ in range(options.at_once):
                    group.start_soon(work)


async def adapted_row(services: Services, path: Path, asked: Asked) -> Row:
    """Adapt one artefact and look at it in workers."""
    started = time.monotonic()
    speed = asked.performance / f"{path.stem}_perf.py" if asked.performance is not None else None
    try:
        tasks = choices(path, performance=speed if speed is not None and speed.is_file() else None)
        if asked.load_only:
            async with task_worker(services.executor, on_gpu=False) as worker:
                task = await worker.load(Source(tasks[0].task_text, "task.py", None))
            return Row(path.stem, True, False, task.entry, len(task.cases), 0, False, time.monotonic() - started, "")
        settled = await settle(services, tasks, target=asked.target)
    except Stopped as stopped:
        reason = f"{stopped.kind}: {' '.join(stopped.problem.message.split())[:200]}"
        return Row(path.stem, False, False, "", 0, 0, False, time.monotonic() - started, reason)
    task, dropped = settled.task, settled.dropped
    reason = "; ".join(sorted({*dropped.values(), *settled.uncompiled.values()}))
    return Row(
        path.stem,
        True,
        settled.compiled,
        task.entry,
        len(task.cases) + len(task.hidden_cases) - len(dropped),
        len(dropped),
        any(name.startswith("speed_") for name in task.cases),
        time.monotonic() - started,
        reason,
    )


def report(rows: list[Row], total: int, asked: Asked) -> str:
    """Totals and the table, in Markdown."""
    loaded, compiled = sum(row.loaded for row in rows), sum(row.compiled for row in rows)
    whole = sum(row.compiled and not row.dropped for row in rows)
    sized = sum(row.timed_on_sizes for row in rows)
    what = "tasks loaded"
    if not asked.load_only:
        what += " with inputs made"
    if asked.target is not None:
        what += f", {compiled} baselines compiled for {asked.target}, {whole} of them without leaving out a case"
    lines = [
        f"{len(rows)} of {total} looked at: {loaded} {what}; {sized} timed on the sizes of a performance file "
        f"({date.today()}).",
        "",
        "| artefact | loaded | compiled | entry | cases | left out | performance file | seconds | why |",
        "| --- | --- | --- | --- | ---: | ---: | --- | ---: | --- |",
    ]
    for row in rows:
        yes = ["yes" if each else "no" for each in (row.loaded, row.compiled, row.timed_on_sizes)]
        reason = row.reason.replace("|", "\\|")
        lines.append(
            f"| {row.name} | {yes[0]} | {yes[1]} | {row.entry} | {row.cases} | {row.dropped} | {yes[2]} | "
            f"{row.seconds:.1f} | {reason} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
