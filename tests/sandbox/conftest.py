"""Workers to test the sandbox with, and values to hand them without a task."""

import asyncio
import json
import os
import struct
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from anyio.abc import TaskGroup

from tests.preloaders import SharedPreloaders
from tritonforge.sandbox import process
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Job
from tritonforge.sandbox.executors.cold import cold_worker
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.facts import TargetFacts
from tritonforge.sandbox.isolation import WORKER_FOLDER, Seal
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.spares import Preloader, start_preloader
from tritonforge.sandbox.task import Task
from tritonforge.sandbox.workers import KernelWorker

H100 = TargetFacts(
    name="h100-sxm", capability=90, sm_count=132, shared_bytes_per_block=232_448, registers_per_sm=65_536
)

Sort = Literal["sealed", "unsealed", "cold"]
"""A forked spare in namespaces of its own, one without, or a process from nothing, sealed where that is possible."""
Start = Callable[..., AbstractAsyncContextManager[WorkerProcess]]
Load = Callable[..., Any]
Floats = Callable[..., Values]

LIGHT = """\
import importlib, importlib.util, json, os, sys, types
spec = importlib.util.spec_from_file_location("worker_main", {main!r})
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
main._load_package()
importlib.import_module("tritonforge_worker.environment").describe = lambda flavor: {{"problem": None, "gpu": None}}
warm = types.SimpleNamespace(fill_cache=lambda base, own: os.makedirs(own), load_sides=lambda: None)
sys.modules["tritonforge_worker.warm"] = warm
program = importlib.import_module("tritonforge_worker.{name}")
program.warm_up = lambda options: None
{more}
sys.exit(program.main(json.loads(sys.argv[1])))
"""
"""The real worker or preloader without its look at torch: it is there in milliseconds, and loads any kernel file."""


def light_program(executable: str, name: str, options: dict[str, Any], more: str = "") -> list[str]:
    """Stands in for `process.program`; `more` is executed before anything else begins."""
    if name not in {"serve", "preload"}:
        return process.program(executable, name, options)
    code = LIGHT.format(main=str(WORKER_FOLDER / "__main__.py"), name=name, more=more)
    return [executable, "-P", "-c", code, json.dumps(options)]


def serving(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have workers that start from nothing run this code in place of `worker/serve.py`, with the same options."""

    def program(executable: str, name: str, options: dict[str, Any]) -> list[str]:
        if name != "serve":
            return process.program(executable, name, options)
        return [executable, "-P", "-c", code, json.dumps(options)]

    monkeypatch.setattr("tritonforge.sandbox.executors.cold.program", program)


class Workers:
    """Workers of every sort, each with limits of its own; preloaders start when the first of theirs is wanted."""

    def __init__(self, host: Host, tasks: TaskGroup) -> None:
        self._host = host
        self._tasks = tasks
        self._preloaders: dict[Sort, Preloader] = {}

    @asynccontextmanager
    async def start(self, sort: Sort, **limits: Any) -> AsyncGenerator[WorkerProcess]:
        """A worker that runs a kernel file as it stands, its tensors on the CPU."""
        chosen = Limits.model_validate(limits)
        if sort == "cold":
            self._host.limits = chosen
            async with cold_worker(self._host, Job("cuda"), None) as worker:
                yield worker
            return
        worker = await (await self._preloader(sort)).fork("cpu", None, chosen)
        async with worker.attended():
            await worker.begin("cuda", "cpu", None)
            yield worker

    async def close(self) -> None:
        for preloader in self._preloaders.values():
            await preloader.close()

    async def _preloader(self, sort: Sort) -> Preloader:
        if sort not in self._preloaders:
            interpreter, seal = await self._host.ground()
            if sort == "sealed" and not seal.sealed:
                pytest.skip(f"this machine allows no sandbox: {seal.reason}")
            chosen = seal if sort == "sealed" else Seal(None)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SECRET_TOKEN", "hunter2")
                self._preloaders[sort] = await start_preloader(interpreter, "cpu", chosen, Limits(), self._tasks)
        return self._preloaders[sort]


@asynccontextmanager
async def own_workers(*allowed: Path) -> AsyncGenerator[Workers]:
    """Workers from preloaders that nobody else uses."""
    async with anyio.create_task_group() as tasks:
        workers = Workers(Host(sys.executable, Limits(), allowed=allowed), tasks)
        try:
            yield workers
        finally:
            await workers.close()
            tasks.cancel_scope.cancel()


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that workers can read, as after ``--allow-read``."""
    folder = tmp_path_factory.mktemp("opened")
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
async def workers(opened: Path) -> AsyncGenerator[Workers]:
    async with own_workers(opened) as workers:
        yield workers


@pytest.fixture(scope="session")
async def executor(shared_preloaders: SharedPreloaders) -> AsyncGenerator[LocalExecutor]:
    """Warm workers with the usual limits."""
    async with LocalExecutor(Host(sys.executable, Limits()), spares=1) as executor:
        with pytest.MonkeyPatch.context() as patch:
            # Other tests want preloaders of their own.
            patch.setattr("tritonforge.sandbox.executors.local.start_preloader", shared_preloaders.start)
            for role in ("capture", "interpret"):
                async with executor.submit(Job(role, target=H100.model_dump())):
                    pass
        yield executor


@pytest.fixture(params=["sealed", "unsealed", "cold"])
def sort(request: pytest.FixtureRequest) -> Sort:
    """What is tested once with each sort of worker."""
    return request.param


@pytest.fixture
def start(sort: Sort, workers: Workers, light_cold: None) -> Start:
    """Starts workers; takes limits by name."""
    return partial(workers.start, sort)


@pytest.fixture
def start_any(workers: Workers) -> Start:
    """Starts workers of one sort, for what does not depend on how they are started and isolated."""
    return partial(workers.start, "unsealed")


@pytest.fixture
def light_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that start from nothing do without torch."""
    monkeypatch.setattr("tritonforge.sandbox.executors.cold.program", light_program)


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers and preloaders do without torch."""
    for module in ("spares", "executors.cold"):
        monkeypatch.setattr(f"tritonforge.sandbox.{module}.program", light_program)


@pytest.fixture
async def harmless_race() -> AsyncGenerator[None]:
    """anyio's streams complain where a socket becomes ready in the turn in which its reader is cancelled; no harm is
    done, but anyio's own fixtures would fail the test."""
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    assert handler is not None

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), asyncio.InvalidStateError):
            handler(loop, context)

    loop.set_exception_handler(handle)
    yield
    loop.set_exception_handler(handler)


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
        return Values({"tuple": [vector(size, number) for number, size in enumerate(sizes)]}, list(blobs))

    return make


def vector(size: int, blob: int) -> dict[str, Any]:
    """A contiguous fp32 vector as `worker/values.py` describes it."""
    fields = {"dtype": "float32", "shape": [size], "stride": [1], "device": "cpu", "requires_grad": False}
    return {"tensor": fields, "blob": blob}


def open_descriptors() -> int:
    """How many this process has open now, to compare with later."""
    return len(os.listdir("/proc/self/fd"))


SHORT_S = 2.0
"""For what never ends: long enough for a worker to load a file, short enough to wait for."""
FIND_SOCKET = """\
import fcntl, os, signal, socket, stat, struct, json, sys
FD = next(fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode))
def send(data):
    while data:
        data = data[os.write(FD, data):]
def frame(fields, magic=b"TFW1"):
    header = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return struct.pack(">4sI", magic, len(header)) + header
def memfd(size, seals=15):
    descriptor = os.memfd_create("forged", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor
def pass_on(fields, *descriptors):
    data = frame(fields)
    sent = socket.send_fds(socket.socket(fileno=os.dup(FD)), [data], descriptors)
    send(data[sent:])
"""
ANSWER = FIND_SOCKET + "send(frame({'ok': True, 'blobs': []}))\n"
"""The top of a kernel file that answers in the worker's stead."""
KERNEL_HEAD = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)


def launch(x, out, kernel=double, **more):
    kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64, **more)
    return out


"""
"""The top of a kernel file; an entry follows."""
INNER_AT_FAULT = """\
@triton.jit
def inner(x):
    y = x + 1
    return y * UNKNOWN


"""
"""A function for kernels to call; what is wrong with it is on its fourth line."""


async def outcome(load: Load, worker: WorkerProcess, text: str) -> tuple[Kind, Problem]:
    """How the loading of this file ends."""
    with pytest.raises(Stopped) as caught:
        await load(worker, text)
    return caught.value.kind, caught.value.problem
