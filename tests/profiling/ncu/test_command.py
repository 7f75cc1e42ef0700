"""Command lines of Nsight Compute, and where it is found."""

from pathlib import Path

import pytest

from tritonforge.profiling.ncu.command import command, find_ncu, find_reader, parse_version, query_command
from tritonforge.profiling.ncu.levels import LEVELS, custom
from tritonforge.profiling.ncu.metrics import FIRST_LOOK, LAUNCH_FACTS


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def value_of(line: list[str], option: str) -> str:
    return line[line.index(option) + 1]


def test_every_launch_in_the_range_is_profiled_with_unlocked_clocks():
    assert command("ncu", ["--set", "full"], launch_count=10) == [
        *("ncu", "--target-processes", "application-only", "--clock-control", "none", "--cache-control", "all"),
        *("--nvtx", "--nvtx-include", "BIG_OP/", "--nvtx-push-pop-scope", "process"),
        *("--launch-count", "10", "--set", "full", "-f", "-o", "{folder}/report.ncu-rep"),
    ]


def test_launches_are_narrowed_to_functions():
    line = command("ncu", ["--set", "full"], kernels=["softmax_kernel", "_reduce"], launch_count=1)
    assert value_of(line, "--kernel-name-base") == "function"
    assert value_of(line, "--kernel-name") == "regex:^(softmax_kernel|_reduce)$"


def test_the_quick_look_asks_for_metrics_alone():
    line = command("ncu", LEVELS["quick"].collect, launch_count=1)
    assert "--section" not in line
    assert "--set" not in line
    assert {*FIRST_LOOK, *LAUNCH_FACTS} <= set(value_of(line, "--metrics").split(","))


def test_source_is_embedded_where_lines_are_counted():
    assert "--import-source" not in LEVELS["quick"].collect
    assert value_of(list(LEVELS["standard"].collect), "--import-source") == "yes"
    assert value_of(list(LEVELS["full"].collect), "--import-source") == "yes"


def test_metrics_by_name_come_with_time_and_launch():
    (_, names) = custom(("smsp__inst_executed.sum",)).collect
    assert {"gpu__time_duration.sum", "smsp__inst_executed.sum", "launch__grid_dim_x"} <= set(names.split(","))


def test_a_command_that_could_do_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing is to be collected"):
        command("ncu", [], launch_count=1)
    with pytest.raises(ValueError, match="launch_count"):
        command("ncu", ["--set", "full"], launch_count=0)
    with pytest.raises(ValueError, match="no name of a function"):
        command("ncu", ["--set", "full"], kernels=["a|.*"], launch_count=1)


def test_a_chip_is_asked_what_it_counts():
    assert query_command("ncu", "gh100") == ["ncu", "--query-metrics", "--chips", "gh100"]


def reader(path: Path) -> Path:
    folder = path / "extras/python"
    folder.mkdir(parents=True)
    (folder / "ncu_report.py").write_text("")
    return folder


def test_the_reader_lies_beside_the_program(tmp_path: Path):
    ncu = executable(tmp_path / "opt/nvidia/nsight-compute/2025.3.1/ncu")
    reader(tmp_path / "opt/nvidia/nsight-compute/2026.1.0")
    mine = reader(ncu.parent)
    assert find_reader(ncu, root=tmp_path) == mine


def test_a_toolkits_script_has_its_reader_elsewhere(tmp_path: Path):
    script = executable(tmp_path / "usr/local/cuda-13.0/bin/ncu")
    assert find_reader(script, root=tmp_path) is None
    old = reader(tmp_path / "opt/nvidia/nsight-compute/2024.9.1")
    assert find_reader(script, root=tmp_path) == old
    new = reader(tmp_path / "opt/nvidia/nsight-compute/2024.10.1")
    assert find_reader(script, root=tmp_path) == new
    beside = reader(tmp_path / "usr/local/cuda-13.0/nsight-compute-2025.3.1")
    assert find_reader(script, root=tmp_path) == beside


def test_the_variable_wins_over_path_and_usual_places(tmp_path: Path):
    chosen = executable(tmp_path / "mine/ncu-beta")
    on_path = executable(tmp_path / "bin/ncu")
    environment = {"TRITONFORGE_NCU": str(chosen), "PATH": str(on_path.parent)}
    assert find_ncu(environment, root=tmp_path) == chosen
    assert find_ncu({"PATH": str(on_path.parent)}, root=tmp_path) == on_path


def test_a_variable_that_names_no_executable_does_not_fall_back_to_another_ncu(tmp_path: Path):
    executable(tmp_path / "usr/local/cuda/bin/ncu")
    assert find_ncu({"TRITONFORGE_NCU": str(tmp_path / "gone")}, root=tmp_path) is None


def test_a_bare_environment_still_finds_the_toolkit_then_the_newest(tmp_path: Path):
    old = executable(tmp_path / "opt/nvidia/nsight-compute/2024.3.2/ncu")
    assert find_ncu({}, root=tmp_path) == old
    new = executable(tmp_path / "opt/nvidia/nsight-compute/2025.10.1/ncu")
    executable(tmp_path / "opt/nvidia/nsight-compute/2025.9.1/ncu")
    assert find_ncu({}, root=tmp_path) == new
    executable(tmp_path / "usr/local/cuda-9.2/bin/ncu")
    toolkit = executable(tmp_path / "usr/local/cuda-13.0/bin/ncu")
    assert find_ncu({}, root=tmp_path) == toolkit
    link = executable(tmp_path / "usr/local/cuda/bin/ncu")
    assert find_ncu({}, root=tmp_path) == link


def test_a_file_without_the_execute_bit_is_passed_over(tmp_path: Path):
    executable(tmp_path / "usr/local/cuda-13.0/bin/ncu").chmod(0o644)
    older = executable(tmp_path / "usr/local/cuda-12.8/bin/ncu")
    assert find_ncu({}, root=tmp_path) == older


def test_no_ncu_anywhere_is_none(tmp_path: Path):
    assert find_ncu({"PATH": str(tmp_path)}, root=tmp_path) is None


def test_the_version_is_read_from_the_banner():
    banner = (
        "NVIDIA (R) Nsight Compute Command Line Profiler\n"
        "Copyright (c) 2018-2025 NVIDIA Corporation\n"
        "Version 2025.3.1.0 (build 36398880) (public-release)\n"
    )
    assert parse_version(banner) == (2025, 3, 1)
    assert parse_version("command not found") is None
