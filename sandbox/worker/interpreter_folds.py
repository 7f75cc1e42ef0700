# pyright: basic
# numpy and triton ship incomplete types.
"""``tl.reduce`` and ``tl.associative_scan`` of Triton's interpreter, replaced.

The interpreter sums the bits of bf16 as integers, and runs one element at a time for all but a few functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

from .interpreter_arithmetic import convert, replace
from .interpreter_numbers import decode, encode, is_bits, unsupported

Handle = triton_interpreter.TensorHandle

_KNOWN: dict[str, Callable[..., Any]] = {
    "_sum_combine": np.add,
    "_prod_combine": np.multiply,
    "_elementwise_max": np.fmax,
    "_elementwise_min": np.fmin,
    "_xor_combine": np.bitwise_xor,
    "_or_combine": np.bitwise_or,
    "_and_combine": np.bitwise_and,
}


def install() -> None:
    """Replace what the interpreter's reductions and scans compute."""
    replace(triton_interpreter.ReduceOps, "apply_impl", _reduce)
    replace(triton_interpreter.ScanOps, "apply_impl", _scan)


def _known(combine: Any) -> Callable[..., Any] | None:
    """The numpy function of one of Triton's own."""
    name = _own_name(combine)
    return _KNOWN.get(name) if name else None


def _own_name(combine: Any) -> str:
    name = getattr(getattr(combine, "fn", combine), "__name__", "")
    return name if getattr(tl.standard, name, None) is combine else ""


def _reduce(self: Any, inputs: Any) -> Any:
    arrays = [tensor.handle.data for tensor in inputs]
    dtypes = [tensor.dtype for tensor in inputs]
    rank, axis = arrays[0].ndim, self.axis
    axis = getattr(axis, "value", axis)
    if axis is None:
        arrays, axis = [array.reshape(-1) for array in arrays], 0
        kept = (1,) * rank
    else:
        axis %= rank
        kept = (*arrays[0].shape[:axis], 1, *arrays[0].shape[axis + 1 :])
    arrays = [np.moveaxis(array, axis, 0) for array in arrays]
    results = _reduced(self.combine_fn, arrays, dtypes)
    if getattr(self.keep_dims, "value", self.keep_dims):
        results = [result.reshape(kept) for result in results]
    return [_tensor(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]


def _reduced(combine: Any, arrays: list[Any], dtypes: list[Any]) -> list[Any]:
    """The first axis reduced."""
    name = _own_name(combine)
    if len(arrays) == 2 and name.startswith(("_argmax_combine_", "_argmin_combine_")):
        return _extreme(arrays, dtypes[0], name[1:7])
    function = _KNOWN.get(name)
    if function is None or len(arrays) > 1:
        return [steps[-1] for steps in _folded(combine, arrays, dtypes)]
    array, dtype = arrays[0], dtypes[0]
    if dtype in (tl.bfloat16, tl.float16) and function in (np.add, np.multiply):
        return [_by_halves(function, array, dtype)]
    if dtype == tl.int1 and function in (np.add, np.multiply):
        return [function.reduce(array.astype(np.int32), axis=0) & 1 != 0]
    if is_bits(dtype):
        _refuse_fp8(dtype)
        return [encode(function.reduce(decode(array, dtype), axis=0), dtype)]
    return [np.asarray(function.reduce(array, axis=0, dtype=array.dtype))]


def _refuse_fp8(dtype: Any) -> None:
    if dtype.is_fp8():
        raise unsupported(f"a reduction of {dtype.name}: NVIDIA GPUs have no arithmetic on it; cast it first")


def _by_halves(function: Any, array: Any, dtype: Any) -> Any:
    """Neighbours combined pair by pair, each sum rounded to 16 bits as on a GPU."""
    while len(array) > 1:
        left, right = (decode(array[start::2], dtype).astype(np.float32) for start in (0, 1))
        array = encode(function(left, right), dtype)
    return array[0]


def _extreme(arrays: list[Any], dtype: Any, name: str) -> list[Any]:
    """The largest or smallest value and its index, the leftmost of equal ones."""
    values = decode(arrays[0], dtype)
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise unsupported(f"tl.{name} of values that are NaN: which index a GPU returns depends on the layout")
    at = np.expand_dims(getattr(np, name)(values, axis=0), 0)
    return [np.take_along_axis(array, at, axis=0)[0] for array in arrays]


def _scan(self: Any, inputs: Any) -> Any:
    axis = getattr(self.axis, "value", self.axis) % inputs[0].handle.data.ndim
    backwards = getattr(self.reverse, "value", self.reverse)
    dtypes = [tensor.dtype for tensor in inputs]
    arrays = [np.moveaxis(tensor.handle.data, axis, 0) for tensor in inputs]
    arrays = [array[::-1] if backwards else array for array in arrays]
    function = _known(self.combine_fn)
    if function is None or len(arrays) > 1:
        results = _folded(self.combine_fn, arrays, dtypes)
    else:
        results = [_doubling(function, arrays[0], dtypes[0])]
    results = [result[::-1] if backwards else result for result in results]
    results = [np.ascontiguousarray(np.moveaxis(result, 0, axis)) for result in results]
    return [_tensor(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]


def _doubling(function: Any, array: Any, dtype: Any) -> Any:
    """Inclusive scan along the first axis (Hillis and Steele 1986), each sum rounded to the type."""
    _refuse_fp8(dtype)
    small = dtype in (tl.bfloat16, tl.float16)
    step = 1
    while step < len(array):
        left, right = array[:-step], array[step:]
        if small:
            left, right = decode(left, dtype).astype(np.float32), decode(right, dtype).astype(np.float32)
        joined = function(left, right)
        joined = encode(joined, dtype) if small else joined.astype(array.dtype)
        array = np.concatenate([array[:step], joined])
        step *= 2
    return array


def _folded(combine: Any, arrays: list[Any], dtypes: list[Any]) -> list[Any]:
    """Every partial result along the first axis of a user's function, which takes scalars."""
    results = [np.array(array) for array in arrays]
    for index in np.ndindex(arrays[0].shape):
        if index[0] == 0:
            continue
        before = (index[0] - 1, *index[1:])
        operands = [_tensor(result[before], dtype) for result, dtype in zip(results, dtypes, strict=True)]
        operands += [_tensor(array[index], dtype) for array, dtype in zip(arrays, dtypes, strict=True)]
        found = combine.fn(*operands)
        found = list(found) if isinstance(found, (tuple, tl.tuple)) else [found]
        for result, value, dtype in zip(results, found, dtypes, strict=True):
            tensor: Any = triton_interpreter.interpreter_semantic.to_tensor(value)
            result[index] = convert(tensor.handle.data, tensor.dtype.scalar, dtype.scalar).reshape(())
    return results


def _tensor(array: Any, dtype: Any) -> Any:
    array = np.asarray(array)
    handle = Handle(array if array.ndim else array.reshape(1), dtype.scalar)
    return tl.core.tensor(handle, tl.block_type(dtype.scalar, list(array.shape)) if array.ndim else dtype.scalar)
