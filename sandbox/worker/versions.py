# pyright: basic
# triton ships incomplete types.
"""Where the versions of Triton that workers meet differ, from the oldest to the newest: all of it, and nothing else.

A difference is looked for where it is, not told from a version's number. What is here is for this project's own code;
a kernel file meets its Triton as it is.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

OLDEST = (3, 4)
_INLINE_ASSEMBLY = re.compile(r"// begin inline asm\n.*?// end inline asm", re.DOTALL)
_POSITION = re.compile(r"^[ \t]*\.loc[ \t].*\n", re.MULTILINE)


def async_compile() -> ModuleType | None:
    """Triton's own way to compile kernels side by side; None up to 3.5, where each is compiled when it is launched.

    3.4 has none, and that of 3.5 does not pass over a kernel that can't be compiled.
    """
    try:
        from triton.runtime import _async_compile
    except ImportError:
        return None
    passes_over = "ignore_errors" in inspect.signature(_async_compile.AsyncCompileMode).parameters
    return _async_compile if passes_over else None


def keep_lines() -> None:
    """From now on NVIDIA kernels are compiled with the right lines; further calls do nothing.

    Since 3.8 LLVM counts the lines of inline assembly as lines of the kernel, so that a load seems to be on the line
    after its own, in PTX and in what ptxas makes of it. Nothing but positions changes.
    """
    from triton.backends.nvidia.compiler import CUDABackend

    original = CUDABackend.make_ptx
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def make_ptx(*args: Any, **kwargs: Any) -> str:
        return without_inner_lines(original(*args, **kwargs))

    CUDABackend.make_ptx = make_ptx


def without_inner_lines(ptx: str) -> str:
    """PTX whose inline assembly has the position that it begins at."""
    return _INLINE_ASSEMBLY.sub(lambda block: _POSITION.sub("", block[0]), ptx)


def cluster(metadata: Any) -> tuple[int, int, int]:
    """Blocks of a cluster in each dimension; since 3.6 only their product is told, and they lie along the first."""
    x, y, z = getattr(metadata, "cluster_dims", None) or (metadata.num_ctas, 1, 1)
    # Where a kernel has no clusters, the dimensions mean nothing.
    return (x, y, z) if metadata.num_ctas != 1 else (1, 1, 1)


def profiler_bytes(metadata: Any) -> int | None:
    """Scratch memory for Triton's profiler; None in 3.4, whose kernels have no parameter for it."""
    return getattr(metadata, "profile_scratch_size", None)


def tensor_maps(metadata: Any) -> list[Any]:
    """How each host-side descriptor is to be encoded; none where they are passed as a base, shape and strides."""
    return list(getattr(metadata, "tensordesc_meta", None) or ())


def descriptor_arguments(value: Any, tensor_map: Any) -> list[Any]:
    """What Triton's launcher passes for a host-side descriptor, made by its active driver's helpers."""
    from triton.backends.nvidia import driver

    make = driver.make_tensordesc_arg
    # Since 3.8 it is given the launch as well, and does not look at it.
    more = len(inspect.signature(make).parameters) - 2
    return list(make(value, tensor_map, *[None] * more))


def descriptor_flags(given: Sequence[Any], dimensions: int) -> int:
    """Truth values in a descriptor that is passed in parts: none in 3.4, one since 3.5, two since 3.7."""
    return len(given) - 1 - 4 * dimensions


def encoding(arguments: Sequence[Any]) -> Sequence[Any]:
    """What a tensor map is encoded from: address, swizzle, bytes and type of elements, box, shape, strides, padding.

    In 3.4 the driver's helper is also told where to, first, and not what is read outside of the tensor.
    """
    plain = len(arguments) == 8 and not isinstance(arguments[-1], list | tuple)
    return arguments if plain else (*arguments[1:], 0)


def has_block_pointers(builder: Any) -> bool:
    """Whether the interpreter's builder meets block pointers: up to 3.7; since 3.9 Triton has none at all."""
    return hasattr(builder, "create_tensor_pointer_load")


def padding(descriptor: Any) -> Any:
    """What the interpreter reads outside of a descriptor's tensor; None in 3.4, where it is always zero."""
    return getattr(descriptor, "padding", None)
