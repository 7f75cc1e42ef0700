# pyright: basic
# torch ships incomplete types.
"""Compares outputs with expected ones, element by element, in the trusted worker."""

from __future__ import annotations

import math
import sys
from typing import Any

import torch

CHUNK = 1 << 22
"""Elements compared at a time: bounds the memory of the double-precision intermediates, about 64 bytes an element."""
GPU_CHUNK = 1 << 25
"""On a GPU, where each chunk costs a dozen round trips."""


def compare(
    expected: Any, got: Any, tolerances: dict[str, dict[str, float]], where: str = "output"
) -> list[dict[str, Any]]:
    """One record an output tensor or scalar.

    ``tolerances`` maps a dtype name to ``{"rtol": .., "atol": ..}``. A record holds either ``mismatch`` (structure,
    shape or dtype differ: a message) or the element-wise facts.
    """
    if isinstance(expected, torch.Tensor):
        if not isinstance(got, torch.Tensor):
            return [_mismatch(where, f"expected a tensor, got {type(got).__name__}")]
        return [_compare_tensors(expected, got, tolerances, where)]
    if isinstance(expected, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            return [_mismatch(where, f"expected {len(expected)} outputs, got {_shape_of(got)}")]
        pairs = zip(expected, got, strict=True)
        return [record for i, (e, g) in enumerate(pairs) for record in compare(e, g, tolerances, f"{where}[{i}]")]
    if isinstance(expected, dict):
        if not isinstance(got, dict) or set(got) != set(expected):
            return [_mismatch(where, f"expected a dict with keys {sorted(map(str, expected))}, got {_shape_of(got)}")]
        return [
            record for key, e in expected.items() for record in compare(e, got[key], tolerances, f"{where}[{key!r}]")
        ]
    if expected is None or isinstance(expected, bool | str):
        return [] if expected == got else [_mismatch(where, f"expected {expected!r}, got {got!r}")]
    if isinstance(expected, int | float):
        if not isinstance(got, int | float):
            return [_mismatch(where, f"expected a number, got {type(got).__name__}")]
        tensors = (
            torch.tensor(float(expected), dtype=torch.float64),
            torch.tensor(float(got), dtype=torch.float64),
        )
        return [_compare_tensors(*tensors, tolerances, where)]
    return [_mismatch(where, f"outputs of type {type(expected).__name__} can't be compared")]


def _mismatch(where: str, message: str) -> dict[str, Any]:
    return {"where": where, "mismatch": f"{where}: {message}"}


def _shape_of(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{len(value)} outputs"
    if isinstance(value, dict):
        return f"a dict with keys {sorted(map(str, value))}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def _compare_tensors(
    expected: torch.Tensor, got: torch.Tensor, tolerances: dict[str, dict[str, float]], where: str
) -> dict[str, Any]:
    if got.shape != expected.shape:
        return _mismatch(where, f"expected shape {tuple(expected.shape)}, got {tuple(got.shape)}")
    if got.dtype != expected.dtype:
        return _mismatch(where, f"expected {expected.dtype}, got {got.dtype}")
    name = str(expected.dtype).removeprefix("torch.")
    if expected.is_complex():
        # Real and imaginary parts are compared one by one: a last dimension of two, (real, imaginary).
        expected, got = torch.view_as_real(expected.resolve_conj()), torch.view_as_real(got.resolve_conj())
    tolerance = tolerances.get(name)
    if tolerance is None:
        return _mismatch(where, f"no tolerance is known for {name}; give one in the task's TOLERANCE")
    rtol, atol = tolerance["rtol"], tolerance["atol"]
    record: dict[str, Any] = {
        "where": where, "mismatch": None, "dtype": name, "elements": expected.numel(), "rtol": rtol, "atol": atol,
        "wrong_elements": 0, "max_abs_error": 0.0, "max_rel_error": 0.0,
        "worst_index": None, "worst_expected": None, "worst_got": None,
        "not_finite_mismatches": 0, "finite_elements": 0,
    }  # fmt: skip
    worst = -math.inf
    integral = not expected.is_floating_point()
    flat_expected, flat_got = expected.detach().reshape(-1), got.detach().to(expected.device).reshape(-1)
    chunk = GPU_CHUNK if flat_expected.is_cuda else CHUNK
    for start in range(0, flat_expected.numel(), chunk):
        exact_e, exact_g = flat_expected[start : start + chunk], flat_got[start : start + chunk]
        e, g = exact_e.to(torch.float64), exact_g.to(torch.float64)
        finite = e.isfinite() & g.isfinite()
        record["finite_elements"] += int(e.isfinite().sum())
        # Where either is not finite the two must agree exactly: NaN with NaN, an infinity with the same one.
        odd = ~finite & ~((e == g) | (e.isnan() & g.isnan()))
        error = torch.where(finite, (g - e).abs(), torch.zeros_like(e))
        # Integers beyond 2^53 are not exact in double precision: without a tolerance they are compared as they are,
        # and those that differ do so by at least one.
        differ = exact_e != exact_g if integral and not (rtol or atol) else None
        if differ is not None:
            error = torch.where(differ, error.clamp(min=1.0), error)
        excess = error - (atol + rtol * torch.where(finite, e.abs(), torch.zeros_like(e)))
        wrong = differ if differ is not None else (finite & (excess > 0)) | odd
        record["wrong_elements"] += int(wrong.sum())
        record["not_finite_mismatches"] += int(odd.sum())
        record["max_abs_error"] = max(record["max_abs_error"], _at_most(error.max()))
        relative = torch.where(finite & (e != 0), error / e.abs(), torch.zeros_like(e))
        record["max_rel_error"] = max(record["max_rel_error"], _at_most(relative.max()))
        # The worst element is the one furthest beyond its tolerance; a wrong NaN or infinity outranks them all.
        rank = torch.where(
            odd,
            torch.full_like(excess, math.inf),
            torch.where(finite, excess, torch.full_like(excess, -math.inf)),
        )
        at = int(rank.argmax())
        if record["worst_index"] is None or float(rank[at]) > worst:
            worst = float(rank[at])
            index = _position(start + at, expected.shape)
            record.update(worst_index=index, worst_expected=_number(exact_e[at]), worst_got=_number(exact_g[at]))
    return record


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


def _at_most(error: torch.Tensor) -> float:
    """The error, or the largest double where it lies beyond: JSON has no infinities."""
    return min(float(error), sys.float_info.max)
