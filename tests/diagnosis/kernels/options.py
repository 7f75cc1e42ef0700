# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Kernels whose fault is an option or a literal, so that the edit can be written from the source alone."""

import torch
import triton
import triton.language as tl

F16, F32 = torch.float16, torch.float32


@triton.jit
def warps_product(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    """`a`: (S, K), `b`: (K, S), fp16 and row-major."""
    i = tl.arange(0, S)
    a = a_ptr + i[:, None] * stride + i[None, :]
    b = b_ptr + i[:, None] * stride + i[None, :]
    total = tl.zeros((S, S), tl.float32)
    for _ in range(0, K, S):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += S
        b += S * stride
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def two_warps():
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    warps_product[(1024,)](a, b, torch.empty(64, device="cuda"), 1024, 1024, 64, num_warps=2)


@triton.jit
def staged_product(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    i = tl.arange(0, S)
    a = a_ptr + i[:, None] * stride + i[None, :]
    b = b_ptr + i[:, None] * stride + i[None, :]
    total = tl.zeros((S, S), tl.float32)
    for _ in range(0, K, S):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += S
        b += S * stride
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def one_stage():
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    staged_product[(1024,)](a, b, torch.empty(64, device="cuda"), 1024, 1024, 64, num_stages=1)


@triton.jit
def exact_product(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    """`a`: (S, K), `b`: (S, K), fp32: a times b transposed."""
    i = tl.arange(0, S)
    k = tl.arange(0, 32)
    a = a_ptr + i[:, None] * stride + k[None, :]
    b = b_ptr + i[None, :] * stride + k[:, None]
    total = tl.zeros((S, S), tl.float32)
    for _ in range(0, K, 32):
        total = tl.dot(tl.load(a), tl.load(b), total, input_precision="ieee")
        a += 32
        b += 32
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def exact():
    exact_product[(1024,)](*torch.empty(3, 64, device="cuda"), 1024, 1024, 64)


@triton.jit
def masked_rows(x_ptr, y_ptr, rows, columns, stride, B: tl.constexpr):
    """`x`, `y`: (rows, columns) fp16, at most B columns."""
    row = tl.program_id(0)
    i = tl.arange(0, B)
    keep = i < columns
    x = tl.load(x_ptr + row * stride + i, mask=keep, other=0.0)
    tl.store(y_ptr + row * stride + i, x * 2, mask=keep)


def ragged_rows():
    masked_rows[(4096,)](*torch.empty(2, 64, dtype=F16, device="cuda"), 4096, 1000, 1000, 1024)


def even_rows():
    masked_rows[(4096,)](*torch.empty(2, 64, dtype=F16, device="cuda"), 4096, 1024, 1024, 1024)


@triton.jit
def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    y = x * 2
    tl.store(y_ptr + at, y, mask=mask)


def odd_length():
    doubled[(977,)](*torch.empty(2, 64, device="cuda"), 1_000_003, 1024)


def even_length():
    doubled[(1024,)](*torch.empty(2, 64, device="cuda"), 1 << 20, 1024)


@triton.jit
def helper(p, at):
    return tl.load(p + at * 3)


@triton.jit
def by_helper(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, helper(x_ptr, at))


def helped():
    by_helper[(4096,)](*torch.empty(2, 64, device="cuda"), 1024)


@triton.jit
def spread_out(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + row * stride + i,
        mask=i < n,
        other=0.0,
    )
    tl.store(
        y_ptr + row * BLOCK + i,
        x,
    )


def spread():
    spread_out[(4096,)](*torch.empty(2, 64, dtype=F16, device="cuda"), 1024, 1000, 1024)


def spread_evenly():
    spread_out[(4096,)](*torch.empty(2, 64, dtype=F16, device="cuda"), 1024, 1024, 1024)


LAUNCHES = {
    "spread": spread,
    "spread_evenly": spread_evenly,
    "two_warps_literal": two_warps,
    "one_stage_literal": one_stage,
    "ieee_literal": exact,
    "ragged_rows": ragged_rows,
    "even_rows_literal": even_rows,
    "odd_length": odd_length,
    "even_length": even_length,
    "helped": helped,
}
