# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A product of fp32 matrices in IEEE precision, which tensor cores don't have."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """`a`: (M, K), `b`: (N, K), fp32, `c`: (M, N), fp32; their sizes are multiples of the tile's."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * K + inner[None, :]
    b = b_ptr + columns[None, :] * K + inner[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a), tl.load(b), acc, input_precision="ieee")
        a += BLOCK_K
        b += BLOCK_K
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(c_ptr.dtype.element_ty))


def matmul(a, b):
    """`a`: (M, K), `b`: (N, K), fp32 and row-major. Returns `a` times `b` transposed, fp32."""
    (M, K), N = a.shape, b.shape[0]
    c = torch.empty((M, N), dtype=torch.float32, device=a.device)
    block_m, block_n, block_k = 128, 128, 32
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))
    matmul_kernel[grid](a, b, c, N, K, block_m, block_n, block_k, num_warps=8, num_stages=3)
    return c


ENTRY = "matmul"
CASES = {
    "large": {"M": 2048, "N": 2048, "K": 1024},
    "small": {"M": 128, "N": 128, "K": 64, "small": True},
}
TOLERANCE = {"float32": {"rtol": 1e-4, "atol": 1e-3}}
ERROR_FACTOR = 100.0


def make_inputs(M, N, K, device):
    return torch.randn(M, K, device=device), torch.randn(N, K, device=device)


def reference(*given):
    a, b = given
    return a @ b.t()


def work(M, N, K):
    return {"bytes": 4 * (M * K + K * N + M * N), "flops": 2 * M * N * K}


DEFECT = {"id": "T4", "mark": "acc = tl.dot("}
EDITS = [
    [
        'input_precision="ieee"',
        'input_precision="tf32x3"',
    ],
]
