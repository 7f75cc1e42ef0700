# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A scale and a bias whose place is the remainder of a division by an argument: each element is loaded by itself."""

import torch
import triton
import triton.language as tl


@triton.jit
def affine_kernel(x_ptr, scale_ptr, bias_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    """`x`, `y`: (rows, columns) fp16, together a multiple of BLOCK; `scale`, `bias`: (columns,)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale, bias = tl.load(scale_ptr + at % columns), tl.load(bias_ptr + at % columns)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x * scale + bias)


def affine(x, scale, bias):
    """`x`: (rows, columns) fp16, contiguous; `scale`, `bias`: (columns,) fp16. Returns x * scale + bias."""
    y = torch.empty_like(x)
    affine_kernel[(x.numel() // 2048,)](x, scale, bias, y, x.shape[1], 2048, num_warps=4)
    return y


ENTRY = "affine"
CASES = {
    "large": {"rows": 65536, "columns": 1000},
    "small": {"rows": 256, "columns": 1000, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(rows, columns, device):
    x = torch.randn(rows, columns, dtype=torch.float16, device=device)
    scale, bias = torch.randn(2, columns, dtype=torch.float16, device=device)
    return x, scale, bias


def reference(*given):
    x, scale, bias = given
    return (x.float() * scale.float() + bias.float()).to(x.dtype)


def work(rows, columns):
    return {"bytes": 4 * rows * columns, "flops": 2 * rows * columns}


DEFECT = {"id": "V10", "mark": "scale, bias = tl.load("}
EDITS = [
    [
        "y_ptr, columns, BLOCK",
        "y_ptr, columns: tl.constexpr, BLOCK",
    ],
]
