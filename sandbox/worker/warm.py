# pyright: basic
# torch and triton ship incomplete types.
"""First times, paid before a job comes: the compiler's once in the preloader, the device's in each spare."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

LENGTH = 128


@triton.jit
def known_kernel(x_ptr, out_ptr, LENGTH: tl.constexpr):
    offsets = tl.arange(0, LENGTH)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * 2 + 1)


def compile_once(cache: str, *, driver: bool) -> None:
    """Compile the known kernel for Hopper: loads the compiler, its passes and its libraries; no GPU is touched.

    Args:
        cache: folder for what is compiled.
        driver: the NVIDIA driver is there: build Triton's own launch helpers too, which takes a C compiler a second.
    """
    os.makedirs(cache, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = cache
    source = ASTSource(
        fn=known_kernel,
        signature={"x_ptr": "*fp32", "out_ptr": "*fp32", "LENGTH": "constexpr"},
        constexprs={(2,): LENGTH},
        attrs={(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]},
    )
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    if driver:
        from triton.backends.nvidia.driver import CudaDriver, CudaLauncher

        # Neither opens the device: that would make CUDA unusable in every fork.
        triton.runtime.driver.set_active(CudaDriver())
        CudaLauncher(kernel.src, kernel.metadata)


def load_sides() -> None:
    """Import what jobs under a profiler use."""
    from . import kernel_side, load, measure, reference, share, standalone, tuning, values  # noqa: F401


def fill_cache(base: str | None, own: str) -> None:
    """A cache of one's own that starts with what the preloader compiled."""
    if base is not None and Path(base).is_dir():
        shutil.copytree(base, own, dirs_exist_ok=True)
    else:
        os.makedirs(own, exist_ok=True)


def use_everything() -> None:
    """What jobs do on the GPU, once, on a few elements: torch loads each of its kernels when it is first used.

    Raises:
        Exception: whatever goes wrong on a device or an installation that can't do this.
    """
    from . import contents, cupti, measure, share

    touch_gpu()
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        values = torch.randn(LENGTH, device="cuda", dtype=dtype)
        judge_everything(values)
        contents.Contents((values,), 0).make(1)
        # Opens cuBLAS, for references that multiply matrices.
        torch.mm(values.reshape(-1, 8), values.reshape(8, -1))
    shared = share.to_device(torch.zeros(share.INLINE_BYTES, dtype=torch.uint8, device="cuda"))
    share.from_device(shared, "cuda:0")
    os.close(shared.descriptor)
    recording = cupti.recorder()
    recording.start()
    measure.L2Flush(LENGTH)()
    measure.spin()
    torch.cuda.synchronize()
    recording.stop()
    recording.read()


def judge_everything(values: torch.Tensor) -> None:
    """All comparisons of outputs of one type: right ones and wrong ones."""
    from . import canary, judge

    exact, wrong = values.double(), values.clone()
    # Several, whose places have a step.
    wrong[::4] += 1
    name = str(values.dtype).removeprefix("torch.")
    rules = judge.Rules({name: {"rtol": 0.0, "atol": 0.0}}, reduction=1.0)
    judge.compare(values, wrong, rules)
    judge.accuracy(exact, values, wrong, factor=None)
    judge.differing(values, wrong)
    judge.finiteness(values)
    # What is not finite takes ways of its own.
    special = values.clone()
    special[0] = float("inf")
    judge.finiteness(special)
    judge.accuracy(special.double(), special, special, factor=None)
    key = bytes(canary.KEY_BYTES)
    canary.broken(torch.zeros((1, 2, canary.MARGIN), dtype=torch.uint8, device=values.device), key)


def touch_gpu() -> None:
    """Make the CUDA context and run the known kernel on it.

    Raises:
        RuntimeError: the device computes wrong numbers.
    """
    x = torch.arange(LENGTH, dtype=torch.float32, device="cuda")
    out = torch.empty_like(x)
    known_kernel[(1,)](x, out, LENGTH=LENGTH)  # pyright: ignore[reportArgumentType]
    if out.tolist() != [2.0 * i + 1 for i in range(LENGTH)]:
        raise RuntimeError("the known kernel computed wrong numbers on this device")
