# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Launches that fail to compile, and may take the compiler's process with them."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def specialized_pointers(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    """The product of (S, K) and (K, S) fp16, warp-specialized, but loaded through pointers."""
    i = tl.arange(0, S)
    at = i[:, None] * stride + i[None, :]
    total = tl.zeros((S, S), tl.float32)
    for k in tl.range(0, K, S, warp_specialize=True):
        total = tl.dot(tl.load(a_ptr + at + k), tl.load(b_ptr + at + k * stride), total)
    tl.store(c_ptr + at, total.to(tl.float16))


def specialize_pointers():
    specialized_pointers[(64,)](*torch.empty(3, 64, dtype=torch.float16, device="cuda"), 256, 256, 64)


@triton.jit
def divided_store(a, b, c, c_ptr, K, stride, S: tl.constexpr, BY_POINTERS: tl.constexpr):
    """The same through descriptors, of a tile that is divided between two groups of warps."""
    total = tl.zeros((S, S), tl.float32)
    for k in tl.range(0, K, 64, warp_specialize=True):
        total = tl.dot(a.load([tl.program_id(0) * S, k]), b.load([k, 0]), total)
    if BY_POINTERS:
        i = tl.arange(0, S)
        tl.store(c_ptr + (tl.program_id(0) * S + i)[:, None] * stride + i[None, :], total.to(tl.float16))
    else:
        c.store([tl.program_id(0) * S, 0], total.to(tl.float16))


def divide_store(by_pointers):
    x = torch.empty(256, 256, dtype=torch.float16, device="cuda")
    a, b, c = (TensorDescriptor.from_tensor(x, shape) for shape in ([128, 64], [64, 128], [128, 128]))
    divided_store[(64,)](a, b, c, x, 256, 256, 128, by_pointers)


LAUNCHES = {
    "divided_store": lambda: divide_store(False),
    "divided_pointer_store": lambda: divide_store(True),
    "specialized_pointers": specialize_pointers,
}
