"""Times against the speed of light."""

import math

import pytest

from tritonforge.profiling.roofline import SLACK_PCT, SpeedOfLight, speed_of_light

MEMORY_BYTES_PER_S = 4.8e12
FLOPS_PER_S = 989e12


def light(
    work_bytes: float | None = 4.8e8,
    work_flops: float | None = 1e9,
    *,
    duration_us: float = 125.0,
    memory_bytes_per_s: float | None = MEMORY_BYTES_PER_S,
    flops_per_s: float | None = FLOPS_PER_S,
) -> SpeedOfLight:
    return speed_of_light(
        work_bytes,
        work_flops,
        duration_us=duration_us,
        memory_bytes_per_s=memory_bytes_per_s,
        flops_per_s=flops_per_s,
    )


def test_a_copy_is_bound_by_memory():
    result = light()
    assert result.floor_us == pytest.approx(100)
    assert result.memory_floor_us == pytest.approx(100)
    assert result.compute_floor_us == pytest.approx(1e9 / 989e6)
    assert result.bound == "memory"
    assert result.pct == pytest.approx(80)
    assert result.headroom == pytest.approx(1.25)
    assert not result.faster_than_light
    assert result.absent == {}


def test_a_large_matmul_is_bound_by_compute():
    n = 8192
    result = light(3 * 2 * n * n, 2 * n**3, duration_us=1500)
    assert result.bound == "compute"
    assert result.floor_us == pytest.approx(2 * n**3 / 989e6)


@pytest.mark.parametrize(
    ("result", "unknown", "bound"),
    [
        (light(work_flops=None), "compute_floor_us", "memory"),
        (light(flops_per_s=None), "compute_floor_us", "memory"),
        (light(work_bytes=None), "memory_floor_us", "compute"),
        (light(memory_bytes_per_s=None), "memory_floor_us", "compute"),
    ],
)
def test_one_known_floor_still_bounds_the_time_and_the_other_says_why_not(
    result: SpeedOfLight, unknown: str, bound: str
):
    assert getattr(result, unknown) is None
    assert set(result.absent) == {unknown}
    assert result.bound == bound
    assert result.floor_us is not None


def test_without_work_or_peaks_nothing_is_claimed():
    for result in (light(None, None), light(memory_bytes_per_s=None, flops_per_s=None), light(0, 0)):
        assert result.floor_us is None
        assert result.bound is None
        assert result.pct is None
        assert result.headroom is None
        assert not result.faster_than_light
        assert {"floor_us", "bound", "pct", "headroom"} <= set(result.absent)
        assert all(result.absent.values())


def test_no_flops_is_a_floor_of_zero_and_not_unknown():
    result = light(4.8e8, 0)
    assert result.compute_floor_us == 0
    assert result.bound == "memory"
    assert result.absent == {}


def test_only_times_beyond_the_slack_are_faster_than_light():
    limit_us = 100 / (1 + SLACK_PCT / 100)
    assert not light(duration_us=100).faster_than_light
    assert not light(duration_us=limit_us * 1.001).faster_than_light
    assert light(duration_us=limit_us * 0.999).faster_than_light


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_impossible_amounts_are_refused(bad: float):
    with pytest.raises(ValueError, match="work in bytes"):
        light(bad)
    with pytest.raises(ValueError, match="work in flops"):
        light(1, bad)
    with pytest.raises(ValueError, match="peak in bytes"):
        light(memory_bytes_per_s=bad)
    with pytest.raises(ValueError, match="peak in flops"):
        light(flops_per_s=bad)
    with pytest.raises(ValueError, match="duration_us"):
        light(duration_us=bad)


def test_zero_peaks_and_durations_are_refused():
    with pytest.raises(ValueError, match="peak"):
        light(flops_per_s=0)
    with pytest.raises(ValueError, match="duration_us"):
        light(duration_us=0)
