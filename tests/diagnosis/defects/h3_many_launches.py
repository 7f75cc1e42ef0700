# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""One launch a batch element, in a loop of Python."""

import torch
import triton
import triton.language as tl


@triton.jit
def squared_relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """`x`, `y`: n elements, fp16."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    y = tl.maximum(x, 0.0)
    tl.store(y_ptr + at, (y * y).to(tl.float16), mask=at < n)


def squared_relu(x):
    """`x`: (batch, n) fp16, contiguous. Returns max(x, 0) squared."""
    (batch, n), block = x.shape, 2048
    y = torch.empty_like(x)
    for b in range(batch):
        squared_relu_kernel[(triton.cdiv(n, block),)](x[b], y[b], n, block, num_warps=4)
    return y


ENTRY = "squared_relu"
CASES = {
    "large": {"batch": 64, "n": 1 << 19},
    "small": {"batch": 4, "n": 4096, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(batch, n, device):
    return (torch.randn(batch, n, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return torch.relu(x.float()).square().to(x.dtype)


def work(batch, n):
    return {"bytes": 4 * batch * n, "flops": 2 * batch * n}


DEFECT = {"id": "H3", "mark": "for b in range(batch)"}
EDITS = [
    [
        "    for b in range(batch):\n"
        "        squared_relu_kernel[(triton.cdiv(n, block),)](x[b], y[b], n, block, num_warps=4)\n",
        "    squared_relu_kernel[(triton.cdiv(n, block), batch)](x, y, n, block, num_warps=4)\n",
    ],
    [
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n",
        "    x_ptr += tl.program_id(1) * n\n"
        "    y_ptr += tl.program_id(1) * n\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n",
    ],
]
