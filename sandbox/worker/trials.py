# pyright: basic
# triton ships incomplete types.
"""Compiles an autotuner's configurations side by side, before it tries them one by one.

Most of a compile runs outside of Python's lock: in LLVM, and in ptxas, which is a process of its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources

from . import versions

_async_compile = versions.async_compile()
THREADS_LIMIT = 8


def compile_together() -> None:
    """From now on; further calls do nothing."""
    original = Autotuner.prune_configs
    if _async_compile is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def prune_configs(tuner: Any, kwargs: dict[str, Any]) -> Any:
        # Asked by `run` for each new key, and only then, with the arguments of the launch at hand.
        configs = original(tuner, kwargs)
        # A hook changes the arguments: what it belongs to is compiled after it.
        plain = [config for config in configs if not config.pre_hook and not kwargs.keys() & config.kwargs.keys()]
        if len(plain) > 1 and "warmup" in kwargs and not kwargs["warmup"]:
            given = {name: value for name, value in kwargs.items() if name != "warmup"}
            _compile(tuner.fn, list(tuner.nargs.values()), [{**given, **config.all_kwargs()} for config in plain])
        return configs

    # Pyright wants the parameter's own name, self.
    Autotuner.prune_configs = prune_configs  # pyright: ignore[reportAttributeAccessIssue]


def _compile(function: Any, arguments: list[Any], variants: list[dict[str, Any]]) -> None:
    """What fails here stays in Triton's cache as a failure, and is raised where the configuration is tried."""
    assert _async_compile is not None
    executor = ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), THREADS_LIMIT))
    try:
        with _async_compile.AsyncCompileMode(executor, ignore_errors=True):
            for variant in variants:
                # Raised again where the configuration is tried.
                with contextlib.suppress(OutOfResources, CompilationError):
                    function.warmup(*arguments, **variant)
    finally:
        # Where the file was stopped meanwhile, nobody waits for the rest.
        executor.shutdown(wait=False, cancel_futures=True)
        _async_compile.active_mode.set(None)
