# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A transposition that reads down columns: neighbours lie a row apart."""

import torch
import triton
import triton.language as tl


@triton.jit
def transpose_kernel(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    """`x`: (M, N) fp16, `y`: (N, M); the sizes are multiples of the block."""
    column = tl.program_id(0)
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows * N + column)
    tl.store(y_ptr + column * M + rows, x)


def transpose(x):
    """`x`: (M, N) fp16, row-major. Returns (N, M), row-major."""
    M, N = x.shape
    y = torch.empty((N, M), dtype=x.dtype, device=x.device)
    transpose_kernel[(N, triton.cdiv(M, 1024))](x, y, M, N, 1024, num_warps=4)
    return y


ENTRY = "transpose"
CASES = {
    "large": {"M": 8192, "N": 4096},
    "small": {"M": 1024, "N": 64, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 1e-3}}


def make_inputs(M, N, device):
    return (torch.randn(M, N, dtype=torch.float16, device=device),)


def reference(*given):
    (x,) = given
    return x.t().contiguous()


def work(M, N):
    return {"bytes": 4 * M * N}


DEFECT = {"id": "V4", "mark": "x = tl.load("}
EDITS = [
    [
        "    column = tl.program_id(0)\n"
        "    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + rows * N + column)\n"
        "    tl.store(y_ptr + column * M + rows, x)\n",
        "    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :])\n"
        "    tl.store(y_ptr + columns[:, None] * M + rows[None, :], tl.trans(x))\n",
    ],
    [
        "[(N, triton.cdiv(M, 1024))](x, y, M, N, 1024,",
        "[(triton.cdiv(N, 64), triton.cdiv(M, 64))](x, y, M, N, 64,",
    ],
]
