"""Arithmetic, registers and atomics: each waste shows, and what the catalogue offers against it does without."""

import pytest

from .conftest import Show
from .shown import TRITON

PER_THREAD = 8
"""Elements of a block of 1,024 that each of 128 threads has."""


def test_exp_multiplies_each_element_first(show: Show) -> None:
    assert (show("exp").count("multiply"), show("exp2").count("multiply")) == (PER_THREAD, 0)


def test_division_of_each_element_is_one_division_and_multiplications_with_the_reciprocal(show: Show) -> None:
    assert show("divided").count("division") == PER_THREAD
    assert show("times_reciprocal").count("division") == 1


def test_tanh_of_the_library_branches_for_each_element(show: Show) -> None:
    assert show("tanh").code.instructions > 2 * show("tanh_by_exp2").code.instructions
    assert show("tanh").count("select") == PER_THREAD
    assert show("tanh_by_exp2").count("select") == 0


def test_a_step_in_double_precision_is_seen(show: Show) -> None:
    assert show("doubles").count("fp64") == 3 * PER_THREAD  # to fp64, the product, and back
    assert show("singles").count("fp64") == 0


def test_both_sides_of_a_where_are_computed(show: Show) -> None:
    assert show("both_sides").code.instructions > 4 * show("one_function").code.instructions


def test_a_mask_between_scale_and_subtraction_keeps_them_from_fusing(show: Show) -> None:
    between, before = show("mask_between"), show("mask_before")
    assert (between.count("fused_multiply"), before.count("fused_multiply")) == (0, PER_THREAD)
    assert between.count("multiply") > before.count("multiply")


def test_without_the_default_fusion_each_product_is_rounded_by_itself(show: Show) -> None:
    fused, apart = show("mask_before"), show("not_fused")
    assert apart.count("fused_multiply") == 0
    assert apart.count("multiply") == fused.count("multiply") + fused.count("fused_multiply")


def test_a_mask_that_only_the_last_tile_needs_is_applied_to_all_tiles(show: Show) -> None:
    assert show("masks_in_loop").count("select", in_loop=True) == PER_THREAD
    assert show("masks_apart").count("select", in_loop=True) == 0
    assert show("masks_apart").count("select") == PER_THREAD


def test_an_assertion_that_is_left_on_costs_a_barrier_and_a_call(show: Show) -> None:
    on, off = show("asserted"), show("not_asserted")
    assert (on.count("call") > 0, on.count("barrier") > 0) == (True, True)
    assert (off.count("call"), off.count("barrier")) == (0, 0)
    assert on.code.instructions > 2 * off.code.instructions


def test_a_swizzle_of_programs_divides_integers(show: Show) -> None:
    assert show("divided_program").count("integer_division") >= 3
    assert show("two_dimensions").count("integer_division") == 0


def test_offsets_of_64_bits_cost_multiplications_and_registers(show: Show) -> None:
    offsets, base = show("wide_offsets"), show("wide_base")
    assert (offsets.count("wide_multiply") >= 4, base.count("wide_multiply")) == (True, 0)
    assert (offsets.facts.registers or 0) > (base.facts.registers or 0)


def test_an_unrolled_loop_has_instructions_for_each_step(show: Show) -> None:
    assert show("unrolled_steps").ir.loops == 0
    assert show("unrolled_steps").code.instructions > 10 * show("looped_steps").code.instructions


def test_a_long_row_in_registers_spills_and_in_chunks_it_is_copied_ahead(show: Show) -> None:
    long, chunked = show("long_row"), show("chunked_row")
    assert "R1" in long.observed
    assert ((long.facts.spill_bytes or 0) > 0, long.facts.registers) == (True, 255)
    assert (chunked.facts.spill_bytes, chunked.ir.pipelined) == (0, True)
    assert chunked.observed == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("sine", marks=pytest.mark.skipif(TRITON >= (3, 9), reason="Triton 3.9's sine needs no stack")),
        "printed",
    ],
)
def test_a_stack_is_no_spill(show: Show, name: str) -> None:
    facts = show(name).facts
    assert ((facts.stack_bytes or 0) > 0, facts.spill_bytes) == (True, 0)
    assert "R1" not in show(name).observed


def test_the_fast_sine_needs_neither_a_stack_nor_the_instructions(show: Show) -> None:
    assert show("fast_sine").facts.stack_bytes == 0
    assert show("sine").code.instructions > 10 * show("fast_sine").code.instructions


def test_an_atomic_orders_memory_unless_it_is_told_not_to(show: Show) -> None:
    assert "acq-rel-atomic" in show("default_atomic").places
    assert show("default_atomic").facts.acq_rel_atomics == show("default_atomic").facts.atomics > 0
    assert show("relaxed_atomic").places == set()
    assert show("relaxed_atomic").facts.acq_rel_atomics == 0


def atomic_tile(show: Show, name: str) -> bool:
    """Whether the kernel's first atomic is one for each element of a tile."""
    site = next(site for site in show(name).lines.ttgir if site.kind == "atomic")
    return site.detail.startswith("(tensor<")


def test_atomics_of_all_elements_become_one_of_their_sum(show: Show) -> None:
    assert atomic_tile(show, "atomics_to_few")
    assert not atomic_tile(show, "atomic_sum")
    assert show("atomics_to_few").facts.atomics > show("atomic_sum").facts.atomics


def test_a_single_half_is_added_by_itself_and_a_tile_of_halves_in_vectors(show: Show) -> None:
    (one,) = (site for site in show("atomic_half").lines.ptx if site.kind == "atomic")
    (tile,) = (site for site in show("atomic_halves").lines.ptx if site.kind == "atomic")
    (full,) = (site for site in show("atomic_sum").lines.ptx if site.kind == "atomic")
    assert (one.instruction.endswith("f16"), one.vector) == (True, 1)
    assert (tile.instruction.endswith("f16"), tile.vector) == (True, 8)
    assert full.instruction.endswith("f32")


def test_a_maximum_of_floats_takes_two_scalar_atomics_an_element(show: Show) -> None:
    floats, integers = show("atomic_maximum"), show("atomic_maximum_of_integers")
    assert "narrow-atomic" in floats.remarks
    assert (floats.facts.atomics, integers.facts.atomics) == (2 * PER_THREAD, PER_THREAD)
    assert show("atomic_maximum_of_all").facts.atomics == 2


def test_k_that_is_split_by_atomics_adds_where_it_could_store(show: Show) -> None:
    assert (show("split_k_atomics").facts.atomics > 0, show("split_k_stores").facts.atomics) == (True, 0)
    assert show("split_k_atomics").facts.store_widths_bytes == []
    assert show("split_k_stores").facts.store_widths_bytes == [16]
