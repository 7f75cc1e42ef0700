# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Loops around loads: which the compiler makes a pipeline of asynchronous copies of, and which it doesn't."""

import torch
import triton
import triton.language as tl

F16 = torch.float16


@triton.jit
def looped(
    a_ptr, b_ptr, c_ptr, index_ptr, K, a_stride, stride,
    M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """`a`: (M, K), `b`: (K, N), both fp16 and row-major; what is in the loop depends on `HOW`."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    if HOW == "rounded":
        a_stride = (a_stride // 8) * 8
        K = (K // 8) * 8
    a = a_ptr + m[:, None] * a_stride + k[None, :]
    b = b_ptr + k[:, None] * stride + n[None, :]
    total = tl.zeros((M, N), tl.float32)
    if HOW == "for":
        for _ in range(0, K, BLOCK):
            total = tl.dot(tl.load(a), tl.load(b), total)
            a += BLOCK
            b += BLOCK * stride
    elif HOW == "while":
        start = 0
        while start < K:
            total = tl.dot(tl.load(a), tl.load(b), total)
            a += BLOCK
            b += BLOCK * stride
            start += BLOCK
    elif HOW == "unrolled":
        for _ in tl.static_range(STEPS):
            total = tl.dot(tl.load(a), tl.load(b), total)
            a += BLOCK
            b += BLOCK * stride
    elif HOW == "prefetched":
        left, right = tl.load(a), tl.load(b)
        for _ in range(0, K, BLOCK):
            a += BLOCK
            b += BLOCK * stride
            next_left, next_right = tl.load(a), tl.load(b)
            total = tl.dot(left, right, total)
            left, right = next_left, next_right
    elif HOW == "prefetched twice":
        left, right = tl.load(a), tl.load(b)
        a += BLOCK
        b += BLOCK * stride
        next_left, next_right = tl.load(a), tl.load(b)
        for _ in range(0, K, BLOCK):
            a += BLOCK
            b += BLOCK * stride
            last_left, last_right = tl.load(a), tl.load(b)
            total = tl.dot(left, right, total)
            left, right = next_left, next_right
            next_left, next_right = last_left, last_right
    elif HOW == "branch":
        for start in range(0, K, BLOCK):
            if start % 128 == 0:
                total = tl.dot(tl.load(a), tl.load(b), total)
            a += BLOCK
            b += BLOCK * stride
    elif HOW == "masked" or HOW == "rounded":
        for start in range(0, K, BLOCK):
            left = tl.load(a, mask=k[None, :] < K - start, other=0.0)
            right = tl.load(b, mask=k[:, None] < K - start, other=0.0)
            total = tl.dot(left, right, total)
            a += BLOCK
            b += BLOCK * stride
    elif HOW == "filled":
        for start in range(0, K, BLOCK):
            total = tl.dot(tl.load(a, mask=k[None, :] < K - start, other=1.0), tl.load(b), total)
            a += BLOCK
            b += BLOCK * stride
    elif HOW == "indirect":
        for start in range(0, K, BLOCK):
            rows = tl.load(index_ptr + start + k)
            total = tl.dot(tl.load(a), tl.load(b_ptr + rows[:, None] * stride + n[None, :]), total)
            a += BLOCK
    elif HOW == "nested":
        for _ in range(STEPS):
            for _ in range(0, K, BLOCK):
                total = tl.dot(tl.load(a), tl.load(b), total)
                a += BLOCK
                b += BLOCK * stride
            total = total * 0.5
    elif HOW == "summed":
        sums = tl.zeros((M,), tl.float32)
        for _ in range(0, K, BLOCK):
            left = tl.load(a)
            sums += tl.sum(left.to(tl.float32), 1)
            total = tl.dot(left, tl.load(b), total)
            a += BLOCK
            b += BLOCK * stride
        total = total + sums[:, None]
    elif HOW == "summed by dot":
        wide_sums = tl.zeros((M, 16), tl.float32)
        ones = tl.full((BLOCK, 16), 1.0, tl.float16)
        for _ in range(0, K, BLOCK):
            left = tl.load(a)
            wide_sums = tl.dot(left, ones, wide_sums)
            total = tl.dot(left, tl.load(b), total)
            a += BLOCK
            b += BLOCK * stride
        total = total + tl.max(wide_sums, 1)[:, None]
    tl.store(c_ptr + m[:, None] * stride + n[None, :], total)


def loop(how, m=64, n=64, block=64, *, k=1024, a_stride=1024, stride=1024, steps=4, **options):
    """One launch of `looped`."""
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    c = torch.empty(64, device="cuda")
    index = torch.empty(64, dtype=torch.int32, device="cuda")
    looped[(1024,)](a, b, c, index, k, a_stride, stride, m, n, block, how, steps, **options)


@triton.jit
def summed_rows(x_ptr, out_ptr, width, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """`x`: (programs, width) fp32."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, width, BLOCK, num_stages=STAGES):
        total += tl.load(x_ptr + tl.program_id(0) * width + start + i)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total))


def sum_rows(stages):
    summed_rows[(1024,)](*torch.empty(2, 64, device="cuda"), 4096, 512, stages)


LAUNCHES = {
    "for": lambda: loop("for"),
    "one_stage": lambda: loop("for", num_stages=1),
    "while": lambda: loop("while"),
    "unrolled": lambda: loop("unrolled"),
    "prefetched": lambda: loop("prefetched"),
    "prefetched_twice": lambda: loop("prefetched twice"),
    "branch": lambda: loop("branch"),
    "rows": lambda: sum_rows(None),
    "rows_in_stages": lambda: sum_rows(3),
    "masked": lambda: loop("masked"),
    "odd_k": lambda: loop("masked", k=1000),
    "odd_stride": lambda: loop("for", a_stride=1000),
    "odd_stride_and_k": lambda: loop("masked", a_stride=1000, k=1000),
    "rounded": lambda: loop("rounded", a_stride=1000, k=1000),
    "filled": lambda: loop("filled"),
    "indirect_in_two_stages": lambda: loop("indirect", num_stages=2),
    "indirect_in_four_stages": lambda: loop("indirect", num_stages=4),
    "nested": lambda: loop("nested"),
    "summed": lambda: loop("summed"),
    "summed_by_dot": lambda: loop("summed by dot"),
}
