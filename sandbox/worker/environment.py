# pyright: basic
# torch and triton ship incomplete types.
"""What this interpreter has: versions of torch, triton and numpy, and the GPU that torch sees."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import sys
from typing import Any

from . import versions

OLDEST_TORCH = (2, 8)
OLDEST_PYTHON = (3, 11)


def describe(flavor: str) -> dict[str, Any]:
    """Versions of what is installed; ``problem`` says why workers of this flavor can't work here. No GPU is touched."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": version("torch"),
        "triton": version("triton"),
        "numpy": version("numpy"),
        "nvtx": version("nvtx"),
        "gpu": None,
        "problem": None,
    }
    facts["problem"] = _problem(flavor, facts)
    return facts


def describe_gpu() -> dict[str, Any]:
    """The GPU that torch sees, or the problem."""
    gpu, why = _gpu()
    if gpu is not None:
        return {"gpu": gpu}
    fix = "Run the server on a machine with an NVIDIA GPU and a CUDA build of torch."
    return {"problem": {"message": why, "fix": fix}}


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _problem(flavor: str, facts: dict[str, Any]) -> dict[str, str] | None:
    if sys.version_info[:2] < OLDEST_PYTHON:
        return {
            "message": f"the worker's Python is {facts['python']}; 3.11 or newer is needed",
            "fix": "Point --python at an interpreter of Python 3.11 or newer that has torch and triton.",
        }
    needed = [("torch", OLDEST_TORCH), ("triton", versions.OLDEST)]
    for package, oldest in needed:
        at_least = ".".join(map(str, oldest))
        if facts[package] is None:
            return {
                "message": f"{package} is not installed for {sys.executable}",
                "fix": f"Install it there (pip install '{package}>={at_least}'), "
                "or point --python at the interpreter that your model runs in.",
            }
        if _numbers(facts[package]) < oldest:
            return {
                "message": f"{package} {facts[package]} is too old; {at_least} or newer is needed",
                "fix": f"Upgrade it for {sys.executable}: pip install -U '{package}>={at_least}'.",
            }
    for package, _ in needed:
        try:
            importlib.import_module(package)
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            return {
                "message": f"import {package} {facts[package]} failed: {type(error).__name__}: {error}",
                "fix": f"Repair the installation; `{sys.executable} -c 'import {package}'` shows the error. If that "
                "works, it needs a folder that the sandbox does not show: start the server with --allow-read <folder>.",
            }
    if flavor == "interpret":
        return _interpreter_problem(facts)
    return None


def _interpreter_problem(facts: dict[str, Any]) -> dict[str, str] | None:
    """Run a tiny kernel with a run-time loop bound: numpy 2.4 breaks this under Triton 3.6 and older."""
    if facts["numpy"] is None:
        return {
            "message": "Triton's interpreter needs numpy, which is not installed",
            "fix": f"Install it for {sys.executable}: pip install numpy.",
        }
    from . import interpreter

    error = interpreter.self_test()
    if error is None:
        return None
    return {
        "message": f"the interpreter of Triton {facts['triton']} does not work with numpy {facts['numpy']}: {error}",
        "fix": f"For {sys.executable}: pip install 'numpy<2.4', or a newer Triton.",
    }


def _gpu() -> tuple[dict[str, Any] | None, str]:
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda
        reason = "no GPU is visible to torch" if built else "this torch is a CPU build"
        return None, f"{reason} (torch {torch.__version__})"
    try:
        properties = torch.cuda.get_device_properties(0)
    except RuntimeError as error:
        return None, f"torch can't use the GPU: {error}"
    return {
        "name": properties.name,
        "capability": properties.major * 10 + properties.minor,
        "sm_count": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
        # Not every build of torch tells these.
        "shared_bytes_per_sm": getattr(properties, "shared_memory_per_multiprocessor", None),
        "shared_bytes_per_block": getattr(properties, "shared_memory_per_block_optin", None),
        "registers_per_sm": getattr(properties, "regs_per_multiprocessor", None),
        "threads_per_sm": getattr(properties, "max_threads_per_multi_processor", None),
        "warp_threads": getattr(properties, "warp_size", None),
        "cuda": torch.version.cuda,
        "device_count": torch.cuda.device_count(),
    }, ""


def _numbers(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in text.split("+")[0].split("."):
        digits = "".join(ch for ch in part if ch.isdigit())
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
