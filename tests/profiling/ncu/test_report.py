"""Reading ncu's CSV pages. Both are recordings of ncu 2025.3.1 on an H200: raw of a matmul, details of a softmax."""

import dataclasses
from pathlib import Path

import pytest

from tritonforge.profiling.ncu import metrics
from tritonforge.profiling.ncu.model import LaunchProfile, RawLaunchMetrics
from tritonforge.profiling.ncu.report import parse_raw, parse_rules, summarize

RECORDINGS = Path(__file__).parents[2] / "recordings" / "ncu"
RECORDING = RECORDINGS / "matmul_h200.csv"
RECORDED_DETAILS = RECORDINGS / "softmax_h200_details.csv"

# Made by hand in the same format, for what the recording does not hold: several launches, large estimates.
DETAILS = """\
==PROF== Disconnected from process 773
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name",\
"Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"
"0","773","matmul_kernel","Occupancy","Achieved Occupancy","%","12.44",
"0","773","matmul_kernel","Occupancy","","","","AchievedOccupancy","OPT","The ""theoretical"" occupancy, 12.5%, \
is limited.","global","1,012.85"
"1","773","copy_kernel","SpeedOfLight","","","","SOLBottleneck","INF","Nothing.","",""
"""


@pytest.fixture(scope="module")
def recorded() -> RawLaunchMetrics:
    (launch,) = parse_raw(RECORDING.read_text())
    return launch


def without(row: RawLaunchMetrics, *names: str) -> RawLaunchMetrics:
    values = {name: value for name, value in row.values.items() if name not in names}
    return dataclasses.replace(row, values=values)


def changed(row: RawLaunchMetrics, **values: float | str) -> RawLaunchMetrics:
    return dataclasses.replace(row, values=row.values | values)


def reader_names(profile: LaunchProfile) -> dict[str, float]:
    return {stall.reason: stall.pct for stall in profile.stalls}


def test_the_recording_becomes_the_numbers_that_ncu_shows(recorded: RawLaunchMetrics):
    profile = summarize(recorded)
    assert profile.kernel == "matmul_kernel"
    assert profile.duration_us == pytest.approx(189.76)
    assert profile.cycles == 294_368
    assert profile.sm_clock_hz == pytest.approx(1_537_073_145.03)
    assert (profile.memory_pct, profile.compute_pct) == (59.23, 87.15)
    assert (profile.dram_pct, profile.l1_pct, profile.l2_pct) == (23.55, 62.01, 45.61)
    assert (profile.achieved_occupancy_pct, profile.theoretical_occupancy_pct) == (12.44, 12.5)
    assert (profile.registers, profile.shared_bytes) == (206, 147_456)
    assert (profile.grid, profile.block) == ((512, 1, 1), (256, 1, 1))
    assert profile.waves_per_sm == 3.88
    assert profile.absent == {}


def test_resources_that_limit_occupancy_together_are_all_named(recorded: RawLaunchMetrics):
    profile = summarize(recorded)
    assert profile.occupancy_limiter == "registers and shared_mem"
    assert profile.occupancy_limits == {
        **{"registers": 1, "shared_mem": 1},
        **{"warps": 8, "blocks": 32, "barriers": 32},
    }
    freed = summarize(changed(recorded, launch__occupancy_limit_registers=2.0))
    assert freed.occupancy_limiter == "shared_mem"


def test_stalls_are_shares_of_the_latency_ranked_without_the_issuing_warp(recorded: RawLaunchMetrics):
    profile = summarize(recorded)
    assert [stall.reason for stall in profile.stalls] == [
        *("barrier", "long_scoreboard", "wait", "dispatch_stall", "mio_throttle")
    ]
    assert profile.stalls[0].pct == pytest.approx(100 * 2.28 / 8.54)
    assert "barrier" in profile.stalls[0].meaning


def test_every_stall_of_the_recording_has_a_meaning(recorded: RawLaunchMetrics):
    seen = {
        name.removeprefix(metrics.STALL_PREFIX).removesuffix(metrics.STALL_SUFFIX)
        for name in recorded.values
        if name.startswith(metrics.STALL_PREFIX)
    }
    assert seen - {metrics.ISSUING} == set(metrics.STALL_REASONS)


def test_units_of_the_recording_are_those_that_the_metrics_name(recorded: RawLaunchMetrics):
    found = 0
    for metric in vars(metrics).values():
        if isinstance(metric, metrics.Metric):
            for name in set(metric.names) & set(recorded.values):
                assert recorded.units[name] == metric.unit, name
                found += 1
    assert found >= 15


def test_device_traffic_is_the_rate_times_the_duration_where_there_is_no_sum(recorded: RawLaunchMetrics):
    assert "dram__bytes.sum" not in recorded.values
    assert summarize(recorded).dram_bytes == pytest.approx(1_132_913_322_091.06 * 189.76e-6)


def test_device_traffic_is_read_plus_written_where_both_are_counted(recorded: RawLaunchMetrics):
    row = changed(recorded, **{"dram__bytes_read.sum": 1e6, "dram__bytes_write.sum": 5e5})
    assert summarize(row).dram_bytes == 1_500_000


def test_the_clock_is_cycles_over_duration_where_ncu_gives_no_clock(recorded: RawLaunchMetrics):
    profile = summarize(without(recorded, "gpc__cycles_elapsed.avg.per_second"))
    assert profile.sm_clock_hz == pytest.approx(294_368 / 189.76e-6)
    assert "sm_clock_hz" not in profile.absent


def test_a_missing_counter_is_absent_with_a_reason_and_never_zero(recorded: RawLaunchMetrics):
    gone = {
        "duration_us": "gpu__time_duration.sum",
        "memory_pct": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        "compute_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "achieved_occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
        "waves_per_sm": "launch__waves_per_multiprocessor",
        "registers": "launch__registers_per_thread",
        "shared_bytes": "launch__shared_mem_per_block_static",
    }
    profile = summarize(without(recorded, *gone.values()))
    for field, name in gone.items():
        assert getattr(profile, field) is None
        assert name in profile.absent[field]


def test_a_launch_of_which_nothing_was_collected_is_all_absent():
    profile = summarize(RawLaunchMetrics("copy_kernel", {}, {}))
    facts = profile.model_dump(exclude={"kernel", "absent"})
    assert not any(facts.values())
    assert set(profile.absent) == set(facts)


def test_text_in_the_place_of_a_number_is_absent(recorded: RawLaunchMetrics):
    profile = summarize(changed(recorded, **{metrics.COMPUTE.names[0]: "no data"}))
    assert profile.compute_pct is None
    assert "no data" in profile.absent["compute_pct"]


def test_a_time_in_another_unit_is_converted_and_an_unknown_unit_refused(recorded: RawLaunchMetrics):
    name = metrics.DURATION.names[0]
    row = dataclasses.replace(recorded, units=recorded.units | {name: "msecond"})
    assert summarize(row).duration_us == pytest.approx(189_760_000)
    row = dataclasses.replace(recorded, units=recorded.units | {name: "fortnight"})
    assert summarize(row).duration_us is None
    assert "fortnight" in summarize(row).absent["duration_us"]


def test_shared_memory_is_static_plus_dynamic(recorded: RawLaunchMetrics):
    row = changed(recorded, launch__shared_mem_per_block_static=1024.0)
    assert summarize(row).shared_bytes == 147_456 + 1024


def test_a_count_in_a_scaled_unit_is_refused_rather_than_misread(recorded: RawLaunchMetrics):
    units = recorded.units | {metrics.SHARED_DYNAMIC.names[0]: "Kbyte/block"}
    profile = summarize(dataclasses.replace(recorded, units=units))
    assert profile.shared_bytes is None
    assert "Kbyte/block" in profile.absent["shared_bytes"]


def test_no_issued_instruction_leaves_no_stalls(recorded: RawLaunchMetrics):
    profile = summarize(changed(recorded, **{metrics.WARP_LATENCY.names[0]: 0.0}))
    assert profile.stalls == ()
    assert "stalls" in profile.absent


def test_a_stall_reason_of_a_later_version_is_ranked_all_the_same(recorded: RawLaunchMetrics):
    profile = summarize(changed(recorded, **{metrics.stall_metric("tensor_memory"): 4.27}))
    assert reader_names(profile)["tensor_memory"] == pytest.approx(50)


def test_numbers_lose_their_thousands_separators_and_words_stay_words():
    text = '"ID","Kernel Name","a","b","c","d","e"\n"","","byte","","","",""\n'
    text += '"0","k","1,234,567.5","-2","1e-05","no data","1,2"\n'
    (launch,) = parse_raw(text)
    assert launch.values["a"] == 1_234_567.5
    assert launch.values["b"] == -2
    assert launch.values["c"] == 1e-05
    assert launch.values["d"] == "no data"
    assert launch.values["e"] == "1,2"
    assert launch.units["a"] == "byte"


def test_chatter_around_and_between_the_rows_is_passed_over():
    lines = RECORDING.read_text().splitlines(keepends=True)
    noisy = ["==PROF== Connected\n", "loading, please wait\n", *lines, "==PROF== Report: x\n", "\n", lines[2], "42\n"]
    assert [launch.kernel for launch in parse_raw("".join(noisy))] == ["matmul_kernel"] * 2


def test_a_report_that_is_cut_short_or_is_none_is_refused():
    text = RECORDING.read_text()
    with pytest.raises(ValueError, match="cut short"):
        parse_raw(text[: text.rindex('","')])
    with pytest.raises(ValueError, match="no CSV table"):
        parse_raw("==ERROR== Failed to open report\n")


def test_the_recorded_rules_are_read_with_their_estimates():
    rules = parse_rules(RECORDED_DETAILS.read_text())
    assert {(rule.launch, rule.kernel) for rule in rules} == {(0, "softmax_kernel")}
    stated = {(rule.name, rule.type): (rule.speedup_type, rule.speedup_pct) for rule in rules if rule.speedup_pct}
    assert stated == {
        ("IssueSlotUtilization", "OPT"): ("local", 45.04),
        ("CPIStall", "OPT"): ("global", 45.04),
        ("LaunchConfiguration", "OPT"): ("global", 25.0),
        ("TheoreticalOccupancy", "OPT"): ("global", 45.04),
    }
    (bottleneck,) = [rule for rule in rules if rule.name == "SOLBottleneck"]
    assert bottleneck.section == "SpeedOfLight"
    assert bottleneck.description.startswith("This workload exhibits low compute throughput")


def test_rules_are_read_with_their_estimates():
    occupancy, bottleneck = parse_rules(DETAILS)
    assert (occupancy.launch, occupancy.kernel, occupancy.section) == (0, "matmul_kernel", "Occupancy")
    assert (occupancy.name, occupancy.type) == ("AchievedOccupancy", "OPT")
    assert occupancy.description == 'The "theoretical" occupancy, 12.5%, is limited.'
    assert (occupancy.speedup_type, occupancy.speedup_pct) == ("global", 1012.85)
    assert (bottleneck.launch, bottleneck.speedup_type, bottleneck.speedup_pct) == (1, None, None)


def test_a_details_page_without_rule_columns_has_no_rules():
    assert parse_rules('"ID","Kernel Name","Metric Name"\n"0","k","Duration"\n') == []


def test_rules_of_a_version_without_estimates_are_read():
    (rule,) = parse_rules('"ID","Kernel Name","Rule Name","Rule Type"\n"0","k","CPIStall","WRN"\n')
    assert (rule.name, rule.speedup_pct, rule.description) == ("CPIStall", None, "")
