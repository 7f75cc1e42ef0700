# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false, reportOperatorIssue=false
# (Triton's own types don't pass the strict mode.)
"""GELU by the library's tanh, which computes both of its ways for each element."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """`x`, `y`: n elements, fp16."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    y = 0.5 * x * (1.0 + libdevice.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    tl.store(y_ptr + at, y.to(tl.float16), mask=at < n)


def gelu(x):
    """`x`: (n,) fp16. Returns GELU of it, by tanh."""
    n, block = x.numel(), 2048
    y = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(n, block),)](x, y, n, block, num_warps=4)
    return y


ENTRY = "gelu"
CASES = {
    "large": {"n": 1 << 26},
    "small": {"n": 4096, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(n, device):
    return (torch.randn(n, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return torch.nn.functional.gelu(x.float(), approximate="tanh").to(x.dtype)


def work(n):
    return {"bytes": 4 * n, "flops": 10 * n}


DEFECT = {"id": "I3", "mark": "libdevice.tanh("}
EDITS = [
    [
        "    y = 0.5 * x * (1.0 + libdevice.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))\n",
        "    e = tl.exp2(2.885390082 * 0.7978845608 * (x + 0.044715 * x * x * x))\n"
        "    y = x * (1.0 - 1.0 / (1.0 + e))\n",
    ],
]
