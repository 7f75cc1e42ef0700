"""The least time that a launch's work takes."""

import pytest

from tritonforge.profiling.diagnosis.floor import floor
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.roofline import Work

from .made_up import captured, profile

GPU = resolve_target("h200").gpu
COPY = captured(signature={"x_ptr": "*fp16", "y_ptr": "*fp16", "n": "i32"})


def test_what_the_task_needs_counts_before_what_the_launch_moves() -> None:
    seen = profile(duration_us=200.0, dram_bytes=960e6)
    told = floor(seen, COPY, Work(480e6, None), None, GPU)
    assert told is not None
    assert (told.us, told.share_pct) == (pytest.approx(100.0), pytest.approx(50.0))
    assert "480 MB of device memory, which the task needs, at the data sheet's rate" in told.why
    assert not told.reached
    moved = floor(seen, COPY, None, None, GPU)
    assert moved is not None
    assert (moved.share_pct, "which the launch has now" in moved.why) == (pytest.approx(100.0), True)
    assert moved.reached


def test_operations_count_at_the_rate_of_the_arguments_type() -> None:
    seen = profile(duration_us=1000.0, dram_bytes=1e6, tensor_flops=494.7e9)
    half = floor(seen, COPY, None, None, GPU)
    full = floor(seen, captured(signature={"x": "*fp32"}), None, None, GPU)
    assert half is not None
    assert full is not None
    assert (half.share_pct, full.share_pct) == (pytest.approx(50.0), pytest.approx(100.0))


def test_without_a_time_or_work_there_is_no_floor() -> None:
    assert floor(profile(), COPY, Work(1e6, None), None, GPU) is None
    assert floor(profile(duration_us=5.0), COPY, None, None, GPU) is None
    assert floor(profile(duration_us=5.0, dram_bytes=1e6), COPY, None, None, None) is None


def test_weights_of_eight_bits_beside_halves_are_multiplied_as_halves() -> None:
    seen = profile(duration_us=1000.0, dram_bytes=1e6, tensor_flops=494.7e9)
    mixed = floor(seen, captured(signature={"x": "*fp16", "w": "*i8"}), None, None, GPU)
    bytes_alone = floor(seen, captured(signature={"x": "*i8", "w": "*i8"}), None, None, GPU)
    assert mixed is not None
    assert bytes_alone is not None
    assert (mixed.share_pct, bytes_alone.share_pct) == (pytest.approx(50.0), pytest.approx(25.0, rel=1e-3))


def test_a_result_of_halves_does_not_make_a_product_of_eight_bits_one_of_halves() -> None:
    seen = profile(duration_us=1000.0, dram_bytes=1e6, tensor_flops=494.7e9)
    told = floor(seen, captured(signature={"x": "*u8", "w": "*u8", "y": "*fp16"}), None, None, GPU)
    assert told is not None
    assert told.share_pct == pytest.approx(25.0, rel=1e-3)
