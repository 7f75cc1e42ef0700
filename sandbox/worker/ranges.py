# pyright: basic
# torch and nvtx ship incomplete types.
"""The NVTX range that marks what is measured: ``BIG_OP``, as in the TritonForge paper."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch

BIG_OP = "BIG_OP"

try:
    import nvtx
except ImportError:
    nvtx = None


_open = False


@contextlib.contextmanager
def big_op() -> Generator[None]:
    """A push/pop range, which the profiler selects as ``BIG_OP/``; through nvtx where installed, else through torch."""
    _push()
    try:
        yield
    finally:
        _pop()


@contextlib.contextmanager
def outside() -> Generator[None]:
    """What is done here does not count, also where it is called inside the range."""
    if not _open:
        yield
        return
    _pop()
    try:
        yield
    finally:
        _push()


def _push() -> None:
    global _open
    _open = True
    if nvtx is not None:
        nvtx.push_range(BIG_OP)
    else:
        torch.cuda.nvtx.range_push(BIG_OP)


def _pop() -> None:
    global _open
    _open = False
    if nvtx is not None:
        nvtx.pop_range()
    else:
        torch.cuda.nvtx.range_pop()
