# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A sum of activations over 64 steps in an unrolled loop: its loads are moved ahead, and spilled."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_sum_kernel(x_ptr, y_ptr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """`x`: (STEPS, n) fp16, n a multiple of BLOCK; `y`: (n,), the sum of GELU over steps."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(STEPS):
        x = tl.load(x_ptr + step * n + at).to(tl.float32)
        inner = x * (0.7978845608 + 0.0356774081 * x * x)
        total += x / (1.0 + tl.exp2(-2.885390082 * inner))
    tl.store(y_ptr + at, total.to(tl.float16))


def gelu_sum(x):
    """`x`: (steps, n) fp16, contiguous. Returns the sum over steps of its GELU (by tanh), fp16."""
    steps, n = x.shape
    y = torch.empty(n, dtype=x.dtype, device=x.device)
    gelu_sum_kernel[(n // 1024,)](x, y, n, steps, 1024, num_warps=4)
    return y


ENTRY = "gelu_sum"
CASES = {
    "large": {"steps": 64, "n": 1 << 20},
    "small": {"steps": 64, "n": 4096, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-2}}


def make_inputs(steps, n, device):
    return (torch.randn(steps, n, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return torch.nn.functional.gelu(x.float(), approximate="tanh").sum(0).to(x.dtype)


def work(steps, n):
    return {"bytes": 2 * n * (steps + 1), "flops": 8 * n * steps}


DEFECT = {"id": "R7", "mark": "tl.static_range(STEPS)"}
EDITS = [
    [
        "tl.static_range(STEPS)",
        "tl.range(STEPS)",
    ],
]
