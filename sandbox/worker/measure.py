# pyright: basic
# torch ships incomplete types.
"""Times an entry on the GPU. Samples leave the worker; statistics happen above."""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]
from torch.profiler import ProfilerActivity, profile, record_function

from . import values
from .ranges import BIG_OP, big_op
from .task import call

COPIES_LIMIT_BYTES = 8 << 30
"""Input copies that the rotation may hold together."""


class Measurement:
    """One entry with one case's inputs, ready to be timed in blocks."""

    def __init__(self, entry: Callable[..., Any], inputs: Any, in_place: list[str], flush_bytes: int) -> None:
        self._entry = entry
        self._flush = L2Flush(flush_bytes)
        self._pristine = inputs
        self._restore = bool(in_place)
        size = max(values.size_bytes(inputs), 1)
        # Where a buffer lies changes the time of short kernels: blocks rotate over copies at different addresses.
        count = max(1, min(4, COPIES_LIMIT_BYTES // size))
        self._padding: list[torch.Tensor] = []
        self._copies: list[Any] = []
        for _ in range(count):
            self._padding.append(torch.empty(random.randrange(1, 64) << 20, dtype=torch.int8, device="cuda"))
            self._copies.append(values.copy(inputs))
        self._clock = SmClock()

    def warm_up(self, seconds: float, calls_limit: int) -> dict[str, Any]:
        """Compile and autotune (first call), then call until ``seconds`` or ``calls_limit``; returns the call time."""
        started = time.perf_counter()
        call(self._entry, self._fresh(0))
        torch.cuda.synchronize()
        first_call_s = time.perf_counter() - started
        calls = 0
        started = time.perf_counter()
        while calls < calls_limit and (calls < 3 or time.perf_counter() - started < seconds):
            self._flush()
            call(self._entry, self._fresh(calls))
            torch.cuda.synchronize()
            calls += 1
        spent = time.perf_counter() - started
        # The profiler's start-up takes seconds once a process: here, not in the first block.
        self.block(2, 0)
        return {"first_call_s": first_call_s, "call_us": spent / calls * 1e6}

    def block(self, calls: int, number: int) -> dict[str, Any]:
        """Time ``calls`` calls, L2 flushed before each.

        Each sample holds ``kernel_us`` (sum over the device activities that the call launched), ``device_us`` (first
        start to last end of these) and how many there were, from CUPTI's activity records.
        """
        inputs = self._copies[number % len(self._copies)]
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(calls):
                if self._restore:
                    inputs = self._fresh(number)
                self._flush()
                with record_function(BIG_OP):
                    call(self._entry, inputs)
            torch.cuda.synchronize()
        clock_hz = self._clock.read_hz()
        samples, names = _samples(profiler.profiler.kineto_results.events())  # pyright: ignore
        return {"samples": samples, "kernels": names, "sm_clock_hz": clock_hz, "expected_samples": calls}

    def call_times(self, calls: int) -> list[float]:
        """Host call to completion, in microseconds: launch overhead included, L2 flushed before each call."""
        times: list[float] = []
        for number in range(calls):
            inputs = self._fresh(number)
            self._flush()
            torch.cuda.synchronize()
            started = time.perf_counter_ns()
            call(self._entry, inputs)
            torch.cuda.synchronize()
            times.append((time.perf_counter_ns() - started) / 1e3)
        return times

    def _fresh(self, number: int) -> Any:
        inputs = self._copies[number % len(self._copies)]
        if self._restore:
            for target, source in zip(values.tensors(inputs), values.tensors(self._pristine), strict=True):
                target.copy_(source)
        return inputs


def profile_region(entry: Callable[..., Any], inputs: Any) -> None:
    """Two calls outside (compile, autotune, load), then one inside the range that the profiler measures.

    torch's own profiler stays out of this: it and Nsight Compute exclude each other in a process.
    """
    for _ in range(2):
        call(entry, values.copy(inputs))
    fresh = values.copy(inputs)
    torch.cuda.synchronize()
    with big_op():
        call(entry, fresh)
        torch.cuda.synchronize()


def _samples(events: Any) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Attribute device activities to the marked calls by the launches' correlation ids.

    Host-side launches carry the correlation id of the activity that they start; a launch belongs to the marked
    range that its start lies in.
    """
    ranges: list[tuple[int, int]] = []
    launches: list[tuple[int, int]] = []
    activities: dict[int, list[tuple[int, int, str]]] = {}
    for event in events:
        on_device = event.device_type() == DeviceType.CUDA
        name, start = event.name(), event.start_ns()
        if on_device and name != BIG_OP:
            activities.setdefault(event.correlation_id(), []).append((start, start + event.duration_ns(), name))
        elif not on_device and name == BIG_OP:
            ranges.append((start, start + event.duration_ns()))
        elif not on_device and name.startswith("cu"):
            launches.append((start, event.correlation_id()))
    ranges.sort()
    launches.sort()
    samples: list[dict[str, Any]] = []
    totals: dict[str, float] = {}
    at = 0
    for begin, end in ranges:
        mine: list[tuple[int, int, str]] = []
        while at < len(launches) and launches[at][0] < begin:
            at += 1
        while at < len(launches) and launches[at][0] <= end:
            mine.extend(activities.get(launches[at][1], ()))
            at += 1
        for start, stop, name in mine:
            totals[name] = totals.get(name, 0.0) + (stop - start) / 1e3
        samples.append(
            {
                "kernel_us": sum(stop - start for start, stop, _ in mine) / 1e3,
                "device_us": (max(s for _, s, _ in mine) - min(s for s, _, _ in mine)) / 1e3 if mine else 0.0,
                "activities": len(mine),
            }
        )
    count = max(len(samples), 1)
    return samples, {name[:200]: total / count for name, total in totals.items()}


class L2Flush:
    """Empties L2 by reading a buffer much larger than it.

    Reading, not writing: a cache full of dirty lines makes the timed kernel wait for their write-back, 2 to 3 us on an
    H200, which Nsight Compute's own flush does not charge it with.
    """

    def __init__(self, size_bytes: int) -> None:
        self._buffer = torch.zeros(size_bytes // 4, dtype=torch.float32, device="cuda")
        self._sink = torch.empty((), device="cuda")

    def __call__(self) -> None:
        torch.sum(self._buffer, dim=0, out=self._sink)


class SmClock:
    """The SM clock through NVML, which ships with the driver."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        self._device = ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        bus_id = _pci_bus_id()
        if library.nvmlInit_v2() == 0 and (
            library.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), ctypes.byref(self._device)) == 0
        ):
            self._library = library

    def read_hz(self) -> float | None:
        """Now, in hertz; None where NVML can't say."""
        if self._library is None:
            return None
        mhz = ctypes.c_uint()
        sm_clock_domain = 1  # NVML_CLOCK_SM
        if self._library.nvmlDeviceGetClockInfo(self._device, sm_clock_domain, ctypes.byref(mhz)) != 0:
            return None
        return mhz.value * 1e6


def _pci_bus_id() -> str:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
