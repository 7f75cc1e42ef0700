"""Tiles, dots and loops of real TTGIR."""

from collections.abc import Callable

import pytest

from tritonforge.profiling.compiler.ttgir import Dot, parse

LOOP = """\
module {{
  tt.func public @k() {{
    %0 = scf.for %i = %c0 to %n step %c1 iter_args(%x = %cst) -> (tensor<64xf32, #mma>)  : i32 {{
      {inside} loc(#loc1)
    }} loc(#loc2)
    {outside} loc(#loc3)
  }} loc(#loc)
}} loc(#loc)
"""


@pytest.mark.parametrize(
    ("name", "elements", "element_bytes"),
    [
        ("sin_baseline", 4, 4),
        ("softmax_candidate", 4096, 2),
        ("matmul_candidate", 128 * 256, 2),
        ("tma", 64 * 64, 2),
        ("tma_sm100", 64 * 64, 2),
        ("batched", 2 * 64 * 64, 2),
    ],
)
def test_the_largest_tile_is_found(
    recorded: Callable[[str], str], name: str, elements: int, element_bytes: int
) -> None:
    access = parse(recorded(f"{name}.ttgir")).largest_access()
    assert access is not None
    assert (access.elements, access.element_bytes) == (elements, element_bytes)


def test_loads_and_stores_have_their_own_largest_tile(recorded: Callable[[str], str]) -> None:
    facts = parse(recorded("matmul_candidate.ttgir"))
    load, store = facts.largest_by_threads("load"), facts.largest_by_threads("store")
    assert load is not None
    assert store is not None
    assert (load.elements, store.elements) == (64 * 256, 128 * 256)


def test_a_tile_that_tma_moves_is_not_moved_by_threads(recorded: Callable[[str], str]) -> None:
    facts = parse(recorded("tma.ttgir"))
    assert facts.largest_by_threads("load") is None
    assert facts.largest_by_threads("store") is None


@pytest.mark.parametrize(("name", "loops"), [("sin_candidate", 0), ("softmax_baseline", 3), ("while_loop", 1)])
def test_loops_are_counted(recorded: Callable[[str], str], name: str, loops: int) -> None:
    assert parse(recorded(f"{name}.ttgir")).loops == loops


def test_a_warp_group_dot_has_shape_and_types(recorded: Callable[[str], str]) -> None:
    assert parse(recorded("matmul_candidate.ttgir")).dots == (
        Dot(
            m=128,
            n=256,
            k=64,
            a_dtype="f16",
            b_dtype="f16",
            accumulator_dtype="f32",
            precision=None,
            in_loop=True,
            in_while=False,
        ),
    )


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("matmul_baseline", (1, 64, 64, 32)),
        ("matmul_short", (1, 32, 64, 64)),
        ("batched", (2, 64, 64, 64)),
        ("tma_sm100", (1, 64, 64, 64)),
    ],
)
def test_every_spelling_of_a_dot_has_its_shape(
    recorded: Callable[[str], str], name: str, shape: tuple[int, int, int, int]
) -> None:
    dot = parse(recorded(f"{name}.ttgir")).dots[-1]
    assert (dot.batch, dot.m, dot.n, dot.k) == shape


def test_a_dot_outside_every_loop_is_told_from_one_inside(recorded: Callable[[str], str]) -> None:
    assert [dot.in_loop for dot in parse(recorded("tma_sm100.ttgir")).dots] == [False, True]


def test_ieee_precision_is_told_from_tf32(recorded: Callable[[str], str]) -> None:
    ieee = recorded("ieee.ttgir")
    (dot,) = parse(ieee).dots
    assert (dot.a_dtype, dot.precision, dot.in_while) == ("f32", "ieee", True)
    (dot,) = parse(ieee.replace("tt.dot %acc_32, %acc_33, %k_25", "tt.dot %a, %b, %c, inputPrecision = tf32")).dots
    assert dot.precision == "tf32"


@pytest.mark.parametrize(
    ("name", "pipelined", "buffers", "waiting"),
    [
        ("matmul_candidate", True, 3, 0),
        ("attention", True, 3, 0),
        ("tma", True, 3, 0),
        ("matmul_baseline", False, 0, 2),
        ("while_loop", False, 0, 2),
        ("softmax_baseline", False, 0, 0),
    ],
)
def test_pipelined_loads_are_told_from_those_that_wait(
    recorded: Callable[[str], str], name: str, pipelined: bool, buffers: int, waiting: int
) -> None:
    facts = parse(recorded(f"{name}.ttgir"))
    assert (facts.pipelined, facts.buffers, facts.sync_loads_beside_dots) == (pipelined, buffers, waiting)


def test_layout_conversions_count_inside_loops_only(recorded: Callable[[str], str]) -> None:
    assert parse(recorded("while_loop.ttgir")).layout_conversions_in_loops == 2
    epilogue = recorded("matmul_candidate.ttgir")
    assert "ttg.convert_layout" in epilogue
    assert parse(epilogue).layout_conversions_in_loops == 0


@pytest.mark.parametrize(
    ("result", "counted"),
    [
        ("tensor<64x64xf16, #blocked>", 1),
        ("tensor<64xf32, #ttg.slice<{dim = 1, parent = #mma}>>", 0),
        ("tensor<64x64xf16, #ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 2}>>", 0),
    ],
)
def test_conversions_that_stay_in_registers_do_not_count(result: str, counted: int) -> None:
    convert = f"%c = ttg.convert_layout %x : tensor<64x64xf16, #mma> -> {result}"
    assert parse(LOOP.format(inside=convert, outside="tt.return")).layout_conversions_in_loops == counted
    assert parse(LOOP.format(inside="tt.nop", outside=convert)).layout_conversions_in_loops == 0


def test_a_reduction_does_not_end_the_loop_around_it(recorded: Callable[[str], str]) -> None:
    text = recorded("attention.ttgir")
    assert '"tt.reduce"' in text
    assert [dot.in_loop for dot in parse(text).dots] == [True, True]


def test_a_load_behind_the_dots_loop_does_not_wait_beside_it() -> None:
    dot = "%d = tt.dot %a, %b, %x : tensor<64x64xf16, #a> * tensor<64x64xf16, #b> -> tensor<64x64xf32, #mma>"
    load = "%l = tt.load %p : tensor<64x64x!tt.ptr<f16>, #blocked>"
    assert parse(LOOP.format(inside=f"{dot}\n{load}", outside="tt.return")).sync_loads_beside_dots == 1
    assert parse(LOOP.format(inside=dot, outside=load)).sync_loads_beside_dots == 0
    vector = "%l = tt.load %p : tensor<64x!tt.ptr<f32>, #blocked>"
    assert parse(LOOP.format(inside=f"{dot}\n{vector}", outside="tt.return")).sync_loads_beside_dots == 0


def test_scalar_accesses_move_no_tile() -> None:
    facts = parse("%x = tt.load %p : !tt.ptr<f32>\ntt.store %q, %x : !tt.ptr<f32>")
    assert facts.accesses == ()
    assert facts.largest_access() is None


@pytest.mark.parametrize(("dtype", "size"), [("f8E4M3FN", 1), ("bf16", 2), ("i1", 1), ("i64", 8), ("f32", 4)])
def test_elements_have_the_size_of_their_type(dtype: str, size: int) -> None:
    access = parse(f"%x = tt.load %p : tensor<16x!tt.ptr<{dtype}>, #blocked>").largest_access()
    assert access is not None
    assert access.element_bytes == size


@pytest.mark.parametrize(
    ("name", "dots", "copies"),
    [
        ("matmul_candidate", (1,), (2,)),
        ("attention", (0,), (2,)),
        ("matmul_unaligned", (0,), ()),
        ("tma", (1,), ()),
        ("softmax_candidate", (), ()),
    ],
)
def test_what_a_wait_in_a_loop_lets_go_on_is_told(
    recorded: Callable[[str], str], name: str, dots: tuple[int, ...], copies: tuple[int, ...]
) -> None:
    facts = parse(recorded(f"{name}.ttgir"))
    assert (facts.dot_waits_in_loops, facts.copy_waits_in_loops) == (dots, copies)


@pytest.mark.parametrize(
    ("name", "staged", "loaded"),
    [("matmul_candidate", 0, 0), ("matmul_unaligned", 2, 0), ("while_loop", 2, 0), ("matmul_short", 0, 2)],
)
def test_tiles_that_go_between_registers_and_shared_memory_are_counted(
    recorded: Callable[[str], str], name: str, staged: int, loaded: int
) -> None:
    facts = parse(recorded(f"{name}.ttgir"))
    assert (facts.staged_in_loops, facts.shared_loads_in_loops) == (staged, loaded)


@pytest.mark.parametrize(
    ("operation", "staged"),
    [
        ("%b = ttg.local_alloc : () -> !ttg.memdesc<3x64x64xf16, #shared, #smem, mutable>", 0),
        ("%b = ttg.local_alloc %a : (tensor<64x64xf16, #blocked>) -> !ttg.memdesc<64x64xf16, #shared, #smem>", 1),
        ("ttg.local_store %a, %b : tensor<64x64xf16, #blocked> -> !ttg.memdesc<64x64xf16, #shared, #smem>", 1),
    ],
)
def test_a_buffer_is_staged_only_where_it_gets_contents(operation: str, staged: int) -> None:
    assert parse(LOOP.format(inside=operation, outside="tt.return")).staged_in_loops == staged
    assert parse(LOOP.format(inside="tt.nop", outside=operation)).staged_in_loops == 0


def test_patterns_in_shared_memory_are_told_once_each(recorded: Callable[[str], str]) -> None:
    assert parse(recorded("matmul_unaligned.ttgir")).swizzles_bytes == (64, 128)
    assert parse(recorded("matmul_short.ttgir")).swizzles_bytes == ()


def test_descriptors_and_specialized_warps_are_seen(recorded: Callable[[str], str]) -> None:
    facts = parse(recorded("tma.ttgir"))
    assert (facts.descriptors_made, facts.warp_specialized) == (3, False)
    assert parse("ttg.warp_specialize(%a)").warp_specialized


def test_layout_conversions_of_the_whole_kernel_are_counted_too(recorded: Callable[[str], str]) -> None:
    facts = parse(recorded("while_loop.ttgir"))
    assert (facts.layout_conversions, facts.layout_conversions_in_loops) == (3, 2)
