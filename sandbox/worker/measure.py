# pyright: basic
# torch ships incomplete types.
"""Times an entry on the GPU. Samples leave the worker; statistics happen above."""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Callable
from time import perf_counter, perf_counter_ns
from typing import Any

import torch

from . import layouts, reference, values
from .contents import COUNT, NONE, Alternatives, Contents
from .cuda_context import fill, reset_persisting_lines, synchronize
from .cupti import Activity, recorder
from .failures import Refused
from .layouts import Layout
from .task import call

SPIN_CYCLES = (50_000, 150_000)
AHEAD_CYCLES = 300_000
"""Waited for before a call whose L2 stays warm, so that its launches are queued behind something: about 150 us."""
MARK_BYTES = 4099
"""Least size of the fills that stand before and after each timed call on the time line; each process draws its own, so
that nothing else is as long."""
MARK_SIZES = 20_000
NAMES_LIMIT = 64
"""Kernels and copies that are told by name."""
NAME_CHARACTERS = 200


class Measurement:
    """One entry with one case's inputs, ready to be timed in visits: some calls in a row."""

    def __init__(
        self,
        entry: Callable[..., Any],
        inputs: Any,
        in_place: list[str],
        *,
        flush_bytes: int,
        seed: int | None,
        alternatives: Alternatives = NONE,
    ) -> None:
        """
        Args:
            entry: called with ``inputs``; a kernel file's, a replayed one or a reference.
            inputs: positional (tuple) or keyword (dict) arguments; stay as they are.
            in_place: names of the arguments that are the outputs.
            flush_bytes: read before each call to empty L2; 0: L2 stays warm.
            seed: of the contents (`Contents`); None: they do not vary.
            alternatives: for the contents of what noise does not change.
        """
        self._entry, self._signature, self._in_place = entry, entry, in_place
        self._pristine = inputs
        self._flush = L2Flush(flush_bytes) if flush_bytes else None
        self._mark_bytes = MARK_BYTES + 2 * random.randrange(MARK_SIZES)
        self._marked = torch.empty(self._mark_bytes, dtype=torch.uint8, device="cuda")
        self._contents = Contents(inputs, seed, alternatives)
        self._layouts: list[Layout] = []
        self._last: Layout | None = None
        self._aliased = False
        self._results_bytes = self._peak_bytes = 0
        self._surroundings: collections.Counter[str] = collections.Counter()
        """What the device does for us between the marks of one call and those of the next."""

    def free(self) -> None:
        """Give the memory back to the device: other processes need it for the next case."""
        self._layouts.clear()
        self._last = None
        torch.cuda.empty_cache()

    def first_call(self) -> dict[str, Any]:
        """Compile, autotune, load; then one call by itself, and what must be known of it.

        Returns:
            ``first_call_s``, ``second_call_us`` (host call to completion), ``results_bytes``, ``varies`` (whether
            contents differ from call to call) and ``constant`` (how many tensors never do).
        """
        inputs = values.copy(self._pristine)
        started = perf_counter()
        self._run(inputs)
        synchronize()
        first_call_s = perf_counter() - started
        inputs = values.copy(self._pristine)
        synchronize()
        torch.cuda.reset_peak_memory_stats()
        before_bytes = torch.cuda.memory_allocated()
        started = perf_counter()
        outputs = self._run(inputs)
        synchronize()
        second_call_us = (perf_counter() - started) * 1e6
        self._peak_bytes = max(0, torch.cuda.max_memory_allocated() - before_bytes)
        self._results_bytes = values.size_bytes(outputs)
        owned = {tensor.untyped_storage().data_ptr() for tensor in values.tensors(inputs)}
        self._aliased = any(tensor.untyped_storage().data_ptr() in owned for tensor in values.tensors(outputs))
        return {
            "first_call_s": first_call_s,
            "second_call_us": second_call_us,
            "results_bytes": self._results_bytes,
            "varies": self._contents.varies,
            "constant": self._contents.constant,
        }

    def lay_out(self, calls: int) -> dict[str, Any]:
        """Make the places that visits rotate over, each used once as a visit does, so that all memory is there.

        Returns:
            ``layouts`` and ``calls``: how many, and how many calls a visit can have, ``calls`` at most.
        """
        calls = layouts.calls_that_fit(calls, self._results_bytes)
        held_bytes = (calls - 1) * self._results_bytes + max(self._peak_bytes, self._results_bytes)
        number = layouts.count(values.size_bytes(self._pristine) + held_bytes)
        # What calls before have left in torch's cache is of no use to the layouts' own memory.
        torch.cuda.empty_cache()
        self._layouts = [Layout(self._pristine) for _ in range(number)]
        self._learn_surroundings()
        for layout in self._layouts:
            self._visit(layout, [random.randrange(COUNT) for _ in range(calls)])
        return {"layouts": number, "calls": calls}

    def visit(self, number: int, contents: list[int]) -> dict[str, Any]:
        """Time one call for each of ``contents``, L2 flushed before each.

        Args:
            number: chooses the layout.
            contents: numbers of `Contents`, one a call.

        Returns:
            ``samples``, each with ``kernel_us`` (sum over the device activities that the call started), ``device_us``
            (first start to last end of these) and how many there were, from CUPTI's activity records, and ``event_us``
            between two events of the stream around it; ``kernels`` (mean microseconds a call, by name);
            ``sm_clock_hz``; ``strays``: what else ran that belongs to no call.
        """
        self._last = self._layouts[number % len(self._layouts)]
        activities, events = self._visit(self._last, contents)
        timed, between, after = _between_marks(activities, self._mark_bytes)
        # More or fewer are told as such: marks were lost, or the entry has made some of its own.
        spans = [start.elapsed_time(stop) * 1e3 for start, stop in events] if len(timed) == len(events) else []
        samples = [{**_sample(found), "event_us": span} for found, span in itertools.zip_longest(timed, spans)]
        return {
            "samples": samples,
            "kernels": _means_us(timed),
            "sm_clock_hz": _clock_hz(after),
            "strays": self._strays([*between, [found for found in after if not _is_spin(found)]]),
        }

    def outputs(self, index: int) -> Any:
        """Results of one call of the last visit."""
        if self._last is None or index >= len(self._last.held):
            raise Refused("rejected", "benchmark", "there is no such timed call whose results could be given")
        return self._last.held[index]

    def call_times(self, calls: int) -> list[float]:
        """Host call to completion, in microseconds: launch overhead included, L2 flushed before each call."""
        times: list[float] = []
        recorder().stop()
        layout = self._layouts[calls % len(self._layouts)]
        layout.held.clear()
        with layout.used():
            for _ in range(calls):
                self._get_ready(layout, random.randrange(COUNT))
                synchronize()
                started = perf_counter_ns()
                call(self._entry, layout.inputs)
                synchronize()
                times.append((perf_counter_ns() - started) / 1e3)
        return times

    def empty_cache(self) -> None:
        """Empty L2; where it is to stay warm, keep the device busy for as long."""
        if self._flush is not None:
            # First: lines that are ordinary again, the flush can evict.
            reset_persisting_lines()
            self._flush()
        else:
            torch.cuda._sleep(AHEAD_CYCLES)

    def _run(self, inputs: Any) -> Any:
        """One call; its results."""
        return reference.pick(call(self._entry, inputs), inputs, self._in_place, self._signature)

    def _visit(self, layout: Layout, contents: list[int]) -> tuple[list[Activity], list[tuple[Any, Any]]]:
        layout.held.clear()
        recording = recorder()
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in contents]
        self._contents.get_ready(contents[0])
        synchronize()
        # What was recorded before is of no interest; what follows is read once the device is idle again.
        recording.start()
        recording.read()
        with layout.used():
            for number, (start, stop) in zip(contents, events, strict=True):
                self._get_ready(layout, number)
                self._mark()
                start.record()
                returned = call(self._entry, layout.inputs)
                stop.record()
                self._mark()
                layout.held.append(self._kept(returned, layout.inputs))
        spin()
        synchronize()
        return recording.read(), events

    def _get_ready(self, layout: Layout, number: int) -> None:
        """Give the inputs their contents, and empty L2."""
        self._contents.write(layout.inputs, number, restore=bool(self._in_place) or self._aliased)
        self.empty_cache()

    def _kept(self, returned: Any, inputs: Any) -> Any:
        """A call's results; copied, where the next call's contents would overwrite them."""
        outputs = reference.pick(returned, inputs, self._in_place, self._signature)
        return values.copy(outputs) if self._aliased else outputs

    def _learn_surroundings(self) -> None:
        """What stands between two calls on the time line, when nothing is called."""
        layout, entry = self._layouts[0], self._entry
        results = values.copy(self._run(layout.inputs))
        self._entry = lambda *_, **__: results
        try:
            activities, _ = self._visit(layout, [0, 0, 0])
        finally:
            self._entry = entry
        between = _between_marks(activities, self._mark_bytes)[1]
        self._surroundings = collections.Counter(found.name for found in between[-1]) if between else self._surroundings

    def _strays(self, gaps: list[list[Activity]]) -> list[str]:
        """Names of what ran in the gaps between calls beyond what we put there."""
        found: dict[str, None] = {}
        for gap in gaps:
            for name in collections.Counter(activity.name for activity in gap) - self._surroundings:
                found[name[:NAME_CHARACTERS]] = None
        return list(found)[:NAMES_LIMIT]

    def _mark(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        fill(self._marked.data_ptr(), self._mark_bytes, stream)


def _between_marks(
    activities: list[Activity], size: int = MARK_BYTES
) -> tuple[list[list[Activity]], list[list[Activity]], list[Activity]]:
    """What each call started, what ran between one call and the next, and what came after the last.

    The host puts a fill of a known size around each call: whatever was started between the two counts, on whatever
    stream and by whatever thread.
    """
    fills = (index for index, activity in enumerate(activities) if activity.name == "Memset")
    marks = [index for index in fills if activities[index].size_bytes == size]
    pairs = list(zip(marks[::2], marks[1::2], strict=False))
    timed = [activities[first + 1 : last] for first, last in pairs]
    between = [activities[last + 1 : first] for (_, last), (first, _) in itertools.pairwise(pairs)]
    return timed, between, activities[marks[-1] + 1 :] if marks else []


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
        name = activity.name[:NAME_CHARACTERS]
        if name not in totals and len(totals) >= NAMES_LIMIT - 1:
            name = "others"
        totals[name] = totals.get(name, 0.0) + (activity.stop_ns - activity.start_ns) / 1e3
    return {name: total / len(calls) for name, total in totals.items()}


def spin() -> None:
    """Two kernels that wait for a known number of SM cycles each."""
    for cycles in SPIN_CYCLES:
        torch.cuda._sleep(cycles)


def _is_spin(activity: Activity) -> bool:
    return "spin_kernel" in activity.name


def _clock_hz(after: list[Activity]) -> float | None:
    """The SM clock from the two spins: what their lengths have in common (start and end of a kernel) cancels."""
    spins = [activity for activity in after if _is_spin(activity)]
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
