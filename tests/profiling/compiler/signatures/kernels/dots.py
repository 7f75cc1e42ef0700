# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Products of tiles: what keeps them from tensor cores, or from overlapping, and what doesn't."""

import torch
import triton
import triton.language as tl

F16, F32, F8, I8 = torch.float16, torch.float32, torch.float8_e4m3fn, torch.int8
ACCUMULATORS = {tl.float32: F32, tl.float16: F16, tl.int32: torch.int32}


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, K, stride,
    M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
    B_BY_K: tl.constexpr, PRECISION: tl.constexpr, TYPE: tl.constexpr, IMPRECISE: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    """`a`: (M, K) row-major; `b`: (K, N), its rows contiguous, or its columns with `B_BY_K`."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    a = a_ptr + m[:, None] * stride + k[None, :]
    b = b_ptr + (n[None, :] * stride + k[:, None] if B_BY_K else k[:, None] * stride + n[None, :])
    step = BLOCK if B_BY_K else BLOCK * stride
    total = tl.zeros((M, N), TYPE)
    for _ in range(0, K, BLOCK):
        if HOW == "scaled":
            total = total * 0.5
        if HOW == "sum of two":
            total += tl.dot(tl.load(a), tl.load(b))
        else:
            total = tl.dot(
                tl.load(a), tl.load(b), total,
                input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=TYPE,
            )  # fmt: skip
        if HOW == "stored":
            tl.store(c_ptr + m[:, None] * stride + n[None, :], total)
        a += BLOCK
        b += step
    if HOW == "scaled afterwards":
        total = total * 0.5
    tl.store(c_ptr + m[:, None] * stride + n[None, :], total)


def multiply(
    m=64, n=64, block=64, *,
    of=F16, out=tl.float32, to=None, b_by_k=False, precision="tf32", imprecise=None, how="", **options,
):  # fmt: skip
    """One launch of `product`, with everything aligned."""
    a, b = torch.empty(64, dtype=of, device="cuda"), torch.empty(64, dtype=of, device="cuda")
    c = torch.empty(64, dtype=to or ACCUMULATORS[out], device="cuda")
    product[(1024,)](a, b, c, 1024, 1024, m, n, block, b_by_k, precision, out, imprecise, how, **options)


@triton.jit
def swapped(a_ptr, b_ptr, c_ptr, K, stride, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    """The transposed product: what was N is M."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    a = a_ptr + m[None, :] * stride + k[:, None]
    b = b_ptr + k[None, :] * stride + n[:, None]
    total = tl.zeros((N, M), tl.float32)
    for _ in range(0, K, BLOCK):
        total = tl.dot(tl.load(b), tl.load(a), total)
        a += BLOCK
        b += BLOCK * stride
    tl.store(c_ptr + m[None, :] * stride + n[:, None], total)


def multiply_swapped(m, n, block):
    a, b, c = torch.empty(3, 64, dtype=F16, device="cuda")
    swapped[(1024,)](a, b, c, 1024, 1024, m, n, block)


@triton.jit
def batched(a_ptr, b_ptr, c_ptr, B: tl.constexpr, S: tl.constexpr):
    """`a`, `b`, `c`: (B, S, S), in one operation."""
    i, j = tl.arange(0, S)[None, :, None] * S, tl.arange(0, S)[None, None, :]
    at = tl.arange(0, B)[:, None, None] * S * S + i + j
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


@triton.jit
def one_of_a_batch(a_ptr, b_ptr, c_ptr, S: tl.constexpr):
    """`a`, `b`, `c`: (programs, S, S)."""
    at = tl.program_id(0) * S * S + tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


def halves(kernel, *constants, **options):
    """One launch on three fp16 tensors."""
    kernel[(1024,)](*torch.empty(3, 64, dtype=F16, device="cuda"), *constants, **options)


@triton.jit
def dequantized(
    a_ptr,
    w_ptr,
    scale_ptr,
    c_ptr,
    K,
    stride,
    M: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    FIRST: tl.constexpr,
):
    """`a`: (M, K) fp16; `w`: (N, K) int8; the weights as the first operand if `FIRST`."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    a = a_ptr + m[:, None] * stride + k[None, :]
    if FIRST:
        w = w_ptr + n[:, None] * stride + k[None, :]
        total = tl.zeros((N, M), tl.float32)
        for _ in range(0, K, BLOCK):
            total = tl.dot(tl.load(w).to(tl.float16), tl.load(a).T, total)
            a += BLOCK
            w += BLOCK
        total = total * tl.load(scale_ptr + n)[:, None]
        tl.store(c_ptr + m[None, :] * stride + n[:, None], total.to(tl.float16))
    else:
        w = w_ptr + n[None, :] * stride + k[:, None]
        scale = tl.load(scale_ptr + n)[None, :]
        total = tl.zeros((M, N), tl.float32)
        for _ in range(0, K, BLOCK):
            total = tl.dot(tl.load(a), (tl.load(w).to(tl.float32) * scale).to(tl.float16), total)
            a += BLOCK
            w += BLOCK
        tl.store(c_ptr + m[:, None] * stride + n[None, :], total.to(tl.float16))


def dequantize(first):
    a, scale, c = torch.empty(3, 64, dtype=F16, device="cuda")
    w = torch.empty(64, dtype=I8, device="cuda")
    dequantized[(1024,)](a, w, scale, c, 1024, 1024, 64, 64, 64, first)


@triton.jit
def squared_transposed(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr, TRANSPOSED: tl.constexpr):
    """A dot of a dot's result: of its transpose, or of the transposed product."""
    i = tl.arange(0, S)
    at = i[:, None] * stride + i[None, :]
    by_column = i[None, :] * stride + i[:, None]
    total = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        if TRANSPOSED:
            left = tl.dot(tl.load(b_ptr + by_column + k), tl.load(a_ptr + by_column + k)).to(tl.float16)
            right = tl.load(b_ptr + at + k)
            total = tl.dot(left, right, total)
        else:
            left = tl.dot(tl.load(a_ptr + at + k), tl.load(b_ptr + at + k)).to(tl.float16)
            right = tl.load(b_ptr + at + k)
            total = tl.dot(tl.trans(left), right, total)
    tl.store(c_ptr + at, total)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, length, stride, S: tl.constexpr, D: tl.constexpr):
    """One block of rows of softmax(q k^T) v, in place of q; all (length, D) fp16."""
    i, j, d = tl.arange(0, S), tl.arange(0, S), tl.arange(0, D)
    q_at = q_ptr + (tl.program_id(0) * S + i)[:, None] * stride + d[None, :]
    q = tl.load(q_at)
    top = tl.full((S,), -1e30, tl.float32)
    norm = tl.zeros((S,), tl.float32)
    total = tl.zeros((S, D), tl.float32)
    for start in range(0, length, S):
        scores = tl.dot(q, tl.load(k_ptr + (start + j)[None, :] * stride + d[:, None]))
        new = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(top - new)
        norm = norm * shrink + tl.sum(weights, 1)
        v = tl.load(v_ptr + (start + j)[:, None] * stride + d[None, :])
        total = tl.dot(weights.to(tl.float16), v, total * shrink[:, None])
        top = new
    tl.store(q_at, (total / norm[:, None]).to(tl.float16))


LAUNCHES = {
    "product": multiply,
    "two_warps": lambda: multiply(num_warps=2),
    "m_32": lambda: multiply(32, 128),
    "swapped": lambda: multiply_swapped(32, 128, 64),
    "n_8": lambda: multiply(64, 8),
    "n_16": lambda: multiply(64, 16),
    "ieee": lambda: multiply(of=F32, b_by_k=True, block=16, precision="ieee"),
    "tf32": lambda: multiply(of=F32, b_by_k=True, block=32),
    "tf32x3": lambda: multiply(of=F32, b_by_k=True, block=32, precision="tf32x3"),
    "tf32_by_n": lambda: multiply(of=F32, block=32),
    "fp8_by_n": lambda: multiply(of=F8),
    "fp8": lambda: multiply(of=F8, b_by_k=True),
    "fp8_imprecise_0": lambda: multiply(of=F8, b_by_k=True, imprecise=0),
    "fp8_imprecise_64": lambda: multiply(128, 128, 128, of=F8, b_by_k=True, imprecise=64),
    "fp16_sum": lambda: multiply(out=tl.float16),
    "int8": lambda: multiply(of=I8, out=tl.int32, b_by_k=True),
    "scaled": lambda: multiply(how="scaled"),
    "scaled_afterwards": lambda: multiply(how="scaled afterwards"),
    "stored": lambda: multiply(how="stored"),
    "weights_second": lambda: dequantize(False),
    "weights_first": lambda: dequantize(True),
    "batched": lambda: halves(batched, 2, 64),
    "one_of_a_batch": lambda: halves(one_of_a_batch, 64),
    "sum_of_two": lambda: multiply(how="sum of two"),
    "wide_tile": lambda: multiply(128, 256, 32, num_warps=4),
    "wide_tile_of_eight_warps": lambda: multiply(128, 256, 32, num_warps=8),
    "large_tile": lambda: multiply(128, 128),
    "few_registers": lambda: multiply(128, 128, maxnreg=152),
    "two_ctas": lambda: multiply(128, 128, num_ctas=2),
    "seven_stages": lambda: multiply(128, 128, num_stages=7),
    "eight_stages": lambda: multiply(128, 128, num_stages=8),
    "k_32": lambda: multiply(block=32),
    "k_16": lambda: multiply(block=16),
    "k_16_to_halves": lambda: multiply(block=16, to=F16),
    "transposed_result": lambda: halves(squared_transposed, 1024, 1024, 64, False),
    "transposed_product": lambda: halves(squared_transposed, 1024, 1024, 64, True),
    "attention": lambda: halves(attention, 1024, 1024, 64, 64),
}
