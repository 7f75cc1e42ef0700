# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Sines by tl.sin, whose slow path for large arguments is in the code."""

import torch
import triton
import triton.language as tl


@triton.jit
def sine_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """`x`, `y`: n elements, fp16."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    y = tl.sin(x)
    tl.store(y_ptr + at, y.to(tl.float16), mask=at < n)


def sine(x):
    """`x`: (n,) fp16. Returns its sines."""
    n, block = x.numel(), 2048
    y = torch.empty_like(x)
    sine_kernel[(triton.cdiv(n, block),)](x, y, n, block, num_warps=4)
    return y


ENTRY = "sine"
CASES = {
    "large": {"n": 1 << 26},
    "small": {"n": 4096, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(n, device):
    return (torch.randn(n, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return torch.sin(x.float()).to(x.dtype)


def work(n):
    return {"bytes": 4 * n, "flops": 8 * n}


DEFECT = {"id": "R5", "mark": "y = tl.sin(x)"}
EDITS = [
    [
        "    y = tl.sin(x)\n",
        "    turns = tl.floor(x * 0.15915494309189535 + 0.5)\n"
        "    x = (x - turns * 6.28125) - turns * 0.0019353071795864769\n"
        "    # Its error is absolute, some 2^-21: near zero a sine is its argument.\n"
        "    y = tl.where(tl.abs(x) < 0.01, x, libdevice.fast_sinf(x))\n",
    ],
    [
        "import triton.language as tl\n",
        "import triton.language as tl\nfrom triton.language.extra import libdevice\n",
    ],
]
