"""Accesses to memory: each reason for narrow ones shows, and what the catalogue offers against it widens them."""

import pytest

from .conftest import Show


@pytest.mark.parametrize(
    ("faulty", "width", "repaired"),
    [
        ("odd_rows", 2, "rows_of_eights"),
        ("odd_rows", 2, "even_rows"),
        ("odd_limit", 4, "masked_access"),
        ("slice", 4, "aligned_slice"),
        ("unspecialized_stride", 4, "stride_of_one"),
        ("stride_of_two", 4, "stride_of_one"),
        ("pairs", 2, "pairs_together"),
        ("odd_modulo", 4, "constant_modulo"),
    ],
)
def test_a_load_whose_alignment_is_unknown_is_scalar(show: Show, faulty: str, width: int, repaired: str) -> None:
    assert show(faulty).facts.load_widths_bytes == [width]
    assert "narrow-access" in show(faulty).remarks
    assert "narrow-load" in show(faulty).places
    assert "V2" in show(faulty).observed
    assert show(repaired).facts.load_widths_bytes == [16]
    assert show(repaired).remarks == set()
    assert show(repaired).places == set()
    assert show(repaired).observed == []


def test_a_limit_that_is_not_divisible_makes_stores_scalar_too_and_a_slice_does_not(show: Show) -> None:
    assert show("odd_limit").facts.store_widths_bytes == [4]
    assert show("slice").facts.store_widths_bytes == [16]


@pytest.mark.parametrize(
    ("hinted", "width"), [("rows_of_hinted_stride", 2), ("rows_of_assumed_stride", 2), ("hinted_offsets", 4)]
)
def test_hints_on_an_argument_or_on_offsets_below_a_limit_have_no_effect(show: Show, hinted: str, width: int) -> None:
    assert show(hinted).facts.load_widths_bytes == [width]


def test_full_blocks_on_a_path_of_their_own_are_wide(show: Show) -> None:
    facts = show("full_blocks_apart").facts
    assert (facts.load_widths_bytes, facts.store_widths_bytes) == ([16, 4], [16, 4])
    assert show("full_blocks_apart").observed == []


@pytest.mark.parametrize(("faulty", "width"), [("small_block", 4), ("small_block_of_halves", 8), ("many_warps", 8)])
def test_a_block_too_small_for_its_threads_is_told_and_no_pass_says_so(show: Show, faulty: str, width: int) -> None:
    assert show(faulty).observed == ["V6"]
    assert show(faulty).facts.load_widths_bytes == [width]
    assert show(faulty).remarks == set()
    assert show("large_enough_block").observed == []


def test_gathered_elements_are_scalar_and_gathered_rows_are_not(show: Show) -> None:
    assert show("gathered").facts.load_widths_bytes == [16, 4]  # the indices, and what they point to
    assert show("gathered").count("load") > 8
    assert "narrow-access" in show("gathered").remarks
    assert "narrow-access" not in show("gathered_rows").remarks
    assert show("gathered_rows").count("load") == 3


def test_separate_pairs_take_eight_times_the_instructions_of_pairs_together(show: Show) -> None:
    apart, together = show("pairs"), show("pairs_together")
    assert (apart.count("load", "store"), together.count("load", "store")) == (32, 4)
    assert together.facts.shared_bytes == 0


def test_division_by_an_argument_costs_instructions_and_by_a_constant_none(show: Show) -> None:
    divided = {name: show(name).count("integer_division") for name in ("modulo", "odd_modulo", "constant_modulo")}
    assert divided == {"modulo": 2, "odd_modulo": 8, "constant_modulo": 0}
    assert show("modulo").facts.load_widths_bytes == [16]
    assert show("odd_modulo").code.instructions > 1.5 * show("constant_odd_modulo").code.instructions


def test_a_transposing_copy_is_wide_on_both_sides_and_goes_through_shared_memory(show: Show) -> None:
    copy, straight = show("transposed_copy"), show("straight_copy")
    assert (copy.facts.load_widths_bytes, copy.facts.store_widths_bytes) == ([16], [16])
    assert (copy.ir.layout_conversions, copy.facts.shared_bytes >= 64 * 64 * 4) == (1, True)
    assert (copy.count("shared_store"), copy.count("shared_load")) == (32, 32)
    assert (straight.ir.layout_conversions, straight.facts.shared_bytes) == (0, 0)


def test_a_policy_of_the_cache_changes_no_count(show: Show) -> None:
    streamed, plain = show("streamed"), show("plain")
    assert streamed.facts.load_widths_bytes == plain.facts.load_widths_bytes
    assert streamed.count("load", "store") == plain.count("load", "store")
    assert any("evict_first" in site.instruction for site in streamed.lines.ptx)
    assert not any("evict_first" in site.instruction for site in plain.lines.ptx)


def test_a_change_of_layout_in_a_loop_is_told_and_outside_it_is_not(show: Show) -> None:
    assert "layout-conversion-in-loop" in show("converted_in_loop").places
    assert show("converted_in_loop").count("shared_store", "barrier", in_loop=True) > 0
    assert show("converted_once").places == set()
    assert show("converted_once").count("shared_store", "barrier", in_loop=True) == 0


def test_a_row_across_warps_is_summed_with_barriers_and_in_one_warp_without(show: Show) -> None:
    eight, one = show("row_of_eight_warps"), show("row_of_one_warp")
    assert min(eight.count("barrier"), eight.count("shared_store"), eight.count("shared_load")) > 0
    assert eight.count("shuffle") == 8
    assert (one.count("barrier", "shared_store", "shared_load"), one.count("shuffle")) == (0, 5)


def test_a_sum_in_each_step_has_barriers_in_the_loop_and_one_sum_after_it_has_none(show: Show) -> None:
    assert {"reduction-in-loop", "barrier-in-loop"} <= show("sums_in_loop").places
    assert show("sums_in_loop").count("barrier", in_loop=True) >= 2
    assert not {"reduction-in-loop", "barrier-in-loop"} & show("sum_once").places
    assert show("sum_once").count("barrier", in_loop=True) == 0


def test_sorting_takes_many_instructions_and_barriers(show: Show) -> None:
    sort, maximum = show("sort"), show("maximum")
    assert sort.code.instructions > 5 * maximum.code.instructions
    assert sort.count("shared_store", "shared_load") > 4 * maximum.count("shared_store", "shared_load")
    assert sort.count("barrier") > 2 * maximum.count("barrier")
    assert show("cumsum").count("barrier") > 0
