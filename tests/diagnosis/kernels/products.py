# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Products in nests, with wrapped indices and in fp8; rows that are summed and sorted."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

F16, F8 = torch.float16, torch.float8_e4m3fn


@triton.jit
def eighths(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr, PASSED: tl.constexpr):
    """`a`: (S, K), `b`: (S, K), fp8: a times b transposed."""
    i = tl.arange(0, S)
    a = a_ptr + i[:, None] * stride + i[None, :]
    b = b_ptr + i[None, :] * stride + i[:, None]
    total = tl.zeros((S, S), tl.float32)
    for _ in range(0, K, S):
        if PASSED:
            total = tl.dot(tl.load(a), tl.load(b), total)
        else:
            total += tl.dot(tl.load(a), tl.load(b))
        a += S
        b += S
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def of_eighths(passed):
    a, b = torch.empty(2, 64, dtype=F8, device="cuda")
    eighths[(1024,)](a, b, torch.empty(64, device="cuda"), 1024, 1024, 128, passed, num_warps=8)


@triton.jit
def squared(a, c_ptr, K, stride, S: tl.constexpr, TURNED: tl.constexpr):
    """Tiles of fp8 times themselves, or times themselves transposed."""
    i = tl.arange(0, S)
    total = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        tile = a.load([0, k])
        total = tl.dot(tile, tile.T if TURNED else tile, total)
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def square(turned):
    a = TensorDescriptor.from_tensor(torch.empty(256, 256, dtype=F8, device="cuda"), [128, 128])
    squared[(1024,)](a, torch.empty(64, device="cuda"), 1024, 1024, 128, turned, num_warps=8)


@triton.jit
def taps(a_ptr, b_ptr, c_ptr, K, stride, TAPS: tl.constexpr, S: tl.constexpr, NESTED: tl.constexpr):
    """The sum of TAPS products of (S, K) and (K, S), which lie behind one another: in two loops, or in one."""
    i = tl.arange(0, S)
    a = a_ptr + i[:, None] * stride + i[None, :]
    b = b_ptr + i[:, None] * stride + i[None, :]
    total = tl.zeros((S, S), tl.float32)
    if NESTED:
        for _ in range(TAPS):
            for _ in range(0, K, S):
                total = tl.dot(tl.load(a), tl.load(b), total)
                a += S
                b += S * stride
    else:
        for _ in range(0, TAPS * K, S):
            total = tl.dot(tl.load(a), tl.load(b), total)
            a += S
            b += S * stride
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def tap(nested):
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    taps[(1024,)](a, b, torch.empty(64, device="cuda"), 1024, 1024, 9, 64, nested)


@triton.jit
def wrapped(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr, WRAPPED: tl.constexpr):
    """`a`: (S, K), `b`: (K, S), fp16."""
    i = tl.arange(0, S)
    total = tl.zeros((S, S), tl.float32)
    for start in range(0, K, S):
        at = start + i
        if WRAPPED:
            at = (start + i) % K
        left = tl.load(a_ptr + i[:, None] * stride + at[None, :])
        right = tl.load(b_ptr + at[:, None] * stride + i[None, :])
        total = tl.dot(left, right, total)
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def wrap(wrapping):
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    wrapped[(1024,)](a, b, torch.empty(64, device="cuda"), 1000, 1024, 64, wrapping)


@triton.jit
def long_sums(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    """`x`: (programs, width) fp32."""
    x = x_ptr + tl.program_id(0) * width + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        total += tl.load(x + start)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total))


def sum_long():
    long_sums[(4096,)](*torch.empty(2, 64, device="cuda"), 4096, 512)


@triton.jit
def short_sums(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """`x`: (programs, BLOCK) fp32."""
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.program_id(0), tl.sum(x))


def sum_short():
    short_sums[(4096,)](*torch.empty(2, 64, device="cuda"), 1024, num_warps=8)


@triton.jit
def in_order(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """`x`, `y`: (programs, BLOCK) fp32."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.sort(x))


def sort():
    in_order[(4096,)](*torch.empty(2, 64, device="cuda"), 512, num_warps=4)


def sort_by(**options):
    in_order[(4096,)](*torch.empty(2, 64, device="cuda"), 512, **options)


LAUNCHES = {
    "eighths_added": lambda: of_eighths(False),
    "eighths_passed": lambda: of_eighths(True),
    "tile_both_ways": lambda: square(False),
    "tile_turned": lambda: square(True),
    "taps_nested": lambda: tap(True),
    "taps_flat": lambda: tap(False),
    "index_wrapped": lambda: wrap(True),
    "index_stepped": lambda: wrap(False),
    "long_rows": sum_long,
    "short_rows": sum_short,
    "sorted": sort,
    "sorted_by_one": lambda: sort_by(num_warps=1),
}
