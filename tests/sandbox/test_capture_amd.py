"""Capture for AMD's GPUs, by Triton's own backend for them, on a machine that has none."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.sandbox.conftest import KERNEL_HEAD, Floats, Load
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.facts import Capture, TargetFacts
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.workers import KernelWorker, capture_worker

pytestmark = pytest.mark.anyio

MI300X = TargetFacts(
    name="mi300x",
    vendor="amd",
    architecture="gfx942",
    warp_threads=64,
    capability=94,
    sm_count=304,
    shared_bytes_per_block=65_536,
    registers_per_sm=131_072,
)
MATMUL = """\
@triton.jit
def multiply(a, b, c, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at).to(tl.float16), tl.load(b + at).to(tl.float16)))

"""


@pytest.fixture(scope="module")
async def kernels(executor: Executor) -> AsyncGenerator[KernelWorker]:
    async with capture_worker(executor, target=MI300X) as worker:
        yield worker


@pytest.fixture
def capture(kernels: KernelWorker, load: Load, floats: Floats):
    """Loads `KERNEL_HEAD` and an entry, and captures one call of it on a vector of 16,384."""

    async def run(entry: str) -> Capture:
        await load(kernels, KERNEL_HEAD + entry)
        await kernels.set_inputs(floats(16_384))
        return await kernels.capture()

    return run


async def test_a_launch_is_compiled_down_to_the_linked_code_object(capture: Any) -> None:
    captured = await capture(f"{MATMUL}def entry(x):\n    multiply[(7,)](x, x, torch.empty_like(x), BLOCK=64)\n")
    (launch,) = captured.launches
    assert (launch.kernel, launch.grid, launch.num_warps, launch.ptxas_log) == ("multiply", (7, 1, 1), 4, None)
    assert set(launch.assembly) == {"ttir", "ttgir", "llir", "amdgcn", "hsaco"}
    code = captured.text(launch, "amdgcn")
    assert '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"' in code
    assert "v_mfma_f32_" in code
    assert '"ttg.threads-per-warp" = 64' in captured.text(launch, "ttgir")
    assert captured.blobs[launch.assembly["hsaco"]].startswith(b"\x7fELF")


@pytest.mark.parametrize(
    "host",
    [
        "target = triton.runtime.driver.active.get_current_target()\n"
        "    assert (target.backend, target.arch, target.warp_size) == ('hip', 'gfx942', 64)",
        "assert torch.cuda.get_device_capability() == (9, 4) and torch.cuda.get_device_name() == 'mi300x'",
        "assert torch.cuda.get_device_properties(0).multi_processor_count == 304",
        "properties = triton.runtime.driver.active.utils.get_device_properties(0)\n"
        "    assert (properties['max_shared_mem'], properties['warpSize']) == (65_536, 64)",
        "double[(1,)](x, x, 64, BLOCK=64, waves_per_eu=2, matrix_instr_nonkdim=16, kpack=1)",
        "double[(1, 65_536)](x, x, 64, BLOCK=64)",
    ],
)
async def test_host_code_written_for_amd_runs(capture: Any, host: str) -> None:
    captured = await capture(f"def entry(x):\n    {host}\n    launch(x, torch.empty_like(x))\n")
    assert {launch.kernel for launch in captured.launches} == {"double"}


async def test_host_descriptors_become_pointers(capture: Any) -> None:
    entry = """\
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def copy(source, target, BLOCK: tl.constexpr):
    target.store([0, 0], source.load([0, 0]))

def entry(x):
    tiles = [TensorDescriptor.from_tensor(each.view(128, 128), [64, 64]) for each in (x, torch.empty_like(x))]
    copy[(1,)](*tiles, BLOCK=64)
"""
    captured = await capture(entry)
    assert "global_load" in captured.text(captured.launches[0], "amdgcn")


@pytest.mark.parametrize(
    ("launch", "kind", "words"),
    [
        ("multiply[(1,)](x, x, torch.empty_like(x), BLOCK=256)", Kind.LAUNCH_ERROR, "Hardware limit: 65536"),
        ("double[(1,)](x, x, 64, BLOCK=64, num_warps=32)", Kind.LAUNCH_ERROR, "Hardware limit: 1024"),
        ("double[(1 << 24,)](x, x, 64, BLOCK=64)", Kind.LAUNCH_ERROR, "(16777216, 1, 1)"),
        ("double[(1,)](x, x, 64, BLOCK=64, num_ctas=2)", Kind.RUNTIME_ERROR, "num_ctas > 1 not supported on gfx942"),
    ],
)
async def test_what_the_gpu_would_refuse_is_foreseen(capture: Any, launch: str, kind: Kind, words: str) -> None:
    with pytest.raises(Stopped) as caught:
        await capture(f"{MATMUL}def entry(x):\n    {launch}\n")
    assert caught.value.kind is kind
    assert words in caught.value.problem.message


async def test_inline_assembly_for_nvidia_does_not_compile(capture: Any) -> None:
    entry = """\
@triton.jit
def foreign(x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(x_ptr + at, y)

def entry(x):
    foreign[(1,)](x, BLOCK=64)
"""
    with pytest.raises(Stopped) as caught:
        await capture(entry)
    assert "invalid instruction" in (caught.value.problem.output or "")
