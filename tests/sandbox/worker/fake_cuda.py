# pyright: basic
# torch ships incomplete types.
"""A stand-in for libcuda that runs a few known kernels on the CPU, and remembers what it was asked."""

import ctypes
from typing import Any, NamedTuple

import torch

INVALID_VALUE = 1
OUT_OF_RESOURCES = 701
P, N, L, B = 8, 4, 8, 1
"""A pointer, a short and a long number, a flag."""
SIZES = {
    "double": [P, P, N, P, P],
    "histogram": [P, P, N, P, P],
    "numbers": [P, N, L, L, N, B, P, P],
    "strided": [P, P, N, N, N, P, P],
    "product": [P, P, P, P, P],
    "described_here": [P, P, N, N, P, P],
    "described_there": [128, N, N, L, L, 128, N, N, L, L, P, P],
    "summed": [P, P, P, N, P, P],
    "double_at": [L, P, N, P, P],
    "tuned_kernel": [P, P, N, P, P],
}
"""Bytes of each kernel's parameters."""


class Launched(NamedTuple):
    """One launch as the driver got it."""

    symbol: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    attributes: list[tuple[int, list[int]]]
    parameters: list[bytes]


class FakeCuda:
    """Has the functions of libcuda that a replay calls; modules and functions are numbers."""

    def __init__(self, config: Any, sizes: dict[str, list[int]] | None = None) -> None:
        self._config = config
        self._sizes = sizes or SIZES
        self.modules: list[bytes] = []
        self.functions: list[str] = []
        self.launched: list[Launched] = []
        self.asked: list[tuple[Any, ...]] = []
        self.encoded: list[tuple[Any, ...]] = []
        self.code = 0
        # Functions of a library take attributes, which methods don't.
        self.cuLaunchKernelEx = lambda *arguments: self._launch(*arguments)

    def cuModuleLoadData(self, module: Any, code: Any) -> int:
        self.modules.append(code.value)
        module._obj.value = len(self.modules)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: Any) -> int:
        self.functions.append(name.value.decode())
        function._obj.value = len(self.functions)
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: int, device: int) -> int:
        value._obj.value = {97: 232_448}[number]
        return 0

    def cuDriverGetVersion(self, value: Any) -> int:
        value._obj.value = 13_000
        return 0

    def cuFuncSetCacheConfig(self, function: Any, config: int) -> int:
        self.asked.append(("cache", self._name(function), config))
        return 0

    def cuFuncGetAttribute(self, value: Any, number: int, function: Any) -> int:
        assert number == 1
        value._obj.value = 16
        return 0

    def cuFuncSetAttribute(self, function: Any, number: int, value: int) -> int:
        self.asked.append(("attribute", self._name(function), number, value))
        return 0

    def cuFuncGetParamInfo(self, function: Any, index: Any, offset: Any, size: Any) -> int:
        sizes = self._sizes[self._name(function)]
        if index.value >= len(sizes):
            return INVALID_VALUE
        size._obj.value = sizes[index.value]
        return 0

    def cuGetErrorName(self, code: int, text: Any) -> int:
        text._obj.value = {OUT_OF_RESOURCES: b"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}[code]
        return 0

    def cuTensorMapEncodeTiled(self, target: Any, kind: int, rank: Any, address: Any, *rest: Any) -> int:
        shape, strides, box = (list(values)[: rank.value] for values in rest[:3])
        self.encoded.append((kind, address.value, shape, strides[: rank.value - 1], box, *rest[4:]))
        assert target.value % 128 == 0
        words = (ctypes.c_uint64 * 16).from_address(target.value)
        words[0], words[1] = address.value, 1 << 21
        return 0

    def _name(self, function: Any) -> str:
        return self.functions[function.value - 1]

    def _launch(self, config_at: int, function: int, parameters_at: int, extra: None) -> int:
        if self.code:
            return self.code
        config, symbol = self._config.from_address(config_at), self.functions[function - 1]
        sizes = self._sizes[symbol]
        addresses = (ctypes.c_void_p * len(sizes)).from_address(parameters_at)
        parameters = [ctypes.string_at(address or 0, size) for address, size in zip(addresses, sizes, strict=True)]
        attributes = [
            (config.attributes[i].id, list(config.attributes[i].value)[:3]) for i in range(config.attributes_count)
        ]
        self.launched.append(
            Launched(symbol, tuple(config.grid), tuple(config.block), config.shared_bytes, attributes, parameters)
        )
        if symbol in KERNELS:
            KERNELS[symbol](*(int.from_bytes(parameter[:8], "little") for parameter in parameters))
        return 0


def memory(address: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    """What lies at an address."""
    data = (ctypes.c_char * (elements * dtype.itemsize)).from_address(address)
    return torch.frombuffer(data, dtype=dtype)


def _double(x: int, out: int, n: int, *_: int) -> None:
    memory(out, n, torch.float32).copy_(memory(x, n, torch.float32) * 2)


def _double_square(x: int, out: int, rows: int, cols: int, scratch: int, _: int) -> None:
    # Triton writes its descriptors there.
    memory(scratch, 1024, torch.uint8).fill_(7)
    _double(x, out, rows * cols)


def _double_described(x: int, *rest: int) -> None:
    _double(x, rest[4], rest[0] * rest[1])


def _histogram(x: int, bins: int, n: int, *_: int) -> None:
    memory(bins, 16, torch.int32).add_(torch.bincount(memory(x, n, torch.int32), minlength=16))


def _numbers(out: int, *values: int) -> None:
    signed = [value - (1 << 64) if value >= 1 << 63 else value for value in values[:5]]
    small = signed[0] - (1 << 32) if signed[0] >= 1 << 31 else signed[0]
    memory(out, 5, torch.int64).copy_(torch.tensor([small, *signed[1:]]))


def _strided(x: int, out: int, rows: int, cols: int, step: int, *_: int) -> None:
    # The columns lie one after the other, and their step of one is a constant of the kernel or a parameter.
    source = memory(x, rows * cols, torch.float32).as_strided((rows, cols), (1, rows))
    memory(out, rows * cols, torch.float32).copy_((source + 1).reshape(-1))


def _product(a: int, b: int, c: int, *_: int) -> None:
    one, other = (memory(address, 128 * 128, torch.float32).view(128, 128) for address in (a, b))
    memory(c, 128 * 128, torch.float32).copy_((one @ other).view(-1))


def _summed(x: int, y: int, out: int, n: int, *_: int) -> None:
    memory(out, n, torch.float32).copy_(memory(x, n, torch.float32) + memory(y, n, torch.float32))


KERNELS: dict[str, Any] = {
    "double": _double,
    "double_at": _double,
    "tuned_kernel": _double,
    "described_here": _double_square,
    "described_there": _double_described,
    "histogram": _histogram,
    "numbers": _numbers,
    "strided": _strided,
    "product": _product,
    "summed": _summed,
}
