"""Capture of a kernel file as it stands: what it launches by itself, and how far it gets."""

import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.sandbox.conftest import H100, KERNEL_HEAD
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.facts import CapturedLaunch
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import KernelWorker, capture_worker

pytestmark = pytest.mark.anyio

LIMIT_S = 60.0
X = "x = torch.randn(100, device='cuda')\n"
LAUNCH = "launch(x, torch.empty_like(x))\n"
MAIN = "if __name__ == '__main__':\n    launch(x, x, num_warps=1)\n"


@pytest.fixture(scope="module")
async def kernels(executor: Executor) -> AsyncGenerator[KernelWorker]:
    """One worker for all files here: none of them does harm."""
    async with capture_worker(executor, target=H100) as worker:
        yield worker


@pytest.fixture
def run(kernels: KernelWorker):
    """Runs a file with `KERNEL_HEAD` at its top; its launches."""

    async def run(rest: str, *, limit_s: float = LIMIT_S) -> list[CapturedLaunch]:
        await kernels.run_file(Source(KERNEL_HEAD + rest, "kernel.py", None), limit_s=limit_s)
        return (await kernels.captured()).launches

    return run


@pytest.fixture
def stopped(kernels: KernelWorker, run: Any):
    """Runs a file that fails; how, and the launches that it had made."""

    async def fail(rest: str, *, limit_s: float = LIMIT_S) -> tuple[Stopped, list[CapturedLaunch]]:
        with pytest.raises(Stopped) as caught:
            await run(rest, limit_s=limit_s)
        return caught.value, (await kernels.captured()).launches

    return fail


async def test_a_file_that_ends_with_its_own_tests_is_captured(run: Any) -> None:
    test = "def test_double():\n    for size in (64, 128, 128):\n        launch(torch.randn(size, device='cuda'), x)\n"
    launches = await run(X + test + "result_gold = test_double()\n")
    assert [(launch.grid[0], launch.count) for launch in launches] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("rest", "warps"),
    [
        (X + MAIN, [1]),
        (X + LAUNCH + MAIN, [4]),
        (X + MAIN + "def test_it():\n    launch(x, x, num_warps=2)\n", [1]),
        (X + "def test_it(times=1):\n    launch(x, x, num_warps=2)\ndef test_of(shape):\n    launch(x, x)\n", [2]),
        (X + "def attest():\n    launch(x, x)\n", []),
    ],
)
async def test_main_blocks_and_tests_are_run_where_nothing_was_launched_before(
    run: Any, rest: str, warps: list[int]
) -> None:
    assert [launch.num_warps for launch in await run(rest)] == warps


async def test_an_exit_without_an_error_is_the_end_of_the_file(run: Any) -> None:
    assert len(await run(X + LAUNCH + "import sys\nsys.exit(0)\n")) == 1
    assert len(await run(X + MAIN + "    raise SystemExit\n")) == 1


async def test_an_exit_with_an_error_is_told_and_the_launches_stay(stopped: Any) -> None:
    failure, launches = await stopped(X + MAIN + "    raise SystemExit(3)\n")
    assert (failure.kind, len(launches)) == (Kind.REJECTED, 1)
    assert "sys.exit(3)" in failure.problem.message


async def test_launches_before_a_failure_are_kept_and_its_line_is_told(stopped: Any) -> None:
    failure, launches = await stopped(X + LAUNCH + "assert x.sum() == 1e9\n" + LAUNCH)
    assert (failure.kind, failure.problem.line) == (Kind.RUNTIME_ERROR, KERNEL_HEAD.count("\n") + 3)
    assert [launch.count for launch in launches] == [1]


async def test_a_file_that_does_not_end_is_stopped_and_its_launches_stay(stopped: Any) -> None:
    failure, launches = await stopped(X + LAUNCH + "while True:\n    pass\n", limit_s=2.0)
    assert failure.kind is Kind.UNSUPPORTED
    assert "stopped after 2 s" in failure.problem.message
    assert len(launches) == 1


@pytest.mark.parametrize(
    "host",
    [
        "start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)\n"
        "start.record(); end.record(); assert start.elapsed_time(end) > 0",
        "assert triton.testing.do_bench(lambda: launch(x, x)) > 0",
        "assert len(triton.testing.do_bench(lambda: launch(x, x), quantiles=[0.5, 0.2, 0.8])) == 3",
        "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    launch(x, x)\ngraph.replay()",
        "assert torch.cuda.memory_allocated() == 0 and torch.cuda.mem_get_info()[0] > 0",
        "from torch._C import _cuda_getCurrentRawStream as stream\nassert stream(0) == 0",
        "with torch.cuda._DeviceGuard(x.device.index):\n    launch(x, x)",
        "assert torch._C._dynamo.guards._empty_strided_cuda((4, 2), (2, 1), torch.float16).is_cuda",
        "seed, offset = torch.cuda.default_generators[0].get_state().view(torch.int64)\nassert int(offset) == 0",
        "torch.cuda.nvtx.range_push('it'); torch.cuda.nvtx.range_pop()",
        "assert torch.empty(1000, device='cuda').sum().item() == 0 and x.new_empty(1000).max() == 0",
    ],
)
async def test_what_tests_of_kernels_ask_a_gpu_for_does_not_stop_them(run: Any, host: str) -> None:
    launches = await run(f"{X}{host}\nlaunch(x, x, num_warps=8)\n")
    assert launches[-1].num_warps == 8


async def test_large_tensors_take_no_memory(run: Any) -> None:
    host = """\
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
x = torch.randn(1 << 30, device="cuda")
out = torch.empty_like(x).normal_()
launch(x, out)
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20, "they take more than 1 GiB"
"""
    (launch,) = await run(host)
    assert launch.grid[0] == (1 << 30) // 64


async def test_small_random_tensors_are_random_and_in_order(run: Any) -> None:
    host = "x = torch.rand(1000, device='cuda')\nassert 0.4 < x.mean() < 0.6\nassert torch.randn(1000).std() > 0.9\n"
    assert len(await run(host + LAUNCH)) == 1


async def test_configurations_are_compiled_side_by_side_and_each_has_its_own_words_of_ptxas(run: Any) -> None:
    host = """\
sizes = (32, 4096, 64, 2048)
@triton.autotune([triton.Config({"BLOCK": size}, num_warps=1) for size in sizes], key=["n"])
@triton.jit
def tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

tuned[(7,)](x, x, 100)
"""
    launches = await run(X + host)
    trials = {launch.constexprs["BLOCK"]: launch for launch in launches if launch.tuning}
    assert trials.keys() == {32, 64, 2048, 4096}
    found = {size: re.search(r"Used (\d+) registers", launch.ptxas_log or "") for size, launch in trials.items()}
    registers = {size: int(match[1]) for size, match in found.items() if match is not None}
    assert max(registers[32], registers[64]) < registers[2048] < registers[4096]


async def test_a_configuration_that_can_not_be_compiled_fails_where_it_is_tried(stopped: Any) -> None:
    host = """\
@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 48)], key=["n"])
@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)

tuned[(7,)](x, 100)
"""
    failure, launches = await stopped(X + host)
    assert failure.kind is Kind.COMPILE_ERROR
    assert "power of 2" in failure.problem.message
    assert [launch.constexprs["BLOCK"] for launch in launches] == [64]
