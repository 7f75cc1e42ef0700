"""How long `profile_ncu` takes, and whether it is right, on a GPU: sections `levels`, `raw`, `corpus`, `cases`.

    python tests/benchmarks/profile_on_gpu.py --out FOLDER [--only SECTION ...] [--corpus TritonBench_G_v1]

`levels`: seconds of a call from warm workers, at each level, beside a plain ncu that counts the same. `raw`: are the
numbers those that ncu itself prints from the same report? `corpus`: files of TritonBench-G
(https://github.com/thunlp/TritonBench), profiled as they stand. `cases`: the case studies under examples/cases.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.bench import EXAMPLES, log_requests
from tests.profiling.ncu.raw_page import raw_page
from tritonforge.profiling.ncu import metrics
from tritonforge.profiling.ncu.command import command
from tritonforge.profiling.ncu.levels import LEVELS, LevelName
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import read_source
from tritonforge.sandbox.workers import task_worker
from tritonforge.server.nsight_compute import Profiler, find_profiler
from tritonforge.server.results import respond
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.profile_case import Asked, CaseProfile, profile_case, profile_file
from tritonforge.server.tools.profile_ncu import heaviest, profile_ncu
from tritonforge.server.tools.profile_report import ProfiledLaunch, ProfileResult

NAMES = ("sin", "softmax", "matmul")
STUDIES = ("tiny_block", "streamed_reduction", "register_transpose")
TRIES = 5
COLD_TRIES = 3
RAW_FILES = 10
AT_ONCE = 6
CORPUS_LEVEL: LevelName = "quick"
CORPUS_LAUNCHES = 5
ROUNDING = 0.00501
"""ncu prints two decimals."""
REQUEST_S = 120.0
PLAIN = """
import sys
root, kernel, task, case = sys.argv[1:]
sys.path.insert(0, root)
from tests.benchmarks.loaded_kernels import module
import torch
entry, spec = module(kernel), module(task)
values = {name: value for name, value in spec.CASES[case].items() if name not in {"small", "weight"}}
torch.manual_seed(0)
inputs = spec.make_inputs(**values, device="cuda")
function = getattr(entry, spec.ENTRY)
call = (lambda: function(**inputs)) if isinstance(inputs, dict) else (lambda: function(*inputs))
call(), call()
torch.cuda.synchronize()
with torch.cuda.nvtx.range("BIG_OP"):
    call()
torch.cuda.synchronize()
"""
"""What a user puts under ncu by hand: module names of kernel and task must differ."""


class Bench:
    """The tool, and the report."""

    def __init__(self, services: Services, profiler: Profiler, corpus: list[Path]) -> None:
        self.services, self.profiler, self.corpus = services, profiler, corpus
        self.report: list[str] = []
        self.kept: dict[str, Any] = {}

    def say(self, text: str) -> None:
        self.report.append(text)
        print(text, flush=True)

    def begin(self, title: str, header: list[str]) -> None:
        self.say(f"\n## {title}\n\n| {' | '.join(header)} |\n|{' --- |' * len(header)}")

    def row(self, row: Sequence[str]) -> None:
        self.say(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |")

    async def call(self, kernel: str, task: Path | None, **more: Any) -> tuple[ProfileResult, float]:
        """The tool's result, whatever its outcome, and the seconds that it took from workers that wait ready."""
        await self.services.executor.settle()

        async def evaluate() -> ProfileResult:
            given = None if task is None else str(task)
            return await profile_ncu(self.services, _ignore, kernel=kernel, task=given, **more)

        started = time.perf_counter()
        result = (await respond(ProfileResult, evaluate)).structured_content
        elapsed = time.perf_counter() - started
        return ProfileResult.model_validate(result), elapsed


async def _ignore(done: float, total: float, message: str) -> None:
    """Nobody watches the progress."""


def spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} [{min(seconds):.2f}, {max(seconds):.2f}]"


def number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}f}"


# ---- levels ----------------------------------------------------------------------------------------------------------


async def levels(bench: Bench) -> None:
    """Each call with another comment, as the same sources are not profiled twice."""
    header = ["example", "level", "seconds: median [least, most]", "first call", "plain ncu", "launches", "workers"]
    bench.begin("Seconds of a call from warm workers, and of a plain ncu that counts the same", header)
    requests = log_requests()
    for name in NAMES:
        folder = EXAMPLES / name
        case = await case_of(bench.services, folder / "task.py")
        text = (folder / "candidate.py").read_text()
        for level in LEVELS:
            found: list[float] = []
            counted = 0
            for attempt in range(TRIES + 1):
                requests.clear()
                fresh = f"{text}\n# {level} {attempt}\n"
                result, elapsed = await bench.call(fresh, folder / "task.py", cases=[case], level=level)
                if result.kind is not Kind.OK:
                    bench.say(f"{name} {level}: {result.kind}: {result.summary}")
                found.append(elapsed)
                counted = sum(one.launches for one in result.cases)
            spent = ", ".join(f"{operation} {sum(times):.2f}" for operation, times in sorted(requests.items()))
            plain = [await plain_ncu(bench.profiler, level, folder, case) for _ in range(COLD_TRIES)]
            bench.row([name, level, spread(found[1:]), f"{found[0]:.2f}", spread(plain), str(counted), spent])
            bench.kept[f"levels {name} {level}"] = {"tool": found, "plain": plain}


async def case_of(services: Services, task: Path) -> str:
    """The case that the tool chooses."""
    async with task_worker(services.executor, on_gpu=False) as tasks:
        return heaviest(await tasks.load(read_source(str(task), "task")))


async def plain_ncu(profiler: Profiler, level: LevelName, folder: Path, case: str) -> float:
    """Seconds of ncu from a shell, with an empty cache of Triton's as a worker has it."""
    with tempfile.TemporaryDirectory() as out:
        line = command(str(profiler.ncu), LEVELS[level].collect, folder=out, launch_count=10)
        files = [str(folder / f"{part}.py") for part in ("candidate", "task")]
        line = ["env", f"TRITON_CACHE_DIR={out}/cache", *line, sys.executable, "-c", PLAIN]
        started = time.perf_counter()
        done = await anyio.run_process([*line, str(EXAMPLES.parent), *files, case], check=False)
        elapsed = time.perf_counter() - started
        if done.returncode != 0:
            raise RuntimeError((done.stdout + done.stderr).decode(errors="replace")[-1500:])
    return elapsed


# ---- raw -------------------------------------------------------------------------------------------------------------


async def raw(bench: Bench) -> None:
    """The examples, then files of the corpus, until enough were compared."""
    header = ["kernel", "of", "compared", "equal", "only one has it", "different"]
    bench.begin("Numbers of a profile beside those that ncu prints from the same report", header)
    totals: Counter[str] = Counter()
    async for of, found in raw_profiles(bench):
        assert found.data is not None
        every = await printed_by_ncu(bench.profiler, found.data)
        # A report may hold one launch more than is told of.
        for launch, printed in zip(found.launches, every[: len(found.launches)], strict=True):
            compared, lonely, different = [list[str]() for _ in range(3)]
            for name in dict.fromkeys(metrics.WANTED):
                told, shown = launch.metrics.get(name), printed.get(name, "")
                if told is None or shown == "":
                    if (told is None) != (shown == ""):
                        lonely.append(name)
                    continue
                compared.append(name)
                if not same(told.value, shown):
                    different.append(f"{name}: {told.value} and {shown}")
            equal = len(compared) - len(different)
            totals.update(launches=1, compared=len(compared), equal=equal, lonely=len(lonely))
            names = [launch.profile.kernel, of, str(len(compared)), str(equal), ", ".join(lonely), "; ".join(different)]
            bench.row(names)
        totals["files"] += 1
        if totals["files"] >= RAW_FILES:
            break
    bench.say(
        f"\n{totals['files']} files, {totals['launches']} launches, {totals['compared']} numbers: {totals['equal']} "
        f"equal to the last digit that is printed; {totals['lonely']} known to one side only"
    )
    bench.kept["raw"] = dict(totals)


async def raw_profiles(bench: Bench) -> AsyncGenerator[tuple[str, CaseProfile]]:
    """Profiles with all their metrics by name, from below the tool, which shows fewer."""
    asked = Asked(LEVELS["standard"], tuple(dict.fromkeys(metrics.WANTED)), (), 10, ahead=True)
    for name in NAMES:
        task = read_source(str(EXAMPLES / name / "task.py"), "task")
        case = await case_of(bench.services, EXAMPLES / name / "task.py")
        for part in ("baseline", "candidate"):
            kernel = read_source(str(EXAMPLES / name / f"{part}.py"), "kernel")
            async with task_worker(bench.services.executor, on_gpu=False) as tasks:
                spec = await tasks.load(task)
            yield (
                f"{name}/{part}",
                await profile_case(bench.services, bench.profiler, asked, kernel, task, spec, case),
            )
    for file in bench.corpus:
        try:
            # The first launch is as good as ten of the same kernel.
            first = replace(asked, launches=1)
            found = await profile_file(bench.services, bench.profiler, first, read_source(str(file), "kernel"))
        except Stopped as stopped:
            print(f"{file.name}: {stopped.kind}: {stopped.problem.message}", file=sys.stderr)
            continue
        yield file.name, found


async def printed_by_ncu(profiler: Profiler, report: bytes) -> list[dict[str, float | str]]:
    """The raw page, in base units."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.ncu-rep"
        path.write_bytes(report)
        page = ["--csv", "--page", "raw", "--print-units", "base"]
        done = await anyio.run_process([str(profiler.ncu), "--import", str(path), *page])
    return raw_page(done.stdout.decode(errors="replace"))


def same(told: float | str, shown: float | str) -> bool:
    if isinstance(told, str) or isinstance(shown, str):
        return str(told) == str(shown)
    return abs(told - shown) <= ROUNDING + 1e-12 * abs(told)


# ---- corpus and case studies -----------------------------------------------------------------------------------------


async def corpus(bench: Bench) -> None:
    """Files as they stand, several at a time: one has the GPU while the workers of others start."""
    header = ["file", "outcome", "seconds", "launches", "longest kernel", "us", "DRAM %", "compute %", "causes", "note"]
    how = f"without a task at level {CORPUS_LEVEL}, {AT_ONCE} at a time"
    bench.begin(f"{len(bench.corpus)} files of TritonBench-G, profiled {how}", header)
    outcomes: Counter[str] = Counter()
    spent: list[float] = []
    turns, found = anyio.Semaphore(AT_ONCE), dict[Path, tuple[ProfileResult, float]]()

    async def profile(file: Path) -> None:
        async with turns:
            found[file] = await bench.call(str(file), None, level=CORPUS_LEVEL, launches=CORPUS_LAUNCHES)
            print(f"{file.name}: {found[file][0].kind} in {found[file][1]:.1f} s", file=sys.stderr, flush=True)

    async with anyio.create_task_group() as tasks:
        for file in bench.corpus:
            tasks.start_soon(profile, file)
    for file in bench.corpus:
        result, elapsed = found[file]
        outcomes[result.kind] += 1
        spent.append(elapsed)
        launches = str(sum(case.launches for case in result.cases))
        note = "; ".join(result.notes) if result.problem is None else result.problem.message
        bench.row([file.name, result.kind, f"{elapsed:.1f}", launches, *longest(result), " ".join(note.split())[:160]])
        bench.kept[f"corpus {file.name}"] = result.model_dump(mode="json")
    if spent:
        bench.say(f"\n{dict(outcomes)}; seconds a file: {spread(spent)}")


def longest(result: ProfileResult) -> list[str]:
    """Name, time, DRAM, compute and causes of the first launch."""
    if not result.launches:
        return [""] * 5
    launch = result.launches[0]
    shares = [number(launch.dram_pct), number(launch.compute_pct)]
    return [launch.kernel, number(launch.duration_us, 2), *shares, named(launch)]


def named(launch: ProfiledLaunch) -> str:
    return ", ".join(cause.id for cause in launch.causes)


async def cases(bench: Bench) -> None:
    """Both kernels of each case study."""
    header = ["case study", "kernel", "us", "memory %", "DRAM %", "of a copy's bandwidth %", "compute %"]
    header += ["occupancy %, achieved of possible", "registers", "causes", "hottest line"]
    bench.begin("Case studies", header)
    for name in STUDIES:
        folder = EXAMPLES / "cases" / name
        for part in ("slow", "fast"):
            result, _ = await bench.call(str(folder / f"{part}.py"), folder / "task.py", cases=["large"])
            bench.kept[f"cases {name} {part}"] = result.model_dump(mode="json")
            if not result.launches:
                bench.say(f"{name} {part}: {result.kind}: {result.summary}")
                continue
            launch = result.launches[0]
            shares = [launch.memory_pct, launch.dram_pct, launch.achieved_pct, launch.compute_pct]
            places = f"{number(launch.achieved_occupancy_pct)} of {number(launch.theoretical_occupancy_pct)}"
            spots = [f"{spot.line}: {spot.source} ({spot.pct:.0f} %, {spot.stall})" for spot in launch.hotspots[:1]]
            bench.row(
                [
                    *(name, part, number(launch.duration_us, 2), *map(number, shares), places, str(launch.registers)),
                    *(named(launch), "".join(spots)),
                ]
            )
            print(result.summary, flush=True)


SECTIONS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "levels": levels, "raw": raw, "corpus": corpus, "cases": cases,
}  # fmt: skip


@asynccontextmanager
async def prepared(files: list[Path]) -> AsyncGenerator[Bench]:
    """The services that the tool needs."""
    with tempfile.TemporaryDirectory() as state:
        async with Services(Settings(state_dir=Path(state), limits=Limits(request_s=REQUEST_S))) as services:
            yield Bench(services, await find_profiler(), files)


async def main() -> None:
    """Run the chosen sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=SECTIONS)
    parser.add_argument("--corpus", type=Path, help="the folder TritonBench_G_v1")
    parser.add_argument("--files", type=int, default=60, help="so many of the corpus, in order of their names")
    known = parser.parse_args()
    files = [] if known.corpus is None else sorted(known.corpus.glob("*.py"))[: known.files]
    async with prepared(files) as bench:
        environment = await bench.services.environment()
        assert environment.gpu is not None, environment.problem
        bench.say(
            f"# `profile_ncu` on {environment.gpu.name}\n\n{time.strftime('%Y-%m-%d')}; Python {environment.python}, "
            f"torch {environment.torch}, triton {environment.triton}, ncu {bench.profiler.version}; "
            f"`python {' '.join(sys.argv)}`"
        )
        for name in known.only or SECTIONS:
            started = time.perf_counter()
            await SECTIONS[name](bench)
            bench.say(f"({name}: {time.perf_counter() - started:.0f} s)")
            # After each, so that a run that is stopped has told what it found.
            known.out.mkdir(parents=True, exist_ok=True)
            (known.out / "profile.md").write_text("\n".join(bench.report) + "\n")
            (known.out / "profile.json").write_text(json.dumps(bench.kept))


if __name__ == "__main__":
    anyio.run(main)
