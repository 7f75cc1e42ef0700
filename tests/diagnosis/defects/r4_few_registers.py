# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A matrix product whose limit of registers is below what the sums take."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """`a`: (M, K), `b`: (K, N), `c`: (M, N), fp16 and row-major; their sizes are multiples of the tile's."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * K + inner[None, :]
    b = b_ptr + inner[:, None] * N + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BLOCK_K
        b += BLOCK_K * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


def matmul(a, b):
    """`a`: (M, K), `b`: (K, N), fp16 and row-major. Returns their product, fp16."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    block_m, block_n, block_k = 128, 128, 64
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))
    matmul_kernel[grid](a, b, c, N, K, block_m, block_n, block_k, num_warps=4, num_stages=3, maxnreg=128)
    return c


ENTRY = "matmul"
CASES = {
    "large": {"M": 4096, "N": 4096, "K": 1024},
    "small": {"M": 128, "N": 256, "K": 128, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 2e-2}}


def make_inputs(M, N, K, device):
    a = torch.randn(M, K, dtype=torch.float16, device=device)
    b = torch.randn(K, N, dtype=torch.float16, device=device)
    return a, b


def reference(a, b):
    return (a.float() @ b.float()).to(a.dtype)


def work(M, N, K):
    return {"bytes": 2 * (M * K + K * N + M * N), "flops": 2 * M * N * K}


DEFECT = {"id": "R4", "mark": "maxnreg=128"}
EDITS = [
    [
        ", maxnreg=128",
        "",
    ],
]
