# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A transposed sum of tiles that is stored in each step: each store changes its layout."""

import torch
import triton
import triton.language as tl


@triton.jit
def transposed_sum_kernel(x_ptr, y_ptr, steps, N, BLOCK: tl.constexpr):
    """`x`: (steps, N, N) fp32; `y`: (N, N), the sum of all x transposed."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = x_ptr + rows[:, None] * N + columns[None, :]
    y = y_ptr + columns[None, :] * N + rows[:, None]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(steps):
        total += tl.load(x)
        tl.store(y, total)
        x += N * N


def transposed_sum(x):
    """`x`: (steps, N, N) fp32, contiguous. Returns the transposed sum over steps."""
    steps, N, _ = x.shape
    y = torch.empty((N, N), dtype=x.dtype, device=x.device)
    transposed_sum_kernel[(N // 64, N // 64)](x, y, steps, N, 64, num_warps=4)
    return y


ENTRY = "transposed_sum"
CASES = {
    "large": {"steps": 16, "N": 2048},
    "small": {"steps": 3, "N": 128, "small": True},
}
TOLERANCE = {"float32": {"rtol": 1e-5, "atol": 1e-5}}


def make_inputs(steps, N, device):
    return (torch.randn(steps, N, N, device=device),)


def reference(*given):
    (x,) = given
    return x.sum(0).t().contiguous()


def work(steps, N):
    return {"bytes": 4 * N * N * (steps + 1), "flops": steps * N * N}


DEFECT = {"id": "L1", "mark": "tl.store(y, total)"}
EDITS = [
    [
        "        tl.store(y, total)\n        x += N * N\n",
        "        x += N * N\n    tl.store(y, total)\n",
    ],
]
