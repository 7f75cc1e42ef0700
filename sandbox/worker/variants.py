# pyright: basic
# torch ships incomplete types.
"""A case's inputs with other contents, or lying in memory in another way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import values
from .reference import arguments, is_inexact, mapped

SCALED = ("large", "tiny")
"""Variants that need a scale."""

SCALES = tuple(2.0**power for power in (40, 20, 8, 4))
"""Factors for large inputs, reciprocals of those for tiny ones; the first that a task can bear is taken."""
NARROW_SCALES = tuple(2.0**power for power in (10, 6, 3))
"""The same where an input's type ends below `NARROW_LIMIT`."""
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


def is_changed(tensor: torch.Tensor) -> bool:
    """Whether variants change a tensor."""
    return is_inexact(tensor) and tensor.dtype not in _UNSIGNED and tensor.numel() > 0


def scales(inputs: Any, variant: str) -> tuple[float | None, ...]:
    """The scales to try for a variant, the boldest first."""
    if variant not in SCALED:
        return (None,)
    limits = [torch.finfo(tensor.dtype).max for tensor in values.tensors(inputs) if is_changed(tensor)]
    found = NARROW_SCALES if min(limits, default=NARROW_LIMIT) < NARROW_LIMIT else SCALES
    return tuple(1 / factor for factor in found) if variant == "tiny" else found


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
