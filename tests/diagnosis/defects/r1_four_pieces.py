# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A row that is held in four pieces by four warps: more values than their registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, PIECE: tl.constexpr):
    """One row of `x` and `y`: (rows, 4 * PIECE) fp16."""
    at = tl.program_id(0) * 4 * PIECE + tl.arange(0, PIECE)
    a = tl.load(x_ptr + at).to(tl.float32)
    b = tl.load(x_ptr + at + PIECE).to(tl.float32)
    c = tl.load(x_ptr + at + 2 * PIECE).to(tl.float32)
    d = tl.load(x_ptr + at + 3 * PIECE).to(tl.float32)
    top = tl.max(tl.maximum(tl.maximum(a, b), tl.maximum(c, d)), 0)
    a, b = tl.exp2((a - top) * 1.4426950408889634), tl.exp2((b - top) * 1.4426950408889634)
    c, d = tl.exp2((c - top) * 1.4426950408889634), tl.exp2((d - top) * 1.4426950408889634)
    scale = 1.0 / tl.sum(a + b + c + d, 0)
    tl.store(y_ptr + at, (a * scale).to(tl.float16))
    tl.store(y_ptr + at + PIECE, (b * scale).to(tl.float16))
    tl.store(y_ptr + at + 2 * PIECE, (c * scale).to(tl.float16))
    tl.store(y_ptr + at + 3 * PIECE, (d * scale).to(tl.float16))


def softmax(x):
    """`x`: (rows, columns) fp16, contiguous; columns four times a power of two. Returns the softmax of its rows."""
    rows, columns = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, columns // 4, num_warps=4)
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


DEFECT = {"id": "R1", "mark": "a, b = tl.exp2("}
EDITS = [
    [
        "num_warps=4",
        "num_warps=16",
    ],
]
