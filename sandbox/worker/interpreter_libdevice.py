# pyright: basic
# numpy and triton ship incomplete types.
"""NVIDIA's libdevice functions that kernels call most, in numpy; all others are refused by name."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import cuda
from triton.language.extra import libdevice as portable
from triton.language.extra.cuda import libdevice
from triton.runtime import interpreter as triton_interpreter

from .interpreter_arithmetic import Handle, fma_of_doubles, replace
from .interpreter_numbers import unsupported


def _elementwise(function: Callable[..., float]) -> Callable[..., Any]:
    """A function of the standard library, as one of arrays; where it raises the result is infinite or NaN."""

    def safe(*values: float) -> float:
        try:
            return function(*map(float, values))
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return np.vectorize(safe, otypes=[np.float64])


def _lgamma(x: float) -> float:
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


_ERFC = _elementwise(math.erfc)
_FUNCTIONS: dict[str, Callable[..., Any] | None] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "ddiv_rn": np.divide,
    "dsqrt_rn": np.sqrt,
    "erf": _elementwise(math.erf),
    "erfc": _ERFC,
    "exp": np.exp,
    "exp10": lambda x: np.power(10.0, x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fabs": np.abs,
    "fdim": lambda x, y: np.fmax(x - y, 0.0),
    "floor": np.floor,
    "fma": fma_of_doubles,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fdiv_rn": np.divide,
    "fdivide": np.divide,
    "float_as_int": lambda x: np.ascontiguousarray(x).view(np.int32),
    "fmod": np.fmod,
    "frcp_rn": lambda x: 1.0 / x,
    "frsqrt_rn": lambda x: 1.0 / np.sqrt(x),
    "fsqrt_rn": np.sqrt,
    "hypot": np.hypot,
    "int_as_float": lambda x: np.ascontiguousarray(x).astype(np.int32).view(np.float32),
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "finite": np.isfinite,
    "lgamma": _elementwise(_lgamma),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "llabs": np.abs,
    "nearbyint": np.rint,
    "pow": np.power,
    "normcdf": lambda x: 0.5 * _ERFC(x * -math.sqrt(0.5)),
    "popc": np.bitwise_count if hasattr(np, "bitwise_count") else None,
    "rint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "saturate": lambda x: np.fmin(np.fmax(x, 0.0), 1.0),
    "signbit": np.signbit,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tgamma": _elementwise(math.gamma),
    "trunc": np.trunc,
}
"""By libdevice's name without its ``__nv_``, the ``f`` or ``d`` at its end and the ``fast_`` of a rougher variant."""


def install() -> None:
    """Make the functions of ``tl.extra`` work inside of kernels."""
    replace(triton_interpreter.InterpreterBuilder, "create_extern_elementwise", _call)
    for name, function in list(vars(libdevice).items()):
        if tl.core.is_builtin(function):
            bound = functools.partial(_in_kernel, function)
            # Outside of a compiler the portable module is one of empty functions.
            setattr(libdevice, name, bound)
            setattr(portable, name, bound)
    for name, function in list(vars(cuda).items()):
        # Programs run one after the other: a grid that waits for the one before it has nothing to wait for.
        if name.startswith("gdc_"):
            setattr(cuda, name, _nothing)
        elif tl.core.is_builtin(function):
            setattr(cuda, name, _refused_in_kernel(name))


def _in_kernel(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    named.pop("_semantic", None)
    try:
        return function(*args, **named, _semantic=triton_interpreter.interpreter_semantic)
    except KeyError as error:
        raise TypeError(f"{function.__name__} of libdevice has no variant for {error.args[0]}") from error


def _call(self: Any, library: str, path: str, symbol: str, operands: Any, result_type: Any, pure: bool) -> Any:
    function = _find(symbol)
    if function is None:
        raise unsupported(f"{symbol} of a device library: the interpreter does not have it, only a GPU does")
    dtype = result_type.scalar
    numpy_type = triton_interpreter._get_np_dtype(dtype)
    arrays = [operand.data for operand in operands]
    if all(array.dtype.kind == "f" for array in arrays) and "_as_" not in symbol:
        arrays = [array.astype(np.float64) for array in arrays]
    return Handle(np.asarray(function(*arrays)).astype(numpy_type), dtype)


def _find(symbol: str) -> Callable[..., Any] | None:
    if not symbol.startswith("__nv_"):
        return None
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    return _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("f")) or _FUNCTIONS.get(name.removesuffix("d"))


def _refused_in_kernel(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **named: Any) -> Any:
        raise unsupported(f"tl.extra.cuda.{name} asks the GPU that it runs on, which the interpreter does not have")

    return refuse


def _nothing(*args: Any, **named: Any) -> None:
    return None
