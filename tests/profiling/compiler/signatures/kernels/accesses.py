# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Accesses to global memory, wide and narrow, and changes of layout between them."""

import torch
import triton
import triton.language as tl

F16, F32 = torch.float16, torch.float32


@triton.jit
def moved(x_ptr, y_ptr, index_ptr, n, stride, BLOCK: tl.constexpr, HOW: tl.constexpr, DIVISOR: tl.constexpr):
    """One block of `x` to `y`, at places that depend on `HOW`."""
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * BLOCK + i
    if HOW == "plain":
        tl.store(y_ptr + at, tl.load(x_ptr + at))
    elif HOW == "masked":
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
    elif HOW == "full blocks apart":
        if tl.program_id(0) * BLOCK + BLOCK <= n:
            tl.store(y_ptr + at, tl.load(x_ptr + at))
        else:
            tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
    elif HOW == "rows":
        tl.store(y_ptr + at, tl.load(x_ptr + tl.program_id(0) * stride + i))
    elif HOW == "rows of eights":
        tl.store(y_ptr + at, tl.load(x_ptr + tl.program_id(0) * (stride // 8 * 8) + i))
    elif HOW == "rows of hinted stride":
        tl.store(y_ptr + at, tl.load(x_ptr + tl.program_id(0) * tl.multiple_of(stride, 8) + i))
    elif HOW == "rows of assumed stride":
        tl.assume(stride % 8 == 0)
        tl.store(y_ptr + at, tl.load(x_ptr + tl.program_id(0) * stride + i))
    elif HOW == "hinted offsets":
        at = tl.max_contiguous(tl.multiple_of(at, BLOCK), BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
    elif HOW == "strided":
        tl.store(y_ptr + at, tl.load(x_ptr + at * stride))
    elif HOW == "gathered":
        tl.store(y_ptr + at, tl.load(x_ptr + tl.load(index_ptr + at)))
    elif HOW == "gathered rows":
        row = tl.load(index_ptr + tl.program_id(0)) * BLOCK
        tl.store(y_ptr + at, tl.load(x_ptr + row + i))
    elif HOW == "pairs":
        even, odd = tl.load(x_ptr + 2 * at), tl.load(x_ptr + 2 * at + 1)
        tl.store(y_ptr + 2 * at, -odd)
        tl.store(y_ptr + 2 * at + 1, even)
    elif HOW == "pairs together":
        both = 2 * tl.program_id(0) * BLOCK + tl.arange(0, 2 * BLOCK)
        even, odd = tl.split(tl.reshape(tl.load(x_ptr + both), (BLOCK, 2)))
        tl.store(y_ptr + both, tl.interleave(-odd, even))
    elif HOW == "modulo":
        tl.store(y_ptr + at, tl.load(x_ptr + at // n * stride + at % n))
    elif HOW == "constant modulo":
        tl.store(y_ptr + at, tl.load(x_ptr + at // DIVISOR * stride + at % DIVISOR))
    elif HOW == "streamed":
        tl.store(y_ptr + at, tl.load(x_ptr + at, eviction_policy="evict_first"), cache_modifier=".cs")


def move(how, block=1024, *, of=F32, n=1 << 20, stride=1024, first=0, divisor=1, **options):
    """One launch of `moved`; `x` begins `first` elements after an aligned address."""
    x, y = torch.empty(2, 64, dtype=of, device="cuda")
    index = torch.empty(64, dtype=torch.int32, device="cuda")
    moved[(4096,)](x[first:], y, index, n, stride, block, how, divisor, **options)


@triton.jit
def any_stride(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at * stride))


@triton.jit(do_not_specialize=["stride"])
def unspecialized(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at * stride))


def stride_of_one(kernel):
    kernel[(4096,)](*torch.empty(2, 64, device="cuda"), 1, 1024)


@triton.jit
def transposed(x_ptr, y_ptr, S: tl.constexpr, TRANSPOSED: tl.constexpr):
    """`x`, `y`: (S, S) fp32."""
    at = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
    by_column = tl.arange(0, S)[None, :] * S + tl.arange(0, S)[:, None]
    tl.store(y_ptr + (by_column if TRANSPOSED else at), tl.load(x_ptr + at))


def copy_square(by_column):
    transposed[(4096,)](*torch.empty(2, 64, device="cuda"), 64, by_column)


@triton.jit
def converted(x_ptr, y_ptr, n, S: tl.constexpr, IN_LOOP: tl.constexpr):
    """Sums of (S, S) tiles, transposed: each of them, or once."""
    at = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
    by_column = tl.arange(0, S)[None, :] * S + tl.arange(0, S)[:, None]
    total = tl.zeros((S, S), tl.float32)
    for tile in range(n):
        total += tl.load(x_ptr + tile * S * S + at)
        if IN_LOOP:
            tl.store(y_ptr + tile * S * S + by_column, total)
    tl.store(y_ptr + by_column, total)


def convert(in_loop):
    converted[(4096,)](*torch.empty(2, 64, device="cuda"), 16, 32, in_loop)


@triton.jit
def row_sum(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """`x`: (programs, BLOCK) fp32."""
    tl.store(y_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))))


def sum_row(num_warps):
    row_sum[(4096,)](*torch.empty(2, 64, device="cuda"), 1024, num_warps=num_warps)


@triton.jit
def sum_in_loop(x_ptr, y_ptr, width, BLOCK: tl.constexpr, ONCE: tl.constexpr):
    """`x`: (programs, width) fp32."""
    x = x_ptr + tl.program_id(0) * width + tl.arange(0, BLOCK)
    if ONCE:
        partial = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, width, BLOCK):
            partial += tl.load(x + start)
        total = tl.sum(partial)
    else:
        total = 0.0
        for start in range(0, width, BLOCK):
            total += tl.sum(tl.load(x + start))
    tl.store(y_ptr + tl.program_id(0), total)


def sum_chunks(once):
    sum_in_loop[(4096,)](*torch.empty(2, 64, device="cuda"), 4096, 512, once)


@triton.jit
def ordered(x_ptr, y_ptr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    if HOW == "sort":
        tl.store(y_ptr + i, tl.sort(x))
    elif HOW == "cumsum":
        tl.store(y_ptr + i, tl.cumsum(x))
    elif HOW == "maximum":
        tl.store(y_ptr, tl.max(x))


def order(how, block=256):
    ordered[(4096,)](*torch.empty(2, 64, device="cuda"), block, how)


LAUNCHES = {
    "plain": lambda: move("plain"),
    "even_rows": lambda: move("rows", of=F16),
    "odd_rows": lambda: move("rows", of=F16, stride=1000),
    "rows_of_eights": lambda: move("rows of eights", of=F16, stride=1000),
    "rows_of_hinted_stride": lambda: move("rows of hinted stride", of=F16, stride=1000),
    "rows_of_assumed_stride": lambda: move("rows of assumed stride", of=F16, stride=1000),
    "hinted_offsets": lambda: move("hinted offsets", n=1_000_003),
    "masked_access": lambda: move("masked"),
    "odd_limit": lambda: move("masked", n=1_000_003),
    "full_blocks_apart": lambda: move("full blocks apart", n=1_000_003),
    "slice": lambda: move("plain", first=1),
    "aligned_slice": lambda: move("plain", first=4),
    "stride_of_one": lambda: stride_of_one(any_stride),
    "unspecialized_stride": lambda: stride_of_one(unspecialized),
    "stride_of_two": lambda: move("strided", stride=2),
    "small_block": lambda: move("plain", 128),
    "small_block_of_halves": lambda: move("plain", 512, of=F16),
    "many_warps": lambda: move("plain", 1024, num_warps=16),
    "large_enough_block": lambda: move("plain", 512),
    "gathered": lambda: move("gathered"),
    "gathered_rows": lambda: move("gathered rows"),
    "pairs": lambda: move("pairs", of=F16),
    "pairs_together": lambda: move("pairs together", of=F16),
    "modulo": lambda: move("modulo", n=1024),
    "odd_modulo": lambda: move("modulo", n=1000),
    "constant_modulo": lambda: move("constant modulo", divisor=1024),
    "constant_odd_modulo": lambda: move("constant modulo", divisor=1000),
    "streamed": lambda: move("streamed"),
    "transposed_copy": lambda: copy_square(True),
    "straight_copy": lambda: copy_square(False),
    "converted_in_loop": lambda: convert(True),
    "converted_once": lambda: convert(False),
    "row_of_eight_warps": lambda: sum_row(8),
    "row_of_one_warp": lambda: sum_row(1),
    "sums_in_loop": lambda: sum_chunks(False),
    "sum_once": lambda: sum_chunks(True),
    "sort": lambda: order("sort"),
    "cumsum": lambda: order("cumsum"),
    "maximum": lambda: order("maximum"),
}
