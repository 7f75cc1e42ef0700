"""Sections of `workers_on_gpu.py`: what workers and a server cost while nobody asks anything of them."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from bench import Bench, Row, resident_kib, source

from tritonforge.profiling.comparison import compare
from tritonforge.profiling.statistics import median
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.usage import tree
from tritonforge.sandbox.workers import gpu_worker, task_worker
from tritonforge.server.timed_case import CaseTimer


async def idle_spares(bench: Bench) -> None:
    """Workers of one executor are timed while another one keeps eight spares ready on the same GPU, or none."""
    rows: list[Row] = []
    beside = 8
    async with (
        LocalExecutor(bench.host, gpu_spares=0) as executor,
        LocalExecutor(bench.host, gpu_spares=beside) as other,
    ):
        device = (await executor.devices())[0]
        await executor.environment()
        await other.environment()
        pool = other._pools["gpu", device.uuid]  # pyright: ignore[reportPrivateUsage]
        for name, case in (("softmax", "train"), ("matmul", "square"), ("softmax", "decode")):
            async with (
                task_worker(executor, on_gpu=True) as tasks,
                gpu_worker(executor) as first,
                gpu_worker(executor) as second,
            ):
                task, kernel = source(name, "task"), source(name, "candidate")
                spec = await tasks.load(task)
                for worker in (first, second):
                    await worker.load(kernel, spec)
                for run in (1, 2):
                    for spares in (0, beside):
                        await (pool.drain() if spares == 0 else pool.filled())
                        async with AsyncExitStack() as stack:
                            timer = CaseTimer(executor, stack, spec, task, tasks, [(kernel, first), (kernel, second)])
                            timed = await timer.time(await timer.start(case))
                        found = compare(timed.groups)
                        rows.append([
                            f"{name} {case}", str(spares), str(run), f"{median(timed.candidate.device_us()):.2f}",
                            f"{found.ratio:.4f} [{found.ratio_low:.4f}, {found.ratio_high:.4f}]", found.comparison,
                        ])  # fmt: skip
    header = ["kernel", "idle spares", "run", "device_us", "A/A ratio", "comparison"]
    bench.table("Idle spares change no timing", header, rows)


async def idle_server(bench: Bench) -> None:
    """A server over stdio after one call: its memory, and what it does while nobody asks."""
    with tempfile.TemporaryDirectory() as folder:
        server = await anyio.open_process(
            [sys.executable, "-m", "tritonforge.server", "--state-dir", folder], stderr=subprocess.DEVNULL
        )
        assert server.stdin is not None
        assert server.stdout is not None
        client = {"name": "bench", "version": "1"}
        start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        messages: list[dict[str, Any]] = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "hardware_spec", "arguments": {}}},
        ]
        for message in messages:
            await server.stdin.send(json.dumps(message).encode() + b"\n")
        answers = b""
        while answers.count(b"\n") < 2:
            answers += await server.stdout.receive()
        await anyio.sleep(8)
        before = cpu_ticks(server.pid)
        await anyio.sleep(10)
        ticks = cpu_ticks(server.pid) - before
        rss = resident_kib(server.pid) / 1024
        children = tree(server.pid) - {server.pid}
        child_ticks = sum(cpu_ticks(pid) for pid in children)
        await anyio.sleep(5)
        child_ticks = sum(cpu_ticks(pid) for pid in children) - child_ticks
        await server.stdin.aclose()
        await server.wait()
        await server.aclose()
    rows = [
        ["server RSS, MiB", f"{rss:.0f}", "< 150"],
        ["server CPU in 10 s idle, ms", str(1000 * ticks // os.sysconf("SC_CLK_TCK")), "0"],
        [f"CPU of its {len(children)} children in 5 s, ms", str(1000 * child_ticks // os.sysconf("SC_CLK_TCK")), "0"],
    ]
    bench.table("An idle server with warm workers", ["what", "value", "wanted"], rows)


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
