# pyright: basic
# torch ships incomplete types.
"""What the GPU's counters say of one call of an entry, kernel by kernel, in an ordinary worker."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import torch

from . import cuda_context, cupti, range_profiler, values
from .failures import Refused
from .measure import L2Flush
from .reference import call

STAGE = "profile"
FLUSH_BYTES = 512 << 20
"""Read before each pass, as before each timed call: eight times the L2 of an H200."""
LAUNCHES_LIMIT = 200
"""More launches a call are refused: all of them are counted, and each takes about 0.1 MB and GPU time in each pass."""
NAME_CHARACTERS = 1000
NOT_FINITE = "the counters give no number for this launch"


def count(entry: Callable[..., Any], inputs: Any, metrics: list[str], launches_limit: int) -> dict[str, Any]:
    """Two calls as they are (compile, autotune, load), then one for each pass that the counters need.

    Each pass gets fresh copies of the inputs and an L2 cache without any of them, as under Nsight Compute.

    Args:
        entry: the kernel file's.
        inputs: positional (tuple) or keyword (dict) arguments; stay as they are.
        metrics: names, as Nsight Compute has them.
        launches_limit: how many launches are told, from the first.

    Returns:
        ``launches``, ``passes`` and ``left_out`` as in `profile_facts.Counted`; or ``unavailable``, with a ``code`` and
        a ``message``, where this machine can't count.

    Raises:
        Refused: the entry launches no kernel, too many, or not the same ones in each call.
        Exception: whatever the entry raises.
    """
    try:
        library = cupti.library()
    except Refused as error:
        return _unavailable("no_cupti", str(error))
    call(entry, values.copy(inputs))
    kernels = _recorded(entry, inputs)
    if not kernels:
        raise Refused("rejected", STAGE, "a call of the entry launches no kernel on the GPU: there is nothing to count")
    if len(kernels) > LAUNCHES_LIMIT:
        message = f"a call of the entry launches {len(kernels)} kernels; at most {LAUNCHES_LIMIT} can be counted"
        raise Refused("unsupported", STAGE, message)
    passes = _Passes(entry, inputs)
    try:
        found = range_profiler.count(
            library,
            metrics,
            passes.prepare,
            passes.launch,
            device=torch.cuda.current_device(),
            context=_context(),
            launches=len(kernels),
            launches_told=launches_limit,
        )
    except range_profiler.Unavailable as error:
        return _unavailable(error.code, str(error))
    if found.launches != len(kernels):
        raise _unsteady(f"{len(kernels)} were recorded in one call and {found.launches} counted in another")
    if [_same(kernel) for kernel in _recorded(entry, inputs)] != [_same(kernel) for kernel in kernels]:
        raise _unsteady("names, numbers or grids changed while they were counted")
    told = kernels[:launches_limit]
    counted = found.values or [{} for _ in told]
    return {
        "launches": [_told(kernel, each, found.absent) for kernel, each in zip(told, counted, strict=True)],
        "passes": found.passes,
        "left_out": len(kernels) - len(told),
    }


class _Passes:
    """Calls of the entry on fresh inputs out of a cold cache."""

    def __init__(self, entry: Callable[..., Any], inputs: Any) -> None:
        self._entry, self._inputs = entry, inputs
        self._flush = L2Flush(FLUSH_BYTES)

    def prepare(self) -> Any:
        fresh = values.copy(self._inputs)
        # First: lines that are ordinary again, the flush can evict. It reads: a cache full of written lines would
        # have the kernel wait for them and count them as its own bytes.
        cuda_context.reset_persisting_lines()
        self._flush()
        cuda_context.synchronize()
        return fresh

    def launch(self, inputs: Any) -> None:
        call(self._entry, inputs)
        cuda_context.synchronize()


def _recorded(entry: Callable[..., Any], inputs: Any) -> list[cupti.Activity]:
    """The kernels of one call, in the order in which the host launched them."""
    recording = cupti.recorder()
    fresh = values.copy(inputs)
    cuda_context.synchronize()
    recording.start()
    recording.read()
    try:
        call(entry, fresh)
        cuda_context.synchronize()
    finally:
        recording.stop()
    return [activity for activity in recording.read() if activity.launch is not None]


def _same(kernel: cupti.Activity) -> tuple[Any, ...]:
    """What does not change from call to call."""
    return kernel.name, kernel.launch


def _told(kernel: cupti.Activity, counted: dict[str, float], absent: dict[str, str]) -> dict[str, Any]:
    assert kernel.launch is not None
    return {
        "kernel": kernel.name[:NAME_CHARACTERS],
        **kernel.launch._asdict(),
        "metrics": {name: value for name, value in counted.items() if math.isfinite(value)},
        "absent": {**absent, **{name: NOT_FINITE for name, value in counted.items() if not math.isfinite(value)}},
    }


def _context() -> int:
    """Address of this thread's CUDA context."""
    context = ctypes.c_void_p()
    cuda_context.call("cuCtxGetCurrent", ctypes.byref(context))
    assert context.value is not None
    return context.value


def _unsteady(what: str) -> Refused:
    return Refused(
        "unsupported",
        STAGE,
        f"the entry launches different kernels in different calls, or replays a CUDA graph: {what}. Counters come from "
        "several calls and can't be put together; have the entry launch the same kernels for the same inputs",
    )


def _unavailable(code: str, message: str) -> dict[str, Any]:
    return {"unavailable": {"code": code, "message": message[:1000]}}
