"""Triton functions that a probe's variant of a kernel file calls in place of what it takes away.

They are appended to the file, so that its lines keep their numbers. `PROBE` stands for a prefix that the file has not.
"""

from typing import Final

HEAD: Final = """

import triton as PROBE_triton
import triton.language as PROBE_tl

# Triton 3.6 takes no bare strings and tuples as defaults of functions that kernels call.
PROBE_blank = PROBE_tl.constexpr("")
PROBE_no_axes = PROBE_tl.constexpr(())


@PROBE_triton.jit
def PROBE_off():
    # False in every program; no compiler knows, since it takes the two numbers for independent.
    return PROBE_tl.program_id(0) >= PROBE_tl.num_programs(0)


@PROBE_triton.jit
def PROBE_far():
    # An offset outside of every tensor: what is read there is zero, what is written there is dropped.
    return PROBE_tl.where(PROBE_off(), 0, 1 << 30)


@PROBE_triton.jit
def PROBE_outside(pointer):
    # A block pointer moved so far along its first axis that nothing of its block is inside.
    if len(pointer.dtype.element_ty.shape) == 1:
        moved = PROBE_tl.advance(pointer, (PROBE_far(),))
    elif len(pointer.dtype.element_ty.shape) == 2:
        moved = PROBE_tl.advance(pointer, (PROBE_far(), 0))
    else:
        moved = PROBE_tl.advance(pointer, (PROBE_far(), 0, 0))
    return moved
"""

_LOAD_HEAD: Final = """

@PROBE_triton.jit
def PROBE_load(
    pointer, mask=None, other=None, boundary_check: PROBE_tl.constexpr = PROBE_no_axes,
    padding_option: PROBE_tl.constexpr = PROBE_blank, cache_modifier: PROBE_tl.constexpr = PROBE_blank,
    eviction_policy: PROBE_tl.constexpr = PROBE_blank,
    volatile: PROBE_tl.constexpr = False,
):
    if pointer.dtype.element_ty.is_block():
        if pointer.dtype.element_ty.element_ty.is_int() and pointer.dtype.element_ty.element_ty.primitive_bitwidth != 8:
            value = PROBE_tl.load(
                pointer, boundary_check=boundary_check, padding_option=padding_option, cache_modifier=cache_modifier,
                eviction_policy=eviction_policy, volatile=volatile,
            )
        else:
            value = PROBE_tl.load(PROBE_outside(pointer), boundary_check=(0,), padding_option="zero")
    elif pointer.dtype.element_ty.is_ptr() or (
        pointer.dtype.element_ty.is_int()
        and (pointer.dtype.element_ty.primitive_bitwidth != 8 or not pointer.type.is_block())
    ):
        # Addresses, bounds and conditions are often integers, and then decide what else is done.
        value = PROBE_tl.load(
            pointer, mask=mask, other=other, cache_modifier=cache_modifier, eviction_policy=eviction_policy,
            volatile=volatile,
        )
    else:
"""

VALUE_LOAD: Final = (
    """

@PROBE_triton.jit
def PROBE_value(pointer):
    # A value of the pointer's element type, 1 to 2 for floating point, from the address' lowest bits.
    bits = pointer.to(PROBE_tl.int64)
    if pointer.dtype.element_ty == PROBE_tl.float64:
        value = ((bits & 0xFFFFFFFF) | 0x3FF0000000000000).to(PROBE_tl.float64, bitcast=True)
    elif pointer.dtype.element_ty == PROBE_tl.float32:
        value = ((bits & 0x7FFFFF) | 0x3F800000).to(PROBE_tl.int32).to(PROBE_tl.float32, bitcast=True)
    elif pointer.dtype.element_ty == PROBE_tl.bfloat16:
        value = ((bits & 0x7F) | 0x3F80).to(PROBE_tl.int16).to(PROBE_tl.bfloat16, bitcast=True)
    elif pointer.dtype.element_ty == PROBE_tl.float16:
        value = ((bits & 0x3FF) | 0x3C00).to(PROBE_tl.int16).to(PROBE_tl.float16, bitcast=True)
    elif pointer.dtype.element_ty.is_int():
        value = bits.to(pointer.dtype.element_ty)
    else:
        value = ((bits & 0x3) | 0x3C).to(PROBE_tl.int8).to(pointer.dtype.element_ty, bitcast=True)
    return value
"""
    + _LOAD_HEAD
    + """\
        value = PROBE_value(pointer)
        if mask is not None:
            if other is None:
                value = PROBE_tl.where(mask, value, 0).to(pointer.dtype.element_ty)
            else:
                value = PROBE_tl.where(mask, value, other).to(pointer.dtype.element_ty)
    return value
"""
)

IDLE_LOAD: Final = (
    _LOAD_HEAD
    + """\
        if mask is None:
            mask = PROBE_off()
        else:
            mask = mask & PROBE_off()
        if other is None:
            other = 0.0
        value = PROBE_tl.load(
            pointer, mask=mask, other=other, cache_modifier=cache_modifier, eviction_policy=eviction_policy,
            volatile=volatile,
        )
    return value
"""
)

STORE: Final = """

@PROBE_triton.jit
def PROBE_store(
    pointer, value, mask=None, boundary_check: PROBE_tl.constexpr = PROBE_no_axes,
    cache_modifier: PROBE_tl.constexpr = PROBE_blank, eviction_policy: PROBE_tl.constexpr = PROBE_blank,
):
    if pointer.dtype.element_ty.is_block():
        PROBE_tl.store(PROBE_outside(pointer), value, boundary_check=(0,))
    elif mask is None:
        PROBE_tl.store(
            pointer, value, mask=PROBE_off(), cache_modifier=cache_modifier, eviction_policy=eviction_policy
        )
    else:
        PROBE_tl.store(
            pointer, value, mask=mask & PROBE_off(), cache_modifier=cache_modifier, eviction_policy=eviction_policy
        )
"""

MATH: Final = """

@PROBE_triton.jit
def PROBE_same(x):
    return x


@PROBE_triton.jit
def PROBE_zeros(input, other, dtype: PROBE_tl.constexpr):
    if len(input.shape) == 2:
        zeros = PROBE_tl.zeros((input.shape[0], other.shape[1]), dtype)
    else:
        zeros = PROBE_tl.zeros((input.shape[0], input.shape[1], other.shape[2]), dtype)
    return zeros


@PROBE_triton.jit
def PROBE_dot(
    input, other, acc=None, input_precision: PROBE_tl.constexpr = None, allow_tf32: PROBE_tl.constexpr = None,
    max_num_imprecise_acc: PROBE_tl.constexpr = None, out_dtype: PROBE_tl.constexpr = PROBE_tl.float32,
):
    # A product that no program computes: it stands in a branch that none takes, so that operands are still fetched as
    # far ahead and where they were, and the accumulator stays in its registers.
    if acc is None:
        if input.dtype.is_int():
            acc = PROBE_zeros(input, other, PROBE_tl.int32)
        elif input.dtype == PROBE_tl.float64:
            acc = PROBE_zeros(input, other, PROBE_tl.float64)
        else:
            acc = PROBE_zeros(input, other, out_dtype)
    if PROBE_off():
        acc = PROBE_tl.dot(
            input, other, acc, input_precision=input_precision, max_num_imprecise_acc=max_num_imprecise_acc,
            out_dtype=acc.dtype,
        )
    return acc
"""
