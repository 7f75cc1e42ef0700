# pyright: basic
# torch ships incomplete types.
"""Loads machine code and launches it through CUDA's driver, with the settings that Triton's launcher makes.

Structures and numbers are those of cuda.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from . import cuda_context
from .failures import Refused

MAX_SHARED_PER_BLOCK = 97
SHARED_SIZE = 1
MAX_DYNAMIC_SHARED = 8
NON_PORTABLE_CLUSTER = 14
PREFER_SHARED = 1
COOPERATIVE = 2
CLUSTER_DIMENSION = 4
CLUSTER_SCHEDULING = 5
PROGRAMMATIC_SERIALIZATION = 6
SPREAD = 1
INVALID_VALUE = 1
NO_INTERLEAVE = 0
PROMOTE_128_BYTES = 2
STATIC_SHARED_BYTES = 49_152
"""More dynamic shared memory has to be asked for."""
PORTABLE_CLUSTER = 8
TENSOR_MAP_BYTES = 128
TMA_DIMENSIONS = 5
SMALL_TENSOR_BYTES = 128 << 10
NEW_ENOUGH_DRIVER = 13_010


class Attribute(ctypes.Structure):
    """CUlaunchAttribute; its value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("attributes_count", ctypes.c_uint),
    )


class Driver:
    """CUDA's driver, asked for what a replay needs."""

    def __init__(self, library: Any = None) -> None:
        self._library = ctypes.CDLL("libcuda.so.1") if library is None else library
        self.launch_kernel = self._library.cuLaunchKernelEx
        """Takes the address of a `Config`, a function, the address of an array of addresses, and None."""
        # A function found in a library would convert each argument anew.
        self.launch_kernel.argtypes = (ctypes.c_void_p,) * 4

    def load(self, code: bytes, symbol: str) -> int:
        """A function of a module; the module is never unloaded.

        Raises:
            RuntimeError: the driver does not take it.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(symbol.encode()))
        return function.value or 0

    def allow(self, function: int, shared_bytes: int, cluster: Sequence[int], device: int) -> None:
        """What has to be set on a function before it is launched, as Triton sets it."""
        limit, static = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(limit), MAX_SHARED_PER_BLOCK, device)
        if shared_bytes > STATIC_SHARED_BYTES and limit.value > STATIC_SHARED_BYTES:
            self._call("cuFuncSetCacheConfig", ctypes.c_void_p(function), PREFER_SHARED)
            self._call("cuFuncGetAttribute", ctypes.byref(static), SHARED_SIZE, ctypes.c_void_p(function))
            room = limit.value - static.value
            self._call("cuFuncSetAttribute", ctypes.c_void_p(function), MAX_DYNAMIC_SHARED, room)
        if cluster[0] * cluster[1] * cluster[2] > PORTABLE_CLUSTER:
            self._call("cuFuncSetAttribute", ctypes.c_void_p(function), NON_PORTABLE_CLUSTER, 1)

    def parameter_sizes(self, function: int, limit: int) -> list[int]:
        """Bytes of each of a function's parameters, up to ``limit`` of them.

        Raises:
            Refused: this driver does not say: it is older than CUDA 12.4.
        """
        if not hasattr(self._library, "cuFuncGetParamInfo"):
            raise Refused("unsupported", "replay", "a replay needs a driver for CUDA 12.4 or newer")
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        while len(sizes) < limit:
            code = self._library.cuFuncGetParamInfo(
                ctypes.c_void_p(function), ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)
            )
            if code == INVALID_VALUE:
                break
            self.check(code, "cuFuncGetParamInfo")
            sizes.append(size.value)
        return sizes

    def encode(self, target: int, address: int, tensor_map: dict[str, Any]) -> None:
        """Write a tensor map of memory at ``address`` to 128 aligned bytes, as Triton's driver encodes it.

        Raises:
            RuntimeError: the driver does not take it.
        """
        element, box = tensor_map["element_bytes"], tensor_map["box"]
        rank = len(box)
        # Here the innermost dimension comes first, and its stride is not given.
        shape, strides = tensor_map["shape"][::-1], [element * stride for stride in tensor_map["strides"][::-1]]
        self._call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(target),
            tensor_map["element_type"],
            ctypes.c_uint(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * TMA_DIMENSIONS)(*shape),
            (ctypes.c_uint64 * TMA_DIMENSIONS)(*strides[1:]),
            (ctypes.c_uint32 * TMA_DIMENSIONS)(*box[::-1]),
            (ctypes.c_uint32 * TMA_DIMENSIONS)(*[1] * TMA_DIMENSIONS),
            NO_INTERLEAVE,
            tensor_map["swizzle"],
            PROMOTE_128_BYTES,
            tensor_map["padding"],
        )
        last = sum((size - 1) * step for size, step in zip(shape, [element, *strides[1:]], strict=True))
        if last + 1 < SMALL_TENSOR_BYTES and self._version() <= NEW_ENOUGH_DRIVER:
            # Triton since 3.7, after CUTLASS: older drivers set a bit that small tensors must not have.
            words = (ctypes.c_uint64 * 2).from_address(target)
            words[1] &= ~(1 << 21)

    def check(self, code: int, name: str) -> None:
        """
        Raises:
            RuntimeError: a call of the driver has failed.
        """
        cuda_context.check(code, name, self._library)

    def _version(self) -> int:
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def _call(self, name: str, *arguments: Any) -> None:
        self.check(getattr(self._library, name)(*arguments), name)


def attributes(cluster: Sequence[int], *, cooperative: bool, pdl: bool) -> Any:
    """The attributes of a launch, in the order in which Triton gives them."""
    found: list[Attribute] = []
    if pdl:
        found.append(_attribute(PROGRAMMATIC_SERIALIZATION, 1))
    if cooperative:
        found.append(_attribute(COOPERATIVE, 1))
    if tuple(cluster) != (1, 1, 1):
        found.append(_attribute(CLUSTER_DIMENSION, *cluster))
        found.append(_attribute(CLUSTER_SCHEDULING, SPREAD))
    return (Attribute * len(found))(*found)


def _attribute(number: int, *value: int) -> Attribute:
    return Attribute(number, 0, (ctypes.c_uint * 16)(*value))
