# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Sums of rows with a sum across threads in each step."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, sums_ptr, columns, BLOCK: tl.constexpr):
    """`x`: (rows, columns) fp32, columns a multiple of BLOCK; `sums`: (rows,)."""
    x = x_ptr + tl.program_id(0) * columns + tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, columns, BLOCK):
        total += tl.sum(tl.load(x + start), 0)
    tl.store(sums_ptr + tl.program_id(0), total)


def row_sum(x):
    """`x`: (rows, columns) fp32, contiguous. Returns the sums of its rows."""
    rows, columns = x.shape
    sums = torch.empty(rows, dtype=x.dtype, device=x.device)
    row_sum_kernel[(rows,)](x, sums, columns, 1024, num_warps=4)
    return sums


ENTRY = "row_sum"
CASES = {
    "large": {"rows": 8192, "columns": 16384},
    "small": {"rows": 8, "columns": 4096, "small": True},
}
TOLERANCE = {"float32": {"rtol": 1e-4, "atol": 1e-3}}


def make_inputs(rows, columns, device):
    return (torch.randn(rows, columns, device=device),)


def reference(*given):
    (x,) = given
    return x.sum(1)


def work(rows, columns):
    return {"bytes": 4 * rows * columns, "flops": rows * columns}


DEFECT = {"id": "L7", "mark": "total += tl.sum("}
EDITS = [
    [
        "    total = 0.0\n",
        "    partial = tl.zeros((BLOCK,), tl.float32)\n",
    ],
    [
        "total += tl.sum(tl.load(x + start), 0)",
        "partial += tl.load(x + start)",
    ],
    [
        "tl.program_id(0), total)",
        "tl.program_id(0), tl.sum(partial, 0))",
    ],
]
