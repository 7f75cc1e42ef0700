"""What nvidia-smi and the driver's files say, from recordings of an H200 and from stand-in programs."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from tritonforge.profiling.hardware.detect import (
    Detection,
    command,
    counters_restricted,
    detect,
    parse,
    parse_admin_only,
    parse_privileged,
)

RECORDINGS = Path(__file__).parents[2] / "recordings" / "hardware"
IDLE = (RECORDINGS / "h200_idle.csv").read_text()
BUSY = (RECORDINGS / "h200_busy.csv").read_text()
PARAMS = (RECORDINGS / "driver_params.txt").read_text()
FULL_CAPABILITIES = "Name:\tpython\nCapPrm:\t0000000000000000\nCapEff:\t000001fffeffffff\n"
NO_CAPABILITIES = "CapPrm:\t000001fffeffffff\nCapEff:\t0000000000000000\n"


def test_the_call_asks_for_as_many_columns_as_are_read() -> None:
    program, query, form = command()
    assert program == "nvidia-smi"
    assert form == "--format=csv,noheader,nounits"
    assert query.startswith("--query-gpu=index,name,uuid,")
    assert query.count(",") == IDLE.count(",")


def test_an_idle_gpu_is_read_in_plain_units() -> None:
    (gpu,) = parse(IDLE)
    assert gpu.model_dump() == {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "driver_version": "580.159.04",
        "compute_capability": "9.0",
        "memory_total_bytes": 143_771 << 20,
        "memory_used_bytes": 0,
        "sm_clock_hz": 345_000_000,
        "max_sm_clock_hz": 1_980_000_000,
        "memory_clock_hz": 3_201_000_000,
        "max_memory_clock_hz": 3_201_000_000,
        "power_w": 94.8,
        "power_limit_w": 700.0,
        "temperature_c": 35,
        "utilization_pct": 0,
        "mig_mode": "Disabled",
        "throttle_reasons": ["idle"],
    }


def test_a_busy_gpu_says_what_holds_its_clock_down() -> None:
    (gpu,) = parse(BUSY)
    assert gpu.throttle_reasons == ["power_cap"]
    assert gpu.sm_clock_hz == 1_455_000_000
    assert gpu.utilization_pct == 100


def test_several_reasons_are_all_named_and_a_new_bit_is_kept() -> None:
    (gpu,) = parse(BUSY.replace("0x0000000000000004", "0x0000000000000468"))
    assert gpu.throttle_reasons == ["hardware_slowdown", "thermal", "hardware_thermal", "unknown_0x400"]


@pytest.mark.parametrize("nothing", ["N/A", "[N/A]", "[Not Supported]", "[Unknown Error]", ""])
def test_a_value_that_the_device_does_not_give_is_null(nothing: str) -> None:
    text = BUSY.replace("692.03", nothing).replace("Disabled", nothing).replace("0x0000000000000004", nothing)
    (gpu,) = parse(text)
    assert gpu.power_w is None
    assert gpu.mig_mode is None
    assert gpu.throttle_reasons == []
    assert gpu.power_limit_w == 700.0


def test_every_gpu_has_its_row() -> None:
    assert [gpu.index for gpu in parse(IDLE + "\n" + BUSY.replace("0,", "1,", 1))] == [0, 1]


def test_a_machine_without_gpus_has_no_rows() -> None:
    assert parse("No devices were found\n") == []


@pytest.mark.parametrize("text", ["0, NVIDIA H200\n", IDLE.replace("345", "fast")])
def test_an_unexpected_row_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"columns|fast"):
        parse(text)


def detect_with(program: Path | str, timeout_s: float = 10.0) -> Detection:
    return anyio.run(partial(detect, str(program), timeout_s))


def stand_in(folder: Path, script: str) -> Path:
    program = folder / "smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_gpus_are_detected_through_the_program(tmp_path: Path) -> None:
    found = detect_with(stand_in(tmp_path, f"cat {RECORDINGS / 'h200_busy.csv'}"))
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA H200"]
    assert (found.reason, found.remedy) == (None, None)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'NVIDIA-SMI has failed' >&2; exit 9", "exit code 9: NVIDIA-SMI has failed"),
        ("echo 'No devices were found'", "found no GPU"),
        ("echo 'what, now'", "unexpected form: 2 columns"),
    ],
)
def test_a_failing_program_is_told_with_a_remedy(tmp_path: Path, script: str, reason: str) -> None:
    found = detect_with(stand_in(tmp_path, script))
    assert found.gpus == []
    assert found.reason is not None
    assert reason in found.reason
    assert found.remedy


def test_a_missing_program_means_no_gpu_and_not_an_error(tmp_path: Path) -> None:
    found = detect_with(tmp_path / "absent")
    assert found.gpus == []
    assert found.reason is not None
    assert "not installed" in found.reason
    assert found.remedy is not None
    assert "driver" in found.remedy


def test_a_program_that_is_not_executable_is_told(tmp_path: Path) -> None:
    (tmp_path / "smi").write_text("")
    found = detect_with(tmp_path / "smi")
    assert found.reason is not None
    assert "can't be started" in found.reason


def test_a_hanging_program_is_given_up(tmp_path: Path) -> None:
    found = detect_with(stand_in(tmp_path, "exec sleep 60"), timeout_s=0.2)
    assert found.reason is not None
    assert "within 0.2 s" in found.reason


@pytest.mark.parametrize(
    ("params", "admin_only"),
    [(PARAMS, False), (PARAMS.replace("AdminOnly: 0", "AdminOnly: 1"), True), ("EnableMSI: 1\n", None), ("", None)],
)
def test_the_driver_says_whether_counters_are_for_administrators(params: str, admin_only: bool | None) -> None:
    assert parse_admin_only(params) is admin_only


@pytest.mark.parametrize(
    ("status", "privileged"),
    [
        (FULL_CAPABILITIES, True),
        (NO_CAPABILITIES, False),
        ("CapEff:\t0000000000200000\n", True),
        ("CapEff:\t0000004000000000\n", True),
        ("CapEff:\t00000000a80425fb\n", False),
        ("", False),
    ],
)
def test_counters_open_to_system_administration_and_performance_monitoring(status: str, privileged: bool) -> None:
    assert parse_privileged(status) is privileged


@pytest.mark.parametrize(
    ("admin_only", "status", "restricted"),
    [
        ("0", NO_CAPABILITIES, False),
        ("1", NO_CAPABILITIES, True),
        ("1", FULL_CAPABILITIES, False),
    ],
)
def test_counters_are_restricted_for_the_unprivileged_where_the_driver_says_so(
    tmp_path: Path, admin_only: str, status: str, restricted: bool
) -> None:
    (tmp_path / "params").write_text(f"RmProfilingAdminOnly: {admin_only}\n")
    (tmp_path / "status").write_text(status)
    assert counters_restricted(tmp_path / "params", tmp_path / "status") is restricted


def test_without_a_driver_nothing_is_known_about_counters(tmp_path: Path) -> None:
    assert counters_restricted(tmp_path / "params", tmp_path / "status") is None


def test_without_a_process_status_counters_count_as_restricted(tmp_path: Path) -> None:
    (tmp_path / "params").write_text("RmProfilingAdminOnly: 1\n")
    assert counters_restricted(tmp_path / "params", tmp_path / "status") is True
