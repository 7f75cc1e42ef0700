"""SiLU with 2,048 elements a program: 32 times fewer programs, each of four warps with 16-byte accesses."""

import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = x / (1.0 + tl.exp(-x))
    tl.store(out_ptr + offsets, y.to(out_ptr.dtype.element_ty), mask=mask)


def silu(x: torch.Tensor) -> torch.Tensor:
    """``x``: any shape, contiguous, fp16. Returns x * sigmoid(x), same shape and dtype."""
    out = torch.empty_like(x)
    n = x.numel()
    block = 2048
    silu_kernel[(triton.cdiv(n, block),)](x, out, n, BLOCK=block, num_warps=4)
    return out
