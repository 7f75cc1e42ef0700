# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A bias whose place is the remainder of a division by an argument."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_bias_kernel(x_ptr, bias_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    """`x`, `y`: (rows, columns) fp16, together a multiple of BLOCK; `bias`: (columns,)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bias = tl.load(bias_ptr + at % columns)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x + bias)


def add_bias(x, bias):
    """`x`: (rows, columns) fp16, contiguous; `bias`: (columns,) fp16. Returns their sum."""
    y = torch.empty_like(x)
    add_bias_kernel[(x.numel() // 2048,)](x, bias, y, x.shape[1], 2048, num_warps=4)
    return y


ENTRY = "add_bias"
CASES = {
    "large": {"rows": 65536, "columns": 1000},
    "small": {"rows": 256, "columns": 1000, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(rows, columns, device):
    x = torch.randn(rows, columns, dtype=torch.float16, device=device)
    return x, torch.randn(columns, dtype=torch.float16, device=device)


def reference(*given):
    x, bias = given
    return x + bias


def work(rows, columns):
    return {"bytes": 4 * rows * columns, "flops": rows * columns}


DEFECT = {"id": "V10", "mark": "bias = tl.load("}
EDITS = [
    [
        "y_ptr, columns, BLOCK",
        "y_ptr, columns: tl.constexpr, BLOCK",
    ],
]
