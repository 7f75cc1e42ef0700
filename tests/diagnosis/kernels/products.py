# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Products in nests, with wrapped indices, in fp8, and of scores; results stored in loops; rows summed and sorted."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

F16, F8 = torch.float16, torch.float8_e4m3fn


@triton.jit
def eighths(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr, PASSED: tl.constexpr):
    """`a`: (S, K), `b`: (S, K), fp8: a times b transposed."""
    i = tl.arange(0, S)
    a = a_ptr + i[:, None] * stride + i[None, :]
    b = b_ptr + i[None, :] * stride + i[:, None]
    total = tl.zeros((S, S), tl.float32)
    for _ in range(0, K, S):
        if PASSED:
            total = tl.dot(tl.load(a), tl.load(b), total)
        else:
            total += tl.dot(tl.load(a), tl.load(b))
        a += S
        b += S
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def of_eighths(passed):
    a, b = torch.empty(2, 64, dtype=F8, device="cuda")
    eighths[(1024,)](a, b, torch.empty(64, device="cuda"), 1024, 1024, 128, passed, num_warps=8)


@triton.jit
def squared(a, c_ptr, K, stride, S: tl.constexpr, TURNED: tl.constexpr):
    """Tiles of fp8 times themselves, or times themselves transposed."""
    i = tl.arange(0, S)
    total = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        tile = a.load([0, k])
        total = tl.dot(tile, tile.T if TURNED else tile, total)
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def square(turned):
    a = TensorDescriptor.from_tensor(torch.empty(256, 256, dtype=F8, device="cuda"), [128, 128])
    squared[(1024,)](a, torch.empty(64, device="cuda"), 1024, 1024, 128, turned, num_warps=8)


@triton.jit
def taps(a_ptr, b_ptr, c_ptr, K, stride, TAPS: tl.constexpr, S: tl.constexpr, NESTED: tl.constexpr):
    """The sum of TAPS products of (S, K) and (K, S), which lie behind one another: in two loops, or in one."""
    i = tl.arange(0, S)
    a = a_ptr + i[:, None] * stride + i[None, :]
    b = b_ptr + i[:, None] * stride + i[None, :]
    total = tl.zeros((S, S), tl.float32)
    if NESTED:
        for _ in range(TAPS):
            for _ in range(0, K, S):
                total = tl.dot(tl.load(a), tl.load(b), total)
                a += S
                b += S * stride
    else:
        for _ in range(0, TAPS * K, S):
            total = tl.dot(tl.load(a), tl.load(b), total)
            a += S
            b += S * stride
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def tap(nested):
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    taps[(1024,)](a, b, torch.empty(64, device="cuda"), 1024, 1024, 9, 64, nested)


@triton.jit
def wrapped(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr, WRAPPED: tl.constexpr):
    """`a`: (S, K), `b`: (K, S), fp16."""
    i = tl.arange(0, S)
    total = tl.zeros((S, S), tl.float32)
    for start in range(0, K, S):
        at = start + i
        if WRAPPED:
            at = (start + i) % K
        left = tl.load(a_ptr + i[:, None] * stride + at[None, :])
        right = tl.load(b_ptr + at[:, None] * stride + i[None, :])
        total = tl.dot(left, right, total)
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total)


def wrap(wrapping):
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    wrapped[(1024,)](a, b, torch.empty(64, device="cuda"), 1000, 1024, 64, wrapping)


@triton.jit
def long_sums(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    """`x`: (programs, width) fp32."""
    x = x_ptr + tl.program_id(0) * width + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        total += tl.load(x + start)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total))


def sum_long():
    long_sums[(4096,)](*torch.empty(2, 64, device="cuda"), 4096, 512)


@triton.jit
def short_sums(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """`x`: (programs, BLOCK) fp32."""
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.program_id(0), tl.sum(x))


def sum_short():
    short_sums[(4096,)](*torch.empty(2, 64, device="cuda"), 1024, num_warps=8)


@triton.jit
def in_order(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """`x`, `y`: (programs, BLOCK) fp32."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.sort(x))


def sort():
    in_order[(4096,)](*torch.empty(2, 64, device="cuda"), 512, num_warps=4)


def sort_by(**options):
    in_order[(4096,)](*torch.empty(2, 64, device="cuda"), 512, **options)


@triton.jit
def scores(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    """Sums of exp2(a times b) by tiles, fp16: the product is used at once, and no sum of several steps."""
    i = tl.arange(0, S)
    left = tl.load(a_ptr + i[:, None] * stride + i[None, :])
    sums = tl.zeros((S, S), tl.float32)
    for start in range(0, K, S):
        score = tl.zeros((S, S), tl.float32)
        score += tl.dot(left, tl.load(b_ptr + (start + i)[None, :] * stride + i[:, None]))
        sums += tl.exp2(score)
    tl.store(c_ptr + i[:, None] * stride + i[None, :], sums.to(tl.float16))


@triton.jit
def attended(total, left, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    i = tl.arange(0, S)
    for start in range(0, K, S):
        score = tl.dot(left, tl.load(b_ptr + (start + i)[None, :] * stride + i[:, None]))
        weight = tl.exp2(score).to(tl.float16)
        total = tl.dot(weight, tl.load(c_ptr + (start + i)[:, None] * stride + i[None, :]), total)
    return total


@triton.jit
def helped_attention(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    """Both products stand in another function."""
    i = tl.arange(0, S)
    left = tl.load(a_ptr + i[:, None] * stride + i[None, :])
    total = attended(tl.zeros((S, S), tl.float32), left, b_ptr, c_ptr, K, stride, S)
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total.to(tl.float16))


@triton.jit
def stored_in_loop(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr, EACH: tl.constexpr):
    """Products of (S, K) and (K, S), fp16, one after the other: stored when one is done, or all sums on the way."""
    i = tl.arange(0, S)
    at = i[:, None] * stride + i[None, :]
    total = tl.zeros((S, S), tl.float32)
    for step in range(0, K):
        if EACH:
            tl.store(c_ptr + step * S * stride + at, total.to(tl.float16))
        total = tl.dot(tl.load(a_ptr + step * S + at), tl.load(b_ptr + step * S * stride + at), total)
        if not EACH:  # noqa: SIM102  this one is settled when it is compiled
            if step % 8 == 7:
                tl.store(c_ptr + step * S * stride + at, total.to(tl.float16))
                total = tl.zeros((S, S), tl.float32)
    if EACH:
        tl.store(c_ptr + K * S * stride + at, total.to(tl.float16))


@triton.jit
def widened(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr, HOW: tl.constexpr):
    """`a`: (S, K), `b`: (K, S), fp16; multiplied as fp32 but for `as_they_are`, and `once` without a loop."""
    i = tl.arange(0, S)
    a = a_ptr + i[:, None] * stride + i[None, :]
    b = b_ptr + i[:, None] * stride + i[None, :]
    total = tl.zeros((S, S), tl.float32)
    if HOW == "once":
        total = tl.dot(tl.load(a).to(tl.float32), tl.load(b).to(tl.float32), total)
    else:
        for _ in range(0, K, S):
            left = tl.load(a)
            right = tl.load(b)
            if HOW == "widened":
                wide = left.to(tl.float32)
                total = tl.dot(wide, right.to(tl.float32), total)
            else:
                total = tl.dot(left, right, total)
            a += S
            b += S * stride
    tl.store(c_ptr + i[:, None] * stride + i[None, :], total.to(tl.float16))


def halves(kernel, *arguments, **options):
    kernel[(1024,)](*torch.empty(3, 64, dtype=F16, device="cuda"), *arguments, **options)


LAUNCHES = {
    "scores": lambda: halves(scores, 1024, 1024, 64),
    "helped_attention": lambda: halves(helped_attention, 1024, 1024, 64),
    "stored_now_and_then": lambda: halves(stored_in_loop, 1024, 1024, 64, False),
    "stored_in_each_step": lambda: halves(stored_in_loop, 1024, 1024, 64, True),
    "widened": lambda: halves(widened, 1024, 1024, 64, "widened"),
    "not_widened": lambda: halves(widened, 1024, 1024, 64, "as_they_are"),
    "widened_once": lambda: halves(widened, 1024, 1024, 64, "once"),
    "eighths_added": lambda: of_eighths(False),
    "eighths_passed": lambda: of_eighths(True),
    "tile_both_ways": lambda: square(False),
    "tile_turned": lambda: square(True),
    "taps_nested": lambda: tap(True),
    "taps_flat": lambda: tap(False),
    "index_wrapped": lambda: wrap(True),
    "index_stepped": lambda: wrap(False),
    "long_rows": sum_long,
    "short_rows": sum_short,
    "sorted": sort,
    "sorted_by_one": lambda: sort_by(num_warps=1),
}
