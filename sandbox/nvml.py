"""What the NVIDIA driver says of its GPUs and of the processes on them, through NVML.

Quick and without a CUDA context: looking takes no GPU memory and no GPU time.
"""

import contextlib
import importlib
import os
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from .errors import SandboxError
from .wire import Wire

_REMEDIES = {
    "LibraryNotFound": "Install the NVIDIA driver; start a container with the NVIDIA runtime (docker run --gpus all) "
    "and with `utility` among its NVIDIA_DRIVER_CAPABILITIES.",
    "DriverNotLoaded": "Load the NVIDIA kernel driver (modprobe nvidia), or start the container with --gpus all.",
    "LibRmVersionMismatch": "The driver was updated under a running kernel module: reload it or restart the machine.",
    "NotFound": "Take a uuid from `nvidia-smi -L`; in a container, pass the GPU into it.",
    "InvalidArgument": "Take a uuid from `nvidia-smi -L`, whole and as it stands there.",
    "GpuIsLost": "Reset the GPU (nvidia-smi --gpu-reset) or restart the machine.",
    "NoPermission": "Give this user read and write access to /dev/nvidia*.",
    "NotSupported": "This GPU or this mode of it does not tell; use one of the Hopper class without MIG.",
}
"""By the name of pynvml's error class."""

_starting = threading.Lock()
_started = False
"""Whether NVML runs in this process: it counts its starts, and one is enough until the process ends."""


class NvmlUnavailable(SandboxError):
    """The driver can't be asked: its Python library, the driver itself or the GPU is missing."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}. {remedy}")
        self.reason = reason
        self.remedy = remedy


class GpuDevice(Wire):
    """One GPU that this process may use."""

    index: int
    """The driver's number of it, as nvidia-smi shows; `CUDA_VISIBLE_DEVICES` does not change it."""
    uuid: str
    name: str
    memory_total_bytes: int


class GpuProcess(Wire):
    """A process with a compute context on a GPU."""

    pid: int
    """As the driver counts: in a container it may be one of the host's, which is another process or none here."""
    name: str | None
    """Its command's name, where /proc shows such a process here."""
    memory_bytes: int | None
    """GPU memory in use; null where the driver does not tell."""


def devices() -> list[GpuDevice]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves this process, in its order.

    Numbers there are taken in the driver's order, that of the PCI bus. CUDA does so too where all GPUs are alike or
    `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set; elsewhere only uuids are unambiguous.

    Raises:
        NvmlUnavailable: there is no driver to ask, or it does not answer.
    """
    with library("the GPUs of this machine") as nvml:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        found = [
            GpuDevice(
                index=index,
                uuid=nvml.nvmlDeviceGetUUID(handle),
                name=nvml.nvmlDeviceGetName(handle),
                memory_total_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).total,
            )
            for index, handle in enumerate(handles)
        ]
    return visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(found: Sequence[GpuDevice], setting: str | None) -> list[GpuDevice]:
    """What a value of `CUDA_VISIBLE_DEVICES` leaves of all devices: numbers or prefixes of uuids; none for `""`.

    As CUDA reads it, the first entry that names no device ends the list, and a device named twice empties it.
    MIG slices are passed over: they are not measured.
    """
    if setting is None:
        return list(found)
    chosen: list[GpuDevice] = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry.startswith("MIG-"):
            continue
        named = [device for device in found if _names(entry, device)]
        if len(named) != 1:
            break
        if named[0] in chosen:
            return []
        chosen += named
    return chosen


def processes(uuid: str) -> list[GpuProcess]:
    """The compute processes on a GPU, of all users, as far as the driver shows those of other pid namespaces.

    Raises:
        NvmlUnavailable: there is no driver or no such GPU, or it does not tell.
    """
    with library(f"GPU {uuid}") as nvml:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByUUID(uuid))
    return [GpuProcess(pid=it.pid, name=_command_name(it.pid), memory_bytes=it.usedGpuMemory) for it in running]


def memory_used_bytes(uuid: str) -> int:
    """GPU memory in use by all processes and the driver.

    Raises:
        NvmlUnavailable: there is no driver or no such GPU, or it does not tell.
    """
    with library(f"GPU {uuid}") as nvml:
        return nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid)).used


@contextlib.contextmanager
def library(asked: str) -> Generator[Any]:
    """pynvml with NVML started, for what belongs to no function here.

    Args:
        asked: what the driver is to tell about, such as "GPU " and its uuid.

    Raises:
        NvmlUnavailable: there is no driver to ask; or what pynvml raised inside, with what was asked for.
    """
    global _started
    try:
        # Only here: the server's start must not wait for it, and it has no types that a checker could use.
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable(
            f"the Python package nvidia-ml-py can't be imported: {error}",
            "Install it into the server's environment (pip install nvidia-ml-py).",
        ) from error
    try:
        with _starting:
            if not _started:
                pynvml.nvmlInit()
                _started = True
        yield pynvml
    except pynvml.NVMLError as error:
        name = type(error).__name__.removeprefix("NVMLError_")
        remedy = _REMEDIES.get(name, "Run nvidia-smi by hand: it asks the same library.")
        raise NvmlUnavailable(f"the driver can't tell about {asked}: {error}", remedy) from error
    except pynvml.NVMLLibraryMismatchError as error:
        raise NvmlUnavailable(f"the driver is too old to tell about {asked}", "Install driver 535 or newer.") from error


def _names(entry: str, device: GpuDevice) -> bool:
    if entry.startswith("GPU-"):
        return device.uuid.startswith(entry)
    return entry.isdecimal() and int(entry) == device.index


def _command_name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
