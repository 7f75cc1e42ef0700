"""What works on this machine and why not: one list of checks, for hardware_spec and doctor."""

from collections.abc import Awaitable, Callable
from typing import Final

from ..profiling.hardware.catalog import find_gpu
from ..profiling.hardware.detect import Detection, detect
from ..sandbox.errors import Stopped
from ..sandbox.facts import Environment, GpuFacts
from ..sandbox.rehearsal import REMEDY
from . import nvidia_tools
from .check import Check
from .services import Services

Probe = Callable[[Services], Awaitable[Check]]
"""Tries the GPU's counters by profiling something."""

OLDEST_CAPABILITY: Final = 80
"""Triton's documentation: NVIDIA GPUs of compute capability 8.0 and newer."""


async def inspect(services: Services, *, probe: Probe | None = None) -> list[Check]:
    """Look at interpreter, GPU, profilers, counters and isolation.

    Args:
        probe: tries the counters too, where nothing speaks against them.
    """
    environment = await services.environment()
    detection = await detect()
    gpu = environment.gpu
    checks = [_interpreter_check(environment), _driver_check(detection), _gpu_check(gpu)]
    if (mig := nvidia_tools.mig_check(detection.gpus)) is not None:
        checks.append(mig)
    profiler = await nvidia_tools.ncu_checks()
    counters = nvidia_tools.counters_check(has_gpu=gpu is not None)
    checks += [*profiler, counters]
    if probe is not None and profiler[0].status == counters.status == "ok":
        checks.append(await probe(services))
    checks += [nvidia_tools.rivals_check(), await nvidia_tools.sanitizer_check()]
    return [*checks, await _isolation_check(services)]


def _interpreter_check(environment: Environment) -> Check:
    name, problem = "worker interpreter", environment.problem
    if problem is not None:
        return Check(name=name, status="missing", detail=problem.message, remedy=problem.likely_fix, required=True)
    versions = f"Python {environment.python}, torch {environment.torch}, triton {environment.triton}"
    return Check(name=name, status="ok", detail=f"{versions} ({environment.executable})", required=True)


def _driver_check(detection: Detection) -> Check:
    if not detection.gpus:
        return Check(name="driver", status="limited", detail=str(detection.reason), remedy=detection.remedy)
    found = detection.gpus[0]
    return Check(
        name="driver", status="ok", detail=f"{found.driver_version}, {len(detection.gpus)} GPU(s): {found.name}"
    )


def _gpu_check(gpu: GpuFacts | None) -> Check:
    name = "GPU in torch"
    if gpu is None:
        return Check(
            name=name,
            status="limited",
            detail="none: kernels are compiled for any target and checked in Triton's interpreter; benchmark and "
            "profile_ncu are unavailable",
            remedy="Run the server on a machine with an H100-class GPU, with a CUDA build of torch.",
        )
    detail = f"{gpu.name}, {gpu.sm_count} SMs, compute capability {gpu.capability / 10:.1f}, CUDA {gpu.cuda}"
    if gpu.capability < OLDEST_CAPABILITY:
        return Check(
            name=name,
            status="limited",
            detail=f"{detail}: Triton supports compute capability 8.0 and newer",
            remedy="Use a GPU of the Ampere class (A100) or newer.",
        )
    if find_gpu(gpu.name, gpu.memory_bytes, gpu.sm_count) is None:
        detail += "; not in the catalogue, so there are no data-sheet values of it"
    return Check(name=name, status="ok", detail=detail)


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
