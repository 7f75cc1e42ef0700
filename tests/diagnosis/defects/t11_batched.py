# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""A batched product in one operation of three dimensions."""

import torch
import triton
import triton.language as tl


@triton.jit
def batched_kernel(a_ptr, b_ptr, c_ptr, K, PAIR: tl.constexpr, S: tl.constexpr, BLOCK_K: tl.constexpr):
    """`a`: (B, S, K), `b`: (B, K, S), `c`: (B, S, S), fp16; B is a multiple of PAIR."""
    batch = (tl.program_id(0) * PAIR + tl.arange(0, PAIR))[:, None, None]
    i, inner = tl.arange(0, S), tl.arange(0, BLOCK_K)
    a = a_ptr + batch * S * K + i[None, :, None] * K + inner[None, None, :]
    b = b_ptr + batch * S * K + inner[None, :, None] * S + i[None, None, :]
    acc = tl.zeros((PAIR, S, S), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BLOCK_K
        b += BLOCK_K * S
    tl.store(c_ptr + batch * S * S + i[None, :, None] * S + i[None, None, :], acc.to(tl.float16))


def batched(a, b):
    """`a`: (B, S, K), `b`: (B, K, S), fp16, contiguous. Returns their products, (B, S, S) fp16."""
    B, S, K = a.shape
    c = torch.empty((B, S, S), dtype=a.dtype, device=a.device)
    batched_kernel[(B // 2,)](a, b, c, K, 2, S, 64, num_warps=4, num_stages=4)
    return c


ENTRY = "batched"
CASES = {
    "large": {"B": 1024, "S": 64, "K": 1024},
    "small": {"B": 4, "S": 64, "K": 128, "small": True},
}
TOLERANCE = {"float16": {"rtol": 2e-3, "atol": 2e-2}}


def make_inputs(B, S, K, device):
    a = torch.randn(B, S, K, dtype=torch.float16, device=device)
    return a, torch.randn(B, K, S, dtype=torch.float16, device=device)


def reference(*given):
    a, b = given
    return (a.float() @ b.float()).to(a.dtype)


def work(B, S, K):
    return {"bytes": 2 * B * (2 * S * K + S * S), "flops": 2 * B * S * S * K}


DEFECT = {"id": "T11", "mark": "acc = tl.dot("}
EDITS = [
    [
        "batch = (tl.program_id(0) * PAIR + tl.arange(0, PAIR))[:, None, None]",
        "batch = tl.program_id(0)",
    ],
    [
        "batch * S * K + i[None, :, None] * K + inner[None, None, :]",
        "batch * S * K + i[:, None] * K + inner[None, :]",
    ],
    [
        "batch * S * K + inner[None, :, None] * S + i[None, None, :]",
        "batch * S * K + inner[:, None] * S + i[None, :]",
    ],
    [
        "tl.zeros((PAIR, S, S)",
        "tl.zeros((S, S)",
    ],
    [
        "batch * S * S + i[None, :, None] * S + i[None, None, :]",
        "batch * S * S + i[:, None] * S + i[None, :]",
    ],
    [
        "[(B // 2,)]",
        "[(B,)]",
    ],
]
