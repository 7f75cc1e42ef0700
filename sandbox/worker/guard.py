# pyright: basic
# torch ships incomplete types.
"""Inputs and allocations of the candidate between margins of known bytes, and what else it computes with torch.

Only facts: the margins' bytes leave this worker, and `canary.broken` says elsewhere whether they changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Generator, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import canary
from .canary import MARGIN
from .failures import Sources

HELD_LIMIT = 4 << 30
"""Bytes of allocations kept for their margins; what an entry allocates beyond that has none."""
TENSORS_LIMIT = 1024
"""Allocations that get margins in one call: 32 MiB of margins to look at."""
OPERATIONS_LIMIT = 200
"""Distinct names in `Guards.operations`."""
LABEL_LIMIT = 200

UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
"""What these return holds no values yet."""
FACTORIES = UNINITIALISED | {
    "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "clone",
}  # fmt: skip
NO_COMPUTATION = {
    "_unsafe_view", "_reshape_alias", "as_strided", "as_strided_", "squeeze_", "unsqueeze_", "t_", "transpose_",
    "swapaxes_", "swapdims_", "detach_", "set_", "resize_", "resize_as_", "record_stream", "is_same_size", "is_pinned",
    "_has_same_storage_numel", "_local_scalar_dense",
}  # fmt: skip
"""Besides views: operations on shape or handle only, and reading one element."""


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Address of the first byte that a strided tensor's elements occupy, and of the one after the last."""
    start = tensor.data_ptr()
    return start, start + _span(tensor) * tensor.element_size()


_switch = [True]


def is_on() -> bool:
    """Whether modes of `Guards.watching` do their work at this point of the program."""
    return _switch[0]


@contextlib.contextmanager
def switched(on: bool) -> Generator[None]:
    """Off: nothing is given margins or recorded. For what triton's interpreter and its autotuner do with torch."""
    was, _switch[0] = _switch[0], on
    try:
        yield
    finally:
        _switch[0] = was


@dataclasses.dataclass(slots=True)
class _Guarded:
    """One storage with its margins: bytes ``[start - MARGIN, start)`` and ``[stop, stop + MARGIN)`` of ``memory``."""

    memory: torch.Tensor
    start: int
    stop: int
    label: str
    geometry: tuple[Any, ...] = ()
    number: int = 0
    """Added to each byte of the pattern."""

    def margins(self) -> list[torch.Tensor]:
        return [self.memory[self.start - MARGIN : self.start], self.memory[self.stop : self.stop + MARGIN]]

    def whole(self) -> bool:
        """Whether the storage is still as large as it was made."""
        return self.memory.untyped_storage().nbytes() >= self.stop + MARGIN


class Guards:
    """Margins around the inputs of a call and around what the entry allocates in it.

    Attributes:
        operations: operations that the entry ran on the device through torch in the last `watching`, by name such as
            ``aten.mm``, with how often; views, metadata and allocations aside.
        unguarded: allocations of the last `watching` that went over a limit and have no margins.
    """

    def __init__(self, device: str, key: bytes, sources: Sources | None = None) -> None:
        """
        Args:
            device: where guarded tensors lie, such as ``cpu`` or ``cuda:0``.
            key: the `canary.KEY_BYTES` bytes that fill margins.
            sources: the candidate's files, to tell which line allocated.
        """
        self.operations: dict[str, int] = {}
        self.unguarded = 0
        self._device = torch.device(device)
        self._key = key
        self._sources = sources or Sources()
        self._filled: torch.Tensor | None = None
        self._next = 0
        self._placed: list[_Guarded] = []
        self._made: dict[int, _Guarded] = {}
        self._held = 0

    def place(self, inputs: Any, offset_elements: int = 0, *, reuse: bool = False, names: Iterable[str] = ()) -> Any:
        """The same tree with every tensor copied between fresh margins; shapes, strides and requires_grad stay.

        Args:
            inputs: a tuple or dict of arguments.
            offset_elements: how many elements later than aligned each tensor starts.
            reuse: write to the addresses of the last `place` wherever shape, strides and dtype are those of then.
            names: of positional arguments, for `labels`.
        """
        before, self._placed = self._placed if reuse else [], []

        def put(value: Any, label: str) -> Any:
            if isinstance(value, torch.Tensor):
                return self._put(value, offset_elements, label, before)
            if isinstance(value, dict):
                return {key: put(item, f"{label}[{key!r}]") for key, item in value.items()}
            if isinstance(value, list | tuple):
                items = [put(item, f"{label}[{index}]") for index, item in enumerate(value)]
                return items if isinstance(value, list) else tuple(items)
            return value

        if isinstance(inputs, dict):
            return {name: put(value, f"input {name}") for name, value in inputs.items()}
        known = dict(enumerate(names))
        labels = (f"input {known[index]}" if index in known else f"input[{index}]" for index in range(len(inputs)))
        placed = [put(value, label) for value, label in zip(inputs, labels, strict=True)]
        return placed if isinstance(inputs, list) else tuple(placed)

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Within this context, allocations of the candidate get margins, and its operations are recorded.

        What an earlier one held is let go. Uninitialised tensors are filled with 0xFF bytes: NaN in every
        floating-point format (0x80 in those where that is the only NaN), -1 as an integer; booleans alternate.
        """
        self._made = {}
        self.operations = {}
        self.unguarded = self._held = 0
        with _Watch(self):
            yield

    def margins(self) -> torch.Tensor:
        """The bytes around the inputs placed last and around what the last `watching` guarded: ``[n, 2, MARGIN]``."""
        every = self._guarded()
        if not every:
            return torch.empty((0, 2, MARGIN), dtype=torch.uint8, device=self._device)
        pieces = torch.cat([piece for guarded in every for piece in guarded.margins()]).reshape(-1, 2, MARGIN)
        numbers = torch.tensor([guarded.number for guarded in every], dtype=torch.uint8, device=self._device)
        return pieces - numbers.reshape(-1, 1, 1)

    def labels(self) -> list[str]:
        """What lies between each pair of `margins`, in words."""
        return [guarded.label for guarded in self._guarded()]

    def release(self) -> None:
        """Let go of all memory: what was placed and what the last `watching` held."""
        self._placed = []
        self._made = {}
        self._held = 0

    def made(self, func: Any, result: torch.Tensor) -> None:
        """Move what a factory returned between margins, poisoned where it holds no values."""
        name = func._schema.name.removeprefix("aten::")
        # Without elements there is nothing to store to: the address is null.
        if result.device.type != self._device.type or not _plain(result) or not result.numel():
            return
        uninitialised = name in UNINITIALISED
        label = f"{str(result.dtype).removeprefix('torch.')} {tuple(result.shape)} from {_origin(name)}{self._place()}"
        guarded = self._room(_span(result) * result.element_size(), label)
        if guarded is None:
            self.unguarded += 1
            if uninitialised:
                _poison(_flat(result).view(torch.uint8), result.dtype)
            return
        between = guarded.memory[guarded.start : guarded.stop]
        if uninitialised:
            _poison(between, result.dtype)
        else:
            between.copy_(_flat(result).view(torch.uint8))
        _lay(result, guarded, tuple(result.shape), result.stride())
        self._held += len(guarded.memory)
        self._made[result.untyped_storage()._cdata] = guarded

    def ran(self, func: Any, tensors: Iterable[torch.Tensor]) -> None:
        """Record an operation if it had to do with the device."""
        if not any(tensor.device.type == self._device.type for tensor in tensors):
            return
        name = str(getattr(func, "overloadpacket", func))
        if name in self.operations or len(self.operations) < OPERATIONS_LIMIT:
            self.operations[name] = self.operations.get(name, 0) + 1

    def resized(self, tensor: torch.Tensor) -> None:
        """A tensor may have grown, into the margin behind it: then there is no margin any more."""
        guarded = self._made.get(tensor.untyped_storage()._cdata)
        if guarded is None:
            return
        start = tensor.storage_offset() * tensor.element_size()
        if not guarded.whole() or start + _span(tensor) * tensor.element_size() > guarded.stop:
            del self._made[tensor.untyped_storage()._cdata]
            self.unguarded += 1

    def _guarded(self) -> list[_Guarded]:
        return [guarded for guarded in (*self._placed, *self._made.values()) if guarded.whole()]

    def _put(self, tensor: torch.Tensor, offset_elements: int, label: str, before: list[_Guarded]) -> torch.Tensor:
        shape, stride, size = tuple(tensor.shape), tensor.stride(), _span(tensor) * tensor.element_size()
        geometry = (shape, stride, tensor.dtype, offset_elements)
        index = len(self._placed)
        if index < len(before) and before[index].geometry == geometry and before[index].whole():
            guarded = before[index]
            guarded.label = label[:LABEL_LIMIT]
            self._lay_margins(guarded)
        else:
            guarded = self._between_margins(size, MARGIN + offset_elements * tensor.element_size(), label)
            guarded.geometry = geometry
        self._placed.append(guarded)
        if size:
            guarded.memory[guarded.start : guarded.stop].copy_(_flat(tensor.detach()).view(torch.uint8))
        placed = _lay(torch.empty(0, dtype=tensor.dtype, device=self._device), guarded, shape, stride)
        return placed.requires_grad_(tensor.requires_grad)

    def _room(self, size: int, label: str) -> _Guarded | None:
        """Memory of ``size`` bytes between margins, where there is some left for it."""
        if self._held + size + 2 * MARGIN > HELD_LIMIT or len(self._made) >= TENSORS_LIMIT:
            return None
        try:
            return self._between_margins(size, MARGIN, label)
        except torch.OutOfMemoryError:
            # What the entry needs may fit without it.
            return None

    def _between_margins(self, size: int, start: int, label: str) -> _Guarded:
        memory = torch.empty(start + size + MARGIN, dtype=torch.uint8, device=self._device)
        guarded = _Guarded(memory, start, start + size, label[:LABEL_LIMIT])
        self._lay_margins(guarded)
        return guarded

    def _lay_margins(self, guarded: _Guarded) -> None:
        if self._filled is None:
            self._filled = torch.empty(MARGIN, dtype=torch.uint8, device=self._device)
            canary.fill(self._filled, self._key)
        # Another number for each, so that what copies one tensor's margin over another's changes it.
        guarded.number = self._next = (self._next + 1) % 256
        for margin in guarded.margins():
            torch.add(self._filled, guarded.number, out=margin)

    def _place(self) -> str:
        """The candidate's line that is running, in words."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            known = self._sources.get(frame.f_code.co_filename)
            if known is not None:
                return f", {known[0]} line {frame.f_lineno}"
            frame = frame.f_back
        return ""


class _Watch(TorchDispatchMode):
    """Hands every operation that torch dispatches to a `Guards`.

    Modes for torch functions, which answer for tensors' attributes elsewhere, are off in here.
    """

    # Operators that take functions would be refused under a mode that does not say this.
    supports_higher_order_operators = True

    def __init__(self, guards: Guards) -> None:
        super().__init__()
        self._guards = guards

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise the first operation imports torch._dynamo, which takes seconds."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch.compile works on what it traces undisturbed."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_on():
            return func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload):
            result = func(*args, **kwargs)
            # A Triton kernel wrapped for torch.compile is a launch.
            if not str(func).startswith("triton_kernel_wrapper"):
                self._ran(func, args, kwargs, result)
            return result
        result = self._call(func, args, kwargs)
        name = func._schema.name.removeprefix("aten::")
        if name in FACTORIES and not func._schema.is_mutable:
            self._guards.made(func, result)
        else:
            if not func.is_view and name not in NO_COMPUTATION:
                self._ran(func, args, kwargs, result)
            if func._schema.is_mutable:
                for tensor in _tensors(result):
                    self._guards.resized(tensor)
        return result

    def _ran(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        self._guards.ran(func, _tensors((args, kwargs, result)))

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator written in Python runs under the mode too: its own allocations count."""
        if func.namespace in {"aten", "prims", "prim", "c10d", "quantized"}:
            return func(*args, **kwargs)
        devices = {tensor.device.type for tensor in _tensors((args, kwargs))}
        key = _KEYS.get(devices.pop()) if len(devices) == 1 else None
        if key is None:
            return func(*args, **kwargs)
        with self:
            return func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)


_KEYS = {"cpu": torch._C.DispatchKey.CPU, "cuda": torch._C.DispatchKey.CUDA}


def _origin(name: str) -> str:
    return f"Tensor.{name}" if name.startswith("new_") else f"torch.{name}"


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _plain(tensor: torch.Tensor) -> bool:
    # Tensors that torch.compile traces with have no memory.
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_quantized


def _span(tensor: torch.Tensor) -> int:
    """Elements of storage from the first to the last that the view touches."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All storage between the first and the last element of a view."""
    return tensor.as_strided((_span(tensor),), (1,), tensor.storage_offset())


def _lay(tensor: torch.Tensor, guarded: _Guarded, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """Let ``tensor`` lie between the margins; it is no view, so autograd treats it as any other."""
    return tensor.set_(guarded.memory.untyped_storage(), guarded.start // tensor.element_size(), shape, stride)


def _poison(flat: torch.Tensor, dtype: torch.dtype) -> None:
    if dtype == torch.bool:
        # Any other byte is no boolean.
        flat.zero_()
        flat[::2] = 1
    else:
        flat.fill_(0x80 if str(dtype).endswith("fnuz") else 0xFF)
