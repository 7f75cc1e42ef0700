"""Do the facts of `compile_kernel`, found without a GPU, equal what a GPU says of the kernels that it has loaded?

    python tests/benchmarks/compiled_on_gpu.py --corpus TritonBench/data/TritonBench_G_v1 --out FOLDER

The examples and the files of TritonBench-G (https://github.com/thunlp/TritonBench) run on the GPU as they stand, in a
process each, and go through the server's capture. For each kernel that was loaded: was the same specialization captured
(signature, constants, divisibility, warps, stages), is its code the same, and are registers, local memory and shared
memory those that the driver reports?
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tritonforge.profiling.compiler.backends import backend_of
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.hardware.model import Target
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.facts import Capture, CapturedLaunch
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.source import read_source
from tritonforge.sandbox.workers import capture_worker, task_worker
from tritonforge.server.services import Services, target_facts
from tritonforge.server.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("sin", "softmax", "matmul")
SIDES = ("baseline", "candidate")


class Row(NamedTuple):
    """What became of one file."""

    file: str
    loaded: int
    keys: int
    """Loaded kernels whose specialization was captured too."""
    same_code: int
    equal: int
    """Those with the driver's registers, local and shared memory."""
    captured_only: int
    """Captured kernels that the GPU did not load."""
    note: str


def main() -> None:
    """Compare all files and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="the folder TritonBench_G_v1")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--files", type=int, default=80, help="so many of the corpus, in order of their names")
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=45, help="time limit of one file on the GPU")
    options = parser.parse_args()
    known: list[tuple[Path, Path | None]] = [
        (found, ROOT / "examples" / name / "task.py")
        for name in EXAMPLES
        for found in sorted((ROOT / "examples" / name).glob("*.py"))
        if found.name != "task.py"
    ]
    files = [*known, *((file, None) for file in sorted(options.corpus.glob("*.py"))[: options.files])]
    rows = anyio.run(compare_all, files, options.at_once, options.seconds)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "compiled.md").write_text(text := report(rows))
    sys.stdout.write(text)


async def compare_all(files: Sequence[tuple[Path, Path | None]], at_once: int, seconds: float) -> list[Row]:
    """First all on the GPU, then all through the capture: neither waits for the other's processes."""
    loaded: dict[Path, list[dict[str, Any]] | str] = {}
    rows: list[Row] = []

    async def run(file: Path, task: Path | None) -> None:
        async with room:
            loaded[file] = await on_gpu(file, task, seconds)

    room = anyio.CapacityLimiter(at_once)
    async with anyio.create_task_group() as group:
        for file, task in files:
            group.start_soon(run, file, task)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(state_dir=Path(folder), limits=Limits(request_s=2 * seconds), spares=at_once)
        async with Services(settings) as services:
            goal = await services.target(None)

            async def capture(file: Path, task: Path | None) -> None:
                found = loaded[file]
                async with room:
                    if isinstance(found, str):
                        rows.append(Row(shown(file), 0, 0, 0, 0, 0, found))
                        return
                    captured, note = await through_capture(services, goal, file, task)
                rows.append(row(file, found, captured, note))
                sys.stderr.write(f"{len(rows)} of {len(files)}: {rows[-1]}\n")

            async with anyio.create_task_group() as group:
                for file, task in files:
                    group.start_soon(capture, file, task)
    return sorted(rows)


async def on_gpu(file: Path, task: Path | None, seconds: float) -> list[dict[str, Any]] | str:
    """What the GPU has loaded, or why that is not known."""
    script = Path(__file__).with_name("loaded_kernels.py")
    command = [sys.executable, str(script), str(file), *([str(task)] if task is not None else [])]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRITON_CACHE_DIR": cache}
        with anyio.move_on_after(seconds):
            done = await anyio.run_process(command, check=False, stderr=subprocess.PIPE, env=environment)
            lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("loaded ")]
            if lines:
                return [json.loads(line.removeprefix("loaded ")) for line in lines]
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            return f"on the GPU: {(last or ['nothing was loaded'])[0][:120]}"
    return f"on the GPU: not done within {seconds:.0f} s"


async def through_capture(
    services: Services, goal: Target, file: Path, task: Path | None
) -> tuple[list[tuple[CapturedLaunch, LaunchFacts]], str]:
    """All launches as the server captures them, and how the file failed."""
    found: list[tuple[CapturedLaunch, LaunchFacts]] = []
    note = ""

    def add(capture: Capture) -> None:
        found.extend((launch, backend_of(goal).facts(capture, launch, goal)) for launch in capture.launches)

    try:
        async with capture_worker(services.executor, target=target_facts(goal)) as kernels:
            if task is None:
                try:
                    await kernels.run_file(read_source(str(file), "kernel"), limit_s=services.settings.limits.request_s)
                except Stopped as stopped:
                    note = " ".join(stopped.problem.message.split())[:120]
                add(await kernels.captured())
            else:
                async with task_worker(services.executor, on_gpu=False) as tasks:
                    spec = await tasks.load(read_source(str(task), "task"))
                    await kernels.load(read_source(str(file), "kernel"), spec)
                    for case in spec.select(None):
                        await kernels.set_inputs(await tasks.make_inputs(case, seed=0))
                        add(await kernels.capture())
    except Stopped as stopped:
        note = " ".join(stopped.problem.message.split())[:120]
    return found, note


def key_of(symbol: str, key: dict[str, Any]) -> str:
    """A specialization as text."""
    return json.dumps([symbol, key], sort_keys=True)


def row(file: Path, loaded: list[dict[str, Any]], captured: list[tuple[CapturedLaunch, LaunchFacts]], note: str) -> Row:
    """The two beside each other."""
    known = {
        key_of(
            launch.symbol,
            {
                "signature": launch.signature,
                "constexprs": launch.constexprs,
                "divisible_by_16": launch.divisible_by_16,
                "num_warps": launch.num_warps,
                "num_stages": launch.num_stages,
                "num_ctas": launch.num_ctas,
            },
        ): found
        for launch, found in captured
    }
    real = {key_of(one["symbol"], one["key"]): one for one in loaded}
    both = real.keys() & known.keys()
    equal = 0
    differences: list[str] = []
    for key in both:
        mine, its = known[key], real[key]
        told = (mine.registers, mine.stack_bytes, mine.shared_bytes)
        seen = (its["registers"], its["local_bytes"], its["static_shared_bytes"] + its["dynamic_shared_bytes"])
        equal += told == seen
        if told != seen:
            differences.append(f"{mine.kernel}: {told} told, {seen} on the GPU")
    missing = sorted({json.loads(key)[0] for key in real.keys() - both})
    if missing:
        differences.append(f"not captured: {', '.join(missing)[:100]}")
    if note and missing:
        differences.append(note)
    same = sum(known[key].code_hash == real[key]["code_hash"] for key in both)
    return Row(shown(file), len(real), len(both), same, equal, len(known.keys() - both), "; ".join(differences)[:300])


def shown(file: Path) -> str:
    """Its name, the example's before it."""
    return f"{file.parent.name}/{file.name}" if file.is_relative_to(ROOT) else file.name


def report(rows: list[Row]) -> str:
    """Totals and a line a file."""
    from importlib.metadata import version

    ran = [one for one in rows if one.loaded]
    loaded, keys, same, equal = (
        sum(getattr(one, name) for one in ran) for name in ("loaded", "keys", "same_code", "equal")
    )
    lines = [
        "# Compile facts beside the GPU's",
        "",
        f"{date.today()}, {subprocess.run(['nvidia-smi', '-L'], capture_output=True, text=True, check=False).stdout.split('(')[0].strip()}, "  # noqa: E501
        f"torch {version('torch')}, triton {version('triton')}.",
        "",
        f"{len(ran)} of {len(rows)} files loaded kernels on the GPU: {loaded} kernels. Captured with the same "
        f"specialization: {keys}; same code: {same}; same registers, local and shared memory: {equal}.",
        "",
        "| file | loaded | same specialization | same code | facts equal | only captured | note |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(str(field).replace('|', '/') for field in one)} |" for one in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
