# pyright: basic
# triton ships incomplete types.
"""Kernels for the ceilings that no operation of torch's reaches: reading L2 alone, and fused multiply-adds alone."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def read_kernel(source, sums, tiles, rounds, TILE: tl.constexpr):
    """Reads a set of tiles again and again; `source`: (tiles * TILE,) fp32, `sums`: (programs,) fp32.

    All programs together walk through the set side by side, so two of them hardly ever ask for the same line at once,
    and L2 has to answer each. `.cg` passes L1 by. The sums are stored so that no load can be dropped.
    """
    lanes = tl.arange(0, TILE)
    tile = tl.program_id(0) % tiles
    total = tl.zeros((TILE,), dtype=tl.float32)
    for _ in range(rounds):
        total += tl.load(source + tile * TILE + lanes, cache_modifier=".cg")
        tile = (tile + tl.num_programs(0)) % tiles
    tl.store(sums + tl.program_id(0), tl.sum(total))


@triton.jit
def fma_kernel(out, factor, summand, rounds, TILE: tl.constexpr, UNROLLED: tl.constexpr):
    """Chains of multiply-adds in registers, one for each element of `out`: (programs * TILE,) fp32."""
    lanes = tl.program_id(0) * TILE + tl.arange(0, TILE)
    value = lanes.to(tl.float32)
    for _ in range(rounds):
        for _ in tl.static_range(UNROLLED):  # pyright: ignore[reportGeneralTypeIssues]
            value = value * factor + summand
    tl.store(out + lanes, value)
