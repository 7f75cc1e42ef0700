"""Which metrics a chip has. The list is an excerpt of what ncu 2025.3.1 prints for GH100, untouched."""

import pytest

from tests.profiling.ncu.recorded import RECORDINGS, recorded
from tritonforge.profiling.ncu import chip

LIST = (RECORDINGS / "gh100_metrics.txt").read_text()
GH100 = chip.parse(LIST)


def test_the_list_is_read_with_what_each_metric_is():
    assert GH100.chip == "gh100"
    assert GH100.kinds["dram__throughput"] == "Throughput"
    assert GH100.kinds["smsp__inst_executed"] == "Counter"
    assert GH100.kinds["l1tex__t_sector_hit_rate"] == "Ratio"
    assert GH100.kinds["FBSP.TriageCompute.dramc__throughput"] == "Throughput"
    assert 90 < len(GH100.kinds) < 140
    assert not any(name.startswith(("Metric", "-", "=", "(")) for name in GH100.kinds)


@pytest.mark.parametrize("text", ["", "==ERROR== no such chip\n", LIST + LIST.replace("gh100", "ga100")])
def test_what_is_no_list_of_one_chip_is_refused(text: str):
    with pytest.raises(ValueError, match="one chip"):
        chip.parse(text)


@pytest.mark.parametrize(
    "name",
    [
        "smsp__inst_executed.sum",
        "smsp__inst_executed.avg.per_cycle_active",
        "sm__cycles_elapsed.avg.per_second",
        "dram__bytes.sum.peak_sustained",
        "dram__bytes.sum.peak_sustained_elapsed.per_second",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "FBSP.TriageCompute.dramc__throughput.avg.pct_of_peak_sustained_elapsed",
        "l1tex__t_sector_hit_rate.pct",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.max_rate",
        "launch__grid_size",
        "inst_executed",
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
        "memory_l1_wavefronts_shared_ideal",
    ],
)
def test_names_that_can_be_collected_pass(name: str):
    assert GH100.check([name]) == []


def test_every_name_of_the_reports_passes():
    names = {name for launch in ("matmul_sections", "softmax_sections") for name in recorded(launch).metrics}
    assert len(names) > 100
    assert GH100.check(sorted(names)) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sm__inst_executed_pipe_fp32.sum", "sm__inst_executed_pipe_fma"),
        ("sm__inst_executed_pipe_fp16.sum", "sm__inst_executed_pipe_fma_type_fp16"),
        ("sm__pipe_tensor_op_gmma_cycles_active.avg", "sm__pipe_tensor_cycles_active"),
        ("sm__ops_path_tensor_src_fp16_dst_fp32.sum", "sm__ops_path_tensor_src_fp16"),
        ("smsp__inst_executed_op_tma.sum", "sm__inst_executed_pipe_tma"),
        ("smsp__warp_issue_stalled_memory_dependency.avg", "long_scoreboard"),
        (
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access",
        ),
        ("smsp__inst_executed_op_global_atom.sum", "smsp__sass_inst_executed_op_global_atom"),
        ("dram__byte_read.sum", "dram__bytes_read"),
        ("launch__grid", "launch__grid_size"),
    ],
)
def test_names_that_only_look_right_are_refused_with_what_was_meant(name: str, meant: str):
    (problem,) = GH100.check([name])
    assert f"`{name.partition('.')[0]}` is no metric of gh100. Did you mean" in problem
    assert meant in problem.partition("Did you mean")[2]


def test_a_name_like_no_other_is_refused_with_where_the_list_is():
    assert GH100.check(["quux__zorp.sum"]) == ["`quux__zorp` is no metric of gh100. `ncu --query-metrics` lists all."]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smsp__inst_executed", "a counter needs a suffix. Append `.sum`"),
        ("smsp__inst_executed.total", "a counter has no `.total`. Append `.sum`"),
        ("smsp__inst_executed.sum.pct", "a counter has no `.sum.pct`"),
        ("dram__throughput.avg", "Append `.avg.pct_of_peak_sustained_elapsed`"),
        ("dram__throughput.avg.per_second", "a throughput has no `.avg.per_second`"),
        ("l1tex__t_sector_hit_rate.sum", "a ratio has no `.sum`. Append `.ratio` or `.pct` to"),
        ("l1tex__t_sector_hit_rate.pct.sum", "a ratio has no `.pct.sum`"),
        ("launch__grid_size.sum", "takes no suffix: write it without `.sum`"),
        ("inst_executed.avg", "takes no suffix"),
    ],
)
def test_a_wrong_suffix_is_refused_with_those_that_the_kind_has(name: str, said: str):
    (problem,) = GH100.check([name])
    assert said in problem


@pytest.mark.parametrize("name", ["a__b.sum,c__d.sum", "--export", "regex:.*", "group:all", "", "a b", "é__x.sum"])
def test_what_is_more_or_less_than_a_name_never_reaches_the_command_line(name: str):
    (problem,) = GH100.check([name])
    assert "no metric's name" in problem


def test_each_problem_is_told_once():
    assert len(GH100.check(["launch__grid", "launch__grid", "launch__grid_size"])) == 1
