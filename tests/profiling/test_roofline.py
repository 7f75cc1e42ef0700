"""Times against the speed of light: what is in reach, and what can't be true."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from tritonforge.profiling.hardware.catalog import gpus, resolve_target
from tritonforge.profiling.hardware.ceilings import Ceilings
from tritonforge.profiling.hardware.model import Gpu
from tritonforge.profiling.roofline import (
    CEILING_SLACK,
    PEAK_SLACK,
    SUSPECT_SHARE,
    TIMER_US,
    SpeedOfLight,
    Work,
    peak_flops_per_s,
    speed_of_light,
)


def product(name: str) -> Gpu:
    gpu = resolve_target(name).gpu
    assert gpu is not None
    return gpu


H200 = product("h200")
L2 = 62_914_560
MIB = 1 << 20
READ, COPY, WRITE = 4.4e12, 4.2e12, 4.0e12
MEMORY_PEAK = 4.917e12
"""Of the H200 by its memory's clock and width: what its sheet rounds to 4.8."""
BF16_PEAK = 132 * 4096 * 1.98e9
"""Of the H200 at its highest clock, which its sheet doesn't count with."""


def ceilings(**changed: Any) -> Ceilings:
    """What an H200 reaches, roughly."""
    fields: dict[str, Any] = {
        "read_bytes_per_s": READ, "copy_bytes_per_s": COPY, "write_bytes_per_s": WRITE,
        "fp32_flops_per_s": 52e12, "tf32_flops_per_s": 350e12, "bf16_flops_per_s": 700e12, "fp8_flops_per_s": 1300e12,
        "launch_us": 1.2, "absent": {}, "uuid": "GPU-1", "torch": "2.11.0",
        "measured_at": datetime(2026, 11, 30, tzinfo=UTC),
    }  # fmt: skip
    return Ceilings.model_validate({**fields, **changed})


def light(
    work_bytes: float | None = 4.8e8,
    work_flops: float | None = 0,
    *,
    duration_us: float = 125.0,
    dtypes: tuple[str, ...] = ("bfloat16",),
    gpu: Gpu | None = H200,
    l2_bytes: int | None = L2,
    measured: Ceilings | None = None,
    **known: Any,
) -> SpeedOfLight:
    return speed_of_light(
        Work(work_bytes, work_flops, dtypes, **known),
        duration_us=duration_us,
        gpu=gpu,
        l2_bytes=l2_bytes,
        ceilings=measured,
    )


def test_without_ceilings_a_copy_is_held_against_the_data_sheet() -> None:
    result = light(4.8e8, 1e9)
    assert result.floor_us == pytest.approx(100)
    assert result.memory_floor_us == pytest.approx(100)
    assert result.compute_floor_us == pytest.approx(1e9 / 989.4e6)
    assert (result.bound, result.against) == ("memory", "data_sheet")
    assert result.pct == pytest.approx(80)
    assert result.headroom == pytest.approx(1.25)
    assert result.verdict == "plausible"
    assert (result.beyond, result.explanation, result.notes, result.absent) == (None, None, [], {})


def test_with_ceilings_a_copy_is_held_against_what_copies_reach_with_all_bytes() -> None:
    result = light(4.2e8, measured=ceilings(), output_bytes=2.1e8)
    assert result.floor_us == pytest.approx(100)
    assert result.against == "measured"
    assert result.pct == pytest.approx(80)


@pytest.mark.parametrize(("written", "rate"), [(0, READ), (2.2e8, COPY), (4.4e8, WRITE), (1e9, WRITE), (None, READ)])
def test_the_ceiling_is_that_of_the_mix_of_reads_and_writes(written: float | None, rate: float) -> None:
    result = light(4.4e8, measured=ceilings(), output_bytes=written)
    assert result.memory_floor_us == pytest.approx(4.4e8 / rate * 1e6)


def test_a_large_matmul_is_bound_by_compute_and_held_against_measured_matmuls() -> None:
    n = 8192
    work = (3 * 2 * n * n, 2 * n**3)
    result = light(*work, duration_us=1800, measured=ceilings())
    assert (result.bound, result.against) == ("compute", "measured")
    assert result.floor_us == pytest.approx(2 * n**3 / 700e6)
    sheet = light(*work, duration_us=1800)
    assert sheet.against == "data_sheet"
    assert sheet.floor_us == pytest.approx(2 * n**3 / 989.4e6)


def test_the_ceiling_that_binds_says_whether_it_was_measured() -> None:
    result = light(1e6, 1e12, measured=ceilings(bf16_flops_per_s=None))
    assert (result.bound, result.against) == ("compute", "data_sheet")


def test_a_tiny_kernel_is_bound_by_the_shortest_kernel() -> None:
    result = light(2 * MIB, duration_us=2.4, measured=ceilings())
    assert (result.bound, result.against) == ("launch", "measured")
    assert result.pct == pytest.approx(50)
    assert light(2 * MIB, duration_us=1.1, measured=ceilings()).verdict == "plausible"


def test_without_the_device_in_the_catalogue_ceilings_alone_tell_the_floor() -> None:
    result = light(gpu=None, measured=ceilings(), output_bytes=0)
    assert result.memory_floor_us == pytest.approx(4.8e8 / READ * 1e6)
    assert result.verdict == "plausible"
    assert "catalogue" in result.absent["limit_us"]
    assert light(gpu=None, measured=ceilings(), duration_us=0.1).verdict == "plausible"


@pytest.mark.parametrize(
    ("result", "unknown", "bound"),
    [
        (light(work_flops=None), "compute_floor_us", "memory"),
        (light(work_flops=1e9, dtypes=()), "compute_floor_us", "memory"),
        (light(None, 1e12), "memory_floor_us", "compute"),
        (light(4.8e8, 1e12, gpu=H200.model_copy(update={"memory_bytes_per_s": None})), "memory_floor_us", "compute"),
    ],
)
def test_one_known_floor_still_bounds_the_time_and_the_other_says_why_not(
    result: SpeedOfLight, unknown: str, bound: str
) -> None:
    assert getattr(result, unknown) is None
    assert set(result.absent) == {unknown}
    assert result.bound == bound
    assert result.floor_us is not None


@pytest.mark.parametrize("measured", [None, ceilings()])
def test_without_work_or_peaks_nothing_is_claimed(measured: Ceilings | None) -> None:
    for result in (light(None, None, measured=measured), light(gpu=None), light(0, 0, measured=measured)):
        assert result.floor_us is None
        assert result.bound is None
        assert result.against is None
        assert result.pct is None
        assert result.headroom is None
        assert result.verdict == "plausible"
        assert {"floor_us", "bound", "against", "pct", "headroom"} <= set(result.absent)
        assert all(result.absent.values())


def test_unknown_work_has_no_limit_and_says_why() -> None:
    result = light(None, None)
    assert result.limit_us is None
    assert "doesn't state" in result.absent["limit_us"]


def test_no_flops_is_a_floor_of_zero_and_not_unknown() -> None:
    result = light(4.8e8, 0)
    assert result.compute_floor_us == 0
    assert result.bound == "memory"
    assert result.absent == {}


def test_the_impossible_comes_with_its_arithmetic() -> None:
    result = light(2 * 128 * MIB, 0, duration_us=20.1, output_bytes=128 * MIB)
    assert result.verdict == "impossible"
    assert result.beyond == "memory"
    assert result.explanation == (
        "268,435,456 bytes - 62,914,560 that can stay in L2 = 205,520,896 at 4.80 TB/s take 42.8 us at least; "
        "measured 20.1 us"
    )
    assert result.limit_us == pytest.approx(205_520_896 / 4.8e6)


def test_only_times_beyond_timer_and_data_sheet_are_impossible() -> None:
    least_us = 100 / (1 + PEAK_SLACK) - TIMER_US
    assert light(duration_us=least_us * 1.001, output_bytes=0).verdict == "plausible"
    assert light(duration_us=least_us * 0.999, output_bytes=0).verdict == "impossible"


@pytest.mark.parametrize("total_mib", [1, 8, 60, 100, 300, 4000])
@pytest.mark.parametrize("write_share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("measured", [None, ceilings()])
@pytest.mark.parametrize("told", [True, False])
def test_a_perfect_kernel_whose_results_stay_in_l2_is_possible(
    total_mib: int, write_share: float, measured: Ceilings | None, told: bool
) -> None:
    """At the memory's full clock, without one wasted cycle, and stamped too short: more than any kernel does."""
    total = total_mib * MIB
    written = total * write_share
    stays = min(written, L2)
    duration_us = max(0.05, (total - stays) / MEMORY_PEAK * 1e6 - 0.45)
    result = light(total, duration_us=duration_us, output_bytes=written if told else None, measured=measured)
    assert result.verdict != "impossible", result.explanation
    # Nothing that refreshes its memory gets beyond 95 % of the sheet.
    real_us = max(0.05, (total - stays) / (0.95 * 4.8e12) * 1e6 - 0.45)
    real = light(total, duration_us=real_us, output_bytes=written if told else None, measured=measured)
    assert real.verdict == "plausible", real.explanation


@pytest.mark.parametrize("gpu", [gpu for gpu in gpus() if gpu.memory_bytes_per_s is not None], ids=lambda gpu: gpu.name)
def test_a_perfect_copy_is_plausible_on_every_product(gpu: Gpu) -> None:
    assert gpu.memory_bytes_per_s is not None
    # The catalogue and the device may know L2 or not.
    for l2_bytes in (None, gpu.l2_bytes, L2):
        total = 512 * MIB
        moved = total - min(total // 2, max(filter(None, (l2_bytes, gpu.l2_bytes)), default=total // 2))
        duration_us = moved / gpu.memory_bytes_per_s * 1e6
        result = light(total, gpu=gpu, l2_bytes=l2_bytes, duration_us=duration_us, output_bytes=total // 2)
        assert result.verdict == "plausible", result.explanation


def test_the_larger_of_the_known_sizes_of_l2_counts() -> None:
    small = H200.model_copy(update={"l2_bytes": 1 * MIB})
    assert light(gpu=small, output_bytes=2.4e8).limit_us == light(output_bytes=2.4e8).limit_us
    assert light(l2_bytes=None, output_bytes=2.4e8).limit_us == light(output_bytes=2.4e8).limit_us
    unknown = H200.model_copy(update={"l2_bytes": None})
    nowhere = light(gpu=unknown, l2_bytes=None, output_bytes=2.4e8)
    assert nowhere.limit_us == pytest.approx(2.4e8 / 4.8e6)


def test_reads_are_owed_to_memory_even_where_they_would_fit_in_l2() -> None:
    """It is emptied before each call: a kernel that had the inputs in it has not been timed from the start."""
    work = 48 * MIB
    assert light(work, duration_us=3, output_bytes=0).verdict == "impossible"
    assert light(work, duration_us=3, output_bytes=None).verdict == "plausible"


def test_in_a_warm_l2_inputs_and_results_both_may_stay() -> None:
    work: dict[str, Any] = {"output_bytes": 60 * MIB, "input_bytes": 60 * MIB}
    warm = light(120 * MIB, duration_us=6, l2_warm=True, **work)
    assert warm.verdict == "plausible"
    assert warm.limit_us == 0
    assert any("in L2" in note for note in warm.notes)
    assert light(120 * MIB, duration_us=6, **work).verdict == "impossible"
    huge = light(4096 * MIB, duration_us=100, l2_warm=True, output_bytes=2048 * MIB)
    assert huge.verdict == "impossible"
    assert huge.limit_us == pytest.approx((4096 * MIB - 2 * L2) / 4.8e6)


def test_more_work_than_the_tensors_hold_accuses_nobody() -> None:
    held: dict[str, Any] = {"input_bytes": 2e8, "output_bytes": 0.0}
    result = light(8e8, duration_us=45, **held)
    assert result.verdict == "plausible"
    assert result.memory_floor_us == pytest.approx(2e8 / 4.8e6)
    assert result.notes == [
        "work() states 800,000,000 bytes, but inputs and outputs hold only 200,000,000: these count"
    ]
    assert light(1e8, duration_us=45, **held).notes == []


def test_faster_than_this_gpu_was_seen_to_be_is_suspect() -> None:
    measured = ceilings(read_bytes_per_s=4.45e12)
    fastest = 4.45e12 * (1 + CEILING_SLACK)
    limit_us = 4.8e8 / fastest * 1e6
    at = light(duration_us=limit_us * 1.001 - TIMER_US, output_bytes=0, measured=measured)
    assert at.verdict == "plausible"
    beyond = light(duration_us=limit_us * 0.999 - TIMER_US, output_bytes=0, measured=measured)
    assert beyond.verdict == "suspect"
    assert beyond.beyond == "memory"
    assert beyond.explanation is not None
    assert "480,000,000 bytes at 4.67 TB/s, more than this GPU was seen to reach, take 102.7 us" in beyond.explanation


def test_ceilings_measured_on_a_busy_gpu_make_nothing_suspect() -> None:
    slow = ceilings(read_bytes_per_s=3.4e12, copy_bytes_per_s=3.4e12, write_bytes_per_s=3.4e12)
    best_us = 4.8e8 / (SUSPECT_SHARE * 4.8e12) * 1e6
    result = light(duration_us=best_us, output_bytes=0, measured=slow)
    assert result.verdict == "plausible"
    assert result.pct == pytest.approx(100 * 4.8e8 / 3.4e12 * 1e6 / best_us)
    assert result.headroom == 1


def test_more_than_100_percent_is_explained_where_it_can_be_true() -> None:
    (why,) = light(128 * MIB, duration_us=25, output_bytes=64 * MIB, measured=ceilings()).notes
    assert why.startswith("faster than what torch's own operations reach")
    assert "L2" in why
    (sheet,) = light(128 * MIB, duration_us=25, output_bytes=64 * MIB).notes
    assert sheet.startswith("faster than the data sheet's rate")


def test_a_matmul_at_full_clock_on_undemanding_numbers_is_plausible() -> None:
    """Ceilings are measured at the power limit, on clocks down to 1380 MHz; zeros leave the clock at 1980 MHz."""
    flops = 2 * 4096**3
    result = light(
        6 * 4096**2, flops, duration_us=flops / BF16_PEAK * 1e6, measured=ceilings(), output_bytes=2 * 4096**2
    )
    assert result.verdict == "plausible"
    assert result.pct is not None
    assert result.pct > 150
    assert any("clocks are higher" in note for note in result.notes)


def test_fp32_inputs_multiplied_in_16_bits_are_plausible_and_8_bits_are_suspect() -> None:
    flops = 2 * 8192**3
    for dtypes in (("float32",), ("bfloat16",), ("float32", "float64"), ("float16", "bool")):
        sixteen = light(None, flops, duration_us=flops / BF16_PEAK * 1e6, dtypes=dtypes)
        assert sixteen.verdict == "plausible"
        eight = light(None, flops, duration_us=flops / (2 * BF16_PEAK) * 1e6, dtypes=dtypes)
        assert (eight.verdict, eight.beyond) == ("suspect", "compute")
    assert (
        light(None, flops, duration_us=flops / (2 * BF16_PEAK) * 1e6, dtypes=("float8_e4m3fn",)).verdict == "plausible"
    )


def test_more_operations_than_any_unit_does_are_impossible() -> None:
    flops = 2 * 4096**3
    result = light(6 * 4096**2, flops, duration_us=40, measured=ceilings(), output_bytes=2 * 4096**2)
    assert (result.verdict, result.beyond) == ("impossible", "compute")
    assert result.explanation == (
        "137,438,953,472 flops at 2,275 TFLOP/s, which no unit of this GPU exceeds, take 60.4 us at least; "
        "measured 40.0 us"
    )
    assert result.limit_us == pytest.approx(60.4, abs=0.05)


def test_the_memory_s_limit_is_told_before_that_of_compute() -> None:
    result = light(4e9, 2 * 4096**3, duration_us=5, output_bytes=0, measured=ceilings())
    assert (result.verdict, result.beyond) == ("impossible", "memory")


@pytest.mark.parametrize("dtypes", [("int32", "float16"), ("int8",), ("uint8", "float32"), ("int64",), ()])
def test_operations_on_packed_numbers_have_no_limit(dtypes: tuple[str, ...]) -> None:
    result = light(None, 2 * 4096**3, duration_us=5, dtypes=dtypes)
    assert result.verdict == "plausible"
    assert result.limit_us is None


def test_operations_have_a_limit_on_hopper_alone() -> None:
    """Elsewhere there are units for fewer bits than the catalogue has peaks for."""
    for name in ("a100", "b200", "rtx-4090"):
        assert light(None, 2 * 4096**3, duration_us=5, gpu=product(name)).verdict == "plausible"
    for gpu in gpus():
        if gpu.capability == 90:
            assert light(None, 2 * 4096**3, duration_us=5, gpu=gpu).verdict == "impossible"


@pytest.mark.parametrize("gpu", [gpu for gpu in gpus() if gpu.capability == 90], ids=lambda gpu: gpu.name)
def test_the_data_sheets_own_peaks_are_plausible(gpu: Gpu) -> None:
    for dtype in ("float32", "bfloat16", "float8_e4m3fn"):
        peak = peak_flops_per_s(gpu, [dtype])
        assert peak is not None
        assert light(None, 1e12, duration_us=1e18 / peak, gpu=gpu, dtypes=(dtype,)).verdict == "plausible"


@pytest.mark.parametrize(
    ("dtypes", "peak"),
    [
        (("float8_e4m3fn", "float32"), 1978.9e12),
        (("float8_e5m2", "bfloat16"), 1978.9e12),
        (("int8", "float32"), 1978.9e12),
        (("bfloat16", "float32"), 989.4e12),
        (("float16",), 989.4e12),
        (("float32", "int64"), 494.7e12),
        (("float64",), None),
        (("int32",), None),
        ((), None),
    ],
)
def test_the_peak_is_the_highest_that_the_inputs_types_allow(dtypes: tuple[str, ...], peak: float | None) -> None:
    assert peak_flops_per_s(H200, dtypes) == peak


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_impossible_amounts_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="work in bytes"):
        light(bad)
    with pytest.raises(ValueError, match="work in flops"):
        light(1, bad)
    with pytest.raises(ValueError, match="work in bytes"):
        light(1, input_bytes=bad)
    with pytest.raises(ValueError, match="work in bytes"):
        light(1, output_bytes=bad)
    with pytest.raises(ValueError, match="duration_us"):
        light(duration_us=bad)


def test_zero_durations_are_refused() -> None:
    with pytest.raises(ValueError, match="duration_us"):
        light(duration_us=0)
