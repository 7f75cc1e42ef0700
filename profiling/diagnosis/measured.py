"""What rewrites have saved on a real GPU, kernel by kernel: the calibration of the catalogue."""

from typing import Final, NamedTuple


class Measured(NamedTuple):
    """One planted defect of `tests/diagnosis/defects`."""

    name: str
    id: str
    run: int
    slow_us: float
    """With the defect: median of the device times of calls with cold caches."""
    fixed_us: float
    """After the rewrite."""
    saved_pct: float
    told_pct: float | None
    """What the tool expected of the slow one before anything was timed; None: nothing, or it was not asked before."""
    now_pct: float | None
    """What today's rules expect of the same profile."""
    top: str
    """The id that was named first then; `done`: nothing was said to be left to win."""
    top_now: str
    """That today's rules name first."""


WHERE: Final = (
    "One NVIDIA H200, `benchmark` with cold caches; what is expected and on top comes from profiles of the slow "
    "kernels there. *Told* was said before anything was timed; *today* is what today's rules make of the same profile, "
    "some of which were mended after it: see [the results](results/2026-11-30-h200-diagnosis.md)."
)
MEASURED: Final[tuple[Measured, ...]] = (
    Measured("a1_ordered_atomics", "A1", 1, 142.06, 95.04, 33.1, None, 42.5, "A1", "A1"),
    Measured("a3_half_atomics", "A3", 1, 8989.26, 181.66, 98.0, None, 99.0, "A3", "A3"),
    Measured("a4_atomic_maximum", "A4", 1, 573.92, 32.64, 94.3, None, 94.3, "R3", "A4"),
    Measured("g1_few_tiles", "G1", 4, 41.06, 30.14, 27.0, 33.6, 33.6, "G1", "G1"),
    Measured("h1_copied", "H1", 3, 217.82, 62.22, 71.5, 70.8, 70.8, "H1", "H1"),
    Measured("h3_many_launches", "H3", 4, 1106.42, 29.98, 97.4, 88.1, 88.1, "H3", "H3"),
    Measured("i1_exp", "I1", 2, 101.90, 78.30, 23.1, 27.6, 27.6, "I1", "I1"),
    Measured("i2_divided", "I2", 3, 69.60, 56.35, 19.0, 50.0, 18.3, "I2", "I2"),
    Measured("i3_tanh", "I3", 2, 78.05, 61.92, 20.7, 19.1, 19.1, "I3", "I3"),
    Measured("i4_doubles", "I4", 3, 157.09, 54.11, 65.6, 79.8, 72.2, "I4", "I4"),
    Measured("i8_asserted", "I8", 4, 73.66, 53.89, 26.9, 40.6, 40.6, "I8", "I8"),
    Measured("l1_stored_in_loop", "L1", 3, 114.16, 75.42, 34.1, 24.5, 24.5, "P7", "L1"),
    Measured("l7_sum_in_loop", "L7", 1, 121.57, 119.46, 1.4, None, None, "done", "done"),
    Measured("p10_two_levels", "P10", 4, 83.71, 78.40, 6.3, 32.2, 32.2, "P10", "P10"),
    Measured("p1_one_stage", "P1", 1, 115.12, 59.70, 48.2, None, 48.6, "P1", "P1"),
    Measured("p3_while", "P3", 1, 196.32, 59.78, 69.6, None, 69.4, "P3", "P3"),
    Measured("p4_unrolled", "P4", 1, 119.46, 61.65, 48.3, None, 50.1, "P4", "P4"),
    Measured("p5_prefetched", "P5", 1, 84.89, 59.76, 29.7, None, 31.0, "P5", "P5"),
    Measured("p6_condition", "P6", 1, 179.68, 85.46, 52.6, None, 65.9, "P6", "P6"),
    Measured("p9_filled_with_ones", "P9", 1, 86.24, 59.36, 31.2, None, 34.0, "P9", "P9"),
    Measured("r1_four_pieces", "R1", 3, 94.86, 82.40, 13.1, 34.0, 15.9, "R1", "R1"),
    Measured("r2_long_rows", "R2", 3, 117.82, 82.82, 29.7, 46.4, 32.4, "M1", "R2"),
    Measured("r4_few_registers", "R4", 1, 286.40, 58.98, 79.4, None, 78.8, "R4", "R4"),
    Measured("r5_sine", "R5", 4, 68.86, 61.65, 10.4, 8.6, 8.6, "R5", "R5"),
    Measured("r7_unrolled_steps", "R7", 4, 742.11, 50.14, 93.2, 94.7, 94.7, "R7", "R7"),
    Measured("t10_fp8_weights", "T10", 4, 135.84, 124.64, 8.3, 18.3, 18.3, "T10", "T10"),
    Measured("t10_weights_second", "T10", 3, 90.78, 84.99, 6.4, 37.3, 2.8, "T10", "T10"),
    Measured("t11_batched", "T11", 3, 69.78, 65.74, 5.8, 8.9, 8.9, "T11", "T11"),
    Measured("t13_attention", "T13", 4, 469.89, 329.97, 29.8, 51.8, 51.8, "T13", "T13"),
    Measured("t13_four_warps", "T13", 1, 338.30, 59.68, 82.3, None, 82.3, "T13", "T13"),
    Measured("t1_two_warps", "T1", 1, 364.93, 58.86, 83.9, None, 83.6, "T1", "T1"),
    Measured("t2_few_rows", "T2", 1, 120.08, 78.53, 34.6, None, 51.8, "T2", "T2"),
    Measured("t4_ieee", "T4", 3, 397.98, 114.00, 71.4, 93.0, 78.9, "T4", "T4"),
    Measured("t5_weights_by_n", "T5", 4, 2582.34, 350.29, 86.5, 82.2, 82.2, "T5", "T5"),
    Measured("t6_imprecise", "T6", 4, 153.76, 70.11, 54.5, 26.6, 26.6, "T6", "T6"),
    Measured("t7_half_sums", "T7", 1, 72.26, 59.73, 17.3, None, 19.1, "T7", "T7"),
    Measured("t8_running_mean", "T8", 1, 88.62, 60.06, 32.2, None, 34.2, "T8", "T8"),
    Measured("t9_stored_in_loop", "T9", 1, 174.74, 59.60, 65.8, None, 65.6, "T9", "T9"),
    Measured("u16_tiny_block", "U16", 3, 43.28, 62.13, -43.0, None, None, "L2", "R3"),
    Measured("v10_modulo", "V10", 4, 84.86, 59.84, 29.4, 28.7, 28.7, "V10", "V10"),
    Measured("v1_odd_k", "V1", 4, 813.31, 72.11, 91.1, 93.1, 93.1, "V1", "V1"),
    Measured("v1_odd_rows", "V1", 2, 69.34, 62.86, 9.5, 11.5, 11.5, "V1", "V1"),
    Measured("v2_odd_length", "V2", 2, 237.79, 61.68, 74.1, 73.1, 73.1, "V2", "V2"),
    Measured("v3_slice", "V3", 3, 79.97, 61.71, 23.0, 20.9, 20.9, "M4", "V3"),
    Measured("v4_columns", "V4", 2, 244.38, 31.66, 87.0, 86.8, 86.8, "V4", "V4"),
    Measured("v5_unspecialized", "V5", 3, 68.59, 62.83, 8.4, 7.2, 7.2, "V5", "V5"),
    Measured("v6_small_block", "V6", 4, 159.17, 29.95, 81.1, 80.2, 80.2, "V6", "V6"),
    Measured("v8_gather", "V8", 3, 58.88, 31.71, 45.5, None, None, "V8", "V8"),
    Measured("v9_pairs", "V9", 2, 120.86, 89.58, 25.8, 22.3, 22.3, "M4", "V9"),
    Measured("w1_eight_warps", "W1", 4, 65.55, 119.90, -83.0, None, None, "G3", "G3"),
)
NOTES: Final[dict[str, str]] = {
    "t6_imprecise": "its floor was taken at the rate of halves, which it no longer is",
    "u16_tiny_block": "a tile of 64x32, which the rule no longer calls tiny",
    "w1_eight_warps": "demoted",
}
"""Of kernels whose row is about another kernel than the one planted now, or counts for less."""
WAITING: Final[tuple[tuple[str, str], ...]] = ()
"""Rules with those of their kernels that no GPU has timed yet as they are now."""
