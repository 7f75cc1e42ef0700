"""Turns ncu's messages into what is wrong and what to do about it."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from ...sandbox.wire import Wire

Code = Literal[
    "counters_forbidden",
    "sandboxed_runtime",
    "wsl_unsupported",
    "unsupported_gpu",
    "counters_busy",
    "lock_file",
    "driver_too_old",
    "stub_driver",
    "no_gpu",
    "disk_full",
    "unknown_metric",
    "launch_failed",
    "target_failed",
    "nothing_profiled",
    "killed",
    "other",
]


class NcuFailure(Wire):
    """Why there is no profile."""

    code: Code
    message: str
    """What is wrong."""
    remedy: str
    """What to do about it."""
    evidence: str
    """The line of the log that says so, or empty where the exit status alone does."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    code: Code
    message: str
    remedy: str
    anywhere: bool = False
    """Also believe lines that ncu did not write itself (the driver's, the program's)."""


def _rule(pattern: str, code: Code, message: str, remedy: str, *, anywhere: bool = False) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), code, message, remedy, anywhere)


_PROFILING: Final = re.compile(r'Profiling "([^"]{1,200})"')
_NOTHING: Final = re.compile(r"No kernels were profiled", re.IGNORECASE)

# Wordings as printed by ncu 2019 to 2026. The first rule that matches any line counts, so causes
# come before the consequences that ncu prints after them.
_RULES: Final = (
    _rule(
        r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters",
        "counters_forbidden",
        "The NVIDIA driver restricts GPU performance counters to administrators (ERR_NVGPUCTRPERM).",
        "On the host, put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into"
        " /etc/modprobe.d/nvidia-profiling.conf and reload the nvidia module or reboot. Running the server as root"
        " or with CAP_SYS_ADMIN does not help: sealed workers have no privileges. Timing and static diagnosis work"
        " without counters.",
    ),
    _rule(
        r"LibraryNotLoaded",
        "sandboxed_runtime",
        "ncu can't load its counter library against this driver (LibraryNotLoaded). That is so in sandboxed"
        " container runtimes such as gVisor, which hide the driver's profiling interface, and where ncu and"
        " the driver don't belong together.",
        "Profile on a machine or container runtime with direct access to the driver (runc instead of runsc),"
        " with an ncu of the driver's CUDA version. Timing and static diagnosis work without counters.",
    ),
    _rule(
        r"Profiling is not supported on device.*Windows Subsystem for Linux",
        "wsl_unsupported",
        "This Windows Subsystem for Linux gives no access to GPU counters.",
        "Use Windows 11 with driver 525 or newer and allow counters to all users in the NVIDIA Control Panel"
        " (Developer, Manage GPU Performance Counters), or profile on native Linux.",
    ),
    _rule(
        r"Profiling is not supported on (this )?device|No supported GPU",
        "unsupported_gpu",
        "This ncu doesn't support this GPU.",
        "See `ncu --list-chips`. For a GPU newer than the list, install a newer Nsight Compute and point"
        " TRITONFORGE_NCU to it; for one older than Volta there is no ncu.",
    ),
    _rule(
        r"driver resource was unavailable|no other tool \(like DCGM\)",
        "counters_busy",
        "Another profiler holds the GPU's counters: DCGM, Nsight Systems, or another ncu.",
        "Stop it (for DCGM: `dcgmi profile --pause`, afterwards `dcgmi profile --resume`) or wait until it is"
        " done, then profile again.",
    ),
    _rule(
        r"nsight-compute-lock|(open|create)\S{0,20} lock file",
        "lock_file",
        "ncu can't write its lock file, which another user owns or which lies in a read-only folder.",
        "Set TMPDIR to a private writable folder for the server, or remove nsight-compute-lock from the"
        " temporary folder.",
    ),
    _rule(
        r"Cuda driver is not compatible with Nsight Compute",
        "driver_too_old",
        "The NVIDIA driver is too old for this ncu.",
        "Update the driver, or install an Nsight Compute no newer than the CUDA version that nvidia-smi shows"
        " and point TRITONFORGE_NCU to it.",
    ),
    _rule(
        r"failed to connect to the CUDA driver",
        "stub_driver",
        "ncu found no real CUDA driver; a stub libcuda.so may come first in LD_LIBRARY_PATH.",
        "Take the toolkit's `stubs` folder out of LD_LIBRARY_PATH.",
    ),
    _rule(
        r"no CUDA-capable device|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice|Found no NVIDIA driver",
        "no_gpu",
        "No CUDA device is visible to the profiled program.",
        "Check nvidia-smi and CUDA_VISIBLE_DEVICES; a container needs `--gpus all`.",
        anywhere=True,
    ),
    _rule(
        r"No such device",
        "no_gpu",
        "No CUDA device is visible to ncu.",
        "Check nvidia-smi and CUDA_VISIBLE_DEVICES; a container needs `--gpus all`.",
    ),
    _rule(
        r"No space left on device|ENOSPC|disk quota exceeded",
        "disk_full",
        "The disk is full; ncu couldn't write its report.",
        "Free space in the folder of the report and in the temporary folder (TMPDIR).",
        anywhere=True,
    ),
    _rule(
        r"Failed to (find|access).*metric|did not match any (section|metric)|No metrics to collect",
        "unknown_metric",
        "This ncu doesn't know a section or metric that was asked for.",
        "Install a newer Nsight Compute (2024.1 or later) and point TRITONFORGE_NCU to it.",
    ),
    _rule(
        r"\bLaunchFailed\b",
        "launch_failed",
        "a kernel failed on the GPU while it was profiled (ncu: LaunchFailed)",
        "Usually it reads or writes outside of its tensors, which may go unnoticed without a profiler:"
        " run_correctness with sanitize=true names the line.",
    ),
    _rule(
        r"The application returned an error code",
        "target_failed",
        "The profiled program failed.",
        "Run the same kernel and case without the profiler first; its error is in the log.",
    ),
    _rule(
        _NOTHING.pattern,
        "nothing_profiled",
        "Nothing was launched on the GPU inside the profiled range, or the kernel filter matched no launch.",
        "Check that the entry launches a kernel for this case, and the kernel name if one was given.",
    ),
)


def explain(log: str, returncode: int) -> NcuFailure | None:
    """What went wrong in a run of ncu, or None where nothing did.

    The log also holds what the profiled program printed, which is untrusted: a program that prints ncu's
    words can spoil its own profile and nothing else. Words of the driver (a full disk, no device) count
    in any line, but only when ncu failed.

    Args:
        log: stdout and stderr of ncu and the program, together.
        returncode: ncu's exit status; below zero for the signal that ended it.
    """
    lines = log.splitlines()
    own = [line for line in lines if line.lstrip().startswith(("==ERROR==", "==WARNING==", "==PROF=="))]
    if returncode == 0 and not any("==ERROR==" in line or _NOTHING.search(line) for line in own):
        return None  # Warnings alone, such as the one about unlocked clocks.
    for rule in _RULES:
        believed = lines if rule.anywhere and returncode else own
        if line := next((line for line in believed if rule.pattern.search(line)), None):
            message = rule.message
            if rule.code == "launch_failed" and (last := [name[1] for one in own if (name := _PROFILING.search(one))]):
                message = message.replace("a kernel", f"kernel {last[-1]}", 1)
            return NcuFailure(code=rule.code, message=message, remedy=rule.remedy, evidence=line.strip())
    if returncode == 0:
        return None
    if returncode < 0:
        return NcuFailure(
            code="killed",
            message=f"ncu was ended by signal {-returncode}.",
            remedy="Profile fewer launches or sections, or allow more time or memory.",
            evidence="",
        )
    errors = [line.strip() for line in own if "==ERROR==" in line]
    return NcuFailure(
        code="other",
        message=f"ncu failed with exit status {returncode}: {errors[0] if errors else 'it said nothing'}",
        remedy="Read the log; run the printed command by hand to see more.",
        evidence=errors[0] if errors else "",
    )
