"""What the benchmarks share, and the report that `workers_on_gpu.py` writes."""

import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.protocol import Frame
from tritonforge.sandbox.source import Source

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COMPILE_CLOCK = """\
import time as _time, triton.compiler, triton.runtime.jit, triton.backends.nvidia.driver
def _timed(function):
    def wrapper(*args, **kwargs):
        started = _time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            print("COMPILE", _time.perf_counter() - started, flush=True)
    return wrapper
_driver = triton.backends.nvidia.driver
if hasattr(_driver, "compile_module_from_src"):
    _driver.compile_module_from_src = _timed(_driver.compile_module_from_src)
_create = triton.runtime.jit.JITFunction.create_binder
def _create_binder(self):
    found = _create(self)
    self.compile = _timed(triton.compiler.compile)
    return found
triton.runtime.jit.JITFunction.create_binder = _create_binder
"""
"""Put before a kernel's source: prints what Triton's compiler and its launcher's C compiler took."""

Row = list[str]
Section = Callable[["Bench"], Awaitable[None]]


class Bench:
    """What the sections share, and the report that they write."""

    def __init__(self, peer: Path | None, evaluations: int) -> None:
        self.host = Host(sys.executable, Limits())
        self.evaluations = evaluations
        self.peer = peer
        self.report: list[str] = []

    def say(self, text: str) -> None:
        self.report.append(text)
        print(text, flush=True)

    def table(self, title: str, header: Row, rows: list[Row]) -> None:
        lines = [f"\n## {title}\n", f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
        self.say("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]))


def source(name: str, part: str, *, clocked: bool = False) -> Source:
    text = (EXAMPLES / name / f"{part}.py").read_text()
    return Source(text=(COMPILE_CLOCK if clocked else "") + text, shown_as=f"{name}/{part}.py", origin=None)


def milliseconds(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f} [{1e3 * min(seconds):.1f}, {1e3 * max(seconds):.1f}]"


def log_requests() -> dict[str, list[float]]:
    """Seconds of all requests to workers from now on, by operation."""
    log: dict[str, list[float]] = defaultdict(list)
    original = WorkerProcess.request

    async def request(process: WorkerProcess, operation: str, *arguments: Any, **fields: Any) -> Frame:
        started = time.perf_counter()
        try:
            return await original(process, operation, *arguments, **fields)
        finally:
            log[operation].append(time.perf_counter() - started)

    WorkerProcess.request = request  # pyright: ignore[reportAttributeAccessIssue] - "self" there
    return log


def resident_kib(pid: int) -> int:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])
