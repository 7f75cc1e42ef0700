"""What kernels compute in the interpreter agrees with torch, for every number format that a GPU has."""

from typing import Any

import pytest

from tests.sandbox.interpreter_checks import TOLERANCE, Check, Refusal, check, elementwise, kernels, only, refused
from tritonforge.sandbox.outcome import Kind

__all__ = ["check", "kernels", "refused"]
pytestmark = pytest.mark.anyio

FLOATS = ("bfloat16", "float16", "float32")
ADDING = "@triton.jit\ndef comb(a, b):\n    return a + b\n"
ROTATED = "SPECIAL.flip(0)"
FP8 = {"float8e5": ("float8_e5m2", 57344), "float8e4nv": ("float8_e4m3fn", 448)}

FLOAT_CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "add": ("x + y", "x + y", {}),
    "subtract": ("x - y", "x - y", {}),
    "multiply": ("x * y", "x * y", {}),
    "divide": ("x / y", "x / y", {}),
    "remainder": ("x % y", "torch.fmod(x.float(), y.float())", {}),
    "scalars": ("x * 2.5 + 1", "x * 2.5 + 1", {}),
    "negate": ("-x", "-x", {}),
    "abs": ("tl.abs(x)", "x.abs()", {}),
    "floor": ("tl.floor(x.to(tl.float32)).to(x.dtype)", "x.float().floor()", {}),
    "where": ("tl.where(x > y, x, y)", "torch.where(x > y, x, y)", {}),
    "fma": ("tl.fma(x, y, x)", "x.double() * y.double() + x.double()", {}),
    "full": ("tl.full((N,), 1.5, x.dtype) * x", "x * 1.5", {}),
    "max": ("tl.zeros_like(x) + tl.max(x, 0).to(x.dtype)", "x.max().expand(64)", {}),
    "sum": ("tl.zeros_like(x) + tl.sum(x, 0)", "x.float().sum().expand(64)", {}),
    "cumsum": ("tl.cumsum(x, 0)", "x.float().cumsum(0)", {}),
    "cumprod": ("tl.cumprod(x, 0)", "x.float().cumprod(0)", {}),
    "own scan": ("tl.associative_scan(x, 0, comb)", "x.float().cumsum(0)", {"before": ADDING}),
    "own reduce": ("tl.reduce(x, 0, comb) + tl.zeros_like(x)", "x.float().sum().expand(64)", {"before": ADDING}),
    "sort": ("tl.sort(x)", "x.sort().values", {}),
    "sort downwards": ("tl.sort(x, descending=True)", "x.sort(descending=True).values", {}),
    "flip": ("tl.flip(x, 0)", "x.flip(0)", {}),
    "argmax": ("tl.argmax(x, 0) + tl.zeros((N,), tl.int32)", "x.float().argmax().expand(64)", {"out": "int32"}),
    "less": ("(x < y).to(tl.int32)", "x < y", {"out": "int32", "x": "SPECIAL", "y": ROTATED}),
    "greater or equal": ("(x >= y).to(tl.int32)", "x >= y", {"out": "int32", "x": "SPECIAL", "y": ROTATED}),
    "equal": ("(x == y).to(tl.int32)", "x == y", {"out": "int32", "x": "SPECIAL", "y": "SPECIAL"}),
    "not equal": ("(x != y).to(tl.int32)", "x != y", {"out": "int32", "x": "SPECIAL", "y": "SPECIAL"}),
    "maximum passes the number": ("tl.maximum(x, y)", "torch.fmax(x, y)", {"x": "SPECIAL"}),
    "minimum passes the number": ("tl.minimum(x, y)", "torch.fmin(x, y)", {"x": "SPECIAL"}),
    "maximum passes NaN": (
        "tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)", "torch.maximum(x, y)", {"x": "SPECIAL"},
    ),
    "clamp": (
        "tl.clamp(x, -0.5, 0.5)", "torch.where(x.isnan(), torch.full_like(x, -0.5), x.clamp(-0.5, 0.5))",
        {"x": "SPECIAL"},
    ),
    "other": (
        "tl.load(x_ptr + at, mask=at < 10, other=1.25)",
        "torch.where(torch.arange(64) < 10, x, torch.full_like(x, 1.25))", {},
    ),
    "other infinite": (
        "tl.load(x_ptr + at, mask=at < 10, other=-float('inf'))",
        "torch.where(torch.arange(64) < 10, x, torch.full_like(x, -float('inf')))", {},
    ),
    "modifiers": ("tl.load(x_ptr + at, cache_modifier='.cg', eviction_policy='evict_last', volatile=True)", "x", {}),
    "from int": ("(at * 7 - 100).to(x.dtype)", "torch.arange(64) * 7 - 100", {}),
    "to int32": ("(x * 100).to(tl.int32)", "(x * 100).to(torch.int32)", {"out": "int32"}),
    "to int8": ("(x * 20).to(tl.int8)", "(x * 20).to(torch.int8)", {"out": "int8"}),
}  # fmt: skip
INT_CASES = {
    "add": ("x + y", "x + y", None),
    "multiply": ("x * y", "x * y", None),
    "divide toward zero": ("x // y", "torch.div(x, y, rounding_mode='trunc')", None),
    "remainder has the sign of x": ("x % y", "torch.fmod(x, y)", None),
    "xor": ("x ^ y", "x ^ y", None),
    "shift right": ("x >> 1", "x >> 1", None),
    "invert": ("~x", "~x", None),
    "true division": ("x / y", "x / y", "float32"),
    "sum": ("tl.sum(x) + tl.zeros((N,), tl.int64)", "x.sum().expand(64)", "int64"),
    "max": ("tl.max(x) + tl.zeros((N,), x.dtype)", "x.max().expand(64)", None),
    "xor_sum": ("tl.xor_sum(x) + tl.zeros((N,), x.dtype)", "functools.reduce(torch.bitwise_xor, x).expand(64)", None),
    "cumsum": ("tl.cumsum(x).to(tl.int64)", "x.cumsum(0)", "int64"),
    "sort": ("tl.sort(x)", "x.sort().values", None),
    "to float": ("x.to(tl.float32)", "x", "float32"),
}
PHILOX = """
M = 0xffffffff
def uniform():
    out = []
    for n in range(64):
        c, k0, k1 = [n, 0, 0, 0], 42, 0
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(b >> 32) ^ c[1] ^ k0, b & M, (a >> 32) ^ c[3] ^ k1, a & M]
            k0, k1 = (k0 + 0x9E3779B9) & M, (k1 + 0xBB67AE85) & M
        i = c[0] - (1 << 32) if c[0] >> 31 else c[0]
        out.append((-i - 1 if i < 0 else i) * 4.6566127342e-10)
    return torch.tensor(out)
"""
RECURRENCE = """
@triton.jit
def comb(a, b, c, d):
    return a * c, b * c + d
def recurrence(x, y):
    out, h = [], torch.tensor(0.)
    for a, b in zip(x, y):
        h = a * h + b
        out.append(h)
    return torch.stack(out)
"""
PAIRS = """
@triton.jit
def comb(a, i, b, j):
    big = a >= b
    return tl.where(big, a, b), tl.where(big, i, j)
"""
ROWS = "tl.reshape(x, (8, 8))"
LOW, HIGH = -(2**31), 2**31 - 1
SINGLE = {
    "int32 overflow": elementwise("x * x * x * x * x * x", "(x.long() ** 6).to(torch.int32)", "int32",
                                  x="torch.arange(64) * 100"),
    "int64": elementwise("x * 3000000000 + y", "x * 3000000000 + y", "int64", x="torch.arange(64)",
                         y="torch.arange(64)"),
    "umulhi": elementwise("tl.umulhi(x, y)", "(x.long() & 0xffffffff) * (y.long() & 0xffffffff) >> 32", "int32",
                          x="values(64) * 1e4", y="torch.arange(64)"),
    "div_rn": elementwise("tl.div_rn(x, y)", "x / y", "float32"),
    "bitcast": elementwise("x.to(tl.int32, bitcast=True)", "x.view(torch.int32)", "float32", "int32"),
    "bitcast of bf16": elementwise("x.to(tl.int16, bitcast=True)", "x.view(torch.int16)", "bfloat16", "int16"),
    "to int32 clamps": elementwise(
        "x.to(tl.int32)", f"torch.where(x.isnan(), 0., x.double().clamp({LOW}, {HIGH}))", "float32", "int32",
        x="SPECIAL",
    ),
    "bool wraps": elementwise("((x > 0) + (y > 0)).to(tl.int32)", "(x > 0) ^ (y > 0)", "float32", "int32"),
    "bool sum": elementwise("tl.sum((x > 0).to(tl.int32)) + at", "(x > 0).sum() + torch.arange(64)", "float32",
                            "int32"),
    "histogram": elementwise("tl.histogram(at + 32, N)", "torch.arange(64) >= 32", "float32", "int32"),
    "argmin": elementwise("tl.argmin(x, 0) + at * 0", "x.argmin().expand(64)", "float32", "int32"),
    "argmax is leftmost": elementwise("tl.argmax((x > 0).to(tl.int32), 0) + at * 0",
                                      "(x > 0).int().argmax().expand(64)", "float32", "int32"),
    "max passes the number": elementwise("tl.max(x, 0) + tl.zeros_like(y)", "x[~x.isnan()].max().expand(64)",
                                         "float32", x="SPECIAL"),
    "max with indices": elementwise("tl.max(x, 0, return_indices=True)[1] + at * 0", "x.argmax().expand(64)",
                                    "float32", "int32"),
    "topk": elementwise("tl.ravel(tl.broadcast_to(tl.topk(x, 8)[None, :], (8, 8)))", "x.topk(8).values.repeat(8)",
                        "float32"),
    "sum of rows": elementwise(f"tl.ravel({ROWS} - tl.sum({ROWS}, 1)[:, None])",
                               "(x.view(8, 8) - x.view(8, 8).sum(1, keepdim=True)).reshape(-1)", "float32"),
    "sum of all": elementwise(f"x + tl.sum({ROWS})", "x + x.sum()", "float32"),
    "keep_dims": elementwise(f"tl.ravel({ROWS} - tl.max({ROWS}, 0, keep_dims=True))",
                             "(x.view(8, 8) - x.view(8, 8).max(0, keepdim=True).values).reshape(-1)", "float32"),
    "scan backwards": elementwise("tl.cumsum(x, 0, reverse=True)", "x.flip(0).cumsum(0).flip(0)", "float32"),
    "scan of columns": elementwise(f"tl.ravel(tl.cumsum({ROWS}, 0))", "x.view(8, 8).cumsum(0).reshape(-1)", "float32"),
    "scan of pairs": elementwise("tl.associative_scan((x, y), 0, comb)[1]", "recurrence(x, y)", "float32",
                                 before=RECURRENCE),
    "reduce of pairs": elementwise("tl.reduce((x, at), 0, comb)[1] + at * 0", "x.argmax().expand(64)", "float32",
                                   "int32", before=PAIRS),
    "transpose": elementwise("tl.ravel(tl.trans(tl.reshape(x, (4, 16))))", "x.view(4, 16).t().reshape(-1)", "float32"),
    "split and interleave": elementwise("tl.interleave(*tl.split(tl.reshape(x, (32, 2))))", "x", "float32"),
    "split to scalars": elementwise("x + tl.split(tl.arange(0, 2) + 5)[1]", "x + 6", "float32"),
    "gather": elementwise("tl.gather(x, 63 - at, 0)", "x.flip(0)", "float32"),
    "softmax": elementwise("tl.softmax(x)", "x.softmax(0)", "float32"),
    "philox": elementwise("tl.rand(42, at)", "uniform()", "float32", before=PHILOX),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", FLOAT_CASES)
async def test_floats(check: Check, dtype: str, case: str) -> None:
    expression, want, options = FLOAT_CASES[case]
    await check(elementwise(expression, want, dtype, **options), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("case", INT_CASES)
async def test_integers(check: Check, dtype: str, case: str) -> None:
    expression, want, out = INT_CASES[case]
    unsigned = ".abs()" if dtype == "uint8" else ""
    signs = "1" if dtype == "uint8" else "(1 - torch.arange(64) % 2 * 2)"
    source = elementwise(
        expression, want, dtype, out, x=f"(values(64) * 50){unsigned}", y=f"((values(64) * 5).abs() + 1) * {signs}"
    )
    await check(source, 1e-6)


@only(SINGLE)
async def test_one_by_one(check: Check, source: str) -> None:
    await check(source, TOLERANCE["float32"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil"])
async def test_functions(check: Check, dtype: str, name: str) -> None:
    positive = name in ("log", "log2", "sqrt", "rsqrt")
    given = "tl.abs(x)" if positive else "x"
    want = f"x.abs().{name}()" if positive else f"x.{name}()"
    await check(elementwise(f"tl.{name}({given})", want, dtype), TOLERANCE[dtype])


@pytest.mark.parametrize("target", ["float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn", "float64"])
@pytest.mark.parametrize("dtype", FLOATS)
async def test_stores_round_to_nearest(check: Check, dtype: str, target: str) -> None:
    await check(elementwise("x", "x", dtype, target, x="values(64) * 10"))


async def test_rounding_toward_zero_is_done_when_asked_for(check: Check) -> None:
    cut = "(x.view(torch.int32) & -65536).view(torch.float32)"
    await check(elementwise("x.to(tl.bfloat16, fp_downcast_rounding='rtz')", cut, "float32", "bfloat16"))


@pytest.mark.parametrize("name", FP8)
async def test_fp8(check: Check, refused: Refusal, name: str) -> None:
    dtype, largest = FP8[name]
    codes = f"torch.arange(0, 256, 4).to(torch.uint8).view(torch.{dtype}).float()"
    await check(elementwise("x.to(tl.float32)", "x.float()", dtype, "float32", x=codes))
    await check(elementwise("x.to(tl.bfloat16)", "x.float()", dtype, "bfloat16"))
    await check(elementwise(f"x.to(tl.{name})", "x", "float32", dtype, x="values(64) * 2e-3"))
    too_large = elementwise(f"x.to(tl.{name})", f"x.clamp(-{largest}, {largest})", "float32", dtype, x="SPECIAL * 1e4")
    await check(too_large)
    masked = "torch.where(torch.arange(64) < 10, x.float(), torch.tensor(0.))"
    await check(elementwise("tl.load(x_ptr + at, mask=at < 10, other=0.0)", masked, dtype))
    kind, problem = await refused(elementwise("x + y", "x", dtype))
    assert kind is Kind.UNSUPPORTED
    assert problem.excerpt is not None
    assert "tl.store(out_ptr + at, x + y)" in problem.excerpt
    assert "NVIDIA GPUs have none; cast them first" in problem.message


async def test_the_index_of_a_largest_value_beside_nan_is_unsupported(refused: Refusal) -> None:
    kind, problem = await refused(elementwise("tl.argmax(x, 0) + at", "x", "float32", "int32", x="SPECIAL"))
    assert kind is Kind.UNSUPPORTED
    assert "which index a GPU returns depends on the layout" in problem.message
