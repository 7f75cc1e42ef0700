"""What CUPTI counted, read as a report is."""

import pytest

from tests.profiling.ncu.recorded import recorded
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.ncu import metrics
from tritonforge.profiling.ncu.counted import reported
from tritonforge.profiling.ncu.report import summarize
from tritonforge.sandbox.profile_facts import CountedLaunch

H200 = resolve_target("h200")
REPORT = recorded("matmul_two_passes")
"""By Nsight Compute, of a launch of (512, 1, 1) blocks of 256 threads with 206 registers and 147,456 bytes."""


def counted(**changed: object) -> CountedLaunch:
    names = {*metrics.FIRST_LOOK, *metrics.SECOND_LOOK} & REPORT.metrics.keys()
    values = {name: REPORT.metrics[name].value for name in names}
    fields: dict[str, object] = {
        "kernel": "matmul_kernel", "grid": (512, 1, 1), "block": (256, 1, 1), "registers": 206,
        "static_shared_bytes": 0, "dynamic_shared_bytes": 147_456, "metrics": values, "absent": {},
    }  # fmt: skip
    return CountedLaunch.model_validate(fields | changed)


def test_it_gives_what_nsight_computes_report_of_the_same_counts_gives():
    mine = summarize(reported(counted(), H200.limits, 132))
    its = summarize(REPORT)
    for field in ("duration_us", "dram_bytes", "dram_pct", "tensor_pct", "grid", "block", "registers", "shared_bytes"):
        assert getattr(mine, field) == getattr(its, field), field
    assert mine.theoretical_occupancy_pct == its.theoretical_occupancy_pct == 12.5
    assert mine.occupancy_limiter == its.occupancy_limiter == "registers and shared_mem"
    limits = {name: its.occupancy_limits[name] for name in mine.occupancy_limits}
    assert mine.occupancy_limits == limits
    assert mine.waves_per_sm == pytest.approx(its.waves_per_sm, rel=1e-3)
    # What takes more passes is absent in both.
    assert mine.memory_pct is its.memory_pct is None


def test_without_the_number_of_sms_only_waves_are_unknown():
    profile = summarize(reported(counted(), H200.limits, None))
    assert profile.waves_per_sm is None
    assert profile.occupancy_limiter == "registers and shared_mem"


def test_a_part_of_a_warp_counts_as_a_whole_one():
    profile = summarize(reported(counted(block=(33, 1, 1), registers=16, dynamic_shared_bytes=0), H200.limits, 132))
    assert profile.occupancy_limits["warps"] == 32
