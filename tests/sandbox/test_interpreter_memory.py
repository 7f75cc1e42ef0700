"""Loads, stores, atomics, block pointers, descriptors and matrix products in the interpreter, as torch has them."""

import pytest

from tests.sandbox.interpreter_checks import HEAD, TOLERANCE, Check, Refusal, body, check, kernels, only, refused
from tritonforge.sandbox.outcome import Kind

__all__ = ["check", "kernels", "refused"]
pytestmark = pytest.mark.anyio

ATOMIC = """
@triton.jit
def k(x_ptr, out_ptr, old_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(old_ptr + at, tl.atomic_{operation}(out_ptr + at % 4, x, mask=at < 60))

def entry(_):
    x, out = ({x}).to(torch.{dtype}), torch.arange(4).to(torch.{dtype})
    before, old = out.clone(), torch.zeros_like(x)
    k[(1,)](x, out, old, N=64)
    parts = [torch.cat([before[i:i+1], x[:60][i::4]]) for i in range(4)]
    # Programs and elements take their turns here, so that the first finds what was there.
    assert '{operation}' in ('max', 'min') or (old[:4] == before).all()
    return same(out, torch.stack([{want} for p in parts]).to(torch.{dtype}))
"""
WHOLE = {"float": "(values(64) * 8).round()", "int": "torch.arange(64) - 30"}
ATOMICS = {
    f"{operation} {dtype}": ATOMIC.format(
        operation=operation, dtype=dtype, want=want, x=WHOLE["int" if "int" in dtype else "float"]
    )
    for operation, want, dtypes in [
        ("add", "p.sum()", ["float32", "float64", "float16", "bfloat16", "int32", "int64"]),
        ("max", "p.max()", ["float32", "float64", "int32", "int64"]),
        ("min", "p.min()", ["float32", "float64", "int32", "int64"]),
        ("xchg", "p[-1]", ["float32", "float64", "int32", "int64"]),
        ("and", "functools.reduce(torch.bitwise_and, p)", ["int32"]),
        ("or", "functools.reduce(torch.bitwise_or, p)", ["int32"]),
        ("xor", "functools.reduce(torch.bitwise_xor, p)", ["int32"]),
    ]
    for dtype in dtypes
}
LOCKED = """
@triton.jit
def k(lock_ptr, out_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr, tl.load(out_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)

def entry(_):
    out, lock = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    k[(7,)](lock, out)
    return same(out, torch.full((1,), 7.))
"""
DOT = """
def tf32(x):
    return (((x.view(torch.int32) + 0x1000) >> 13) << 13).view(torch.float32)

@triton.jit
def k(a_ptr, b_ptr, c_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, kk = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    a = tl.load(a_ptr + m * K + kk[None, :])
    b = tl.load(b_ptr + kk[:, None] * N + n)
    tl.store(out_ptr + m * N + n, tl.dot(a, b, tl.load(c_ptr + m * N + n){options}))

def entry(_):
    a, b = (values(16, 64) * {scale}).to(torch.{left}), (values(64, 32) * {scale}).to(torch.{right})
    c = (values(16, 32) * 4).to(torch.{acc})
    out = torch.empty(16, 32, dtype=torch.{acc})
    k[(1,)](a, b, c, out, M=16, N=32, K=64)
    return same(out, ({seen}(a).double() @ {seen}(b).double() + c.double()).to(torch.{acc}))
"""


def dot(left: str, right: str = "", *, acc: str = "float32", options: str = "", scale: int = 1, seen: str = "") -> str:
    return DOT.format(left=left, right=right or left, acc=acc, options=options, scale=scale, seen=seen)


DOTS = {
    "bf16": dot("bfloat16"),
    "fp16": dot("float16"),
    "fp8e4nv": dot("float8_e4m3fn"),
    "fp8e5": dot("float8_e5m2"),
    "fp8 mixed": dot("float8_e4m3fn", "float8_e5m2"),
    "int8": dot("int8", acc="int32", options=", out_dtype=tl.int32", scale=50),
    "tf32": dot("float32", seen="tf32"),
    "ieee": dot("float32", options=", input_precision='ieee'"),
    "tf32x3": dot("float32", options=", input_precision='tf32x3'"),
}
DOT_3D = """
@triton.jit
def k(a_ptr, out_ptr):
    at = tl.arange(0, 4)[:, None, None] * 256 + tl.arange(0, 16)[None, :, None] * 16 + tl.arange(0, 16)[None, None, :]
    a = tl.load(a_ptr + at)
    tl.store(out_ptr + at, tl.dot(a, a))

def entry(_):
    a, out = values(4, 16, 16).half(), torch.empty(4, 16, 16)
    k[(1,)](a, out)
    return same(out, a.float() @ a.float())
"""
SCALED = """
@triton.jit
def k(a_ptr, s_ptr, out_ptr):
    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    a = tl.load(a_ptr + at)
    scale = tl.load(s_ptr + tl.arange(0, 32)[:, None] + tl.arange(0, 1)[None, :])
    tl.store(out_ptr + at, tl.dot_scaled(a, scale, "e4m3", a, scale, "e4m3"))

def entry(_):
    k[(1,)](values(32, 32).to(torch.float8_e4m3fn), torch.full((32, 1), 127, dtype=torch.uint8), torch.empty(32, 32))
"""
BLOCK_POINTER = """
@triton.jit
def k(x_ptr, out_ptr, rows, cols):
    p = tl.make_block_ptr(x_ptr, (rows, cols), (cols, 1), (0, 0), (8, 8), (1, 0))
    o = tl.make_block_ptr(out_ptr, (7, 16), (16, 1), (0, 0), (8, 8), (1, 0))
    for i in range(2):
        tl.store(o, tl.load(p, boundary_check=(0, 1), padding_option='{padding}'), boundary_check=(0, 1))
        p = tl.advance(p, (0, 8))
        o = tl.advance(o, (0, 8))

def entry(_):
    x, out = values(5, 11).to(torch.{dtype}), torch.ones(8, 16, dtype=torch.{dtype})
    k[(1,)](x, out, 5, 11)
    want = torch.ones(8, 16, dtype=torch.{dtype})
    want[:7] = float('{padding}'.replace('zero', '0'))
    want[:5, :11] = x
    return same(out, want)
"""
DESCRIPTOR = """
@triton.jit
def k(x_ptr, out_ptr, rows, cols):
    d = tl.make_tensor_descriptor(x_ptr, shape=[rows, cols], strides=[cols, 1], block_shape=[8, 16]{padding})
    o = tl.make_tensor_descriptor(out_ptr, shape=[8, 16], strides=[16, 1], block_shape=[8, 16])
    o.store([0, 0], d.load([0, {at}]))

def entry(_):
    x, out = values(5, 24).to(torch.{dtype}), torch.ones(8, 16, dtype=torch.{dtype})
    k[(1,)](x, out, 5, 24)
    want = torch.full((8, 16), {fill}, dtype=torch.{dtype})
    want[:5, :24 - {at}] = x[:, {at}:{at} + 16]
    return same(out, want)
"""
HOST_DESCRIPTOR = """
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def k(d, o):
    o.store([0, 0], d.load([0, 16]) * 2)

def entry(_):
    x, out = values(5, 32).to(torch.bfloat16), torch.ones(8, 16, dtype=torch.bfloat16)
    k[(1,)](TensorDescriptor.from_tensor(x, [8, 16]), TensorDescriptor(out, [8, 16], [16, 1], [8, 16]))
    want = torch.zeros(8, 16, dtype=torch.bfloat16)
    want[:5] = x[:, 16:] * 2
    return same(out, want)
"""
DESCRIPTOR_ATOMIC = """
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def k(d, o):
    o.atomic_add([0, 0], d.load([0, 0]))

def entry(_):
    x, out = values(8, 16), torch.ones(8, 16)
    k[(2,)](TensorDescriptor.from_tensor(x, [8, 16]), TensorDescriptor.from_tensor(out, [8, 16]))
    return same(out, 1 + x + x)
"""
POINTERS = """
@triton.jit
def k(p_ptr, flags_ptr, out_ptr):
    at = tl.arange(0, 64)
    p = tl.load(p_ptr).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + at, tl.where(~tl.load(flags_ptr + at), tl.load(p + at), 7.0))

def entry(_):
    x, out = values(64), torch.zeros(64)
    k[(1,)](torch.tensor([x.data_ptr()]), x > 0, out)
    return same(out, torch.where(x > 0, 7.0, x))
"""


@only(ATOMICS)
async def test_atomics(check: Check, source: str) -> None:
    await check(source)


async def test_a_lock_is_taken_and_given_back(check: Check) -> None:
    await check(LOCKED)


@only(DOTS)
async def test_dots(check: Check, source: str) -> None:
    await check(source, TOLERANCE["float32"])


async def test_a_dot_that_sums_in_fp16(check: Check) -> None:
    await check(dot("float16", acc="float16", options=", out_dtype=tl.float16"), TOLERANCE["float16"])


async def test_a_dot_of_three_dimensions(check: Check) -> None:
    await check(DOT_3D, TOLERANCE["float32"])


async def test_a_scaled_dot_is_unsupported(refused: Refusal) -> None:
    kind, problem = await refused(SCALED)
    assert kind is Kind.UNSUPPORTED
    assert "tl.dot_scaled" in problem.message


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
async def test_block_pointers(check: Check, dtype: str, padding: str) -> None:
    await check(BLOCK_POINTER.format(dtype=dtype, padding=padding))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_descriptors(check: Check, dtype: str) -> None:
    await check(DESCRIPTOR.format(dtype=dtype, padding="", fill="0.", at=8))
    await check(DESCRIPTOR.format(dtype=dtype, padding=", padding_option='nan'", fill="float('nan')", at=16))
    # An offset of TMA's may be any; the interpreter's own check says otherwise.
    await check(DESCRIPTOR.format(dtype=dtype, padding="", fill="0.", at=11))


@only({"from the host": HOST_DESCRIPTOR, "atomic": DESCRIPTOR_ATOMIC, "pointers in a tensor": POINTERS})
async def test_memory_reached_otherwise(check: Check, source: str) -> None:
    await check(source)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("y = tl.load(x_ptr + at + 1000000000000)", "tl.load"),
        ("tl.store(out_ptr + at + 1000000000000, 1.0)", "tl.store"),
        ("tl.atomic_add(out_ptr + at + 1000000000000, 1.0)", "tl.atomic"),
    ],
)
async def test_an_address_without_memory_is_an_error_on_its_line(refused: Refusal, line: str, word: str) -> None:
    source = body(line, "x")
    kind, problem = await refused(source)
    assert kind is Kind.RUNTIME_ERROR
    assert f"an illegal memory access: {word} reaches 64 addresses outside of every tensor" in problem.message
    assert problem.line == (HEAD + source[: source.index(line)]).count("\n") + 1


async def test_what_a_mask_leaves_out_may_lie_anywhere(check: Check) -> None:
    far = "far = at.to(tl.int64) + (at >= 32).to(tl.int64) * 1000000000000"
    lines = f"{far}\ny = tl.load(x_ptr + far, mask=at < 32, other=2.0)"
    await check(body(f"{lines}\ntl.store(out_ptr + at, y)", "torch.where(torch.arange(64) < 32, x, 2.0)"))
