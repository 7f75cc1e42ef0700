"""What a GPU runs at, by a stand-in for the driver's library; and the real one where there is a GPU."""

import sys
from types import ModuleType
from typing import Any

import pytest

from tritonforge.sandbox import nvml
from tritonforge.sandbox.conditions import REASONS, Conditions, conditions, reasons
from tritonforge.sandbox.nvml import NvmlUnavailable

UUID = "GPU-8932f937-d72c"


class NVMLError(Exception):
    """Stands for pynvml's, which has a subclass for each code of the driver."""


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLLibraryMismatchError(Exception):
    """As in pynvml, not an NVMLError."""


class FakeNvml(ModuleType):
    """The part of pynvml that tells of conditions, for an H200 at work."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.answers: dict[str, Any] = {
            "nvmlDeviceGetClockInfo": {1: 1455, 2: 3201},
            "nvmlDeviceGetTemperature": {0: 55},
            "nvmlDeviceGetPowerUsage": 692_030,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
        }
        """By function: what it tells, or by its argument; or what it raises."""

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid != UUID:
            raise NVMLError_NotFound("Not Found")
        return 7

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("answers", {}):
            raise AttributeError(name)

        def ask(handle: int, *arguments: int) -> Any:
            assert handle == 7
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer[arguments[0]] if arguments else answer

        return ask


FUNCTIONS = {
    "nvmlDeviceGetClockInfo": ("sm_clock_hz", "memory_clock_hz"),
    "nvmlDeviceGetTemperature": ("temperature_c",),
    "nvmlDeviceGetPowerUsage": ("power_w",),
    "nvmlDeviceGetEnforcedPowerLimit": ("power_limit_w",),
    "nvmlDeviceGetCurrentClocksEventReasons": ("throttle_reasons",),
}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(nvml, "_started", False)
    return fake


@pytest.mark.usefixtures("driver")
def test_conditions_come_in_plain_units_and_words() -> None:
    assert conditions(UUID) == Conditions(
        sm_clock_hz=1_455_000_000,
        memory_clock_hz=3_201_000_000,
        temperature_c=55,
        power_w=692.03,
        power_limit_w=700.0,
        throttle_reasons=["power cap"],
    )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_device_does_not_tell_is_null_and_the_rest_is_told(function: str, driver: FakeNvml) -> None:
    driver.answers[function] = NVMLError_NotSupported("Not Supported")
    found = conditions(UUID).model_dump()
    assert {name for name, value in found.items() if value is None} == set(FUNCTIONS[function])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_the_library_does_not_have_is_null_and_the_rest_is_told(function: str, driver: FakeNvml) -> None:
    del driver.answers[function]
    found = conditions(UUID).model_dump()
    assert {name for name, value in found.items() if value is None} == set(FUNCTIONS[function])


@pytest.mark.parametrize("missing", [True, False])
def test_an_older_driver_tells_its_reasons_under_their_former_name(missing: bool, driver: FakeNvml) -> None:
    if missing:
        del driver.answers["nvmlDeviceGetCurrentClocksEventReasons"]
    else:
        driver.answers["nvmlDeviceGetCurrentClocksEventReasons"] = NVMLError_NotFound("Function Not Found")
    driver.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x20
    assert conditions(UUID).throttle_reasons == ["thermal slowdown"]


def test_a_cold_device_is_at_zero_degrees_and_not_unknown(driver: FakeNvml) -> None:
    driver.answers["nvmlDeviceGetTemperature"] = {0: 0}
    driver.answers["nvmlDeviceGetCurrentClocksEventReasons"] = 0
    found = conditions(UUID)
    assert found.temperature_c == 0
    assert found.throttle_reasons == []


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, []),
        (0x1, []),
        (0x5, ["power cap"]),
        (0x68, ["hardware slowdown", "thermal slowdown", "hardware thermal slowdown"]),
        (0x1FF, list(REASONS.values())),
        (0x404, ["power cap", "unknown reason 0x400"]),
    ],
)
def test_all_reasons_but_idleness_are_named_and_a_new_one_is_kept(bits: int, words: list[str]) -> None:
    assert reasons(bits) == words


@pytest.mark.usefixtures("driver")
def test_a_missing_device_is_named_with_a_remedy() -> None:
    with pytest.raises(NvmlUnavailable, match=r"GPU GPU-none: Not Found\. .*nvidia-smi -L"):
        conditions("GPU-none")


def test_a_driver_older_than_the_library_is_told_so(driver: FakeNvml) -> None:
    driver.answers["nvmlDeviceGetPowerUsage"] = NVMLLibraryMismatchError("Unversioned function called")
    with pytest.raises(NvmlUnavailable, match="too old"):
        conditions(UUID)


def test_the_real_library_has_what_is_asked_of_it() -> None:
    real = pytest.importorskip("pynvml")
    assert [name for name in FUNCTIONS if not hasattr(real, name)] == []
    for name in ("NVML_CLOCK_SM", "NVML_CLOCK_MEM", "NVML_TEMPERATURE_GPU"):
        assert getattr(real, name) == getattr(FakeNvml, name)


def test_the_real_library_numbers_the_reasons_so() -> None:
    real = pytest.importorskip("pynvml")
    names = {
        "ApplicationsClocksSetting": "application clocks",
        "SwPowerCap": "power cap",
        "HwSlowdown": "hardware slowdown",
        "SyncBoost": "sync boost",
        "SwThermalSlowdown": "thermal slowdown",
        "HwThermalSlowdown": "hardware thermal slowdown",
        "HwPowerBrakeSlowdown": "power brake",
        "DisplayClockSetting": "display clocks",
    }
    assert {getattr(real, f"nvmlClocksEventReason{name}"): word for name, word in names.items()} == REASONS
    assert real.nvmlClocksEventReasonAll == sum(REASONS) | real.nvmlClocksEventReasonGpuIdle


@pytest.mark.gpu
def test_a_real_device_tells_its_conditions() -> None:
    for device in nvml.devices():
        found = conditions(device.uuid)
        assert found.sm_clock_hz is not None
        assert 1e8 < found.sm_clock_hz < 4e9
        assert found.temperature_c is not None
        assert 0 < found.temperature_c < 120
        assert found.throttle_reasons is not None
