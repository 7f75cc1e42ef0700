"""The GPUs of this machine and their live state, as the driver tells through NVML, and who may read their counters.

Nothing here opens CUDA, so looking costs no context and no GPU memory.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from ...sandbox import nvml
from ...sandbox.conditions import IDLE, reasons
from ...sandbox.wire import Wire

_CAP_SYS_ADMIN = 21
_CAP_PERFMON = 38
_CONTAINER_FILES: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""What Docker and Podman leave in a container."""
_CONTAINER_VARIABLES: Final = ("container", "KUBERNETES_SERVICE_HOST")
"""What systemd-nspawn, Podman and LXC, and Kubernetes set in one."""


class DetectedGpu(Wire):
    """One GPU as the driver reports it; null where the device does not say."""

    index: int
    name: str
    uuid: str | None
    driver_version: str | None
    cuda_version: str | None
    """The newest CUDA that the driver can run, such as `13.0`."""
    compute_capability: str | None
    """Such as `9.0`."""
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    memory_bus_bits: int | None
    sm_clock_hz: int | None
    max_sm_clock_hz: int | None
    memory_clock_hz: int | None
    max_memory_clock_hz: int | None
    power_w: float | None
    power_limit_w: float | None
    """In force, whoever set it."""
    power_limit_default_w: float | None
    power_limit_max_w: float | None
    """The highest that can be set."""
    temperature_c: int | None
    utilization_pct: int | None
    """Share of the last sample period in which any kernel ran."""
    pcie_generation: int | None
    """Now; an idle link runs slower than it can."""
    max_pcie_generation: int | None
    pcie_lanes: int | None
    max_pcie_lanes: int | None
    active_nvlinks: int | None
    ecc_enabled: bool | None
    persistence_enabled: bool | None
    """Off, the driver forgets the device's state whenever nobody uses it, and the next one waits for it."""
    mig_enabled: bool | None
    """Null where the GPU can't be partitioned."""
    throttle_reasons: list[str] | None
    """What holds the SM clock below its highest: `idle`, `power cap`, `thermal slowdown`; empty: nothing does."""


class Detection(Wire):
    """The GPUs found, or why there are none and what to do about it."""

    gpus: list[DetectedGpu]
    reason: str | None = None
    remedy: str | None = None


async def detect(timeout_s: float = 10.0) -> Detection:
    """Asks the driver for the GPUs; a machine without any is an answer, not an error.

    All are told, also those that `CUDA_VISIBLE_DEVICES` hides.
    """
    try:
        with anyio.fail_after(timeout_s):
            gpus = await anyio.to_thread.run_sync(_ask, abandon_on_cancel=True)
    except nvml.NvmlUnavailable as error:
        return Detection(gpus=[], reason=error.reason, remedy=error.remedy)
    except TimeoutError:
        return Detection(
            gpus=[],
            reason=f"the driver did not answer within {timeout_s:g} s",
            remedy="Run nvidia-smi by hand; a driver that hangs needs a restart of the machine. Persistence mode "
            "(nvidia-smi -pm 1) makes the first answer faster.",
        )
    if not gpus:
        return Detection(
            gpus=[],
            reason="the driver shows no GPU",
            remedy="Make a GPU visible to this machine or container (docker run --gpus all).",
        )
    return Detection(gpus=gpus)


def _ask() -> list[DetectedGpu]:
    with nvml.library("the GPUs of this machine") as driver:
        driver_version, cuda = driver.nvmlSystemGetDriverVersion(), driver.nvmlSystemGetCudaDriverVersion_v2()
        found: list[DetectedGpu] = []
        for index in range(driver.nvmlDeviceGetCount()):
            # One that has fallen off the bus is no reason to hide the others.
            with contextlib.suppress(driver.NVMLError):
                found.append(_gpu(driver, index, driver_version, f"{cuda // 1000}.{cuda % 1000 // 10}"))
        return found


def _gpu(driver: Any, index: int, driver_version: str, cuda_version: str) -> DetectedGpu:
    handle: Any = driver.nvmlDeviceGetHandleByIndex(index)

    def told(name: str, *arguments: Any) -> Any:
        """What a function says of the GPU; None where the library, the driver or the device has no answer."""
        ask: Callable[..., Any] | None = getattr(driver, name, None)
        try:
            return None if ask is None else ask(handle, *arguments)
        except (driver.NVMLError, driver.NVMLLibraryMismatchError):
            return None

    memory, capability = told("nvmlDeviceGetMemoryInfo"), told("nvmlDeviceGetCudaComputeCapability")
    use, limits = told("nvmlDeviceGetUtilizationRates"), told("nvmlDeviceGetPowerManagementLimitConstraints")
    bits: int | None = told("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None:
        # Its name before driver 535.
        bits = told("nvmlDeviceGetCurrentClocksThrottleReasons")
    sm, memory_clock = driver.NVML_CLOCK_SM, driver.NVML_CLOCK_MEM
    links = [told("nvmlDeviceGetNvLinkState", link) for link in range(driver.NVML_NVLINK_MAX_LINKS)]
    known_links = [state for state in links if state is not None]
    return DetectedGpu(
        index=index,
        name=driver.nvmlDeviceGetName(handle),
        uuid=told("nvmlDeviceGetUUID"),
        driver_version=driver_version,
        cuda_version=cuda_version,
        compute_capability=None if capability is None else "{}.{}".format(*capability),
        memory_total_bytes=None if memory is None else memory.total,
        memory_used_bytes=None if memory is None else memory.used,
        memory_bus_bits=told("nvmlDeviceGetMemoryBusWidth"),
        sm_clock_hz=_hz(told("nvmlDeviceGetClockInfo", sm)),
        max_sm_clock_hz=_hz(told("nvmlDeviceGetMaxClockInfo", sm)),
        memory_clock_hz=_hz(told("nvmlDeviceGetClockInfo", memory_clock)),
        max_memory_clock_hz=_hz(told("nvmlDeviceGetMaxClockInfo", memory_clock)),
        power_w=_watts(told("nvmlDeviceGetPowerUsage")),
        power_limit_w=_watts(told("nvmlDeviceGetEnforcedPowerLimit")),
        power_limit_default_w=_watts(told("nvmlDeviceGetPowerManagementDefaultLimit")),
        power_limit_max_w=None if limits is None else _watts(limits[1]),
        temperature_c=told("nvmlDeviceGetTemperature", driver.NVML_TEMPERATURE_GPU),
        utilization_pct=None if use is None else use.gpu,
        pcie_generation=told("nvmlDeviceGetCurrPcieLinkGeneration"),
        max_pcie_generation=told("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_lanes=told("nvmlDeviceGetCurrPcieLinkWidth"),
        max_pcie_lanes=told("nvmlDeviceGetMaxPcieLinkWidth"),
        active_nvlinks=sum(map(bool, known_links)) if known_links else None,
        ecc_enabled=_now(told("nvmlDeviceGetEccMode")),
        persistence_enabled=_switch(told("nvmlDeviceGetPersistenceMode")),
        mig_enabled=_now(told("nvmlDeviceGetMigMode")),
        throttle_reasons=None if bits is None else ["idle"] * bool(bits & IDLE) + reasons(bits),
    )


def _hz(megahertz: int | None) -> int | None:
    return None if megahertz is None else megahertz * 1_000_000


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _switch(state: int | None) -> bool | None:
    return None if state is None else bool(state)


def _now(modes: list[int] | None) -> bool | None:
    """The first of a pair: the mode in force, before the one after the next restart."""
    return None if modes is None else bool(modes[0])


def in_container(environment: Mapping[str, str] | None = None, *, files: tuple[Path, ...] = _CONTAINER_FILES) -> bool:
    """Whether this is a container of the usual kinds: what the driver forbids is then mended outside of it."""
    variables = os.environ if environment is None else environment
    return any(path.exists() for path in files) or any(variables.get(name) for name in _CONTAINER_VARIABLES)


def parse_admin_only(params: str) -> bool | None:
    """Reads /proc/driver/nvidia/params: are GPU counters kept for administrators? None where it doesn't say."""
    match = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", params, re.MULTILINE)
    return match[1] != "0" if match else None


def parse_privileged(status: str) -> bool:
    """Reads /proc/self/status: does the process hold CAP_SYS_ADMIN or CAP_PERFMON?"""
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", status, re.MULTILINE)
    effective = int(match[1], 16) if match else 0
    return bool(effective & (1 << _CAP_SYS_ADMIN | 1 << _CAP_PERFMON))


def counters_restricted(
    params: Path = Path("/proc/driver/nvidia/params"), status: Path = Path("/proc/self/status")
) -> bool | None:
    """Whether the driver keeps hardware counters, and so profiling, from this process.

    Inside a user namespace the capabilities look full and do not count with the driver: False is then a hope,
    True is always right. None where there is no driver to ask.
    """
    try:
        admin_only = parse_admin_only(params.read_text(encoding="utf-8"))
    except OSError:
        return None
    if not admin_only:
        return admin_only
    try:
        return not parse_privileged(status.read_text(encoding="utf-8"))
    except OSError:
        return True
