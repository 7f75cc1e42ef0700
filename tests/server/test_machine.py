"""What works on a machine and why not: each check says ok, limited or missing, and the remedy."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.test_services import BROKEN, CPU_ONLY, H200, WITH_GPU
from tritonforge.profiling.hardware.detect import DetectedGpu, Detection
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.facts import Environment
from tritonforge.sandbox.isolation import Layer, Seal
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.rehearsal import NO_BWRAP, REMEDY
from tritonforge.server import machine, nvidia_tools
from tritonforge.server.check import Check
from tritonforge.server.machine import Probe, inspect
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

NO_DRIVER = Detection(gpus=[], reason="the driver is not installed", remedy="Install the driver.")


def driver(**told: Any) -> Detection:
    gpu = {"index": 0, "name": "NVIDIA H200", "driver_version": "580.159", **told}
    return Detection(gpus=[DetectedGpu.model_validate({**dict.fromkeys(DetectedGpu.model_fields), **gpu})])


DRIVER = driver()
NCU = "#!/bin/sh\necho 'Version 2025.3.1.0 (build 36398880)'\n"

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
        sanitizer: str | None = None,
        reader: bool = True,
        restricted: bool | None = False,
        container: bool = False,
        isolation: Seal | Stopped = SEALED,
        probe: Probe | None = None,
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

        def program(name: str, text: str | None) -> Path | None:
            if text is None:
                return None
            path = tmp_path / name
            path.write_text(text)
            path.chmod(0o755)
            return path

        def find_reader(ncu: Path) -> Path | None:
            return ncu.parent / "extras" if reader else None

        found_ncu, found_sanitizer = program("ncu", ncu), program("compute-sanitizer", sanitizer)
        monkeypatch.setattr(services, "environment", environment)
        monkeypatch.setattr(services.executor, "seal", seal)
        monkeypatch.setattr(machine, "detect", detect)
        monkeypatch.setattr(nvidia_tools, "find_ncu", lambda: found_ncu)
        monkeypatch.setattr(nvidia_tools, "find_reader", find_reader)
        monkeypatch.setattr(nvidia_tools, "find_sanitizer", lambda: found_sanitizer)
        monkeypatch.setattr(nvidia_tools, "counters_restricted", lambda: restricted)
        monkeypatch.setattr(nvidia_tools, "in_container", lambda: container)
        return {check.name: check for check in await inspect(services, probe=probe)}

    return inspected


@pytest.mark.parametrize(
    ("isolation", "to_point_out"), [(SEALED, set[str]()), (UNSEALED, {"isolation"})], ids=["sandbox", "no sandbox"]
)
async def test_a_machine_with_everything_has_only_a_missing_sandbox_to_point_out(
    checks: Checks, isolation: Seal, to_point_out: set[str]
) -> None:
    found = await checks(WITH_GPU, driver=DRIVER, ncu=NCU, sanitizer=NCU, isolation=isolation)
    assert {name for name, check in found.items() if check.status != "ok"} == to_point_out
    assert found["worker interpreter"].detail == "Python 3.12.1, torch 2.9.0, triton 3.5.0 (/opt/python)"
    assert "NVIDIA H200" in found["driver"].detail
    assert "580.159" in found["driver"].detail
    assert "132 SMs, compute capability 9.0" in found["GPU in torch"].detail
    assert "2025.3.1" in found["Nsight Compute"].detail
    assert found["ncu report reader"].detail.endswith("/extras")
    assert "2025.3.1" in found["Compute Sanitizer"].detail
    assert "not in the catalogue" not in found["GPU in torch"].detail


async def test_without_a_gpu_the_main_job_still_works_and_the_rest_has_a_remedy(checks: Checks) -> None:
    found = await checks(CPU_ONLY, isolation=UNSEALED)
    assert found["worker interpreter"].status == "ok"
    for name in ("driver", "GPU in torch", "Nsight Compute", "GPU counters", "Compute Sanitizer", "isolation"):
        assert found[name].status == "limited"
        assert not found[name].required
    for name in ("driver", "GPU in torch", "Nsight Compute", "Compute Sanitizer", "isolation"):
        assert found[name].remedy
    assert "ncu report reader" not in found


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
    assert "sealed workers have no privileges" in str(counters.remedy)
    assert "container" not in str(counters.remedy)


async def test_in_a_container_counters_are_opened_from_outside(checks: Checks) -> None:
    counters = (await checks(WITH_GPU, driver=DRIVER, restricted=True, container=True))["GPU counters"]
    assert "container's host" in str(counters.remedy)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in str(counters.remedy)


async def test_counters_are_tried_where_nothing_speaks_against_them(checks: Checks) -> None:
    probed: list[Services] = []

    async def probe(services: Services) -> Check:
        probed.append(services)
        return Check(name="probe", status="limited", detail="ERR_NVGPUCTRPERM", remedy="Ask root.")

    found = await checks(WITH_GPU, driver=DRIVER, ncu=NCU, probe=probe)
    assert (found["GPU counters"].status, found["probe"].detail) == ("ok", "ERR_NVGPUCTRPERM")
    assert len(probed) == 1
    for hopeless in ({"found": CPU_ONLY, "ncu": NCU}, {"restricted": True, "ncu": NCU}, {"ncu": None}):
        assert "probe" not in await checks(**{"found": WITH_GPU, **hopeless}, driver=DRIVER, probe=probe)
    assert len(probed) == 1


async def test_a_gpu_that_triton_does_not_support_is_named_with_one_that_it_does(checks: Checks) -> None:
    turing = H200.model_copy(update={"name": "Tesla T4", "capability": 75})
    gpu = (await checks(CPU_ONLY.model_copy(update={"gpu": turing}), driver=DRIVER))["GPU in torch"]
    assert gpu.status == "limited"
    assert "Tesla T4" in gpu.detail
    assert "8.0 and newer" in gpu.detail
    assert gpu.remedy


async def test_a_gpu_without_a_data_sheet_works_and_is_said_to_have_none(checks: Checks) -> None:
    unlisted = H200.model_copy(update={"name": "NVIDIA H800"})
    gpu = (await checks(CPU_ONLY.model_copy(update={"gpu": unlisted}), driver=DRIVER))["GPU in torch"]
    assert gpu.status == "ok"
    assert "not in the catalogue" in gpu.detail


@pytest.mark.parametrize("enabled", [False, None])
async def test_a_whole_gpu_is_no_news(checks: Checks, enabled: bool | None) -> None:
    assert "MIG" not in await checks(WITH_GPU, driver=driver(mig_enabled=enabled))


async def test_a_gpu_that_is_cut_into_slices_is_told_with_the_command_that_ends_it(checks: Checks) -> None:
    mig = (await checks(WITH_GPU, driver=driver(mig_enabled=True)))["MIG"]
    assert mig.status == "limited"
    assert "nvidia-smi -i 0 -mig 0" in str(mig.remedy)


async def test_a_profiler_that_is_too_old_is_told_with_the_oldest_that_will_do(checks: Checks) -> None:
    old = NCU.replace("2025.3.1.0", "2023.2.2.0")
    found = await checks(WITH_GPU, driver=DRIVER, ncu=old, sanitizer=old)
    profiler = found["Nsight Compute"]
    assert profiler.status == "limited"
    assert "2023.2.2" in profiler.detail
    assert "2023.3.0 or newer is needed" in profiler.detail
    assert "TRITONFORGE_NCU" in str(profiler.remedy)
    assert "ncu report reader" not in found
    assert found["Compute Sanitizer"].status == "ok"
    assert (await checks(WITH_GPU, driver=DRIVER, ncu=NCU.replace("2025.3.1", "2023.3.0")))[
        "Nsight Compute"
    ].status == "ok"


async def test_a_profiler_without_its_reader_is_told(checks: Checks) -> None:
    reader = (await checks(WITH_GPU, driver=DRIVER, ncu=NCU, reader=False))["ncu report reader"]
    assert reader.status == "limited"
    assert "extras/python/ncu_report.py" in reader.detail
    assert reader.remedy


async def test_a_sanitizer_that_cannot_be_run_is_named(checks: Checks) -> None:
    sanitizer = (await checks(WITH_GPU, driver=DRIVER, sanitizer="#!/no/such/interpreter\n"))["Compute Sanitizer"]
    assert sanitizer.status == "limited"
    assert "can't be run" in sanitizer.detail
    assert "TRITONFORGE_SANITIZER" in str(sanitizer.remedy)


@pytest.mark.parametrize(
    "name",
    ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "COMPUTE_PROFILE", "NV_NSIGHT_X", "NSYS_PROFILING_SESSION_ID"],
)
def test_another_profiler_in_the_environment_is_named_with_how_to_start_without_it(name: str) -> None:
    check = nvidia_tools.rivals_check({name: "/opt/other.so", "PATH": "/bin"})
    assert check.status == "limited"
    assert name in check.detail
    assert f"env -u {name} tritonforge-mcp" in str(check.remedy)


@pytest.mark.parametrize("environment", [{}, {"PATH": "/bin"}, {"COMPUTE_PROFILE": "0"}, {"CUDA_INJECTION64_PATH": ""}])
def test_profilers_that_are_switched_off_are_none(environment: dict[str, str]) -> None:
    assert nvidia_tools.rivals_check(environment).status == "ok"


@pytest.mark.parametrize("ncu", ["#!/no/such/interpreter\n", "\x7fELF no program"])
async def test_a_profiler_that_cannot_be_run_is_named(checks: Checks, ncu: str) -> None:
    profiler = (await checks(WITH_GPU, driver=DRIVER, ncu=ncu))["Nsight Compute"]
    assert profiler.status == "limited"
    assert "can't be run" in profiler.detail
    assert "TRITONFORGE_NCU" in str(profiler.remedy)


async def test_a_profiler_that_does_not_answer_is_given_up(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_tools, "VERSION_S", 0.1)
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
