# pyright: basic, reportArgumentType=false, reportCallIssue=false
"""Kernels with every kind of access that a probe takes away, under names that a file may give them."""

import torch
import triton
import triton.language as T
from triton.language import load as fetch
from triton.language.extra import libdevice as ld


@triton.jit
def curved(x):
    return ld.tanh(T.exp(x))


@triton.jit
def every_type(f16, bf16, f32, f64, f8, i8, i32, out, n, B: T.constexpr):
    at = T.program_id(0) * B + T.arange(0, B)
    where = fetch(i32 + at, mask=at < n, other=0)
    total = T.load(f16 + at, mask=at < n).to(T.float32)
    total += T.load(bf16 + at, mask=at < n, other=1.0).to(T.float32)
    total += T.load(f32 + where)
    total += T.load(f64 + at).to(T.float32)
    total += T.load(f8 + at).to(T.float32)
    total += T.load(i8 + at).to(T.float32)
    total += fetch(f32)
    T.store(out + at, curved(total), mask=at < n)
    T.atomic_add(out + at, total, sem="relaxed")
    T.atomic_add(out + at, total, mask=at < n)
    before = T.atomic_max(i32, 3)
    T.store(i32 + 1, before)


@triton.jit
def by_blocks(x, out, n, B: T.constexpr):
    left = T.make_block_ptr(x, (n, n), (n, 1), (0, 0), (B, B), (1, 0))
    tile = T.load(left, boundary_check=(1,), padding_option="zero")
    right = T.make_block_ptr(out, (n, n), (n, 1), (0, 0), (B, B), (1, 0))
    T.store(right, tile + 1, boundary_check=(0, 1))


@triton.jit
def by_descriptor(x, out, n, B: T.constexpr):
    left = T.make_tensor_descriptor(x, [n, n], [n, 1], [B, B])
    right = T.make_tensor_descriptor(out, [n, n], [n, 1], [B, B])
    total = T.zeros((B, B), T.float32)
    for k in T.range(0, n, B):
        total += left.load([0, k])
    product = T.dot(total.to(T.float16), total.to(T.float16))
    product += T.dot(total.to(T.int8), total.to(T.int8))
    right.store([0, 0], product + T.dot(total, total, out_dtype=T.float32))


def entry(x):
    n = 64

    def zeros(dtype):
        return torch.zeros(n * n, device=x.device, dtype=dtype)

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=x.device))
    floats = [zeros(each) for each in (torch.float16, torch.bfloat16, torch.float32, torch.float64)]
    others = [zeros(each) for each in (torch.float8_e4m3fn, torch.int8, torch.int32)]
    out, square = zeros(torch.float32), zeros(torch.float32)
    every_type[(1,)](*floats, *others, out, 60, B=64)
    by_blocks[(1,)](square, out, n, B=32)
    by_descriptor[(1,)](square, out, n, B=32)
    return out
