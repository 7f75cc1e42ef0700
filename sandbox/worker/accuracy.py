# pyright: basic
# torch ships incomplete types.
"""Sizes of outputs and of their errors as a whole: root mean squares, in double precision."""

from __future__ import annotations

import math
from typing import Any

import torch

from .differences import at_most, fetched, named_tensors, parts, pieces

SAMPLE = 1 << 16
"""Elements from which a tensor's smaller magnitudes are estimated."""

DOMINATED = 2.0**10
"""How many times larger than the rest elements on which all agree may be and still count."""

NARROW_FACTOR, WIDE_FACTOR = 4.0, 16.0
"""How many times the reference's error is allowed by default: in 16-bit and 8-bit outputs rounding of the result itself
prevails (a bfloat16 result in a float16 output errs 8 times as much); float32 and float64 show the order of a sum (TF32
errs thousands of times as much)."""

_WIDE = (torch.float32, torch.float64)
_LARGEST_SQUARED = (torch.float64, torch.complex128)
"""Types with values whose squares are no doubles."""
PLAIN_NORMS = (1e-50, 1e100)
"""Of elements whose root of a sum of squares lies between, all are finite, and no square that matters is too large or
too small for a double: nothing has to be looked at twice."""


def finiteness(tree: Any, where: str = "output") -> list[dict[str, Any]]:
    """For each floating or complex tensor ``{"where", "elements", "nan", "inf", "rms"}``.

    ``rms`` is that of the finite elements, 0.0 where there are none; complex elements count as two, as in `compare`.
    """
    tensors = {
        place: tensor
        for place, tensor in named_tensors(tree, where).items()
        if tensor.is_floating_point() or tensor.is_complex()
    }
    found: list[dict[str, Any]] = []
    for (place, tensor), (nan, inf, rms) in zip(tensors.items(), _sizes(list(tensors.values())), strict=True):
        elements = tensor.numel() * (2 if tensor.is_complex() else 1)
        found.append({"where": place, "elements": elements, "nan": nan, "inf": inf, "rms": rms})
    return found


def rms(tensor: torch.Tensor) -> float:
    """Root mean square of the finite elements, 0.0 where there are none."""
    return _sizes([tensor])[0][2]


def smaller(tensor: torch.Tensor) -> float:
    """The magnitude that nine tenths of the elements other than zeros, NaN and infinities exceed, 0.0 where none is.

    Estimated from at most `SAMPLE` elements.
    """
    flat = parts(tensor).reshape(-1)
    # An odd step, as rows mostly have an even length: the sample shall not lie in one column.
    step = max(1, -(-flat.numel() // SAMPLE)) | 1 if flat.numel() > SAMPLE else 1
    sample = flat[::step].to("cpu", torch.float64).abs()
    sample = sample[(sample > 0) & (sample < math.inf)]
    # Sorting takes six times as long.
    return sample.kthvalue(sample.numel() // 10 + 1).values.item() if sample.numel() else 0.0


def accuracy(
    exact: Any, expected: Any, got: Any, *, factor: float | None, reduction: float | None = None
) -> list[dict[str, Any]]:
    """How far floating outputs lie from exact ones, against how far the reference's own do.

    ``exact`` is a tree like ``expected`` with float64 or complex128 tensors. Each output gets ``{"where", "error",
    "reference_error", "allowed", "factor", "elements"}``: errors are root mean squares divided by that of the exact
    elements, over the elements that are finite in all three; complex elements count as two. Elements on which ``got``
    and ``expected`` agree stay out where they dwarf the others (masks such as -1e9, which would hide every error).
    Outputs that are missing, of another shape or dtype, zero or without finite elements have no record.

    ``allowed`` is ``factor`` (by default `NARROW_FACTOR` or `WIDE_FACTOR`) times the larger of the reference's error
    and a floor: a quarter of the spacing at 1 of the output's dtype (about the root mean square error of rounding to
    nearest); for float32 and float64 sums of ``reduction`` terms, times the square root of their number (Higham & Mary
    2019, "A new approach to probabilistic rounding error analysis").
    """
    exacts, gots = named_tensors(exact, "output"), named_tensors(got, "output")
    triples = {
        place: (exacts[place], tensor, gots[place])
        for place, tensor in named_tensors(expected, "output").items()
        if place in exacts and place in gots and _is_measured(exacts[place], tensor, gots[place])
    }
    errors = _errors([_flat(*triple) for triple in triples.values()])
    return [
        _record(place, expected.dtype.to_real(), found, factor, reduction)
        for (place, (_, expected, _)), found in zip(triples.items(), errors, strict=True)
        if found is not None
    ]


def _is_measured(exact: torch.Tensor, expected: torch.Tensor, got: torch.Tensor) -> bool:
    if not (expected.is_floating_point() or expected.is_complex()) or not expected.numel():
        return False
    wide = torch.complex128 if expected.is_complex() else torch.float64
    return exact.dtype == wide and got.dtype == expected.dtype and exact.shape == expected.shape == got.shape


def _record(
    where: str,
    dtype: torch.dtype,
    found: tuple[int, float, float],
    factor: float | None,
    reduction: float | None,
) -> dict[str, Any]:
    elements, error, reference_error = found
    least = 0.25 * torch.finfo(dtype).eps
    if dtype in _WIDE:
        least *= math.sqrt(reduction) if reduction is not None else 1.0
    if factor is None:
        factor = WIDE_FACTOR if dtype in _WIDE else NARROW_FACTOR
    return {
        "where": where, "error": error, "reference_error": reference_error,
        "allowed": at_most(factor * max(reference_error, least)), "factor": factor, "elements": elements,
    }  # fmt: skip


_Flat = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Exact, expected and got elements in one dimension, on the same device."""


def _flat(exact: torch.Tensor, expected: torch.Tensor, got: torch.Tensor) -> _Flat:
    exact, expected, got = (parts(side.to(expected.device)).reshape(-1) for side in (exact, expected, got))
    return exact, expected, got


def _errors(several: list[_Flat]) -> list[tuple[int, float, float] | None]:
    """Elements that count, and the relative errors of ``got`` and of ``expected`` over them; None where there are none.

    One round trip for all, and another for those with special values or of uncommon size.
    """
    tables = [[_norms(*piece) for piece in pieces(*flats)] for flats in several]
    numbers = iter(fetched([norms for table in tables for norms in table]))
    found: list[tuple[int, float, float] | None] = []
    for flats, table in zip(several, tables, strict=True):
        plain = _plain_errors(flats[0].numel(), [next(numbers) for _ in table])
        found.append(_any_errors(*flats) if plain is None else plain)
    return found


def _norms(exact: torch.Tensor, expected: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Norms of the exact elements, of the errors of ``got`` and of ``expected``, and of the exact elements on which
    these two differ; and on how many they agree."""
    e, g = expected.to(torch.float64), got.to(torch.float64)
    agree = e == g
    norms = [torch.linalg.vector_norm(side) for side in (exact, g - exact, e - exact, exact.masked_fill(agree, 0.0))]
    return torch.stack([*norms, agree.sum()])


def _plain_errors(elements: int, rows: list[list[float]]) -> tuple[int, float, float] | None:
    """What is asked for where `_norms` say all of it: no element is special, and those that agree dwarf no others."""
    size, error, reference_error, rest = (sum(row[i] * row[i] for row in rows) for i in range(4))
    differ = elements - sum(row[4] for row in rows)
    least, most = PLAIN_NORMS
    if not (least**2 < size < most**2 and error < most**2 and reference_error < most**2):
        return None
    if rest > 0 and size / elements > DOMINATED**2 * rest / differ:
        return None
    return elements, at_most(math.sqrt(error / size)), at_most(math.sqrt(reference_error / size))


def _any_errors(*flats: torch.Tensor) -> tuple[int, float, float] | None:
    """The same for any elements."""
    scale = _scale(flats[0])
    rows = torch.stack([_squares(x, e, g, scale) for x, e, g in pieces(*flats)]).sum(0).tolist()
    every, rest = rows[:4], rows[4:]
    if rest[1] > 0 and every[1] / every[0] > DOMINATED**2 * rest[1] / rest[0]:
        every = rest
    elements, size, error, reference_error = every
    if not size > 0:
        return None
    return int(elements), at_most(math.sqrt(error / size)), at_most(math.sqrt(reference_error / size))


def _squares(exact: torch.Tensor, expected: torch.Tensor, got: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Count and sums of squares (exact, error, reference's error) of the elements that count, in units of the scale.

    Then the same four of only those on which ``got`` and ``expected`` differ.
    """
    e, g = expected.to(torch.float64), got.to(torch.float64)
    usable = (exact.abs() < math.inf) & (e.abs() < math.inf) & (g.abs() < math.inf)
    differ = usable & (e != g)
    x, e, g = ((side / scale).masked_fill_(~usable, 0.0) for side in (exact, e - exact, g - exact))
    sums = [usable.sum(), *(_square(side) for side in (x, g, e))]
    agree = ~differ
    sums += [differ.sum(), *(_square(side.masked_fill_(agree, 0.0)) for side in (x, g, e))]
    return torch.stack([number.to(torch.float64) for number in sums])


def _square(values: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(values).square()


def _scale(flat: torch.Tensor) -> torch.Tensor:
    """Largest finite magnitude, or 1 where that is 0: in its units squares neither overflow nor vanish."""
    largest = [x.abs().masked_fill_(~(x.abs() < math.inf), 0.0).max() for (x,) in pieces(flat)]
    scale = torch.stack(largest).max()
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def _sizes(tensors: list[torch.Tensor]) -> list[tuple[int, int, float]]:
    """How many NaN and infinities there are, and the root mean square of the rest.

    One round trip for all, and another for those with special values or of uncommon size.
    """
    flats = [parts(tensor).reshape(-1) for tensor in tensors]
    tables = [[_norm(piece).reshape(1) for (piece,) in pieces(flat)] for flat in flats]
    numbers = iter(fetched([norm for table in tables for norm in table]))
    found: list[tuple[int, int, float]] = []
    for flat, table in zip(flats, tables, strict=True):
        squares = sum(norm * norm for _ in table for norm in next(numbers))
        # The squares of narrower types are doubles, all of them.
        least, most = PLAIN_NORMS if flat.dtype in _LARGEST_SQUARED else (-math.inf, math.inf)
        plain = least < math.sqrt(squares) < most and flat.numel()
        found.append((0, 0, math.sqrt(squares / flat.numel())) if plain else _any_sizes(flat))
    return found


def _norm(piece: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(piece.to(torch.float64))


def _any_sizes(flat: torch.Tensor) -> tuple[int, int, float]:
    """The same of any elements."""
    if not flat.numel():
        return 0, 0, 0.0
    scale = _scale(flat) if flat.dtype in _LARGEST_SQUARED else torch.ones((), device=flat.device, dtype=torch.float64)
    sums = torch.stack([_size(piece, scale) for (piece,) in pieces(flat)]).sum(0)
    finite, nan, squares, scale = torch.cat((sums, scale.reshape(1))).tolist()
    size = scale * math.sqrt(squares / finite) if finite else 0.0
    return int(nan), flat.numel() - int(finite) - int(nan), size


def _size(piece: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    x = piece.to(torch.float64)
    finite = x.abs() < math.inf
    scaled = (x / scale).masked_fill_(~finite, 0.0)
    return torch.stack([number.to(torch.float64) for number in (finite.sum(), x.isnan().sum(), _square(scaled))])
