# pyright: basic, reportArgumentType=false, reportIndexIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOperatorIssue=false
# torch and triton ship incomplete types: those of a kernel are the language's, not what a launch takes.
"""Entries that can be recorded and replayed, of many kinds, each with inputs for it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

SIZE = 1000


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def histogram(x_ptr, bins_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins_ptr + tl.load(x_ptr + at, mask=at < n, other=0), 1, mask=at < n)


@triton.jit
def numbers(out_ptr, small, large, huge, real, flag):
    tl.store(out_ptr, small.to(tl.int64))
    tl.store(out_ptr + 1, large)
    tl.store(out_ptr + 2, huge.to(tl.int64, bitcast=True))
    tl.store(out_ptr + 3, real.to(tl.int32, bitcast=True).to(tl.int64))
    tl.store(out_ptr + 4, flag.to(tl.int64))


@triton.jit
def strided(x_ptr, out_ptr, rows, cols, step_row, step_col, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * step_row + at * step_col, mask=at < cols)
    tl.store(out_ptr + row * cols + at, x + 1, mask=at < cols)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    square = at[:, None] * N + at[None, :]
    c = tl.dot(tl.load(a_ptr + square), tl.load(b_ptr + square))
    tl.store(c_ptr + square, c)


@triton.jit
def described_here(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    row, col = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([row, col], source.load([row, col]) * 2)


@triton.jit
def described_there(source, target, BLOCK: tl.constexpr):
    row, col = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([row, col], source.load([row, col]) * 2)


@triton.jit
def summed(pair, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(pair[0] + at, mask=at < n) + tl.load(pair[1] + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)


@triton.jit
def double_at(address, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x_ptr = address.to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


@triton.autotune([triton.Config({"BLOCK": block}) for block in (128, 256)], key=["n"], reset_to_zero=["out_ptr"])
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def launch(x: torch.Tensor, out: torch.Tensor, **options: Any) -> None:
    double[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256, **options)


def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    launch(x, out)
    return out


def counted(x: torch.Tensor) -> torch.Tensor:
    bins = torch.zeros(16, dtype=torch.int32, device=x.device)
    histogram[(triton.cdiv(x.numel(), 256),)](x, bins, x.numel(), BLOCK=256)
    return bins


def chained(x: torch.Tensor) -> torch.Tensor:
    between, out = torch.empty_like(x), torch.empty_like(x)
    launch(x, between)
    launch(between, out, num_warps=2)
    return out


def clustered(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    launch(x, out, num_ctas=2)
    return out


def roomy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty(128, 128, device=a.device)
    product[(1,)](a, b, c, N=128)
    return c


def numbered(x: torch.Tensor, small: int, large: int, huge: int, real: float, flag: bool) -> torch.Tensor:
    out = torch.empty(5, dtype=torch.int64, device=x.device)
    numbers[(1,)](out, small, large, huge, real, flag)
    return out


def transposed(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, device=x.device)
    strided[(x.shape[0],)](x, out, *x.shape, *x.stride(), BLOCK=64)
    return out


def into(x: torch.Tensor, out: torch.Tensor) -> None:
    launch(x, out)


def with_scratch(x: torch.Tensor) -> torch.Tensor:
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=x.device))
    out = torch.empty_like(x)
    described_here[(2, 2)](x, out, *x.shape, BLOCK=32)
    return out


def with_descriptors(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    source, target = (TensorDescriptor.from_tensor(tensor, [32, 32]) for tensor in (x, out))
    described_there[(2, 2)](source, target, BLOCK=32)
    return out


def filled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    infinite = torch.full((3, 5), float("-inf"), device=x.device)
    infinite[1] = 7.5
    ones = torch.ones(4, dtype=torch.bfloat16, device=x.device)
    threes = x.new_full((2,), 3, dtype=torch.int32)
    flags = torch.empty(6, dtype=torch.bool, device=x.device)
    flags.fill_(True)
    flags[::2].zero_()
    return infinite, ones, threes, flags, torch.zeros_like(x), doubled(x)


def paired(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    summed[(4,)]((x, y), out, x.numel(), BLOCK=256)
    return out


def nested(x: torch.Tensor, weights: dict[str, Any]) -> dict[Any, Any]:
    out = torch.empty(2, x.numel(), device=x.device)
    launch(x, out[0])
    launch(weights["w"][0], out[1])
    return {"rows": [out[0], (out[1, 3:7], 5)], "none": None, "empty": out[:0], "bits": out[1].view(torch.int32), 1: x}


def addressed(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    double_at[(4,)](x.data_ptr(), out, x.numel(), BLOCK=256)
    return out


def tuned(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def reinterpreted(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrapped = triton.reinterpret(x, tl.int32), triton.reinterpret(out, tl.int32)
    double[(4,)](*wrapped, x.numel(), BLOCK=256)
    return out


def unused(x: torch.Tensor) -> torch.Tensor:
    torch.zeros(SIZE, device=x.device)
    double[(0,)](x, x, x.numel(), BLOCK=256)
    return doubled(x)


class Example(NamedTuple):
    """An entry, what makes its inputs on a device, and the arguments that are its outputs."""

    entry: Callable[..., Any]
    make: Callable[[str], Any]
    in_place: tuple[str, ...] = ()


def _floats(*shape: int) -> Callable[[str], Any]:
    return lambda device: (torch.randn(shape or (SIZE,), device=device),)


NUMBERS = {"small": -5, "large": 1 << 40, "huge": (1 << 63) + 5, "real": 0.1, "flag": True}

EXAMPLES = [
    Example(doubled, _floats()),
    Example(counted, lambda device: (torch.randint(0, 16, (SIZE,), device=device, dtype=torch.int32),)),
    Example(chained, _floats()),
    Example(clustered, _floats()),
    Example(roomy, lambda device: (torch.randn(128, 128, device=device), torch.randn(128, 128, device=device))),
    Example(numbered, lambda device: {"x": torch.randn(4, device=device), **NUMBERS}),
    Example(transposed, lambda device: (torch.randn(40, 30, device=device).t(),)),
    Example(into, lambda device: (torch.randn(SIZE, device=device), torch.zeros(SIZE, device=device)), ("out",)),
    Example(with_scratch, _floats(64, 64)),
    Example(with_descriptors, _floats(64, 64)),
    Example(filled, _floats()),
    Example(paired, lambda device: (torch.randn(SIZE, device=device), torch.randn(SIZE, device=device))),
    Example(nested, lambda device: (torch.randn(64, device=device), {"w": [torch.randn(64, device=device)]})),
    Example(addressed, _floats()),
    Example(tuned, _floats()),
    Example(reinterpreted, lambda device: (torch.arange(SIZE, dtype=torch.int32, device=device).view(torch.float32),)),
    Example(unused, _floats()),
]
