# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false, reportGeneralTypeIssues=false
# (Triton's own types don't pass the strict mode.)
"""Faults that people reported in public, in a small form; `test_reports.py` says where and what the cause was."""

import torch
import triton
import triton.language as tl

F16, F32 = torch.float16, torch.float32


@triton.jit
def remade_descriptors(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    """The product of (S, K) and (K, S) fp16, the second by a descriptor of the step's rows: compiles with one stage."""
    i = tl.arange(0, S)
    total = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        b = tl.make_tensor_descriptor(b_ptr + k * stride, [S, stride], [stride, 1], [S, S])
        total = tl.dot(tl.load(a_ptr + i[:, None] * stride + k + i[None, :]), b.load([0, 0]), total)
    tl.store(c_ptr + (tl.program_id(0) * S + i)[:, None] * stride + i[None, :], total.to(tl.float16))


def remake_descriptors():
    x = torch.empty(256, 256, dtype=F16, device="cuda")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    remade_descriptors[(1024,)](x, x, x, 256, 256, 64, num_stages=1)


@triton.jit
def rows_at_once(y_ptr, dy_ptr, dx_ptr, rows, width, R: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax backwards for R rows of (rows, width) fp32, in one tile of (R, BLOCK)."""
    row, i = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, BLOCK)
    at = row[:, None] * width + i[None, :]
    keep = (row[:, None] < rows) & (i[None, :] < width)
    y = tl.load(y_ptr + at, mask=keep, other=0.0)
    dy = tl.load(dy_ptr + at, mask=keep, other=0.0)
    tl.store(dx_ptr + at, y * (dy - tl.sum(y * dy, 1)[:, None]), mask=keep)


@triton.jit
def held_parts(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    """Norms of rows of (rows, width) fp32 in four parts, all of which wait for the last one."""
    x = x_ptr + tl.program_id(0) * width + tl.arange(0, BLOCK)
    parts = (tl.load(x), tl.load(x + BLOCK), tl.load(x + 2 * BLOCK), tl.load(x + 3 * BLOCK))
    top = tl.maximum(tl.maximum(parts[0], parts[1]), tl.maximum(parts[2], parts[3]))
    alpha = tl.max(top)
    total = tl.exp2(parts[0] - alpha) + tl.exp2(parts[1] - alpha) + tl.exp2(parts[2] - alpha)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total + tl.exp2(parts[3] - alpha)))


@triton.jit
def chunk_states(
    x_ptr, b_ptr, states_ptr, length, stride,
    BLOCK_M: tl.constexpr = 16, BLOCK_N: tl.constexpr = 16, BLOCK_K: tl.constexpr = 16,
):  # fmt: skip
    """`x`: (length, M), `b`: (length, N), both fp16: the sum of x^T b over a chunk."""
    m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    x = x_ptr + m[:, None] + k[None, :] * stride
    b = b_ptr + k[:, None] * stride + n[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, length, BLOCK_K):
        total = tl.dot(tl.load(x), tl.load(b), total)
        x += BLOCK_K * stride
        b += BLOCK_K * stride
    tl.store(states_ptr + m[:, None] * stride + n[None, :], total)


def sum_chunks():
    x, b = torch.empty(2, 64, dtype=F16, device="cuda")
    chunk_states[(4096,)](x, b, torch.empty(64, device="cuda"), 1024, 1024)


@triton.autotune(
    [triton.Config({"BLOCK": 64}, num_stages=stages, num_warps=4) for stages in (3, 4, 7)],
    key=["K"],
)
@triton.jit
def staged(a_ptr, b_ptr, c_ptr, K, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = a_ptr + i[:, None] * stride + i[None, :]
    b = b_ptr + i[:, None] * stride + i[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(0, K, BLOCK):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += BLOCK
        b += BLOCK * stride
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def stage():
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    staged[(1024,)](a, b, torch.empty(64, device="cuda"), 1024, 1024)


@triton.jit
def gated(a_ptr, b_ptr, c_ptr, width, BLOCK: tl.constexpr):
    """silu(a) b of a row; all (rows, width) bf16."""
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64) * width + i
    a = tl.load(a_ptr + at, mask=i < width, other=0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=i < width, other=0)
    tl.store(c_ptr + at, a * tl.sigmoid(a) * b, mask=i < width)


def gate():
    gated[(4096,)](*torch.empty(3, 64, dtype=torch.bfloat16, device="cuda"), 2048, 2048, num_warps=32)


@triton.jit
def transposed_scores(q_ptr, k_ptr, g_ptr, dv_ptr, length, stride, S: tl.constexpr):
    """The gradient of v, of (S, S): the sum of (q k^T)^T g over blocks of rows, as in attention backwards; fp16."""
    i = tl.arange(0, S)
    at = i[:, None] * stride + i[None, :]
    k = tl.load(k_ptr + at)
    dv = tl.zeros((S, S), tl.float32)
    for start in range(0, length, S):
        scores = tl.dot(tl.load(q_ptr + start * stride + at), tl.trans(k))
        dv = tl.dot(tl.trans(scores).to(tl.float16), tl.load(g_ptr + start * stride + at), dv)
    tl.store(dv_ptr + at, dv)


def transpose_scores():
    q, k, g = torch.empty(3, 64, dtype=F16, device="cuda")
    transposed_scores[(1024,)](q, k, g, torch.empty(64, device="cuda"), 1024, 1024, 64)


LAUNCHES = {
    "remade_descriptors": remake_descriptors,
    "rows_at_once": lambda: rows_at_once[(1024,)](*torch.empty(3, 64, device="cuda"), 4096, 4096, 4, 4096),
    "held_parts": lambda: held_parts[(4096,)](*torch.empty(2, 64, device="cuda"), 32768, 8192),
    "chunk_states": sum_chunks,
    "staged": stage,
    "gated": gate,
    "transposed_scores": transpose_scores,
}
