# pyright: basic
# torch and triton ship incomplete types.
"""Triton's interpreter: kernels run program by program on the CPU, in numpy.

TRITON_INTERPRET=1 is set before triton is imported. What it computes wrongly is computed anew, or refused as
``unsupported``, by the modules ``interpreter_*``; autotuning, which asks for a GPU, is answered here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from . import (
    interpreter_arithmetic,
    interpreter_folds,
    interpreter_language,
    interpreter_libdevice,
    interpreter_memory,
)
from .failures import Refused


class InterpreterDriver:
    """Answers the few questions that host code asks of the driver; there is nothing to launch."""

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Times nothing: the interpreter runs the first configuration of an autotuned kernel."""

        def benchmark(
            kernel_call: Callable[[], Any], *, quantiles: list[float] | None = None, **kwargs: Any
        ) -> list[float]:
            return [1.0] * len(quantiles or [0.5])

        return benchmark

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_current_device(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        raise Refused(
            "unsupported",
            "run",
            f"the kernel file asks Triton's driver for {name!r}, which the interpreter does not have",
        )


def install() -> None:
    """Prepare the interpreter for one evaluation."""
    triton.runtime.driver.set_active(InterpreterDriver())  # pyright: ignore[reportArgumentType]
    for part in (interpreter_arithmetic, interpreter_memory, interpreter_folds, interpreter_libdevice):
        part.install()
    interpreter_language.install()
    # Overflow and invalid values are ordinary results of a kernel, not faults of the host code.
    warnings.filterwarnings("ignore", category=RuntimeWarning)


def refusal_in(error: BaseException) -> Refused | None:
    """The refusal inside the interpreter's own wrapping, if that is what stopped the kernel."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, Refused):
            return seen
        seen = seen.__cause__
    return None


@triton.jit
def _sum_kernel(x_ptr, out_ptr, n):
    total = 0.0
    for i in range(n):
        total += tl.load(x_ptr + i)
    tl.store(out_ptr, total)


def self_test() -> str | None:
    """A sum with a run-time loop bound; None when it works, else what went wrong."""
    x = torch.arange(4, dtype=torch.float32)
    out = torch.zeros(1)
    try:
        _sum_kernel[(1,)](x, out, 4)
    except (triton.TritonError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None if float(out) == 6.0 else f"sum of 0..3 came out as {float(out)}"
