# pyright: basic
# torch ships incomplete types.
"""The highest rates that this GPU reaches with torch's own operations, and with kernels of ours where torch has none:
what a kernel can hope for, where data sheets promise more.

Each is the best of several calls of several operations: a disturbance only makes a call slower. Matrix products are of
random numbers, which draw more power and so run at lower clocks than constant ones, and each call starts on an idle
device, as a timed kernel does behind the flush of L2: under load that lasts, clocks fall further.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton

from .ceiling_kernels import fma_kernel, read_kernel
from .cupti import recorder

Way = Callable[[], object]

ROUNDS = 8
BUFFER_BYTES = 3 << 29
"""Of each of the two: L2 keeps at most 2 % of both, and torch needs no 64-bit indices yet."""
LEAST_BUFFER_BYTES = 1 << 28
MATRIX_SIZES = (4096, 8192)
REASON_LIMIT = 200
PROGRAMS_PER_SM = 8
"""Of 4 warps each: as many as fit at once, with registers to spare."""
READ_TILE, READ_ROUNDS = 2048, 1024
"""8 KiB a program and round, together some 9 GB: a launch of 1 to 2 ms (H200), of which starting is nothing."""
L2_SHARE = 4
"""A quarter of L2 is read: it is made of two halves, each of which caches what its own SMs read (A100 architecture
paper), so shared data may lie in both."""
FMA_TILE, FMA_ROUNDS, FMA_UNROLLED = 1024, 2048, 16
"""8 chains a thread: with 8 warps a scheduler more than enough to hide the 4 cycles that each step takes."""
FAILURES = (
    RuntimeError, TypeError, ValueError, AttributeError, OSError, subprocess.SubprocessError, triton.TritonError
)  # fmt: skip
"""What this GPU, torch, Triton or machine does not have; torch.OutOfMemoryError is a RuntimeError, and the last three
are a kernel's that can't be built here."""


def measure(seconds_limit: float) -> dict[str, Any]:
    """Measure every ceiling; the fields of `CeilingFacts`.

    Args:
        seconds_limit: what has not had its turn by then stays unknown. All together take a few seconds.

    Raises:
        Refused: CUPTI can't record device times.
    """
    deadline = time.perf_counter() + seconds_limit
    found: dict[str, Any] = {}
    absent: dict[str, str] = {}
    recorder().start()
    try:
        for field, attempt in ATTEMPTS.items():
            if time.perf_counter() >= deadline:
                absent[field] = f"the {seconds_limit:g} s for all ceilings were over before its turn"
                continue
            try:
                found[field] = attempt(deadline)
            except FAILURES as error:
                absent[field] = _reason(error)
    finally:
        recorder().stop()
        torch.cuda.empty_cache()
    return {**found, "absent": absent}


def shortest_us(ways: Sequence[Way], deadline: float) -> float:
    """Device time of the fastest call: each way is called once to load what it needs, then several times."""
    shortest = float("inf")
    for way in ways:
        if shortest < float("inf") and time.perf_counter() >= deadline:
            break
        way()
        for _ in range(ROUNDS):
            shortest = min(shortest, _span_us(way))
            if time.perf_counter() >= deadline:
                break
    return shortest


def _span_us(way: Way) -> float:
    """First start to last end of what a call puts on the device."""
    recording = recorder()
    torch.cuda.synchronize()
    recording.read()
    way()
    torch.cuda.synchronize()
    activities = recording.read()
    span_ns = max((it.stop_ns for it in activities), default=0) - min((it.start_ns for it in activities), default=0)
    if span_ns <= 0:
        raise RuntimeError("CUPTI recorded no device time")
    return span_ns / 1e3


def _launch_us(deadline: float) -> float:
    target = torch.zeros(1, device="cuda")
    return shortest_us([lambda: target.fill_(1.0)], deadline)


def _buffers() -> tuple[torch.Tensor, torch.Tensor]:
    """Two float32 matrices of random numbers, together far larger than L2."""
    free_bytes, _ = torch.cuda.mem_get_info()
    # What torch holds from before counts as used there, though it is free for us.
    free_bytes += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    size_bytes = min(BUFFER_BYTES, free_bytes // 3)
    if size_bytes < LEAST_BUFFER_BYTES:
        raise RuntimeError(f"only {free_bytes:,} bytes of GPU memory are free")
    columns = 1 << 16
    first = torch.rand(size_bytes // 4 // columns, columns, device="cuda")
    return first, first.clone()


def _read_bytes_per_s(deadline: float) -> float:
    buffers = _buffers()
    vector = torch.rand(buffers[0].shape[1], device="cuda")
    ways: list[Way] = [
        lambda: [torch.sum(buffer) for buffer in buffers],
        lambda: [torch.sum(buffer, dim=1) for buffer in buffers],
        lambda: [torch.mv(buffer, vector) for buffer in buffers],
    ]
    return 2 * _size_bytes(buffers[0]) / shortest_us(ways, deadline) * 1e6


def _copy_bytes_per_s(deadline: float) -> float:
    source, target = _buffers()
    ways: list[Way] = [lambda: target.copy_(source), lambda: torch.neg(source, out=target)]
    return 2 * _size_bytes(source) / shortest_us(ways, deadline) * 1e6


def _write_bytes_per_s(deadline: float) -> float:
    buffers = _buffers()
    ways: list[Way] = [
        lambda: [buffer.fill_(1.0) for buffer in buffers],
        lambda: [buffer.zero_() for buffer in buffers],
    ]
    return 2 * _size_bytes(buffers[0]) / shortest_us(ways, deadline) * 1e6


def _l2_read_bytes_per_s(deadline: float) -> float:
    properties = torch.cuda.get_device_properties(0)
    if not properties.L2_cache_size:
        raise RuntimeError("torch does not tell how large this GPU's L2 is")
    tiles = max(1, properties.L2_cache_size // L2_SHARE // (4 * READ_TILE))
    programs = properties.multi_processor_count * PROGRAMS_PER_SM
    source, sums = torch.rand(tiles * READ_TILE, device="cuda"), torch.empty(programs, device="cuda")

    def read() -> None:
        # Not pipelined: that would put copies to shared memory between L2 and the registers.
        launch: Any = read_kernel[(programs,)]
        launch(source, sums, tiles, READ_ROUNDS, TILE=READ_TILE, num_stages=1)

    return 4 * READ_TILE * READ_ROUNDS * programs / shortest_us([read], deadline) * 1e6


def _size_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _fp32_flops_per_s(deadline: float) -> float:
    products = _float32_flops_per_s(deadline, tensor_cores=False)
    try:
        return max(products, _fma_flops_per_s(deadline))
    except FAILURES:
        return products


def _fma_flops_per_s(deadline: float) -> float:
    programs = torch.cuda.get_device_properties(0).multi_processor_count * PROGRAMS_PER_SM
    out = torch.empty(programs * FMA_TILE, device="cuda")

    def chains() -> None:
        # Near 1, so that values go on changing to the end of the chain: constant ones draw less power.
        launch: Any = fma_kernel[(programs,)]
        launch(out, 0.9999, 0.5, FMA_ROUNDS, TILE=FMA_TILE, UNROLLED=FMA_UNROLLED)

    return 2 * out.numel() * FMA_ROUNDS * FMA_UNROLLED / shortest_us([chains], deadline) * 1e6


def _tf32_flops_per_s(deadline: float) -> float:
    if torch.cuda.get_device_capability() < (8, 0):
        raise RuntimeError("this GPU has no TF32")
    return _float32_flops_per_s(deadline, tensor_cores=True)


def _float32_flops_per_s(deadline: float, *, tensor_cores: bool) -> float:
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = tensor_cores
    try:
        return _product_flops_per_s(_square(torch.float32), deadline)
    finally:
        matmul.allow_tf32 = before


def _bf16_flops_per_s(deadline: float) -> float:
    return max(_product_flops_per_s(_square(dtype), deadline) for dtype in (torch.bfloat16, torch.float16))


def _fp8_flops_per_s(deadline: float) -> float:
    if torch.cuda.get_device_capability() < (8, 9):
        raise RuntimeError("this GPU has no FP8")
    one = torch.ones((), device="cuda")

    def product(size: int) -> Way:
        a = torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn)
        # Column-major, which is the only form that the hardware takes.
        b = torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn).t()
        return lambda: torch.ops.aten._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    return _product_flops_per_s(product, deadline)


def _square(dtype: torch.dtype) -> Callable[[int], Way]:
    def product(size: int) -> Way:
        a, b = (torch.randn(size, size, dtype=dtype, device="cuda") for _ in range(2))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)

    return product


def _product_flops_per_s(product: Callable[[int], Way], deadline: float) -> float:
    """The best over square matrices of several sizes."""
    rates: list[float] = []
    for size in MATRIX_SIZES:
        if rates and time.perf_counter() >= deadline:
            break
        rates.append(2 * size**3 / shortest_us([product(size)], deadline) * 1e6)
    return max(rates)


def _reason(error: Exception) -> str:
    """The first line: torch's errors go on with advice and stack traces."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:REASON_LIMIT]


ATTEMPTS: dict[str, Callable[[float], float]] = {
    "launch_us": _launch_us,
    "read_bytes_per_s": _read_bytes_per_s,
    "copy_bytes_per_s": _copy_bytes_per_s,
    "write_bytes_per_s": _write_bytes_per_s,
    "bf16_flops_per_s": _bf16_flops_per_s,
    "fp8_flops_per_s": _fp8_flops_per_s,
    "tf32_flops_per_s": _tf32_flops_per_s,
    "l2_read_bytes_per_s": _l2_read_bytes_per_s,
    "fp32_flops_per_s": _fp32_flops_per_s,
}
"""By field; what is needed most comes first."""
