"""What works on this machine and why not: one list of checks, for hardware_spec and doctor."""

from typing import Literal

import anyio

from ..profiling.hardware.detect import counters_restricted, detect
from ..profiling.ncu.command import find_ncu, parse_version
from ..sandbox.errors import Stopped
from ..sandbox.rehearsal import REMEDY
from ..sandbox.wire import Wire
from .services import Services

Status = Literal["ok", "limited", "missing"]
NCU_VERSION_S = 20.0


class Check(Wire):
    """One thing that the tools need."""

    name: str
    status: Status
    detail: str
    remedy: str | None = None
    required: bool = False
    """Without it not even compiling and checking on the CPU work."""


async def inspect(services: Services) -> list[Check]:
    """Look at interpreter, GPU, profiler, counters and isolation."""
    environment = await services.environment()
    checks: list[Check] = []
    versions = f"Python {environment.python}, torch {environment.torch}, triton {environment.triton}"
    if environment.problem is not None:
        problem = environment.problem
        checks.append(
            Check(
                name="worker interpreter",
                status="missing",
                detail=problem.message,
                remedy=problem.likely_fix,
                required=True,
            )
        )
    else:
        checks.append(
            Check(
                name="worker interpreter", status="ok", detail=f"{versions} ({environment.executable})", required=True
            )
        )
    checks.append(await _driver_check())
    gpu = environment.gpu
    if gpu is not None:
        detail = f"{gpu.name}, {gpu.sm_count} SMs, compute capability {gpu.capability / 10:.1f}, CUDA {gpu.cuda}"
        checks.append(Check(name="GPU in torch", status="ok", detail=detail))
    else:
        checks.append(
            Check(
                name="GPU in torch",
                status="limited",
                detail="none: kernels are compiled for any target and checked in Triton's interpreter; benchmark and "
                "profile_ncu are unavailable",
                remedy="Run the server on a machine with an H100-class GPU, with a CUDA build of torch.",
            )
        )
    checks.append(await _profiler_check())
    checks.append(_counters_check(has_gpu=gpu is not None))
    checks.append(await _isolation_check(services))
    return checks


async def _isolation_check(services: Services) -> Check:
    try:
        seal = await services.executor.seal()
    except Stopped as stopped:
        # The same fault stands under the interpreter, or a required sandbox can't be had.
        problem = stopped.problem
        return Check(
            name="isolation", status="missing", detail=problem.message, remedy=problem.likely_fix, required=True
        )
    if not seal.sealed:
        return Check(
            name="isolation",
            status="limited",
            detail="kernels run in processes of their own, with time and memory limits and a scrubbed environment, but "
            f"with this user's rights: they can read its files and use the network ({seal.reason})",
            remedy=REMEDY,
        )
    broken = [layer for layer in seal.layers if not layer.holds]
    held = "; ".join(f"{layer.name}: {layer.detail}" for layer in seal.layers if layer.holds)
    if broken:
        detail = f"sandboxed, but for {'; '.join(f'{layer.name}: {layer.detail}' for layer in broken)}. Holds: {held}"
        return Check(name="isolation", status="limited", detail=detail)
    return Check(name="isolation", status="ok", detail=f"sandboxed. {held}")


async def _driver_check() -> Check:
    detection = await detect()
    if detection.gpus:
        found = detection.gpus[0]
        return Check(
            name="driver", status="ok", detail=f"{found.driver_version}, {len(detection.gpus)} GPU(s): {found.name}"
        )
    return Check(
        name="driver", status="limited", detail=detection.reason or "no GPU was found", remedy=detection.remedy
    )


async def _profiler_check() -> Check:
    ncu = find_ncu()
    if ncu is None:
        return Check(
            name="Nsight Compute",
            status="limited",
            detail="ncu was not found",
            remedy="Install it with the CUDA toolkit, or set TRITONFORGE_NCU to its path.",
        )
    try:
        with anyio.fail_after(NCU_VERSION_S):
            done = await anyio.run_process([str(ncu), "--version"], check=False)
    except (OSError, TimeoutError) as error:
        return Check(
            name="Nsight Compute",
            status="limited",
            detail=f"{ncu} can't be run: {str(error) or 'no answer'}",
            remedy="Set TRITONFORGE_NCU to a working ncu.",
        )
    version = parse_version(done.stdout.decode("utf-8", errors="replace"))
    shown = ".".join(map(str, version)) if version is not None else "unknown version"
    return Check(name="Nsight Compute", status="ok", detail=f"{shown} ({ncu})")


def _counters_check(*, has_gpu: bool) -> Check:
    if not has_gpu:
        return Check(name="GPU counters", status="limited", detail="no GPU to count on")
    if counters_restricted():
        return Check(
            name="GPU counters",
            status="limited",
            detail="the driver restricts them to administrators: profile_ncu is unavailable",
            remedy="Set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia kernel module and reload it, or run with "
            "CAP_SYS_ADMIN (in a container: --cap-add=SYS_ADMIN).",
        )
    return Check(name="GPU counters", status="ok", detail="not restricted by the driver for this user")
