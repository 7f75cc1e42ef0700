# pyright: basic
# torch and triton ship incomplete types.
"""Which Triton kernels were launched in this process, whose they are, and which memory they were given."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sysconfig
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from triton import knobs
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from . import guard

ADDRESSES_LIMIT = 65_536
"""Distinct storages remembered."""
TABLES_LIMIT = 64
TABLE_ELEMENTS = 4096
"""A vector of addresses has at most so many entries; larger ones are data."""
PAGE_BYTES = 4096
"""Nothing lies at lower addresses."""
KERNELS_LIMIT = 1000
"""Distinct kernels remembered."""
PACKAGES = ("site-packages", "dist-packages")


@dataclasses.dataclass(slots=True)
class Launched:
    """One kernel and how often it was launched."""

    kernel: str
    symbol: str
    own: bool
    count: int = 0


class _Record:
    """What was launched since the last `reset`."""

    def __init__(self) -> None:
        self.kernels: dict[tuple[str, str, bool], Launched] = {}
        self.storages: dict[int, int] = {}
        self.addresses: set[int] = set()
        self.tables: list[torch.Tensor] = []

    def add(self, function: Any, symbol: str, arguments: Any) -> None:
        kernel, own = function.__name__, is_own(function)
        key = (kernel, symbol, own)
        if key not in self.kernels and len(self.kernels) < KERNELS_LIMIT:
            self.kernels[key] = Launched(kernel, symbol, own)
        if key in self.kernels:
            self.kernels[key].count += 1
        if own:
            if len(_own_symbols) < KERNELS_LIMIT:
                _own_symbols.add(symbol)
            self._gave(arguments)

    def _gave(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._gave_tensor(value)
        elif isinstance(value, dict):
            self._gave(list(value.values()))
        elif isinstance(value, list | tuple):
            for item in value:
                self._gave(item)
        elif isinstance(value, int):
            # It may be an address that the kernel casts to a pointer.
            if value >= PAGE_BYTES and len(self.addresses) < ADDRESSES_LIMIT:
                self.addresses.add(value)
        elif hasattr(value, "base"):
            # A TensorDescriptor on the host, or what triton.reinterpret returns.
            self._gave(value.base)

    def _gave_tensor(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if len(self.storages) < ADDRESSES_LIMIT:
            start = storage.data_ptr()
            self.storages[start] = max(storage.nbytes(), self.storages.get(start, 0))
        # Grouped kernels take the addresses of their operands in a tensor.
        addresses = tensor.dtype in (torch.int64, torch.uint64) and tensor.numel() <= TABLE_ELEMENTS
        if addresses and len(self.tables) < TABLES_LIMIT:
            self.tables.append(tensor.detach())


_record = _Record()
_own_symbols: set[str] = set()
_replaced: list[tuple[Any, str, Any, Any, list[bool]]] = []
"""Owner, name, what was there, what is there now, whether that still records."""


def watch() -> None:
    """Record every launch of this process from now on; further calls do nothing."""
    if _replaced:
        return
    _replace(JITFunction, "run", _run)
    _replace(Autotuner, "_bench", _bench)
    if knobs.runtime.interpret:
        from triton.runtime.interpreter import GridExecutor

        _replace(GridExecutor, "__call__", _interpret)


def unwatch() -> None:
    """Launches take as long as ever again: recording one costs microseconds, which a measured call must not pay."""
    for owner, name, original, method, recording in _replaced:
        recording[0] = False
        # What was put on top of it since stays.
        if getattr(owner, name) is method:
            setattr(owner, name, original)
    _replaced.clear()


def reset() -> None:
    """Forget what was launched."""
    global _record
    _record = _Record()


def launched() -> list[dict[str, Any]]:
    """Kernels launched since `reset`, in order of first launch.

    Each with ``kernel`` (the Python function's name), ``symbol`` (the name that profilers see), ``own`` (it was
    written by the candidate, not by an installed package) and ``count``. Launches with an empty grid run nothing, and
    those of the autotuner count.
    """
    return [dataclasses.asdict(kernel) for kernel in _record.kernels.values()]


def own_symbols() -> list[str]:
    """Symbols of all kernels of the candidate's own that this process ever launched: a CUDA graph may replay them."""
    return sorted(_own_symbols)


def touched(address: int) -> bool:
    """Whether a kernel of the candidate's own was given the storage in which ``address`` lies, since `reset`.

    Also where the address itself was passed, as an integer or in a tensor of addresses.
    """
    if address in _record.addresses:
        return True
    if any(start <= address < start + size for start, size in _record.storages.items()):
        return True
    return any(address in table.flatten().tolist() for table in _record.tables)


def is_own(function: Any) -> bool:
    """Whether a function's file belongs neither to an installed package nor to the standard library."""
    code = getattr(function, "__code__", None)
    return code is not None and _is_own_file(code.co_filename)


@functools.cache
def _is_own_file(file: str) -> bool:
    path = Path(file)
    if any(part in PACKAGES for part in path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in _foreign_folders())


@functools.cache
def _foreign_folders() -> list[str]:
    """The standard library, and the worker's own folder: its kernels are no candidate's."""
    paths = sysconfig.get_paths()
    return [paths["stdlib"], paths["platstdlib"], str(Path(__file__).parent)]


def _replace(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    recording = [True]

    @functools.wraps(original)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs) if recording[0] else original(self, *args, **kwargs)

    setattr(owner, name, method)
    _replaced.append((owner, name, original, method, recording))


def _run(original: Any, function: Any, /, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> Any:
    """A launch on the device: the compiled kernel comes back, which knows its name."""
    seen = _Grid(grid)
    kernel = original(function, *args, grid=seen.asked(), warmup=warmup, **kwargs)
    if kernel is not None and not warmup and seen.runs():
        symbol = getattr(getattr(kernel, "metadata", None), "name", None) or function.fn.__name__
        _record.add(function.fn, symbol, (args, kwargs))
    return kernel


def _bench(original: Any, tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The autotuner times a configuration: its buffers and fills are none of the candidate's."""
    with guard.switched(False):
        return original(tuner, *args, **kwargs)


def _interpret(original: Any, executor: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A launch in the interpreter, which copies tensors about with torch."""
    # Up to Triton 3.5 warm-ups come this way too.
    if kwargs.get("warmup"):
        return original(executor, *args, **kwargs)
    seen = _Grid(executor.grid)
    with guard.switched(False), _grid_of(executor, seen.asked()):
        result = original(executor, *args, **kwargs)
    if seen.runs():
        _record.add(executor.fn, executor.fn.__name__, (args, kwargs))
    return result


@contextlib.contextmanager
def _grid_of(executor: Any, grid: Any) -> Generator[None]:
    was, executor.grid = executor.grid, grid
    try:
        yield
    finally:
        executor.grid = was


class _Grid:
    """A launch's grid: its extents are known once triton has asked for them."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._extents = grid
        self._was_on = guard.is_on()

    def asked(self) -> Any:
        """What to give to triton in its place."""
        return self._call if callable(self._grid) else self._grid

    def runs(self) -> bool:
        return all(extent != 0 for extent in self._extents)

    def _call(self, arguments: Any) -> Any:
        # The candidate's own code.
        with guard.switched(self._was_on):
            self._extents = self._grid(arguments)
        return self._extents
