# pyright: basic
# torch and triton ship incomplete types.
"""What a worker runs under a profiler: everything that counts inside the range ``BIG_OP``, all else outside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner

from . import launches, standalone, values
from .cuda_context import synchronize
from .failures import Sources
from .ranges import big_op, outside
from .reference import call


def region(entry: Callable[..., Any], inputs: Any) -> None:
    """Two calls outside (compile, autotune, load), then one inside the range that the profiler measures.

    torch's own profiler stays out of this: it and Nsight Compute exclude each other in a process.
    """
    for _ in range(2):
        call(entry, values.copy(inputs))
    fresh = values.copy(inputs)
    synchronize()
    with big_op():
        call(entry, fresh)
        synchronize()


def file(text: str, *, shown_as: str, origin: str | None, sources: Sources, limit_s: float) -> None:
    """Run a kernel file as it stands, inside the range but for what an autotuner or a timer tries out.

    Raises:
        Exception: as `standalone.run`.
    """
    launches.watch()
    launches.reset()
    _outside(Autotuner, "_bench")
    for name in ("do_bench", "do_bench_cudagraph"):
        _outside(triton.testing, name)
    with big_op():
        standalone.run(
            text,
            shown_as=shown_as,
            origin=origin,
            sources=sources,
            launched=lambda: any(kernel["own"] for kernel in launches.launched()),
            limit_s=limit_s,
        )
        synchronize()


def _outside(owner: Any, name: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        with outside():
            return original(*args, **kwargs)

    setattr(owner, name, replaced)
