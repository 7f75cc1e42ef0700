"""What works on a machine and why not: each check says ok, limited or missing, and the remedy."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.server.test_services import BROKEN, CPU_ONLY, WITH_GPU
from tritonforge.profiling.hardware.detect import DetectedGpu, Detection
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.facts import Environment
from tritonforge.sandbox.isolation import Layer, Seal
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.rehearsal import NO_BWRAP, REMEDY
from tritonforge.server import machine
from tritonforge.server.machine import Check, inspect
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

NO_DRIVER = Detection(gpus=[], reason="nvidia-smi is not installed", remedy="Install the driver.")
DRIVER = Detection(
    gpus=[
        DetectedGpu.model_validate(
            {
                **dict.fromkeys(DetectedGpu.model_fields),
                "index": 0,
                "name": "NVIDIA H200",
                "driver_version": "580.159",
                "throttle_reasons": [],
            }
        )
    ]
)

FILES = Layer(name="files", holds=True, detail="read-only system folders, no home")
NETWORK = Layer(name="network", holds=True, detail="nothing in it")
SEALED = Seal("/usr/bin/bwrap", layers=(FILES, NETWORK))
UNSEALED = Seal(None, reason=NO_BWRAP)
REFUSED = Stopped(
    Kind.UNAVAILABLE,
    Problem(stage="environment", message=f"a sandbox is required and there is none: {NO_BWRAP}", likely_fix=REMEDY),
)

Checks = Callable[..., Awaitable[dict[str, Check]]]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Checks:
    """Inspects a made-up machine; its checks by name."""

    async def inspected(
        found: Environment,
        *,
        driver: Detection = NO_DRIVER,
        ncu: str | None = None,
        restricted: bool | None = False,
        isolation: Seal | Stopped = SEALED,
    ) -> dict[str, Check]:
        services = Services(Settings(state_dir=tmp_path))

        async def environment() -> Environment:
            return found

        async def seal() -> Seal:
            if isinstance(isolation, Stopped):
                raise isolation
            return isolation

        async def detect() -> Detection:
            return driver

        path = None
        if ncu is not None:
            path = tmp_path / "ncu"
            path.write_text(ncu)
            path.chmod(0o755)
        monkeypatch.setattr(services, "environment", environment)
        monkeypatch.setattr(services.executor, "seal", seal)
        monkeypatch.setattr(machine, "detect", detect)
        monkeypatch.setattr(machine, "find_ncu", lambda: path)
        monkeypatch.setattr(machine, "counters_restricted", lambda: restricted)
        return {check.name: check for check in await inspect(services)}

    return inspected


@pytest.mark.parametrize(
    ("isolation", "to_point_out"), [(SEALED, set[str]()), (UNSEALED, {"isolation"})], ids=["sandbox", "no sandbox"]
)
async def test_a_machine_with_everything_has_only_a_missing_sandbox_to_point_out(
    checks: Checks, isolation: Seal, to_point_out: set[str]
) -> None:
    ncu = "#!/bin/sh\necho 'Version 2025.3.1.0 (build 36398880)'\n"
    found = await checks(WITH_GPU, driver=DRIVER, ncu=ncu, isolation=isolation)
    assert {name for name, check in found.items() if check.status != "ok"} == to_point_out
    assert found["worker interpreter"].detail == "Python 3.12.1, torch 2.9.0, triton 3.5.0 (/opt/python)"
    assert "NVIDIA H200" in found["driver"].detail
    assert "580.159" in found["driver"].detail
    assert "132 SMs, compute capability 9.0" in found["GPU in torch"].detail
    assert "2025.3.1" in found["Nsight Compute"].detail


async def test_without_a_gpu_the_main_job_still_works_and_the_rest_has_a_remedy(checks: Checks) -> None:
    found = await checks(CPU_ONLY, isolation=UNSEALED)
    assert found["worker interpreter"].status == "ok"
    for name in ("driver", "GPU in torch", "Nsight Compute", "GPU counters", "isolation"):
        assert found[name].status == "limited"
        assert not found[name].required
    for name in ("driver", "GPU in torch", "Nsight Compute", "isolation"):
        assert found[name].remedy


async def test_an_interpreter_that_cannot_do_the_main_job_is_missing(checks: Checks) -> None:
    found = await checks(BROKEN)
    assert [check.name for check in found.values() if check.required] == ["worker interpreter"]
    interpreter = found["worker interpreter"]
    assert (interpreter.status, interpreter.detail, interpreter.remedy) == (
        "missing",
        "torch is missing",
        "Install torch.",
    )


async def test_restricted_counters_come_with_the_drivers_own_remedy(checks: Checks) -> None:
    counters = (await checks(WITH_GPU, driver=DRIVER, restricted=True))["GPU counters"]
    assert counters.status == "limited"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in str(counters.remedy)
    assert "CAP_SYS_ADMIN" in str(counters.remedy)


@pytest.mark.parametrize("ncu", ["#!/no/such/interpreter\n", "\x7fELF no program"])
async def test_a_profiler_that_cannot_be_run_is_named(checks: Checks, ncu: str) -> None:
    profiler = (await checks(WITH_GPU, driver=DRIVER, ncu=ncu))["Nsight Compute"]
    assert profiler.status == "limited"
    assert "can't be run" in profiler.detail
    assert "TRITONFORGE_NCU" in str(profiler.remedy)


async def test_a_profiler_that_does_not_answer_is_given_up(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "NCU_VERSION_S", 0.1)
    profiler = (await checks(WITH_GPU, driver=DRIVER, ncu="#!/bin/sh\nexec tail -f /dev/null\n"))["Nsight Compute"]
    assert profiler.status == "limited"
    assert "no answer" in profiler.detail


async def test_a_profiler_of_unknown_version_is_still_one(checks: Checks) -> None:
    profiler = (await checks(WITH_GPU, driver=DRIVER, ncu="#!/bin/sh\necho nothing\n"))["Nsight Compute"]
    assert profiler.status == "ok"
    assert "unknown version" in profiler.detail


async def test_a_sandbox_is_told_with_each_of_its_layers(checks: Checks) -> None:
    isolation = (await checks(CPU_ONLY, isolation=SEALED))["isolation"]
    assert isolation.status == "ok"
    assert isolation.remedy is None
    for layer in SEALED.layers:
        assert f"{layer.name}: {layer.detail}" in isolation.detail


async def test_a_layer_that_does_not_hold_is_told_before_those_that_do(checks: Checks) -> None:
    broken = Layer(name="user", holds=False, detail="runs as user 0")
    isolation = (await checks(CPU_ONLY, isolation=Seal("/usr/bin/bwrap", layers=(FILES, broken))))["isolation"]
    assert isolation.status == "limited"
    assert not isolation.required
    assert isolation.detail.startswith("sandboxed, but for user: runs as user 0.")
    assert isolation.detail.endswith(f"files: {FILES.detail}")


async def test_without_a_sandbox_it_is_said_what_kernels_may_do_and_how_to_get_one(checks: Checks) -> None:
    isolation = (await checks(CPU_ONLY, isolation=UNSEALED))["isolation"]
    assert (isolation.status, isolation.required, isolation.remedy) == ("limited", False, REMEDY)
    assert "with this user's rights" in isolation.detail
    assert NO_BWRAP in isolation.detail


async def test_a_sandbox_that_is_required_and_not_to_be_had_is_missing(checks: Checks) -> None:
    isolation = (await checks(CPU_ONLY, isolation=REFUSED))["isolation"]
    assert (isolation.status, isolation.required, isolation.remedy) == ("missing", True, REMEDY)
    assert NO_BWRAP in isolation.detail
