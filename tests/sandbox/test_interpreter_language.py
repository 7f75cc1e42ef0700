"""The language in the interpreter: what a compiler reads otherwise than Python, libraries, hints, and limits."""

import pytest

from tests.sandbox.interpreter_checks import TOLERANCE, Check, Refusal, body, check, elementwise, kernels, only, refused
from tritonforge.sandbox.outcome import Kind

__all__ = ["check", "kernels", "refused"]
pytestmark = pytest.mark.anyio

LIBDEVICE = "from triton.language.extra import libdevice\n"
ONES = "torch.ones(64)"
STORE_ONE = "tl.store(out_ptr + at, 1.0)"
QUARTERS = "tl.store(out_ptr + {at} * 16 + tl.arange(0, 16), 1.0)"
NESTED = "@triton.jit\ndef g(x):\n    return x * 2\n\n@triton.jit\ndef f(x):\n    return g(x) + 1\n"
SQUARE = "@triton.constexpr_function\ndef square(n):\n    return n * n\n"
LANGUAGE = {
    "and of masks": elementwise("((x > 0) and (y > 0)).to(tl.int32)", "(x > 0) & (y > 0)", "float32", "int32"),
    "or of masks": elementwise("((x > 0) or (y > 0)).to(tl.int32)", "(x > 0) | (y > 0)", "float32", "int32"),
    "not of a mask": elementwise("(not (x > 0)).to(tl.int32)", "~(x > 0)", "float32", "int32"),
    "nested functions": elementwise("f(x)", "x * 2 + 1", "float32", before=NESTED),
    "constexpr functions": elementwise("x * square(3)", "x * 9", "float32", before=SQUARE),
    "and of scalars": body(f"i = tl.program_id(0)\nif i == 0 and not (i > 0):\n    {STORE_ONE}", ONES),
    "conditional value": body("y = 1.0 if tl.program_id(0) == 0 else 2.0\ntl.store(out_ptr + at, y)", ONES),
    "early return": body(f"if tl.program_id(0) == 0:\n    {STORE_ONE}\n    return\ntl.store(out_ptr + at, 2.0)", ONES),
    "loop variable": body(f"for i in range(0, 4):\n    {QUARTERS.format(at='i.to(tl.int64)')}", ONES),
    "downwards": body(f"for i in range(3, -1, -1):\n    {QUARTERS.format(at='i')}", ONES),
    "static range": body(f"for i in tl.static_range(4):\n    {QUARTERS.format(at='i')}", ONES),
    "while": body(f"i = 0\nwhile i < 4:\n    {QUARTERS.format(at='i')}\n    i += 1", ONES),
    "warp specialization": body(
        f"for i in tl.range(0, 4, num_stages=2, warp_specialize=True):\n    {QUARTERS.format(at='i')}", ONES
    ),
    "launch options": body(STORE_ONE, ONES, ", num_warps=8, num_ctas=2, num_stages=3, maxnreg=128"),
    "hints": body(f"at = tl.max_contiguous(tl.multiple_of(at, 64), 64)\ntl.debug_barrier()\n{STORE_ONE}", ONES),
    "printing": body(f"tl.device_print('x', at, hex=True)\nprint('x', tl.load(x_ptr + at))\n{STORE_ONE}", ONES),
    "assertions": body(f"tl.device_assert(at < 64, 'no')\ntl.static_assert(N == 64)\ntl.assume(N > 3)\n{STORE_ONE}",
                       ONES),
    "dependent launch": body(
        f"tl.extra.cuda.gdc_wait()\n{STORE_ONE}\ntl.extra.cuda.gdc_launch_dependents()", ONES
    ),
}  # fmt: skip
ARGUMENTS = """
@triton.jit
def k(out_ptr, n, scale, flag, big, none, N: tl.constexpr):
    y = scale.to(tl.float32) * n.to(tl.float32)
    if flag:
        y += 1
    if none is None:
        y += 1
    tl.store(out_ptr + tl.arange(0, N), y + (big * 2 // 1000000000).to(tl.float32))

def entry(_):
    out = torch.empty(64)
    k[lambda meta: [meta['n'] - 2]](out, 3, 0.5, True, 3000000000, None, N=64)
    return same(out, torch.full((64,), 9.5))
"""
REFUSED = {
    "assembly": (
        elementwise("tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [x], tl.float32, True, 1)", "x", "float32"),
        "inline assembly (PTX) runs on a GPU only",
    ),
    "a clock": (elementwise("x + tl.extra.cuda.globaltimer()", "x", "float32"), "globaltimer asks the GPU"),
    "a rare function": (
        elementwise("libdevice.j0(x)", "x", "float32", before=LIBDEVICE),
        "__nv_j0f of a device library: the interpreter does not have it",
    ),
}  # fmt: skip


@only(LANGUAGE)
async def test_language(check: Check, source: str) -> None:
    await check(source)


async def test_arguments_have_the_types_that_a_launcher_gives_them(check: Check) -> None:
    await check(ARGUMENTS)


@pytest.mark.parametrize(
    ("call", "want"),
    [
        ("tanh(x)", "x.tanh()"), ("erf(x)", "x.erf()"), ("exp(x)", "x.exp()"), ("fast_expf(x)", "x.exp()"),
        ("log1p(tl.abs(x))", "x.abs().log1p()"), ("rsqrt(tl.abs(x))", "x.abs().rsqrt()"), ("atan(x)", "x.atan()"),
        ("pow(tl.abs(x), y)", "x.abs() ** y"), ("fma(x, y, x)", "x * y + x"), ("div_rn(x, y)", "x / y"),
        ("round(x)", "(x.abs() + 0.5).floor().copysign(x)"), ("rint(x)", "x.round()"), ("trunc(x)", "x.trunc()"),
    ],
)  # fmt: skip
async def test_libdevice(check: Check, call: str, want: str) -> None:
    await check(elementwise(f"libdevice.{call}", want, "float32", before=LIBDEVICE), TOLERANCE["float32"])


async def test_libdevice_by_its_long_name_and_on_bits(check: Check) -> None:
    await check(elementwise("tl.extra.cuda.libdevice.tanh(x)", "x.tanh()", "float32"), TOLERANCE["float32"])
    bits = elementwise("libdevice.float_as_int(x)", "x.view(torch.int32)", "float32", "int32", before=LIBDEVICE)
    await check(bits)
    nan = elementwise("libdevice.isnan(x).to(tl.int32)", "x.isnan()", "float32", "int32", x="SPECIAL", before=LIBDEVICE)
    await check(nan)


@pytest.mark.parametrize("case", REFUSED)
async def test_what_only_a_gpu_has_is_unsupported(refused: Refusal, case: str) -> None:
    source, words = REFUSED[case]
    kind, problem = await refused(source)
    assert kind is Kind.UNSUPPORTED
    assert words in problem.message


async def test_a_static_assertion_that_fails_is_the_kernels(refused: Refusal) -> None:
    kind, problem = await refused(body("tl.static_assert(N == 3, 'three')", "x"))
    assert kind is Kind.RUNTIME_ERROR
    assert "three" in problem.message


async def test_a_launch_of_too_many_programs_is_unsupported_and_says_how_many(refused: Refusal) -> None:
    source = body(STORE_ONE, ONES).replace("k[(1,)]", "k[(200, 101)]")
    kind, problem = await refused(source)
    assert kind is Kind.UNSUPPORTED
    assert problem.message.startswith("k is launched with 20200 programs (200 x 101)")
    assert "'small': True" in problem.message


async def test_a_grid_of_no_programs_does_nothing(check: Check) -> None:
    await check(body(STORE_ONE, "torch.zeros(64)").replace("k[(1,)]", "k[(0, 30000)]"))
