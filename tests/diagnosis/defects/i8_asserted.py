# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""An assertion for each pair of a sum over all pairs, compiled in: where the multiprocessors are busy, it costs."""

import torch
import triton
import triton.language as tl


@triton.jit
def density_kernel(x_ptr, y_ptr, n, inverse, M: tl.constexpr, N: tl.constexpr):
    """`x`, `y`: (n,) fp32, n a multiple of M and N: sums over all pairs."""
    rows, j = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + rows)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, n, N):
        d = x[:, None] - tl.load(x_ptr + start + j)[None, :]
        u = d * inverse
        tl.device_assert(u == u, "not a number")
        total += tl.maximum(1.0 - u * u, 0.0)
    tl.store(y_ptr + rows, tl.sum(total, 1))


def density(x, h):
    """`x`: (n,) fp32; `h`: a number. Returns sums of max(1 - ((x - x_j) / h)^2, 0) over all j."""
    y = torch.empty_like(x)
    density_kernel[(x.numel() // 8,)](x, y, x.numel(), 1.0 / h, 8, 512, num_warps=4, debug=True)
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
    return torch.relu(1 - (d / h).square()).sum(1)


def work(n):
    return {"bytes": 8 * n, "flops": 5 * n * n}


DEFECT = {"id": "I8", "mark": "tl.device_assert("}
EDITS = [
    [
        ", debug=True",
        "",
    ],
]
