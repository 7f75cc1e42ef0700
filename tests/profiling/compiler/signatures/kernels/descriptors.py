# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false, reportGeneralTypeIssues=false
# (Triton's own types don't pass the strict mode.)
"""Tensor descriptors and warp specialization: at work, refused, and failing."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

F16 = torch.float16


@triton.jit
def by_descriptor(
    a, b, c, c_ptr, K, stride, S: tl.constexpr, HOW: tl.constexpr, WARPS: tl.constexpr, FLATTEN: tl.constexpr
):
    """The product of (S, K) and (K, S) fp16, loaded by TMA."""
    total = tl.zeros((S, S), tl.float32)
    row, column = tl.program_id(0) * S, tl.program_id(1) * S
    for k in tl.range(0, K, S, warp_specialize=WARPS, flatten=FLATTEN):
        left, right = a.load([row, k]), b.load([k, column])
        if HOW == "branch":
            if k > 64:  # noqa: SIM108  (a branch with two sides is what this shows)
                total = tl.dot(left, right, total)
            else:
                total = tl.dot(left, right)
        else:
            total = tl.dot(left, right, total)
    if HOW == "descriptor":
        c.store([row, column], total.to(tl.float16))
    else:
        m = tl.arange(0, S)
        tl.store(c_ptr + (row + m)[:, None] * stride + column + m[None, :], total.to(tl.float16))


def described(how="", size=64, *, warp_specialize=False, flatten=False, **options):
    x = torch.empty(256, 256, dtype=F16, device="cuda")
    a, b, c = (TensorDescriptor.from_tensor(x, [size, size]) for _ in range(3))
    by_descriptor[(16, 64)](a, b, c, x, 256, 256, size, how, warp_specialize, flatten, **options)


@triton.jit
def persistent(a, b, c_ptr, tiles, K, stride, S: tl.constexpr, WARPS: tl.constexpr, FLATTEN: tl.constexpr):
    """The same for several tiles a program, one after the other."""
    m = tl.arange(0, S)
    for tile in tl.range(tl.program_id(0), tiles, 132, warp_specialize=WARPS, flatten=FLATTEN):
        total = tl.zeros((S, S), tl.float32)
        row, column = tile // 64 * S, tile % 64 * S
        for k in range(0, K, S):
            total = tl.dot(a.load([row, k]), b.load([k, column]), total)
        tl.store(c_ptr + (row + m)[:, None] * stride + column + m[None, :], total.to(tl.float16))


def persist(warp_specialize, flatten):
    x = torch.empty(256, 256, dtype=F16, device="cuda")
    a, b = (TensorDescriptor.from_tensor(x, [64, 64]) for _ in range(2))
    persistent[(132,)](a, b, x, 4096, 256, 256, 64, warp_specialize, flatten)


@triton.jit
def by_pointers(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    m = tl.arange(0, S)
    row, column = tl.program_id(0) * S + m, tl.program_id(1) * S + m
    total = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        left = tl.load(a_ptr + row[:, None] * stride + k + m[None, :])
        total = tl.dot(left, tl.load(b_ptr + (k + m)[:, None] * stride + column[None, :]), total)
    tl.store(c_ptr + row[:, None] * stride + column[None, :], total.to(tl.float16))


def pointed(size=64, **options):
    x = torch.empty(256, 256, dtype=F16, device="cuda")
    by_pointers[(16, 64)](x, x, x, 256, 256, size, **options)


@triton.jit
def by_own_descriptor(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [K, stride], [stride, 1], [S, S])
    b = tl.make_tensor_descriptor(b_ptr, [K, stride], [stride, 1], [S, S])
    total = tl.zeros((S, S), tl.float32)
    row, column = tl.program_id(0) * S, tl.program_id(1) * S
    for k in range(0, K, S):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    m = tl.arange(0, S)
    tl.store(c_ptr + (row + m)[:, None] * stride + column + m[None, :], total.to(tl.float16))


def self_described(size=64):
    x = torch.empty(256, 256, dtype=F16, device="cuda")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    by_own_descriptor[(16, 64)](x, x, x, 256, 256, size)


LAUNCHES = {
    "described": described,
    "specialized": lambda: described(warp_specialize=True),
    "specialized_eight_warps": lambda: described(warp_specialize=True, num_warps=8),
    "specialized_branch": lambda: described("branch", warp_specialize=True),
    "persistent": lambda: persist(True, False),
    "persistent_flat": lambda: persist(True, True),
    "specialized_store": lambda: described("descriptor", warp_specialize=True),
    "self_described": self_described,
    "pointed": pointed,
}
