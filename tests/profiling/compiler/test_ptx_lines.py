"""Kinds of instructions in the table by line, beside those that `test_details.py` reads."""

import pytest

from tritonforge.profiling.compiler.ptx_lines import sites


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("st.shared.v4.b32 [ %r1 + 0 ], { %r2, %r3, %r4, %r5 };", "shared_store"),
        ("ld.shared::cta.b32 %r1, [%r2];", "shared_load"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];", "shared_load"),
        ("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r2, %r3, %r4, %r5};", "shared_store"),
        ("shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;", "shuffle"),
        ("mul.f32 %r1, %r2, %r3;", "multiply"),
        ("fma.rn.f32 %r1, %r2, %r3, %r4;", "fused_multiply"),
        ("div.full.f32 %r1, %r2, %r3;", "division"),
        ("div.s32 %r1, %r2, %r3;", "integer_division"),
        ("rem.u64 %rd1, %rd2, %rd3;", "integer_division"),
        ("mul.hi.s64 %rd1, %rd2, %rd3;", "wide_multiply"),
        ("mad.lo.s64 %rd1, %rd2, %rd3, %rd4;", "wide_multiply"),
        ("mul.f64 %fd1, %fd2, %fd3;", "fp64"),
        ("cvt.rn.f32.f64 %r1, %fd1;", "fp64"),
        ("selp.b32 %r1, %r2, %r3, %p1;", "select"),
        ("call.uni __assertfail, (param0, param1);", "call"),
    ],
)
def test_arithmetic_and_shared_memory_have_kinds_of_their_own(instruction: str, kind: str) -> None:
    (site,) = sites(f".loc 1 6 0\n{instruction}\n")
    assert (site.line, site.kind, site.width_bytes, site.count) == (6, kind, None, 1)


@pytest.mark.parametrize(
    "instruction",
    [
        "mul.lo.s32 %r1, %r2, %r3;",
        "mul.wide.s32 %rd1, %r2, 4;",
        "mad.wide.s32 %rd1, %r2, 4, %rd2;",
        "add.s64 %rd1, %rd2, 8;",
        "add.f32 %r1, %r2, %r3;",
        "cvt.rn.f16.f32 %rs1, %r1;",
        "ld.param.b64 %rd1, [k_param_0];",
        "ld.local.b32 %r1, [%r2];",
        "bra $L;",
    ],
)
def test_cheap_and_private_work_is_left_out(instruction: str) -> None:
    assert sites(f".loc 1 6 0\n{instruction}\n") == []
