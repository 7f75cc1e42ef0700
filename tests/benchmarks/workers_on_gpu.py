"""How quick, how lean and how sturdy warm single-use workers are, on a machine with a GPU.

Writes Markdown tables to FOLDER/workers.md. `--peer FOLDER` names a checkout of KernelBench (`src` in it); its
`eval_kernel_against_ref` is then run on the same kernels, in a new process each, as that project recommends.

Run: python tests/benchmarks/workers_on_gpu.py --out FOLDER [--peer FOLDER] [--only SECTION ...]
"""

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from datetime import date
from importlib.metadata import version
from pathlib import Path

import anyio
from bench import EXAMPLES, Bench, Row, Section, milliseconds, resident_kib, source
from idle import idle_server, idle_spares

from tritonforge.profiling.comparison import compare
from tritonforge.profiling.correctness import check_case
from tritonforge.profiling.rounds import ONCE, Plan
from tritonforge.sandbox import nvml
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.executors.cold import ColdExecutor
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.usage import tree
from tritonforge.sandbox.workers import gpu_worker, task_worker
from tritonforge.server.timed_case import CaseTimer

CASES = {"sin": "large", "softmax": "train", "matmul": "square"}
SEEDS = 3


async def evaluate(executor: Executor, name: str, case: str, *, clocked: bool = True) -> tuple[float, float, str]:
    """Compile, correctness on three seeds, timed against the baseline until it is decided: wall time, compile time,
    verdict."""
    started = time.perf_counter()
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(task_worker(executor, on_gpu=True))
        candidate = await stack.enter_async_context(gpu_worker(executor))
        baseline = await stack.enter_async_context(gpu_worker(executor))
        task = source(name, "task")
        spec = await tasks.load(task)
        kernels = [(source(name, "candidate", clocked=clocked), candidate)]
        kernels.append((source(name, "baseline", clocked=clocked), baseline))
        for text, worker in kernels:
            await worker.load(text, spec)
        found = await check_case(case, Plan(SEEDS, repeats=1, structured=False), spec, tasks, candidate)
        assert found.kind is Kind.OK, found
        timer = CaseTimer(executor, stack, spec, task, tasks, kernels)
        verdict = compare((await timer.time(await timer.start(case))).groups)
        wall = time.perf_counter() - started
        printed = candidate.process.stdout.text() + baseline.process.stdout.text()
    compile_s = sum(float(found) for found in re.findall(r"COMPILE ([\d.e-]+)", printed))
    return wall, compile_s, f"{verdict.comparison} {verdict.ratio:.3f}, {verdict.samples // 2} pairs"


async def job_to_code(bench: Bench) -> None:
    rows: list[Row] = []
    async with LocalExecutor(bench.host) as executor:
        await executor.environment()
        device = (await executor.devices())[0]
        told = "import time\nraise RuntimeError(time.perf_counter())\n"
        spec = None
        async with task_worker(executor, on_gpu=False) as tasks:
            spec = await tasks.load(source("sin", "task"))
        reached: list[float] = []
        ready: list[float] = []
        for _ in range(30):
            await executor.settle()
            sent = time.perf_counter()
            try:
                async with gpu_worker(executor) as worker:
                    await worker.load(Source(text=told, shown_as="k.py", origin=None), spec)
            except Stopped as stopped:
                reached.append(float(stopped.problem.message.rpartition(":")[2]) - sent)
            ended = time.perf_counter()
            await executor.settle()
            ready.append(time.perf_counter() - ended)
        rows.append(["job sent -> candidate code runs (GPU worker)", milliseconds(reached), "<= 20"])
        rows.append(["worker used up -> the pool is full again", milliseconds(ready), "<= 1000"])
        forks: list[float] = []
        for _ in range(10):
            started = time.perf_counter()
            spare = await executor._fork("gpu", device.uuid)  # pyright: ignore[reportPrivateUsage]
            forks.append(time.perf_counter() - started)
            await spare.discard()
        rows.append(["one GPU spare from fork to ready, alone", milliseconds(forks), "<= 1000"])
    bench.table("Warm workers: times in ms, median [least, most]", ["what", "ms", "wanted"], rows)


async def evaluations(bench: Bench) -> None:
    rows: list[Row] = []
    for name, case in CASES.items():
        async with LocalExecutor(bench.host) as executor:
            await executor.environment()
            warm: list[tuple[float, float, str]] = []
            for _ in range(6):
                await executor.settle()
                warm.append(await evaluate(executor, name, case))
        async with ColdExecutor(bench.host) as executor:
            cold = [await evaluate(executor, name, case)]
        beyond = [wall - compile_s for wall, compile_s, _ in warm]
        cold_beyond = statistics.median(wall - compile_s for wall, compile_s, _ in cold)
        peer = peer_seconds(bench.peer, name, case) if bench.peer is not None else None
        rows.append([
            f"{name} {case}", f"{statistics.median(wall for wall, _, _ in warm):.3f}",
            f"{statistics.median(compile_s for _, compile_s, _ in warm):.3f}",
            f"{statistics.median(beyond):.3f} [{min(beyond):.3f}, {max(beyond):.3f}]",
            f"{statistics.median(wall for wall, _, _ in cold):.2f}", f"{cold_beyond / statistics.median(beyond):.1f}",
            "not run" if peer is None else f"{peer:.2f}",
            "-" if peer is None else f"{peer / statistics.median(wall for wall, _, _ in warm):.1f}", warm[-1][2],
        ])  # fmt: skip
        print(rows[-1], flush=True)
    header = [
        "kernel", "warm, s", "of it Triton's compile", "beyond compile, s (wanted <= 0.4)", "cold processes, s",
        "cold / warm beyond compile (wanted >= 10)", "KernelBench, s", "KernelBench / warm", "last verdict",
    ]  # fmt: skip
    bench.table("One evaluation of a new source: compile, 3 seeds, timed until it is decided", header, rows)


def peer_seconds(peer: Path, name: str, case: str) -> float:
    """KernelBench's own evaluation of the same candidate against the same reference, in a new process."""
    script = Path(__file__).with_name("peer.py")
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(script), str(peer), str(EXAMPLES / name), case],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the peer failed: {done.stdout[-800:]}{done.stderr[-1500:]}")
    print(done.stdout.strip()[-200:], flush=True)
    return time.perf_counter() - started


async def endurance(bench: Bench) -> None:
    device = (await bench.host.devices())[0]
    async with LocalExecutor(bench.host) as executor:
        await executor.environment()
        marks: list[tuple[int, int, int, int, int]] = []
        for number in range(bench.evaluations + 1):
            if number % (bench.evaluations // 4) == 0:
                await executor.settle()
                rss = resident_kib(os.getpid())
                listed = len(nvml.processes(device.uuid))
                used = nvml.memory_used_bytes(device.uuid) >> 20
                marks.append((number, rss >> 10, len(os.listdir("/proc/self/fd")), listed, used))
            if number < bench.evaluations:
                async with task_worker(executor, on_gpu=True) as tasks, gpu_worker(executor) as candidate:
                    spec = await tasks.load(source("softmax", "task"))
                    await candidate.load(source("softmax", "candidate"), spec)
                    assert (await check_case("decode", ONCE, spec, tasks, candidate)).kind is Kind.OK
        alive = len(tree(os.getpid()))
    left = len(tree(os.getpid()))
    rows = [[str(value) for value in mark] for mark in marks]
    header = ["evaluations", "server RSS, MiB", "descriptors", "our processes on the GPU", "GPU memory used, MiB"]
    bench.table(f"{bench.evaluations} evaluations in a row", header, rows)
    bench.say(f"\nProcesses of this one before closing: {alive}, after: {left} (itself).")


ILLEGAL = """\
import torch, triton, triton.language as tl
@triton.jit
def k(p):
    tl.store((p + 1099511627776), 1.0)
def sin(x):
    k[(1,)](x)
    torch.cuda.synchronize()
    return x
"""
HANG = """\
import torch, triton, triton.language as tl
@triton.jit
def k(p):
    i = tl.load(p)
    while i < 1:
        i = tl.load(p, volatile=True)
def sin(x):
    k[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device))
    torch.cuda.synchronize()
    return x
"""


async def recovery(bench: Bench) -> None:
    rows: list[Row] = []
    host = Host(sys.executable, Limits(request_s=2.0))
    for what, text in (("illegal address", ILLEGAL), ("hung kernel", HANG)):
        next_code: list[float] = []
        kinds: set[str] = set()
        async with LocalExecutor(host, gpu_spares=4) as executor:
            await executor.environment()
            for _ in range(5):
                await executor.settle()
                async with task_worker(executor, on_gpu=True) as tasks:
                    spec = await tasks.load(source("sin", "task"))
                    inputs = await tasks.make_inputs("large", 1)
                    killed = 0.0
                    try:
                        async with gpu_worker(executor) as worker:
                            await worker.load(Source(text=text, shown_as="k.py", origin=None), spec)
                            await worker.set_inputs(inputs)
                            try:
                                await worker.call()
                            finally:
                                killed = time.perf_counter()
                    except Stopped as stopped:
                        kinds.add(f"{stopped.kind}: {stopped.problem.message[:60]}")
                async with task_worker(executor, on_gpu=True) as tasks, gpu_worker(executor) as worker:
                    spec = await tasks.load(source("softmax", "task"))
                    await worker.load(source("softmax", "candidate"), spec)
                    next_code.append(time.perf_counter() - killed)
                    assert (await check_case("decode", ONCE, spec, tasks, worker)).kind is Kind.OK
        rows.append([what, "; ".join(sorted(kinds)), milliseconds(next_code), "<= 500"])
    bench.table(
        "Recovery: from the kill to the next evaluation's code running (and its result right)",
        ["fault", "outcome", "ms", "wanted"],
        rows,
    )


SECTIONS: dict[str, Section] = {
    "job": job_to_code,
    "evaluation": evaluations,
    "recovery": recovery,
    "endurance": endurance,
    "spares": idle_spares,
    "idle": idle_server,
}


async def run(bench: Bench, names: list[str]) -> None:
    devices = await bench.host.devices()
    _, seal = await bench.host.ground()
    bench.say(f"# Warm single-use workers on {devices[0].name if devices else 'no GPU'}\n")
    torch, triton = version("torch"), version("triton")
    held = ", ".join(layer.name for layer in seal.layers if layer.holds) or seal.reason
    bench.say(
        f"{date.today()}; Python {platform.python_version()}, torch {torch}, triton {triton}; {os.cpu_count()} cores; "
        f"sandbox: {held}; `{' '.join(['python', *sys.argv])}`"
    )
    for name in names:
        started = time.perf_counter()
        await SECTIONS[name](bench)
        print(f"({name}: {time.perf_counter() - started:.0f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--evaluations", type=int, default=200, help="of the section endurance")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    options = parser.parse_args()
    bench = Bench(options.peer, options.evaluations)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        anyio.run(run, bench, options.only)
    finally:
        (options.out / "workers.md").write_text("\n".join(bench.report) + "\n")


if __name__ == "__main__":
    main()
