# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Maxima of rows by an atomic an element."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, tops_ptr, columns, BLOCK: tl.constexpr):
    """`x`: (rows, columns) fp32, columns a multiple of BLOCK; `tops`: (rows,)."""
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at)
    tl.atomic_max(tops_ptr + row + tl.zeros_like(at), x, sem="relaxed")


def row_max(x):
    """`x`: (rows, columns) fp32, contiguous. Returns the maxima of its rows."""
    rows, columns = x.shape
    tops = torch.full((rows,), -float("inf"), dtype=x.dtype, device=x.device)
    row_max_kernel[(columns // 2048, rows)](x, tops, columns, 2048, num_warps=4)
    return tops


ENTRY = "row_max"
CASES = {
    "large": {"rows": 2048, "columns": 16384},
    "small": {"rows": 8, "columns": 4096, "small": True},
}
TOLERANCE = {}


def make_inputs(rows, columns, device):
    return (torch.randn(rows, columns, device=device),)


def reference(*given):
    (x,) = given
    return x.amax(1)


def work(rows, columns):
    return {"bytes": 4 * rows * columns}


DEFECT = {"id": "A4", "mark": "tl.atomic_max("}
EDITS = [
    [
        "tops_ptr + row + tl.zeros_like(at), x, sem",
        "tops_ptr + row, tl.max(x, 0), sem",
    ],
]
