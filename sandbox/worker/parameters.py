# pyright: basic
# torch and triton ship incomplete types.
"""What a compiled kernel is given at a launch, parameter by parameter, as Triton's own launcher passes it on.

A launch names all arguments of the Python function. Constants are no parameters; tuples are flattened; a tensor
descriptor becomes what `make_tensordesc_arg` says; the last ones are the kernel's scratch memory and, in all but the
oldest Triton, the profiler's.
"""

from __future__ import annotations

import contextlib
import operator
import struct
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple

from triton.runtime.driver import driver

from . import versions

INTEGERS = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u1": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8}
"""Bytes of each type."""
FLOATS = {"fp16": "<e", "bf16": "<f", "fp32": "<f", "f32": "<f", "fp64": "<d"}
TENSOR_MAP = "nvTmaDesc"


class Unpackable(Exception):
    """An argument that a replay can't be given; the message is a line."""


class TensorMap(NamedTuple):
    """A host-side TMA descriptor: what cuTensorMapEncodeTiled is asked for, the innermost dimension last."""

    address: int
    swizzle: int
    element_bytes: int
    element_type: int
    box: list[int]
    shape: list[int]
    strides: list[int]
    padding: int


class Parameter(NamedTuple):
    """One parameter of a kernel."""

    kind: str
    """Triton's name of the type: ``*fp32``, ``i32``, ``nvTmaDesc``."""
    value: Any


def parameters(kernel: Any, arguments: Iterable[Any]) -> Iterator[Parameter]:
    """Those that a launch passes for the function's arguments, scratch memory aside.

    Raises:
        Unpackable: there is one that Triton takes, but a replay can't be given.
    """
    maps = versions.tensor_maps(kernel.metadata)
    for kind, value in zip(kernel.src.signature.values(), arguments, strict=False):
        if isinstance(kind, str) and kind.startswith("tensordesc"):
            yield from _descriptor(kind, value, maps.pop(0) if maps else None)
        else:
            yield from _flat(kind, value)


def bits(parameter: Parameter) -> tuple[str, int]:
    """A number's type and its bits as the launcher packs it.

    Raises:
        Unpackable: it is no number of a known type.
    """
    kind, value = parameter
    try:
        if kind in INTEGERS:
            return kind, operator.index(value) & ((1 << 8 * INTEGERS[kind]) - 1)
        if kind in FLOATS:
            packed = struct.pack(FLOATS[kind], float(value))
            # Triton cuts the lower half of a float32 off.
            return kind, int.from_bytes(packed[2:] if kind == "bf16" else packed, "little")
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise Unpackable(f"a {type(value).__name__} where the kernel takes {kind}") from error
    raise Unpackable(f"an argument of the type {kind}")


def _flat(kind: Any, value: Any) -> Iterator[Parameter]:
    if isinstance(kind, tuple | list):
        for inner, item in zip(kind, value, strict=True):
            yield from _flat(inner, item)
    elif kind == TENSOR_MAP:
        raise Unpackable("a TMA descriptor that was encoded beforehand")
    elif kind != "constexpr":
        yield Parameter(kind, value)


def _descriptor(kind: str, value: Any, meta: Any) -> Iterator[Parameter]:
    """A `TensorDescriptor` is passed as a tensor map or as its base, and then as shape and strides."""
    dimensions = kind[kind.index("[") : kind.index("]")].count(",") + 1
    made: list[TensorMap] = []
    with _encoding_to(made):
        given = versions.descriptor_arguments(value, meta)
    if made:
        yield Parameter(TENSOR_MAP, made[0])
        kinds: list[str] = []
    else:
        yield Parameter("*", given[0])
        kinds = ["i64"] * (2 * dimensions) + ["i1"] * versions.descriptor_flags(given, dimensions)
    kinds += ["i32"] * dimensions + ["i64"] * dimensions
    for inner, item in zip(kinds, given[1:], strict=True):
        yield Parameter(inner, item)


@contextlib.contextmanager
def _encoding_to(made: list[TensorMap]) -> Generator[None]:
    """Within this context nothing is encoded: what was asked for is appended."""

    class Utils:
        @staticmethod
        def fill_tma_descriptor(*args: Any) -> None:
            address, swizzle, element_bytes, element_type, box, shape, strides, padding = versions.encoding(args)
            made.append(
                TensorMap(address, swizzle, element_bytes, element_type, list(box), list(shape), list(strides), padding)
            )

        fill_tma_descriptor_tiled = fill_tma_descriptor

        @staticmethod
        def fill_tma_descriptor_im2col(*args: Any) -> None:
            raise Unpackable("a TMA descriptor that reads images (im2col)")

    active: Any = driver.active
    was, active.utils = active.utils, Utils
    try:
        yield
    finally:
        active.utils = was
