# pyright: basic
# torch ships incomplete types.
"""Tensors on their way to another process without a copy in between: sealed memory files and exported GPU memory.

A hundred megabytes through a socket take a third of a second; the same as GPU memory whose handle is passed takes two
milliseconds (H200). The receiver copies at once into memory of its own where the sender may still write to what it
shared; of a sealed file it takes pages as it reads, and copies those that it writes to.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import mmap
import os
import warnings
import weakref
from typing import NamedTuple

import torch

from .cuda_context import call, synchronize

INLINE_BYTES = 256 << 10
"""Smaller blobs travel inside the frame."""
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
# cuda.h
PINNED = 1
DEVICE = 1
POSIX_DESCRIPTOR = 1
READ_WRITE = 3
MINIMUM_GRANULARITY = 0
# sys/mman.h
MAP_FAILED = ctypes.c_void_p(-1).value
_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p


class Shared(NamedTuple):
    """A blob outside the frame. The descriptor belongs to whoever holds this."""

    descriptor: int
    size_bytes: int
    kind: str
    """``memory`` (a sealed memory file) or ``device`` (exported GPU memory)."""


def to_memory(flat: torch.Tensor) -> Shared:
    """A sealed memory file with the bytes of a flat uint8 CPU tensor: nobody can change or shorten it any more."""
    size = flat.numel()
    descriptor = os.memfd_create("tritonforge-values", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    # Written, not mapped and copied: that takes half the time, as no page has to be faulted in.
    contents, written = memoryview((ctypes.c_char * size).from_address(flat.data_ptr())), 0
    while written < size:
        written += os.write(descriptor, contents[written:])
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    return Shared(descriptor, size, "memory")


def from_memory(shared: Shared, device: str) -> torch.Tensor:
    """A flat uint8 tensor of one's own with a memory file's bytes."""
    if device == "cpu" and _is_settled(shared):
        return _mapped_privately(shared)
    with mmap.mmap(shared.descriptor, shared.size_bytes, access=mmap.ACCESS_READ) as mapping:
        with warnings.catch_warnings():
            # Nothing writes to it: it is copied.
            warnings.simplefilter("ignore", UserWarning)
            source = torch.frombuffer(mapping, dtype=torch.uint8)
        copied = source.to(device, copy=True)
        if copied.is_cuda:
            synchronize()
        del source
    return copied


def _is_settled(shared: Shared) -> bool:
    """Whether the file is as long as was said, and sealed; a kernel's worker may send any other."""
    try:
        seals = fcntl.fcntl(shared.descriptor, fcntl.F_GET_SEALS)
    except OSError:
        # No memory file.
        return False
    return seals & SEALS == SEALS and 0 < shared.size_bytes <= os.fstat(shared.descriptor).st_size


def _mapped_privately(shared: Shared) -> torch.Tensor:
    # Python's own mmap keeps a copy of the descriptor open as long as the tensor lives.
    size = ctypes.c_size_t(shared.size_bytes)
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = _C.mmap(None, size, access, mmap.MAP_PRIVATE, shared.descriptor, ctypes.c_long(0))
    if address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), "a memory file can't be mapped")
    memory = (ctypes.c_char * shared.size_bytes).from_address(address)
    # Not at the process' end: a thread may still read from it.
    weakref.finalize(memory, _C.munmap, ctypes.c_void_p(address), size).atexit = False
    return torch.frombuffer(memory, dtype=torch.uint8)


def to_device(flat: torch.Tensor) -> Shared:
    """GPU memory, exported, with the bytes of a flat uint8 tensor on it (cuMemExportToShareableHandle)."""
    size = flat.numel()
    allocated = _rounded(size, flat.device.index)
    handle, descriptor = ctypes.c_ulonglong(), ctypes.c_int()
    properties = _properties(flat.device.index)
    call(
        "cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(allocated), ctypes.byref(properties), ctypes.c_ulonglong()
    )
    try:
        with _Mapped(handle, allocated, flat.device.index) as pointer:
            _view(pointer, size, flat.device).copy_(flat)
            synchronize()
        call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, POSIX_DESCRIPTOR, ctypes.c_ulonglong())
    finally:
        # The exported descriptor keeps the memory alive.
        call("cuMemRelease", handle)
    os.set_inheritable(descriptor.value, False)
    return Shared(descriptor.value, size, "device")


def from_device(shared: Shared, device: str) -> torch.Tensor:
    """A flat uint8 tensor of one's own with the bytes of exported GPU memory.

    Raises:
        RuntimeError: what was sent is no GPU memory, or less than was said.
    """
    place = torch.device(device)
    allocated = _rounded(shared.size_bytes, place.index)
    handle = ctypes.c_ulonglong()
    descriptor = ctypes.c_void_p(shared.descriptor)
    call("cuMemImportFromShareableHandle", ctypes.byref(handle), descriptor, POSIX_DESCRIPTOR)
    try:
        with _Mapped(handle, allocated, place.index) as pointer:
            own = _view(pointer, shared.size_bytes, place).clone()
            synchronize()
    finally:
        call("cuMemRelease", handle)
    return own


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class _Mapped:
    """An allocation mapped into this process' GPU address space."""

    def __init__(self, handle: ctypes.c_ulonglong, size: int, device: int) -> None:
        self._handle, self._size, self._device = handle, ctypes.c_size_t(size), device
        self._pointer = ctypes.c_ulonglong()
        self._mapped = False

    def __enter__(self) -> int:
        zero = ctypes.c_ulonglong()
        call("cuMemAddressReserve", ctypes.byref(self._pointer), self._size, ctypes.c_size_t(), zero, zero)
        try:
            call("cuMemMap", self._pointer, self._size, ctypes.c_size_t(), self._handle, zero)
            self._mapped = True
            access = _Access(_Location(DEVICE, self._device), READ_WRITE)
            call("cuMemSetAccess", self._pointer, self._size, ctypes.byref(access), ctypes.c_size_t(1))
        except RuntimeError:
            self.__exit__()
            raise
        return self._pointer.value

    def __exit__(self, *_: object) -> None:
        if self._mapped:
            call("cuMemUnmap", self._pointer, self._size)
        call("cuMemAddressFree", self._pointer, self._size)


class _Pointer:
    """What torch reads to wrap memory that it did not allocate."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 3}


def _view(pointer: int, size: int, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(_Pointer(pointer, size), device=device)


def _properties(device: int) -> _Properties:
    return _Properties(PINNED, POSIX_DESCRIPTOR, _Location(DEVICE, device), None)


@functools.cache
def _granularity(device: int) -> int:
    found = ctypes.c_size_t()
    properties = _properties(device)
    call("cuMemGetAllocationGranularity", ctypes.byref(found), ctypes.byref(properties), MINIMUM_GRANULARITY)
    return found.value


def _rounded(size: int, device: int) -> int:
    granularity = _granularity(device)
    return -(-size // granularity) * granularity
