"""Devices on which a worker did harm: looked at before the next job, and left alone where they no longer compute."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import pytest

from tests.sandbox.light import PATIENCE_S, KnownHost, background
from tritonforge.sandbox import nvml
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors import local
from tritonforge.sandbox.executors.base import Device, Job
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.isolation import Interpreter, Seal
from tritonforge.sandbox.nvml import GpuDevice, GpuProcess
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.pool import Pool
from tritonforge.sandbox.process import ProcessHandle, WorkerProcess
from tritonforge.sandbox.protocol import Frame
from tritonforge.sandbox.spares import Flavor, Preloader

pytestmark = pytest.mark.anyio


class FakeHandle(ProcessHandle):
    """No process."""

    pid = 1 << 30
    """More than any process has."""

    def ended(self) -> bool:
        return False

    async def wait(self) -> None:
        await anyio.sleep_forever()

    def kill(self) -> None:
        pass

    async def release(self) -> bool:
        return True


class FakeWorker(WorkerProcess):
    """A worker on a GPU that does what the test wants."""

    def __init__(self, gpu: "Gpu") -> None:
        self.gpu = gpu
        self.handle = FakeHandle()
        self.harmed = False
        self.discarded = False

    @asynccontextmanager
    async def attended(self) -> AsyncGenerator[WorkerProcess]:
        try:
            yield self
        finally:
            await self.discard()

    async def begin(self, role: str, device: str, target: dict[str, Any] | None) -> None:
        self.gpu.begun += 1

    async def request(self, operation: str, *_: Any, **__: Any) -> Frame:
        assert operation == "probe_device"
        self.gpu.probes += 1
        await anyio.lowlevel.checkpoint()
        if self.gpu.failing_probes:
            self.gpu.failing_probes -= 1
            raise self.gpu.failure
        return Frame({}, [])

    async def discard(self) -> None:
        self.discarded = True


class Gpu:
    """A device, its pool, and what happened to it."""

    def __init__(self, index: int) -> None:
        self.device = GpuDevice(index=index, uuid=f"GPU-{index}", name="H200", memory_total_bytes=1 << 37)
        self.made: list[FakeWorker] = []
        self.begun = 0
        self.probes = 0
        self.failing_probes = 0
        self.failure = refusal("wrong numbers")

    async def __call__(self) -> WorkerProcess:
        self.made.append(FakeWorker(self))
        return self.made[-1]


class Machine(NamedTuple):
    """Two GPUs, and an executor on them."""

    executor: LocalExecutor
    gpus: list[Gpu]

    async def work(self, *, harm: bool = False) -> None:
        with anyio.fail_after(PATIENCE_S):
            async with self.executor.submit(Job("cuda", on_gpu=True)) as worker:
                worker.harmed = harm

    async def quarantined(self) -> list[str | None]:
        return [device.quarantined for device in await self.executor.devices()]


@pytest.fixture
async def machine(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Machine]:
    gpus = [Gpu(0), Gpu(1)]
    monkeypatch.setattr(nvml, "devices", lambda: [gpu.device for gpu in gpus])
    list_processes(monkeypatch)
    async with LocalExecutor(KnownHost((Interpreter("python", ()), Seal(None)))) as executor, background() as tasks:
        pools = {gpu.device.uuid: Pool(gpu, size=1, gate=None, tasks=tasks) for gpu in gpus}

        def pool(flavor: Flavor, device: Device) -> Pool:
            assert flavor == "gpu"
            return pools[device.uuid]

        async def preloader(_: Flavor) -> None:
            return None

        monkeypatch.setattr(executor, "_pool", pool)
        monkeypatch.setattr(executor, "_preloader", preloader)
        yield Machine(executor, gpus)


def list_processes(monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
    """Have the driver list these on every device."""

    def listed(_: str) -> list[GpuProcess]:
        return [GpuProcess(pid=pid, name=None, memory_bytes=None) for pid in pids]

    monkeypatch.setattr(nvml, "processes", listed)


def refusal(words: str) -> Stopped:
    return Stopped(Kind.RUNTIME_ERROR, Problem(stage="environment", message=words))


async def test_jobs_run_on_the_first_device(machine: Machine) -> None:
    await machine.work()
    await machine.work()
    assert [(gpu.begun, gpu.probes) for gpu in machine.gpus] == [(2, 0), (0, 0)]


async def test_a_device_on_which_a_worker_did_harm_is_probed_before_the_next_job(machine: Machine) -> None:
    first = machine.gpus[0]
    await machine.work(harm=True)
    assert first.probes == 0
    await machine.work()
    assert (first.begun, first.probes) == (2, 1)
    # Cleared: no more probes.
    await machine.work()
    assert (first.begun, first.probes) == (3, 1)
    assert await machine.quarantined() == [None, None]


async def test_a_spare_that_only_probed_is_used_for_a_job(machine: Machine) -> None:
    await machine.work(harm=True)
    await machine.work()
    # The one that did harm, the one that probed and then worked, and the one behind it.
    assert [worker.discarded for worker in machine.gpus[0].made] == [True, True, False]


async def test_harm_is_noticed_where_the_job_fails_too(machine: Machine) -> None:
    async def work() -> None:
        async with machine.executor.submit(Job("cuda", on_gpu=True)) as worker:
            worker.harmed = True
            raise refusal("illegal memory access")

    with pytest.raises(Stopped, match="illegal memory access"):
        await work()
    await machine.work()
    assert machine.gpus[0].probes == 1


async def test_a_device_gets_a_second_chance_with_fresh_spares(machine: Machine) -> None:
    first = machine.gpus[0]
    await machine.work(harm=True)
    first.failing_probes = 1
    await machine.work()
    assert (first.begun, first.probes) == (2, 2)
    assert await machine.quarantined() == [None, None]
    # Those that were ready beside the one that failed are gone as well.
    assert [worker.discarded for worker in first.made[:3]] == [True, True, True]


async def test_a_device_that_fails_twice_is_left_alone_and_another_takes_its_jobs(machine: Machine) -> None:
    first, second = machine.gpus
    await machine.work(harm=True)
    first.failing_probes = 2
    await machine.work()
    assert (first.begun, first.probes) == (1, 2)
    assert second.begun == 1
    reason, other = await machine.quarantined()
    assert "the known kernel failed on it" in (reason or "")
    assert "wrong numbers" in (reason or "")
    assert other is None
    await machine.work()
    assert (first.begun, first.probes, second.begun) == (1, 2, 2)


@pytest.mark.parametrize("kind", [Kind.OUT_OF_MEMORY, Kind.UNAVAILABLE])
async def test_a_device_whose_memory_others_have_is_not_blamed_and_looked_at_again(
    machine: Machine, kind: Kind
) -> None:
    first, second = machine.gpus
    await machine.work(harm=True)
    first.failing_probes = 1
    first.failure = Stopped(kind, Problem(stage="worker", message="CUDA error: out of memory"))
    with pytest.raises(Stopped) as caught:
        await machine.work()
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "out of memory" in caught.value.problem.message
    assert await machine.quarantined() == [None, None]
    await machine.work()
    assert (first.begun, first.probes, second.begun) == (2, 2, 0)


async def test_without_a_device_that_can_be_trusted_jobs_are_refused_with_the_remedy(machine: Machine) -> None:
    for gpu in machine.gpus:
        await machine.work(harm=True)
        gpu.failing_probes = 2
    for _ in range(2):
        with pytest.raises(Stopped) as caught:
            await machine.work()
        assert caught.value.kind is Kind.UNAVAILABLE
        assert "GPU 0 is in quarantine" in caught.value.problem.message
        assert "GPU 1 is in quarantine" in caught.value.problem.message
        assert "nvidia-smi --gpu-reset" in (caught.value.problem.likely_fix or "")


async def test_jobs_that_come_at_once_have_a_device_probed_once(machine: Machine) -> None:
    first = machine.gpus[0]
    await machine.work(harm=True)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(machine.work)
    assert (first.begun, first.probes) == (5, 1)


async def test_a_device_is_not_blamed_for_a_preloader_that_can_not_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Flavor) -> Preloader:
        raise Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message="no torch"))

    await machine.work(harm=True)
    with monkeypatch.context() as patch:
        patch.setattr(machine.executor, "_preloader", fail)
        with pytest.raises(Stopped, match="no torch"):
            await machine.work()
    assert await machine.quarantined() == [None, None]
    await machine.work()
    assert machine.gpus[0].probes == 1


async def test_a_cancelled_probe_settles_nothing(machine: Machine) -> None:
    first = machine.gpus[0]
    await machine.work(harm=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(machine.work)
        while not first.probes:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert await machine.quarantined() == [None, None]
    await machine.work()
    assert (first.begun, first.probes) == (2, 2)


async def test_a_device_that_a_dead_process_still_holds_is_left_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = FakeHandle.pid
    monkeypatch.setattr(local, "GONE_S", 0.0)
    list_processes(monkeypatch, pid)
    await machine.work(harm=True)
    reason, other = await machine.quarantined()
    assert reason == f"process {pid} was killed and still holds it"
    assert other is None
    await machine.work()
    assert machine.gpus[1].begun == 1


async def test_a_driver_that_does_not_tell_who_is_there_is_no_reason_for_quarantine(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> list[GpuProcess]:
        raise nvml.NvmlUnavailable("gone", "restart")

    monkeypatch.setattr(nvml, "processes", refuse)
    await machine.work(harm=True)
    assert await machine.quarantined() == [None, None]
