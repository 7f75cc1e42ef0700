# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Attention with heads of 128 in four warps: the sums and the scores don't fit into their registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, y_ptr, length, scale, BLOCK: tl.constexpr, D: tl.constexpr):
    """One block of rows of softmax(q k^T scale / log2(e)) v; all (heads, length, D) fp16."""
    head = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j, d = tl.arange(0, BLOCK), tl.arange(0, D)
    at = head + rows[:, None] * D + d[None, :]
    q = tl.load(q_ptr + at)
    k = k_ptr + head + j[None, :] * D + d[:, None]
    v = v_ptr + head + j[:, None] * D + d[None, :]
    top = tl.full((BLOCK,), -1e30, tl.float32)
    norm = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK, D), tl.float32)
    for _ in range(0, length, BLOCK):
        scores = tl.dot(q, tl.load(k)) * scale
        new = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(top - new)
        norm = norm * shrink + tl.sum(weights, 1)
        total = tl.dot(weights.to(tl.float16), tl.load(v), total * shrink[:, None])
        top = new
        k += BLOCK * D
        v += BLOCK * D
    tl.store(y_ptr + at, (total / norm[:, None]).to(tl.float16))


def attention(q, k, v):
    """`q`, `k`, `v`: (heads, length, 128) fp16, contiguous. Returns softmax(q k^T / sqrt(128)) v."""
    heads, length, D = q.shape
    y = torch.empty_like(q)
    scale = D**-0.5 * 1.4426950408889634
    attention_kernel[(length // 128, heads)](q, k, v, y, length, scale, 128, D, num_warps=4, num_stages=2)
    return y


ENTRY = "attention"
CASES = {
    "large": {"heads": 16, "length": 4096},
    "small": {"heads": 1, "length": 256, "small": True},
}
TOLERANCE = {"float16": {"rtol": 1e-2, "atol": 2e-3}}
ERROR_FACTOR = 16.0


def make_inputs(heads, length, device):
    return tuple(torch.randn(heads, length, 128, dtype=torch.float16, device=device) for _ in range(3))


def reference(*given):
    q, k, v = (each.float() for each in given)
    return (torch.softmax(q @ k.transpose(1, 2) * q.shape[2] ** -0.5, 2) @ v).to(given[0].dtype)


def work(heads, length):
    return {"bytes": 8 * heads * length * 128, "flops": 4 * heads * length * length * 128}


DEFECT = {"id": "T13", "mark": "scores = tl.dot("}
EDITS = [
    [
        "num_warps=4",
        "num_warps=8",
    ],
]
