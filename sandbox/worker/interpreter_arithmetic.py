# pyright: basic
# numpy and triton ship incomplete types.
"""Arithmetic, casts and ``tl.dot`` of Triton's interpreter, replaced where it computes something else than a GPU.

The interpreter computes on the bits of bf16 and fp8 as if they were integers, cuts where a GPU rounds, and lets NaN
through where PTX ``min`` and ``max`` return the other operand.
"""

from __future__ import annotations

import dataclasses
import fractions
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

from . import interpreter_numbers as numbers
from .interpreter_numbers import decode, encode, is_bits, unsupported

Handle = triton_interpreter.TensorHandle
_ir = triton_interpreter._ir

_BINARY = (
    "fadd", "fsub", "fmul", "fdiv", "frem", "precise_divf", "approx_divf", "minnumf", "maxnumf", "minimumf", "maximumf",
)  # fmt: skip
_UNARY = ("fneg", "floor", "ceil", "cos", "sin", "exp", "exp2", "log", "log2", "sqrt", "precise_sqrt", "rsqrt", "erf")
_WRAPPING = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_CASTS = ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc")


def replace(owner: Any, name: str, function: Any) -> None:
    """Set a method of a class of Triton's."""
    setattr(owner, name, function)


def install() -> None:
    """Replace the methods of the interpreter's builder."""
    builder = triton_interpreter.InterpreterBuilder
    for operation, function in (("minnumf", np.fmin), ("maxnumf", np.fmax)):
        replace(builder, f"create_{operation}", _plain(function))
    for operation in _BINARY + _UNARY:
        if (original := getattr(builder, f"create_{operation}", None)) is not None:
            replace(builder, f"create_{operation}", _widened(original))
    for name in dir(builder):
        if name.startswith(("create_icmp", "create_fcmp")):
            replace(builder, name, _comparison(getattr(builder, name)))
    for operation, function in _WRAPPING.items():
        replace(builder, f"create_{operation}", _wrapping(getattr(builder, f"create_{operation}"), function))
    for operation in _CASTS:
        replace(builder, f"create_{operation}", _cast)
    for name, method in _METHODS.items():
        replace(builder, name, method)
    replace(builder, "create_print", _printing(builder.create_print))
    # Before it reaches the builder it asks for what only a compiler knows.
    replace(type(triton_interpreter.interpreter_semantic), "dot_scaled", _no_scaled_dot)
    for instance in (triton_interpreter.interpreter_builder, triton_interpreter.interpreter_semantic.builder):
        _accept_precisions(instance)


def _accept_precisions(builder: Any) -> None:
    """A GPU takes these as well; a refusal of the interpreter's own would read as the kernel's fault."""
    known = {name.lower() for name in dir(_ir.INPUT_PRECISION)}
    allowed = tuple(name for name in ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6") if name in known)
    builder.options = dataclasses.replace(builder.options, allowed_dot_input_precisions=allowed)


def _binary(self: Any, left: Any, right: Any, function: Callable[..., Any]) -> Any:
    """numpy's result in the type of the operands; truth values stay what they are."""
    return _typed(function(left.data, right.data), _scalar(left))


def _ternary(self: Any, first: Any, second: Any, third: Any, function: Callable[..., Any]) -> Any:
    return _typed(function(first.data, second.data, third.data), _scalar(third))


def _typed(output: Any, dtype: Any) -> Any:
    expected = triton_interpreter._get_np_dtype(dtype)
    fits = output.dtype in (expected, np.bool_)
    return Handle(output if fits else output.astype(expected), dtype)


def _scalar(handle: Any) -> Any:
    return handle.dtype.scalar


def _wide(handle: Any) -> Any:
    """The operand as numpy can compute with it: bf16 as float32."""
    dtype = _scalar(handle)
    if dtype.is_fp8():
        raise unsupported(
            f"arithmetic on {dtype.name} values: NVIDIA GPUs have none; cast them first, as in x.to(tl.float32)"
        )
    return Handle(decode(handle.data, dtype), tl.float32) if dtype == tl.bfloat16 else handle


def _narrow(handle: Any, dtype: Any) -> Any:
    return Handle(encode(handle.data, dtype), dtype) if is_bits(dtype) else handle


def _widened(original: Callable[..., Any]) -> Callable[..., Any]:
    """An operation on floats; bf16 is computed in float32 and rounded once, as on a GPU."""

    def operation(self: Any, *handles: Any) -> Any:
        if not any(is_bits(_scalar(handle)) for handle in handles):
            return original(self, *handles)
        return _narrow(original(self, *map(_wide, handles)), _scalar(handles[0]))

    return operation


def _comparison(original: Callable[..., Any]) -> Callable[..., Any]:
    def compare(self: Any, left: Any, right: Any) -> Any:
        if is_bits(_scalar(left)) or is_bits(_scalar(right)):
            left, right = _wide(left), _wide(right)
        # Unlike the original, of a type that says what it is.
        return Handle(np.asarray(original(self, left, right).data).astype(np.bool_), tl.int1)

    return compare


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, left, right: self.binary_op(left, right, function)


def _wrapping(original: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Integer arithmetic; int1 wraps as every integer does, where numpy means logic."""

    def operation(self: Any, left: Any, right: Any) -> Any:
        if left.data.dtype == np.bool_ and right.data.dtype == np.bool_:
            total = function(left.data.astype(np.int8), right.data.astype(np.int8)) & 1
            return Handle(total.astype(np.bool_), tl.int1)
        return original(self, left, right)

    return operation


def convert(data: Any, source: Any, target: Any, *, toward_zero: bool = False) -> Any:
    """Numbers of one scalar type as another's, as numpy holds them in the interpreter."""
    numpy_type = triton_interpreter._get_np_dtype(target)
    values = decode(data, source)
    if target.is_floating():
        return encode(values, target, toward_zero=toward_zero)
    if source.is_floating() and target != tl.int1:
        return numbers.to_integer(values, numpy_type)
    return values.astype(numpy_type)


def _cast(self: Any, source: Any, target_type: Any) -> Any:
    target = target_type.scalar
    return Handle(convert(source.data, _scalar(source), target), target)


def _cast_rounding(self: Any, source: Any, target_type: Any, rounding: Any = None) -> Any:
    target = target_type.scalar
    toward_zero = rounding is not None and rounding == _ir.ROUNDING_MODE.RTZ
    return Handle(convert(source.data, _scalar(source), target, toward_zero=toward_zero), target)


def _constant_bf16(self: Any, value: float) -> Any:
    return Handle(encode(np.array([value], dtype=np.float64), tl.bfloat16), tl.bfloat16)


def _all_ones(self: Any, type_: Any) -> Any:
    """The value whose every bit is set."""
    scalar = type_.scalar
    if not scalar.is_int():
        raise TypeError(f"unsupported type {type_}")
    numpy_type = triton_interpreter._get_np_dtype(scalar)
    if scalar == tl.int1:
        return Handle(np.ones(1, dtype=np.bool_), scalar)
    return Handle(np.array([-1], dtype=np.int64).astype(numpy_type), scalar)


def _clamp(self: Any, value: Any, low: Any, high: Any, propagate: Any) -> Any:
    dtype = _scalar(value)
    x, least, most = (_wide(handle).data for handle in (value, low, high))
    quiet = propagate == _ir.PROPAGATE_NAN.NONE
    upper, lower = (np.fmin, np.fmax) if quiet else (np.minimum, np.maximum)
    return _narrow(Handle(np.asarray(upper(lower(x, least), most)), _scalar(_wide(value))), dtype)


def _exact_fma(x: float, y: float, z: float) -> float:
    if not np.isfinite([x, y, z]).all():
        return x * y + z
    exact = fractions.Fraction(x) * fractions.Fraction(y) + fractions.Fraction(z)
    try:
        return float(exact) if exact else x * y + z
    except OverflowError:
        return np.copysign(np.inf, 1 if exact > 0 else -1)


fma_of_doubles = np.vectorize(_exact_fma, otypes=[np.float64])


def _fma(self: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once."""
    dtype = _scalar(z)
    a, b, c = (np.asarray(_wide(handle).data) for handle in (x, y, z))
    if c.dtype == np.float64:
        return Handle(fma_of_doubles(a, b, c), dtype)
    if not dtype.is_floating():
        return Handle(a * b + c, dtype)
    # A product of two numbers of 24 bits is exact in 53.
    total = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    return Handle(encode(total, dtype), dtype)


def _high_product(self: Any, left: Any, right: Any) -> Any:
    """The upper half of the product of two integers, taken as unsigned."""
    dtype = left.data.dtype
    bits = 8 * dtype.itemsize
    unsigned = np.dtype(f"uint{bits}")
    wide = object if bits == 64 else np.uint64
    a, b = (np.ascontiguousarray(handle.data).view(unsigned).astype(wide) for handle in (left, right))
    return Handle(np.asarray((a * b) >> bits).astype(unsigned).view(dtype), _scalar(left))


def _shift_right(self: Any, left: Any, right: Any) -> Any:
    """Copies the sign in; the original turns its operands into signed ones for good."""
    signed = triton_interpreter._get_signed_np_dtype
    shifted = np.right_shift(left.data.astype(signed(left.data.dtype)), right.data.astype(signed(right.data.dtype)))
    return Handle(shifted.astype(left.data.dtype), _scalar(left))


def _histogram(self: Any, data: Any, bins: int, mask: Any) -> Any:
    """Counts per bin; what lies outside of the bins is not counted."""
    counted = np.ones(data.data.shape, dtype=bool) if mask is None else mask.data
    values = data.data.astype(np.int64)
    values = values[counted & (values >= 0) & (values < bins)]
    return Handle(np.bincount(values, minlength=bins).astype(np.int32), tl.int32)


def _split(self: Any, value: Any) -> Any:
    dtype = _scalar(value)
    return tuple(Handle(np.atleast_1d(value.data[..., side]), dtype) for side in (0, 1))


def _dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any = None) -> Any:
    """a @ b + d; sums in float32 are rounded to d's type once, where a GPU may round fp16 sums more often."""
    dtype = _scalar(d)
    left, right = decode(a.data, _scalar(a)), decode(b.data, _scalar(b))
    if not dtype.is_floating():
        # Sums of 8-bit products are exact in float64, which is faster than integers in numpy.
        total = np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(np.int64) + d.data
        return Handle(total.astype(d.data.dtype), dtype)
    if dtype == tl.float64:
        return Handle(np.matmul(left.astype(np.float64), right.astype(np.float64)) + d.data, dtype)
    both_single = _scalar(a) == tl.float32 and _scalar(b) == tl.float32
    product = _single_dot(left.astype(np.float32), right.astype(np.float32), precision if both_single else None)
    return Handle(np.asarray(encode(product + decode(d.data, dtype).astype(np.float32), dtype)), dtype)


def _single_dot(left: Any, right: Any, precision: Any) -> Any:
    """float32 operands: TF32 drops 13 bits of each, bf16x3 keeps 16 of 24."""
    kind = getattr(precision, "name", "").upper()
    if kind == "TF32":
        return np.matmul(numbers.to_tf32(left), numbers.to_tf32(right))
    if kind == "BF16X3":
        tops = [numbers.to_bf16_value(operand) for operand in (left, right)]
        rests = [numbers.to_bf16_value(operand - top) for operand, top in zip((left, right), tops, strict=True)]
        return np.matmul(rests[0], tops[1]) + np.matmul(tops[0], rests[1]) + np.matmul(tops[0], tops[1])
    return np.matmul(left, right)


def _readable(handle: Any) -> Any:
    return Handle(decode(handle.data, _scalar(handle)), tl.float32) if is_bits(_scalar(handle)) else handle


def _printing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Prints bf16 and fp8 as numbers."""

    def show(self: Any, prefix: Any, hexadecimal: Any, values: Any, *rest: Any) -> Any:
        shown = values if hexadecimal else map(_readable, values)
        return original(self, prefix, hexadecimal, shown, *rest)

    return show


def _no_scaled_dot(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise unsupported("tl.dot_scaled: the interpreter can't tell what a GPU computes for it")


def _no_assembly(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise unsupported("inline assembly (PTX) runs on a GPU only; write it with tl operations to check it here")


_METHODS: dict[str, Callable[..., Any]] = {
    "create_int_cast": lambda self, source, target, is_signed: _cast(self, source, target),
    "create_fp_to_fp": _cast_rounding,
    "binary_op": _binary,
    "ternary_op": _ternary,
    "get_bf16": _constant_bf16,
    "get_all_ones_value": _all_ones,
    "create_clampf": _clamp,
    "create_fma": _fma,
    "create_umulhi": _high_product,
    "create_ashr": _shift_right,
    "create_histogram": _histogram,
    "create_split": _split,
    "create_dot": _dot,
    "create_inline_asm": _no_assembly,
}
