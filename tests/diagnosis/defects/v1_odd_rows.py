# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Rows of 1000 elements: their stride is divisible by 8, but the launcher tells the compiler of 16 only."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, columns, stride, BLOCK: tl.constexpr):
    """One row of `x` and `y`: (rows, columns) fp16, rows `stride` elements apart."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    keep = i < columns
    x = tl.load(x_ptr + row * stride + i, mask=keep, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / columns + 1e-6)
    tl.store(y_ptr + row * stride + i, (x * scale).to(tl.float16), mask=keep)


def rms_norm(x):
    """`x`: (rows, columns) fp16, contiguous. Returns its rows over their root mean square."""
    rows, columns = x.shape
    y = torch.empty_like(x)
    rms_norm_kernel[(rows,)](x, y, columns, x.stride(0), triton.next_power_of_2(columns), num_warps=4)
    return y


ENTRY = "rms_norm"
CASES = {
    "large": {"rows": 65536, "columns": 1000},
    "small": {"rows": 4, "columns": 1000, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(rows, columns, device):
    return (torch.randn(rows, columns, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return (x.float() * torch.rsqrt(x.float().square().mean(1, keepdim=True) + 1e-6)).to(x.dtype)


def work(rows, columns):
    return {"bytes": 4 * rows * columns, "flops": 4 * rows * columns}


DEFECT = {"id": "V1", "mark": "x = tl.load("}
EDITS = [
    [
        "columns, stride, BLOCK",
        "columns: tl.constexpr, stride: tl.constexpr, BLOCK",
    ],
]
