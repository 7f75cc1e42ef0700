# pyright: basic
# numpy and triton ship incomplete types.
"""Memory as Triton's interpreter reaches it: addresses that nothing lies at, atomics, block pointers, descriptors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

from . import interpreter_numbers as numbers
from . import versions
from .interpreter_arithmetic import Handle, replace
from .interpreter_numbers import decode, encode, unsupported

_ir = triton_interpreter._ir
_MAPS = "/proc/self/maps"


class IllegalMemoryAccess(RuntimeError):
    """A kernel reads or writes where no memory is; on a GPU this is CUDA's error 700."""


def install() -> None:
    """Replace the methods of the interpreter's builder and its handles."""
    builder = triton_interpreter.InterpreterBuilder
    replace(builder, "create_masked_load", _checked_load(builder.create_masked_load))
    replace(builder, "create_masked_store", _checked_store(builder.create_masked_store))
    replace(builder, "create_atomic_rmw", _atomic(builder.create_atomic_rmw))
    replace(builder, "create_atomic_cas", _compare_and_swap(builder.create_atomic_cas))
    if versions.has_block_pointers(builder):
        replace(builder, "create_tensor_pointer_load", _block_load)
    replace(builder, "create_descriptor_load", _descriptor_load(builder.create_descriptor_load))
    replace(builder, "create_descriptor_reduce", _descriptor_reduce)
    replace(triton_interpreter.TensorDescHandle, "materialize_pointers", _descriptor_pointers)
    replace(triton_interpreter.TensorDescHandle, "validate", _validate)


_mapped: list[tuple[int, int]] = []
"""Readable memory of this process as last looked at: first address, one past the last."""


def forget() -> None:
    """Memory may have gone since the last launch."""
    _mapped.clear()


def _look() -> None:
    _mapped.clear()
    with contextlib.suppress(OSError), open(_MAPS, encoding="ascii", errors="replace") as lines:
        for line in lines:
            span, rights = line.split(maxsplit=2)[:2]
            if "r" in rights:
                first, last = (int(end, 16) for end in span.split("-"))
                if _mapped and _mapped[-1][1] == first:
                    first = _mapped.pop()[0]
                _mapped.append((first, last))


def _is_mapped(first: int, last: int) -> bool:
    return any(start <= first and last < end for start, end in _mapped)


def check(addresses: Any, mask: Any, size: int, what: str) -> None:
    """Make sure that memory is mapped where ``mask`` holds; ``size`` is that of an element, in bytes.

    A neighbouring tensor's memory is mapped: this catches what would end the process.

    Raises:
        IllegalMemoryAccess: there is an address that nothing lies at.
    """
    reached = addresses[np.broadcast_to(mask, addresses.shape)]
    if not reached.size:
        return
    first, last = int(reached.min()), int(reached.max()) + size - 1
    if _is_mapped(first, last):
        return
    _look()
    if not _mapped or _is_mapped(first, last):
        return
    bad = [int(address) for address in np.unique(reached) if not _is_mapped(int(address), int(address) + size - 1)]
    if bad:
        raise IllegalMemoryAccess(
            f"an illegal memory access: tl.{what} reaches {len(bad)} address{'es' if len(bad) > 1 else ''} outside of "
            f"every tensor, such as {bad[0]:#x}"
        )


def _bytes(pointer: Any) -> int:
    return max(1, pointer.get_element_ty().primitive_bitwidth // 8)


def _checked_load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        check(pointers.data, mask.data if isinstance(mask, Handle) else mask, _bytes(pointers), "load")
        return original(self, pointers, mask, *rest, **named)

    return load


def _checked_store(original: Callable[..., Any]) -> Callable[..., Any]:
    def store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        check(pointers.data, mask.data if isinstance(mask, Handle) else mask, _bytes(pointers), "store")
        return original(self, pointers, value, mask, *rest, **named)

    return store


def _atomic(original: Callable[..., Any]) -> Callable[..., Any]:
    def atomic(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        check(pointers.data, mask.data, _bytes(pointers), "atomic")
        dtype = value.dtype.scalar
        if operation == _ir.ATOMIC_OP.FADD and dtype in (tl.float16, tl.bfloat16):
            return Handle(_add_one_by_one(pointers.data, value.data, mask.data, dtype), dtype)
        if dtype.is_fp8() or (dtype == tl.bfloat16 and operation != _ir.ATOMIC_OP.XCHG):
            raise unsupported(f"this atomic on {dtype.name}: the interpreter can't tell what a GPU computes for it")
        if operation == _ir.ATOMIC_OP.XCHG and dtype.is_floating():
            # The original swaps integers only.
            bits = Handle(value.data.view(f"int{8 * value.data.itemsize}"), dtype)
            before = original(self, operation, pointers, bits, mask, *rest)
            return Handle(before.data.view(value.data.dtype), dtype)
        return original(self, operation, pointers, value, mask, *rest)

    return atomic


def _add_one_by_one(addresses: Any, values: Any, mask: Any, dtype: Any) -> Any:
    """Adds to 16-bit floats, each sum rounded; what was there before each."""
    memory = triton_interpreter._interpreter
    shape = addresses.shape
    addresses, values, mask = (
        np.array(np.broadcast_to(array, shape)).reshape(-1) for array in (addresses, values, mask)
    )
    before = np.zeros(len(addresses), dtype=values.dtype)
    for at in np.flatnonzero(mask):
        here, yes = addresses[at : at + 1], np.ones(1, dtype=bool)
        before[at : at + 1] = memory.load(here, yes, before[at : at + 1], values.dtype)
        pair = [decode(array[at : at + 1], dtype).astype(np.float32) for array in (before, values)]
        memory.store(here, np.ascontiguousarray(encode(pair[0] + pair[1], dtype)), yes)
    return before.reshape(shape)


def _compare_and_swap(original: Callable[..., Any]) -> Callable[..., Any]:
    def swap(self: Any, pointers: Any, *rest: Any) -> Any:
        check(pointers.data, np.ones(1, dtype=bool), _bytes(pointers), "atomic_cas")
        return original(self, pointers, *rest)

    return swap


def _padding(pointers: Any, option: Any) -> Any:
    """What a load gives beyond a boundary; the original's NaN of bf16 is a zero."""
    dtype = pointers.get_element_ty()
    numpy_type = triton_interpreter._get_np_dtype(dtype)
    if option is None or option == _ir.PADDING_OPTION.PAD_ZERO:
        return Handle(np.zeros(pointers.data.shape, dtype=numpy_type), dtype)
    return Handle(np.full(pointers.data.shape, numbers.not_a_number(dtype, numpy_type), dtype=numpy_type), dtype)


def _block_load(self: Any, pointer: Any, boundary: Any, option: Any, *rest: Any) -> Any:
    pointers, mask = pointer.materialize_pointers(boundary)
    return self.create_masked_load(pointers, Handle(mask, tl.int1), _padding(pointers, option), *rest)


def _descriptor_load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any, descriptor: Any, indices: Any, *rest: Any, **named: Any) -> Any:
        found = original(self, descriptor, indices, *rest, **named)
        dtype = found.dtype.scalar
        if numbers.is_bits(dtype) and versions.padding(descriptor) == _ir.PADDING_OPTION.PAD_NAN:
            pointers, mask = descriptor.materialize_pointers(indices)
            inside = mask.data if isinstance(mask, Handle) else mask
            return Handle(np.where(inside, found.data, _padding(pointers, descriptor.padding).data), dtype)
        return found

    return load


def _descriptor_reduce(self: Any, kind: Any, descriptor: Any, value: Any, indices: Any) -> Any:
    """An atomic of every element of a block, through a descriptor."""
    name = kind.name
    dtype = value.dtype.scalar
    if name in ("MIN", "MAX") and dtype.is_floating():
        raise unsupported(f"an atomic {name.lower()} of floats through a tensor descriptor")
    if name == "ADD" and dtype.is_floating():
        name = "FADD"
    elif name in ("MIN", "MAX") and dtype.is_int_unsigned():
        name = f"U{name}"
    operation = getattr(_ir.ATOMIC_OP, name, None)
    if operation is None:
        raise unsupported(f"the atomic {name.lower()} through a tensor descriptor")
    pointers, mask = descriptor.materialize_pointers(indices)
    self.create_atomic_rmw(operation, pointers, value, mask, _ir.MEM_SEMANTIC.RELAXED, None)


def _descriptor_pointers(self: Any, offsets: Any) -> Any:
    """Addresses of a block and where they are inside; the original rejects offsets that TMA takes."""
    element = self.base.dtype.element_ty
    size = element.primitive_bitwidth // 8
    addresses = np.broadcast_to(self.base.data, self.block_shape)
    mask = np.ones(self.block_shape, dtype=bool)
    for dimension, extent in enumerate(self.block_shape):
        shape = [1] * len(self.block_shape)
        shape[dimension] = extent
        at = (offsets[dimension].data.astype(np.int64) + np.arange(extent)).reshape(shape)
        addresses = addresses + (size * at * self.strides[dimension].data.astype(np.int64)).astype(np.uint64)
        mask = mask & (at >= 0) & (at < self.shape[dimension].data)
    return Handle(addresses, self.base.dtype.scalar), Handle(mask, tl.int1)


def _validate(self: Any) -> None:
    """What TMA asks of a tensor, in bytes; some versions count elements."""
    size = self.base.dtype.element_ty.primitive_bitwidth // 8
    if self.base.data.item() % 16:
        raise ValueError("a tensor descriptor's base must be aligned to 16 bytes")
    if any(stride.data.item() * size % 16 for stride in self.strides[:-1]):
        raise ValueError("a tensor descriptor's strides must be multiples of 16 bytes, the last one aside")
    if self.strides[-1].data.item() != 1:
        raise ValueError("a tensor descriptor's last dimension must be contiguous")
