"""From what was read out of a report to a profile. The launches are recordings from an H200, see `recorded`."""

import pytest

from tests.profiling.ncu.raw_page import raw_page
from tests.profiling.ncu.recorded import RECORDINGS, changed, recorded, without
from tritonforge.profiling.ncu import metrics
from tritonforge.profiling.ncu.metrics import Metric
from tritonforge.profiling.ncu.report import summarize, traffic_ratio
from tritonforge.sandbox.profile_facts import ReportedLaunch

MATMUL = recorded("matmul_sections")
SOFTMAX = recorded("softmax_sections")


def only(metric: Metric) -> str:
    (name,) = metric.names
    return name


def with_operations(launch: ReportedLaunch, **counts: float) -> ReportedLaunch:
    """The launch with instructions counted: `ffma=8`, `tf32_dst_fp32=2`; the others are zero."""
    groups = (*metrics.FP32_FLOPS, *metrics.FP64_FLOPS, *metrics.HALF_FLOPS)
    values: dict[str, float | str] = {only(metric): 0.0 for metric, _ in groups}
    values |= {only(metric): 0.0 for metric in metrics.TENSOR_FLOPS}
    for key, count in counts.items():
        (name,) = [name for name in values if f"_op_{key}_" in name or f"_src_{key}.sum" in name]
        values[name] = count
    return changed(launch, values)


def test_a_matmul_is_described_by_the_numbers_that_ncu_counted():
    profile = summarize(MATMUL)
    assert (profile.kernel, profile.cycles) == ("matmul_kernel", MATMUL.metrics["sm__cycles_elapsed.max"].value)
    assert profile.duration_us == pytest.approx(188.0, rel=0.02)
    assert profile.sm_clock_hz == pytest.approx(1.56e9, rel=0.02)
    assert profile.memory_pct == pytest.approx(59, abs=1)
    assert profile.compute_pct == pytest.approx(86.8, abs=1)
    assert (profile.dram_pct, profile.l2_pct) == pytest.approx((23.8, 45), abs=2)
    assert profile.dram_bytes == sum(
        float(MATMUL.metrics[name].value) for name in ("dram__bytes_read.sum", "dram__bytes_write.sum")
    )
    assert (profile.registers, profile.shared_bytes) == (206, 147_456)
    assert (profile.grid, profile.block) == ((512, 1, 1), (256, 1, 1))
    assert profile.waves_per_sm == pytest.approx(3.8788, abs=1e-4)
    assert profile.theoretical_occupancy_pct == 12.5
    assert profile.load_sectors_per_request == 16
    assert profile.needed_sectors_pct == 100
    assert profile.bank_conflict_pct == pytest.approx(0.0275, rel=0.01)
    assert profile.local_requests == 0
    assert profile.sm_imbalance == pytest.approx(1.035, abs=0.01)
    assert profile.issue_slot_pct == pytest.approx(23.3, abs=0.1)


def test_the_busiest_pipes_come_first():
    assert [pipe.name for pipe in summarize(MATMUL).pipes] == ["tensor", "alu", "lsu", "uniform", "fma"]
    assert summarize(MATMUL).pipes[0].pct == pytest.approx(91, abs=1)


def test_a_report_of_bare_metrics_gives_the_same_numbers_as_one_of_sections():
    quick, whole = summarize(recorded("matmul_two_passes")), summarize(MATMUL)
    for field in ("duration_us", "sm_clock_hz", "dram_bytes", "dram_pct", "tensor_pct", "issue_slot_pct"):
        assert getattr(quick, field) == pytest.approx(getattr(whole, field), rel=0.03), field
    assert (quick.grid, quick.registers, quick.occupancy_limits) == (
        whole.grid,
        whole.registers,
        whole.occupancy_limits,
    )
    assert quick.load_sectors_per_request == whole.load_sectors_per_request


def test_sectors_and_their_use_are_those_of_16_byte_accesses_side_by_side():
    profile = summarize(SOFTMAX)
    assert (profile.load_sectors_per_request, profile.store_sectors_per_request) == (16, 16)
    assert (profile.load_bytes_per_sector, profile.store_bytes_per_sector) == (32, 32)


def test_a_kernel_without_plain_loads_has_no_bytes_per_sector_of_loads():
    profile = summarize(MATMUL)
    assert MATMUL.metrics[only(metrics.LOAD_BYTES_PER_SECTOR)].value == 0
    assert profile.load_bytes_per_sector is None
    assert "cp.async" in profile.absent["load_bytes_per_sector"]
    none = changed(MATMUL, {only(metrics.LOAD_SECTORS): 0, only(metrics.LOAD_REQUESTS): 0})
    assert summarize(none).absent["load_sectors_per_request"] == "it loads nothing globally"


def test_operations_are_weighted_as_nvidia_does():
    profile = summarize(with_operations(SOFTMAX, fadd=1, fmul=10, ffma=100, dadd=1000, dfma=10_000, fp16=1e6))
    assert profile.flops == 1 + 10 + 200 + 1000 + 20_000 + 1e6
    assert profile.tensor_flops == 1e6
    assert profile.flops
    assert profile.dram_bytes
    assert profile.flops_per_dram_byte == profile.flops / profile.dram_bytes


def test_half_instructions_count_two_lanes_and_stay_out_of_the_sum():
    profile = summarize(with_operations(SOFTMAX, hadd=1, hmul=10, hfma=100, fadd=7))
    assert profile.half_flops == 2 + 20 + 400
    assert profile.flops == 7


def test_operations_of_which_one_kind_was_not_counted_are_absent():
    gone = only(metrics.TENSOR_FLOPS[4])
    profile = summarize(without(with_operations(SOFTMAX, fadd=1), gone))
    assert (profile.flops, profile.tensor_flops, profile.flops_per_dram_byte) == (None, None, None)
    assert all(gone in profile.absent[field] for field in ("flops", "tensor_flops", "flops_per_dram_byte"))


def test_the_kind_of_matrix_instruction_is_told_from_constants_that_the_same_pipe_loads():
    counts: dict[str, float | str] = {only(getattr(metrics, kind)): 0.0 for kind in ("GMMA", "HFMA2", "IMMA", "DMMA")}
    softmax = recorded("softmax_two_passes")
    assert softmax.metrics[only(metrics.HMMA)].value == 327_680  # HFMA2.MMA that load constants
    assert summarize(softmax).mma is None
    assert only(metrics.HFMA2) in summarize(softmax).absent["mma"]
    told = changed(softmax, counts | {only(metrics.HFMA2): 327_680.0})
    assert summarize(told).mma == "none"
    assert summarize(changed(told, {only(metrics.HFMA2): 0.0})).mma == "hmma"
    assert summarize(changed(told, {only(metrics.IMMA): 5.0})).mma == "imma"
    assert summarize(changed(told, {only(metrics.DMMA): 5.0})).mma == "dmma"
    matmul = summarize(recorded("matmul_two_passes"))
    assert (matmul.mma, "mma" in matmul.absent) == ("gmma", False)


def test_stalls_are_shares_of_the_latency_worst_first_without_the_issuing_warp():
    profile = summarize(SOFTMAX)
    assert profile.stalls_from == "counted"
    assert profile.stalls[0].reason == "long_scoreboard"
    latency = float(SOFTMAX.metrics[only(metrics.WARP_LATENCY)].value)
    assert profile.stalls[0].cycles == SOFTMAX.metrics[metrics.stall_metric("long_scoreboard")].value
    assert profile.stalls[0].pct == pytest.approx(100 * (profile.stalls[0].cycles or 0) / latency)
    shares = [stall.pct for stall in profile.stalls]
    assert shares == sorted(shares, reverse=True)
    assert all(share >= 1 for share in shares)
    assert sum(shares) == pytest.approx(100 * (1 - 1 / latency), abs=2)


def test_samples_stand_in_where_no_warp_states_were_counted():
    counted = {metrics.stall_metric(reason) for reason in metrics.STALL_REASONS}
    profile = summarize(without(SOFTMAX, *counted))
    assert profile.stalls_from == "sampled"
    assert profile.stalls[0].reason == "long_scoreboard"
    assert profile.stalls[0].cycles is None
    samples = SOFTMAX.metrics[metrics.sampled_stall_metric("long_scoreboard")].value
    assert profile.stalls[0].pct == pytest.approx(
        100 * float(samples) / float(SOFTMAX.metrics[only(metrics.SAMPLES)].value)
    )
    assert "gmma" in {stall.reason for stall in summarize(without(MATMUL, *counted)).stalls}


def test_no_issued_instruction_leaves_no_stalls():
    profile = summarize(changed(SOFTMAX, {only(metrics.WARP_LATENCY): 0.0, only(metrics.SAMPLES): 0}))
    assert (profile.stalls, profile.stalls_from) == ((), None)
    assert profile.absent["stalls"] == "no warp issued an instruction"


def test_resources_that_limit_occupancy_together_are_all_named():
    profile = summarize(MATMUL)
    assert profile.occupancy_limiter == "registers and shared_mem"
    assert profile.occupancy_limits == {"registers": 1, "shared_mem": 1, "warps": 8, "blocks": 32, "barriers": 32}
    assert summarize(changed(MATMUL, {"launch__occupancy_limit_registers": 2.0})).occupancy_limiter == "shared_mem"


def test_device_traffic_is_the_rate_times_the_duration_where_there_are_no_counts():
    bare = without(MATMUL, "dram__bytes_read.sum", "dram__bytes_write.sum")
    rate, ns = (float(MATMUL.metrics[n].value) for n in ("dram__bytes.sum.per_second", "gpu__time_duration.sum"))
    assert summarize(bare).dram_bytes == pytest.approx(rate * ns * 1e-9)
    assert summarize(without(bare, "dram__bytes.sum.per_second")).dram_bytes is None


def test_traffic_is_compared_with_what_the_work_has_to_move():
    profile = summarize(SOFTMAX)
    assert profile.dram_bytes is not None
    assert traffic_ratio(profile, profile.dram_bytes / 2) == 2
    assert traffic_ratio(profile, 0) is None
    assert traffic_ratio(profile.model_copy(update={"dram_bytes": None}), 1) is None


def test_what_was_not_counted_is_absent_with_a_reason_and_never_zero():
    profile = summarize(ReportedLaunch(kernel="copy_kernel", metrics={}, rules=[], files=[]))
    facts = profile.model_dump(exclude={"kernel", "absent"})
    assert not any(facts.values())
    assert set(profile.absent) == set(facts)


@pytest.mark.parametrize("name", ["matmul_sections", "softmax_sections", "softmax_two_passes", "softmax_one_pass"])
def test_each_missing_field_has_its_reason_and_each_reason_its_missing_field(name: str):
    profile = summarize(recorded(name))
    missing = {field for field, value in profile.model_dump(exclude={"absent"}).items() if value in (None, (), {})}
    assert set(profile.absent) == missing


def test_text_in_the_place_of_a_number_is_absent():
    profile = summarize(changed(MATMUL, {only(metrics.COMPUTE): "no data"}))
    assert profile.compute_pct is None
    assert "no data" in profile.absent["compute_pct"]


def test_a_time_in_another_unit_is_converted_and_an_unknown_unit_refused():
    name = only(metrics.DURATION)
    assert summarize(changed(MATMUL, {name: 0.5}, unit="msecond")).duration_us == 500
    strange = summarize(changed(MATMUL, {name: 0.5}, unit="fortnight"))
    assert strange.duration_us is None
    assert "fortnight" in strange.absent["duration_us"]


def test_a_count_in_a_scaled_unit_is_refused_rather_than_misread():
    profile = summarize(changed(MATMUL, {only(metrics.SHARED_DYNAMIC): 144}, unit="Kbyte/block"))
    assert profile.shared_bytes is None
    assert "Kbyte/block" in profile.absent["shared_bytes"]


def test_numbers_that_no_profiler_counts_are_refused():
    with pytest.raises(ValueError, match="finite"):
        summarize(changed(MATMUL, {only(metrics.CYCLES_ACTIVE_MAX): 1e24, only(metrics.CYCLES_ACTIVE): 1e-300}))


def test_the_raw_page_of_another_report_of_the_kernel_shows_about_the_same():
    (page,) = raw_page((RECORDINGS / "matmul_h200.csv").read_text())
    assert page["Kernel Name"] == "matmul_kernel"
    assert page["sm__throughput.avg.pct_of_peak_sustained_elapsed"] == 87.15
    profile = summarize(MATMUL)
    for name, value in ((only(metrics.DURATION), profile.duration_us), (only(metrics.COMPUTE), profile.compute_pct)):
        scale = 1e-3 if name == only(metrics.DURATION) else 1
        assert float(page[name]) * scale == pytest.approx(value, rel=0.02)
    two = (RECORDINGS / "matmul_h200.csv").read_text().splitlines(keepends=True)
    assert len(raw_page("".join(["==PROF== Connected\n", *two, "==PROF== x\n", two[2], "42\n"]))) == 2
