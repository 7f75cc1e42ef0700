# pyright: basic
# torch ships incomplete types.
"""A case's inputs with other contents, or lying in memory in another way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import values
from .reference import arguments, is_inexact, mapped, widened

SCALED = ("large", "tiny")
"""Variants that need a scale."""

LARGE = (2.0**8, 2.0**4)
"""Factors for large inputs; the first that a task can bear is taken. With more, kernels that are right on all inputs in
use fail: `exp2(x * c - m)`, where m is the largest `x * c`, is one fused multiply-add on a GPU, and leaves the rounding
error of m, which for m beyond 2^30 is more than exp2 can bear."""
NARROW_LARGE = (2.0**6, 2.0**3)
"""The same where an input's type ends below `NARROW_LIMIT`."""
TINY = tuple(2.0**-power for power in (40, 20, 8, 4))
NARROW_TINY = tuple(2.0**-power for power in (10, 6, 3))
NARROW_LIMIT = 1e6

SHIFT = 4.0
"""What is added: hardly any normally distributed number is negative then, and their mean is far from 0."""

SPECIAL_LEAST = 8
"""Tensors with fewer elements stay finite where there are larger ones: where a scale is NaN, so is everything else."""

_UNSIGNED = (getattr(torch, "float8_e8m0fnu", None), getattr(torch, "float4_e2m1fn_x2", None))
"""Types of scales and of packed values, which have no zero or no arithmetic: they stay as they are."""


def vary(inputs: Any, variant: str, scale: float | None = None) -> Any:
    """The inputs with other contents in their floating (and complex) tensors; shapes and strides stay.

    Integers and booleans, which are indices or masks, are never changed. The result shares no memory with ``inputs``,
    except that ``random`` is the inputs themselves.

    Args:
        variant: ``random``, ``zeros``, ``ones``, ``ramp`` (-1 to 1 in the order of memory), ``shifted`` (by `SHIFT`),
            ``large`` or ``tiny`` (times ``scale``), ``negative_zero`` (every second element), ``denormals`` (half of
            the type's smallest normal number times a ramp), ``nan`` or ``inf`` (at most three elements a tensor).
        scale: for `SCALED`.
    """
    if variant == "random":
        return inputs
    changed = values.copy(inputs)
    tensors = [tensor for tensor in values.tensors(changed) if is_changed(tensor)]
    if variant in ("nan", "inf"):
        tensors = [tensor for tensor in tensors if tensor.numel() >= SPECIAL_LEAST] or tensors
    for tensor in tensors:
        flat = memory(tensor)
        _CONTENTS[variant](torch.view_as_real(flat) if flat.is_complex() else flat, scale)
    return changed


def nudged(inputs: Any, seed: int) -> Any:
    """The inputs, each floating element moved by up to four roundings of 1 or of its tensor's largest, if that is more.

    Elements that were equal are so no longer, nor are their exponentials and the like.
    """
    changed = values.copy(inputs)
    for tensor in values.tensors(changed):
        if is_changed(tensor):
            flat = memory(tensor)
            _nudge(torch.view_as_real(flat) if flat.is_complex() else flat, seed)
    return changed


def jittered(inputs: Any, seed: int) -> Any:
    """The inputs in double precision, each element off by up to four roundings of float32 (float64 if it was that)."""
    generators: dict[torch.device, torch.Generator] = {}

    def jitter(tensor: torch.Tensor) -> torch.Tensor:
        if not is_changed(tensor):
            return tensor
        wide = widened(tensor)
        if tensor.device not in generators:
            generators[tensor.device] = torch.Generator(tensor.device).manual_seed(seed)
        real = torch.float64
        drawn = torch.rand(wide.shape, generator=generators[tensor.device], dtype=real, device=tensor.device)
        step = 2.0**-51 if tensor.dtype in (torch.float64, torch.complex128) else 2.0**-22
        return wide.detach() * (1 + (2 * drawn - 1) * step)

    return mapped(inputs, jitter)


def is_changed(tensor: torch.Tensor) -> bool:
    """Whether variants change a tensor."""
    return is_inexact(tensor) and tensor.dtype not in _UNSIGNED and tensor.numel() > 0


def scales(inputs: Any, variant: str) -> tuple[float | None, ...]:
    """The scales to try for a variant, the boldest first."""
    if variant not in SCALED:
        return (None,)
    limits = [torch.finfo(tensor.dtype).max for tensor in values.tensors(inputs) if is_changed(tensor)]
    narrow = min(limits, default=NARROW_LIMIT) < NARROW_LIMIT
    if variant == "tiny":
        return NARROW_TINY if narrow else TINY
    return NARROW_LARGE if narrow else LARGE


def lay_out(inputs: Any, layout: str, in_place: Sequence[str], names: Sequence[str]) -> Any:
    """The inputs with the same contents, lying in memory in another way.

    Args:
        layout: ``plain``; ``strided``: the elements of each tensor lie twice as far apart, and between them NaN or, for
            integers, other elements of the tensor; ``broadcast``: each tensor with two or more dimensions repeats its
            first row, all in the same place. ``offset`` is made where a kernel runs, and is ``plain`` here.
        in_place: arguments that are written to, and so never broadcast.
        names: parameters of the reference, where arguments are positional.
    """
    if layout in ("plain", "offset"):
        return inputs
    change = _LAYOUTS[layout]
    kept = in_place if layout == "broadcast" else ()
    laid = [value if name in kept else mapped(value, change) for _, name, value in arguments(inputs, names)]
    return dict(zip(inputs, laid, strict=True)) if isinstance(inputs, dict) else tuple(laid)


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of storage from a tensor's first to its last, as one dimension."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.as_strided((values.size_bytes(plain) // plain.element_size(),), (1,), plain.storage_offset())


def between(tensor: torch.Tensor) -> torch.Tensor:
    """What lies in memory between a tensor's elements, as one dimension."""
    flat = memory(tensor)
    # Elements in the same place, one of which is enough.
    shape = [size if stride else min(size, 1) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    if flat.numel() <= math.prod(shape):
        return flat[:0]
    gap = torch.ones(flat.numel(), dtype=torch.bool, device=flat.device)
    gap.as_strided(shape, tensor.stride()).fill_(False)
    return flat[gap]


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim == 0 or tensor.numel() == 0:
        return tensor
    flat = memory(tensor)
    spread = torch.empty(2 * flat.numel(), dtype=flat.dtype, device=flat.device)
    # As bytes, which every type has: each element, then one of the others. Indices there must be sound too.
    pairs = spread.view(torch.uint8).view(flat.numel(), 2, flat.element_size())
    elements = flat.view(torch.uint8).view(flat.numel(), flat.element_size())
    pairs[:, 0], pairs[:, 1] = elements, elements.flip(0)
    if is_changed(tensor):
        spread[1::2] = float("nan")
    strides = [2 * stride for stride in tensor.stride()]
    return spread.as_strided(tensor.shape, strides).requires_grad_(tensor.requires_grad)


def _broadcast(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim < 2 or tensor.numel() == 0:
        return tensor
    row = values.copy(tensor.detach()[0])
    return row.expand(tensor.shape).requires_grad_(tensor.requires_grad)


_LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"strided": _strided, "broadcast": _broadcast}


def _ramp(flat: torch.Tensor, height: float = 1.0) -> None:
    dtype = torch.float64 if flat.dtype == torch.float64 else torch.float32
    flat.copy_((torch.linspace(-1.0, 1.0, flat.numel(), dtype=dtype, device=flat.device) * height).view(flat.shape))


def _scaled(flat: torch.Tensor, scale: float | None) -> None:
    assert scale is not None
    _arithmetic(flat, lambda wide: wide * scale)


def _arithmetic(flat: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    # There is no arithmetic of one byte.
    flat.copy_(change(flat.to(torch.float32) if flat.element_size() == 1 else flat))


def _nudge(flat: torch.Tensor, seed: int) -> None:
    limits = torch.finfo(flat.dtype)
    wide = flat.to(torch.float64)
    largest = wide.abs().nan_to_num(0.0, 0.0, 0.0).max()
    generator = torch.Generator(flat.device).manual_seed(seed)
    random = torch.rand(flat.shape, generator=generator, dtype=torch.float64, device=flat.device) * 2 - 1
    step = 4 * limits.eps * largest.clamp(min=1.0)
    flat.copy_((wide + random * step).clamp(limits.min, limits.max))


def _every_second(flat: torch.Tensor, value: float) -> None:
    flat.view(-1)[::2] = value


def _some(flat: torch.Tensor, *fill: float) -> None:
    count = flat.numel()
    for place, value in zip(sorted({count // 3, count // 2, count - 1}), fill, strict=False):
        flat.view(-1)[place] = value


_CONTENTS: dict[str, Callable[[torch.Tensor, float | None], Any]] = {
    "zeros": lambda flat, _: flat.copy_(torch.zeros((), device=flat.device)),
    "ones": lambda flat, _: flat.copy_(torch.ones((), device=flat.device)),
    "ramp": lambda flat, _: _ramp(flat),
    "shifted": lambda flat, _: _arithmetic(flat, lambda wide: wide + SHIFT),
    "large": _scaled,
    "tiny": _scaled,
    "negative_zero": lambda flat, _: _every_second(flat, -0.0),
    "denormals": lambda flat, _: _ramp(flat, torch.finfo(flat.dtype).smallest_normal / 2),
    "nan": lambda flat, _: _some(flat, float("nan"), float("nan"), float("nan")),
    "inf": lambda flat, _: _some(flat, float("inf"), float("-inf"), float("inf")),
}

STRUCTURED = tuple(name for name in _CONTENTS if name not in ("nan", "inf"))
"""Variants without special values."""
PLAIN = tuple(name for name in STRUCTURED if name not in (*SCALED, "denormals"))
"""Those that the reference computes well enough at its own precision."""
