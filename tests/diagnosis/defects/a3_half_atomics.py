# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Sums of rows that are added up by atomics on single halves: loops of compare and swap."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, sums_ptr, columns, BLOCK: tl.constexpr):
    """`x`: (rows, columns) fp16, columns a multiple of BLOCK; `sums`: (rows,)."""
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at).to(tl.float32)
    tl.atomic_add(sums_ptr + row, tl.sum(x, 0), sem="relaxed")


def row_sum(x):
    """`x`: (rows, columns) fp16, contiguous. Returns the sums of its rows, fp16."""
    rows, columns = x.shape
    sums = torch.zeros(rows, dtype=x.dtype, device=x.device)
    row_sum_kernel[(columns // 2048, rows)](x, sums, columns, 2048, num_warps=4)
    return sums


ENTRY = "row_sum"
CASES = {
    "large": {"rows": 64, "columns": 1 << 20},
    "small": {"rows": 8, "columns": 8192, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-2, "atol": 20.0}}
ERROR_FACTOR = 10000.0
NONDETERMINISTIC = True


def make_inputs(rows, columns, device):
    return (torch.randn(rows, columns, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return x.float().sum(1).to(x.dtype)


def work(rows, columns):
    return {"bytes": 2 * rows * columns, "flops": rows * columns}


DEFECT = {"id": "A3", "mark": "tl.atomic_add("}
EDITS = [
    [
        "torch.zeros(rows, dtype=x.dtype",
        "torch.zeros(rows, dtype=torch.float32",
    ],
    [
        "    return sums\n",
        "    return sums.to(x.dtype)\n",
    ],
]
