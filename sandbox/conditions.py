"""What a GPU runs at right now: clocks, heat, power, and what holds its clocks down, through NVML.

Asked between timed calls, never during them: an answer takes about 0.25 ms (H200).
"""

from collections.abc import Callable
from typing import Any, Final

from . import nvml
from .wire import Wire

IDLE: Final = 0x001
REASONS: Final = {
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x100: "display clocks",
}
"""Bits of NVML's nvmlClocksEventReasons (nvml.h). An idle device's is left out: between calls every device has it."""


class Conditions(Wire):
    """The state of a GPU at one moment; null where the driver does not tell."""

    sm_clock_hz: int | None
    memory_clock_hz: int | None
    temperature_c: int | None
    power_w: float | None
    """Mean of about the last second on Hopper, so it lags behind what runs."""
    power_limit_w: float | None
    """In force, whoever set it."""
    throttle_reasons: list[str] | None
    """What holds the SM clock down, in words: `power cap`, `thermal slowdown`; empty: nothing does."""


def conditions(uuid: str) -> Conditions:
    """Ask for the state of a GPU.

    Raises:
        NvmlUnavailable: there is no driver or no such GPU. What alone is not told is null instead.
    """
    with nvml.library(f"GPU {uuid}") as driver:
        handle: Any = driver.nvmlDeviceGetHandleByUUID(uuid)

        def told(name: str, *arguments: Any) -> Any:
            """What a function says of the GPU; None where the driver, the device or the library has no answer."""
            ask: Callable[..., Any] | None = getattr(driver, name, None)
            if ask is None:
                return None
            try:
                return ask(handle, *arguments)
            except driver.NVMLError:
                return None

        bits: int | None = told("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            # Its name before driver 535.
            bits = told("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Conditions(
            sm_clock_hz=_scaled(told("nvmlDeviceGetClockInfo", driver.NVML_CLOCK_SM), 1_000_000),
            memory_clock_hz=_scaled(told("nvmlDeviceGetClockInfo", driver.NVML_CLOCK_MEM), 1_000_000),
            temperature_c=told("nvmlDeviceGetTemperature", driver.NVML_TEMPERATURE_GPU),
            power_w=_watts(told("nvmlDeviceGetPowerUsage")),
            power_limit_w=_watts(told("nvmlDeviceGetEnforcedPowerLimit")),
            throttle_reasons=None if bits is None else reasons(bits),
        )


def reasons(bits: int) -> list[str]:
    """The words for a mask of NVML's; a bit that is new to us is named by its number."""
    unknown = bits & ~(IDLE | sum(REASONS))
    return [word for bit, word in REASONS.items() if bits & bit] + ([f"unknown reason {unknown:#x}"] if unknown else [])


def _scaled(value: int | None, unit: int) -> int | None:
    return None if value is None else value * unit


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
