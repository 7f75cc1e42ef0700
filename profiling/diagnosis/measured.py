"""What rewrites have saved on a real GPU, kernel by kernel: the calibration of the catalogue."""

from typing import Final, NamedTuple


class Measured(NamedTuple):
    """One planted defect of `tests/diagnosis/defects`."""

    name: str
    id: str
    slow_us: float
    """With the defect: median of the device times of calls with cold caches."""
    fixed_us: float
    """After the rewrite."""
    saved_pct: float
    expected_pct: float | None
    """That the tool told from a profile of the slow one; None: it tells none for this rule."""
    top: str
    """The id that was named first; `done`: nothing was said to be left to win."""


WHERE: Final = (
    "One NVIDIA H200, `benchmark` with cold caches; what is expected and on top comes from profiles of the slow "
    "kernels there: see [the results](results/2026-11-30-h200-diagnosis.md)."
)
MEASURED: Final[tuple[Measured, ...]] = (
    Measured("a1_ordered_atomics", "A1", 142.06, 95.04, 33.1, 42.5, "A1"),
    Measured("a3_half_atomics", "A3", 8989.26, 181.66, 98.0, 99.0, "A3"),
    Measured("a4_atomic_maximum", "A4", 573.92, 32.64, 94.3, 94.3, "A4"),
    Measured("h1_copied", "H1", 217.74, 62.50, 71.4, None, "H1"),
    Measured("h3_many_launches", "H3", 2072.04, 30.06, 98.5, None, "H3"),
    Measured("i1_exp", "I1", 101.90, 78.30, 23.1, 27.6, "I1"),
    Measured("i3_tanh", "I3", 78.05, 61.92, 20.7, 19.1, "I3"),
    Measured("l7_sum_in_loop", "L7", 121.57, 119.46, 1.4, None, "done"),
    Measured("p1_one_stage", "P1", 115.12, 59.70, 48.2, 48.6, "P1"),
    Measured("p3_while", "P3", 196.32, 59.78, 69.6, 69.4, "P3"),
    Measured("p4_unrolled", "P4", 119.46, 61.65, 48.3, 50.1, "P4"),
    Measured("p5_prefetched", "P5", 84.89, 59.76, 29.7, 31.0, "P5"),
    Measured("p6_condition", "P6", 179.68, 85.46, 52.6, 65.9, "P6"),
    Measured("p9_filled_with_ones", "P9", 86.24, 59.36, 31.2, 34.0, "P9"),
    Measured("r4_few_registers", "R4", 286.40, 58.98, 79.4, 78.8, "R4"),
    Measured("t13_four_warps", "T13", 338.30, 59.68, 82.3, 82.3, "T13"),
    Measured("t1_two_warps", "T1", 364.93, 58.86, 83.9, 83.6, "T1"),
    Measured("t2_few_rows", "T2", 120.08, 78.53, 34.6, 51.8, "T2"),
    Measured("t7_half_sums", "T7", 72.26, 59.73, 17.3, 19.1, "T7"),
    Measured("t8_running_mean", "T8", 88.62, 60.06, 32.2, 34.2, "T8"),
    Measured("t9_stored_in_loop", "T9", 174.74, 59.60, 65.8, 65.6, "T9"),
    Measured("v1_odd_rows", "V1", 69.34, 62.86, 9.5, 11.5, "V1"),
    Measured("v2_odd_length", "V2", 237.79, 61.68, 74.1, 73.1, "V2"),
    Measured("v4_columns", "V4", 244.38, 31.66, 87.0, 86.8, "V4"),
    Measured("v9_pairs", "V9", 120.86, 89.58, 25.8, 22.3, "V9"),
)
WAITING: Final[tuple[tuple[str, str], ...]] = (
    ("G1", "g1_few_tiles"),
    ("I2", "i2_divided"),
    ("I4", "i4_doubles"),
    ("I8", "i8_asserted"),
    ("L1", "l1_stored_in_loop"),
    ("P10", "p10_two_levels"),
    ("R1", "r1_four_pieces"),
    ("R2", "r2_long_rows"),
    ("R5", "r5_sine"),
    ("R7", "r7_unrolled_steps"),
    ("T10", "t10_weights_second"),
    ("T11", "t11_batched"),
    ("T4", "t4_ieee"),
    ("T5", "t5_weights_by_n"),
    ("T6", "t6_imprecise"),
    ("U16", "u16_tiny_block"),
    ("V10", "v10_modulo"),
    ("V3", "v3_slice"),
    ("V5", "v5_unspecialized"),
    ("V6", "v6_small_block"),
    ("V8", "v8_gather"),
    ("W1", "w1_eight_warps"),
)
"""Rules with their kernels that no GPU has run yet."""
