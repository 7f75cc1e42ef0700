# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A product of fp8 matrices whose limit of imprecise sums is zero, which wgmma can't keep."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """`a`: (M, K), `b`: (N, K), fp8, `c`: (M, N), fp16; their sizes are multiples of the tile's."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * K + inner[None, :]
    b = b_ptr + columns[None, :] * K + inner[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a), tl.load(b), acc, max_num_imprecise_acc=0)
        a += BLOCK_K
        b += BLOCK_K
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(c_ptr.dtype.element_ty))


def matmul(a, b):
    """`a`: (M, K), `b`: (N, K), bytes that are fp8, row-major. Returns `a` times `b` transposed, fp16."""
    a, b = a.view(torch.float8_e4m3fn), b.view(torch.float8_e4m3fn)
    (M, K), N = a.shape, b.shape[0]
    c = torch.empty((M, N), dtype=torch.float16, device=a.device)
    block_m, block_n, block_k = 128, 256, 128
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))
    matmul_kernel[grid](a, b, c, N, K, block_m, block_n, block_k, num_warps=8, num_stages=3)
    return c


ENTRY = "matmul"
CASES = {
    "large": {"M": 4096, "N": 4096, "K": 2048},
    "small": {"M": 128, "N": 256, "K": 256, "small": True},
}
TOLERANCE = {"float16": {"rtol": 1e-3, "atol": 1e-3}}


def make_inputs(M, N, K, device):
    # Whole numbers, as bytes: tensor cores keep some 14 bits of a sum of fp8 products, in which sums of small whole
    # numbers are exact. Of others the sum of thousands is off by several tenths, and what a harness does with floating
    # inputs, such as ramps, would make others of them.
    a, b = torch.randint(-2, 3, (M, K), device=device), torch.randint(-2, 3, (N, K), device=device)
    return a.to(torch.float8_e4m3fn).view(torch.uint8), b.to(torch.float8_e4m3fn).view(torch.uint8)


def reference(*given):
    a, b = (each.view(torch.float8_e4m3fn) for each in given)
    return (a.float() @ b.float().t()).half()


def work(M, N, K):
    return {"bytes": M * K + K * N + 2 * M * N, "flops": 2 * M * N * K}


DEFECT = {"id": "T6", "mark": "acc = tl.dot("}
EDITS = [
    [
        ", max_num_imprecise_acc=0",
        "",
    ],
]
