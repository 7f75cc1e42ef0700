"""More planted faults: accesses, registers, arithmetic and atomics."""

from typing import Final

from .plant import Planted

PLANTED: Final[tuple[Planted, ...]] = (
    Planted("V7", "values", "pairs_of_columns", "x = tl.load(x_ptr + at)", "tiles", "eights_of_columns", 4),
    Planted("V13", "values", "partners", "other = tl.load", "partners", "partner_blocks", 4),
    Planted("V13", "values", "started_anywhere", "x = tl.load(x_ptr + start", "started", "started_at_eights", 4),
    Planted("V13", "values", "masked_by_data", "x = tl.load(x_ptr + at, mask", "chosen", "selected_by_data", 4),
    Planted("V13", "values", "counted_odd_rows", "mask=i < start", "started", None, 4),
    Planted("V13", "values", "odd_rows_to_a_constant", "mask=i < 1001", "started", None, 4),
    Planted("V14", "values", "truths", "keep = tl.load", "kept", "truths_of_fours"),
    Planted("V15", "values", "column_each", "x = tl.load(x_ptr + row * stride", "column_sum", "columns_together", 4),
    Planted("R6", "values", "rows_by_index", "x = tl.load(x_ptr + row", "rows_by_index", "rows_by_narrow_index"),
    Planted("I5", "arithmetic", "both_sides", "tl.where(x > 0, tl.log(x), tl.exp(x))", "mapped", "one_function"),
    Planted("I6", "arithmetic", "mask_between", "tl.where(row[:, None] >= limit", "scores", "mask_before"),
    Planted("I7", "values", "masked_steps", "tl.where(row[:, None] >= start", "masked_steps", "masked_last_step"),
    Planted("I9", "values", "fusion_off", "enable_fp_fusion=False", "scaled_and_shifted", "fusion_on"),
    Planted(
        "I11", "arithmetic", "divided_program", "columns = tl.num_programs(0) // rows", "swizzled", "two_dimensions"
    ),
    Planted("A2", "arithmetic", "atomics_to_few", "tl.atomic_add(y_ptr + at % 64, x", "added", "atomic_sum"),
    Planted("A2", "values", "bins", "tl.atomic_add(y_ptr + bins, 1", "binned", "bins_first"),
    Planted("A5", "values", "integers_added", "tl.atomic_add(y_ptr + at, x", "counted", "floats_added", 4),
    Planted("A6", "values", "split_needlessly", "tl.atomic_add(c_ptr", "split_product", "split_to_fill"),
    Planted("A7", "values", "barrier_in_loop", "tl.debug_barrier()", "awaited", "no_barrier"),
)
CLEAN: Final[dict[str, tuple[str, ...]]] = {
    "values": ("fast_axis_first", "wide_tile", "wide_base_of_tile", "upcast", "halves")
}
OWN_TESTS: Final[frozenset[str]] = frozenset({"V12", "R3", "I10"})
"""Ids of rules that no kernel of these lists shows: they have tests of their own."""
REWRITTEN: Final = (("values", "fusion_off", "I9"), ("values", "barrier_in_loop", "A7"))
"""Launches whose finding has a diff."""
