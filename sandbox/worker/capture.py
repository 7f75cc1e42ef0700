# pyright: basic
# torch and triton ship incomplete types.
"""Records every launch that an entry makes, compiled for a target, on a machine that need not have a GPU.

A driver that answers "which target?" and accepts launches takes the place of Triton's own driver. The entry
runs as written on CPU tensors; Triton specializes and compiles each kernel exactly as it would for a real
launch; the launch itself is only recorded. Outputs hold no results.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import threading
from collections.abc import Callable
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler import CompiledKernel

from . import trials
from .backends import BACKENDS, Backend
from .failures import Refused

LAUNCH_LIMIT = 10_000
REPORTED = 256
"""Distinct launches that are told of, those of the autotuner's trials last: a frame has room for little more."""


@dataclasses.dataclass(slots=True)
class Launch:
    """One distinct launch and how often the entry made it."""

    kernel: Any
    grid: tuple[int, int, int]
    tuning: bool
    arguments: tuple[Any, ...] = ()
    """Of the first one, constants among them, in the order of the kernel's parameters."""
    count: int = 1


BEFORE_ARGUMENTS = 6
"""What Triton's launcher is given between grid and arguments: stream, function, two kinds of metadata, two hooks."""


class InvalidGrid(Exception):
    """A grid that a real launch refuses."""


def checked_grid(limits: tuple[int, int, int], *grid: Any) -> tuple[int, int, int]:
    """The grid as integers, none of them above its limit."""
    x, y, z = (operator.index(extent) for extent in grid)
    if min(x, y, z) < 0 or x > limits[0] or y > limits[1] or z > limits[2]:
        raise InvalidGrid(f"the grid {(x, y, z)} is outside what a launch allows: up to {limits}")
    return x, y, z


class Recorder:
    """What the capturing driver has seen: launches in order of first appearance, and ptxas' words."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.launches: dict[tuple[str, tuple[int, int, int], bool], Launch] = {}
        self.tuning = False
        self.kernels: dict[int, Any] = {}
        self.ptxas_logs: dict[str, str] = {}
        self._unclaimed = threading.local()
        """What ptxas said of the kernel that a thread compiles, which is also where that kernel comes to its end."""
        self._total = 0

    def launched(self, metadata: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...]) -> None:
        kernel = self.kernels[id(metadata)]
        self._total += 1
        if self._total > LAUNCH_LIMIT:
            raise Refused("unsupported", "capture", f"more than {LAUNCH_LIMIT} launches are made in one call")
        key = (kernel.hash, grid, self.tuning)
        if key in self.launches:
            self.launches[key].count += 1
        else:
            # Numbers only: nothing else may keep tensors alive.
            plain = tuple(each if type(each) is int else None for each in arguments)
            self.launches[key] = Launch(kernel, grid, self.tuning, plain)

    def heard(self, log: str) -> None:
        """What ptxas said; `compiled` gives it to the kernel that it names."""
        self._unclaimed.logs = [*getattr(self._unclaimed, "logs", []), log]

    def compiled(self, kernel: Any) -> None:
        self.kernels[id(kernel.metadata)] = kernel
        for log in reversed(getattr(self._unclaimed, "logs", [])):
            if kernel.name in log:
                self.ptxas_logs[kernel.hash] = log
                break
        self._unclaimed.logs = []


class CapturingUtils:
    """Stands in for the driver's C helpers: no module is ever loaded."""

    def __init__(self, properties: dict[str, int]) -> None:
        self._properties = properties

    def get_device_properties(self, device: int) -> dict[str, int]:
        return self._properties

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        return 0, 0, 0, 0, 1024

    def unload_module(self, module: int) -> None:
        return None

    def set_printf_fifo_size(self, size: int) -> None:
        return None

    def fill_tma_descriptor_tiled(self, *args: Any) -> None:
        return None


class CapturingDriver(DriverBase):
    """Answers for one device of the target architecture and records launches instead of making them."""

    def __init__(self, recorder: Recorder, backend: Backend, target: dict[str, Any]) -> None:
        super().__init__()
        self._capability: int = target["capability"]
        self._backend = backend
        self._target = backend.target(target)
        warp_threads: int = target["warp_threads"]
        self.utils = CapturingUtils(
            {
                "max_shared_mem": target["shared_bytes_per_block"],
                "multiprocessor_count": target["sm_count"] or 0,
                "warpSize": warp_threads,
                "max_num_regs": target["registers_per_sm"],
                "sm_clock_rate": 0,
                "mem_clock_rate": 0,
                "mem_bus_width": 0,
            }
        )
        self._recorder = recorder
        recorder_ = recorder

        class Launcher:
            def __init__(self, src: Any, metadata: Any) -> None:
                self._metadata = metadata
                self._limits = backend.grid_limits(metadata.num_warps * warp_threads)

            def __call__(self, grid_x: int, grid_y: int, grid_z: int, *rest: Any) -> None:
                grid = checked_grid(self._limits, grid_x, grid_y, grid_z)
                # Triton's own launcher does nothing for an empty grid.
                if 0 not in grid:
                    recorder_.launched(self._metadata, grid, rest[BEFORE_ARGUMENTS:])

        self.launcher_cls = Launcher

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return self._backend.cpp_type(ty)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return None

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return divmod(self._capability, 10)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Autotuning compiles each configuration once; without a GPU none can be timed, so the first one stays."""

        def benchmark(
            kernel_call: Callable[[], Any], *, quantiles: list[float] | None = None, **kwargs: Any
        ) -> list[float]:
            was, self._recorder.tuning = self._recorder.tuning, True
            try:
                kernel_call()
            finally:
                self._recorder.tuning = was
            return [1.0] * len(quantiles or [0.5])

        return benchmark

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: Any) -> None:
        return None


def install(target: dict[str, Any]) -> Recorder:
    """Make the capturing driver the active one and start to listen; returns the recorder."""
    backend = BACKENDS[target["vendor"]]
    recorder = Recorder(backend)
    triton.runtime.driver.set_active(CapturingDriver(recorder, backend, target))
    backend.listen(recorder.heard)
    original = CompiledKernel.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        recorder.compiled(self)

    CompiledKernel.__init__ = init
    trials.compile_together()
    return recorder


def report(recorder: Recorder, blobs: list[Any]) -> dict[str, Any]:
    """One record a distinct launch; assembly texts go to ``blobs``, each kernel's once."""
    found = sorted(recorder.launches.values(), key=lambda launch: launch.tuning)
    return {"launches": _records(recorder, found[:REPORTED], blobs), "left_out": max(0, len(found) - REPORTED)}


def _records(recorder: Recorder, launches: list[Launch], blobs: list[Any]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    blob_of: dict[tuple[str, str], int] = {}
    for launch in launches:
        kernel, metadata = launch.kernel, launch.kernel.metadata
        assembly: dict[str, int] = {}
        for stage in recorder.backend.stages:
            text = kernel.asm.get(stage)
            if text is None:
                continue
            key = (kernel.hash, stage)
            if key not in blob_of:
                blob_of[key] = len(blobs)
                blobs.append(text if isinstance(text, bytes) else text.encode())
            assembly[stage] = blob_of[key]
        names = list(kernel.src.fn.arg_names)
        records.append(
            {
                "kernel": kernel.src.fn.__name__,
                "symbol": kernel.name,
                "grid": list(launch.grid),
                "count": launch.count,
                "tuning": launch.tuning,
                "num_warps": metadata.num_warps,
                "num_stages": metadata.num_stages,
                "num_ctas": metadata.num_ctas,
                "shared_bytes": metadata.shared,
                "constexprs": {
                    names[path[0]]: _plain(value)
                    for path, value in kernel.src.constants.items()
                    if len(path) == 1 and path[0] < len(names)
                },
                "signature": {name: str(kind) for name, kind in kernel.src.signature.items()},
                "divisible_by_16": _divisible(kernel.src, names),
                "integers": _integers(kernel.src, names, launch.arguments),
                "line": getattr(kernel.src.fn, "starting_line_number", None),
                "ptxas_log": recorder.ptxas_logs.get(kernel.hash),
                "assembly": assembly,
            }
        )
    return records


def _integers(src: Any, names: list[str], arguments: tuple[Any, ...]) -> dict[str, int]:
    """Values of the integer arguments that are no constants."""
    if len(arguments) != len(names):
        return {}
    constants = {names[path[0]] for path in src.constants if len(path) == 1 and path[0] < len(names)}
    return {
        name: value
        for name, value in zip(names, arguments, strict=True)
        if value is not None and name not in constants and -(2**63) <= value < 2**64
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        # JSON has no infinities, and -inf is a common constant of kernels.
        return value if math.isfinite(value) else repr(value)
    return value if isinstance(value, bool | int | str) or value is None else str(value)


def _divisible(src: Any, names: list[str]) -> list[str]:
    attrs = getattr(src, "attrs", None) or {}
    return [
        names[path[0]]
        for path, values in attrs.items()
        if len(path) == 1
        and path[0] < len(names)
        and any(list(value)[:2] == ["tt.divisibility", 16] for value in values)
    ]
