"""The tools with everything behind them, and workers that may be shared where a fault does them no harm."""

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import tritonforge.server.tools.compile_kernel as compiling
import tritonforge.server.tools.run_correctness as checking
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.workers import KernelWorker, TaskWorker, capture_worker, interpreter_worker, task_worker
from tritonforge.server.results import TEXT_LIMIT, Result, respond, text
from tritonforge.server.services import Services, target_facts
from tritonforge.server.settings import Settings
from tritonforge.server.tools.compile_kernel import CompileResult, compile_kernel
from tritonforge.server.tools.run_correctness import CorrectnessResult, run_correctness

Starter = Callable[..., AbstractAsyncContextManager[Any]]

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * 2, mask=mask)


def double(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out
"""
TASK = """\
import torch

ENTRY = "double"
CASES = {"train": {"n": 1000, "small": True}}


def make_inputs(n, device):
    return (torch.randn(n, device=device),)


def reference(x):
    return x * 2
"""


async def ignore(done: float, total: float, message: str) -> None:
    """Nobody watches the progress."""


class Tools:
    """The two tools on one `Services`, as the server calls them; each result has been through JSON."""

    def __init__(self, services: Services) -> None:
        self.services = services

    async def compile(self, kernel: str = KERNEL, task: str = TASK, **more: Any) -> CompileResult:
        async def evaluate() -> CompileResult:
            return await compile_kernel(self.services, ignore, kernel=kernel, task=task, **more)

        return CompileResult.model_validate((await respond(CompileResult, evaluate)).structured_content)

    async def check(self, kernel: str = KERNEL, task: str = TASK, **more: Any) -> CorrectnessResult:
        async def evaluate() -> CorrectnessResult:
            return await run_correctness(self.services, ignore, kernel=kernel, task=task, seeds=1, **more)

        return CorrectnessResult.model_validate((await respond(CorrectnessResult, evaluate)).structured_content)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Services:
    """One for all faults of a module: it must outlive every one of them."""
    return Services(Settings(state_dir=tmp_path_factory.mktemp("state")))


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here is about the interpreter and capture, whatever the machine has."""
    monkeypatch.setattr("tritonforge.server.services.GPU_DEVICE_FILES", ())


@pytest.fixture(scope="module")
async def shared_tasks() -> AsyncGenerator[TaskWorker]:
    async with task_worker(sys.executable, limits=Limits(), device="cpu") as worker:
        yield worker


@pytest.fixture(scope="module")
async def shared_kernels(services: Services) -> AsyncGenerator[tuple[KernelWorker, KernelWorker]]:
    """A capturing worker and an interpreting one."""
    facts = target_facts(await services.target("h100"))
    async with (
        capture_worker(sys.executable, limits=Limits(), target=facts) as capturing,
        interpreter_worker(sys.executable, limits=Limits(), target=facts) as interpreting,
    ):
        yield capturing, interpreting


@pytest.fixture
def cold(services: Services) -> Tools:
    """As in production: each call starts workers of its own."""
    return Tools(services)


@pytest.fixture
def tools(cold: Tools, shared_tasks: TaskWorker, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Each call starts a kernel worker of its own, which the kernel may ruin; the task's worker is shared."""
    for module in (compiling, checking):
        monkeypatch.setattr(module, "task_worker", shared(shared_tasks))
    return cold


@pytest.fixture
def warm(tools: Tools, shared_kernels: tuple[KernelWorker, KernelWorker], monkeypatch: pytest.MonkeyPatch) -> Tools:
    """All workers are shared: for faults that are ordinary exceptions in them."""
    capturing, interpreting = shared_kernels
    monkeypatch.setattr(compiling, "capture_worker", shared(capturing))
    monkeypatch.setattr(checking, "interpreter_worker", shared(interpreting))
    return tools


def shared(worker: TaskWorker | KernelWorker) -> Starter:
    """Stands in for a function that starts a worker."""
    return lambda *args, **kwargs: nullcontext(worker)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch, services: Services) -> Callable[..., None]:
    """Sets limits of the workers that are started from now on."""

    def set_limits(**limits: float) -> None:
        settings = services.settings.model_copy(update={"limits": Limits.model_validate(limits)})
        monkeypatch.setattr(services, "settings", settings)

    return set_limits


@pytest.fixture
def scratch_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder that workers' scratch folders are made in: empty again once all have ended."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


HEAD = KERNEL[: KERNEL.index("def double(x)")]
HANG_S = 3.0
"""Time for what never ends; all else that a worker does in these tests takes far less."""


def failed(result: Result, kind: Kind, stage: str) -> Problem:
    """The problem of a result that must have this kind and stage; what every failing result owes its reader."""
    assert result.kind is kind, result.summary
    problem = result.problem
    assert problem is not None
    assert problem.stage == stage
    assert problem.message
    assert problem.message in result.summary
    assert result.next_step == problem.likely_fix
    assert len(result.summary) < 5000
    assert len(text(result)) <= TEXT_LIMIT + 10
    return problem


def replaced(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1
    return source.replace(old, new)


def entry(body: str) -> str:
    """A kernel file whose entry has this body before its launch."""
    return replaced(KERNEL, "    out = torch.empty_like(x)\n", f"{body}    out = torch.empty_like(x)\n")
