# pyright: basic
# numpy and triton ship incomplete types.
"""Number formats for Triton's interpreter: bf16 and fp8 as bits, conversions as an NVIDIA GPU does them.

The interpreter keeps bf16 as uint16 and fp8 as uint8. Rounding is to nearest, ties to even; what is too large for an
fp8 format becomes its largest number (PTX ``cvt.rn.satfinite``), not infinity or NaN as in torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import triton.language as tl

from .failures import Refused


class _Format(NamedTuple):
    """A float format: fraction bits, exponent of the smallest normal number, largest finite number, NaN's bits."""

    fraction: int
    smallest: int
    largest: float
    nan: int


# OCP 8-bit floating point specification, revision 1.0, table 1.
_FP8 = {"fp8e4nv": _Format(3, -6, 448.0, 0x7F), "fp8e5": _Format(2, -14, 57344.0, 0x7F)}
_BF16_SMALLEST = -126
_BF16_FRACTION = 7
_TF32_FRACTION = 10


def unsupported(message: str) -> Refused:
    """The refusal of what can't be told without a GPU."""
    return Refused("unsupported", "run", message)


def is_bits(dtype: Any) -> bool:
    """Whether the interpreter keeps this scalar type as bits that numpy can't compute with."""
    return dtype == tl.bfloat16 or dtype.is_fp8()


def decode(data: Any, dtype: Any) -> Any:
    """Values of the scalar type ``dtype`` as numpy numbers; bits become float32, exactly."""
    if dtype == tl.bfloat16:
        return (np.asarray(data).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if not dtype.is_fp8():
        return data
    layout = _fp8(dtype)
    bits = np.asarray(data).view(np.uint8)
    return _table(layout, dtype.name)[bits]


def encode(values: Any, dtype: Any, *, toward_zero: bool = False) -> Any:
    """Floats rounded to the scalar type ``dtype``, as numpy holds it in the interpreter."""
    if dtype == tl.bfloat16:
        return _to_bf16(values, toward_zero)
    if dtype.is_fp8():
        return _to_fp8(values, _fp8(dtype), toward_zero)
    numpy_type = np.dtype(f"float{dtype.primitive_bitwidth}")
    rounded = np.asarray(values).astype(numpy_type)
    if toward_zero:
        back = np.nextafter(rounded, numpy_type.type(0))
        rounded = np.where(np.abs(rounded.astype(np.float64)) > np.abs(values), back, rounded)
    return rounded


def to_integer(values: Any, numpy_type: Any) -> Any:
    """Floats to integers as PTX ``cvt.rzi`` does: toward zero, clamped to the range.

    NaN gives 0, but the top bit where a side has 64 bits. Types of 8 bits go through 16, whose low byte is kept.
    """
    target = np.dtype(numpy_type)
    if target.itemsize == 1:
        wide = np.int16 if target.kind == "i" else np.uint16
        return to_integer(values, wide).astype(target)
    limits = np.iinfo(target)
    whole = np.trunc(np.asarray(values).astype(np.float64))
    fits = (whole >= float(limits.min)) & (whole < float(limits.max) + 1.0)
    found = np.where(fits, whole, 0.0).astype(target)
    found = np.where(whole >= float(limits.max) + (0.0 if target.itemsize < 8 else 1.0), target.type(limits.max), found)
    found = np.where(whole < float(limits.min), target.type(limits.min), found)
    if target.itemsize == 8 or np.asarray(values).dtype == np.float64:
        top = 1 << (8 * target.itemsize - 1)
        not_a_number = target.type(top) if target.kind == "u" else target.type(-top)
        found = np.where(np.isnan(whole), not_a_number, found)
    return found


def not_a_number(dtype: Any, numpy_type: Any) -> Any:
    """NaN of a float type, as numpy holds it in the interpreter."""
    return encode(np.array(np.nan), dtype) if is_bits(dtype) else np.array(np.nan, dtype=numpy_type)


def to_tf32(values: Any) -> Any:
    """float32 with 10 fraction bits, rounded to nearest, ties away from zero (PTX ``cvt.rna.tf32``)."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def to_bf16_value(values: Any) -> Any:
    """float32 rounded to bf16, as float32."""
    return decode(_to_bf16(values, False), tl.bfloat16)


def _fp8(dtype: Any) -> _Format:
    if dtype.name not in _FP8:
        raise unsupported(f"{dtype.name}: what NVIDIA GPUs compute in this format is not known to the interpreter")
    return _FP8[dtype.name]


def _round(values: Any, fraction: int, smallest: int, toward_zero: bool) -> Any:
    """Magnitudes rounded to ``fraction`` bits, as float64; 0 for what is not finite."""
    magnitude = np.abs(np.asarray(values).astype(np.float64))
    magnitude = np.where(np.isfinite(magnitude), magnitude, 0.0)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, smallest)
    places = np.ldexp(magnitude, fraction - exponent)
    places = np.trunc(places) if toward_zero else np.rint(places)
    return np.ldexp(places, exponent - fraction)


def _to_bf16(values: Any, toward_zero: bool) -> Any:
    values = np.asarray(values)
    magnitude = _round(values, _BF16_FRACTION, _BF16_SMALLEST, toward_zero)
    single = np.copysign(magnitude, values).astype(np.float32)
    single = np.where(np.isinf(values), values, single).astype(np.float32)
    bits = (single.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), bits)


def _to_fp8(values: Any, layout: _Format, toward_zero: bool) -> Any:
    values = np.asarray(values)
    magnitude = _round(values, layout.fraction, layout.smallest, toward_zero)
    magnitude = np.where(np.isinf(values), layout.largest, np.minimum(magnitude, layout.largest))
    exponent = np.where(magnitude == 0, layout.smallest, np.maximum(np.frexp(magnitude)[1] - 1, layout.smallest))
    places = np.ldexp(magnitude, layout.fraction - exponent).astype(np.int64)
    # The hidden bit of a normal number is its first exponent.
    bits = ((exponent - layout.smallest).astype(np.int64) << layout.fraction) + places
    bits = bits | np.where(np.signbit(values), 0x80, 0)
    return np.where(np.isnan(values), layout.nan, bits).astype(np.uint8)


_tables: dict[str, Any] = {}


def _table(layout: _Format, name: str) -> Any:
    """The 256 values of an fp8 format, as float32."""
    if name not in _tables:
        bits = np.arange(256)
        field, places = (bits & 0x7F) >> layout.fraction, bits & ((1 << layout.fraction) - 1)
        hidden = np.where(field > 0, 1 << layout.fraction, 0)
        exponent = np.maximum(field, 1) - 1 + layout.smallest - layout.fraction
        values = np.ldexp((places + hidden).astype(np.float32), exponent.astype(np.int32))
        if name == "fp8e5":
            values = np.where((bits & 0x7F) == 0x7C, np.inf, values)
            values = np.where((bits & 0x7F) > 0x7C, np.nan, values)
        else:
            values = np.where((bits & 0x7F) == 0x7F, np.nan, values)
        _tables[name] = np.where(bits >= 0x80, -values, values).astype(np.float32)
    return _tables[name]
