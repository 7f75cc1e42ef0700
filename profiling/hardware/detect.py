"""The GPUs of this machine and their live state, as nvidia-smi and the driver's files tell it.

Nothing here opens CUDA, so looking costs no context and no GPU memory.
"""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import anyio

from ...sandbox.wire import Wire

_QUERY = (
    "index",
    "name",
    "uuid",
    "driver_version",
    "compute_cap",
    "memory.total",
    "memory.used",
    "clocks.current.sm",
    "clocks.max.sm",
    "clocks.current.memory",
    "clocks.max.memory",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "utilization.gpu",
    "mig.mode.current",
    "clocks_event_reasons.active",
)

# Bits of NVML's nvmlClocksEventReasons.
_REASONS = {
    0x001: "idle",
    0x002: "application_clocks",  # a lower clock was asked for
    0x004: "power_cap",  # the software power limit
    0x008: "hardware_slowdown",  # the clock is halved: heat, power brake or a fast power rise
    0x010: "sync_boost",  # bound to the clock of another GPU of a group
    0x020: "thermal",
    0x040: "hardware_thermal",
    0x080: "power_brake",  # an external signal, such as a failing power supply
    0x100: "display_clocks",
}

_CAP_SYS_ADMIN = 21
_CAP_PERFMON = 38


class DetectedGpu(Wire):
    """One GPU as nvidia-smi reports it; null where the device does not say."""

    index: int
    name: str
    uuid: str | None
    driver_version: str | None
    compute_capability: str | None
    """Such as `9.0`."""
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    sm_clock_hz: int | None
    max_sm_clock_hz: int | None
    memory_clock_hz: int | None
    max_memory_clock_hz: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: int | None
    utilization_pct: int | None
    """Share of the last sample period in which any kernel ran."""
    mig_mode: str | None
    """`Enabled`, `Disabled`, or null where the GPU can't be partitioned."""
    throttle_reasons: list[str]
    """Why the SM clock is below its highest: `idle`, `application_clocks`, `power_cap`, `hardware_slowdown`,
    `sync_boost`, `thermal`, `hardware_thermal`, `power_brake`, `display_clocks`."""


class Detection(Wire):
    """The GPUs found, or why there are none and what to do about it."""

    gpus: list[DetectedGpu]
    reason: str | None = None
    remedy: str | None = None


def command(program: str = "nvidia-smi") -> list[str]:
    """The one call whose output `parse` reads."""
    return [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]


def parse(text: str) -> list[DetectedGpu]:
    """Reads the output of `command`: a row for each GPU.

    Raises:
        ValueError: a row that does not have the queried columns.
    """
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [_gpu(row) for row in rows if row and row != ["No devices were found"]]


async def detect(program: str = "nvidia-smi", timeout_s: float = 10.0) -> Detection:
    """Asks nvidia-smi for the GPUs; a machine without any is an answer, not an error."""
    try:
        with anyio.fail_after(timeout_s):
            done = await anyio.run_process(command(program), check=False)
    except FileNotFoundError:
        return Detection(
            gpus=[],
            reason=f"{program} is not installed",
            remedy="Run on a machine with an NVIDIA driver; in a container, start it with the NVIDIA runtime "
            "(docker run --gpus all). Without a GPU, compiling and static diagnosis still work.",
        )
    except TimeoutError:  # is an OSError too
        return Detection(
            gpus=[],
            reason=f"{program} did not answer within {timeout_s:g} s",
            remedy="Run it by hand; a driver that hangs needs a restart of the machine. Persistence mode "
            "(nvidia-smi -pm 1) makes the first answer faster.",
        )
    except OSError as error:
        return Detection(gpus=[], reason=f"{program} can't be started: {error}", remedy=f"Make {program} executable.")
    return _detection(program, done)


def _detection(program: str, done: CompletedProcess[bytes]) -> Detection:
    text = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        message = " ".join((text + done.stderr.decode(errors="replace")).split())
        return Detection(
            gpus=[],
            reason=f"{program} failed with exit code {done.returncode}: {message[:300]}",
            remedy="Run nvidia-smi by hand. A driver/library version mismatch needs a reload of the driver; "
            "an unknown field needs driver 535 or newer.",
        )
    try:
        gpus = parse(text)
    except ValueError as error:
        return Detection(
            gpus=[],
            reason=f"{program} answered in an unexpected form: {error}",
            remedy=f"Check that {program} is NVIDIA's own.",
        )
    if not gpus:
        return Detection(
            gpus=[],
            reason=f"{program} found no GPU",
            remedy="Make a GPU visible to this machine or container (docker run --gpus all).",
        )
    return Detection(gpus=gpus)


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


def _gpu(row: list[str]) -> DetectedGpu:
    if len(row) != len(_QUERY):
        raise ValueError(f"{len(row)} columns instead of {len(_QUERY)}: {', '.join(row)[:200]}")
    cells = {name: _known(cell) for name, cell in zip(_QUERY, row, strict=True)}

    def number(name: str, convert: Callable[[str], float] = int, scale: int = 1) -> float | None:
        cell = cells[name]
        return None if cell is None else convert(cell) * scale

    mib, mhz = 1 << 20, 1_000_000
    return DetectedGpu.model_validate(
        {
            "index": cells["index"],
            "name": cells["name"],
            "uuid": cells["uuid"],
            "driver_version": cells["driver_version"],
            "compute_capability": cells["compute_cap"],
            "memory_total_bytes": number("memory.total", scale=mib),
            "memory_used_bytes": number("memory.used", scale=mib),
            "sm_clock_hz": number("clocks.current.sm", scale=mhz),
            "max_sm_clock_hz": number("clocks.max.sm", scale=mhz),
            "memory_clock_hz": number("clocks.current.memory", scale=mhz),
            "max_memory_clock_hz": number("clocks.max.memory", scale=mhz),
            "power_w": number("power.draw", float),
            "power_limit_w": number("power.limit", float),
            "temperature_c": number("temperature.gpu"),
            "utilization_pct": number("utilization.gpu"),
            "mig_mode": cells["mig.mode.current"],
            "throttle_reasons": _reasons(cells["clocks_event_reasons.active"]),
        }
    )


def _known(cell: str) -> str | None:
    """The cell, or None for the ways in which nvidia-smi says that it has no value."""
    text = cell.strip()
    return None if not text or text == "N/A" or text.startswith("[") else text


def _reasons(mask: str | None) -> list[str]:
    bits = int(mask, 16) if mask else 0
    unknown = bits & ~sum(_REASONS)
    return [word for bit, word in _REASONS.items() if bits & bit] + ([f"unknown_{unknown:#x}"] if unknown else [])
