# pyright: basic
# torch ships incomplete types.
"""Trees of outputs side by side, piece by piece: which bits differ, and where in a tensor wrong elements lie."""

from __future__ import annotations

import dataclasses
import itertools
import math
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

CHUNK = 1 << 20
"""Elements handled at a time: bounds the memory of double-precision intermediates, at most 100 bytes an element, and
keeps them near a processor's caches (pieces four times as large took twice as long)."""
GPU_CHUNK = 1 << 24
"""On a GPU, where a piece costs some thirty launches; the facts of all pieces come to the host together."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes an element."""


def named(tree: Any, where: str) -> dict[str, Any]:
    """Every leaf of a tree (tensors, numbers and other plain values) by its place, such as ``output['y'][0]``."""
    if isinstance(tree, list | tuple):
        pairs = [(f"{where}[{i}]", item) for i, item in enumerate(tree)]
    elif isinstance(tree, dict):
        pairs = [(f"{where}[{key!r}]", item) for key, item in tree.items()]
    else:
        return {where: tree}
    return {place: leaf for name, item in pairs for place, leaf in named(item, name).items()}


def named_tensors(tree: Any, where: str) -> dict[str, torch.Tensor]:
    """Every tensor of a tree by its place, in the order of `values.tensors`."""
    return {place: leaf for place, leaf in named(tree, where).items() if isinstance(leaf, torch.Tensor)}


def parts(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a complex one's real and imaginary parts as a last dimension of two."""
    plain = (tensor.detach() if tensor.requires_grad else tensor).resolve_conj().resolve_neg()
    return torch.view_as_real(plain) if plain.is_complex() else plain


def pieces(*rows: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Tensors of the same length, cut alike along their first dimension."""
    step, length = GPU_CHUNK if rows[0].is_cuda else CHUNK, rows[0].shape[0]
    if 0 < length <= step:
        yield rows
        return
    for start in range(0, length, step):
        yield tuple(row[start : start + step] for row in rows)


def fetched(rows: Sequence[torch.Tensor]) -> list[list[float]]:
    """The numbers of some vectors, one after the other; in one round trip where all lie on the same device."""
    if len({(row.device, row.dtype) for row in rows}) > 1:
        return [row.tolist() for row in rows]
    numbers = (torch.cat(tuple(rows)) if len(rows) > 1 else rows[0]).tolist() if rows else []
    ends = list(itertools.accumulate(len(row) for row in rows))
    return [numbers[end - len(row) : end] for row, end in zip(rows, ends, strict=True)]


def at_most(number: float) -> float:
    """The number, or the largest double where it lies beyond (or is none): JSON has no infinities."""
    return number if number < sys.float_info.max else sys.float_info.max


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two tensors of the same shape and dtype, with elements, whose bits have not been compared yet."""

    where: str
    one: torch.Tensor
    other: torch.Tensor


def differing(first: Any, second: Any, where: str = "output") -> list[dict[str, Any]]:
    """The tensors and numbers of two trees whose bits are not the same; equal bits of a NaN are equal.

    Each as ``{"where", "elements": how many differ, "max_abs_difference"}``; the difference is None where no element
    that differs is finite on both sides (-0.0 and 0.0 differ by 0.0).

    Raises:
        ValueError: the trees differ in structure, shape, dtype or a value that is no number; the message says how.
    """
    return resolved([paired(first, second, where)])[0]


def paired(first: Any, second: Any, where: str) -> list[dict[str, Any] | Pair]:
    """Two trees leaf by leaf, without a look at the elements of tensors: records as from `differing`, and the pairs.

    Raises:
        ValueError: as `differing`.
    """
    ones, others = named(first, where), named(second, where)
    if alone := sorted(set(ones) ^ set(others)):
        raise ValueError(f"{alone[0]} is there only in the {'first' if alone[0] in ones else 'second'} of the two")
    records = [_differing_leaf(one, others[place], place) for place, one in ones.items()]
    return [record for record in records if record is not None]


def resolved(several: Sequence[Sequence[dict[str, Any] | Pair]]) -> list[list[dict[str, Any]]]:
    """The records of what `paired` gave, of several trees; one round trip for all pairs, and more for what differs."""
    pairs = [item for items in several for item in items if isinstance(item, Pair)]
    flags = fetched([_any_differs(pair).reshape(1) for pair in pairs])
    equal = {id(pair) for pair, (differs,) in zip(pairs, flags, strict=True) if not differs}
    return [
        [_difference(item) if isinstance(item, Pair) else item for item in items if id(item) not in equal]
        for items in several
    ]


def _differing_leaf(one: Any, other: Any, where: str) -> dict[str, Any] | Pair | None:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return _pair(one, other, where)
    if type(one) is not type(other):
        raise ValueError(f"{where} is a {type(one).__name__} at first and a {type(other).__name__} then")
    if isinstance(one, float):
        if struct.pack("d", one) == struct.pack("d", other):
            return None
        return _difference(Pair(where, *(torch.tensor(number, dtype=torch.float64) for number in (one, other))))
    if one == other:
        return None
    if isinstance(one, int) and not isinstance(one, bool):
        # Python's integers have any length.
        difference = float(min(abs(one - other), int(sys.float_info.max)))
        return {"where": where, "elements": 1, "max_abs_difference": difference}
    raise ValueError(f"{where} is {one!r} at first and {other!r} then"[:300])


def _pair(one: torch.Tensor, other: torch.Tensor, where: str) -> Pair | None:
    if one.shape != other.shape:
        raise ValueError(f"{where} has shape {tuple(one.shape)} at first and {tuple(other.shape)} then")
    if one.dtype != other.dtype:
        raise ValueError(f"{where} is {one.dtype} at first and {other.dtype} then")
    return Pair(where, one, other) if one.numel() else None


def _any_differs(pair: Pair) -> torch.Tensor:
    """Whether any bit differs, on the device."""
    one, other = (_bits(parts(side)).reshape(-1) for side in _sides(pair))
    found = [(a != b).any() for a, b in pieces(one, other)]
    return found[0] if len(found) == 1 else torch.stack(found).any()


def _sides(pair: Pair) -> tuple[torch.Tensor, torch.Tensor]:
    return pair.one, pair.other.to(pair.one.device)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    dtype = _INTEGERS[tensor.element_size()]
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def _difference(pair: Pair) -> dict[str, Any]:
    """The record of a pair that differs."""
    # One row an element: complex ones have two parts.
    split = 2 if pair.one.is_complex() else 1
    rows, other_rows = (parts(side).reshape(-1, split) for side in _sides(pair))
    bits, other_bits = _bits(rows), _bits(other_rows)
    counts = [(a != b).any(1).sum() if split == 2 else (a != b).sum() for a, b in pieces(bits, other_bits)]
    largest = [_largest(*piece) for piece in pieces(rows, other_rows, bits, other_bits)]
    elements = sum(torch.stack(counts).tolist())
    largest = torch.stack([_largest(*piece) for piece in pieces(rows, other_rows, bits, other_bits)]).max().item()
    difference = at_most(largest) if largest >= 0 else None
    return {"where": pair.where, "elements": elements, "max_abs_difference": difference}


def _largest(a: torch.Tensor, b: torch.Tensor, bits: torch.Tensor, other_bits: torch.Tensor) -> torch.Tensor:
    """Largest difference of elements whose bits differ and which are finite on both sides; -1.0 where none is."""
    x, y = a.to(torch.float64), b.to(torch.float64)
    counted = (bits != other_bits) & (x.abs() < math.inf) & (y.abs() < math.inf)
    difference = (x - y).abs_()
    if not a.is_floating_point():
        # Beyond 2^53 doubles may agree where the integers don't.
        difference.clamp_(min=1.0)
    return difference.masked_fill_(~counted, -1.0).max()


def clusters(wrong: torch.Tensor, shape: torch.Size) -> list[dict[str, Any]]:
    """Where wrong elements lie along each dimension of a tensor of ``shape``.

    ``wrong`` is a flat mask of all elements in order, with at least one set. Each dimension gets ``{"dim", "size",
    "wrong": its coordinates with any wrong element, "first", "last", "step"}``; ``step`` is the largest s >= 2 such
    that more than two wrong coordinates lie at first + k s and none elsewhere, else None.
    """
    found: list[dict[str, Any]] = []
    for dim, size in enumerate(shape):
        inner = math.prod(shape[dim + 1 :])
        hit = wrong.view(-1, size, inner).any(2).any(0).nonzero().flatten()
        first, last = hit[:: max(hit.numel() - 1, 1)].tolist()[:2] if hit.numel() > 1 else [hit.item()] * 2
        step = _step(hit - first) if hit.numel() > 2 else None
        found.append({"dim": dim, "size": size, "wrong": hit.numel(), "first": first, "last": last, "step": step})
    return found


def _step(offsets: torch.Tensor) -> int | None:
    """The greatest common divisor of ascending offsets from 0, or None where it is 1."""
    step = int(offsets[1])
    # Each turn at least halves it: a common divisor of the step and of a remainder smaller than it.
    while step > 1 and (rest := int((offsets % step).max())):
        step = math.gcd(step, rest)
    return step if step > 1 else None
