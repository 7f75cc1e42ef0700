# pyright: basic
# torch ships incomplete types.
"""Times an entry on the GPU. Samples leave the worker; statistics happen above."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import torch

from . import share, values
from .cupti import Activity, recorder
from .ranges import big_op
from .task import call

COPIES_LIMIT_BYTES = 8 << 30
"""Input copies that the rotation may hold together."""
SPIN_CYCLES = (50_000, 150_000)
MARK_BYTES = 4099
"""Size of the fills that stand before and after each timed call on the time line."""


class Measurement:
    """One entry with one case's inputs, ready to be timed in blocks."""

    def __init__(self, entry: Callable[..., Any], inputs: Any, in_place: list[str], flush_bytes: int) -> None:
        self._entry = entry
        self._flush = L2Flush(flush_bytes)
        self._marked = torch.empty(MARK_BYTES, dtype=torch.uint8, device="cuda")
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

    def first_call(self) -> dict[str, Any]:
        """Compile, autotune, load; and the recorder's own first time."""
        started = time.perf_counter()
        call(self._entry, self._fresh(0))
        torch.cuda.synchronize()
        first_call_s = time.perf_counter() - started
        self.block(1, 0)
        return {"first_call_s": first_call_s}

    def warm_up(self, seconds: float, calls_limit: int) -> dict[str, Any]:
        """Call until ``seconds`` have gone by or ``calls_limit`` is reached; returns the mean time of a call."""
        calls = 0
        recorder().stop()
        started = time.perf_counter()
        while calls < calls_limit and (calls < 3 or time.perf_counter() - started < seconds):
            self._flush()
            call(self._entry, self._fresh(calls))
            torch.cuda.synchronize()
            calls += 1
        return {"call_us": (time.perf_counter() - started) / calls * 1e6}

    def block(self, calls: int, number: int) -> dict[str, Any]:
        """Time ``calls`` calls, L2 flushed before each.

        Each sample holds ``kernel_us`` (sum over the device activities that the call started), ``device_us`` (first
        start to last end of these) and how many there were, from CUPTI's activity records.
        """
        inputs = self._copies[number % len(self._copies)]
        recording = recorder()
        torch.cuda.synchronize()
        # What was recorded before is of no interest; what follows is read once the device is idle again.
        recording.start()
        recording.read()
        for _ in range(calls):
            if self._restore:
                inputs = self._fresh(number)
            self._flush()
            self._mark()
            call(self._entry, inputs)
            self._mark()
        spin()
        torch.cuda.synchronize()
        timed, after = _between_marks(recording.read())
        return {
            "samples": [_sample(activities) for activities in timed],
            "kernels": _means_us(timed),
            "sm_clock_hz": _clock_hz(after),
        }

    def call_times(self, calls: int) -> list[float]:
        """Host call to completion, in microseconds: launch overhead included, L2 flushed before each call."""
        times: list[float] = []
        recorder().stop()
        for number in range(calls):
            inputs = self._fresh(number)
            self._flush()
            torch.cuda.synchronize()
            started = time.perf_counter_ns()
            call(self._entry, inputs)
            torch.cuda.synchronize()
            times.append((time.perf_counter_ns() - started) / 1e3)
        return times

    def _mark(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        share.fill(self._marked.data_ptr(), MARK_BYTES, stream)

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


def _between_marks(activities: list[Activity]) -> tuple[list[list[Activity]], list[Activity]]:
    """What each call started, and what came after the last: the host puts a fill of a known size around each call.

    Whatever was started between the two fills counts, on whatever stream and by whatever thread.
    """
    marks = [index for index, activity in enumerate(activities) if activity.size_bytes == MARK_BYTES]
    timed = [activities[first + 1 : last] for first, last in zip(marks[::2], marks[1::2], strict=False)]
    return timed, activities[marks[-1] + 1 :] if marks else []


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


def _clock_hz(spins: list[Activity]) -> float | None:
    """The SM clock from the two spins: what their lengths have in common (start and end of a kernel) cancels."""
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
