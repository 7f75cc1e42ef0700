"""Element-wise sine, as a first draft often looks: four elements a program.

A block of 4 leaves 28 of a warp's 32 lanes idle, makes every access narrow, and starts a program for
every 16 bytes of output.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def sin_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.sin(x), mask=mask)


def sin(x: torch.Tensor) -> torch.Tensor:
    """``x``: any shape, contiguous, fp32. Returns sin(x), same shape and dtype."""
    out = torch.empty_like(x)
    n = x.numel()
    block = 4
    sin_kernel[(triton.cdiv(n, block),)](x, out, n, BLOCK=block)
    return out
