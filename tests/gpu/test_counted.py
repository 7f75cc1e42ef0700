"""Counters read in an ordinary worker on a real GPU, without Nsight Compute."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.gpu.conftest import EXAMPLES
from tritonforge.profiling.ncu.metrics import FIRST_LOOK
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.profilers import count
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import KernelWorker, gpu_worker, task_worker

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]

SOFTMAX = (EXAMPLES / "softmax" / "candidate.py").read_text()
MORE = [
    "smsp__inst_executed.sum", "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sector_hit_rate.pct", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
]  # fmt: skip
"""Don't fit into one pass with `FIRST_LOOK` on GH100."""
READ, DURATION = "dram__bytes_read.sum", "gpu__time_duration.sum"
INPUT_BYTES = 64 << 20
TASK = """\
import torch

ENTRY = "softmax"
CASES = {"only": {"rows": 8192, "cols": 4096}}


def make_inputs(rows, cols, device):
    return (torch.randn(rows, cols, dtype=torch.float16, device=device),)


def reference(x):
    return torch.softmax(x.float(), dim=-1).to(x.dtype)
"""
TWO = """\
import torch
import triton
import triton.language as tl


@triton.jit
def first_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 2)


@triton.jit
def second_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + 1)


calls = 0


def softmax(x):
    global calls
    calls += 1
    out = torch.empty_like(x)
    first_kernel[(x.numel() // 1024,)](x, out, BLOCK=1024)
    copied = out.clone()
    for _ in range(TIMES):
        second_kernel[(x.numel() // 2048,)](copied, out, BLOCK=2048, num_warps=8)
    return out
"""


@pytest.fixture(scope="module")
async def executor() -> AsyncGenerator[LocalExecutor]:
    async with LocalExecutor(Host(sys.executable, Limits()), spares=1, gpu_spares=2) as executor:
        yield executor


@asynccontextmanager
async def ready(executor: Executor, kernel: str) -> AsyncGenerator[KernelWorker]:
    """A worker with this kernel file and inputs of 64 MiB."""
    async with task_worker(executor, on_gpu=True) as task, gpu_worker(executor) as worker:
        described = await task.load(Source(TASK, "task.py", None))
        await worker.load(Source(kernel, "kernel.py", None), described)
        await worker.set_inputs(await task.make_inputs("only", 1))
        yield worker


async def test_a_softmax_is_counted_in_full_and_its_worker_can_be_used_on(executor: LocalExecutor) -> None:
    metrics: Sequence[str] = (*FIRST_LOOK, *MORE, "no__such.sum")
    async with ready(executor, SOFTMAX) as worker:
        found = [await count(worker, metrics, 10) for _ in range(2)]
        one_pass = await count(worker, FIRST_LOOK, 10)
        called = await worker.call()
    for each in found:
        (launch,) = each.launches
        assert launch.kernel == "softmax_kernel"
        assert (launch.grid, launch.block[1:]) == ((8192, 1, 1), (1, 1))
        assert launch.registers > 8
        assert launch.absent.keys() == {"no__such.sum"}
        assert launch.metrics.keys() == {*FIRST_LOOK, *MORE}
        assert launch.metrics[READ] == pytest.approx(INPUT_BYTES, rel=0.03)
        assert launch.metrics[DURATION] > 0
        assert each.passes > one_pass.passes >= 1
        assert each.left_out == 0
    assert [activity.name for activity in called.facts.activities or []] == ["softmax_kernel"]


async def test_launches_come_in_order_without_copies_and_the_rest_is_left_out(executor: LocalExecutor) -> None:
    async with ready(executor, TWO.replace("TIMES", "2")) as worker:
        found = await count(worker, FIRST_LOOK, 2)
        assert [launch.kernel for launch in found.launches] == ["first_kernel", "second_kernel"]
        assert [launch.grid[0] for launch in found.launches] == [INPUT_BYTES // 2048, INPUT_BYTES // 4096]
        assert [launch.block[0] for launch in found.launches] == [128, 256]
        assert found.left_out == 1
        # What the first one reads was emptied from the cache; the copy leaves the second one some of what it reads.
        assert found.launches[0].metrics[READ] == pytest.approx(INPUT_BYTES, rel=0.03)
        assert found.launches[1].metrics[READ] <= 1.03 * INPUT_BYTES


@pytest.mark.parametrize("times", ["calls % 2", "calls"])
async def test_an_entry_that_launches_other_kernels_each_time_is_refused(executor: LocalExecutor, times: str) -> None:
    async with ready(executor, TWO.replace("TIMES", times)) as worker:
        with pytest.raises(Stopped, match="launches different kernels in different calls") as raised:
            await count(worker, [*FIRST_LOOK, *MORE], 10)
        assert raised.value.kind is Kind.UNSUPPORTED
        assert (await worker.call()).facts.activities
