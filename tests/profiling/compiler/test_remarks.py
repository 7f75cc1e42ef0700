"""What passes said becomes facts: known decisions with a meaning and a line, others kept, the rest left out."""

import pytest

from tritonforge.profiling.compiler.remarks import MESSAGE_CHARACTERS, SHOWN, parse

NARROW = (
    "[triton-loop-pipeline]: Load %41 = tt.load %arg8, %40, %cst_1 : tensor<64x32x!tt.ptr<f16>, #ttg.blocked<{order = "
    "[1, 0]}>> is too small for pipelining"
)
REJECTED = (
    "/tmp/x/kernel.py:16:27: remark: MMA version 3 acceleration not applied due to unsupported shapes or data types."
)
SCALAR = "/tmp/x/kernel.py:14:20: remark: Warning: vectorization fails vec = 1 origin vec = 4 numElems = 16 mask is 1"
LIBRARY = "/usr/lib/triton/language/standard.py:293:12: remark: something new"
NOISE = [
    "[triton-loop-pipeline]: Initial coarse schedule:",
    "[triton-loop-pipeline]: Load %46 = tt.load %arg10 : tensor<32x64x!tt.ptr<f16>, #b<{o = 1}>> has width 128",
    "[triton-wgmma-pipeline]: Considering whether to make MMAv3 dot properly async: %78 = ttng.warp_group_dot %75",
    "/tmp/x/kernel.py:16:27: note: Target compute capability (90) supports MMA v3.",
    "  %37 = arith.subi %arg3, %arg7 : i32",
    "",
]


def test_a_decision_has_its_line_and_what_it_means() -> None:
    (rejected,) = parse([REJECTED], "kernel.py")
    assert (rejected.id, rejected.line, rejected.category) == ("wgmma-rejected", 16, "remark")
    assert rejected.meaning is not None
    assert "num_warps" in rejected.meaning


def test_what_costs_most_comes_first_whatever_the_order_of_the_passes() -> None:
    found = parse([SCALAR, NARROW, REJECTED], "kernel.py")
    assert [one.id for one in found] == ["wgmma-rejected", "load-too-narrow-to-pipeline", "narrow-access"]


def test_of_an_operation_its_name_and_tile_are_told() -> None:
    (narrow,) = parse([NARROW], "kernel.py")
    assert narrow.message == "Load tt.load of 64x32xf16 is too small for pipelining"
    assert (narrow.line, narrow.category) == (None, "triton-loop-pipeline")


def test_the_same_of_the_same_place_is_told_once_and_counted() -> None:
    other_mask = SCALAR.replace("mask is 1", "mask is 2")
    elsewhere = SCALAR.replace(":14:", ":19:")
    found = parse([SCALAR, other_mask, elsewhere, NARROW, NARROW.replace("64x32", "32x64")], "kernel.py")
    assert [(one.id, one.line, one.count) for one in found] == [
        ("load-too-narrow-to-pipeline", None, 1),
        ("load-too-narrow-to-pipeline", None, 1),
        ("narrow-access", 14, 2),
        ("narrow-access", 19, 1),
    ]


def test_steps_that_decide_nothing_are_left_out() -> None:
    assert parse(NOISE, "kernel.py") == []


def test_remarks_that_no_rule_knows_are_kept_without_a_meaning_or_a_line_of_another_file() -> None:
    (found,) = parse([LIBRARY], "kernel.py")
    assert (found.id, found.line, found.meaning, found.message) == ("other", None, None, "something new")


@pytest.mark.parametrize("id_and_text", [
    ("dot-waits-for-operands", "Can't make dot async because shmem operands aren't multi-buffered"),
    ("dot-result-used-in-loop", "Can't make dot async because dot is unconditionally used in the loop"),
    ("accumulator-changed-in-loop", "Can't make dot async because its result from i-1 is used by something other"),
    ("no-async-dot", "No properly async dots."),
])  # fmt: skip
def test_what_keeps_a_dot_from_overlapping_is_told(id_and_text: tuple[str, str]) -> None:
    id, text = id_and_text
    (found,) = parse([f"[triton-wgmma-pipeline]: {text}"], "kernel.py")
    assert found.id == id
    assert found.meaning is not None


@pytest.mark.parametrize("text", [
    "tensor descriptor block and tensor types must match",
    "descriptor block and tensor must have the same number of elements",
])  # fmt: skip
def test_texts_of_several_versions_mean_the_same(text: str) -> None:
    (found,) = parse([f"/tmp/x/kernel.py:7:1: error: {text}"], "kernel.py")
    assert (found.id, found.line) == ("descriptor-type-mismatch", 7)


def test_however_much_is_said_little_is_told() -> None:
    endless = [f"/tmp/x/kernel.py:{line}:1: remark: {'x' * 100_000} {line}" for line in range(1, 500)]
    found = parse(endless, "kernel.py")
    assert len(found) == SHOWN
    assert max(len(one.message) for one in found) <= MESSAGE_CHARACTERS
