"""What the tools share: the interpreter is looked at once, a missing GPU is said with its remedy, and so are others
on the GPU."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.sandbox import nvml
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Device, Executor
from tritonforge.sandbox.facts import Environment, GpuFacts
from tritonforge.sandbox.lease import Leases, Sharing
from tritonforge.sandbox.nvml import GpuProcess
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server import services as services_module
from tritonforge.server.services import Services, Shared, target_facts
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

CPU_ONLY = Environment(executable="/opt/python", python="3.12.1", torch="2.9.0", triton="3.5.0")
H200 = GpuFacts(
    name="NVIDIA H200",
    capability=90,
    sm_count=132,
    memory_bytes=143_771 << 20,
    l2_bytes=50 << 20,
    cuda="12.9",
    device_count=1,
)
WITH_GPU = CPU_ONLY.model_copy(update={"gpu": H200})
BROKEN = Environment(
    executable="/opt/python",
    problem=Problem(stage="environment", message="torch is missing", likely_fix="Install torch."),
)

Machine = Callable[..., list[str]]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """Sets up a machine: what probes find one after the other, and whether there is a driver.

    Returns the interpreters that were probed so far, a list that grows.
    """

    def set_up(*found: Environment, driver: bool) -> list[str]:
        probed: list[str] = []

        async def probe(executor: Executor) -> Environment:
            probed.append(executor.python)
            await anyio.lowlevel.checkpoint()
            return found[min(len(probed), len(found)) - 1]

        monkeypatch.setattr(services_module, "probe", probe)
        monkeypatch.setattr(services_module, "GPU_DEVICE_FILES", (tmp_path,) if driver else (tmp_path / "none",))
        return probed

    return set_up


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return Services(Settings(python="/opt/python", state_dir=tmp_path))


async def test_the_interpreter_is_looked_at_once_however_many_ask(machine: Machine, services: Services) -> None:
    probed = machine(CPU_ONLY, driver=False)
    found: list[Environment] = []

    async def ask() -> None:
        found.append(await services.environment())

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ask)
    assert found == [CPU_ONLY] * 5
    assert probed == ["/opt/python"]


async def test_an_interpreter_with_a_problem_is_looked_at_again_once_it_may_be_mended(
    machine: Machine, services: Services
) -> None:
    probed = machine(BROKEN, CPU_ONLY, driver=False)
    assert await services.environment() == BROKEN
    assert await services.environment() == CPU_ONLY
    assert await services.environment() == CPU_ONLY
    assert len(probed) == 2


async def test_where_there_is_no_driver_no_worker_is_started_to_find_out(machine: Machine, services: Services) -> None:
    probed = machine(WITH_GPU, driver=False)
    assert not await services.has_gpu()
    assert await services.gpu() is None
    with pytest.raises(Stopped) as raised:
        await services.require_gpu("benchmark")
    assert probed == []
    assert raised.value.kind is Kind.UNAVAILABLE
    assert raised.value.problem.stage == "benchmark"
    assert "no NVIDIA GPU" in raised.value.problem.message
    assert "Run the server on a machine" in str(raised.value.problem.likely_fix)


async def test_a_torch_that_sees_no_gpu_beside_a_driver_is_named(machine: Machine, services: Services) -> None:
    machine(CPU_ONLY, driver=True)
    assert not await services.has_gpu()
    with pytest.raises(Stopped) as raised:
        await services.require_gpu("profile")
    assert raised.value.kind is Kind.UNAVAILABLE
    assert "torch 2.9.0 of /opt/python sees no GPU" in raised.value.problem.message
    assert "CUDA build" in str(raised.value.problem.likely_fix)


async def test_a_broken_interpreter_is_said_before_a_missing_gpu(machine: Machine, services: Services) -> None:
    machine(BROKEN, driver=True)
    with pytest.raises(Stopped) as raised:
        await services.require_gpu("profile")
    assert (raised.value.kind, raised.value.problem) == (Kind.UNAVAILABLE, BROKEN.problem)


async def test_a_gpu_is_found_in_the_catalogue_and_is_the_default_target(machine: Machine, services: Services) -> None:
    machine(WITH_GPU, driver=True)
    assert await services.has_gpu()
    assert await services.require_gpu("benchmark") == WITH_GPU
    gpu = await services.gpu()
    assert gpu is not None
    assert gpu.name == "h200"
    assert (await services.target(None)).name == "h200"


async def test_a_named_target_comes_before_this_machines_gpu(machine: Machine, services: Services) -> None:
    machine(WITH_GPU, driver=True)
    assert (await services.target("h100-pcie")).name == "h100-pcie"


@pytest.mark.parametrize(("name", "such_as"), [("h1000", ", such as 'h100'"), ("xyzzy", "")])
async def test_an_unknown_target_is_told_with_what_to_do_next(services: Services, name: str, such_as: str) -> None:
    with pytest.raises(Stopped) as stopped:
        await services.target(name)
    assert (stopped.value.kind, stopped.value.problem.stage) == (Kind.REJECTED, "target")
    fix = f"Give target as one of the allowed names{such_as}, or leave it out."
    assert stopped.value.problem.likely_fix == fix


async def test_a_gpu_that_is_not_in_the_catalogue_leaves_the_settings_target(
    machine: Machine, services: Services
) -> None:
    slice_of_it = H200.model_copy(update={"memory_bytes": 18 << 30, "sm_count": 16})
    machine(CPU_ONLY.model_copy(update={"gpu": slice_of_it}), driver=True)
    assert await services.gpu() is None
    assert (await services.target(None)).name == "h100-sxm"


async def test_the_settings_target_is_used_where_there_is_no_gpu(machine: Machine, tmp_path: Path) -> None:
    machine(CPU_ONLY, driver=False)
    services = Services(Settings(target="h20", state_dir=tmp_path))
    assert (await services.target(None)).name == "h20"


@pytest.mark.parametrize("name", ["", "h1000", "sm_75", "💥"])
async def test_a_name_that_is_no_target_is_rejected_with_what_is_allowed(
    machine: Machine, services: Services, name: str
) -> None:
    machine(CPU_ONLY, driver=False)
    with pytest.raises(Stopped) as raised:
        await services.target(name)
    assert (raised.value.kind, raised.value.problem.stage) == (Kind.REJECTED, "target")
    assert "h100-sxm" in raised.value.problem.message


def test_workers_learn_of_a_target_what_code_generation_needs() -> None:
    facts = target_facts(resolve_target("h100"))
    assert (facts.name, facts.capability, facts.sm_count) == ("h100-sxm", 90, 132)
    assert facts.shared_bytes_per_block == 232_448
    assert facts.registers_per_sm == 65_536


def test_workers_learn_whose_a_target_is() -> None:
    hopper, cdna3 = target_facts(resolve_target("h100")), target_facts(resolve_target("mi300x"))
    assert (hopper.vendor, hopper.architecture, hopper.warp_threads) == ("nvidia", "sm_90", 32)
    assert (cdna3.vendor, cdna3.architecture, cdna3.warp_threads) == ("amd", "gfx942", 64)
    assert (cdna3.sm_count, cdna3.shared_bytes_per_block) == (304, 65_536)


def test_a_bare_architecture_has_no_number_of_sms() -> None:
    assert target_facts(resolve_target("sm_90")).sm_count is None


# The GPU's lease, and who else uses it.

GPU = Device(index=0, uuid="GPU-7", name="NVIDIA H200", memory_bytes=H200.memory_bytes)
ALONE = Sharing(foreign=[], checked=True, reason=None)
UNCHECKED = Sharing(foreign=[], checked=False, reason="the driver does not tell")


def shared_with(*others: tuple[int, str | None]) -> Sharing:
    foreign = [GpuProcess(pid=pid, name=name, memory_bytes=None) for pid, name in others]
    return Sharing(foreign=foreign, checked=True, reason=None)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (ALONE, ALONE, None),
        (ALONE, None, None),
        (shared_with((7, "trainer")), ALONE, "trainer (pid 7)"),
        (ALONE, shared_with((7, "trainer")), "trainer (pid 7)"),
        (shared_with((9, None)), shared_with((7, "trainer"), (9, None)), "trainer (pid 7), unknown (pid 9)"),
        (UNCHECKED, shared_with((7, "trainer")), "trainer (pid 7)"),
        (UNCHECKED, ALONE, "could not be checked: the driver does not tell"),
        (ALONE, UNCHECKED, "could not be checked: the driver does not tell"),
    ],
    ids=["alone", "so far", "before", "after", "both", "unchecked, others", "unchecked before", "unchecked after"],
)
def test_a_measurement_is_noted_to_be_disturbed_by_who_was_seen_before_or_after_it(
    before: Sharing, after: Sharing | None, said: str | None
) -> None:
    note = Shared(before, after).note
    if said is None:
        assert note is None
    else:
        assert note is not None
        assert note.endswith(said)


def test_of_many_others_a_few_are_named() -> None:
    note = Shared(shared_with(*((pid, f"job{pid}") for pid in range(1, 100)))).note
    assert note is not None
    assert "job5 (pid 5)" in note
    assert "job6" not in note


async def test_before_and_after_a_measurement_the_device_is_looked_at(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [ALONE, shared_with((7, "trainer"))]
    looked_at: list[str] = []

    def sharing(uuid: str, own: set[int]) -> Sharing:
        looked_at.append(uuid)
        return looks.pop(0)

    monkeypatch.setattr(services_module, "sharing", sharing)
    async with services.measuring(GPU) as shared:
        assert looked_at == ["GPU-7"]
        assert shared.note is None
    assert looked_at == ["GPU-7", "GPU-7"]
    assert "trainer (pid 7)" in str(shared.note)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[nvml.GpuDevice]:
    """What the driver's management library shows from now on; locks are kept in a folder of this test."""
    shown: list[nvml.GpuDevice] = []
    monkeypatch.setattr(nvml, "devices", lambda: list(shown))
    monkeypatch.setattr(services_module, "Leases", lambda: Leases(tmp_path))
    return shown


async def test_without_a_device_there_is_no_turn_on_one(devices: list[nvml.GpuDevice], services: Services) -> None:
    with pytest.raises(Stopped) as raised:
        async with services.gpu_turn():
            pytest.fail("a turn on no device")
    assert raised.value.kind is Kind.UNAVAILABLE
    assert "no GPU is visible" in raised.value.problem.message


async def test_one_evaluation_at_a_time_has_the_device_also_among_several_servers(
    devices: list[nvml.GpuDevice], tmp_path: Path
) -> None:
    devices.append(nvml.GpuDevice(index=0, uuid="GPU-7", name="NVIDIA H200", memory_total_bytes=143_771 << 20))
    inside, most = 0, 0

    async def evaluate(services: Services) -> None:
        nonlocal inside, most
        async with services.gpu_turn() as device:
            assert device.uuid == "GPU-7"
            inside += 1
            most = max(most, inside)
            await anyio.lowlevel.checkpoint()
            inside -= 1

    async with anyio.create_task_group() as group:
        for services in (Services(Settings(state_dir=tmp_path)), Services(Settings(state_dir=tmp_path))):
            for _ in range(3):
                group.start_soon(evaluate, services)
    assert (inside, most) == (0, 1)


async def test_checks_have_the_device_side_by_side_and_never_beside_a_measurement(
    devices: list[nvml.GpuDevice], tmp_path: Path
) -> None:
    devices.append(nvml.GpuDevice(index=0, uuid="GPU-7", name="NVIDIA H200", memory_total_bytes=143_771 << 20))
    services = [Services(Settings(state_dir=tmp_path)) for _ in range(2)]
    entered = [anyio.Event() for _ in services]
    measured: list[int] = []

    async def check(number: int) -> None:
        async with services[number].gpu_turn(alone=False):
            entered[number].set()
            # Each waits for the other one within its turn.
            await entered[1 - number].wait()
            assert measured == []

    async def measure() -> None:
        async with services[0].gpu_turn():
            measured.append(1)

    async with anyio.create_task_group() as group:
        for number in range(2):
            group.start_soon(check, number)
        for event in entered:
            await event.wait()
        group.start_soon(measure)
    assert measured == [1]


@pytest.mark.parametrize(
    ("kind", "message", "gpu", "tried"),
    [
        (Kind.OUT_OF_MEMORY, "it failed", True, [False, True]),
        (Kind.OUT_OF_MEMORY, "it failed", False, [False]),
        (Kind.UNAVAILABLE, "it failed: CUDA error: out of memory", True, [False, True]),
        (Kind.UNAVAILABLE, "it failed", True, [False]),
        (Kind.RUNTIME_ERROR, "it failed: out of memory", True, [False]),
        (None, "", True, [False]),
    ],
)
async def test_what_had_no_memory_beside_others_is_done_alone(
    machine: Machine, services: Services, kind: Kind | None, message: str, gpu: bool, tried: list[bool]
) -> None:
    machine(WITH_GPU if gpu else CPU_ONLY, driver=gpu)
    seen: list[bool] = []

    async def evaluate(alone: bool) -> str:
        seen.append(alone)
        if kind is not None and not alone:
            raise Stopped(kind, Problem(stage="call", message=message))
        return "done"

    if kind is None or len(tried) == 2:
        assert await services.beside_others(evaluate) == "done"
    else:
        with pytest.raises(Stopped, match="it failed"):
            await services.beside_others(evaluate)
    assert seen == tried
