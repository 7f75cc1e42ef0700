"""Kernels with one fault each: what has to be on top, on which line, and a twin without it."""

from typing import Final

from tritonforge.profiling.diagnosis.model import Diagnosis, Finding

from . import planted_grids, planted_products, planted_values
from .plant import Planted

PLANTED: Final = (
    Planted("V1", "accesses", "odd_rows", "tl.program_id(0) * stride + i))", "moved", "rows_of_eights", 4),
    Planted("V1", "accesses", "rows_of_hinted_stride", "tl.multiple_of(stride, 8)", "moved", "rows_of_eights", 4),
    Planted("V1", "accesses", "rows_of_assumed_stride", "tl.assume(stride % 8 == 0)", "moved", "even_rows", 4),
    Planted("V1", "loops", "odd_stride", "total = tl.dot(tl.load(a)", "looped", "for", 4),
    Planted("V1", "options", "ragged_rows", "x = tl.load", "masked_rows", "even_rows_literal", 4),
    Planted("V1", "options", "spread", "x = tl.load(", "spread_out", "spread_evenly", 4),
    Planted("V2", "accesses", "odd_limit", "mask=at < n), mask=at < n", "moved", "full_blocks_apart", 4),
    Planted("V2", "accesses", "hinted_offsets", "tl.max_contiguous", "moved", "masked_access", 4),
    Planted("V2", "loops", "odd_k", "left = tl.load(a, mask", "looped", "masked", 4),
    Planted("V2", "options", "odd_length", "x = tl.load", "doubled", "even_length", 4),
    Planted("V3", "accesses", "slice", "tl.store(y_ptr + at, tl.load(x_ptr + at))", "moved", "aligned_slice", 4),
    Planted("V4", "accesses", "stride_of_two", "tl.load(x_ptr + at * stride)", "moved", "stride_of_one", 4),
    Planted("V5", "accesses", "unspecialized_stride", "tl.load(x_ptr", "unspecialized", "stride_of_one", 4),
    Planted(
        "V6", "accesses", "small_block", "tl.store(y_ptr + at, tl.load(x_ptr + at))", "moved", "large_enough_block"
    ),
    Planted("V6", "accesses", "many_warps", "tl.store(y_ptr + at, tl.load(x_ptr + at))", "moved", "plain"),
    Planted("V8", "accesses", "gathered", "tl.load(index_ptr + at)", "moved", "gathered_rows", 4),
    Planted("V9", "accesses", "pairs", "even, odd = tl.load", "moved", "pairs_together", 4),
    Planted("V10", "accesses", "odd_modulo", "at // n * stride", "moved", "constant_modulo", 4),
    Planted("L1", "accesses", "converted_in_loop", "tl.store(y_ptr + tile", "converted", "converted_once"),
    Planted("L7", "accesses", "sums_in_loop", "total += tl.sum", "sum_in_loop", "sum_once"),
    Planted(
        "L7", "arithmetic", "masks_in_loop", "total += tl.sum(tl.where(row[:, None] >= start", "causal", "masks_apart"
    ),
    Planted("L7", "loops", "summed", "sums += tl.sum", "looped", "summed_by_dot"),
    Planted("P1", "loops", "one_stage", "total = tl.dot(tl.load(a)", "looped", "for", 4),
    Planted("P3", "loops", "while", "while start < K", "looped", "for"),
    Planted("P4", "loops", "unrolled", "tl.static_range(STEPS)", "looped", "for"),
    Planted("P5", "loops", "prefetched", "next_left, next_right = tl.load", "looped", "for", 4),
    Planted("P5", "loops", "prefetched_twice", "last_left, last_right = tl.load", "looped", "for", 4),
    Planted("P6", "loops", "branch", "if start % 128 == 0", "looped", "for"),
    Planted("P9", "loops", "filled", "other=1.0", "looped", "masked", 4),
    Planted("P10", "loops", "indirect_in_two_stages", "rows = tl.load(index_ptr", "looped", "indirect_in_four_stages"),
    Planted("T1", "dots", "two_warps", "total = tl.dot(\n", "product", "product", 4),
    Planted("T2", "dots", "m_32", "total = tl.dot(\n", "product", "swapped", 4),
    Planted("T4", "dots", "ieee", "total = tl.dot(\n", "product", "tf32", 4),
    Planted("T5", "dots", "fp8_by_n", "total = tl.dot(\n", "product", "fp8", 4),
    Planted("T5", "dots", "tf32_by_n", "total = tl.dot(\n", "product", "tf32", 4),
    Planted("T6", "dots", "fp8_imprecise_0", "total = tl.dot(\n", "product", "fp8", 4),
    Planted("T6", "dots", "fp8_imprecise_64", "total = tl.dot(\n", "product", "fp8"),
    Planted("T7", "dots", "fp16_sum", "total = tl.dot(\n", "product", "product", 4),
    Planted("T8", "dots", "scaled", "total = total * 0.5", "product", "scaled_afterwards", 4),
    Planted("T9", "dots", "stored", "tl.store(c_ptr", "product", "product", 4),
    Planted("T10", "dots", "weights_second", "tl.load(w).to(tl.float32)", "dequantized", "weights_first", 4),
    Planted("T11", "dots", "batched", "tl.dot(tl.load(a_ptr + at)", "batched", "one_of_a_batch", 4),
    Planted("T13", "dots", "wide_tile", "total = tl.dot(\n", "product", "wide_tile_of_eight_warps", 4),
    Planted("R2", "arithmetic", "long_row", "row = tl.load(x)", "log_sum", "chunked_row"),
    Planted("R4", "dots", "few_registers", "maxnreg=152", "", "large_tile"),
    Planted("R5", "arithmetic", "sine", "tl.sin(x)", "mapped", "fast_sine"),
    Planted("R5", "arithmetic", "printed", "tl.device_print", "mapped", "fast_sine"),
    Planted("R7", "arithmetic", "unrolled_steps", "tl.static_range", "steps", "looped_steps"),
    Planted("A1", "arithmetic", "default_atomic", "tl.atomic_add(y_ptr + at, x)", "added", "relaxed_atomic"),
    Planted("A3", "arithmetic", "atomic_half", "tl.sum(x)", "added", "atomic_halves"),
    Planted("A4", "arithmetic", "atomic_maximum", "tl.atomic_max(y_ptr + at, x,", "added", "atomic_maximum_of_all", 4),
    Planted("I1", "arithmetic", "exp", "tl.exp(x)", "mapped", "exp2"),
    Planted("I2", "arithmetic", "divided", "x / scale", "mapped", "times_reciprocal"),
    Planted("I3", "arithmetic", "tanh", "libdevice.tanh", "mapped", "tanh_by_exp2"),
    Planted("I4", "arithmetic", "doubles", "tl.float64", "mapped", "singles"),
    Planted("I8", "arithmetic", "asserted", "tl.device_assert", "mapped", "not_asserted"),
    Planted("W1", "descriptors", "specialized_eight_warps", "warp_specialize=WARPS", "by_descriptor", "described", 4),
    Planted("W1", "descriptors", "persistent_flat", "warp_specialize=WARPS", "persistent", "persistent", 4),
    *planted_products.PLANTED,
    *planted_values.PLANTED,
    *planted_grids.PLANTED,
)
CLEAN: Final = {
    "accesses": ("plain", "modulo", "transposed_copy", "streamed", "row_of_one_warp"),
    "loops": ("rounded", "summed_by_dot", "rows_in_stages"),
    "dots": ("attention", "sum_of_two", "tf32x3", "seven_stages", "n_16"),
    "arithmetic": ("two_dimensions", "masks_apart", "split_k_stores", "atomic_sum"),
    "descriptors": ("pointed", "specialized"),
    **planted_products.CLEAN,
    **planted_values.CLEAN,
    **planted_grids.CLEAN,
}
"""Further launches without a fault, among them sights of the catalogue that must not be reported."""
REWRITTEN: Final = (
    ("options", "two_warps_literal", "T1"),
    ("options", "one_stage_literal", "P1"),
    ("options", "ieee_literal", "T4"),
    ("options", "odd_length", "V2"),
    ("accesses", "odd_limit", "V2"),
    ("accesses", "odd_rows", "V1"),
    ("accesses", "odd_modulo", "V10"),
    ("loops", "odd_k", "V2"),
    ("loops", "odd_stride", "V1"),
    ("loops", "odd_stride_and_k", "V1"),
    ("options", "ragged_rows", "V1"),
    ("loops", "unrolled", "P4"),
    ("arithmetic", "divided", "I2"),
    ("arithmetic", "default_atomic", "A1"),
    ("grids", "two_blocks", "G8"),
)
"""Launches whose finding has a diff, which is applied and compiled."""


def line_of(text: str, planted: Planted) -> int:
    """The marked line in the kernel file."""
    start = text.index(f"def {planted.kernel}(") if planted.kernel else 0
    return text.count("\n", 0, text.index(planted.mark, start)) + 1


def first(told: Diagnosis) -> Finding:
    """What is on top; what saves instructions only is a hypothesis as long as nobody counted."""
    return (told.findings + told.hypotheses)[0]
