"""What `benchmark` sees and misses on a GPU: sections `smoke`, `aa`, `peers`, `power`, `detectable`, `decide`.

Run from the repository: ``python tests/benchmarks/benchmark_on_gpu.py --out FOLDER [--only SECTION ...]``.
``--peer FOLDER`` holds the package ``kernelbench``, to compare with.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.bench import log_requests
from tests.benchmarks.timed_kernels import TASKS, kernel
from tritonforge.profiling.comparison import Comparison, compare
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import gpu_worker, task_worker
from tritonforge.server.results import respond
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.timed_case import CaseTimer
from tritonforge.server.tools.benchmark import benchmark
from tritonforge.server.tools.benchmark_report import BenchmarkResult, CaseTimes

AA_KERNELS = ["add", "softmax", "matmul"]
REPEATS = 4
"""Of each of the ten cases: 40 comparisons of identical source."""
PLANTED = {0.02: 1.0, 0.01: 0.95, 0.005: 0.80}
"""Extra work -> share of tries in which it must be found."""
POWER_CASES = [("add", "120us", 20), ("matmul", "100us", 12)]
"""Kernel, case, tries."""
DETECTABLE_CASES = ["5us", "20us", "100us"]
"""Of `stream`."""
DETECTABLE_TRIES = 8


class Bench:
    """The tool, and the report."""

    def __init__(self, services: Services, peer: str | None, *, quick: bool) -> None:
        self.services, self.peer = services, peer
        self.fewer = 4 if quick else 1
        """By which the numbers of tries are divided."""
        self.report: list[str] = []
        self.kept: dict[str, Any] = {}

    def say(self, text: str) -> None:
        self.report.append(text)
        print(text, flush=True)

    def table(self, title: str, header: list[str], rows: Sequence[Sequence[str]]) -> None:
        """All rows at once; where each takes long, `begin` and `row` show them as they come."""
        self.begin(title, header)
        for row in rows:
            self.row(row)

    def begin(self, title: str, header: list[str]) -> None:
        self.say(f"\n## {title}\n\n| {' | '.join(header)} |\n|{' --- |' * len(header)}")

    def row(self, row: Sequence[str]) -> None:
        self.say(f"| {' | '.join(row)} |")

    async def call(self, name: str, extra: float = 0.0, **more: Any) -> tuple[BenchmarkResult, float]:
        """The tool with the kernel, slower by ``extra``, against itself; and the seconds that it took."""
        await self.services.executor.settle()

        async def evaluate() -> BenchmarkResult:
            return await benchmark(
                self.services, _ignore, kernel=kernel(name, extra), task=TASKS[name], baseline=kernel(name), **more
            )

        started = time.perf_counter()
        result = (await respond(BenchmarkResult, evaluate)).structured_content
        elapsed = time.perf_counter() - started
        found = BenchmarkResult.model_validate(result)
        if found.kind is not Kind.OK:
            self.say(f"{name}: {found.kind}: {found.summary}")
        return found, elapsed


async def _ignore(done: float, total: float, message: str) -> None:
    """Nobody watches the progress."""


async def smoke(bench: Bench) -> None:
    """One call of each kernel, printed, with what it asked of its workers."""
    requests = log_requests()
    for name in TASKS:
        requests.clear()
        found, elapsed = await bench.call(name)
        bench.say(in_words(requests))
        bench.say(f"\n{name}: {elapsed:.2f} s\n{found.summary}")
        for times in found.cases:
            print(times.model_dump_json(exclude={"notes"}))
            bench.say(
                f"  {times.case}: blocks {times.blocks} pairs {times.process_pairs} checked {times.outputs_checked} "
                f"replay_ratio {times.replay_ratio} reason {times.timing_reason} first {times.first_call_s:.2f} s"
            )


def in_words(requests: dict[str, list[float]]) -> str:
    return "; ".join(
        f"{operation} {len(times)}x {1e3 * sum(times):.0f} ms (median {1e3 * statistics.median(times):.1f})"
        for operation, times in sorted(requests.items(), key=lambda item: -sum(item[1]))
    )


async def identical(bench: Bench) -> None:
    """A/A: the same source on both sides."""
    found: dict[str, list[CaseTimes]] = defaultdict(list)
    seconds = 0.0
    for _ in range(REPEATS // bench.fewer):
        for name in AA_KERNELS:
            result, elapsed = await bench.call(name)
            seconds += elapsed
            for times in result.cases:
                found[f"{name} {times.case}"].append(times)
    rows: list[list[str]] = []
    verdicts: dict[str, int] = defaultdict(int)
    for name, every in found.items():
        off = [100 * abs((times.ratio or 0) - 1) for times in every]
        for times in every:
            verdicts[times.comparison or "none"] += 1
        rows.append(
            [
                name,
                f"{statistics.median(times.device_us for times in every):.2f}",
                f"{statistics.median(off):.3f}",
                f"{max(off):.3f}",
                ", ".join(times.comparison or "" for times in every),
                f"{statistics.median(times.min_detectable_pct or 0 for times in every):.2f}",
                f"{statistics.median(times.blocks for times in every):.0f}",
                ", ".join(sorted({times.timing for times in every})),
            ]
        )
        bench.kept[f"aa {name}"] = [times.model_dump(mode="json") for times in every]
    header = ["case", "us", "median |ratio - 1| %", "largest %", "comparisons", "detectable %", "blocks", "timing"]
    bench.table("A/A: identical source", header, rows)
    total = sum(verdicts.values())
    wrong = verdicts["faster"] + verdicts["slower"]
    share = 100 * wrong / total
    bench.say(f"\n{total} comparisons in {seconds:.0f} s: {dict(verdicts)}; false verdicts {wrong} ({share:.1f} %)")


async def peers(bench: Bench) -> None:
    """The field's timers on the same kernels, in a process each."""
    command = [sys.executable, str(Path(__file__).with_name("timers_of_the_field.py")), bench.peer or ""]
    done = await anyio.run_process(command, check=False, stderr=subprocess.STDOUT)
    rows = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith('["')]
    header = ["case", "timer", "us", "median |ratio - 1| %", "largest %"]
    bench.table("The field's timers: two measurements of the same kernel in sequence, ten times", header, rows)
    if done.returncode != 0:
        bench.say(done.stdout.decode()[-2000:])


async def power(bench: Bench) -> None:
    """Planted slowdowns in kernels of 100 us and more."""
    bench.begin(
        "Planted slowdowns",
        ["case", "extra work %", "slower by % (median)", "found", "wanted", "blocks", "seconds"],
    )
    for name, case, count in POWER_CASES:
        for extra, wanted in PLANTED.items():
            found, seconds, _ = await tries(bench, name, case, extra, count // bench.fewer)
            slower = sum(one.comparison == "slower" for one in found)
            bench.row(
                [
                    f"{name} {case}",
                    f"{100 * extra:g}",
                    f"{100 * (1 - statistics.median(one.ratio for one in found)):.2f}",
                    f"{slower} of {len(found)}",
                    f"{100 * wanted:.0f} %",
                    f"{statistics.median(one.blocks for one in found):.0f}",
                    f"{statistics.median(seconds):.2f} [{min(seconds):.2f}, {max(seconds):.2f}]",
                ]
            )


async def detectable(bench: Bench) -> None:
    """Whether an effect as large as was said to be detectable is detected."""
    header = ["case", "us", "told %", "planted ns", "slower by % (median)", "found"]
    bench.begin("The smallest effect that was said to be visible, planted", header)
    for case in DETECTABLE_CASES:
        same = await tries(bench, "stream", case, 0.0, 3)
        told = statistics.median(one.min_detectable_pct or 0 for one in same.comparisons)
        planted_us = told / 100 * same.device_us
        found = (await tries(bench, "stream", case, planted_us, DETECTABLE_TRIES // bench.fewer)).comparisons
        slower = sum(one.comparison == "slower" for one in found)
        bench.row(
            [
                f"stream {case}",
                f"{same.device_us:.2f}",
                f"{told:.2f}",
                f"{1e3 * planted_us:.0f}",
                f"{100 * (1 - statistics.median(one.ratio for one in found)):.2f}",
                f"{slower} of {len(found)}",
            ]
        )


async def decide(bench: Bench) -> None:
    """How long a decision takes from a warm pool."""
    requests = log_requests()
    header = ["case", "extra work %", "timing and deciding, s", "whole call, s", "of it the first call (compile), s"]
    bench.begin("Time to a decision: median [least, most]", header)
    for name, case in (("softmax", "70us"), ("add", "120us")):
        for extra in (0.06, 0.01):
            _, seconds, _ = await tries(bench, name, case, extra, 6, requests)
            spent = in_words(requests)
            wholes: list[float] = []
            firsts: list[float] = []
            for number in range(3):
                requests.clear()
                result, elapsed = await bench.call(name, extra, cases=[case])
                if number:
                    wholes.append(elapsed)
                    firsts += [times.first_call_s for times in result.cases]
            print(f"last comparison: {spent}\nlast call: {in_words(requests)}", flush=True)
            bench.row(
                [
                    f"{name} {case}",
                    f"{100 * extra:g}",
                    f"{statistics.median(seconds):.2f} [{min(seconds):.2f}, {max(seconds):.2f}]",
                    f"{statistics.median(wholes):.2f} [{min(wholes):.2f}, {max(wholes):.2f}]",
                    f"{statistics.median(firsts):.2f}",
                ]
            )


class Tries(NamedTuple):
    """Several comparisons."""

    comparisons: list[Comparison]
    seconds: list[float]
    """Of each: inputs, replayers, blocks, checks of results, whole calls."""
    device_us: float
    """Of the candidate, median."""


async def tries(
    bench: Bench, name: str, case: str, extra: float, count: int, requests: dict[str, list[float]] | None = None
) -> Tries:
    """The comparison of a slower kernel with the plain one, several times in the same processes.

    ``requests`` are those of the last time afterwards.
    """
    services = bench.services
    found: list[Comparison] = []
    seconds: list[float] = []
    device_us: list[float] = []
    await services.executor.settle()
    sources = [Source(text=kernel(name, slower), shown_as=f"{name}.py", origin=None) for slower in (extra, 0.0)]
    task = Source(text=TASKS[name], shown_as="task.py", origin=None)
    async with services.gpu_turn() as device, AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(task_worker(services.executor, on_gpu=True))
        spec = await tasks.load(task)
        kernels: list[Any] = []
        for source in sources:
            worker = await stack.enter_async_context(gpu_worker(services.executor))
            await worker.load(source, spec)
            kernels.append((source, worker))
        timer = CaseTimer(services.executor, stack, spec, task, tasks, kernels)
        for number in range(count + 1):
            await services.executor.settle()
            async with services.measuring(device):
                if requests is not None:
                    requests.clear()
                started = time.perf_counter()
                timed = await timer.time(await timer.start(case))
                elapsed = time.perf_counter() - started
            if number:
                found.append(compare(timed.groups))
                seconds.append(elapsed)
                device_us += timed.candidate.device_us()
    return Tries(found, seconds, statistics.median(device_us))


SECTIONS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "smoke": smoke, "aa": identical, "peers": peers, "power": power, "detectable": detectable, "decide": decide,
}  # fmt: skip


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=SECTIONS)
    parser.add_argument("--peer")
    parser.add_argument("--quick", action="store_true", help="a quarter of the tries")
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        async with Services(Settings(state_dir=Path(state))) as services:
            environment = await services.environment()
            assert environment.gpu is not None, environment.problem
            bench = Bench(services, known.peer, quick=known.quick)
            bench.say(
                f"# `benchmark` on {environment.gpu.name}\n\n{time.strftime('%Y-%m-%d')}; Python {environment.python}, "
                f"torch {environment.torch}, triton {environment.triton}; `python {' '.join(sys.argv)}`"
            )
            for name in known.only or SECTIONS:
                started = time.perf_counter()
                await SECTIONS[name](bench)
                bench.say(f"({name}: {time.perf_counter() - started:.0f} s)")
    known.out.mkdir(parents=True, exist_ok=True)
    (known.out / "benchmark.md").write_text("\n".join(bench.report) + "\n")
    (known.out / "benchmark.json").write_text(json.dumps(bench.kept))


if __name__ == "__main__":
    anyio.run(main)
