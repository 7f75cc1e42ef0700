"""tune_kernel against exhaustive search, and the examples tuned as a user would, on a GPU: sections `tune`, `short`,
`whole`.

Run from the repository: ``python tests/benchmarks/tune_on_gpu.py --out FOLDER [--only SECTION] [--kernels NAME ...]``.
`tune` measures every point of a stated space, then gives tune_kernel 15 % of as many evaluations, and times its choice
against the best of all. `short` searches the same spaces for some seconds. Both tell where the time of each evaluation
went. `whole` tunes with nothing stated, and times the matrix product against torch.matmul.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.bench import EXAMPLES, Row
from tritonforge.profiling.tuning.order import Next
from tritonforge.profiling.tuning.search import Search
from tritonforge.profiling.tuning.space import Point, Space, infer
from tritonforge.profiling.tuning.variant import variant
from tritonforge.sandbox.source import Source, read_source
from tritonforge.sandbox.workers import task_worker
from tritonforge.server.results import respond
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools import tune_kernel as tool
from tritonforge.server.tools.benchmark import benchmark
from tritonforge.server.tools.benchmark_report import BenchmarkResult
from tritonforge.server.tools.tune_kernel import tune_kernel
from tritonforge.server.tuning.bench import Compiler, GpuBench
from tritonforge.server.tuning.find import prepare, race
from tritonforge.server.tuning.loop import Tuning
from tritonforge.server.tuning.report import TuneResult

SHARE: Final = 0.15
LIMIT_S: Final = 150.0
"""For one exhaustive search."""
FP32_REFERENCE: Final = "(a.float() @ b.float()).to(a.dtype)"


class Stated(NamedTuple):
    """A kernel with the space that is searched."""

    name: str
    file: str
    case: str
    space: dict[str, list[int | bool]]


STATED: Final = [
    Stated("sin", "baseline", "large", {"BLOCK": [64 << n for n in range(9)], "num_warps": [1, 2, 4, 8, 16]}),
    Stated(
        "softmax", "baseline", "train",
        {"BLOCK": [128 << n for n in range(7)], "num_warps": [1, 2, 4, 8, 16], "num_stages": [2, 3]},
    ),
    Stated(
        "matmul", "baseline", "square",
        {
            "BLOCK_M": [64, 128, 256], "BLOCK_N": [64, 128, 256], "BLOCK_K": [32, 64, 128], "num_warps": [4, 8],
            "num_stages": [2, 3, 4],
        },
    ),
]  # fmt: skip


class Bench:
    """The server's parts, and the report."""

    def __init__(self, services: Services, kernels: Sequence[str]) -> None:
        self.services, self.kernels = services, kernels
        self.report: list[str] = []
        self.kept: dict[str, Any] = {}

    def say(self, text: str) -> None:
        self.report.append(text)
        print(text, flush=True)

    def table(self, title: str, header: Row, rows: Sequence[Row]) -> None:
        self.say(f"\n## {title}\n\n| {' | '.join(header)} |\n|{' --- |' * len(header)}")
        for row in rows:
            self.say(f"| {' | '.join(row)} |")

    async def tuned(self, **given: Any) -> tuple[TuneResult, float]:
        """The tool, and the seconds that it took."""
        await self.services.executor.settle()
        started = time.perf_counter()
        found = await respond(TuneResult, lambda: tune_kernel(self.services, _ignore, **given))
        elapsed = time.perf_counter() - started
        result = TuneResult.model_validate(found.structured_content)
        if result.kind != "ok":
            self.say(f"{result.kind}: {result.summary[:1500]}")
        return result, elapsed

    async def tuned_with_timeline(self, **given: Any) -> tuple[TuneResult, float, Tuning | None]:
        """The same, with the search as it ran."""
        seen: list[Tuning] = []
        race = tool.race

        async def watched(*its: Any, **named: Any) -> Tuning:
            seen.append(await race(*its, **named))
            return seen[-1]

        tool.race = watched
        try:
            result, elapsed = await self.tuned(**given)
        finally:
            tool.race = race
        return result, elapsed, seen[-1] if seen else None

    def timeline(self, title: str, tuning: Tuning) -> None:
        """Where the time of each evaluation went, and of compiling."""
        named, compiled = tuning.search.space.named, sorted(tuning.compile_s)
        middle = compiled[len(compiled) // 2] if compiled else math.nan
        self.say(
            f"\n{title}: the file as it is ready at {tuning.ready_s or math.nan:.2f} s; {len(compiled)} compilations, "
            f"{tuning.compilers} at a time, median {middle:.2f} s, longest {max(compiled, default=math.nan):.2f} s"
        )
        header = ["variant", "case", "chosen at s", "ready s", "waited s", "race s", "check s", "how it ended"]
        rows = [
            [
                ", ".join(f"{name}={value}" for name, value in named(step.point).items()), step.case,
                *(f"{each:.2f}" for each in (step.at_s, step.ready_s, step.waited_s, step.race_s, step.check_s)),
                step.how,
            ]
            for step in tuning.timeline
        ]  # fmt: skip
        self.table(f"{title}: evaluations", header, rows)
        self.kept[f"{title} timeline"] = [
            {**step._asdict(), "point": json.dumps(named(step.point))} for step in tuning.timeline
        ]

    async def timed(self, **given: Any) -> BenchmarkResult:
        await self.services.executor.settle()
        found = await respond(BenchmarkResult, lambda: benchmark(self.services, _ignore, **given))
        result = BenchmarkResult.model_validate(found.structured_content)
        if result.kind != "ok":
            self.say(f"{result.kind}: {result.summary[:800]}")
        return result

    def text_of(self, result: TuneResult) -> str | None:
        for uri in result.artifacts:
            digest, name = uri.rsplit("/", 2)[1:]
            path = self.services.artifacts.find(digest, name)
            if name == "tuned_kernel.py" and path is not None:
                return path.read_text()
        return None


async def _ignore(done: float, total: float, message: str) -> None:
    """Nobody watches the progress."""


class Exhaustive(Search):
    """Measures whatever can be launched, in no order; nothing is ruled out by what the compiler says."""

    def _rule_out(self) -> None:
        pass

    def to_compile(self, count: int) -> list[Point]:
        chosen = list(self._left)[:count]
        for point in chosen:
            del self._left[point]
        return chosen

    def next(self) -> Next | None:
        for case, points in self.candidates().items():
            for point in points:
                self._pending.append((case, point))
                return Next(point, case, math.inf)
        return None


def file_of(name: str, part: str) -> Source:
    return read_source(str(EXAMPLES / name / f"{part}.py"), "kernel")


async def exhaustive(bench: Bench, stated: Stated) -> tuple[Exhaustive, Space, float, str]:
    """Every point of the stated space, raced like those of a search."""
    services, kernel, task = bench.services, file_of(stated.name, stated.file), file_of(stated.name, "task")
    await services.executor.settle()
    started = time.perf_counter()
    goal = await services.target(None)
    async with task_worker(services.executor, on_gpu=False) as tasks:
        spec = await tasks.load(task)
        compiler = Compiler(services.executor, kernel, spec, goal)
        await compiler.make_inputs(tasks, [stated.case])
    await compiler.compile(None)
    (first, *_) = compiler.captured[stated.case]
    options = {"num_warps": first.num_warps, "num_stages": first.num_stages}
    space = compiler.space = infer(kernel.text, launched={first.kernel: options}, given=stated.space)
    search = Exhaustive(space, {stated.case: 1.0}, goal)
    async with services.gpu_turn(), task_worker(services.executor, on_gpu=True) as tasks:
        await tasks.load(task)
        inputs = {stated.case: await tasks.make_inputs(stated.case, seed=0)}
        tuning = Tuning(search, GpuBench(compiler, tasks, None, inputs), max(1, min(8, (os.cpu_count() or 2) // 2)))
        await tuning.run(LIMIT_S)
    return search, space, time.perf_counter() - started, tuning.stopped_because


async def tune(bench: Bench) -> None:
    """Exhaustive search, and tune_kernel with 15 % of its evaluations."""
    rows: list[Row] = []
    for stated in STATED:
        if stated.name not in bench.kernels:
            continue
        search, space, seconds, why = await exhaustive(bench, stated)
        best = search.champion(stated.case)
        count = max(1, int(SHARE * search.evaluations))
        kernel, task = file_of(stated.name, stated.file), file_of(stated.name, "task")
        given: dict[str, Any] = {"space": stated.space, "cases": [stated.case], "evaluations": count}
        result, elapsed, tuning = await bench.tuned_with_timeline(kernel=kernel, task=task, **given)
        if tuning is not None:
            bench.timeline(stated.name, tuning)
        bench.kept[stated.name] = {
            "exhaustive": {
                json.dumps(space.named(point)): values[stated.case] for point, values in search.measured_points()
            },
            "tuned": result.model_dump(mode="json"),
        }
        text, best_text = bench.text_of(result), variant(kernel.text, space, best.point)
        direct = "no choice"
        if text is not None and best_text is not None:
            if text == best_text:
                direct = "the same file"
            else:
                its = await bench.timed(
                    kernel=kernel._replace(text=text), task=task, baseline=kernel._replace(text=best_text),
                    cases=[stated.case],
                )  # fmt: skip
                score = its.score
                if score is not None:
                    direct = f"{score.ratio:.4f} [{score.ratio_low:.4f}, {score.ratio_high:.4f}] {score.comparison}"
        value = _value(search, space, stated.case, result.chosen)
        behind = "not measured" if value is None else f"{100 * math.expm1(best.value - value):.1f}"
        ruled_out = ", ".join(f"{count} {reason}" for reason, count in result.pruned.items()) or "none"
        rows.append(
            [
                stated.name, f"{space.size}", f"{search.evaluations}", f"{seconds:.0f}", f"{math.exp(best.value):.3f}",
                f"{result.evaluations} of {count}", f"{elapsed:.0f}", f"{result.ratio or 0:.3f}", behind, direct,
            ]
        )  # fmt: skip
        bench.say(
            f"{stated.name}: exhaustive best {space.named(best.point)}, {why}; failed {len(search.failures)}, "
            f"not compiled {len(search.pruned)}; tune chose {result.chosen}, {result.stopped_because}; "
            f"ruled out: {ruled_out}; notes {result.notes}"
        )
    header = [
        "kernel", "points", "measured by exhaustive search", "s", "its best, ratio", "evaluations of tune", "s",
        "ratio", "behind by %", "choice against the best, directly",
    ]  # fmt: skip
    bench.table("tune_kernel with 15 % of the evaluations of exhaustive search", header, rows)


def _value(search: Search, space: Space, case: str, chosen: dict[str, Any] | None) -> float | None:
    """What exhaustive search measured of the point that tune chose; 0 for the file as it is."""
    if chosen is None:
        return 0.0
    for point, _ in search.measured_points():
        if space.named(point) == chosen:
            return search.value(case, point)
    for point in space.points():
        if space.named(point) == chosen:
            return search.value(case, point)
    return None


async def short(bench: Bench) -> None:
    """The same spaces in few seconds, as `optimize --agent tune --search-s` has them, by how much is measured."""
    rows: list[Row] = []
    for stated in STATED:
        if stated.name not in bench.kernels:
            continue
        kernel, task = file_of(stated.name, stated.file), file_of(stated.name, "task")
        goal = await bench.services.target(None)
        for seconds in (4.0, 8.0, 16.0):
            await bench.services.executor.settle()
            ground = await prepare(bench.services, kernel, task, goal, space=stated.space, cases=[stated.case])
            search = ground.search()
            tuning = await race(bench.services, ground, search, seconds, begin_s=20.0)
            best = search.choices()[0]
            rows.append(
                [
                    stated.name, f"{seconds:.0f}", f"{search.evaluations} of {search.space.size}",
                    f"{search.compiled_count}", f"{math.exp(best.value):.3f}", f"{math.exp(search.sure(best)):.3f}",
                    json.dumps(search.space.named(best.point)), tuning.stopped_because,
                ]
            )  # fmt: skip
            bench.timeline(f"{stated.name} in {seconds:.0f} s", tuning)
    header = ["kernel", "s", "measured", "compiled", "best, ratio", "at least", "which", "stopped because"]
    bench.table("Short searches", header, rows)


async def whole(bench: Bench) -> None:
    """With nothing stated, within 60 s; then against the reference in the kernel's own precision."""
    rows: list[Row] = []
    for name, file, case in (("sin", "baseline", "large"), ("matmul", "candidate", "square")):
        if name not in bench.kernels:
            continue
        kernel, task = file_of(name, file), file_of(name, "task")
        text = task.text.replace(FP32_REFERENCE, "a @ b")
        assert name != "matmul" or text != task.text
        task = task._replace(text=text)
        result, elapsed = await bench.tuned(kernel=kernel, task=task, cases=[case])
        tuned = bench.text_of(result) or kernel.text
        its = await bench.timed(kernel=kernel._replace(text=tuned), task=task, cases=[case], against=["eager"])
        for times in its.cases:
            eager = times.against[0] if times.against else None
            rows.append(
                [
                    f"{name} {case} ({file})", f"{result.evaluations}", f"{elapsed:.0f}", f"{result.ratio or 1:.3f}",
                    f"{times.device_us:.2f}", f"{times.speed_of_light_pct or math.nan:.1f} ({times.floor_from})",
                    "" if eager is None or eager.ratio is None else f"{eager.device_us:.2f}; {eager.ratio:.3f}",
                    json.dumps(result.chosen),
                ]
            )  # fmt: skip
        bench.say(f"{name}:\n{result.summary}")
        bench.kept[f"{name} whole"] = result.model_dump(mode="json")
    header = [
        "kernel", "evaluations", "s", "ratio", "tuned us", "% of the speed of light",
        "torch us; its time over the tuned kernel's", "chosen",
    ]  # fmt: skip
    bench.table("tune_kernel with nothing stated", header, rows)


SECTIONS = {"tune": tune, "short": short, "whole": whole}


async def run(sections: Sequence[str], kernels: Sequence[str], out: Path) -> None:
    with tempfile.TemporaryDirectory() as state:
        async with Services(Settings(state_dir=Path(state))) as services:
            bench = Bench(services, kernels)
            started = time.perf_counter()
            environment = await services.require_gpu("tune")
            assert environment.gpu is not None
            bench.say(f"# {environment.gpu.name}, torch {environment.torch}, triton {environment.triton}")
            try:
                for name in sections:
                    await SECTIONS[name](bench)
            finally:
                bench.say(f"\n{time.perf_counter() - started:.0f} s in all")
                _write(out, bench)


def _write(out: Path, bench: Bench) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "tune.md").write_text("\n".join(bench.report) + "\n")
    (out / "tune.json").write_text(json.dumps(bench.kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--kernels", nargs="+", default=["sin", "softmax", "matmul"])
    given = parser.parse_args()
    anyio.run(run, given.only, given.kernels, given.out)


if __name__ == "__main__":
    main()
