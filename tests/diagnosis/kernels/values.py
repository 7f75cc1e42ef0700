# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Kernels whose fault is how values are addressed, computed or added up."""

import torch
import triton
import triton.language as tl

F16, F32, I32 = torch.float16, torch.float32, torch.int32


@triton.jit
def tiles(x_ptr, y_ptr, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """(ROWS, COLUMNS) of `x` to `y`, fp32 and row-major."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * stride + tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x * 2)


@triton.jit
def columns_first(x_ptr, y_ptr, stride, S: tl.constexpr):
    """(S, S) of `x` to `y`, fp32, whose first axis is the contiguous one."""
    row = tl.arange(0, S)
    column = tl.program_id(0) * S + tl.arange(0, S)
    at = row[:, None] + column[None, :] * stride
    tl.store(y_ptr + at, tl.load(x_ptr + at) * 2)


def move_columns():
    columns_first[(4096,)](*torch.empty(2, 64, device="cuda"), 1024, 32)


def move_tiles(rows, columns):
    tiles[(4096,)](*torch.empty(2, 64, device="cuda"), 64, rows, columns)


@triton.jit
def partners(x_ptr, y_ptr, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """The element whose index differs in one bit, for each; with a step of a whole block, that of a block."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if STEP < BLOCK:
        other = tl.load(x_ptr + (at ^ STEP))
    else:
        other = tl.load(x_ptr + (tl.program_id(0) ^ (STEP // BLOCK)) * BLOCK + tl.arange(0, BLOCK))
    tl.store(y_ptr + at, other)


def exchange(step):
    partners[(4096,)](*torch.empty(2, 64, device="cuda"), 512, step)


@triton.jit
def kept(x_ptr, keep_ptr, y_ptr, BLOCK: tl.constexpr):
    """`x` where `keep`, a tensor of truths, says so."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(keep_ptr + at)
    tl.store(y_ptr + at, tl.where(keep, tl.load(x_ptr + at), 0.0))


def keep(block):
    x, y = torch.empty(2, 64, device="cuda")
    kept[(4096,)](x, torch.empty(64, dtype=torch.bool, device="cuda"), y, block)


@triton.jit
def column_sum(x_ptr, y_ptr, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr, APART: tl.constexpr):
    """Sums of the columns of `x`: (ROWS, any) fp32; a column for each program, or COLUMNS of them."""
    row = tl.arange(0, ROWS)
    if APART:
        column = tl.program_id(0)
        x = tl.load(x_ptr + row * stride + column)
        tl.store(y_ptr + column, tl.sum(x))
    else:
        columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        x = tl.load(x_ptr + row[:, None] * stride + columns[None, :])
        tl.store(y_ptr + columns, tl.sum(x, 0))


def sum_columns(apart):
    column_sum[(4096,)](*torch.empty(2, 64, device="cuda"), 1024, 1024 if apart else 64, 32, apart)


@triton.jit
def wide_tile(x_ptr, y_ptr, stride, S: tl.constexpr, WIDE: tl.constexpr):
    """(S, S) of fp32, at offsets of 64 bits, or at such a base."""
    i = tl.arange(0, S)
    if WIDE:
        row = (tl.program_id(0) * S + i).to(tl.int64)
        at = row[:, None] * stride + i[None, :]
        tl.store(y_ptr + at, tl.load(x_ptr + at))
    else:
        base = tl.program_id(0).to(tl.int64) * S * stride
        at = i[:, None] * stride + i[None, :]
        tl.store(y_ptr + base + at, tl.load(x_ptr + base + at))


def move_wide(wide):
    wide_tile[(4096,)](*torch.empty(2, 64, device="cuda"), 1024, 32, wide)


@triton.jit
def masked_steps(x_ptr, y_ptr, S: tl.constexpr, APART: tl.constexpr):
    """Sums of (S, S) tiles up to the diagonal, element by element: masks in all of them, or in the last."""
    i = tl.arange(0, S)
    row = tl.program_id(0) * S + i
    total = tl.zeros((S, S), tl.float32)
    if APART:
        for start in range(0, tl.program_id(0) * S, S):
            total += tl.load(x_ptr + row[:, None] * 4096 + start + i[None, :])
        x = tl.load(x_ptr + row[:, None] * 4096 + tl.program_id(0) * S + i[None, :])
        total += tl.where(i[:, None] >= i[None, :], x, 0.0)
    else:
        for start in range(0, (tl.program_id(0) + 1) * S, S):
            x = tl.load(x_ptr + row[:, None] * 4096 + start + i[None, :])
            total += tl.where(row[:, None] >= start + i[None, :], x, 0.0)
    tl.store(y_ptr + row[:, None] * S + i[None, :], total)


def mask_steps(apart):
    masked_steps[(4096,)](*torch.empty(2, 64, device="cuda"), 32, apart)


@triton.jit
def scaled_and_shifted(x_ptr, y_ptr, scale, shift, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + at) * scale + shift
    tl.store(y_ptr + at, y)


def fused():
    scaled_and_shifted[(4096,)](*torch.empty(2, 64, device="cuda"), 3.0, 4.0, 1024)


def not_fused():
    scaled_and_shifted[(4096,)](*torch.empty(2, 64, device="cuda"), 3.0, 4.0, 1024, enable_fp_fusion=False)


@triton.jit
def halves(x_ptr, y_ptr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """A polynomial of fp16, in fp32 or in fp16."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    if WIDE:
        x = x.to(tl.float32)
    y = ((x * 0.5 + 1.0) * x + 2.0) * x + 3.0
    tl.store(y_ptr + at, y.to(tl.float16))


def polynomial(wide):
    halves[(4096,)](*torch.empty(2, 64, dtype=F16, device="cuda"), 1024, wide)


@triton.jit
def counted(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """`y` plus a block of integers or floats, by atomics."""
    at = tl.program_id(0) % 16 * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.atomic_add(y_ptr + at, x, sem="relaxed")


def count(of):
    counted[(4096,)](*torch.empty(2, 64, dtype=of, device="cuda"), 1024)


@triton.jit
def binned(bin_ptr, y_ptr, BLOCK: tl.constexpr, BINS: tl.constexpr, FIRST: tl.constexpr):
    """How often each of BINS numbers stands in a block."""
    bins = tl.load(bin_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    if FIRST:
        tl.atomic_add(y_ptr + tl.arange(0, BINS), tl.histogram(bins, BINS), sem="relaxed")
    else:
        tl.atomic_add(y_ptr + bins, 1, sem="relaxed")


def bin_numbers(first):
    binned[(4096,)](*torch.empty(2, 64, dtype=I32, device="cuda"), 1024, 128, first)


@triton.jit
def rows_by_index(x_ptr, index_ptr, y_ptr, stride, S: tl.constexpr, NARROW: tl.constexpr):
    """Rows of `x` that an index of 64 bits names: (S, S) of fp32."""
    i = tl.arange(0, S)
    row = tl.load(index_ptr + tl.program_id(0) * S + i)
    if NARROW:
        row = row.to(tl.int32)
    x = tl.load(x_ptr + row[:, None] * stride + i[None, :])
    tl.store(y_ptr + (tl.program_id(0) * S + i)[:, None] * S + i[None, :], x)


def index_rows(narrow):
    x, y = torch.empty(2, 64, device="cuda")
    rows_by_index[(4096,)](x, torch.empty(64, dtype=torch.int64, device="cuda"), y, 1024, 64, narrow)


@triton.jit
def split_product(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr):
    """`a`: (rows, K * splits), `b`: (K * splits, S), fp16 and row-major."""
    i = tl.arange(0, S)
    row = tl.program_id(0) * S + i
    k = tl.program_id(1) * K + i
    a = a_ptr + row[:, None] * stride + k[None, :]
    b = b_ptr + k[:, None] * stride + i[None, :]
    total = tl.zeros((S, S), tl.float32)
    for _ in range(0, K, S):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += S
        b += S * stride
    tl.atomic_add(c_ptr + row[:, None] * stride + i[None, :], total, sem="relaxed")


def split(products):
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    split_product[(products, 4)](a, b, torch.empty(64, device="cuda"), 1024, 1024, 64)


@triton.jit
def awaited(x_ptr, y_ptr, n, BLOCK: tl.constexpr, WAITS: tl.constexpr):
    """Sums of chunks of a row."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + start + i)
        if WAITS:
            tl.debug_barrier()
    tl.store(y_ptr + i, total)


def wait(waits):
    awaited[(4096,)](*torch.empty(2, 64, device="cuda"), 1024, 512, waits)


@triton.jit
def started(x_ptr, start_ptr, y_ptr, stride, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """A block of fp16 for each program, from a place or up to a place that memory tells."""
    i = tl.arange(0, BLOCK)
    start = tl.load(start_ptr + tl.program_id(0))
    row = x_ptr + tl.program_id(0) * stride
    if HOW == "eights":
        start = tl.multiple_of(start, 8)
    if HOW == "counted":
        x = tl.load(row + i, mask=i < start, other=0.0)
    elif HOW == "constant":
        x = tl.load(row + i, mask=i < 1001, other=0.0)
    else:
        x = tl.load(x_ptr + start + i)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + i, x)


def start(how, stride=1024):
    x, y = torch.empty(2, 64, dtype=F16, device="cuda")
    started[(4096,)](x, torch.empty(64, dtype=I32, device="cuda"), y, stride, 1024, how)


@triton.jit
def chosen(x_ptr, keep_ptr, y_ptr, BLOCK: tl.constexpr, SELECTED: tl.constexpr):
    """`x` where `keep` is above zero: (programs * BLOCK,) fp32."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(keep_ptr + at) > 0
    if SELECTED:
        x = tl.load(x_ptr + at)
        x = tl.where(keep, x, 0.0)
    else:
        x = tl.load(x_ptr + at, mask=keep, other=0.0)
    tl.store(y_ptr + at, x)


def choose(selected):
    chosen[(4096,)](*torch.empty(3, 64, device="cuda"), 1024, selected)


LAUNCHES = {
    "started_anywhere": lambda: start("anywhere"),
    "started_at_eights": lambda: start("eights"),
    "counted_odd_rows": lambda: start("counted", 1000),
    "odd_rows_to_a_constant": lambda: start("constant", 1000),
    "masked_by_data": lambda: choose(False),
    "selected_by_data": lambda: choose(True),
    "pairs_of_columns": lambda: move_tiles(256, 2),
    "eights_of_columns": lambda: move_tiles(64, 8),
    "fast_axis_first": move_columns,
    "partners": lambda: exchange(4),
    "partner_blocks": lambda: exchange(512),
    "truths": lambda: keep(1024),
    "truths_of_fours": lambda: keep(512),
    "bins": lambda: bin_numbers(False),
    "bins_first": lambda: bin_numbers(True),
    "rows_by_index": lambda: index_rows(False),
    "rows_by_narrow_index": lambda: index_rows(True),
    "column_each": lambda: sum_columns(True),
    "columns_together": lambda: sum_columns(False),
    "wide_tile": lambda: move_wide(True),
    "wide_base_of_tile": lambda: move_wide(False),
    "masked_steps": lambda: mask_steps(False),
    "masked_last_step": lambda: mask_steps(True),
    "fusion_off": not_fused,
    "fusion_on": fused,
    "upcast": lambda: polynomial(True),
    "halves": lambda: polynomial(False),
    "integers_added": lambda: count(I32),
    "floats_added": lambda: count(F32),
    "split_needlessly": lambda: split(256),
    "split_to_fill": lambda: split(64),
    "barrier_in_loop": lambda: wait(True),
    "no_barrier": lambda: wait(False),
}
