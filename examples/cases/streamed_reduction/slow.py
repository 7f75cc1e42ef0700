"""Matrix times vector as a broadcast: what should be a stream of loads waits at every step.

A program owns 16 rows. In each step it loads 64 columns, multiplies them by the vector broadcast over all rows, and
sums the whole product across threads before it asks for the next columns: nothing is on its way from memory meanwhile.
Five programs share an SM in the large case, too few to fill the gaps.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matvec_kernel(matrix_ptr, vector_ptr, out_ptr, rows, cols, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, cols, BLOCK_K):
        column = start + tl.arange(0, BLOCK_K)
        mask = (row[:, None] < rows) & (column[None, :] < cols)
        matrix = tl.load(matrix_ptr + row[:, None] * cols + column[None, :], mask=mask, other=0.0)
        vector = tl.load(vector_ptr + column, mask=column < cols, other=0.0)
        repeated = tl.broadcast_to(vector[None, :], (BLOCK_M, BLOCK_K))
        total += tl.sum(matrix.to(tl.float32) * repeated.to(tl.float32), axis=1)
    tl.store(out_ptr + row, total, mask=row < rows)


def matvec(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """``matrix``: (rows, cols) fp16, row-major; ``vector``: (cols,) fp16. Returns their product, (rows,) fp32."""
    rows, cols = matrix.shape
    out = torch.empty(rows, dtype=torch.float32, device=matrix.device)
    matvec_kernel[(triton.cdiv(rows, 16),)](matrix, vector, out, rows, cols, BLOCK_M=16, BLOCK_K=64, num_warps=4)
    return out
