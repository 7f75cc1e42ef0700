"""NVIDIA's tools on this machine, and what may keep them from the GPU's counters: each with its remedy."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from ..profiling.hardware.detect import DetectedGpu, counters_restricted, in_container
from ..profiling.ncu.command import OLDEST, find_ncu, find_reader, parse_version
from ..profiling.sanitizer.command import find_sanitizer
from .check import Check

NAMES: Final = ("Nsight Compute", "ncu report reader", "GPU counters", "other profilers", "Compute Sanitizer")
"""Of the checks here that mean nothing without a GPU."""
VERSION_S: Final = 20.0
"""For a program to tell its version: the first start reads hundreds of megabytes."""
_RIVALS: Final = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "COMPUTE_PROFILE", "CUDA_PROFILE")
_RIVAL_PREFIXES: Final = ("NV_NSIGHT", "NSYS_PROFILING", "COMPUTE_PROFILER")
"""Of the variables by which profilers load themselves into programs."""


async def ncu_checks() -> list[Check]:
    """Nsight Compute, and the module that reads its reports."""
    ncu = find_ncu()
    if ncu is None:
        return [
            Check(
                name="Nsight Compute",
                status="limited",
                detail="ncu was not found",
                remedy="Install it with the CUDA toolkit, or set TRITONFORGE_NCU to its path.",
            )
        ]
    checks = [await _tool_check("Nsight Compute", ncu, "TRITONFORGE_NCU", oldest=OLDEST)]
    if checks[0].status == "ok":
        checks.append(_reader_check(ncu))
    return checks


async def sanitizer_check() -> Check:
    """Compute Sanitizer, for run_correctness with sanitize."""
    name, sanitizer = "Compute Sanitizer", find_sanitizer()
    if sanitizer is None:
        return Check(
            name=name,
            status="limited",
            detail="compute-sanitizer was not found: run_correctness can't sanitize",
            remedy="Install it with the CUDA toolkit, or set TRITONFORGE_SANITIZER to its path.",
        )
    return await _tool_check(name, sanitizer, "TRITONFORGE_SANITIZER")


async def _tool_check(name: str, program: Path, variable: str, *, oldest: tuple[int, int, int] | None = None) -> Check:
    try:
        with anyio.fail_after(VERSION_S):
            done = await anyio.run_process([str(program), "--version"], check=False)
    except (OSError, TimeoutError) as error:
        return Check(
            name=name,
            status="limited",
            detail=f"{program} can't be run: {str(error) or 'no answer'}",
            remedy=f"Set {variable} to a working {program.name}.",
        )
    version = parse_version(done.stdout.decode("utf-8", errors="replace"))
    shown = ".".join(map(str, version)) if version is not None else "unknown version"
    if version is not None and oldest is not None and version < oldest:
        needed = ".".join(map(str, oldest))
        return Check(
            name=name,
            status="limited",
            detail=f"{shown} ({program}) is too old: {needed} or newer is needed",
            remedy=f"Install a newer one, from a newer CUDA toolkit; where several are here, set {variable} to it.",
        )
    return Check(name=name, status="ok", detail=f"{shown} ({program})")


def _reader_check(ncu: Path) -> Check:
    name, reader = "ncu report reader", find_reader(ncu)
    if reader is None:
        return Check(
            name=name,
            status="limited",
            detail=f"no extras/python/ncu_report.py was found beside {ncu}: counters by source line are unavailable",
            remedy="Install Nsight Compute whole, from NVIDIA's package or the CUDA toolkit.",
        )
    return Check(name=name, status="ok", detail=str(reader))


def counters_check(*, has_gpu: bool) -> Check:
    """Whether the driver lets this process at hardware counters, as far as can be told without trying."""
    name = "GPU counters"
    if not has_gpu:
        return Check(name=name, status="limited", detail="no GPU to count on")
    if not counters_restricted():
        return Check(name=name, status="ok", detail="not restricted by the driver for this user; doctor tries them")
    option = "set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia kernel module and reload it"
    if in_container():
        detail = "the driver restricts them to administrators"
        remedy = f"On the container's host {option}: inside nothing can be done, as sealed workers have no privileges."
    else:
        detail = "the driver restricts them to administrators"
        remedy = f"{option[0].upper()}{option[1:]}; being root does not help, as sealed workers have no privileges."
    return Check(name=name, status="limited", detail=f"{detail}: profile_ncu is unavailable", remedy=remedy)


def mig_check(gpus: list[DetectedGpu]) -> Check | None:
    """GPUs that are cut into slices; None where there are none."""
    cut = [str(gpu.index) for gpu in gpus if gpu.mig_enabled]
    if not cut:
        return None
    return Check(
        name="MIG",
        status="limited",
        detail=f"GPU {', '.join(cut)} is cut into slices: they are not measured, and no data sheet speaks of them",
        remedy=f"Use a whole GPU, or ask its administrator to end MIG: nvidia-smi -i {','.join(cut)} -mig 0.",
    )


def rivals_check(environment: Mapping[str, str] | None = None) -> Check:
    """Whether another profiler loads itself into what is started here: only one can have the counters."""
    variables = os.environ if environment is None else environment
    found = sorted(
        name
        for name, value in variables.items()
        if value not in ("", "0") and (name in _RIVALS or name.startswith(_RIVAL_PREFIXES))
    )
    name = "other profilers"
    if not found:
        return Check(name=name, status="ok", detail="none in the environment")
    return Check(
        name=name,
        status="limited",
        detail=f"another profiler is active here ({', '.join(found)} is set), and only one can use the GPU's counters",
        remedy=f"End it, or start the server without it: env -u {' -u '.join(found)} tritonforge-mcp",
    )
