"""The tools with everything behind them: warm workers, each for one call, of a server that outlives every fault."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.spares import SEALED_SCRATCH
from tritonforge.server.results import NEXT_STEPS, TEXT_LIMIT, Result, respond, text
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.compile_kernel import compile_kernel
from tritonforge.server.tools.compile_report import CompileResult
from tritonforge.server.tools.run_correctness import CorrectnessResult, run_correctness

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
LARGE_TILES = """\
import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        total += tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]))
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


def double(x):
    a = torch.empty(128, 4096, dtype=torch.float16, device=x.device)
    b = torch.empty(4096, 256, dtype=torch.float16, device=x.device)
    c = torch.empty(128, 256, device=x.device)
    product[(1,)](a, b, c, 4096, M=128, N=256, BLOCK_K=128, num_stages=4, num_warps=8)
    return c
"""
"""Needs more shared memory than a block may have."""
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


@asynccontextmanager
async def serving(settings: Settings) -> AsyncGenerator[Tools]:
    """The tools of a server that is gone afterwards."""
    async with Services(settings) as services:
        yield Tools(services)


HEAD = KERNEL[: KERNEL.index("def double(x)")]


def failed(result: Result, kind: Kind, stage: str) -> Problem:
    """The problem of a result that must have this kind and stage; what every failing result owes its reader."""
    assert result.kind is kind, result.summary
    problem = result.problem
    assert problem is not None
    assert problem.stage == stage
    assert problem.message
    assert problem.message in result.summary
    assert result.next_step == (problem.likely_fix or NEXT_STEPS[kind])
    assert len(result.summary) < 5000
    assert len(text(result)) <= TEXT_LIMIT + 10
    return problem


def replaced(source: str, old: str, new: str) -> str:
    """``source`` with its only ``old`` replaced."""
    assert source.count(old) == 1, old
    return source.replace(old, new)


def entry(body: str) -> str:
    """A kernel file whose entry has this body before its launch."""
    return replaced(KERNEL, "    out = torch.empty_like(x)\n", f"{body}    out = torch.empty_like(x)\n")


PLACE = "import os\nprint('working in', os.getcwd(), flush=True)\n"
"""In front of a kernel file: where its worker works."""


def left_behind(problem: Problem) -> bool:
    """Whether the working folder of a kernel with `PLACE` is still there; a sealed worker's was only ever its own."""
    place = re.search("^working in (.+)$", problem.output or "", re.M)
    assert place is not None
    return place[1] != SEALED_SCRATCH and Path(place[1]).exists()
