# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A sum of columns whose block stays at its default of 32."""

import torch
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(x_ptr, sums_ptr, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr = 32):
    """`x`: (rows, columns) fp16, multiples of the blocks; `sums`: (columns,)."""
    at = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = x_ptr + tl.arange(0, BLOCK_M)[:, None] * columns + at[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, rows, BLOCK_M):
        total += tl.load(x).to(tl.float32)
        x += BLOCK_M * columns
    tl.store(sums_ptr + at, tl.sum(total, 0).to(tl.float16))


def column_sum(x):
    """`x`: (rows, columns) fp16, contiguous; columns a multiple of 128. Returns the sums of its columns."""
    rows, columns = x.shape
    sums = torch.empty(columns, dtype=x.dtype, device=x.device)
    column_sum_kernel[lambda meta: (columns // meta["BLOCK_N"],)](x, sums, rows, columns, 64, num_warps=4)
    return sums


ENTRY = "column_sum"
CASES = {
    "large": {"rows": 1024, "columns": 65536},
    "small": {"rows": 128, "columns": 256, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-2}}


def make_inputs(rows, columns, device):
    return (torch.randn(rows, columns, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return x.float().sum(0).to(x.dtype)


def work(rows, columns):
    return {"bytes": 2 * rows * columns, "flops": rows * columns}


DEFECT = {"id": "U16", "mark": "BLOCK_N: tl.constexpr = 32"}
EDITS = [
    [
        "BLOCK_N: tl.constexpr = 32",
        "BLOCK_N: tl.constexpr = 128",
    ],
]
