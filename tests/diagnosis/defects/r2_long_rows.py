# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Rows of 32,768 elements, each held by four warps."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    """One row of `x` and `y`: (rows, COLUMNS) fp16."""
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + at).to(tl.float32)
    e = tl.exp2((x - tl.max(x, 0)) * 1.4426950408889634)
    tl.store(y_ptr + at, (e * (1.0 / tl.sum(e, 0))).to(tl.float16))


def softmax(x):
    """`x`: (rows, columns) fp16, contiguous; columns a power of two. Returns the softmax of its rows."""
    rows, columns = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, columns, num_warps=4)
    return y


ENTRY = "softmax"
CASES = {
    "large": {"rows": 2048, "columns": 32768},
    "small": {"rows": 2, "columns": 32768, "small": True},
}
TOLERANCE = {"float16": {"rtol": 5e-3, "atol": 1e-6}}


def make_inputs(rows, columns, device):
    return (torch.randn(rows, columns, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return torch.softmax(x.float(), 1).to(x.dtype)


def work(rows, columns):
    return {"bytes": 4 * rows * columns, "flops": 5 * rows * columns}


DEFECT = {"id": "R2", "mark": "x = tl.load("}
EDITS = [
    [
        "num_warps=4",
        "num_warps=32",
    ],
]
