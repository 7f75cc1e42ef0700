# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false, reportGeneralTypeIssues=false
# (Triton's own types don't pass the strict mode.)
"""Grids, traffic and descriptors."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

F16 = torch.float16


@triton.jit
def described_each_time(a_ptr, y_ptr, K, stride, S: tl.constexpr):
    """Sums of `a`, (rows, K) fp16, over K in tiles of S by S."""
    row = tl.program_id(0) * S
    total = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        a = tl.make_tensor_descriptor(a_ptr + k, [16384, K], [stride, 1], [S, S])
        total += a.load([row, 0])
    tl.store(y_ptr + row + tl.arange(0, S), tl.sum(total, 1))


@triton.jit
def described_once(a_ptr, y_ptr, K, stride, S: tl.constexpr):
    row = tl.program_id(0) * S
    a = tl.make_tensor_descriptor(a_ptr, [16384, K], [stride, 1], [S, S])
    total = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        total += a.load([row, k])
    tl.store(y_ptr + row + tl.arange(0, S), tl.sum(total, 1))


@triton.jit
def described_by_host(a, y_ptr, K, S: tl.constexpr):
    row = tl.program_id(0) * S
    total = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        total += a.load([row, k])
    tl.store(y_ptr + row + tl.arange(0, S), tl.sum(total, 1))


def described(kernel):
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    kernel[(256,)](torch.empty(64, 64, dtype=F16, device="cuda"), torch.empty(64, device="cuda"), 4096, 4096, 64)


def host():
    a = TensorDescriptor.from_tensor(torch.empty(64, 64, dtype=F16, device="cuda"), [64, 64])
    described_by_host[(256,)](a, torch.empty(64, device="cuda"), 4096, 64)


@triton.jit
def multiplied(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    i = tl.arange(0, S)
    a = a_ptr + (tl.program_id(0) * S + i)[:, None] * stride + i[None, :]
    b = b_ptr + i[:, None] * stride + (tl.program_id(1) * S + i)[None, :]
    total = tl.zeros((S, S), tl.float32)
    for _ in range(0, K, S):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += S
        b += S * stride
    c = c_ptr + (tl.program_id(0) * S + i)[:, None] * stride + (tl.program_id(1) * S + i)[None, :]
    tl.store(c, total.to(tl.float16))


def two_blocks():
    multiplied[(32, 32)](*torch.empty(3, 64, dtype=F16, device="cuda"), 2048, 2048, 64, num_ctas=2)


def one_block():
    multiplied[(32, 32)](*torch.empty(3, 64, dtype=F16, device="cuda"), 2048, 2048, 64)


@triton.jit
def three_passes(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Softmax of rows of n fp32."""
    x, y = x_ptr + tl.program_id(0) * n, y_ptr + tl.program_id(0) * n
    i = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        largest = tl.maximum(largest, tl.load(x + start + i))
    peak = tl.max(largest)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.exp2(tl.load(x + start + i) - peak)
    scale = 1 / tl.sum(total)
    for start in range(0, n, BLOCK):
        tl.store(y + start + i, tl.exp2(tl.load(x + start + i) - peak) * scale)


@triton.jit
def one_pass(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """The same for rows of BLOCK."""
    x, y = x_ptr + tl.program_id(0) * n, y_ptr + tl.program_id(0) * n
    row = tl.load(x + tl.arange(0, BLOCK))
    part = tl.exp2(row - tl.max(row))
    tl.store(y + tl.arange(0, BLOCK), part * (1 / tl.sum(part)))


def rows(kernel, block):
    kernel[(4096,)](*torch.empty(2, 64, device="cuda"), 4096, block)


LAUNCHES = {
    "described_in_loop": lambda: described(described_each_time),
    "described_before": lambda: described(described_once),
    "described_by_host": host,
    "two_blocks": two_blocks,
    "one_block": one_block,
    "three_passes": lambda: rows(three_passes, 1024),
    "one_pass": lambda: rows(one_pass, 4096),
}
