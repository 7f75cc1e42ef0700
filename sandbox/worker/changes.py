# pyright: basic
# torch ships incomplete types.
"""What a call may have changed: two states of arguments as pairs of leaves, and of the memory between elements."""

from __future__ import annotations

import math
from typing import Any

import torch

from . import reference, values, variants
from .differences import Pair, paired


def leaf_pairs(one: Any, other: Any, where: str) -> list[dict[str, Any] | Pair]:
    """`paired`, another structure as a record with a ``mismatch``."""
    try:
        return paired(one, other, where)
    except ValueError as error:
        return [{"where": where, "mismatch": str(error)}]


def gap_pairs(one: Any, other: Any, where: str) -> list[dict[str, Any] | Pair]:
    """What lies between the elements of two arguments' tensors, leaf by leaf."""
    both = (one, other)
    if all(isinstance(side, torch.Tensor) and _is_dense(side) for side in both) and one.dtype == other.dtype:
        return []
    gap, other_gap = (reference.mapped(side, variants.between) for side in both)
    return leaf_pairs(gap, other_gap, where)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether nothing lies in memory between a tensor's elements, as `variants.between` finds it."""
    places = [size if stride else min(size, 1) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return values.size_bytes(tensor) <= math.prod(places) * tensor.element_size()
