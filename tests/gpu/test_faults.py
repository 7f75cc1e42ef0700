"""Kernels that break the GPU's context, hang it or take its memory: the next one finds a clean worker and device."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.faults.evaluations import KERNEL, LARGE_TILES, TASK, Tools, entry, failed, replaced
from tritonforge.sandbox import nvml
from tritonforge.sandbox.executors.base import Job
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.usage import tree
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]

LIMITS = Limits(request_s=5.0, gpu_memory_bytes=24 << 30)


class Recorded(LocalExecutor):
    """Remembers the processes of every worker that it gave to a job."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, spares=1, gpu_spares=2)
        self.used: list[set[int]] = []
        self._working = 0
        self._settled = anyio.Event()

    @asynccontextmanager
    async def submit(self, job: Job) -> AsyncGenerator[WorkerProcess]:
        self._working += 1
        try:
            async with super().submit(job) as worker:
                first = tree(worker.handle.pid)
                try:
                    yield worker
                finally:
                    self.used.append(first | tree(worker.handle.pid))
        finally:
            self._working -= 1
            if not self._working:
                self._settled.set()

    async def settled(self) -> None:
        """Wait until no worker is left: an evaluation is answered before its workers have ended."""
        while self._working:
            self._settled = anyio.Event()
            await self._settled.wait()


class Faults(Tools):
    """The tools on a GPU, with an executor that remembers."""

    def __init__(self, services: Services, executor: Recorded) -> None:
        super().__init__(services)
        self.executor = executor

    async def go_on(self) -> None:
        """The next evaluation is right, in other processes; the device is trusted, and the dead have left it."""
        await self.executor.settled()
        ended = set[int]().union(*self.executor.used)
        self.executor.used.clear()
        result = await self.check()
        await self.executor.settled()
        assert (result.kind, result.device) == (Kind.OK, "cuda:0"), result.summary
        assert len(self.executor.used) == 2
        assert not ended & set[int]().union(*self.executor.used)
        assert not [pid for pid in ended if runs(pid)]
        for device in await self.executor.devices():
            assert device.quarantined is None
            assert not ended & {process.pid for process in nvml.processes(device.uuid)}


def runs(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of it until it is waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


@pytest.fixture(scope="module")
async def shared_faults(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Faults]:
    services = Services(Settings(state_dir=tmp_path_factory.mktemp("state"), limits=LIMITS))
    services.executor = executor = Recorded(Host(services.settings.python, LIMITS))
    async with services:
        yield Faults(services, executor)


@pytest.fixture
async def faults(shared_faults: Faults) -> AsyncGenerator[Faults]:
    """Whatever a test does, the evaluation after it must go on as if nothing had been."""
    yield shared_faults
    await shared_faults.go_on()


def body(statements: str) -> str:
    """A kernel file whose kernel does this before it stores."""
    return replaced(KERNEL, "    tl.store", f"    {statements}\n    tl.store")


def assembly(text: str) -> str:
    """A kernel file whose kernel computes by these PTX instructions."""
    return replaced(KERNEL, "x * 2", f'tl.inline_asm_elementwise("{text}", "=r,r", [x], tl.float32, False, 1)')


# The context is lost

ASSERTING = body('tl.device_assert(x > 1e30, "much too small")').replace("BLOCK=64)", "BLOCK=64, debug=True)")


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (replaced(KERNEL, "tl.store(out_ptr + offsets", "tl.store(out_ptr + (offsets.to(tl.int64) << 40)"), "illegal"),
        (replaced(KERNEL, "tl.load(x_ptr + offsets", "tl.load(x_ptr + (offsets.to(tl.int64) << 40)"), "illegal"),
        (ASSERTING, "device-side assert"),
        (entry("    torch.zeros(4, device=x.device)[torch.full((1,), 9, device=x.device)]\n"), "device-side assert"),
        (assembly("trap; mov.b32 $0, $1;"), "CUDA"),
    ],
    ids=["wild store", "wild load", "Triton's assert", "torch's assert", "trap"],
)
async def test_an_error_that_ruins_the_context_is_a_runtime_error(faults: Faults, kernel: str, words: str) -> None:
    problem = failed(await faults.check(kernel), Kind.RUNTIME_ERROR, "run")
    assert words in problem.message


async def test_the_text_of_a_failed_assertion_is_told(faults: Faults) -> None:
    problem = failed(await faults.check(ASSERTING), Kind.RUNTIME_ERROR, "run")
    assert "much too small" in (problem.output or "")


# It never ends

# Volatile, or the compiler may take it that the loop ends.
FOR_EVER = "while tl.load(x_ptr, volatile=True) < 1e30:\n        pass"
ENDLESS = body(FOR_EVER)
ASIDE = replaced(
    ENDLESS,
    "    double_kernel[",
    "    with torch.cuda.stream(torch.cuda.Stream()):\n        double_kernel[",
)


@pytest.mark.parametrize(
    "kernel",
    [
        ENDLESS,
        ASIDE,
        entry("    while True:\n        pass\n"),
        entry("    import threading\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()\n"),
        replaced(ENDLESS, "    return out", "    import os, signal\n    os.kill(os.getpid(), signal.SIGSTOP)"),
    ],
    ids=["on the GPU", "on another stream", "on the host", "deadlock", "stopped over a busy GPU"],
)
async def test_what_never_ends_is_killed_when_its_time_is_over(faults: Faults, kernel: str) -> None:
    problem = failed(await faults.check(kernel), Kind.TIMEOUT, "run")
    assert problem.message == "running the entry took longer than 5 s and was killed"


# The process ends

DIE = "    import ctypes, os, signal\n    double_kernel[(1,)](x, x.clone(), 64, BLOCK=64)\n    {statement}\n"


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ctypes.string_at(0)", "killed by SIGSEGV"),
        ("os.abort()", "killed by SIGABRT"),
        ("os._exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "killed by SIGTERM"),
    ],
)
async def test_a_process_that_ends_over_its_work_is_a_runtime_error(faults: Faults, statement: str, words: str) -> None:
    kernel = entry(DIE.format(statement=statement))
    assert words in failed(await faults.check(kernel), Kind.RUNTIME_ERROR, "run").message


# Memory

HOG = """\
    hoard = [torch.empty(1 << 30, dtype=torch.uint8, device=x.device) for _ in range(32)]
    while hoard:
        pass
"""


async def test_more_memory_than_the_device_has_is_out_of_memory(faults: Faults) -> None:
    kernel = entry("    torch.empty(1 << 42, dtype=torch.uint8, device=x.device)\n")
    problem = failed(await faults.check(kernel), Kind.OUT_OF_MEMORY, "run")
    assert "CUDA out of memory" in problem.message


async def test_more_gpu_memory_than_is_allowed_ends_the_worker(faults: Faults) -> None:
    problem = failed(await faults.check(entry(HOG)), Kind.OUT_OF_MEMORY, "run")
    assert "bytes of GPU memory, of 25,769,803,776 that are allowed" in problem.message


async def test_more_shared_memory_than_a_block_may_have_is_a_launch_error(faults: Faults) -> None:
    problem = failed(await faults.check(LARGE_TILES), Kind.LAUNCH_ERROR, "launch")
    assert "shared memory" in problem.message
    assert problem.likely_fix


# Sizes

LARGE_TASK = """\
import torch

ENTRY = "double"
CASES = {"large": {"n": (1 << 31) + 8192}}


def make_inputs(n, device):
    return (torch.randint(1, 50, (n,), dtype=torch.int8, device=device),)


def reference(x):
    return x * 2
"""
LARGE = KERNEL.replace("64", "4096")
"""More than 2^31 elements of one byte: what is left out of them stays zero, which no doubled element is."""
WIDE = replaced(LARGE, "tl.program_id(0) * BLOCK", "tl.program_id(0).to(tl.int64) * BLOCK")


async def test_offsets_beyond_32_bits_overflow_unless_they_are_made_wider(faults: Faults) -> None:
    narrow = await faults.check(LARGE.replace("empty_like", "zeros_like"), LARGE_TASK)
    assert narrow.kind in {Kind.RUNTIME_ERROR, Kind.WRONG}, narrow.summary
    assert narrow.problem is not None
    wide = await faults.check(WIDE, LARGE_TASK)
    assert wide.kind is Kind.OK, wide.summary
    assert wide.cases[0].elements == (1 << 31) + 8192


async def test_an_empty_result_proves_nothing(faults: Faults) -> None:
    empty = replaced(TASK, '"n": 1000', '"n": 0')
    problem = failed(await faults.check(task=empty), Kind.REJECTED, "audit")
    assert "0 elements" in problem.message


# The compiler


async def test_assembly_that_ptxas_rejects_is_a_compile_error(faults: Faults) -> None:
    problem = failed(await faults.check(assembly("mull.rubbish $0, $1;")), Kind.COMPILE_ERROR, "compile")
    assert "ptxas" in problem.message.lower()


# What goes on beside

LAUNCHING = """\
    import threading
    def launch():
        more = torch.empty_like(x)
        while True:
            double_kernel[(1,)](x, more, 64, BLOCK=64)
    threading.Thread(target=launch, daemon=True).start()
"""
FORKING = """\
    import os, signal
    x.sum().item()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        try:
            torch.zeros(1, device="cuda").item()
        except RuntimeError:
            pass
        os.write(writer, b"!")
        while True:
            signal.pause()
    os.read(reader, 1)
"""


async def test_a_thread_that_launches_for_ever_ends_with_its_evaluation(faults: Faults) -> None:
    result = await faults.check(entry(LAUNCHING))
    assert result.kind in {Kind.OK, Kind.TIMEOUT, Kind.RUNTIME_ERROR}, result.summary


async def test_a_child_forked_after_the_context_was_made_ends_with_its_evaluation(faults: Faults) -> None:
    result = await faults.check(entry(FORKING))
    assert result.kind is Kind.OK, result.summary
