"""Kernels that the interpreter runs and torch judges: both computed in a worker, compared here.

An entry returns what the kernel gave and what it should give, as float64.
"""

import math
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from tests.sandbox.conftest import H100, Floats, Load
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.protocol import Blob
from tritonforge.sandbox.workers import KernelWorker, interpreter_worker

Check = Callable[..., Awaitable[None]]
Refusal = Callable[[str], Awaitable[tuple[Kind, Problem]]]

HEAD = """\
import functools
import torch
import triton
import triton.language as tl

def same(got, want):
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    return got.double(), want.double()

def values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))

SPECIAL = torch.cat([values(56), torch.tensor([float('nan'), float('inf'), -float('inf'), 0., -0., 1e30, 448., 464.])])

"""
TOLERANCE = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 1e-5, "float64": 1e-9}
"""Relative and absolute, by the narrowest type that is computed in."""


@pytest.fixture(scope="module")
async def kernels(executor: Executor) -> AsyncGenerator[KernelWorker]:
    """One worker for all files of a module: none of them does harm."""
    async with interpreter_worker(executor, target=H100) as worker:
        yield worker


@pytest.fixture
def check(kernels: KernelWorker, load: Load, floats: Floats) -> Check:
    """Runs `HEAD` and a source whose ``entry`` returns what it got and what it wants, and compares."""

    async def run(source: str, tolerance: float = 0.0) -> None:
        await load(kernels, HEAD + source)
        await kernels.set_inputs(floats(1))
        called = await kernels.call()
        got, want = map(numbers, called.values.blobs[:2])
        assert len(got) == len(want) > 0
        wrong = [(at, *pair) for at, pair in enumerate(zip(got, want, strict=True)) if not close(*pair, tolerance)]
        assert not wrong

    return run


@pytest.fixture
def refused(kernels: KernelWorker, load: Load, floats: Floats) -> Refusal:
    """The outcome of a source whose entry can't be run."""

    async def run(source: str) -> tuple[Kind, Problem]:
        await load(kernels, HEAD + source)
        await kernels.set_inputs(floats(1))
        with pytest.raises(Stopped) as caught:
            await kernels.call()
        return caught.value.kind, caught.value.problem

    return run


def numbers(blob: Blob) -> list[float]:
    assert isinstance(blob, bytes)
    return list(struct.unpack(f"={len(blob) // 8}d", blob))


def close(got: float, want: float, tolerance: float) -> bool:
    return (math.isnan(got) and math.isnan(want)) or got == want or abs(got - want) <= tolerance * (1 + abs(want))


def elementwise(
    expression: str, want: str, dtype: str, out: str | None = None, *, x: str = "values(64)",
    y: str = "values(128)[64:]", before: str = "",
) -> str:  # fmt: skip
    """A kernel of one program over vectors ``x`` and ``y`` of 64, and what torch makes of the same."""
    return f"""{before}
@triton.jit
def k(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    y = tl.load(y_ptr + at)
    tl.store(out_ptr + at, {expression})

def entry(_):
    x, y = ({x}).to(torch.{dtype}), ({y}).to(torch.{dtype})
    out = torch.empty(64, dtype=torch.{out or dtype})
    k[(1,)](x, y, out, N=64)
    return same(out, ({want}).to(torch.{out or dtype}))
"""


def body(lines: str, want: str, options: str = "") -> str:
    """A kernel of these lines over ``x_ptr``, ``out_ptr`` and ``at``, of 64 elements each."""
    indented = "\n".join(f"    {line}" for line in lines.splitlines())
    return f"""
@triton.jit
def k(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
{indented}

def entry(_):
    x, out = values(64), torch.zeros(64)
    k[(1,)](x, out, N=64{options})
    return same(out, {want})
"""


def only(parameters: dict[str, Any]) -> Any:
    """A parametrization by name."""
    return pytest.mark.parametrize("source", list(parameters.values()), ids=list(parameters))
