"""Instructions of real PTX, and the spellings that the recordings happen not to hold."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tritonforge.profiling.compiler.ptx import parse


@pytest.mark.parametrize(
    ("name", "mma", "count"),
    [
        ("sin_candidate", "none", 0),
        ("matmul_baseline", "mma", 32),
        ("matmul_short", "mma", 16),
        ("matmul_candidate", "wgmma", 4),
        ("tma_sm100", "tcgen05", 8),
    ],
)
def test_the_tensor_core_generation_is_told(recorded: Callable[[str], str], name: str, mma: str, count: int) -> None:
    facts = parse(recorded(f"{name}.ptx"))
    assert (facts.mma, facts.mma_instructions) == (mma, count)


@pytest.mark.parametrize(
    ("name", "loads", "stores"),
    [
        ("sin_baseline", {4: 1}, {4: 1}),
        ("sin_candidate", {16: 2}, {16: 2}),
        ("softmax_baseline", {8: 3}, {8: 1}),
        ("softmax_unaligned", {2: 16}, {2: 16}),
        ("atomics", {16: 3}, {16: 2}),
        ("tma", {}, {}),
    ],
)
def test_global_accesses_are_counted_by_width(
    recorded: Callable[[str], str], name: str, loads: dict[int, int], stores: dict[int, int]
) -> None:
    facts = parse(recorded(f"{name}.ptx"))
    assert (facts.load_widths_bytes, facts.store_widths_bytes) == (loads, stores)


def test_async_copies_are_loads_too(recorded: Callable[[str], str]) -> None:
    facts = parse(recorded("matmul_candidate.ptx"))
    assert facts.async_copies == 36
    assert facts.load_widths_bytes == {16: 36}
    assert facts.tma_copies == 0


def test_tma_copies_are_no_async_copies(recorded: Callable[[str], str]) -> None:
    facts = parse(recorded("tma.ptx"))
    assert (facts.async_copies, facts.tma_copies) == (0, 7)


def test_atomics_are_counted_and_those_that_order_memory_named(recorded: Callable[[str], str]) -> None:
    facts = parse(recorded("atomics.ptx"))
    assert (facts.atomics, facts.acq_rel_atomics) == (3, 1)


def test_the_entry_is_the_kernel_and_not_its_helper(recorded: Callable[[str], str]) -> None:
    assert parse(recorded("atomics.ptx")).entry == "atomic_kernel"
    assert parse("").entry is None


@pytest.mark.parametrize(
    ("instruction", "width"),
    [
        ("ld.global.L1::evict_last.L2::cache_hint.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ], %rd2;", 16),
        ("@%p1 ld.global.v2.b64 {%rd3, %rd4}, [%rd1];", 16),
        ("ld.global.v8.b32 { %r1 }, [ %rd1 + 0 ];", 32),
        ("ld.volatile.global.u8 %rs1, [%rd1];", 1),
        ("ld.global.nc.f64 %fd1, [%rd1+8];", 8),
        ("ld.global.b128 %rq1, [%rd1];", 16),
        ("cp.async.ca.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x8, %r2;", 8),
        ("cp.async.ca.shared.global.L2::128B [%r1], [%rd1], 4;", 4),
    ],
)
def test_every_spelling_of_a_load_has_its_width(instruction: str, width: int) -> None:
    assert parse(instruction).load_widths_bytes == {width: 1}


@pytest.mark.parametrize(
    "text",
    [
        "ld.shared.v4.b32 {%r1,%r2,%r3,%r4}, [%r5];",
        "ld.param.b64 %rd1, [k_param_0];",
        "ld.local.b32 %r1, [%r2];",
        "// ld.global.b32 %r1, [%rd1];",
        "/* ld.global.b32 %r1,\n [%rd1]; */",
        "cp.async.commit_group;",
        "cp.async.wait_group 2;",
        "cp.async.bulk.commit_group;",
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r1, %r2}];",
        "atom.shared.add.u32 %r1, [%r2], %r3;",
        "redux.sync.add.s32 %r1, %r2, %r3;",
    ],
)
def test_what_does_not_touch_global_memory_is_not_counted(text: str) -> None:
    assert replace(parse(text), instructions=0) == parse("")


@pytest.mark.parametrize(
    ("text", "instructions"),
    [
        ("", 0),
        (".version 8.7\n.visible .entry k(.param .u64 k_0)\n{\n.reg .b32 %r<9>;\nmov.b32 %r1, 0;\nret;\n}\n", 2),
        ("$L__BB0_1:\n@%p1 bra $L__BB0_1;\n@!%p2 bra.uni $L;\nbar.sync 0;", 3),
        ("{ // a call\n.param .b64 param0;\ncall.uni (retval0), vprintf, (param0);\n} // its end\ntrap;", 2),
        (".loc 1 2 3\nadd.s32 %r1, %r2, 3; // add.s32 %r1, %r2, 4;\n/* ret; */", 1),
    ],
)
def test_all_instructions_are_counted_and_nothing_else(text: str, instructions: int) -> None:
    assert parse(text).instructions == instructions


@pytest.mark.parametrize(
    "text", ["a:" * 100_000, "a." * 100_000, "{ " * 100_000, "a" * 200_000, "@%p " * 50_000, ".a\n" * 50_000]
)
def test_text_that_is_no_instruction_is_read_in_passing(text: str) -> None:
    assert parse(text + "!").instructions == 0


def test_the_widest_access_stands_first() -> None:
    facts = parse("st.global.b32 [%rd1], %r1;\nst.global.v4.b32 [%rd1], {%r1,%r2,%r3,%r4};\nst.global.b8 [%rd1], %r1;")
    assert list(facts.store_widths_bytes) == [16, 4, 1]


def test_a_table_of_the_module_is_not_the_kernels_data() -> None:
    table = ".global .align 4 .b8 table[24] = {1, 2};\nmov.b64 %rd1, table;\nadd.s64 %rd2, %rd1, %rd9;\n"
    assert parse(table + "ld.global.nc.b32 %r1, [%rd2];").load_widths_bytes == {}
    assert parse(table + "ld.global.nc.b32 %r1, [%rd3];").load_widths_bytes == {4: 1}


@pytest.mark.parametrize(
    "comment",
    ["// /*", '.file 1 "/a/*b"', '// "/*', "/* // */", '/* " */'],
    ids=["line", "string", "quote", "block", "both"],
)
def test_a_comment_hides_nothing_behind_it(comment: str) -> None:
    code = f"{comment}\n\tst.global.b32 [%rd1], %r1;\n\tret;\n"
    assert list(parse(code).store_widths_bytes) == [4]


def test_a_block_comment_without_an_end_takes_the_rest() -> None:
    assert list(parse("st.global.b32 [%rd1], %r1;\n/* st.global.v4.b32 [%rd1], %r1;").store_widths_bytes) == [4]
