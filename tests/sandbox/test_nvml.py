"""What the driver says of its GPUs, by a stand-in for its library; and the real library where there is a GPU."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.conftest import has_device
from tritonforge.sandbox import nvml
from tritonforge.sandbox.errors import SandboxError
from tritonforge.sandbox.nvml import GpuDevice, GpuProcess, NvmlUnavailable

FIRST, SECOND, THIRD = "GPU-8932f937-d72c", "GPU-8932aaaa-0000", "GPU-11111111-2222"
NO_PROCESS = 1 << 23
"""Beyond the highest pid that Linux can be set to give."""


class NVMLError(Exception):
    """Stands for pynvml's, which has a subclass for each code of the driver."""


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_Unknown(NVMLError):
    pass


class NVMLLibraryMismatchError(Exception):
    """As in pynvml, not an NVMLError."""


class FakeNvml(ModuleType):
    """The part of pynvml that we use, for a machine of three GPUs."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.uuids = [FIRST, SECOND, THIRD]
        self.running: list[SimpleNamespace] = []
        self.failure: Exception | None = None
        """What every call but the start raises."""
        self.start_failure: Exception | None = None
        self.starts = 0

    def nvmlInit(self) -> None:
        if self.start_failure is not None:
            raise self.start_failure
        self.starts += 1

    def nvmlDeviceGetCount(self) -> int:
        if self.failure is not None:
            raise self.failure
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if self.failure is not None:
            raise self.failure
        if uuid not in self.uuids:
            raise NVMLError_NotFound("Not Found")
        return self.uuids.index(uuid)

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return self.uuids[handle]

    def nvmlDeviceGetName(self, handle: int) -> str:
        return f"NVIDIA H100 number {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=(handle + 1) << 30, used=(handle + 1) << 20)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return self.running if handle == 0 else []


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(nvml, "_started", False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def ask_devices() -> object:
    return nvml.devices()


def ask_processes() -> object:
    return nvml.processes(FIRST)


def ask_memory() -> object:
    return nvml.memory_used_bytes(FIRST)


each_question = pytest.mark.parametrize("ask", [ask_devices, ask_processes, ask_memory])


def visible_uuids(monkeypatch: pytest.MonkeyPatch, setting: str) -> list[str]:
    """What stays with this value of CUDA_VISIBLE_DEVICES."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    return [device.uuid for device in nvml.devices()]


@pytest.mark.usefixtures("driver")
def test_all_devices_are_listed_where_nothing_hides_them() -> None:
    first, *others = nvml.devices()
    assert first == GpuDevice(index=0, uuid=FIRST, name="NVIDIA H100 number 0", memory_total_bytes=1 << 30)
    assert [device.uuid for device in others] == [SECOND, THIRD]


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", []),
        ("1", [SECOND]),
        ("2,0", [THIRD, FIRST]),
        (" 2 , 0 ", [THIRD, FIRST]),
        (f"{SECOND},0", [SECOND, FIRST]),
        ("GPU-1", [THIRD]),
        ("GPU-8932a,GPU-8932f", [SECOND, FIRST]),
        ("MIG-8932f937-d72c", []),
        ("MIG-GPU-8932f937/1/0,2", [THIRD]),
    ],
)
def test_visible_devices_are_taken_by_number_or_prefix_in_their_order(
    setting: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert visible_uuids(monkeypatch, setting) == expected


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("wrong", ["-1", "3", "GPU-8932", "GPU-f", "NoDevFiles", ""])
def test_an_entry_that_names_no_single_device_hides_it_and_all_after_it(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert visible_uuids(monkeypatch, f"1,{wrong},0") == [SECOND]


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("setting", ["0,0", f"1,0,{SECOND}"])
def test_a_device_named_twice_hides_all(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert visible_uuids(monkeypatch, setting) == []


@pytest.mark.usefixtures("driver")
def test_a_device_keeps_the_drivers_number_whatever_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert [device.index for device in nvml.devices()] == [2]


def test_a_driver_without_a_gpu_is_no_error(driver: FakeNvml) -> None:
    driver.uuids = []
    assert nvml.devices() == []


def test_a_process_carries_its_commands_name_and_its_memory(driver: FakeNvml) -> None:
    driver.running = [SimpleNamespace(pid=os.getpid(), usedGpuMemory=5 << 20)]
    name = Path("/proc/self/comm").read_text().strip()
    assert nvml.processes(FIRST) == [GpuProcess(pid=os.getpid(), name=name, memory_bytes=5 << 20)]
    assert nvml.processes(SECOND) == []


def test_a_process_that_the_driver_and_proc_do_not_tell_of_is_listed_all_the_same(driver: FakeNvml) -> None:
    driver.running = [SimpleNamespace(pid=NO_PROCESS, usedGpuMemory=None)]
    assert nvml.processes(FIRST) == [GpuProcess(pid=NO_PROCESS, name=None, memory_bytes=None)]


@pytest.mark.usefixtures("driver")
def test_memory_in_use_is_that_of_the_device_asked_for() -> None:
    assert nvml.memory_used_bytes(THIRD) == 3 << 20


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("ask", [nvml.processes, nvml.memory_used_bytes])
def test_a_missing_device_is_named_with_a_remedy(ask: Callable[[str], object]) -> None:
    with pytest.raises(NvmlUnavailable, match=r"GPU-none: Not Found\. .*nvidia-smi -L") as caught:
        ask("GPU-none")
    assert isinstance(caught.value, SandboxError)


@each_question
def test_a_missing_python_library_is_named_with_its_package(
    ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlUnavailable, match=r"pip install nvidia-ml-py") as caught:
        ask()
    assert isinstance(caught.value.__cause__, ImportError)


@each_question
def test_a_missing_driver_is_named_with_a_remedy(ask: Callable[[], object], driver: FakeNvml) -> None:
    driver.start_failure = NVMLError_LibraryNotFound("NVML Shared Library Not Found")
    with pytest.raises(NvmlUnavailable, match=r"Shared Library Not Found\. Install the NVIDIA driver") as caught:
        ask()
    assert caught.value.__cause__ is driver.start_failure
    assert str(caught.value) == f"{caught.value.reason}. {caught.value.remedy}"


@each_question
def test_an_error_without_a_remedy_of_its_own_sends_to_nvidia_smi(ask: Callable[[], object], driver: FakeNvml) -> None:
    driver.failure = NVMLError_Unknown("Unknown Error")
    with pytest.raises(NvmlUnavailable, match=r"Unknown Error\. Run nvidia-smi by hand"):
        ask()


@each_question
def test_a_driver_older_than_the_library_is_told_so(ask: Callable[[], object], driver: FakeNvml) -> None:
    driver.failure = NVMLLibraryMismatchError("Unversioned function called")
    with pytest.raises(NvmlUnavailable, match=r"too old .* Install driver"):
        ask()


def test_what_is_asked_elsewhere_fails_with_what_was_asked_for(driver: FakeNvml) -> None:
    driver.failure = NVMLError_Unknown("Unknown Error")
    with pytest.raises(NvmlUnavailable, match="tell about its fan: Unknown Error"), nvml.library("its fan") as library:
        library.nvmlDeviceGetCount()


def test_what_is_no_failure_of_the_driver_passes_through(driver: FakeNvml) -> None:
    with pytest.raises(ZeroDivisionError), nvml.library("its fan"):
        raise ZeroDivisionError
    assert driver.starts == 1


def test_nvml_starts_once_for_all_questions(driver: FakeNvml) -> None:
    ask_devices()
    ask_processes()
    ask_memory()
    assert driver.starts == 1


class WatchedLock:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self, waited_for: threading.Event) -> None:
        self._lock = threading.Lock()
        self._waited_for = waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


def test_nvml_starts_once_for_threads_that_ask_together(driver: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    second_is_there = threading.Event()
    second = threading.Thread(target=nvml.devices)
    monkeypatch.setattr(nvml, "_starting", WatchedLock(second_is_there))

    def start() -> None:
        driver.starts += 1
        if threading.current_thread() is second:
            second_is_there.set()
        else:
            second.start()
            assert second_is_there.wait(20)

    monkeypatch.setattr(driver, "nvmlInit", start)
    nvml.devices()
    second.join()
    assert driver.starts == 1


def test_a_start_that_failed_is_tried_again(driver: FakeNvml) -> None:
    driver.start_failure = NVMLError_LibraryNotFound("NVML Shared Library Not Found")
    with pytest.raises(NvmlUnavailable):
        nvml.devices()
    driver.start_failure = None
    nvml.devices()
    assert driver.starts == 1


def test_the_library_is_not_imported_before_it_is_asked() -> None:
    look = "import sys, tritonforge.sandbox.lease; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


def test_the_real_library_has_what_its_stand_in_has() -> None:
    real = pytest.importorskip("pynvml")
    used = [name for name in vars(FakeNvml) if name.casefold().startswith("nvml")]
    errors = [NVMLError_LibraryNotFound, NVMLError_NotFound, NVMLError_Unknown]
    assert [name for name in used if not hasattr(real, name)] == []
    assert all(issubclass(getattr(real, error.__name__), real.NVMLError) for error in errors)


def test_the_real_library_says_where_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml")
    if has_device():
        pytest.skip("this machine has an NVIDIA driver")
    monkeypatch.setattr(nvml, "_started", False)
    with pytest.raises(NvmlUnavailable, match="docker run --gpus all"):
        nvml.devices()


@pytest.mark.gpu
def test_a_real_driver_tells_its_devices_their_memory_and_processes() -> None:
    for device in nvml.devices():
        assert 0 < nvml.memory_used_bytes(device.uuid) <= device.memory_total_bytes
        assert all(process.pid > 0 for process in nvml.processes(device.uuid))
