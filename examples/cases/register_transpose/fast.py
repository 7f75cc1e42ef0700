"""A transpose by square tiles: 16 elements a thread, turned in shared memory, coalesced when read and when written.

Each tile of 64 by 64 is read along its rows and written along its columns; the compiler moves it between the two
layouts through shared memory.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (column < cols)
    x = tl.load(x_ptr + row * cols + column, mask=mask)
    tl.store(out_ptr + column * rows + row, x, mask=mask)


def transpose(x: torch.Tensor) -> torch.Tensor:
    """``x``: (rows, cols) fp32, row-major. Returns its transpose, (cols, rows) row-major."""
    rows, cols = x.shape
    out = torch.empty((cols, rows), dtype=x.dtype, device=x.device)
    block = 64
    grid = (triton.cdiv(cols, block), triton.cdiv(rows, block))
    transpose_kernel[grid](x, out, rows, cols, BLOCK=block, num_warps=8)
    return out
