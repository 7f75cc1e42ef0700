# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Exponentials of e, each with a multiplication more than those of 2."""

import torch
import triton
import triton.language as tl


@triton.jit
def density_kernel(x_ptr, y_ptr, n, scale, M: tl.constexpr, N: tl.constexpr):
    """`x`, `y`: (n,) fp32, n a multiple of M and N: sums over all pairs."""
    rows, j = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + rows)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, n, N):
        d = x[:, None] - tl.load(x_ptr + start + j)[None, :]
        total += tl.exp(d * d * scale)
    tl.store(y_ptr + rows, tl.sum(total, 1))


def density(x, h):
    """`x`: (n,) fp32; `h`: a number. Returns sums of exp(-(x - x_j)^2 / 2h^2) over all j."""
    y = torch.empty_like(x)
    density_kernel[(x.numel() // 8,)](x, y, x.numel(), -0.5 / (h * h), 8, 512, num_warps=4)
    return y


ENTRY = "density"
CASES = {
    "large": {"n": 16384},
    "small": {"n": 512, "small": True},
}
TOLERANCE = {"float32": {"rtol": 1e-4, "atol": 1e-2}}
ERROR_FACTOR = 1000.0


def make_inputs(n, device):
    return torch.randn(n, device=device), 0.5


def reference(*given):
    x, h = given
    d = x[:, None] - x[None, :]
    return torch.exp(d.square() * (-0.5 / (h * h))).sum(1)


def work(n):
    return {"bytes": 8 * n, "flops": 5 * n * n}


DEFECT = {"id": "I1", "mark": "tl.exp("}
EDITS = [
    [
        "tl.exp(d * d * scale)",
        "tl.exp2(d * d * scale)",
    ],
    [
        "x.numel(), -0.5 / (h * h), 8",
        "x.numel(), -0.5 / (h * h) * 1.4426950408889634, 8",
    ],
]
