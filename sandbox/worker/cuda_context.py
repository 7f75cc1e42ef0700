# pyright: basic
# torch ships incomplete types.
"""This process' CUDA context, asked through the driver: what somebody has made of torch's functions has no say."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch


@functools.cache
def library() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def check(code: int, name: str, driver: Any = None) -> None:
    """
    Raises:
        RuntimeError: a call of the driver has failed.
    """
    if code != 0:
        text = ctypes.c_char_p()
        (driver or library()).cuGetErrorName(code, ctypes.byref(text))
        raise RuntimeError(f"{name} failed: {(text.value or b'').decode() or code}")


def call(name: str, *arguments: Any) -> None:
    """A function of the driver.

    Raises:
        RuntimeError: it has failed.
    """
    check(getattr(library(), name)(*arguments), name)


def synchronize() -> None:
    """Wait for all that was given to the device."""
    if library().cuCtxSynchronize() != 0:
        # A failed kernel is told in torch's words.
        torch.cuda.synchronize()


def fill(pointer: int, size_bytes: int, stream: int) -> None:
    """Set GPU memory to zero on a stream."""
    zero = ctypes.c_ubyte(0)
    call("cuMemsetD8Async", ctypes.c_ulonglong(pointer), zero, ctypes.c_size_t(size_bytes), ctypes.c_void_p(stream))


def reset_persisting_lines() -> None:
    """Take from lines of L2 what lets them survive a flush; costs the host 4 to 25 us (H200)."""
    # Where the device has no such lines, there is nothing to reset.
    library().cuCtxResetPersistingL2Cache()
