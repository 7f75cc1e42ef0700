"""Workers to test the sandbox with, and values to hand them without a task."""

import struct
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tritonforge.sandbox import process
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.process import WorkerProcess, start_worker
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.task import Task
from tritonforge.sandbox.workers import KernelWorker, TargetFacts, Values

H100 = TargetFacts(
    name="h100-sxm", capability=90, sm_count=132, shared_bytes_per_block=232_448, registers_per_sm=65_536
)

StartLight = Callable[..., AbstractAsyncContextManager[WorkerProcess]]
Load = Callable[..., Any]
Floats = Callable[..., Values]

LIGHT = """\
import importlib, importlib.util, json, sys
spec = importlib.util.spec_from_file_location("worker_main", {main!r})
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
main._load_package()
importlib.import_module("tritonforge_worker.environment").describe = lambda role: {{"problem": None}}
sys.exit(importlib.import_module("tritonforge_worker.serve").main(json.loads(sys.argv[1])))
"""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def start_light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartLight:
    """Starts the real worker without its look at torch: it is there in milliseconds and loads any kernel file."""
    script = tmp_path / "light.py"
    script.write_text(LIGHT.format(main=str(process.WORKER)))
    monkeypatch.setattr(process, "WORKER", script)

    @asynccontextmanager
    async def start(**limits: Any) -> AsyncGenerator[WorkerProcess]:
        async with start_worker(sys.executable, "light", limits=Limits.model_validate(limits)) as worker:
            yield worker

    return start


@pytest.fixture
def load() -> Load:
    """Executes a kernel file in a worker."""

    async def execute(worker: WorkerProcess | KernelWorker, text: str, **task: Any) -> KernelWorker:
        kernels = worker if isinstance(worker, KernelWorker) else KernelWorker(worker)
        await kernels.load(Source(text, "kernel.py", None), describe_task(**task))
        return kernels

    return execute


def describe_task(**changed: Any) -> Task:
    """A task for the entry ``entry``, as a task's worker describes it."""
    fields: dict[str, Any] = {
        "entry": "entry", "title": None, "cases": {}, "hidden_cases": {}, "has_reference": True, "has_work": False,
        "in_place": [], "tolerances": {},
    }  # fmt: skip
    return Task.model_validate({**fields, **changed})


@pytest.fixture
def floats() -> Floats:
    """Positional inputs of the given sizes: fp32 vectors that count from 0."""

    def make(*sizes: int) -> Values:
        blobs = [struct.pack(f"={size}f", *range(size)) for size in sizes]
        return Values({"tuple": [vector(size, number) for number, size in enumerate(sizes)]}, blobs)

    return make


def vector(size: int, blob: int) -> dict[str, Any]:
    """A contiguous fp32 vector as `worker/values.py` describes it."""
    fields = {"dtype": "float32", "shape": [size], "stride": [1], "device": "cpu", "requires_grad": False}
    return {"tensor": fields, "blob": blob}


SHORT_S = 2.0
"""For what never ends: long enough for a light worker to load a file, short enough to wait for."""
FIND_SOCKET = """\
import os, socket, stat, struct, json, sys, time
FD = next(fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode))
def send(data):
    while data:
        data = data[os.write(FD, data):]
def frame(fields, magic=b"TFW1"):
    header = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return struct.pack(">4sI", magic, len(header)) + header
"""


async def outcome(load: Load, worker: WorkerProcess, text: str) -> tuple[Kind, Problem]:
    """How the loading of this file ends."""
    with pytest.raises(Stopped) as caught:
        await load(worker, text)
    return caught.value.kind, caught.value.problem
