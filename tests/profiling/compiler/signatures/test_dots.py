"""Products of tiles: each fault shows, and what the catalogue offers against it does away with the sign."""

import pytest

from .conftest import Fail, Show
from .shown import TRITON


@pytest.mark.parametrize(
    ("id", "faulty", "repaired"),
    [
        ("T1", "two_warps", "product"),
        ("T2", "m_32", "swapped"),
        pytest.param(
            "T3", "n_8", "n_16",
            marks=pytest.mark.skipif(
                not (3, 5) <= TRITON < (3, 8), reason="Triton 3.4 compiles no N below 16, 3.8 takes 8 for warp groups"
            ),
        ),
        ("T4", "ieee", "tf32"),
        ("T11", "batched", "one_of_a_batch"),
        ("T", "fp8_imprecise_0", "fp8"),
    ],
)  # fmt: skip
def test_a_dot_that_is_refused_warp_groups_is_told_with_its_cause(
    show: Show, id: str, faulty: str, repaired: str
) -> None:
    assert id in show(faulty).observed
    assert "wgmma-rejected" in show(faulty).remarks
    assert show(faulty).code.mma != "wgmma"
    assert id not in show(repaired).observed
    assert "wgmma-rejected" not in show(repaired).remarks
    assert show(repaired).code.mma == "wgmma"


def test_ieee_fp32_runs_without_tensor_cores_and_three_tf32_dots_in_its_place_do_not(show: Show) -> None:
    assert (show("ieee").code.mma, show("ieee").count("fused_multiply")) == ("none", 64 * 64 * 16 // 128)
    assert (show("tf32x3").code.mma, len(show("tf32x3").ir.dots)) == ("wgmma", 3)


def test_tf32_that_is_not_k_major_is_copied_in_narrow_pieces(show: Show) -> None:
    assert "operand-order-forced" in show("tf32_by_n").remarks
    assert "operand-order-forced" not in show("tf32").remarks
    assert "narrow-async-copy" in show("tf32_by_n").places
    assert "narrow-async-copy" not in show("tf32").places
    assert show("tf32_by_n").code.async_copies > 2 * show("tf32").code.async_copies


def test_fp8_that_is_not_k_major_waits_for_its_load_and_goes_through_registers(show: Show) -> None:
    faulty, repaired = show("fp8_by_n"), show("fp8")
    assert "operand-order-forced" in faulty.remarks
    assert (faulty.ir.sync_loads_beside_dots, faulty.ir.staged_in_loops) == (1, 1)
    assert "load-waits-beside-dot" in faulty.places
    assert (repaired.ir.sync_loads_beside_dots, repaired.ir.staged_in_loops) == (0, 0)
    assert "operand-order-forced" not in repaired.remarks


def test_fp8_sums_that_are_split_have_injected_waits_and_take_all_registers(show: Show) -> None:
    assert show("fp8_imprecise_64").code.mma == "wgmma"
    assert "C7517" in show("fp8_imprecise_64").notes
    assert show("fp8_imprecise_64").facts.registers == 255
    assert "C7517" not in show("fp8").notes


@pytest.mark.parametrize("name", ["fp16_sum", "int8"])
def test_dots_that_do_not_accumulate_in_fp32_are_waited_for(show: Show, name: str) -> None:
    assert "accumulator-not-fp32" in show(name).remarks
    assert show(name).ir.dot_waits_in_loops == (0,)


def test_dots_that_accumulate_in_fp32_overlap(show: Show) -> None:
    assert show("product").remarks == set()
    assert show("product").ir.dot_waits_in_loops == (1,)


@pytest.mark.parametrize(
    ("remark", "faulty", "repaired"),
    [
        ("accumulator-changed-in-loop", "scaled", "scaled_afterwards"),
        ("dot-result-used-in-loop", "stored", "product"),
    ],
)
def test_a_sum_that_is_touched_in_the_loop_keeps_dots_from_overlapping(
    show: Show, remark: str, faulty: str, repaired: str
) -> None:
    assert remark in show(faulty).remarks
    assert show(faulty).ir.dot_waits_in_loops == (0,)
    assert remark not in show(repaired).remarks
    assert show(repaired).ir.dot_waits_in_loops == (1,)


def test_a_sum_that_is_stored_in_the_loop_takes_shared_memory_beside_the_tiles(show: Show) -> None:
    assert show("stored").facts.shared_bytes >= show("product").facts.shared_bytes + 64 * 64 * 4
    assert "layout-conversion-in-loop" in show("stored").places


def test_an_operand_that_is_computed_goes_back_to_shared_memory_unless_it_is_the_first(show: Show) -> None:
    second, first = show("weights_second"), show("weights_first")
    assert "dot-waits-for-operands" in second.remarks
    assert (second.ir.staged_in_loops, set(second.ir.dot_waits_in_loops)) == (1, {0})
    assert "dot-waits-for-operands" not in first.remarks
    assert first.ir.staged_in_loops == 0
    assert max(first.ir.dot_waits_in_loops) > 0
    assert first.facts.shared_bytes < second.facts.shared_bytes


def test_adding_a_dot_to_a_sum_is_the_same_code_as_passing_the_sum(show: Show) -> None:
    assert show("sum_of_two").facts.code_hash == show("product").facts.code_hash


def test_a_sum_that_does_not_fit_in_registers_spills_and_serializes_the_dots(show: Show) -> None:
    narrow, wide = show("wide_tile"), show("wide_tile_of_eight_warps")
    assert "R1" in narrow.observed
    assert (narrow.facts.spill_bytes or 0) > 1000
    assert "C7511" in narrow.notes
    assert "R1" not in wide.observed
    assert wide.facts.spill_bytes == 0
    assert "C7511" not in wide.notes


def test_waits_that_ptxas_injects_are_noted(show: Show) -> None:
    assert "(C7517)" in show("fp16_sum").notes
    assert show("product").notes == ""


def test_short_k_narrows_the_pattern_in_shared_memory(show: Show) -> None:
    narrowest = {name: min(show(name).ir.swizzles_bytes) for name in ("k_16", "k_32", "product")}
    assert narrowest == {"k_16": 32, "k_32": 64, "product": 128}


def test_more_stages_cost_the_second_block_and_then_the_launch(show: Show, failure: Fail) -> None:
    assert show("large_tile").facts.blocks_per_sm == 2
    many = show("seven_stages").facts
    assert (many.shared_bytes, many.blocks_per_sm) == (7 * (128 + 128) * 64 * 2, 1)
    assert "out of resource: shared memory, Required: 262144, Hardware limit: 232448" in failure("eight_stages")


def test_stored_sums_take_more_shared_memory_than_small_tiles(show: Show) -> None:
    tiles = 3 * (64 + 64) * 16 * 2
    assert show("k_16").facts.shared_bytes >= 64 * 64 * 4 > tiles
    assert show("k_16_to_halves").facts.shared_bytes == tiles


def test_a_limit_on_registers_makes_a_dot_spill(show: Show) -> None:
    assert show("large_tile").facts.spill_bytes == 0
    assert "R1" in show("few_registers").observed
    assert (show("few_registers").facts.spill_bytes or 0) > 500
    assert show("few_registers").facts.code_hash != show("large_tile").facts.code_hash


def test_a_transposed_result_goes_through_shared_memory(show: Show) -> None:
    result, product = show("transposed_result"), show("transposed_product")
    assert result.ir.staged_in_loops == 1
    assert product.ir.staged_in_loops == 0
    assert len(result.ir.dots) == len(product.ir.dots) == 2
    assert 0 in result.ir.dot_waits_in_loops


def test_attention_waits_for_its_scores_and_that_is_no_fault(show: Show) -> None:
    assert 0 in show("attention").ir.dot_waits_in_loops
    assert show("attention").observed == []


def test_a_cluster_of_two_divides_the_tile(show: Show) -> None:
    two, one = show("two_ctas").facts, show("large_tile").facts
    assert (two.num_ctas, one.num_ctas) == (2, 1)
    assert two.shared_bytes < one.shared_bytes
    assert (two.registers or 0) < (one.registers or 0)
