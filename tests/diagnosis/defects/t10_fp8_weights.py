# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A product with fp8 weights as the second operand of fp16: wgmma reads it from shared memory only."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, w_ptr, scale_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """`a`: (M, K) fp16, `w`: (N, K) fp8, `scale`: (N,) fp16, `c`: (M, N) fp16."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * K + inner[None, :]
    w = w_ptr + columns[None, :] * K + inner[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a), tl.load(w).to(tl.float16), acc)
        a += BLOCK_K
        w += BLOCK_K
    acc = acc * tl.load(scale_ptr + columns)[None, :]
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


def matmul(a, w, scale):
    """`a`: (M, K) fp16, `w`: (N, K) fp8, `scale`: (N,) fp16. Returns `a` times `w` transposed times `scale`."""
    (M, K), N = a.shape, w.shape[0]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    block_m, block_n, block_k = 128, 128, 64
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))
    matmul_kernel[grid](a, w, scale, c, N, K, block_m, block_n, block_k, num_warps=8, num_stages=3)
    return c


ENTRY = "matmul"
CASES = {
    "large": {"M": 2048, "N": 4096, "K": 4096},
    "small": {"M": 128, "N": 128, "K": 128, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 5e-2}}


def make_inputs(M, N, K, device):
    w = torch.randn(N, K, device=device).to(torch.float8_e5m2)
    scale = torch.rand(N, dtype=torch.float16, device=device)
    return torch.randn(M, K, dtype=torch.float16, device=device), w, scale


def reference(*given):
    a, w, scale = given
    return (a.float() @ w.float().t() * scale.float()).to(a.dtype)


def work(M, N, K):
    return {"bytes": 2 * M * K + K * N + 2 * M * N, "flops": 2 * M * N * K}


DEFECT = {"id": "T10", "mark": "acc = tl.dot("}
EDITS = [
    [
        "w = w_ptr + columns[None, :] * K + inner[:, None]",
        "w = w_ptr + columns[:, None] * K + inner[None, :]",
    ],
    [
        "acc = tl.zeros((BLOCK_M, BLOCK_N)",
        "acc = tl.zeros((BLOCK_N, BLOCK_M)",
    ],
    [
        "acc = tl.dot(tl.load(a), tl.load(w).to(tl.float16), acc)",
        "acc = tl.dot(tl.load(w).to(tl.float16), tl.load(a).T, acc)",
    ],
    [
        "[None, :]\n    tl.store(c_ptr + rows[:, None] * N + columns[None, :],",
        "[:, None]\n    tl.store(c_ptr + rows[None, :] * N + columns[:, None],",
    ],
]
