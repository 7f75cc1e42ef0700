# pyright: basic
# torch and triton ship incomplete types.
"""What a file's own tests ask a GPU for beside launches: answered here, so that they go on to their next launch.

Nothing runs, so no answer means anything: every time is `TIME_MS`, no memory is in use, tensors that kernels were to
fill hold zeros, and large random ones too: their pages are never written, so that they take no memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch
import triton.testing
from torch.overrides import TorchFunctionMode

TIME_MS = 1.0
UNTOUCHED_BYTES = 1 << 25
"""From this size on, new tensors hold zeros, random ones too: tests of kernels draw gigabytes. The C library takes so
much memory fresh from the system for each (its M_MMAP_THRESHOLD is never more), which gives out zeros."""

_EMPTY: dict[Any, Any] = {
    torch.empty: torch.empty,
    torch.zeros: torch.empty,
    torch.randn: torch.empty,
    torch.rand: torch.empty,
    torch.empty_like: torch.empty_like,
    torch.zeros_like: torch.empty_like,
    torch.randn_like: torch.empty_like,
    torch.rand_like: torch.empty_like,
    torch.Tensor.new_empty: torch.Tensor.new_empty,
    torch.Tensor.new_zeros: torch.Tensor.new_empty,
}
"""What makes a tensor, and what makes one of its form without writing to it."""
_KEPT_IF_LARGE = frozenset({torch.Tensor.normal_, torch.Tensor.uniform_})
_AS_THEY_ARE = frozenset({"out", "layout", "names"})


class Untouched(TorchFunctionMode):
    """Makes large tensors without writing to them, and no small one with contents left to chance."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _KEPT_IF_LARGE and _is_large(args[0]):
            return args[0]
        empty = _EMPTY.get(func)
        if empty is None or kwargs.keys() & _AS_THEY_ARE:
            return func(*args, **kwargs)
        made = empty(*args, **{name: value for name, value in kwargs.items() if name != "generator"})
        if _is_large(made):
            return made
        if func is not empty:
            return func(*args, **kwargs)
        made.detach().zero_()
        return made


def _is_large(tensor: torch.Tensor) -> bool:
    return tensor.numel() * tensor.element_size() >= UNTOUCHED_BYTES


class _Graph:
    """Stands in for a CUDA graph: what is recorded is captured once, and replays do nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        return None

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        return None

    def capture_end(self) -> None:
        return None

    def replay(self) -> None:
        return None

    def reset(self) -> None:
        return None

    def pool(self) -> tuple[int, int]:
        return 0, 0


def _do_bench(fn: Callable[[], Any], *args: Any, quantiles: Any = None, return_mode: str = "mean", **_: Any) -> Any:
    """One call in place of the hundreds that are timed."""
    fn()
    count = len(quantiles) if quantiles is not None else 1
    times = [TIME_MS] * count
    return times if count > 1 or return_mode == "all" else TIME_MS


@contextlib.contextmanager
def used() -> Generator[None]:
    """Within this context, inside of `remap.cuda_on_cpu`."""
    answers: list[tuple[Any, str, Any]] = [
        (torch.cuda.Event, "elapsed_time", lambda self, other: TIME_MS),
        (torch.cuda, "CUDAGraph", _Graph),
        (torch.cuda, "graph", lambda *args, **kwargs: contextlib.nullcontext()),
        (torch.cuda, "mem_get_info", lambda device=None: (64 << 30, 64 << 30)),
        (triton.testing, "do_bench", _do_bench),
        (triton.testing, "do_bench_cudagraph", _do_bench),
    ]
    answers += [
        (torch.cuda, name, lambda device=None: 0)
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    ]
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in answers]
    for owner, name, value in answers:
        setattr(owner, name, value)
    try:
        with Untouched():
            yield
    finally:
        for owner, name, value in saved:
            setattr(owner, name, value)
