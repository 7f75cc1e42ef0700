# pyright: basic
# torch ships incomplete types.
"""What a call would cost without its host: the entry captured into a CUDA graph, and the graph replayed.

The floor that no work on the host's side of a kernel can go below, and what is left for a serving system to gain.
"""

from __future__ import annotations

import collections
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from . import cuda_context, reference
from .cupti import Activity, recorder

WARM_UPS = 3
"""Calls before the capture, and replays before the first that is timed."""
MARK_BYTES = 4111
"""Size of the fills that stand before and after each replay on the time line: odd, so that none is an entry's."""


def floor(
    entry: Callable[..., Any], inputs: Any, calls: int, before: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Times of ``calls`` replays of the entry.

    A capture that fails leaves torch's allocator with a pool that never closes: let this be the last that is asked of a
    process.

    Args:
        entry: called on ``inputs`` as they are, which a replay reads and writes in place.
        inputs: a tuple or a dict of tensors on the GPU.
        calls: replays for each of the two times.
        before: called ahead of each replay, outside of what is timed: empties the cache, restores inputs.

    Returns:
        ``{"graph_call_us": median time from the host's call to the completion of one replay, "graph_device_us": median
        time from the first start to the last end on the device}``, or ``{"reason": line}`` where the entry can't be
        captured whole.

    Raises:
        Exception: whatever the entry raises when it is called without a capture.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            reference.call(entry, inputs)
        calls_recorded = _recorded(lambda: reference.call(entry, inputs), 1, before)
    torch.cuda.current_stream().wait_stream(stream)
    if not any(calls_recorded):
        return {"reason": "a call puts nothing on the device"}
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            # Kept for as long as the graph: its memory is written to by each replay.
            outputs = reference.call(entry, inputs)
    except reference.REFUSALS as error:
        return {"reason": reference.in_words(_first(error), "the entry can't be captured into a CUDA graph")}
    for _ in range(WARM_UPS):
        graph.replay()
    replays = _recorded(graph.replay, calls, before)
    missing = _missing(calls_recorded[0], replays)
    if missing is not None:
        return {"reason": missing}
    call_us = [_call_us(graph, before) for _ in range(calls)]
    del outputs
    return {
        "graph_call_us": statistics.median(call_us),
        "graph_device_us": statistics.median(map(_span_us, replays)),
    }


def _recorded(run: Callable[[], Any], calls: int, before: Callable[[], None]) -> list[list[Activity]]:
    """What each of some calls puts on the device."""
    marked = torch.empty(MARK_BYTES, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    recording = recorder()
    cuda_context.synchronize()
    recording.start()
    recording.read()
    try:
        for _ in range(calls):
            before()
            cuda_context.fill(marked.data_ptr(), MARK_BYTES, stream)
            run()
            cuda_context.fill(marked.data_ptr(), MARK_BYTES, stream)
        cuda_context.synchronize()
        activities = recording.read()
    finally:
        recording.stop()
    return between_marks(activities)


def between_marks(activities: list[Activity]) -> list[list[Activity]]:
    """What lies between the first and the second mark, the third and the fourth, and so on."""
    marks = [
        place
        for place, activity in enumerate(activities)
        if (activity.name, activity.size_bytes) == ("Memset", MARK_BYTES)
    ]
    return [activities[first + 1 : last] for first, last in zip(marks[::2], marks[1::2], strict=False)]


def _missing(called: list[Activity], replays: list[list[Activity]]) -> str | None:
    """What the graph leaves out: work on a stream that the capture doesn't know runs while it is captured, or never."""
    if not replays:
        return "no replay was recorded"
    fewest = min(replays, key=len)
    if len(fewest) >= len(called):
        return None
    left_out = collections.Counter(activity.name for activity in called)
    left_out -= collections.Counter(activity.name for activity in fewest)
    return (
        f"its graph does {len(fewest)} of the {len(called)} things that a call does on the device; "
        f"missing: {next(iter(left_out))[:100]}"
    )


def _first(error: BaseException) -> BaseException:
    """What ended the capture: ending it after that fails too."""
    seen = [error]
    while (earlier := seen[-1].__context__) is not None and earlier not in seen:
        seen.append(earlier)
    return seen[-1]


def _span_us(activities: list[Activity]) -> float:
    first = min(activity.start_ns for activity in activities)
    return (max(activity.stop_ns for activity in activities) - first) / 1e3


def _call_us(graph: Any, before: Callable[[], None]) -> float:
    before()
    cuda_context.synchronize()
    started = time.perf_counter_ns()
    graph.replay()
    cuda_context.synchronize()
    return (time.perf_counter_ns() - started) / 1e3
