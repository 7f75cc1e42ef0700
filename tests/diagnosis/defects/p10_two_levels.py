# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A product with rows that an index chooses, in two stages: one too few for two levels of loads.

One block of the large tile fits on a multiprocessor, so that no other hides its waiting.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, index_ptr, b_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """`a`: (M, K), `index`: (K,) int32, `b`: (rows, N), `c`: (M, N), fp16; whole tiles."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * K + inner[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        chosen = tl.load(index_ptr + k + inner)
        right = tl.load(b_ptr + chosen[:, None] * N + columns[None, :])
        acc = tl.dot(tl.load(a), right, acc)
        a += BLOCK_K
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


def matmul(a, index, b):
    """`a`: (M, K), `index`: (K,) int32, `b`: (rows, N), fp16 and row-major. Returns `a` times the chosen rows."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    block_m, block_n, block_k = 128, 256, 64
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))
    matmul_kernel[grid](a, index, b, c, N, K, block_m, block_n, block_k, num_warps=8, num_stages=2)
    return c


ENTRY = "matmul"
CASES = {
    "large": {"M": 4096, "N": 4096, "K": 1024, "rows": 4096},
    "small": {"M": 128, "N": 256, "K": 128, "rows": 256, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 2e-2}}


def make_inputs(M, N, K, rows, device):
    a = torch.randn(M, K, dtype=torch.float16, device=device)
    index = torch.randint(0, rows, (K,), dtype=torch.int32, device=device)
    return a, index, torch.randn(rows, N, dtype=torch.float16, device=device)


def reference(*given):
    a, index, b = given
    return (a.float() @ b[index.long()].float()).to(a.dtype)


def work(M, N, K, rows):
    return {"bytes": 2 * (M * K + K * N + M * N), "flops": 2 * M * N * K}


DEFECT = {"id": "P10", "mark": "chosen = tl.load("}
EDITS = [
    [
        "num_stages=2",
        "num_stages=4",
    ],
]
