# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A matrix product with fewer tiles than the GPU has multiprocessors."""

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
    matmul_kernel[grid](a, b, c, N, K, block_m, block_n, block_k, num_warps=4, num_stages=4)
    return c


ENTRY = "matmul"
CASES = {
    "large": {"M": 1024, "N": 1024, "K": 8192},
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


DEFECT = {"id": "G1", "mark": "matmul_kernel[grid]"}
EDITS = [
    [
        "def matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, "
        "BLOCK_K: tl.constexpr):\n",
        "def add_kernel(parts_ptr, c_ptr, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    total = tl.load(parts_ptr + at)\n"
        "    for part in tl.static_range(1, PARTS):\n"
        "        total += tl.load(parts_ptr + part * n + at)\n"
        "    tl.store(c_ptr + at, total.to(tl.float16))\n\n\n"
        "@triton.jit\n"
        "def matmul_kernel(\n"
        "    a_ptr, b_ptr, parts_ptr, M, N, K, part, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, "
        "BLOCK_K: tl.constexpr\n"
        "):\n",
    ],
    ["`c`: (M, N), fp16 and row-major; their sizes", "`parts`: (parts of K, M, N), fp32; their sizes"],
    [
        "    inner = tl.arange(0, BLOCK_K)\n",
        "    start = tl.program_id(2) * part\n    inner = start + tl.arange(0, BLOCK_K)\n",
    ],
    ["in range(0, K, BLOCK_K)", "in range(0, part, BLOCK_K)"],
    [
        "    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))\n",
        "    c = parts_ptr + tl.program_id(2) * M * N + rows[:, None] * N + columns[None, :]\n    tl.store(c, acc)\n",
    ],
    [
        "    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))\n"
        "    matmul_kernel[grid](a, b, c, N, K, block_m, block_n, block_k, num_warps=4, num_stages=4)\n",
        "    parts = 2\n"
        "    partial = torch.empty((parts, M, N), dtype=torch.float32, device=a.device)\n"
        "    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n), parts)\n"
        '    options = {"num_warps": 4, "num_stages": 4}\n'
        "    matmul_kernel[grid](a, b, partial, M, N, K, K // parts, block_m, block_n, block_k, **options)\n"
        "    add_kernel[(M * N // 1024,)](partial, c, M * N, parts, 1024)\n",
    ],
]
