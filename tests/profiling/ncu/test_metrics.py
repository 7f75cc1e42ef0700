"""Names of metrics: all exist on GH100, and all that a profile reads is asked for."""

import ast
import inspect
from typing import cast

import pytest

from tests.profiling.ncu.recorded import RECORDINGS, recorded
from tritonforge.profiling.ncu import chip, metrics, report
from tritonforge.profiling.ncu.metrics import Metric
from tritonforge.profiling.ncu.report import summarize
from tritonforge.sandbox.profile_facts import ReportedLaunch

GH100 = chip.parse((RECORDINGS / "gh100_metrics.txt").read_text())
LAUNCHES = [recorded(name) for name in ("matmul_sections", "softmax_sections", "softmax_one_pass", "softmax_sampled")]


def every_metric() -> list[Metric]:
    found: list[Metric] = []
    waiting: list[object] = [value for name, value in vars(metrics).items() if not name.startswith("__")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Metric):
            found.append(value)
        elif isinstance(value, tuple | dict):
            group = cast("tuple[object, ...] | dict[str, object]", value)
            waiting.extend(group.values() if isinstance(group, dict) else group)
    return found


def test_every_name_exists_on_gh100():
    assert len(set(metrics.WANTED)) > 100
    assert GH100.check(metrics.WANTED) == []


def test_every_quantity_is_wanted():
    quantities = every_metric()
    assert len(quantities) > 60
    assert {name for metric in quantities for name in metric.names} <= set(metrics.WANTED)


def test_what_a_level_collects_is_read_back():
    for group in (metrics.FIRST_LOOK, metrics.SECOND_LOOK, metrics.TARGETED, metrics.LAUNCH_FACTS):
        assert set(group) <= set(metrics.WANTED)
        assert len(set(group)) == len(group)


def test_the_first_look_is_what_one_pass_gave_on_an_h200():
    assert set(metrics.FIRST_LOOK) | set(metrics.LAUNCH_FACTS) <= set(recorded("softmax_one_pass").metrics)


def test_units_of_the_recordings_are_those_that_the_metrics_name():
    found = 0
    for launch in LAUNCHES:
        for metric in every_metric():
            for name in set(metric.names) & set(launch.metrics):
                assert launch.metrics[name].unit == metric.unit, name
                found += 1
    assert found > 150


def test_every_stall_of_the_recordings_has_a_meaning():
    seen = {name for launch in LAUNCHES for name in launch.metrics if "_issue_stalled_" in name}
    known = {metrics.stall_metric(reason) for reason in metrics.STALL_REASONS}
    known |= {metrics.sampled_stall_metric(reason) for reason in metrics.STALL_REASONS}
    left = {name for name in seen - known if not name.endswith("_not_issued")}
    assert left == {"smsp__pcsamp_warps_issue_stalled_selected"}
    assert len(seen & known) == 2 * len(metrics.STALL_REASONS)


@pytest.mark.parametrize("group", ["quick", "targeted"])
def test_a_launch_with_all_that_a_group_counts_lacks_nothing_that_the_group_is_for(group: str):
    names = {
        "quick": (*metrics.FIRST_LOOK, *metrics.SECOND_LOOK, *metrics.LAUNCH_FACTS),
        "targeted": metrics.TARGETED,
    }[group]
    units = {name: metric.unit for metric in every_metric() for name in metric.names}
    values = {name: {"value": 1.0, "unit": units.get(name, "")} for name in names}
    launch = ReportedLaunch.model_validate({"kernel": "k", "metrics": values, "rules": [], "files": []})
    fields = {
        "quick": "duration_us dram_bytes dram_pct tensor_pct mma issue_slot_pct load_sectors_per_request l2_hit_pct "
        "store_sectors_per_request local_requests sm_imbalance achieved_occupancy_pct registers grid occupancy_limiter",
        "targeted": "flops tensor_flops half_flops flops_per_dram_byte mma bank_conflict_pct local_requests "
        "load_bytes_per_sector store_bytes_per_sector load_sectors_per_request store_sectors_per_request",
    }[group]
    assert [field for field in fields.split() if field in summarize(launch).absent] == []


def test_the_reader_looks_up_no_quantity_that_is_not_among_the_metrics():
    used = {node.attr for node in ast.walk(ast.parse(inspect.getsource(report))) if isinstance(node, ast.Attribute)}
    unused = {
        name
        for name, value in vars(metrics).items()
        if isinstance(value, Metric) and not name.startswith("_") and name not in used
    }
    assert unused == set()
