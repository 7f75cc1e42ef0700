"""hardware_spec: short by default, details when asked, and what this machine's GPU reaches once it was measured."""

import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.test_services import CPU_ONLY, H200, WITH_GPU
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.hardware.detect import DetectedGpu, Detection
from tritonforge.sandbox.ceiling_facts import CeilingFacts
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Device
from tritonforge.sandbox.facts import Environment
from tritonforge.sandbox.lease import Sharing
from tritonforge.sandbox.nvml import GpuProcess
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server import ceilings as ceilings_module
from tritonforge.server.check import Check
from tritonforge.server.services import Services, Shared
from tritonforge.server.settings import Settings
from tritonforge.server.tools import hardware_spec as tool
from tritonforge.server.tools.hardware_spec import HardwareResult

pytestmark = pytest.mark.anyio

CHARACTERS_LIMIT = 2550
"""800 tokens: some 3 characters a token, as in JSON that is full of numbers; words have 4 and more."""
FACTS = CeilingFacts(
    read_bytes_per_s=4.417e12,
    copy_bytes_per_s=4.2e12,
    write_bytes_per_s=4.0e12,
    l2_read_bytes_per_s=6.5e12,
    fp32_flops_per_s=60e12,
    tf32_flops_per_s=350e12,
    bf16_flops_per_s=760e12,
    fp8_flops_per_s=1300e12,
    launch_us=1.234,
)
DEVICE = Device(index=0, uuid="GPU-1", name="NVIDIA H200", memory_bytes=143_771 << 20)
LIVE = DetectedGpu.model_validate(
    {
        **dict.fromkeys(DetectedGpu.model_fields),
        "index": 0,
        "name": "NVIDIA H200",
        "driver_version": "580.159",
        "sm_clock_hz": 1_455_000_000,
        "max_sm_clock_hz": 1_980_000_000,
        "throttle_reasons": ["power cap"],
    }
)
OK = Check(name="worker interpreter", status="ok", detail="Python 3.12", required=True)
NO_NCU = Check(name="Nsight Compute", status="limited", detail="ncu was not found", remedy="Install it.")
NO_SEAL = Check(name="isolation", status="limited", detail="no sandbox", remedy="Install bubblewrap.")


class Machine:
    """A made-up machine with one H200, or none; what its worker measures is in `facts`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.services = Services(Settings(state_dir=folder))
        self.environment: Environment = WITH_GPU
        self.facts = FACTS
        self.shared = Shared(Sharing(foreign=[], checked=True, reason=None))
        self.checks = [OK, NO_NCU, NO_SEAL]
        self.turns: list[str] = []
        for owner, name in (
            (self.services, "environment"),
            (self.services, "has_gpu"),
            (self.services, "require_gpu"),
            (self.services, "gpu_turn"),
            (self.services, "measuring"),
            (self.services.executor, "devices"),
            (ceilings_module, "task_worker"),
            (tool, "detect"),
            (tool, "inspect"),
        ):
            monkeypatch.setattr(owner, name, getattr(self, f"_{name}"))

    async def _environment(self) -> Environment:
        return self.environment

    async def _has_gpu(self) -> bool:
        return self.environment.gpu is not None

    async def _require_gpu(self, stage: str) -> Environment:
        if self.environment.gpu is None:
            raise Stopped(Kind.UNAVAILABLE, Problem(stage=stage, message="no GPU", likely_fix="Use one with a GPU."))
        return self.environment

    async def _devices(self) -> list[Device]:
        return [DEVICE] if self.environment.gpu is not None else []

    @contextlib.asynccontextmanager
    async def _gpu_turn(self) -> AsyncGenerator[Device]:
        self.turns.append("taken")
        yield DEVICE
        self.turns.append("given back")

    @contextlib.asynccontextmanager
    async def _measuring(self, device: Device) -> AsyncGenerator[Shared]:
        assert device == DEVICE
        yield self.shared

    @contextlib.asynccontextmanager
    async def _task_worker(self, _: object, *, on_gpu: bool) -> AsyncGenerator[Any]:
        assert on_gpu

        async def measured() -> CeilingFacts:
            self.turns.append("measured")
            return self.facts

        yield SimpleNamespace(ceilings=measured)

    async def _detect(self) -> Detection:
        return Detection(gpus=[LIVE] if self.environment.gpu is not None else [])

    async def _inspect(self, _: Services) -> list[Check]:
        return self.checks

    async def call(self, **arguments: Any) -> HardwareResult:
        async def progress(done: float, total: float, message: str) -> None:
            assert 0 <= done <= total
            assert message

        return await tool.hardware_spec(self.services, progress, **arguments)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


async def test_nothing_is_measured_before_it_is_asked_for(machine: Machine) -> None:
    result = await machine.call()
    assert (result.kind, result.measured, result.measured_pct) == (Kind.OK, None, None)
    assert machine.turns == []
    assert "measure=true" in str(result.next_step)
    assert "compile_kernel" in str(result.next_step)


async def test_what_is_measured_alone_on_the_gpu_is_told_and_kept(machine: Machine) -> None:
    result = await machine.call(measure=True)
    assert machine.turns == ["taken", "measured", "given back"]
    assert result.measured is not None
    assert result.measured.model_dump(include=set(CeilingFacts.model_fields)) == {**FACTS.model_dump(), "absent": {}}
    assert (result.measured.uuid, result.measured.torch) == ("GPU-1", "2.9.0")
    assert result.measured_pct is not None
    assert result.measured_pct["read_bytes_per_s"] == 92.0
    assert "l2_read_bytes_per_s" not in result.measured_pct
    assert "read 4.417 TB/s" in result.summary
    assert "measure=true" not in str(result.next_step)
    again = await machine.call()
    assert (again.measured, again.measured_pct) == (result.measured, result.measured_pct)
    assert machine.turns.count("measured") == 1


async def test_measuring_again_replaces_what_was_kept(machine: Machine) -> None:
    await machine.call(measure=True)
    machine.facts = FACTS.model_copy(update={"launch_us": 2.5})
    await machine.call(measure=True)
    kept = (await machine.call()).measured
    assert kept is not None
    assert kept.launch_us == 2.5


async def test_a_disturbed_measurement_is_told_and_not_kept(machine: Machine) -> None:
    await machine.call(measure=True)
    machine.facts = FACTS.model_copy(update={"copy_bytes_per_s": 1e12})
    machine.shared.after = Sharing(
        foreign=[GpuProcess(pid=7, name="train", memory_bytes=None)], checked=True, reason=None
    )
    result = await machine.call(measure=True)
    assert result.measured is not None
    assert result.measured.copy_bytes_per_s is None
    assert "Not measured: copy_bytes_per_s: only 21 % of the data sheet" in result.summary
    assert "train (pid 7)" in result.summary
    kept = (await machine.call()).measured
    assert kept is not None
    assert kept.copy_bytes_per_s == 4.2e12


async def test_a_state_folder_that_cannot_be_written_is_no_reason_to_fail(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("tritonforge.profiling.hardware.ceilings.store", full)
    assert (await machine.call(measure=True)).measured is not None
    assert (await machine.call()).measured is None


async def test_without_a_gpu_measuring_is_unavailable_with_the_remedy(machine: Machine) -> None:
    machine.environment = CPU_ONLY
    with pytest.raises(Stopped) as raised:
        await machine.call(measure=True)
    assert raised.value.kind is Kind.UNAVAILABLE
    assert raised.value.problem.likely_fix == "Use one with a GPU."
    assert machine.turns == []


async def test_what_another_gpu_reaches_is_not_mixed_with_the_targets_data_sheet(machine: Machine) -> None:
    await machine.call(measure=True)
    result = await machine.call(target="h100")
    assert result.target is not None
    assert result.target.name == "h100-sxm"
    assert "This machine's GPU is another. Reached here" in result.summary
    assert result.measured_pct is not None
    assert result.measured_pct["read_bytes_per_s"] == 92.0


async def test_a_gpu_outside_the_catalogue_has_rates_and_no_shares(machine: Machine) -> None:
    unlisted = H200.model_copy(update={"name": "NVIDIA H800"})
    machine.environment = CPU_ONLY.model_copy(update={"gpu": unlisted})
    result = await machine.call(measure=True)
    assert result.measured is not None
    assert result.measured_pct is None
    assert "read 4.417 TB/s" in result.summary


async def test_only_what_is_limited_is_told_until_details_are_asked_for(machine: Machine) -> None:
    short, long = await machine.call(), await machine.call(detail=True)
    assert short.checks == [NO_NCU, NO_SEAL]
    assert short.details is None
    assert long.checks == [OK, NO_NCU, NO_SEAL]
    target = resolve_target("h200")
    assert long.details is not None
    # Some clients show their model the text alone.
    assert f"registers_per_sm {long.details.limits.registers_per_sm}" in long.summary
    assert "registers_per_sm" not in short.summary
    assert (long.details.gpus, long.details.torch_gpu) == ([LIVE], H200)
    assert (long.details.data_sheet, long.details.limits) == (target.gpu, target.limits)
    for result in (short, long):
        assert "SM clock 1455 MHz of 1980 MHz, held down by power cap" in result.summary
        for check in result.checks:
            assert f"{check.status}: {check.name}: {check.detail}" in result.summary


async def test_without_a_gpu_what_its_tools_lack_is_no_news(machine: Machine) -> None:
    machine.environment = CPU_ONLY
    assert (await machine.call()).checks == [NO_SEAL]
    assert NO_NCU in (await machine.call(detail=True)).checks


async def test_what_is_missing_comes_before_anything_else(machine: Machine) -> None:
    machine.checks = [
        Check(name="worker interpreter", status="missing", detail="no torch", remedy="Install torch.", required=True)
    ]
    assert (await machine.call()).next_step == "Install torch."


@pytest.mark.parametrize("target", ["h200", "mi300x", "sm_90"])
async def test_the_default_result_is_short(machine: Machine, target: str) -> None:
    await machine.call(measure=True)
    result = await machine.call(target=target)
    whole = json.dumps(result.model_dump(mode="json"))
    assert len(whole) <= CHARACTERS_LIMIT, (len(whole), whole)
