# pyright: basic
# torch ships incomplete types.
"""Compares outputs with expected ones, element by element, in the trusted worker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .accuracy import accuracy, finiteness, rms, smaller
from .differences import at_most, clusters, differing, named_tensors, parts, pieces

__all__ = ["Rules", "accuracy", "compare", "differing", "finiteness", "rms"]

NARROW_STEPS = 2.0
"""Spacings at the outputs' root mean square by which 16-bit results may be off: intermediates are rounded like them."""
WIDE_STEPS = 64.0
"""The same for fp32 and fp64, where the order of a sum differs: one of 4,096 terms, one after the other, errs by 42."""
SPREAD = 4.0
"""Standard deviations of a sum's rounding errors that are allowed."""


@dataclass(frozen=True)
class Rules:
    """What counts as equal.

    Args:
        tolerances: by dtype name ``{"rtol": .., "atol": ..}``.
        own: names of dtypes whose tolerance is the task's own and stays as it is.
        strides: outputs must have the expected strides too.
        reduction: terms of the sum behind each element, at least 1; None where there is no sum.
        atol_scales: the i-th expected tensor's ``atol`` is multiplied by the i-th of these (1.0 where there are fewer),
            for inputs that change the scale of the outputs. Integers keep theirs.
        slacks: by place, what is added to a floating tensor's ``atol``: on inputs that magnify roundings.
    """

    tolerances: dict[str, dict[str, float]]
    own: frozenset[str] = frozenset()
    strides: bool = False
    reduction: float | None = None
    atol_scales: Sequence[float] = field(default=())
    slacks: Mapping[str, float] = field(default_factory=dict)


def compare(expected: Any, got: Any, rules: Rules, where: str = "output") -> list[dict[str, Any]]:
    """One record an output tensor or scalar.

    A record holds either ``mismatch`` (structure, shape, dtype or strides differ: a message) or the element-wise facts
    with the tolerance that applied and, where elements are wrong, ``clusters``: where they lie along each dimension.
    """
    scales = dict(zip(named_tensors(expected, where), rules.atol_scales, strict=False))
    return _compare(expected, got, rules, scales, where)


def _compare(expected: Any, got: Any, rules: Rules, scales: dict[str, float], where: str) -> list[dict[str, Any]]:
    if isinstance(expected, torch.Tensor):
        if not isinstance(got, torch.Tensor):
            return [_mismatch(where, f"expected a tensor, got {type(got).__name__}")]
        return [_compare_tensors(expected, got, rules, scales.get(where, 1.0), where)]
    if isinstance(expected, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            return [_mismatch(where, f"expected {len(expected)} outputs, got {_shape_of(got)}")]
        items = [(f"{where}[{i}]", e, g) for i, (e, g) in enumerate(zip(expected, got, strict=True))]
        return [record for name, e, g in items for record in _compare(e, g, rules, scales, name)]
    if isinstance(expected, dict):
        if not isinstance(got, dict) or set(got) != set(expected):
            return [_mismatch(where, f"expected a dict with keys {sorted(map(str, expected))}, got {_shape_of(got)}")]
        items = [(f"{where}[{key!r}]", e, got[key]) for key, e in expected.items()]
        return [record for name, e, g in items for record in _compare(e, g, rules, scales, name)]
    if expected is None or isinstance(expected, bool | str):
        plain = got is None or isinstance(got, bool | int | float | str)
        return [] if plain and expected == got else [_mismatch(where, f"expected {expected!r}, got {_plain(got)}")]
    if isinstance(expected, int | float):
        if not isinstance(got, int | float):
            return [_mismatch(where, f"expected a number, got {type(got).__name__}")]
        return [_compare_tensors(_scalar(expected), _scalar(got), rules, 1.0, where)]
    return [_mismatch(where, f"outputs of type {type(expected).__name__} can't be compared")]


def _mismatch(where: str, message: str) -> dict[str, Any]:
    return {"where": where, "mismatch": f"{where}: {message}"}


def _shape_of(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{len(value)} outputs"
    if isinstance(value, dict):
        return f"a dict with keys {sorted(map(str, value))}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def _plain(value: Any) -> str:
    """A value in words: what was got may be long."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)[:200]
    return _shape_of(value)


def _scalar(number: float) -> torch.Tensor:
    try:
        return torch.tensor(float(number), dtype=torch.float64)
    except OverflowError:
        # An integer beyond the largest double.
        return torch.tensor(math.inf if number > 0 else -math.inf, dtype=torch.float64)


def _compare_tensors(
    expected: torch.Tensor, got: torch.Tensor, rules: Rules, scale: float, where: str
) -> dict[str, Any]:
    if got.shape != expected.shape:
        return _mismatch(where, f"expected shape {tuple(expected.shape)}, got {tuple(got.shape)}")
    if got.dtype != expected.dtype:
        return _mismatch(where, f"expected {expected.dtype}, got {got.dtype}")
    if rules.strides and _steps(got) != _steps(expected):
        return _mismatch(where, f"expected strides {expected.stride()}, got {got.stride()}")
    name = _name(expected.dtype)
    if name not in rules.tolerances:
        return _mismatch(where, f"no tolerance is known for {name}; give one in the task's TOLERANCE")
    rtol, atol = rules.tolerances[name]["rtol"], _atol(expected, rules, scale)
    if expected.is_floating_point() or expected.is_complex():
        atol += rules.slacks.get(where, 0.0)
    # Real and imaginary parts are compared one by one: a last dimension of two, (real, imaginary).
    expected, got = parts(expected), parts(got)
    flat, flat_got = expected.reshape(-1), got.to(expected.device).reshape(-1)
    record: dict[str, Any] = {
        "where": where, "mismatch": None, "dtype": name, "elements": flat.numel(), "rtol": rtol, "atol": atol,
        "wrong_elements": 0, "max_abs_error": 0.0, "max_rel_error": 0.0,
        "worst_index": None, "worst_expected": None, "worst_got": None,
        "not_finite_mismatches": 0, "finite_elements": 0, "clusters": [],
    }  # fmt: skip
    if not flat.numel():
        return record
    worst = _summarize(record, flat, flat_got)
    record.update(
        worst_index=_position(worst, expected.shape),
        worst_expected=_number(flat[worst]),
        worst_got=_number(flat_got[worst]),
    )
    if record["wrong_elements"]:
        wrong = torch.cat([_examine(e, g, rtol, atol).wrong for e, g in pieces(flat, flat_got)])
        record["clusters"] = clusters(wrong, expected.shape)
    return record


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: of dimensions with more than one place, where there is any element."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1 and tensor.numel()]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _atol(expected: torch.Tensor, rules: Rules, scale: float) -> float:
    """The absolute tolerance of an output.

    The error of a sum of n terms grows with sqrt(n) u, where u is the unit roundoff of the accumulation, that is of
    float32 or, for double precision, of float64 (Higham & Mary 2019, "A new approach to probabilistic rounding error
    analysis"); it is in proportion to the terms, and so to the size of typical outputs, not to that of the one output.
    For the same reason an element near zero among large ones is off by some steps of theirs: `NARROW_STEPS` or
    `WIDE_STEPS`. The task's own tolerances stay as they are.
    """
    name = _name(expected.dtype)
    atol = rules.tolerances[name]["atol"]
    if not (expected.is_floating_point() or expected.is_complex()):
        return atol
    limits = torch.finfo(expected.dtype)
    # Outputs can't be closer than the format's smallest step, however small they are.
    atol = max(atol * scale, min(atol, limits.smallest_normal * limits.eps))
    if name in rules.own:
        return atol
    wide = expected.dtype in (torch.float64, torch.complex128)
    steps = {1: 0.0, 2: NARROW_STEPS}.get(expected.element_size(), WIDE_STEPS)
    terms = steps * limits.eps
    if rules.reduction is not None:
        terms = max(terms, SPREAD * math.sqrt(rules.reduction) * (2.0**-53 if wide else 2.0**-24))
    added = terms * rms(expected)
    # Where some elements dwarf the rest (masks such as -1e9), the rest must not become arbitrary.
    return atol + min(added, smaller(expected) / 4) if added else atol


class _Examined(NamedTuple):
    """Facts of elements; where one side is not finite, errors are 0."""

    finite: torch.Tensor
    """The expected one is."""
    odd: torch.Tensor
    """Not finite on one side and not the same on the other."""
    wrong: torch.Tensor
    error: torch.Tensor
    relative: torch.Tensor
    rank: torch.Tensor
    """How far beyond the tolerance: a wrong NaN or infinity outranks all, one that agrees comes last."""


def _examine(exact_e: torch.Tensor, exact_g: torch.Tensor, rtol: float, atol: float) -> _Examined:
    # Differences of such numbers lose nothing that matters in float32, and take half the time of float64.
    narrow = exact_e.is_floating_point() and exact_e.element_size() <= 2 and exact_e.dtype != torch.bfloat16
    wide = torch.float32 if narrow else torch.float64
    e, g = exact_e.to(wide), exact_g.to(wide)
    size = e.abs()
    finite = size < math.inf
    not_finite = ~(finite & (g.abs() < math.inf))
    # Where either is not finite the two must agree exactly: NaN with NaN, an infinity with the same one.
    odd = not_finite & ~((e == g) | (e.isnan() & g.isnan()))
    error = (g - e).abs_().masked_fill_(not_finite, 0.0)
    size.masked_fill_(not_finite, 0.0)
    # Integers beyond 2^53 are not exact in double precision: without a tolerance they are compared as they are,
    # and those that differ do so by at least one.
    differ = exact_e != exact_g if not exact_e.is_floating_point() and not (rtol or atol) else None
    if differ is not None:
        error = torch.where(differ, error.clamp(min=1.0), error)
    rank = error - (size * rtol).add_(atol)
    wrong = differ if differ is not None else (rank > 0) | odd
    relative = (error / size).masked_fill_(size == 0, 0.0)
    rank.masked_fill_(not_finite, -math.inf).masked_fill_(odd, math.inf)
    return _Examined(finite, odd, wrong, error, relative, rank)


def _summarize(record: dict[str, Any], expected: torch.Tensor, got: torch.Tensor) -> int:
    """Count into the record, in one round trip; the place of the element furthest beyond its tolerance."""
    rows = [_facts(_examine(e, g, record["rtol"], record["atol"])) for e, g in pieces(expected, got)]
    start, worst, best = 0, 0, -math.inf
    for (e,), (finite, odd, wrong, error, relative, rank, at) in zip(
        pieces(expected), torch.stack(rows).tolist(), strict=True
    ):
        record["finite_elements"] += int(finite)
        record["not_finite_mismatches"] += int(odd)
        record["wrong_elements"] += int(wrong)
        record["max_abs_error"] = max(record["max_abs_error"], at_most(error))
        record["max_rel_error"] = max(record["max_rel_error"], at_most(relative))
        if rank > best:
            worst, best = start + int(at), rank
        start += e.numel()
    return worst


def _facts(examined: _Examined) -> torch.Tensor:
    at = examined.rank.argmax()
    numbers = (
        examined.finite.sum(), examined.odd.sum(), examined.wrong.sum(), examined.error.max(), examined.relative.max(),
        examined.rank.take(at), at,
    )  # fmt: skip
    return torch.stack([number.to(torch.float64) for number in numbers])


def _position(flat: int, shape: torch.Size) -> list[int]:
    """Index of an element by its place in the flattened tensor (torch.unravel_index imports for two seconds)."""
    index: list[int] = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.insert(0, place)
    return index


def _number(value: torch.Tensor) -> float | str:
    number = float(value)
    if not value.is_floating_point() and number != int(value):
        return str(int(value))
    return number if math.isfinite(number) else repr(number)
