"""Where each sign of inefficiency in the catalogue, as far as it can be seen without a GPU, is shown on a kernel."""

import ast
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parents[2]
INTERPRETER = "sandbox/test_interpreter_memory.py"

# Ids of the catalogue that were reproduced by compiling alone; 8.4 is its fourth sight that must not be reported.
VERIFIED = [
    "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10", "T11", "T12", "T13", "T14", "T16",
    "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P13", "P16",
    "V1", "V2", "V3", "V4", "V6", "V8", "V9", "V10", "V12",
    "L1", "L4", "L5", "L6", "L7", "L8",
    "R1", "R2", "R4", "R5", "R6", "R7",
    "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I11",
    "A1", "A2", "A3", "A4", "A6",
    "G8", "M6",
    "W1", "W2", "W3", "W4", "W5", "W8",
    "C2", "C7", "C8",
    "8.4",
]  # fmt: skip

REFUSED = "dots: test_a_dot_that_is_refused_warp_groups_is_told_with_its_cause"
TOUCHED = "dots: test_a_sum_that_is_touched_in_the_loop_keeps_dots_from_overlapping"
SPILLS = "dots: test_a_sum_that_does_not_fit_in_registers_spills_and_serializes_the_dots"
NOT_AHEAD = "loops: test_a_loop_whose_loads_are_not_copied_ahead_is_told"
TOO_NARROW = "loops: test_lost_divisibility_makes_loads_too_narrow_to_pipeline"
SCALAR = "accesses: test_a_load_whose_alignment_is_unknown_is_scalar"
SIGNATURES = {
    "T1": REFUSED,
    "T2": REFUSED,
    "T3": REFUSED,
    "T4": "dots: test_ieee_fp32_runs_without_tensor_cores_and_three_tf32_dots_in_its_place_do_not",
    "T5": "dots: test_fp8_that_is_not_k_major_waits_for_its_load_and_goes_through_registers",
    "T6": "dots: test_fp8_sums_that_are_split_have_injected_waits_and_take_all_registers",
    "T7": "dots: test_dots_that_do_not_accumulate_in_fp32_are_waited_for",
    "T8": TOUCHED,
    "T9": TOUCHED,
    "T10": "dots: test_an_operand_that_is_computed_goes_back_to_shared_memory_unless_it_is_the_first",
    "T11": REFUSED,
    "T12": "dots: test_adding_a_dot_to_a_sum_is_the_same_code_as_passing_the_sum",
    "T13": SPILLS,
    "T14": "dots: test_waits_that_ptxas_injects_are_noted",
    "T16": "dots: test_short_k_narrows_the_pattern_in_shared_memory",
    "P1": NOT_AHEAD,
    "P2": "dots: test_more_stages_cost_the_second_block_and_then_the_launch",
    "P3": NOT_AHEAD,
    "P4": "loops: test_an_unrolled_loop_leaves_no_loop_to_pipeline",
    "P5": NOT_AHEAD,
    "P6": NOT_AHEAD,
    "P7": "loops: test_loads_without_a_dot_are_copied_ahead_only_where_the_loop_asks_for_it",
    "P8": TOO_NARROW,
    "P9": "loops: test_a_fill_that_is_not_zero_takes_the_tile_through_registers",
    "P10": "loops: test_two_levels_of_loads_need_more_stages",
    "P11": "loops: test_a_nest_of_loops_starts_and_drains_a_pipeline_in_each_step",
    "P13": "loops: test_a_tile_with_two_consumers_is_read_back_into_registers",
    "P16": TOO_NARROW,
    "V1": SCALAR,
    "V2": SCALAR,
    "V3": SCALAR,
    "V4": SCALAR,
    "V6": "accesses: test_a_block_too_small_for_its_threads_is_told_and_no_pass_says_so",
    "V8": "accesses: test_gathered_elements_are_scalar_and_gathered_rows_are_not",
    "V9": "accesses: test_separate_pairs_take_eight_times_the_instructions_of_pairs_together",
    "V10": "accesses: test_division_by_an_argument_costs_instructions_and_by_a_constant_none",
    "V12": "accesses: test_a_transposing_copy_is_wide_on_both_sides_and_goes_through_shared_memory",
    "L1": "accesses: test_a_change_of_layout_in_a_loop_is_told_and_outside_it_is_not",
    "L4": "dots: test_a_transposed_result_goes_through_shared_memory",
    "L5": "dots: test_stored_sums_take_more_shared_memory_than_small_tiles",
    "L6": "accesses: test_a_row_across_warps_is_summed_with_barriers_and_in_one_warp_without",
    "L7": "accesses: test_a_sum_in_each_step_has_barriers_in_the_loop_and_one_sum_after_it_has_none",
    "L8": "accesses: test_sorting_takes_many_instructions_and_barriers",
    "R1": SPILLS,
    "R2": "arithmetic: test_a_long_row_in_registers_spills_and_in_chunks_it_is_copied_ahead",
    "R4": "dots: test_a_limit_on_registers_makes_a_dot_spill",
    "R5": "arithmetic: test_a_stack_is_no_spill",
    "R6": "arithmetic: test_offsets_of_64_bits_cost_multiplications_and_registers",
    "R7": "arithmetic: test_an_unrolled_loop_has_instructions_for_each_step",
    "I1": "arithmetic: test_exp_multiplies_each_element_first",
    "I2": "arithmetic: test_division_of_each_element_is_one_division_and_multiplications_with_the_reciprocal",
    "I3": "arithmetic: test_tanh_of_the_library_branches_for_each_element",
    "I4": "arithmetic: test_a_step_in_double_precision_is_seen",
    "I5": "arithmetic: test_both_sides_of_a_where_are_computed",
    "I6": "arithmetic: test_a_mask_between_scale_and_subtraction_keeps_them_from_fusing",
    "I7": "arithmetic: test_a_mask_that_only_the_last_tile_needs_is_applied_to_all_tiles",
    "I8": "arithmetic: test_an_assertion_that_is_left_on_costs_a_barrier_and_a_call",
    "I11": "arithmetic: test_a_swizzle_of_programs_divides_integers",
    "A1": "arithmetic: test_an_atomic_orders_memory_unless_it_is_told_not_to",
    "A2": "arithmetic: test_atomics_of_all_elements_become_one_of_their_sum",
    "A3": "arithmetic: test_a_single_half_is_added_by_itself_and_a_tile_of_halves_in_vectors",
    "A4": "arithmetic: test_a_maximum_of_floats_takes_two_scalar_atomics_an_element",
    "A6": "arithmetic: test_k_that_is_split_by_atomics_adds_where_it_could_store",
    "G8": "dots: test_a_cluster_of_two_divides_the_tile",
    "M6": "accesses: test_a_policy_of_the_cache_changes_no_count",
    "W1": "descriptors: test_warp_specialization_that_is_asked_for_is_ignored_without_a_word",
    "W2": "failing: test_specialized_warps_do_not_load_through_pointers",
    "W3": "failing: test_a_tile_that_is_divided_between_warps_is_not_stored_through_a_descriptor",
    "W4": "descriptors: test_specialized_warps_are_more_and_share_registers_anew",
    "W5": "descriptors: test_a_descriptor_that_the_kernel_makes_costs_instructions",
    "W8": "descriptors: test_descriptors_need_fewer_registers_than_pointers",
    "C2": f"{INTERPRETER}: test_an_address_without_memory_is_an_error_on_its_line",
    "C7": f"{INTERPRETER}: test_dots",
    "C8": "arithmetic: test_without_the_default_fusion_each_product_is_rounded_by_itself",
    "8.4": "dots: test_attention_waits_for_its_scores_and_that_is_no_fault",
}
"""The test of each, with its file: one of this folder by its subject, others from the folder of all tests."""


def _tests(place: str) -> set[str]:
    file = TESTS / place if place.endswith(".py") else HERE / f"test_{place}.py"
    tree = ast.parse(file.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_verified_sign_is_shown() -> None:
    assert len(set(VERIFIED)) == len(VERIFIED)
    assert list(SIGNATURES) == VERIFIED


def test_every_test_that_shows_one_is_there() -> None:
    places = [(place, test) for place, _, test in (shown.partition(": ") for shown in SIGNATURES.values())]
    found = {place: _tests(place) for place, _ in places}
    assert [(place, test) for place, test in places if test not in found[place]] == []
