# pyright: basic
# torch ships incomplete types.
"""Sizes of outputs and of their errors as a whole: root mean squares, in double precision."""

from __future__ import annotations

import math
from typing import Any

import torch

from .differences import at_most, named_tensors, parts, pieces

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


def finiteness(tree: Any, where: str = "output") -> list[dict[str, Any]]:
    """For each floating or complex tensor ``{"where", "elements", "nan", "inf", "rms"}``.

    ``rms`` is that of the finite elements, 0.0 where there are none; complex elements count as two, as in `compare`.
    """
    found: list[dict[str, Any]] = []
    for place, tensor in named_tensors(tree, where).items():
        if tensor.is_floating_point() or tensor.is_complex():
            elements = tensor.numel() * (2 if tensor.is_complex() else 1)
            nan, inf, rms = _sizes(tensor)
            found.append({"where": place, "elements": elements, "nan": nan, "inf": inf, "rms": rms})
    return found


def rms(tensor: torch.Tensor) -> float:
    """Root mean square of the finite elements, 0.0 where there are none."""
    return _sizes(tensor)[2]


def smaller(tensor: torch.Tensor) -> float:
    """The magnitude that nine tenths of the elements other than zeros, NaN and infinities exceed, 0.0 where none is.

    Estimated from at most `SAMPLE` elements.
    """
    flat = parts(tensor).reshape(-1)
    # An odd step, as rows mostly have an even length: the sample shall not lie in one column.
    step = max(1, -(-flat.numel() // SAMPLE)) | 1 if flat.numel() > SAMPLE else 1
    sample = flat[::step].to("cpu", torch.float64).abs()
    sample = sample[(sample > 0) & (sample < math.inf)]
    return sample.sort().values[sample.numel() // 10].item() if sample.numel() else 0.0


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
    records = [
        _accuracy_of(place, exacts.get(place), tensor, gots.get(place), factor, reduction)
        for place, tensor in named_tensors(expected, "output").items()
    ]
    return [record for record in records if record is not None]


def _accuracy_of(
    where: str,
    exact: torch.Tensor | None,
    expected: torch.Tensor,
    got: torch.Tensor | None,
    factor: float | None,
    reduction: float | None,
) -> dict[str, Any] | None:
    wide = torch.complex128 if expected.is_complex() else torch.float64
    if (
        exact is None
        or got is None
        or exact.dtype != wide
        or not (expected.is_floating_point() or expected.is_complex())
    ):
        return None
    if got.dtype != expected.dtype or not exact.shape == expected.shape == got.shape or not expected.numel():
        return None
    found = _errors(exact, expected, got)
    if found is None:
        return None
    elements, error, reference_error = found
    dtype = parts(expected).dtype
    least = 0.25 * torch.finfo(dtype).eps
    if dtype in _WIDE:
        least *= math.sqrt(reduction) if reduction is not None else 1.0
    if factor is None:
        factor = WIDE_FACTOR if dtype in _WIDE else NARROW_FACTOR
    return {
        "where": where, "error": error, "reference_error": reference_error,
        "allowed": at_most(factor * max(reference_error, least)), "factor": factor, "elements": elements,
    }  # fmt: skip


def _errors(exact: torch.Tensor, expected: torch.Tensor, got: torch.Tensor) -> tuple[int, float, float] | None:
    """Elements that count, and the relative errors of ``got`` and of ``expected`` over them."""
    flats = [parts(tensor.to(expected.device)).reshape(-1) for tensor in (exact, expected, got)]
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


def _sizes(tensor: torch.Tensor) -> tuple[int, int, float]:
    """How many NaN and infinities there are, and the root mean square of the rest; one round trip."""
    flat = parts(tensor).reshape(-1)
    if not flat.numel():
        return 0, 0, 0.0
    scale = (
        _scale(flat) if tensor.dtype in _LARGEST_SQUARED else torch.ones((), device=flat.device, dtype=torch.float64)
    )
    sums = torch.stack([_size(piece, scale) for (piece,) in pieces(flat)]).sum(0)
    finite, nan, squares, scale = torch.cat((sums, scale.reshape(1))).tolist()
    size = scale * math.sqrt(squares / finite) if finite else 0.0
    return int(nan), flat.numel() - int(finite) - int(nan), size


def _size(piece: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    x = piece.to(torch.float64)
    finite = x.abs() < math.inf
    scaled = (x / scale).masked_fill_(~finite, 0.0)
    return torch.stack([number.to(torch.float64) for number in (finite.sum(), x.isnan().sum(), _square(scaled))])
