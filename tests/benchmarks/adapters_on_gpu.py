"""Which KernelBench and GPU MODE problems run on a GPU as tasks: loaded, their inputs made, their reference run.

    python tests/benchmarks/adapters_on_gpu.py --kernelbench KernelBench/level1 --gpu-mode reference-kernels/problems \
        --out FOLDER --limit-s 300 --at-once 4

Each problem becomes a task by its adapter, as it is first read, and is loaded in a sealed worker that makes everything
on the GPU. In the smallest of its timed cases, and where that was quick in the largest, inputs are made, and the
reference runs on others. Nothing is judged or timed for comparison. What fails beside others is tried once more alone.
After each problem FOLDER/adapters.json and FOLDER/adapters.md are written anew.

Without a GPU (or with ``--cpu``) the same happens on the CPU, in cases made smaller: that tries this file and the
adapters, and says nothing of the problems as they are.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Final

import anyio

from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.protocol import Blob, SharedBlob
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.task import Case
from tritonforge.sandbox.workers import TaskWorker, probe, task_worker
from tritonforge.server.adapters.find import choices

QUICK_S: Final = 8.0
"""Where the smallest case took no longer, the largest is tried too."""
GENERATIONS: Final = 6
"""So many times its inputs' size a reference is given room on the device: inputs as they are made, exported and copied,
outputs, and what is made on the way."""
ROOM: Final = 0.75
"""Share of the device's memory that references get; inputs that wait for room have the rest."""
CPU_ELEMENTS: Final = 1 << 20
CPU_MEMORY_BYTES: Final = 4 << 30
REASON_CHARACTERS: Final = 240
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """An artefact of a benchmark."""

    corpus: str
    name: str
    path: Path


@dataclass(slots=True)
class Run:
    """A case in which inputs were asked for and the reference was to run."""

    case: str
    inputs_bytes: int | None = None
    inputs_s: float | None = None
    """To make the inputs."""
    outputs_bytes: int | None = None
    reference_s: float | None = None
    """To make other inputs, run the reference on them, and look at all its outputs."""
    why_not: str | None = None


@dataclass(slots=True)
class Row:
    """What became of a problem."""

    corpus: str
    name: str
    loaded: bool = False
    entry: str | None = None
    cases: int = 0
    """Visible ones."""
    hidden: int = 0
    runs: list[Run] = field(default_factory=list[Run])
    seconds: float = 0.0
    tries: int = 1
    why_not: str | None = None
    kind: str | None = None
    """How it ended, where it did not run."""

    @property
    def ran(self) -> bool:
        """Whether the reference has run in some case."""
        return any(run.reference_s is not None for run in self.runs)


class Room:
    """Memory that several share: each waits until there is enough for it; one that asks for more than all gets all."""

    def __init__(self, size_bytes: int) -> None:
        self._size = self._free = size_bytes
        self._changed = anyio.Condition()

    @asynccontextmanager
    async def of(self, size_bytes: int) -> AsyncGenerator[None]:
        wanted = min(size_bytes, self._size)
        async with self._changed:
            while self._free < wanted:
                await self._changed.wait()
            self._free -= wanted
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._changed:
                    self._free += wanted
                    self._changed.notify_all()


class Bench:
    """The problems, and what is known of them so far."""

    def __init__(self, options: argparse.Namespace, problems: Sequence[Problem]) -> None:
        self.options, self.problems = options, problems
        self.rows: dict[tuple[str, str], Row] = {}
        self.about: list[str] = []
        self.stopped = False

    async def run(self) -> None:
        """Try all, several at a time, until the time is over."""
        limits = Limits(request_s=self.options.problem_s)
        host = Host(sys.executable, limits)
        devices = [] if self.options.cpu else await host.devices()
        self.on_gpu = bool(devices)
        if not self.on_gpu:
            host = Host(sys.executable, limits.model_copy(update={"memory_bytes": CPU_MEMORY_BYTES}))
        memory = devices[0].memory_bytes if self.on_gpu else limits.host_memory_bytes()
        self.room = Room(int(ROOM * memory))
        at_once = self.options.at_once
        async with LocalExecutor(host, spares=at_once, gpu_spares=at_once) as self.executor:
            environment = await probe(self.executor)
            _, seal = await host.ground()
            held = ", ".join(layer.name for layer in seal.layers if layer.holds) or seal.reason
            where = devices[0].name if self.on_gpu else "the CPU, in cases made smaller"
            self.about = [
                f"# KernelBench and GPU MODE problems as tasks on {where}",
                f"{date.today()}; Python {environment.python}, torch {environment.torch}, triton "
                f"{environment.triton}; {os.cpu_count()} cores; sandbox: {held}; `python {' '.join(sys.argv)}`",
            ]
            with anyio.move_on_after(self.options.limit_s) as scope:
                waiting = list(self.problems[::-1])
                async with anyio.create_task_group() as group:
                    for _ in range(at_once):
                        group.start_soon(self._work, waiting)
                for problem in self.problems:
                    before = self.rows[problem.corpus, problem.name]
                    # Libraries of the device tell of missing memory in words of their own.
                    maybe_crowded = before.kind != Kind.REJECTED or (self.on_gpu and before.loaded)
                    if at_once > 1 and before.kind is not None and maybe_crowded:
                        await self._try(problem, tries=2)
            self.stopped = scope.cancelled_caught
        self.write()

    async def _work(self, waiting: list[Problem]) -> None:
        while waiting:
            await self._try(waiting.pop())

    async def _try(self, problem: Problem, tries: int = 1) -> None:
        row, started = Row(problem.corpus, problem.name, tries=tries), time.monotonic()
        try:
            await self._fill(row, problem)
        except Stopped as stopped:
            message = stopped.problem.message.replace(str(problem.path), problem.name)
            row.kind, row.why_not = stopped.kind, _line(f"{stopped.kind}: {message}")
        except Exception as error:  # noqa: BLE001
            # A fault with one must not cost the others.
            row.kind, row.why_not = "internal_error", _line(f"{type(error).__name__}: {error}")
        row.seconds = time.monotonic() - started
        if row.why_not is not None and row.runs and row.runs[-1].reference_s is None:
            row.runs[-1].why_not = row.why_not
        self.rows[problem.corpus, problem.name] = row
        print(f"{len(self.rows)}/{len(self.problems)} {row.name}: {_became(row)}, {row.seconds:.1f} s", flush=True)
        self.write()

    async def _fill(self, row: Row, problem: Problem) -> None:
        adapted = (await anyio.to_thread.run_sync(choices, problem.path))[0]
        async with task_worker(self.executor, on_gpu=self.on_gpu) as tasks:
            task = await tasks.load(Source(adapted.task_text, "task.py", None))
            row.loaded, row.entry = True, task.entry
            row.cases, row.hidden = len(task.cases), len(task.hidden_cases)
            timed = {name: case for name, case in task.cases.items() if not case.small} or task.cases
            by_size = sorted(timed, key=lambda name: _size(timed[name]))
            started = time.monotonic()
            await self._reference(row, tasks, by_size[0])
            if len(by_size) > 1 and time.monotonic() - started <= QUICK_S:
                await self._reference(row, tasks, by_size[-1])

    async def _reference(self, row: Row, tasks: TaskWorker, case: str) -> None:
        """Make a case's inputs, and run the reference on others of their size when there is room for it."""
        run = Run(case)
        row.runs.append(run)
        elements = self.options.elements or (None if self.on_gpu else CPU_ELEMENTS)
        if elements is not None:
            await tasks.shrink(case, elements)
        started = time.monotonic()
        made = await tasks.make_inputs(case, seed=0)
        run.inputs_s, run.inputs_bytes = time.monotonic() - started, sum(map(_bytes, made.blobs))
        # What was exported goes with the last reference to it.
        del made
        async with self.room.of(GENERATIONS * run.inputs_bytes):
            started = time.monotonic()
            _, expected = await tasks.make_and_expect(case, seed=1)
            run.reference_s, run.outputs_bytes = time.monotonic() - started, expected.bytes

    def write(self) -> None:
        """All that is known, as JSON and as Markdown."""
        rows = [self.rows[key] for key in sorted(self.rows, key=_in_order)]
        told = {"about": self.about, "left": self.left(), "rows": [{**asdict(row), "ran": row.ran} for row in rows]}
        for name, text in (("adapters.json", json.dumps(told, indent=1)), ("adapters.md", self.report(rows))):
            new: Path = self.options.out / f"{name}.new"
            new.write_text(text)
            new.replace(new.with_name(name))

    def left(self) -> list[str]:
        """Problems that nothing is known of yet."""
        return [problem.name for problem in self.problems if (problem.corpus, problem.name) not in self.rows]

    def report(self, rows: Sequence[Row]) -> str:
        """Totals and a line for each case, in Markdown."""
        parts = [*self.about, _totals(rows)]
        left = self.left()
        if left:
            over = f"The {self.options.limit_s:g} s were over; left" if self.stopped else "Left"
            parts.append(f"{over}: {len(left)} of {len(self.problems)}: {', '.join(left)}.")
        head = (
            "| problem | loaded | cases, hidden | case | inputs, MiB | made in, s | reference ran | outputs, MiB | "
            "other inputs and reference, s | all, s | why not |\n"
            "| --- | --- | ---: | --- | ---: | ---: | --- | ---: | ---: | ---: | --- |"
        )
        for corpus in dict.fromkeys(row.corpus for row in rows):
            lines = [line for row in rows if row.corpus == corpus for line in _lines(row)]
            parts.append("\n".join([f"## {corpus}\n", head, *lines]))
        return "\n\n".join(parts) + "\n"


def _totals(rows: Sequence[Row]) -> str:
    head = (
        "| corpus | looked at | loaded | reference ran | seconds of one, median; most | largest inputs, MiB |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    lines = [head]
    for corpus in dict.fromkeys(row.corpus for row in rows):
        of = [row for row in rows if row.corpus == corpus]
        sizes = [run.inputs_bytes for row in of for run in row.runs if run.inputs_bytes is not None]
        seconds = [row.seconds for row in of]
        lines.append(
            f"| {corpus} | {len(of)} | {sum(row.loaded for row in of)} | {sum(row.ran for row in of)} | "
            f"{statistics.median(seconds):.1f}; {max(seconds):.1f} | {_mib(max(sizes, default=None))} |"
        )
    return "\n".join(lines)


def _lines(row: Row) -> list[str]:
    why = (row.why_not or "").replace("|", "\\|")
    loaded, cases = "yes" if row.loaded else "no", f"{row.cases}, {row.hidden}" if row.loaded else ""
    if row.tries > 1:
        why = f"alone, after a failure beside others{f': {why}' if why else ''}"
    if not row.runs:
        return [f"| {row.name} | {loaded} | {cases} | | | | no | | | {row.seconds:.1f} | {why} |"]
    return [
        f"| {row.name if at == 0 else ''} | {loaded if at == 0 else ''} | {cases if at == 0 else ''} | {run.case} | "
        f"{_mib(run.inputs_bytes)} | {_seconds(run.inputs_s)} | {'no' if run.reference_s is None else 'yes'} | "
        f"{_mib(run.outputs_bytes)} | {_seconds(run.reference_s)} | {f'{row.seconds:.1f}' if at == 0 else ''} | "
        f"{why if at == len(row.runs) - 1 else ''} |"
        for at, run in enumerate(row.runs)
    ]


def _became(row: Row) -> str:
    ran = (
        f"ran in {', '.join(run.case for run in row.runs if run.reference_s is not None)}" if row.ran else "did not run"
    )
    return f"{ran} ({row.why_not})" if row.why_not is not None else ran


def _size(case: Case) -> float:
    """What cases of a task are ordered by: the product of their integers."""
    values = [value for name, value in case.parameters.items() if name != "seed"]
    return math.prod(value for value in values if type(value) is int and value > 0)


def _bytes(blob: Blob) -> int:
    return blob.size_bytes if isinstance(blob, SharedBlob) else len(blob)


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / MIB:.1f}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"


def _line(text: str) -> str:
    return " ".join(text.split())[:REASON_CHARACTERS]


def _in_order(key: tuple[str, str]) -> tuple[str, list[int | str]]:
    """The names' numbers as numbers; at each place of a name there is the same of the two."""
    corpus, name = key
    return corpus, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def found(kernelbench: Path | None, gpu_mode: Path | None, only: Sequence[str]) -> list[Problem]:
    """All problems, mixed so that what is through at any time is a share of both corpora."""
    problems: list[Problem] = []
    if kernelbench is not None:
        corpus = f"KernelBench {kernelbench.name}"
        problems += [Problem(corpus, file.stem, file) for file in kernelbench.glob("*.py")]
    if gpu_mode is not None:
        folders = {file.parent for file in gpu_mode.rglob("task.yml")}
        problems += [Problem("GPU MODE", str(folder.relative_to(gpu_mode)), folder) for folder in folders]
    problems = [problem for problem in problems if not only or problem.name in only]
    problems.sort(key=lambda problem: _in_order((problem.corpus, problem.name)))
    of = {name: [each for each in problems if each.corpus == name] for name in {each.corpus for each in problems}}
    return sorted(problems, key=lambda each: (of[each.corpus].index(each) + 0.5) / len(of[each.corpus]))


def main() -> None:
    """Try the problems and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, metavar="DIR", help="folder of problems, such as level1")
    parser.add_argument("--gpu-mode", type=Path, metavar="DIR", help="folder with a task.yml somewhere below it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, default=300, help="for all; what is left then is named")
    parser.add_argument("--problem-s", type=float, default=60, help="for each request to a worker")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--cpu", action="store_true", help="leave the GPU alone")
    parser.add_argument("--elements", type=int, help="make cases smaller until their inputs have at most so many")
    options = parser.parse_args()
    problems = found(options.kernelbench, options.gpu_mode, options.only)
    if not problems:
        parser.error("no problem: give --kernelbench a folder of Python files, or --gpu-mode one with a task.yml")
    options.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(options, problems)
    anyio.run(bench.run)
    print("\n" + "\n\n".join([*bench.about, _totals(list(bench.rows.values()))]))
    print(f"left: {len(bench.left())} of {len(problems)}")


if __name__ == "__main__":
    main()
