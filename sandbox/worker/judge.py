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
from .differences import at_most, clusters, differing, fetched, named_tensors, parts, pieces

__all__ = ["Rules", "accuracy", "compare", "differing", "finiteness", "rms"]

NARROW_STEPS = 2.0
"""Spacings at the outputs' root mean square by which 16-bit results may be off: intermediates are rounded like them."""
WIDE_STEPS = 64.0
"""The same for fp32 and fp64, where the order of a sum differs: one of 4,096 terms, one after the other, errs by 42."""
SPREAD = 4.0
"""Standard deviations of a sum's rounding errors that are allowed."""
EXACT = 2.0**53
"""Doubles hold all smaller integers."""


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
        roundings: by place, what the expected outputs' roundings add to ``atol``, of those that were compared with
            before; what is found out is put in, so it belongs to one tree of expected outputs and one reduction.
    """

    tolerances: dict[str, dict[str, float]]
    own: frozenset[str] = frozenset()
    strides: bool = False
    reduction: float | None = None
    atol_scales: Sequence[float] = field(default=())
    slacks: Mapping[str, float] = field(default_factory=dict)
    roundings: dict[str, float] = field(default_factory=dict)


def compare(expected: Any, got: Any, rules: Rules, where: str = "output") -> list[dict[str, Any]]:
    """One record an output tensor or scalar.

    A record holds either ``mismatch`` (structure, shape, dtype or strides differ: a message) or the element-wise facts
    with the tolerance that applied and, where elements are wrong, ``clusters``: where they lie along each dimension.
    """
    scales = dict(zip(named_tensors(expected, where), rules.atol_scales, strict=False))
    found = _compare(expected, got, rules, scales, where)
    _fill([item for item in found if isinstance(item, _Pair)])
    return [item.record if isinstance(item, _Pair) else item for item in found]


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """Two tensors of the same form, with elements, which are yet to be compared."""

    record: dict[str, Any]
    """To be filled in."""
    shape: torch.Size
    expected: torch.Tensor
    """In one dimension, as is ``got``."""
    got: torch.Tensor


def _compare(
    expected: Any, got: Any, rules: Rules, scales: dict[str, float], where: str
) -> list[dict[str, Any] | _Pair]:
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
) -> dict[str, Any] | _Pair:
    if got.shape != expected.shape:
        return _mismatch(where, f"expected shape {tuple(expected.shape)}, got {tuple(got.shape)}")
    if got.dtype != expected.dtype:
        return _mismatch(where, f"expected {expected.dtype}, got {got.dtype}")
    if rules.strides and _steps(got) != _steps(expected):
        return _mismatch(where, f"expected strides {expected.stride()}, got {got.stride()}")
    name = _name(expected.dtype)
    if name not in rules.tolerances:
        return _mismatch(where, f"no tolerance is known for {name}; give one in the task's TOLERANCE")
    rtol, atol = rules.tolerances[name]["rtol"], _atol(expected, rules, scale, where)
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
    return _Pair(record, expected.shape, flat, flat_got) if flat.numel() else record


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: of dimensions with more than one place, where there is any element."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1 and tensor.numel()]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _atol(expected: torch.Tensor, rules: Rules, scale: float, where: str) -> float:
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
    if where not in rules.roundings:
        rules.roundings[where] = _roundings(expected, rules.reduction)
    return atol + rules.roundings[where]


def _roundings(expected: torch.Tensor, reduction: float | None) -> float:
    limits = torch.finfo(expected.dtype)
    wide = expected.dtype in (torch.float64, torch.complex128)
    steps = {1: 0.0, 2: NARROW_STEPS}.get(expected.element_size(), WIDE_STEPS)
    terms = steps * limits.eps
    if reduction is not None:
        terms = max(terms, SPREAD * math.sqrt(reduction) * (2.0**-53 if wide else 2.0**-24))
    added = terms * rms(expected)
    # Where some elements dwarf the rest (masks such as -1e9), the rest must not become arbitrary.
    return min(added, smaller(expected) / 4) if added else 0.0


def _fill(pairs: list[_Pair]) -> None:
    """Compare, and complete the records; one round trip for all pairs whose elements are finite and agree."""
    tables = [[_agreement(pair.record, e, g) for e, g in pieces(pair.expected, pair.got)] for pair in pairs]
    numbers = iter(fetched([row for table in tables for row in table]))
    for pair, table in zip(pairs, tables, strict=True):
        rows = [next(numbers) for _ in table]
        if all(error < math.inf and rank <= 0 for rank, _, error, *_ in rows):
            _agree(pair, rows)
        else:
            _disagree(pair)


def _is_narrow(tensor: torch.Tensor) -> bool:
    """Differences of such numbers lose nothing that matters in float32, and take half the time of float64."""
    return tensor.is_floating_point() and tensor.element_size() <= 2 and tensor.dtype != torch.bfloat16


def _is_exact(record: dict[str, Any], tensor: torch.Tensor) -> bool:
    """Integers beyond 2^53 are not exact in double precision: without a tolerance they are compared as they are."""
    return not tensor.is_floating_point() and not (record["rtol"] or record["atol"])


def _agreement(record: dict[str, Any], exact_e: torch.Tensor, exact_g: torch.Tensor) -> torch.Tensor:
    """Facts of elements that are finite and agree, on the device: how far the one that comes closest to its tolerance
    lies beyond it, and its place; the largest error and the largest relative one; both values there.

    Where an element is not finite the largest error isn't either, and where one is wrong the first number is positive;
    the others then say nothing.
    """
    if _is_exact(record, exact_e):
        differ = (exact_e != exact_g).any().to(torch.float64)
        first = exact_e[0].to(torch.float64)
        zero = torch.zeros_like(first)
        return torch.stack([differ, zero, zero, zero, first, first])
    wide = torch.float32 if _is_narrow(exact_e) else torch.float64
    e, g = exact_e.to(wide), exact_g.to(wide)
    size = e.abs()
    error = (g - e).abs_()
    rank, at = (error - (size * record["rtol"]).add_(record["atol"])).max(0)
    relative = error / size
    if exact_e.dtype == torch.float64:
        # Here a quotient may be infinite that is none of zeros.
        relative.masked_fill_(size == 0, 0.0)
    else:
        relative.nan_to_num_(0.0, 0.0)
    return torch.stack([rank, at.to(torch.float64), error.max(), relative.max(), e.take(at), g.take(at)])


def _agree(pair: _Pair, rows: list[list[float]]) -> None:
    """Complete the record of tensors whose elements are finite and agree."""
    start, worst, best = 0, 0, rows[0]
    for (e,), row in zip(pieces(pair.expected), rows, strict=True):
        if row[0] > best[0]:
            worst, best = start, row
        start += e.numel()
    worst += int(best[1])
    values = [
        # A larger integer may not be what it was.
        _number(flat[worst]) if abs(value) >= EXACT and not flat.is_floating_point() else value
        for value, flat in zip(best[4:], (pair.expected, pair.got), strict=True)
    ]
    pair.record.update(
        max_abs_error=at_most(max(row[2] for row in rows)),
        max_rel_error=at_most(max(row[3] for row in rows)),
        finite_elements=start,
        worst_index=_position(worst, pair.shape),
        worst_expected=values[0],
        worst_got=values[1],
    )


def _disagree(pair: _Pair) -> None:
    """Complete the record of any tensors."""
    worst = _summarize(pair.record, pair.expected, pair.got)
    pair.record.update(
        worst_index=_position(worst, pair.shape),
        worst_expected=_number(pair.expected[worst]),
        worst_got=_number(pair.got[worst]),
    )
    if pair.record["wrong_elements"]:
        wrong = [_examine(pair.record, e, g).wrong for e, g in pieces(pair.expected, pair.got)]
        pair.record["clusters"] = clusters(torch.cat(wrong), pair.shape)


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


def _examine(record: dict[str, Any], exact_e: torch.Tensor, exact_g: torch.Tensor) -> _Examined:
    wide = torch.float32 if _is_narrow(exact_e) else torch.float64
    e, g = exact_e.to(wide), exact_g.to(wide)
    size = e.abs()
    finite = size < math.inf
    not_finite = ~(finite & (g.abs() < math.inf))
    # Where either is not finite the two must agree exactly: NaN with NaN, an infinity with the same one.
    odd = not_finite & ~((e == g) | (e.isnan() & g.isnan()))
    error = (g - e).abs_().masked_fill_(not_finite, 0.0)
    size.masked_fill_(not_finite, 0.0)
    differ = exact_e != exact_g if _is_exact(record, exact_e) else None
    if differ is not None:
        # They differ by at least one.
        error = torch.where(differ, error.clamp(min=1.0), error)
    rank = error - (size * record["rtol"]).add_(record["atol"])
    wrong = differ if differ is not None else (rank > 0) | odd
    relative = (error / size).masked_fill_(size == 0, 0.0)
    rank.masked_fill_(not_finite, -math.inf).masked_fill_(odd, math.inf)
    return _Examined(finite, odd, wrong, error, relative, rank)


def _summarize(record: dict[str, Any], expected: torch.Tensor, got: torch.Tensor) -> int:
    """Count into the record, in one round trip; the place of the element furthest beyond its tolerance."""
    rows = [_facts(_examine(record, e, g)) for e, g in pieces(expected, got)]
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
