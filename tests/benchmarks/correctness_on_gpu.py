"""What `run_correctness` takes on a GPU, and what it finds: sections `time`, `honest`, `mutants`, `sanitize`.

Run from the repository: ``python tests/benchmarks/correctness_on_gpu.py --out FOLDER [--only SECTION]``.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mutants import EXAMPLES, HONEST_EDITS, MUTANTS, TASKS, honest, mutated
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import task_worker
from tritonforge.server.results import respond
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.run_correctness import CorrectnessResult, run_correctness

HONEST_SEEDS = 50
TIMED_CALLS = 5
ROUNDS = 13
"""Of a case: five seeds and eight structured variants."""
SOFTMAX_CASES = ["decode", "train", "small"]


class Bench:
    """The tool, a log of all requests to workers, and the report."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.requests: list[tuple[str, float]] = []
        self.report: list[str] = []

    def say(self, text: str) -> None:
        self.report.append(text)
        print(text, flush=True)

    def table(self, title: str, header: list[str], rows: list[list[str]]) -> None:
        lines = [f"\n## {title}\n", f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
        self.say("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]))

    async def check(self, kernel: str, task: str, **more: Any) -> CorrectnessResult:
        async def evaluate() -> CorrectnessResult:
            return await run_correctness(self.services, _ignore, kernel=kernel, task=task, **more)

        return CorrectnessResult.model_validate((await respond(CorrectnessResult, evaluate)).structured_content)


async def _ignore(done: float, total: float, message: str) -> None:
    """Nobody watches the progress."""


async def timed(bench: Bench) -> None:
    """Three cases, five seeds, all structured inputs: beyond compile and reference."""
    rows: list[list[str]] = []
    for example, cases in (("softmax", SOFTMAX_CASES), ("matmul", None), ("sin", None)):
        kernel, task = ((EXAMPLES / example / f"{part}.py").read_text() for part in ("candidate", "task"))
        totals: list[float] = []
        beyonds: list[float] = []
        checked = 0
        compile_s = 0.0
        reference_s = await _reference_s(bench, task, cases)
        for number in range(TIMED_CALLS + 1):
            await bench.services.executor.settle()
            bench.requests.clear()
            # Another text each time, so that nothing comes from a cache.
            started = time.perf_counter()
            result = await bench.check(f"{kernel}\n# {number}\n", task, cases=cases, seeds=5)
            total = time.perf_counter() - started
            assert result.kind is Kind.OK, result.summary
            if number:
                # The first one makes the audits.
                checked = len(result.cases)
                compile_s = _compile_s(bench.requests, checked)
                totals.append(total)
                beyonds.append(total - compile_s - reference_s)
        rows.append(
            [
                example,
                str(checked),
                _spread(totals),
                f"{compile_s:.3f}",
                f"{reference_s:.3f}",
                _spread(beyonds),
            ]
        )
        bench.say(f"{example}: {_by_operation(bench.requests)}")
    bench.table(
        "One call, five seeds and all structured inputs, seconds: median [least, most]",
        ["kernel", "cases", "whole call", "of it compile", "of it the reference", "beyond (wanted <= 0.5)"],
        rows,
    )


def _compile_s(requests: list[tuple[str, float]], cases: int) -> float:
    """What the calls that compile, one a case and the longest of all, took longer than the others."""
    calls = sorted((seconds for name, seconds in requests if name == "call"), reverse=True)
    return sum(calls[:cases]) - cases * statistics.median(calls)


async def _reference_s(bench: Bench, task: str, cases: list[str] | None) -> float:
    """The reference's own time in such a call: 13 rounds a case, and five in float64."""
    total = 0.0
    async with task_worker(bench.services.executor, on_gpu=True) as tasks:
        spec = await tasks.load(Source(task, "task.py", None))
        for case in spec.select(cases):
            with_it: list[float] = []
            without: list[float] = []
            exact: list[float] = []
            for seed in range(6):
                for seconds, operation in ((without, tasks.make_inputs), (with_it, tasks.make_and_expect)):
                    started = time.perf_counter()
                    await operation(case, seed)
                    seconds.append(time.perf_counter() - started)
                started = time.perf_counter()
                await tasks.expect_exact()
                exact.append(time.perf_counter() - started)
            once = statistics.median(with_it) - statistics.median(without)
            total += ROUNDS * max(once, 0.0) + 5 * statistics.median(exact)
    return total


def _by_operation(requests: list[tuple[str, float]]) -> str:
    found: dict[str, list[float]] = {}
    for name, seconds in requests:
        found.setdefault(name, []).append(seconds)
    return ", ".join(
        f"{name} {len(each)}x {sum(each) * 1e3:.0f} ms (median {statistics.median(each) * 1e3:.1f})"
        for name, each in sorted(found.items(), key=lambda item: -sum(item[1]))
    )


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.3f} [{min(seconds):.3f}, {max(seconds):.3f}]"


async def honest_kernels(bench: Bench) -> None:
    """No false alarm: each example in three types over fifty seeds."""
    rows: list[list[str]] = []
    for example, dtype in HONEST_EDITS:
        result = await bench.check(*honest(example, dtype), seeds=HONEST_SEEDS)
        case = result.cases[0] if result.cases else None
        accuracy = case.accuracy if case is not None else None
        rows.append(
            [
                example,
                dtype,
                result.kind.value,
                str(len(case.seeds)) if case is not None else result.summary[:200],
                ", ".join(case.structured) if case is not None else "",
                f"{accuracy.error:.2e} / {accuracy.reference_error:.2e} / {accuracy.allowed:.2e}" if accuracy else "-",
            ]
        )
    header = ["kernel", "type", "kind", "seeds", "structured inputs", "error / reference's / allowed"]
    bench.table("Honest kernels", header, rows)


async def mutants(bench: Bench) -> None:
    """Every small mistake is found."""
    rows: list[list[str]] = []
    for example, edits in MUTANTS.items():
        for mutant in edits:
            result = await bench.check(mutated(example, mutant), TASKS[example])
            case = result.cases[0] if result.cases else None
            found = (case.check or "-", case.inputs or "-") if case is not None else (result.summary[:80], "-")
            rows.append([example, mutant.name, result.kind.value, *found])
    passed = [row for row in rows if row[2] == "ok"]
    bench.table(
        f"Mutants: {len(rows) - len(passed)} of {len(rows)} found",
        ["kernel", "mistake", "kind", "by", "on"],
        rows,
    )


async def sanitized(bench: Bench) -> None:
    """What the sanitizer adds to a call."""
    rows: list[list[str]] = []
    for example in MUTANTS:
        started = time.perf_counter()
        result = await bench.check(*honest(example, "float32" if example == "sin" else "float16"), sanitized=True)
        report = result.sanitizer
        rows.append(
            [
                example,
                result.kind.value,
                ", ".join(report.tools) if report is not None else result.summary[:200],
                str(len(report.findings)) if report is not None else "-",
                f"{time.perf_counter() - started:.1f}",
            ]
        )
    bench.table("compute-sanitizer over honest kernels", ["kernel", "kind", "tools", "findings", "s"], rows)


SECTIONS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "time": timed,
    "honest": honest_kernels,
    "mutants": mutants,
    "sanitize": sanitized,
}


async def run(out: Path, only: list[str]) -> None:
    with tempfile.TemporaryDirectory() as state:
        async with Services(Settings(state_dir=Path(state))) as services:
            bench = Bench(services)
            request = WorkerProcess.request

            async def logged(self: WorkerProcess, operation: str, *args: Any, **kwargs: Any) -> Any:
                started = time.perf_counter()
                try:
                    return await request(self, operation, *args, **kwargs)
                finally:
                    bench.requests.append((operation, time.perf_counter() - started))

            WorkerProcess.request = logged  # pyright: ignore[reportAttributeAccessIssue]
            environment = await services.require_gpu("correctness")
            assert environment.gpu is not None
            bench.say(
                f"# Correctness on {environment.gpu.name}\n\n{time.strftime('%Y-%m-%d')}; Python {environment.python}, "
                f"torch {environment.torch}, triton {environment.triton}; `python {' '.join(sys.argv)}`"
            )
            for name, section in SECTIONS.items():
                if not only or name in only:
                    started = time.perf_counter()
                    await section(bench)
                    bench.say(f"({name}: {time.perf_counter() - started:.0f} s)")
    folder = anyio.Path(out)
    await folder.mkdir(parents=True, exist_ok=True)
    await (folder / "correctness.md").write_text("\n".join(bench.report) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], choices=SECTIONS)
    options = parser.parse_args()
    anyio.run(run, options.out, options.only)


if __name__ == "__main__":
    main()
