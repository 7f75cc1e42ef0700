# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""An assertion for each element that is compiled in."""

import torch
import triton
import triton.language as tl


@triton.jit
def squared_relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """`x`, `y`: n elements, fp16."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.device_assert(x == x, "not a number")
    y = tl.maximum(x, 0.0)
    tl.store(y_ptr + at, (y * y).to(tl.float16), mask=at < n)


def squared_relu(x):
    """`x`: (n,) fp16. Returns max(x, 0) squared."""
    n, block = x.numel(), 2048
    y = torch.empty_like(x)
    squared_relu_kernel[(triton.cdiv(n, block),)](x, y, n, block, num_warps=4, debug=True)
    return y


ENTRY = "squared_relu"
CASES = {
    "large": {"n": 1 << 26},
    "small": {"n": 4096, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(n, device):
    return (torch.randn(n, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return torch.relu(x.float()).square().to(x.dtype)


def work(n):
    return {"bytes": 4 * n, "flops": 2 * n}


DEFECT = {"id": "I8", "mark": "tl.device_assert("}
EDITS = [
    [
        ", debug=True",
        "",
    ],
]
