# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportGeneralTypeIssues=false
# (Triton's own types don't pass the strict mode.)
"""Kernels beside the examples that `record.py` compiles, each for one shape of compiler output."""

import triton
import triton.language as tl


@triton.jit(noinline=True)
def shifted_sin(x, y):
    return tl.sin(x) + y


@triton.jit
def atomic_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, eviction_policy="evict_last")
    tl.atomic_add(out_ptr + offsets, x, sem="relaxed")
    tl.atomic_add(out_ptr, tl.sum(x, 0))
    y = tl.load(x_ptr + offsets + n, mask=offsets < n, cache_modifier=".cg")
    tl.store(out_ptr + offsets, y + shifted_sin(tl.sum(y, 0), 1.0), cache_modifier=".cs")


@triton.jit
def tma_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK, BLOCK])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK, BLOCK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    row, col = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        acc = tl.dot(a.load([row, k]), b.load([k, col]), acc)
    c.store([row, col], acc.to(tl.float16))


@triton.jit
def while_kernel(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = a_ptr + i[:, None] * K + i[None, :]
    b = b_ptr + i[:, None] * K + i[None, :]
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    k = 0
    while k < K:
        acc = tl.dot(tl.load(a), tl.load(b), acc, input_precision=PRECISION)
        a += BLOCK
        b += BLOCK * K
        k += BLOCK
    tl.store(c_ptr + i[:, None] * K + i[None, :], acc)


@triton.jit
def batched_kernel(a_ptr, b_ptr, c_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    offsets = tl.arange(0, 2)[:, None, None] * BLOCK * BLOCK + i[None, :, None] * BLOCK + i[None, None, :]
    tl.store(c_ptr + offsets, tl.dot(tl.load(a_ptr + offsets), tl.load(b_ptr + offsets)))


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, stride, length, BLOCK: tl.constexpr, DIM: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)
    q = tl.load(q_ptr + rows[:, None] * stride + dims[None, :])
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, DIM), tl.float32)
    for start in range(0, length, BLOCK):
        keys = tl.load(k_ptr + (start + cols)[None, :] * stride + dims[:, None])
        scores = tl.dot(q, keys)
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - new_largest[:, None])
        shrink = tl.exp2(largest - new_largest)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None]
        values = tl.load(v_ptr + (start + cols)[:, None] * stride + dims[None, :])
        acc = tl.dot(weights.to(values.dtype), values, acc)
        largest = new_largest
    acc = acc / total[:, None]
    tl.store(out_ptr + rows[:, None] * stride + dims[None, :], acc.to(out_ptr.dtype.element_ty))


# The same code as the example's, under other names and further down the page.
@triton.jit
def row_softmax(source_ptr, target_ptr, stride, width, BLOCK: tl.constexpr):
    # One program for each row.
    program = tl.program_id(0).to(tl.int64)

    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(source_ptr + program * stride + columns, mask=inside, other=-float("inf")).to(tl.float32)

    e = tl.exp(x - tl.max(x, axis=0))
    # A reciprocal and a product instead of a division for each element.
    y = e * (1.0 / tl.sum(e, axis=0))
    tl.store(target_ptr + program * stride + columns, y.to(target_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scalar_kernel(x_ptr, out_ptr, n, COUNT: tl.constexpr):
    total = 0.0
    for index in tl.static_range(COUNT):
        total += tl.load(x_ptr + index * n)
    offsets = tl.arange(0, 64)
    for index in tl.static_range(COUNT):
        tl.store(out_ptr + index * n + offsets, total + tl.load(x_ptr + index * n + 1) * offsets)
