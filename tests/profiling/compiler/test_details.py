"""Lines of instructions and operations in short texts, malformed ones among them."""

import pytest

from tritonforge.profiling.compiler.details import details, shortened
from tritonforge.profiling.compiler.ptx_lines import sites as ptx_sites
from tritonforge.profiling.compiler.ttgir_lines import sites as ttgir_sites

FILES = '.file 1 "/tmp/k.py"\n.file 2 "/lib/standard.py"\n'
FIRST = ".loc 1 6 0\n"
BARRIER = "bar.sync 0;\n"


def ptx_lines(text: str) -> list[int | None]:
    return [site.line for site in ptx_sites(FIRST + text + FILES)]


@pytest.mark.parametrize(
    ("directive", "line"),
    [
        (".loc 1 9 4", 9),
        (".loc 1 0 0", None),
        (".loc 2 263 15 // standard.py:263:15 @[ standard.py:293:36 @[ k.py:9:15 ] ]", 9),
        (".loc 2 263 15, function_name $L__info_string0, inlined_at 1 12 3", 12),
        (".loc 2 263 15", None),
        (".loc 2 263 15 // standard.py:263:15 @[ k.py", None),
        (".loc", None),
    ],
)
def test_a_directive_means_the_kernels_own_line(directive: str, line: int | None) -> None:
    assert ptx_lines(f"{directive}\n{BARRIER}") == [line]


def test_code_that_is_inlined_twice_counts_where_it_was_called() -> None:
    inner = ".loc 2 7 1, function_name $a, inlined_at 1 8 2\n.loc 2 3 1, function_name $b, inlined_at 2 7 1\n"
    assert ptx_lines(inner + BARRIER) == [8]


def test_equal_instructions_of_a_line_are_counted_and_those_in_a_loop_kept_apart() -> None:
    load = "ld.global.v4.b32 {%r1}, [%rd1];\n"
    loop = f"$L0:\n{load}{load}@%p1 bra $L0;\n{load}"
    rows = [(s.in_loop, s.count, s.width_bytes, s.vector) for s in ptx_sites(FIRST + loop + FILES)]
    assert rows == [(True, 2, 16, 4), (False, 1, 16, 4)]


def test_each_kind_of_instruction_is_told_apart() -> None:
    text = """\
cp.async.cg.shared.global [ %r1 ], [ %rd1 ], 0x10, %r2;
atom.global.gpu.acq_rel.add.f32 %r1, [ %rd1 ], %r2;
red.global.add.f32 [ %rd1 ], %r2;
mbarrier.init.shared::cta.b64 [%r1], 1;
wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%r1}, %rd1;
bar.warp.sync 1;
ld.shared.b32 %r1, [%r2];
"""
    found = [(site.kind, site.width_bytes, site.semantics) for site in ptx_sites(FIRST + text)]
    assert found == [
        ("async_copy", 16, None),
        ("atomic", None, "acq_rel"),
        ("atomic", None, "relaxed"),
        ("mbarrier", None, None),
        ("mma", None, None),
        ("shared_load", None, None),
    ]


TTGIR = """\
#loc = loc("/tmp/k.py":6:0)
module {{
  tt.func public @k() {{
    %0 = "tt.reduce"(%v) <{{axis = 0 : i32}}> ({{
      tt.reduce.return %s : f32 loc(#loc)
    }}) : (tensor<64xf32>) -> f32 loc(#loc9)
  }} loc(#loc)
}} loc(#loc)
{table}
"""


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ('#loc9 = loc("/tmp/k.py":8:4)', 8),
        ('#loc9 = loc("s"(#loc2))\n#loc2 = loc("/tmp/k.py":9:4)', 9),
        ('#loc9 = loc(callsite(#loc2 at #loc3))\n#loc2 = loc("/lib/s.py":1:1)\n#loc3 = loc("/tmp/k.py":10:4)', 10),
        ('#loc9 = loc(fused<"m">[#loc1, #loc3])\n#loc1 = loc(unknown)\n#loc3 = loc("/tmp/k.py":11:4)', 11),
        ('#loc9 = loc(callsite("/lib/s.py":1:1 at "/tmp/k.py":12:4))', 12),
        ("#loc9 = loc(#loc9)", None),
        ("#loc9 = loc(callsite(#loc2 at #loc2))\n#loc2 = loc(#loc9)", None),
        ("#loc9 = loc(", None),
        ("", None),
    ],
)
def test_a_location_is_resolved_to_the_kernels_own_line(table: str, line: int | None) -> None:
    assert [site.line for site in ttgir_sites(TTGIR.format(table=table))] == [line]


def places(ptx: str, ttgir: str = "") -> list[tuple[str, str]]:
    return [(place.what, place.detail) for place in details(FIRST + ptx + FILES, ttgir).places]


def test_a_barrier_in_a_loop_is_named_unless_copies_feed_matrix_instructions_there() -> None:
    loop = "$L0:\n{}bar.sync 0;\n@%p1 bra $L0;\n"
    mma = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%r1}, %rd1;\n"
    copy = "cp.async.cg.shared.global [ %r1 ], [ %rd1 ], 0x10, %r2;\n"
    assert places(loop.format("")) == [("barrier-in-loop", "1 x bar.sync")]
    assert places(loop.format(mma)) == [("barrier-in-loop", "1 x bar.sync")]
    assert places(copy + loop.format(mma)) == [("barrier-in-loop", "1 x bar.sync")]
    assert places(loop.format(copy + mma)) == []


@pytest.mark.parametrize(
    ("types", "short"),
    [
        ("tensor<64x32x!tt.ptr<f16>, #blocked1>", "64x32 f16 pointers"),
        ("tensor<64x64xf16, #blocked> -> tensor<64x64xf16, #dot_op<{opIdx", "64x64 f16 #blocked to 64x64 f16 #dot_op"),
        ("tensor<64x64xf16, #blocked> -> tensor<64xf16, #ttg.slice<{dim", "64x64 f16 #blocked to 64 f16"),
        ("f32", "f32"),
    ],
)
def test_the_types_of_an_operation_are_shortened(types: str, short: str) -> None:
    assert shortened(types) == short


@pytest.mark.parametrize(
    "text",
    [
        ".loc 1 1 1 // " + "a:1:1 @[ " * 20_000,
        ".loc 1 6 0\n.loc 2 1 1 // " + "a" * 300_000,
        ".loc 1 6 0\n" + "bra x;\n" * 20_000,
        "$a:\n" * 20_000 + "bra $a;" * 20_000,
        '.file 1 "' * 20_000,
        "".join(f"#loc{n} = loc(callsite(#loc{n + 1} at #loc{n + 1}))\n" for n in range(20_000)),
        "tt.func {\ntt.load : tensor<4x!tt.ptr<f32>> loc(#loc0)\n} loc(#loc0)\n" + '#loc0 = loc("' + '"' * 20_000,
        "ld.global.b32 %r1, [%rd1];\n" * 20_000,
    ],
)
def test_hostile_text_is_read_in_passing_and_names_no_place(text: str) -> None:
    assert all(place.line >= 0 for place in details(text, text).places)
