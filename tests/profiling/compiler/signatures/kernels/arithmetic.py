# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false, reportCallIssue=false, reportIndexIssue=false
# (Triton's own types don't pass the strict mode.)
"""Arithmetic that costs more instructions or registers than it has to, and atomics."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

F16, F32 = torch.float16, torch.float32


@triton.jit
def mapped(x_ptr, y_ptr, scale, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """One function of each element, in ways that depend on `HOW`."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    if HOW == "exp":
        y = tl.exp(x)
    elif HOW == "exp2":
        y = tl.exp2(x)
    elif HOW == "divided":
        y = x / scale
    elif HOW == "times reciprocal":
        y = x * (1.0 / scale)
    elif HOW == "tanh":
        y = libdevice.tanh(x)
    elif HOW == "tanh by exp2":
        y = 1.0 - 2.0 / (1.0 + tl.exp2(x * 2.885390082))
    elif HOW == "doubles":
        y = (x.to(tl.float64) * 0.1).to(tl.float32)
    elif HOW == "singles":
        y = x * 0.1
    elif HOW == "both sides":
        y = tl.where(x > 0, tl.log(x), tl.exp(x))
    elif HOW == "one function":
        y = tl.exp(tl.where(x > 0, x * 0.5, x))
    elif HOW == "asserted":
        tl.device_assert(x > 0, "negative")
        y = x
    elif HOW == "sine":
        y = tl.sin(x)
    elif HOW == "fast sine":
        y = libdevice.fast_sinf(x)
    elif HOW == "printed":
        tl.device_print("x", x)
        y = x
    tl.store(y_ptr + at, y)


def apply(how, block=1024, scale=3.0, **options):
    x, y = torch.empty(2, 64, device="cuda")
    mapped[(4096,)](x, y, scale, block, how, **options)


@triton.jit
def scaled_by_argument(x_ptr, y_ptr, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * scale)


@triton.jit
def scores(x_ptr, y_ptr, limit, scale, S: tl.constexpr, HOW: tl.constexpr):
    """Weights of (S, S) scores without, or with, the later positions; the mask before or after the scale."""
    i, j = tl.arange(0, S), tl.arange(0, S)
    at = i[:, None] * S + j[None, :]
    x = tl.load(x_ptr + at)
    row = tl.program_id(0) * S + i
    if HOW == "mask between":
        x = tl.where(row[:, None] >= limit + j[None, :], x * scale, -1e6)
        y = tl.exp2(x - tl.max(x, 1)[:, None])
    elif HOW == "mask before":
        x = tl.where(row[:, None] >= limit + j[None, :], x, -1e30)
        y = tl.exp2(x * scale - (tl.max(x, 1) * scale)[:, None])
    tl.store(y_ptr + at, y)


def score(how, **options):
    x, y = torch.empty(2, 64, device="cuda")
    scores[(4096,)](x, y, 1024, 0.125, 32, how, **options)


@triton.jit
def causal(x_ptr, y_ptr, S: tl.constexpr, APART: tl.constexpr):
    """Sums of (S, S) tiles up to the diagonal: masks in all of them, or in the last."""
    i, j = tl.arange(0, S), tl.arange(0, S)
    row = tl.program_id(0) * S + i
    total = tl.zeros((S,), tl.float32)
    if APART:
        for start in range(0, tl.program_id(0) * S, S):
            total += tl.sum(tl.load(x_ptr + row[:, None] * 4096 + start + j[None, :]), 1)
        x = tl.load(x_ptr + row[:, None] * 4096 + tl.program_id(0) * S + j[None, :])
        total += tl.sum(tl.where(row[:, None] >= tl.program_id(0) * S + j[None, :], x, 0.0), 1)
    else:
        for start in range(0, (tl.program_id(0) + 1) * S, S):
            x = tl.load(x_ptr + row[:, None] * 4096 + start + j[None, :])
            total += tl.sum(tl.where(row[:, None] >= start + j[None, :], x, 0.0), 1)
    tl.store(y_ptr + row, total)


def sum_causal(apart):
    causal[(4096,)](*torch.empty(2, 64, device="cuda"), 32, apart)


@triton.jit
def swizzled(x_ptr, y_ptr, rows, GROUP: tl.constexpr, HOW: tl.constexpr):
    """A tile for each program, in groups of rows, or in a grid of two dimensions."""
    if HOW == "divided":
        program = tl.program_id(0)
        columns = tl.num_programs(0) // rows
        first = program // (GROUP * columns) * GROUP
        size = min(rows - first, GROUP)
        row = first + program % (GROUP * columns) % size
        column = program % (GROUP * columns) // size
    elif HOW == "two dimensions":
        row, column = tl.program_id(0), tl.program_id(1)
    at = row * 4096 + column * 512 + tl.arange(0, 512)
    tl.store(y_ptr + at, tl.load(x_ptr + at))


def swizzle(how):
    swizzled[(64, 64)](*torch.empty(2, 64, device="cuda"), 64, 8, how)


@triton.jit
def indexed(x_ptr, y_ptr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """(programs, BLOCK) to itself, at offsets of 64 bits or 32."""
    if HOW == "all offsets":
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at // 17 * 32 + at % 17))
    elif HOW == "base":
        base = tl.program_id(0).to(tl.int64) * 32 * BLOCK
        at = tl.arange(0, BLOCK)
        tl.store(y_ptr + base + at, tl.load(x_ptr + base + at // 17 * 32 + at % 17))


def index(how):
    indexed[(4096,)](*torch.empty(2, 64, device="cuda"), 512, how)


@triton.jit
def steps(x_ptr, y_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr, UNROLLED: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    if UNROLLED:
        for step in tl.static_range(STEPS):
            total += tl.load(x_ptr + step * BLOCK + i)
    else:
        for step in tl.range(STEPS):
            total += tl.load(x_ptr + step * BLOCK + i)
    tl.store(y_ptr + i, total)


def step_through(unrolled):
    steps[(4096,)](*torch.empty(2, 64, device="cuda"), 64, 512, unrolled)


@triton.jit
def log_sum(x_ptr, y_ptr, width, BLOCK: tl.constexpr, CHUNKED: tl.constexpr):
    """log of the sum of exp2 of a row of fp32: the row in registers, or in chunks of BLOCK."""
    x = x_ptr + tl.program_id(0) * width + tl.arange(0, BLOCK)
    if CHUNKED:
        top = tl.full((BLOCK,), -1e30, tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in tl.range(0, width, BLOCK, num_stages=3):
            chunk = tl.load(x + start)
            new = tl.maximum(top, chunk)
            total = total * tl.exp2(top - new) + tl.exp2(chunk - new)
            top = new
        most = tl.max(top)
        y = most + tl.log2(tl.sum(total * tl.exp2(top - most)))
    else:
        row = tl.load(x)
        most = tl.max(row)
        y = most + tl.log2(tl.sum(tl.exp2(row - most)))
    tl.store(y_ptr + tl.program_id(0), y)


def sum_exponentials(block, chunked):
    log_sum[(4096,)](*torch.empty(2, 64, device="cuda"), 32768, block, chunked)


@triton.jit
def added(x_ptr, y_ptr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """A block of `x` into `y` by atomics."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    if HOW == "default":
        tl.atomic_add(y_ptr + at, x)
    elif HOW == "relaxed":
        tl.atomic_add(y_ptr + at, x, sem="relaxed")
    elif HOW == "to few":
        tl.atomic_add(y_ptr + at % 64, x, sem="relaxed")
    elif HOW == "sum":
        tl.atomic_add(y_ptr, tl.sum(x), sem="relaxed")
    elif HOW == "maximum":
        tl.atomic_max(y_ptr + at, x, sem="relaxed")
    elif HOW == "maximum of integers":
        tl.atomic_max(y_ptr + at, x.to(tl.int32, bitcast=True), sem="relaxed")
    elif HOW == "maximum of all":
        tl.atomic_max(y_ptr, tl.max(x), sem="relaxed")


def add(how, block=1024, of=F32, to=None):
    x = torch.empty(64, dtype=of, device="cuda")
    added[(4096,)](x, torch.empty(64, dtype=to or of, device="cuda"), block, how)


@triton.jit
def split(a_ptr, b_ptr, c_ptr, K, stride, S: tl.constexpr, HOW: tl.constexpr):
    """The product of (S, K) and (K, S), K divided between programs."""
    i = tl.arange(0, S)
    a = a_ptr + i[:, None] * stride + tl.program_id(1) * K + i[None, :]
    b = b_ptr + (tl.program_id(1) * K + i)[:, None] * stride + i[None, :]
    total = tl.zeros((S, S), tl.float32)
    for _ in range(0, K, S):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += S
        b += S * stride
    c = c_ptr + i[:, None] * stride + i[None, :]
    if HOW == "atomics":
        tl.atomic_add(c, total, sem="relaxed")
    else:
        tl.store(c + tl.program_id(1) * stride * stride, total)


def split_k(how):
    a, b = torch.empty(2, 64, dtype=F16, device="cuda")
    split[(64, 8)](a, b, torch.empty(64, device="cuda"), 1024, 1024, 64, how)


LAUNCHES = {
    "exp": lambda: apply("exp"),
    "exp2": lambda: apply("exp2"),
    "divided": lambda: apply("divided"),
    "times_reciprocal": lambda: apply("times reciprocal"),
    "tanh": lambda: apply("tanh"),
    "tanh_by_exp2": lambda: apply("tanh by exp2"),
    "doubles": lambda: apply("doubles"),
    "singles": lambda: apply("singles"),
    "both_sides": lambda: apply("both sides"),
    "one_function": lambda: apply("one function"),
    "asserted": lambda: apply("asserted", debug=True),
    "not_asserted": lambda: apply("asserted"),
    "sine": lambda: apply("sine"),
    "fast_sine": lambda: apply("fast sine"),
    "printed": lambda: apply("printed"),
    "mask_between": lambda: score("mask between"),
    "mask_before": lambda: score("mask before"),
    "not_fused": lambda: score("mask before", enable_fp_fusion=False),
    "masks_in_loop": lambda: sum_causal(False),
    "masks_apart": lambda: sum_causal(True),
    "divided_program": lambda: swizzle("divided"),
    "two_dimensions": lambda: swizzle("two dimensions"),
    "wide_offsets": lambda: index("all offsets"),
    "wide_base": lambda: index("base"),
    "unrolled_steps": lambda: step_through(True),
    "looped_steps": lambda: step_through(False),
    "long_row": lambda: sum_exponentials(32768, False),
    "chunked_row": lambda: sum_exponentials(1024, True),
    "default_atomic": lambda: add("default"),
    "relaxed_atomic": lambda: add("relaxed"),
    "atomics_to_few": lambda: add("to few"),
    "atomic_sum": lambda: add("sum"),
    "atomic_half": lambda: add("sum", of=F16),
    "atomic_halves": lambda: add("relaxed", of=F16),
    "atomic_maximum": lambda: add("maximum"),
    "atomic_maximum_of_integers": lambda: add("maximum of integers", to=torch.int32),
    "atomic_maximum_of_all": lambda: add("maximum of all"),
    "split_k_atomics": lambda: split_k("atomics"),
    "split_k_stores": lambda: split_k("stores"),
}
