"""Whether `diagnose_kernel` is right, on a GPU: the planted defects of tests/diagnosis/defects, one row each.

    python tests/benchmarks/diagnosis_on_gpu.py --out FOLDER [--only SECTION ...] [--names NAME ...] [--at-once N]

Sections: `correct`: is the rewritten kernel right? `time`: it against the one with the defect, as baseline. `diagnose`:
what the tool says of the one with the defect, and whether the other's code is as predicted. `profile`: counters of
both.
Names are beginnings of file names. The files of a run: diagnosis.md with the table, diagnosis.json with everything.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.diagnosis.defect import CASE, SMALL, Defect, names, read_defect
from tritonforge.sandbox.limits import Limits
from tritonforge.server.artifacts import SCHEME
from tritonforge.server.results import Result, respond
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.benchmark import benchmark
from tritonforge.server.tools.benchmark_report import BenchmarkResult
from tritonforge.server.tools.diagnose_kernel import diagnose_kernel
from tritonforge.server.tools.diagnose_report import DiagnosisResult
from tritonforge.server.tools.profile_ncu import profile_ncu
from tritonforge.server.tools.profile_report import ProfileResult
from tritonforge.server.tools.run_correctness import CorrectnessResult, run_correctness

REQUEST_S = 60.0
SEEDS = 1
"""`benchmark` checks results under further ones."""
AT_ONCE = 3
"""Defects: while one has the GPU, the workers of others start and compile."""
CLOSE_POINTS = 5.0
CLOSE_SHARE = 0.4
"""An expected gain is met within so many points of the time, or within this share of itself."""
FAILURES = (AssertionError, LookupError, TypeError, ValueError, OSError, RuntimeError, SyntaxError)
R = TypeVar("R", bound=Result)
SECTIONS = ("correct", "time", "diagnose", "profile")
HEADER = [
    *("defect", "id", "correct", "slow us", "fixed us", "gain % (95 %)", "expected %", "at most %", "within"),
    *("top finding", "line right", "code as predicted", "done", "s"),
]


class Row(NamedTuple):
    """What a defect's runs come to, in words."""

    correct: str = ""
    slow_us: str = ""
    fixed_us: str = ""
    gain: str = ""
    expected: str = ""
    at_most: str = ""
    within: str = ""
    top: str = ""
    line_right: str = ""
    as_predicted: str = ""
    done: str = ""


class Bench:
    """The tools, and the report."""

    def __init__(self, services: Services, only: Sequence[str], out: Path) -> None:
        self.services, self.only, self.out = services, only, out
        self.heading = ""
        self.rows: dict[str, list[str]] = {}
        self.kept: dict[str, dict[str, Any]] = {}

    def write(self) -> None:
        """After each defect, so that a run that is stopped has told what it found."""
        lines = [self.heading, "", f"| {' | '.join(HEADER)} |", f"|{' --- |' * len(HEADER)}"]
        rows = [self.rows[name] for name in sorted(self.rows)]
        lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
        lines += ["", *self._totals(rows)]
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "diagnosis.md").write_text("\n".join(lines) + "\n")
        (self.out / "diagnosis.json").write_text(json.dumps(self.kept))

    def _totals(self, rows: Sequence[Sequence[str]]) -> list[str]:
        def count(column: str, value: str) -> int:
            return sum(row[HEADER.index(column)].startswith(value) for row in rows)

        right = sum(row[HEADER.index("top finding")] == row[1] for row in rows)
        return [
            f"{len(rows)} defects: {right} named on top ({count('line right', 'yes')} on their line), "
            f"{count('correct', 'ok')} rewrites right, {count('within', 'yes')} gains as expected, "
            f"{count('within', 'no')} not"
        ]


async def _ignore(done: float, total: float, message: str) -> None:
    """Nobody watches the progress."""


async def _answer(model: type[R], evaluate: Callable[[], Awaitable[R]]) -> R:
    """A tool's result, whatever its outcome."""
    return model.model_validate((await respond(model, evaluate)).structured_content)


async def checked(bench: Bench, defect: Defect) -> CorrectnessResult:
    """Is the rewritten kernel right? On the small case: `benchmark` looks at the results of the large one."""
    text = defect.fixed
    return await _answer(
        CorrectnessResult,
        lambda: run_correctness(bench.services, _ignore, kernel=text, task=defect.text, cases=[SMALL], seeds=SEEDS),
    )


async def timed(bench: Bench, defect: Defect) -> BenchmarkResult:
    """The rewritten kernel against the one with the defect."""
    return await _answer(
        BenchmarkResult,
        lambda: benchmark(
            bench.services, _ignore, kernel=defect.fixed, task=defect.text, baseline=defect.text, cases=[CASE]
        ),
    )


async def diagnosed(bench: Bench, defect: Defect) -> DiagnosisResult:
    """What the tool says, with a check of its predictions against the rewritten kernel's code."""
    return await _answer(
        DiagnosisResult,
        lambda: diagnose_kernel(
            bench.services, _ignore, kernel=defect.text, task=defect.text, case=CASE, verify_with=defect.fixed
        ),
    )


async def profiled(bench: Bench, defect: Defect, text: str) -> ProfileResult:
    """Counters of one side, all of them."""
    return await _answer(
        ProfileResult,
        lambda: profile_ncu(bench.services, _ignore, kernel=text, task=defect.text, cases=[CASE], detail=True),
    )


def artifact(bench: Bench, result: Result) -> Any:
    """The first artifact's contents: facts and findings in full."""
    for uri in result.artifacts[:1]:
        digest, _, name = uri.removeprefix(SCHEME).partition("/")
        path = bench.services.artifacts.find(digest, name)
        if path is not None:
            return json.loads(path.read_text())
    return None


@contextmanager
def _seconds(kept: dict[str, Any], section: str) -> Generator[None]:
    """Keeps how long a section took, its waits for the GPU included."""
    started = time.perf_counter()
    yield
    kept.setdefault("seconds", {})[section] = round(time.perf_counter() - started, 2)


async def run(bench: Bench, defect: Defect) -> Row:
    """All chosen sections of one defect; what fails says so in its place."""
    kept = bench.kept[defect.name] = {"id": defect.id, "line": defect.line}
    row = Row()
    if "correct" in bench.only:
        with _seconds(kept, "correct"):
            found = await checked(bench, defect)
        kept["correct"] = found.model_dump(mode="json")
        row = row._replace(correct=found.kind if found.kind == "ok" else f"{found.kind}: {_short(found)}")
    if "time" in bench.only:
        with _seconds(kept, "time"):
            times = await timed(bench, defect)
        kept["time"] = times.model_dump(mode="json")
        row = _of_times(row, times)
    if "diagnose" in bench.only:
        with _seconds(kept, "diagnose"):
            told = await diagnosed(bench, defect)
        kept["diagnosis"] = told.model_dump(mode="json")
        kept["facts"] = artifact(bench, told)
        row = _of_diagnosis(row, told, defect)
    if "profile" in bench.only:
        for side, text in (("slow", defect.text), ("fixed", defect.fixed)):
            counted = await profiled(bench, defect, text)
            kept[f"profile_{side}"] = counted.model_dump(mode="json")
    kept["row"] = row._asdict()
    return row


def _short(result: Result) -> str:
    message = result.summary if result.problem is None else result.problem.message
    return " ".join(message.split())[:160]


def _of_times(row: Row, found: BenchmarkResult) -> Row:
    if not found.cases:
        return row._replace(gain=f"{found.kind}: {_short(found)}")
    times = found.cases[0]
    if times.ratio is None or times.ratio_low is None or times.ratio_high is None:
        return row._replace(fixed_us=f"{times.device_us:.2f}", gain="no ratio")
    gain, low, high = (100 * (1 - 1 / ratio) for ratio in (times.ratio, times.ratio_low, times.ratio_high))
    return row._replace(
        slow_us=f"{times.baseline_device_us or 0:.2f}",
        fixed_us=f"{times.device_us:.2f}",
        gain=f"{gain:.1f} [{low:.1f}, {high:.1f}]",
    )


def _of_diagnosis(row: Row, told: DiagnosisResult, defect: Defect) -> Row:
    if not told.launches:
        return row._replace(top=f"{told.kind}: {_short(told)}")
    launch = told.launches[0]
    verdict = "" if told.verification is None else told.verification.verdict
    row = row._replace(as_predicted=verdict, done="" if launch.done is None else launch.done[:60])
    if not launch.findings:
        hypothesis = launch.hypotheses[0] if launch.hypotheses else None
        if hypothesis is None:
            return row._replace(top="none")
        return row._replace(top=hypothesis.id, line_right=_is_right(hypothesis.line, defect))
    top = launch.findings[0]
    row = row._replace(top=top.id, line_right=_is_right(top.line, defect))
    # Of the finding that was planted, wherever it is.
    own = next((finding for finding in launch.findings if finding.id == defect.id), None)
    if own is None:
        return row
    return row._replace(
        expected="" if own.expected_pct is None else f"{own.expected_pct:.1f}",
        at_most="" if own.at_most_pct is None else f"{own.at_most_pct:.1f}",
        within=_within(row.gain, own.expected_pct, own.at_most_pct),
    )


def _is_right(line: int | None, defect: Defect) -> str:
    if line is None:
        return "no line"
    return "yes" if abs(line - defect.line) <= 1 else f"no: {line}, not {defect.line}"


def _within(gain: str, expected: float | None, at_most: float | None) -> str:
    """Whether a gain, as `_of_times` writes it, is what was said."""
    try:
        measured, low = float(gain.split()[0]), float(gain.partition("[")[2].partition(",")[0])
    except (ValueError, IndexError):
        return ""
    if at_most is not None and low > at_most + 1:
        return "no: more than at most"
    if expected is None:
        return "" if at_most is None else "yes: below at most"
    close = abs(measured - expected) <= CLOSE_POINTS
    alike = abs(measured - expected) <= CLOSE_SHARE * expected
    return "yes" if close or alike else "no"


@asynccontextmanager
async def prepared(only: Sequence[str], out: Path) -> AsyncGenerator[Bench]:
    """The services that the tools need."""
    with tempfile.TemporaryDirectory() as state:
        async with Services(Settings(state_dir=Path(state), limits=Limits(request_s=REQUEST_S))) as services:
            yield Bench(services, only, out)


async def main() -> None:
    """Run the chosen sections of the chosen defects."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--names", nargs="+", default=[""], help="beginnings of names")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    known = parser.parse_args()
    chosen = list(dict.fromkeys(name for start in known.names for name in names() if name.startswith(start)))
    async with prepared(known.only, known.out) as bench:
        environment = await bench.services.environment()
        gpu = "no GPU" if environment.gpu is None else environment.gpu.name
        bench.heading = (
            f"# `diagnose_kernel` on planted defects, {gpu}\n\n{time.strftime('%Y-%m-%d')}; "
            f"Python {environment.python}, torch {environment.torch}, triton {environment.triton}; "
            f"`python {' '.join(sys.argv)}`"
        )
        turns = anyio.Semaphore(known.at_once)

        async def one(name: str) -> None:
            async with turns:
                started = time.perf_counter()
                try:
                    defect = read_defect(name)
                    row = await run(bench, defect)
                    cells = [name, defect.id, *row, f"{time.perf_counter() - started:.1f}"]
                except FAILURES as error:  # a broken tool costs its row, not the others
                    cells = [name, "", f"{type(error).__name__}: {error}"[:200], *[""] * (len(HEADER) - 3)]
                bench.rows[name] = cells
                print(" | ".join(cells), flush=True)
                bench.write()

        started = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for name in chosen:
                tasks.start_soon(one, name)
        bench.heading += f"\n\n{len(chosen)} defects in {time.perf_counter() - started:.0f} s"
        bench.write()


if __name__ == "__main__":
    anyio.run(main)
