"""Command lines of Nsight Compute, and where it is found."""

from pathlib import Path

import pytest

from tritonforge.profiling.ncu.command import command, export_command, find_ncu, parse_version
from tritonforge.profiling.ncu.metrics import FIRST_LOOK, LAUNCH_FACTS

TARGET = ["python", "-P", "worker.py", "--job", "1"]
REPORT = Path("out/softmax.ncu-rep")


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def value_of(line: list[str], option: str) -> str:
    return line[line.index(option) + 1]


def test_the_default_command_profiles_every_launch_in_the_range_with_unlocked_clocks():
    assert command("ncu", REPORT, TARGET) == [
        *("ncu", "--target-processes", "all", "--clock-control", "none", "--cache-control", "all"),
        *("--nvtx", "--nvtx-include", "BIG_OP/", "--nvtx-push-pop-scope", "process"),
        *("--section", "SpeedOfLight", "--section", "LaunchStats", "--section", "Occupancy"),
        *("--section", "WarpStateStats", "--section", "SchedulerStats"),
        *("-f", "-o", "out/softmax.ncu-rep"),
        *TARGET,
    ]


def test_launches_are_narrowed_by_kernel_skip_and_count():
    line = command("ncu", REPORT, TARGET, kernel="softmax_kernel", launch_skip=3, launch_count=1)
    assert value_of(line, "--kernel-name-base") == "function"
    assert value_of(line, "--kernel-name") == "softmax_kernel"
    assert value_of(line, "--launch-skip") == "3"
    assert value_of(line, "--launch-count") == "1"
    assert line[-len(TARGET) :] == TARGET


def test_the_quick_look_asks_for_metrics_alone():
    line = command("ncu", REPORT, TARGET, sections=(), metrics=FIRST_LOOK + LAUNCH_FACTS)
    assert "--section" not in line
    assert value_of(line, "--metrics").split(",") == [*FIRST_LOOK, *LAUNCH_FACTS]


def test_source_and_warm_caches_are_asked_for_only_when_wanted():
    assert "--import-source" not in command("ncu", REPORT, TARGET)
    line = command("ncu", REPORT, TARGET, import_source=True, cache_control="none")
    assert value_of(line, "--import-source") == "yes"
    assert value_of(line, "--cache-control") == "none"


def test_a_command_that_could_do_nothing_is_refused():
    with pytest.raises(ValueError, match="target is empty"):
        command("ncu", REPORT, [])
    with pytest.raises(ValueError, match="nothing to collect"):
        command("ncu", REPORT, TARGET, sections=())
    with pytest.raises(ValueError, match="launch_count"):
        command("ncu", REPORT, TARGET, launch_count=0)
    with pytest.raises(ValueError, match="launch_skip"):
        command("ncu", REPORT, TARGET, launch_skip=-1)


def test_pages_are_exported_as_csv_in_base_units():
    assert export_command("ncu", REPORT, "raw") == [
        *("ncu", "--import", "out/softmax.ncu-rep", "--csv", "--page", "raw", "--print-units", "base")
    ]
    assert value_of(export_command("ncu", REPORT, "details"), "--page") == "details"


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
