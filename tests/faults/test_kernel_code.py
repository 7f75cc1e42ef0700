"""Kernels whose own code is at fault, where no GPU is needed to see it; `tests/gpu/test_faults.py` has the others."""

import pytest

from tests.faults.evaluations import KERNEL, failed, replaced
from tests.faults.hostile import USUAL, Sealed
from tritonforge.sandbox.outcome import Kind

pytestmark = pytest.mark.anyio

HANG_S = 4.0
ASSEMBLY = 'tl.inline_asm_elementwise("{text}", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)'


def computing(expression: str) -> str:
    return replaced(KERNEL, "x * 2", expression)


async def test_assembly_that_ptxas_rejects_is_a_compile_error(sealed: Sealed) -> None:
    kernel = computing(ASSEMBLY.format(text="mull.rubbish $0, $1;"))
    problem = failed(await sealed.compile(kernel), Kind.COMPILE_ERROR, "compile")
    assert "ptxas" in problem.message.lower()
    assert "rubbish" in problem.message + (problem.output or "")


async def test_assembly_that_ptxas_takes_compiles(sealed: Sealed) -> None:
    assert (await sealed.compile(computing(ASSEMBLY.format(text="add.f32 $0, $1, $1;")))).kind is Kind.OK


@pytest.mark.parametrize(
    "kernel",
    [
        replaced(KERNEL, "    tl.store", "    for _ in tl.static_range(10_000_000):\n        x += 1\n    tl.store"),
        KERNEL.replace("BLOCK=64", "BLOCK=1 << 19, num_warps=1"),
    ],
    ids=["front end", "back end"],
)
async def test_a_compile_that_does_not_end_is_killed(sealed: Sealed, kernel: str) -> None:
    sealed.host.limits = USUAL.model_copy(update={"request_s": HANG_S})
    problem = failed(await sealed.compile(kernel), Kind.TIMEOUT, "capture")
    assert "block sizes" in (problem.likely_fix or "")


async def test_a_failed_static_assertion_is_a_compile_error(sealed: Sealed) -> None:
    kernel = replaced(KERNEL, "    tl.store", '    tl.static_assert(BLOCK > 64, "much too small")\n    tl.store')
    problem = failed(await sealed.compile(kernel), Kind.COMPILE_ERROR, "compile")
    assert "much too small" in problem.message


async def test_an_assertion_of_the_device_compiles_into_the_kernel_where_it_is_asked_for(sealed: Sealed) -> None:
    asserting = replaced(KERNEL, "    tl.store", '    tl.device_assert(x > 1e30, "much too small")\n    tl.store')
    plain, debugged = (
        await sealed.compile(asserting),
        await sealed.compile(asserting.replace("=64)", "=64, debug=True)")),
    )
    assert (plain.kind, debugged.kind) == (Kind.OK, Kind.OK)
    assert plain.launches[0].code_hash != debugged.launches[0].code_hash


FAR = """\
    index = tl.program_id(0) * 0 + 3
    out_ptr += {index} * 1073741824
    out_ptr -= index.to(tl.int64) * 1073741824
    tl.store"""
"""Three steps of 2^30 elements and back again, by an index that is wide enough."""


@pytest.mark.parametrize(("index", "kind"), [("index", Kind.RUNTIME_ERROR), ("index.to(tl.int64)", Kind.OK)])
async def test_an_index_that_needs_more_than_32_bits_must_be_given_them(sealed: Sealed, index: str, kind: Kind) -> None:
    result = await sealed.check(replaced(KERNEL, "    tl.store", FAR.format(index=index)))
    assert result.kind is kind, result.summary


async def test_an_empty_tensor_is_an_input_like_any_other(sealed: Sealed) -> None:
    entry = "def double(x):\n    out = torch.empty_like(x)\n    if x.numel() == 0:\n        x = out = torch.empty(64)\n"
    compiled = await sealed.compile(replaced(KERNEL, "def double(x):\n    out = torch.empty_like(x)\n", entry))
    assert compiled.kind is Kind.OK, compiled.summary
