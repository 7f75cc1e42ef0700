# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A sum over 64 steps in an unrolled loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def step_sum_kernel(x_ptr, y_ptr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """`x`: (STEPS, n) fp16, n a multiple of BLOCK; `y`: (n,), the sum over steps."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(STEPS):
        total += tl.load(x_ptr + step * n + at).to(tl.float32)
    tl.store(y_ptr + at, total.to(tl.float16))


def step_sum(x):
    """`x`: (steps, n) fp16, contiguous. Returns its sum over steps, fp16."""
    steps, n = x.shape
    y = torch.empty(n, dtype=x.dtype, device=x.device)
    step_sum_kernel[(n // 1024,)](x, y, n, steps, 1024, num_warps=4)
    return y


ENTRY = "step_sum"
CASES = {
    "large": {"steps": 64, "n": 1 << 20},
    "small": {"steps": 64, "n": 2048, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(steps, n, device):
    return (torch.randn(steps, n, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return x.float().sum(0).to(x.dtype)


def work(steps, n):
    return {"bytes": 2 * n * (steps + 1), "flops": n * steps}


DEFECT = {"id": "R7", "mark": "tl.static_range(STEPS)"}
EDITS = [
    [
        "tl.static_range(STEPS)",
        "tl.range(STEPS)",
    ],
]
