"""Matrix times vector as a streamed reduction: one row a program, each thread sums its own columns.

Loads of 16 bytes a thread follow each other without waiting for a sum; threads are added up once, at the row's end.
There are as many programs as rows, so while some of an SM's programs add up, others load.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matvec_kernel(matrix_ptr, vector_ptr, out_ptr, cols, BLOCK_K: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    sums = tl.zeros((BLOCK_K,), tl.float32)
    for start in range(0, cols, BLOCK_K):
        column = start + tl.arange(0, BLOCK_K)
        mask = column < cols
        matrix = tl.load(matrix_ptr + row * cols + column, mask=mask, other=0.0)
        vector = tl.load(vector_ptr + column, mask=mask, other=0.0)
        sums += matrix.to(tl.float32) * vector.to(tl.float32)
    tl.store(out_ptr + row, tl.sum(sums, axis=0))


def matvec(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """``matrix``: (rows, cols) fp16, row-major; ``vector``: (cols,) fp16. Returns their product, (rows,) fp32."""
    rows, cols = matrix.shape
    out = torch.empty(rows, dtype=torch.float32, device=matrix.device)
    matvec_kernel[(rows,)](matrix, vector, out, cols, BLOCK_K=4096, num_warps=8)
    return out
