# pyright: basic
# torch ships incomplete types.
"""Times an entry on the GPU. Samples leave the worker; statistics happen above."""

from __future__ import annotations

import bisect
import itertools
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]
from torch.profiler import ProfilerActivity, profile, record_function

from . import values
from .ranges import BIG_OP, big_op
from .task import call

COPIES_LIMIT_BYTES = 8 << 30
"""Input copies that the rotation may hold together."""
SM_CLOCK = "SM_CLOCK"
SPIN_CYCLES = (50_000, 150_000)


class Activity(NamedTuple):
    """A kernel, copy or fill on the device's time line, in nanoseconds."""

    name: str
    start_ns: int
    stop_ns: int


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
            with record_function(SM_CLOCK):
                spin()
            torch.cuda.synchronize()
        events = profiler.profiler.kineto_results.events()  # pyright: ignore
        timed = _activities(events, BIG_OP)
        return {
            "samples": [_sample(activities) for activities in timed],
            "kernels": _means_us(timed),
            "sm_clock_hz": _clock_hz(events),
        }

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


def _activities(events: Any, marker: str) -> list[list[Activity]]:
    """For each range marked with ``marker``, the device activities that its host calls launched.

    Host-side launches carry the correlation id of the activity that they start; a launch belongs to the marked
    range that its start lies in.
    """
    ranges: list[tuple[int, int]] = []
    launches: list[tuple[int, int]] = []
    by_launch: dict[int, list[Activity]] = {}
    for event in events:
        name, start, stop = event.name(), event.start_ns(), event.start_ns() + event.duration_ns()
        if event.device_type() == DeviceType.CUDA:
            # The markers have shadows on the device's time line.
            if name not in {BIG_OP, SM_CLOCK}:
                by_launch.setdefault(event.correlation_id(), []).append(Activity(name, start, stop))
        elif name == marker:
            ranges.append((start, stop))
        elif name.startswith("cu"):
            launches.append((start, event.correlation_id()))
    launches.sort()
    starts = [start for start, _ in launches]
    return [
        [
            activity
            for _, correlation in launches[bisect.bisect_left(starts, begin) : bisect.bisect_right(starts, end)]
            for activity in by_launch.get(correlation, ())
        ]
        for begin, end in sorted(ranges)
    ]


def _sample(activities: list[Activity]) -> dict[str, Any]:
    first = min((activity.start_ns for activity in activities), default=0)
    last = max((activity.stop_ns for activity in activities), default=0)
    return {
        "kernel_us": sum(activity.stop_ns - activity.start_ns for activity in activities) / 1e3,
        "device_us": (last - first) / 1e3,
        "activities": len(activities),
    }


def _means_us(calls: list[list[Activity]]) -> dict[str, float]:
    """Mean microseconds a call, by name of the kernel or copy."""
    totals: dict[str, float] = {}
    for activity in itertools.chain.from_iterable(calls):
        name = activity.name[:200]
        totals[name] = totals.get(name, 0.0) + (activity.stop_ns - activity.start_ns) / 1e3
    return {name: total / len(calls) for name, total in totals.items()}


def spin() -> None:
    """Two kernels that wait for a known number of SM cycles each."""
    for cycles in SPIN_CYCLES:
        torch.cuda._sleep(cycles)


def _clock_hz(events: Any) -> float | None:
    """The SM clock from the two spins: what their lengths have in common (start and end of a kernel) cancels."""
    (spins,) = _activities(events, SM_CLOCK) or [[]]
    if len(spins) != len(SPIN_CYCLES):
        return None
    short_ns, long_ns = sorted(activity.stop_ns - activity.start_ns for activity in spins)
    return (SPIN_CYCLES[1] - SPIN_CYCLES[0]) / (long_ns - short_ns) * 1e9 if long_ns > short_ns else None


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
