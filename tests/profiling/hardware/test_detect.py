"""What the driver and its files say, from a stand-in for its library; and the real one where there is a GPU."""

import sys
import threading
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import pytest

from tritonforge.profiling.hardware.detect import (
    DetectedGpu,
    Detection,
    counters_restricted,
    detect,
    in_container,
    parse_admin_only,
    parse_privileged,
)
from tritonforge.sandbox import nvml

PARAMS = (Path(__file__).parents[2] / "recordings" / "hardware" / "driver_params.txt").read_text()
FULL_CAPABILITIES = "Name:\tpython\nCapPrm:\t0000000000000000\nCapEff:\t000001fffeffffff\n"
NO_CAPABILITIES = "CapPrm:\t000001fffeffffff\nCapEff:\t0000000000000000\n"
LINKS = 18


class NVMLError(Exception):
    """Stands for pynvml's, which has a subclass for each code of the driver."""


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLLibraryMismatchError(Exception):
    """As in pynvml, not an NVMLError."""


class FakeNvml(ModuleType):
    """The part of pynvml that we use, for idle H200s; what is in `answers` replaces an answer, or is raised."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_TEMPERATURE_GPU = 0
    NVML_NVLINK_MAX_LINKS = 36

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.count = 1
        self.start_failure: Exception | None = None
        self.answers: dict[str, Any] = {}
        self.asked: set[str] = set()

    def nvmlInit(self) -> None:
        if self.start_failure is not None:
            raise self.start_failure

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13_010

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetClockInfo(self, _: int, clock: int) -> int:
        return {1: 345, 2: 3201}[clock]

    def nvmlDeviceGetMaxClockInfo(self, _: int, clock: int) -> int:
        return {1: 1980, 2: 3201}[clock]

    def nvmlDeviceGetNvLinkState(self, _: int, link: int) -> int:
        if link >= LINKS:
            raise NVMLError("Invalid Argument")
        return int(link != 3)

    def __getattr__(self, name: str) -> Any:
        if name not in ANSWERS:
            raise AttributeError(name)

        def answer(*_: Any) -> Any:
            self.asked.add(name)
            found = self.answers.get(name, ANSWERS[name])
            if isinstance(found, Exception):
                raise found
            return found

        return answer


ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetUUID": "GPU-00000000-0000-0000-0000-000000000000",
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=143_771 << 20, used=0),
    "nvmlDeviceGetMemoryBusWidth": 6144,
    "nvmlDeviceGetPowerUsage": 94_800,
    "nvmlDeviceGetEnforcedPowerLimit": 650_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 701_000],
    "nvmlDeviceGetTemperature": 35,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=7, memory=0),
    "nvmlDeviceGetCurrPcieLinkGeneration": 1,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 8,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetEccMode": [1, 0],
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetMigMode": [0, 1],
    "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
}
EVENTS = "nvmlDeviceGetCurrentClocksEventReasons"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(nvml, "_started", False)
    return fake


def detected(timeout_s: float = 10.0) -> Detection:
    return anyio.run(partial(detect, timeout_s))


def test_a_gpu_is_read_in_plain_units(driver: FakeNvml) -> None:
    found = detected()
    assert (found.reason, found.remedy) == (None, None)
    (gpu,) = found.gpus
    assert gpu.model_dump() == {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "driver_version": "580.159.04",
        "cuda_version": "13.1",
        "compute_capability": "9.0",
        "memory_total_bytes": 143_771 << 20,
        "memory_used_bytes": 0,
        "memory_bus_bits": 6144,
        "sm_clock_hz": 345_000_000,
        "max_sm_clock_hz": 1_980_000_000,
        "memory_clock_hz": 3_201_000_000,
        "max_memory_clock_hz": 3_201_000_000,
        "power_w": 94.8,
        "power_limit_w": 650.0,
        "power_limit_default_w": 700.0,
        "power_limit_max_w": 701.0,
        "temperature_c": 35,
        "utilization_pct": 7,
        "pcie_generation": 1,
        "max_pcie_generation": 5,
        "pcie_lanes": 8,
        "max_pcie_lanes": 16,
        "active_nvlinks": LINKS - 1,
        "ecc_enabled": True,
        "persistence_enabled": True,
        "mig_enabled": False,
        "throttle_reasons": ["idle"],
    }


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, []),
        (0x4, ["power cap"]),
        (0x468, ["hardware slowdown", "thermal slowdown", "hardware thermal slowdown", "unknown reason 0x400"]),
    ],
)
def test_what_holds_the_clock_down_is_said_in_words(driver: FakeNvml, bits: int, words: list[str]) -> None:
    driver.answers[EVENTS] = bits
    assert detected().gpus[0].throttle_reasons == words


def test_an_older_driver_is_asked_by_the_older_name(driver: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.answers[EVENTS] = NVMLError("Function Not Found")
    monkeypatch.setitem(ANSWERS, "nvmlDeviceGetCurrentClocksThrottleReasons", 0x4)
    assert detected().gpus[0].throttle_reasons == ["power cap"]


@pytest.mark.parametrize("error", [NVMLError_NotSupported("Not Supported"), NVMLLibraryMismatchError("too old")])
def test_what_a_device_does_not_tell_is_null_and_never_zero(
    driver: FakeNvml, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    driver.answers = dict.fromkeys(ANSWERS.keys() - {"nvmlDeviceGetName"}, error)
    for name in ("nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetNvLinkState"):
        monkeypatch.setattr(driver, name, driver.nvmlDeviceGetUUID)
    (gpu,) = detected().gpus
    told = {"index", "name", "driver_version", "cuda_version"}
    assert gpu.model_dump(exclude=told) == dict.fromkeys(DetectedGpu.model_fields.keys() - told)


def test_a_function_that_an_older_library_lacks_is_null(driver: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ANSWERS, "nvmlDeviceGetMemoryBusWidth")
    (gpu,) = detected().gpus
    assert gpu.memory_bus_bits is None
    assert gpu.pcie_lanes == 8


def test_every_gpu_is_told_whatever_cuda_may_use(driver: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    driver.count = 2
    assert [gpu.index for gpu in detected().gpus] == [0, 1]


def test_a_machine_without_a_driver_is_an_answer_with_a_remedy(driver: FakeNvml) -> None:
    driver.start_failure = NVMLError_LibraryNotFound("NVML Shared Library Not Found")
    found = detected()
    assert found.gpus == []
    assert "NVML Shared Library Not Found" in str(found.reason)
    assert "Install the NVIDIA driver" in str(found.remedy)
    assert "--gpus all" in str(found.remedy)


def test_a_driver_that_shows_no_gpu_is_told_with_a_remedy(driver: FakeNvml) -> None:
    driver.count = 0
    found = detected()
    assert found.gpus == []
    assert found.reason == "the driver shows no GPU"
    assert found.remedy


def test_a_hanging_driver_is_given_up(driver: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(driver, "nvmlDeviceGetCount", lambda: release.wait(60))
    try:
        found = detected(timeout_s=0.1)
    finally:
        release.set()
    assert "within 0.1 s" in str(found.reason)
    assert "nvidia-smi" in str(found.remedy)


@pytest.mark.gpu
def test_a_real_gpu_tells_its_clocks_memory_and_link() -> None:
    (gpu, *_) = detected().gpus
    assert gpu.sm_clock_hz
    assert gpu.max_sm_clock_hz
    assert gpu.sm_clock_hz <= gpu.max_sm_clock_hz
    for field in ("memory_bus_bits", "power_limit_w", "max_pcie_generation", "ecc_enabled", "throttle_reasons"):
        assert getattr(gpu, field) is not None, field


@pytest.mark.parametrize(
    ("environment", "file", "inside"),
    [
        ({}, False, False),
        ({"PATH": "/bin", "container": ""}, False, False),
        ({}, True, True),
        ({"container": "podman"}, False, True),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False, True),
    ],
)
def test_containers_are_known_by_what_their_makers_leave_in_them(
    tmp_path: Path, environment: dict[str, str], file: bool, inside: bool
) -> None:
    if file:
        (tmp_path / ".dockerenv").touch()
    assert in_container(environment, files=(tmp_path / ".dockerenv",)) is inside


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
