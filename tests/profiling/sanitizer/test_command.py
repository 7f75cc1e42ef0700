"""Command lines of Compute Sanitizer, and where it is found."""

from pathlib import Path

import pytest

from tritonforge.profiling.sanitizer.command import TOOLS, command, find_sanitizer

LOG = Path("out/log.txt")


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_an_error_ends_its_kernel_alone_and_the_log_names_whole_paths():
    assert command("compute-sanitizer", "racecheck", LOG, print_limit=10) == [
        *("compute-sanitizer", "--tool", "racecheck", "--print-limit", "10", "--log-file", "out/log.txt"),
        *("--launch-timeout", "0", "--destroy-on-device-error", "kernel"),
        *("--show-backtrace", "no", "--strip-paths", "no"),
    ]


def test_only_memcheck_knows_padding():
    for tool in TOOLS:
        assert (command("compute-sanitizer", tool, LOG)[-2:] == ["--padding", "4096"]) is (tool == "memcheck")


def test_a_log_without_end_is_refused():
    with pytest.raises(ValueError, match="print_limit"):
        command("compute-sanitizer", "memcheck", LOG, print_limit=0)


def test_the_variable_wins_over_path_and_usual_places(tmp_path: Path):
    chosen = executable(tmp_path / "mine/sanitizer-beta")
    on_path = executable(tmp_path / "bin/compute-sanitizer")
    environment = {"TRITONFORGE_SANITIZER": str(chosen), "PATH": str(on_path.parent)}
    assert find_sanitizer(environment, root=tmp_path) == chosen
    assert find_sanitizer({"PATH": str(on_path.parent)}, root=tmp_path) == on_path


def test_a_variable_that_names_no_executable_does_not_fall_back_to_another_one(tmp_path: Path):
    executable(tmp_path / "usr/local/cuda/bin/compute-sanitizer")
    assert find_sanitizer({"TRITONFORGE_SANITIZER": str(tmp_path / "gone")}, root=tmp_path) is None


def test_a_bare_environment_still_finds_the_toolkit_then_the_newest(tmp_path: Path):
    assert find_sanitizer({}, root=tmp_path) is None
    old = executable(tmp_path / "opt/nvidia/hpc_sdk/Linux_x86_64/25.9/cuda/bin/compute-sanitizer")
    assert find_sanitizer({}, root=tmp_path) == old
    new = executable(tmp_path / "opt/nvidia/hpc_sdk/Linux_x86_64/25.11/cuda/bin/compute-sanitizer")
    assert find_sanitizer({}, root=tmp_path) == new
    executable(tmp_path / "usr/local/cuda-9.2/bin/compute-sanitizer")
    toolkit = executable(tmp_path / "usr/local/cuda-13.0/bin/compute-sanitizer")
    assert find_sanitizer({}, root=tmp_path) == toolkit
    link = executable(tmp_path / "usr/local/cuda/bin/compute-sanitizer")
    assert find_sanitizer({}, root=tmp_path) == link
