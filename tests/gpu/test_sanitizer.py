"""Compute Sanitizer on a real GPU: what it must find in Triton kernels, and what it must not say about honest ones."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from tritonforge.profiling.sanitizer.command import TOOLS, find_sanitizer
from tritonforge.profiling.sanitizer.report import Finding
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import task_worker
from tritonforge.server.sanitizing import SanitizerReport, sanitize
from tritonforge.server.services import Services
from tritonforge.server.settings import from_environment

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(find_sanitizer() is None, reason="this machine has no compute-sanitizer"),
]

TASK = """
import torch

ENTRY = "double"
# Inputs above 64 KiB come to the kernel's worker as exported GPU memory.
CASES = {"small": {"n": 3000}, "large": {"n": 1_000_001}}


def make_inputs(n, device):
    return (torch.randn(n, device=device),)


def reference(x):
    return 2 * x
"""
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load({source} + offsets, mask=mask)
    tl.store(out_ptr + offsets, 2 * x, mask={mask})


def double(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
REDUCE = """
import torch
import triton
import triton.language as tl


@triton.jit
def sums_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    total = tl.sum(x, axis=0)
    tl.store(out_ptr + tl.program_id(0), total)
    tl.store(out_ptr + tl.num_programs(0) + tl.program_id(0), tl.max(tl.cumsum(x, axis=0), axis=0))


def double(x):
    programs = triton.cdiv(x.numel(), 4096)
    out = torch.empty(2 * programs, device=x.device)
    sums_kernel[(programs,)](x, out, x.numel(), BLOCK=4096, num_warps=8)
    # Torch's own kernels read what the candidate's wrote.
    return (x * 2 + out.sum() * 0).contiguous()
"""
HONEST = KERNEL.format(source="x_ptr", mask="mask")
STORE_LINE = 1 + HONEST.splitlines().index("    tl.store(out_ptr + offsets, 2 * x, mask=mask)")
LOAD_LINE = STORE_LINE - 1

Check = Callable[..., Awaitable[SanitizerReport]]


@pytest.fixture(scope="module")
async def check(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Check]:
    """Check a kernel on a case."""
    settings = from_environment(state_dir=str(tmp_path_factory.mktemp("state")))
    async with Services(settings) as services, services.gpu_turn():

        async def check(kernel: str, case: str = "small") -> SanitizerReport:
            async with task_worker(services.executor, on_gpu=True) as tasks:
                spec = await tasks.load(Source(TASK, "task.py", None))
                return await sanitize(services, Source(kernel, "mine.py", None), spec, tasks, case, 0)

        yield check


def whole(report: SanitizerReport) -> list[Finding]:
    """The findings of a report that all four tools have contributed to."""
    assert report.failures == {}
    assert report.tools == list(TOOLS)
    return report.findings


@pytest.mark.parametrize("case", ["small", "large"])
@pytest.mark.parametrize("kernel", [HONEST, REDUCE], ids=["map", "reduce"])
async def test_an_honest_kernel_has_no_findings(check: Check, kernel: str, case: str) -> None:
    assert whole(await check(kernel, case)) == []


async def test_a_store_of_one_element_past_the_end_is_found_with_its_line(check: Check) -> None:
    findings = whole(await check(KERNEL.format(source="x_ptr", mask="offsets < n + 1")))
    (found,) = [finding for finding in findings if finding.tool == "memcheck"]
    assert (found.kind, found.kernel, found.size_bytes) == ("invalid write", "double_kernel", 4)
    assert (found.file, found.line) == ("mine.py", STORE_LINE)
    assert "after the nearest allocation" in (found.detail or "")
    assert found.block == (2, 0, 0)


async def test_a_read_of_what_nothing_has_written_is_found_with_its_line(check: Check) -> None:
    report = await check(KERNEL.format(source="out_ptr", mask="mask"))
    # Every thread reads what was not written: initcheck drops what its buffer does not hold, and says so.
    assert set(report.failures) <= {"initcheck"}
    findings = report.findings
    assert {(finding.tool, finding.kind) for finding in findings} == {("initcheck", "uninitialized read")}
    assert {(finding.kernel, finding.file, finding.line) for finding in findings} == {
        ("double_kernel", "mine.py", LOAD_LINE)
    }


async def test_a_call_that_raises_is_told_as_the_reason(check: Check) -> None:
    report = await check("def double(x):\n    raise ValueError('not today')\n")
    assert report.findings == []
    assert report.failures.keys() == set(TOOLS)
    assert all("not today" in why for why in report.failures.values())
