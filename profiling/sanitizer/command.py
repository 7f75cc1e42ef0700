"""Finds Compute Sanitizer and writes its command lines. Runs nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from ..executables import TOOLKITS, find_executable

Tool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]
TOOLS: Final[tuple[Tool, ...]] = ("memcheck", "racecheck", "initcheck", "synccheck")
"""Accesses outside of allocations; races in shared memory; reads of what nothing has written; misused barriers."""
ENVIRONMENT: Final = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""What the program under the sanitizer needs: torch's allocator would put all tensors into one large allocation."""
PADDING_BYTES: Final = 4096
"""Behind each allocation, so that what lies behind one is no other."""
PRINT_LIMIT: Final = 500
"""Errors in a log: each thread counts, and torch's own kernels must not use them up. One takes some 300 bytes."""


def command(sanitizer: str, tool: Tool, log: Path, *, print_limit: int = PRINT_LIMIT) -> list[str]:
    """The command that checks a program with one tool; the program's own command line follows it.

    Args:
        sanitizer: The executable.
        tool: Which of its tools.
        log: Where its findings go.
        print_limit: How many errors the log describes; the others are only counted.

    Raises:
        ValueError: A limit below one.
    """
    if print_limit < 1:
        raise ValueError("print_limit must be 1 or more: 0 means no limit, and the log would grow with the grid")
    line = [sanitizer, "--tool", tool, "--print-limit", str(print_limit), "--log-file", str(log)]
    # The interpreter takes its time before the first CUDA call. An error ends its kernel alone: by default the
    # context goes with it, and the process aborts.
    line += ["--launch-timeout", "0", "--destroy-on-device-error", "kernel"]
    line += ["--show-backtrace", "no", "--strip-paths", "no"]
    return [*line, "--padding", str(PADDING_BYTES)] if tool == "memcheck" else line


def find_sanitizer(environment: Mapping[str, str] | None = None, *, root: Path = Path("/")) -> Path | None:
    """The compute-sanitizer to use, or None where there is none.

    `TRITONFORGE_SANITIZER` decides alone where it is set. Then come PATH, `/usr/local/cuda*/bin` and the toolkits of
    `/opt/nvidia/hpc_sdk` (the unversioned link first, then the newest).

    Args:
        environment: Instead of the process's own.
        root: Where the file system starts, for tests.
    """
    folders = (TOOLKITS, "opt/nvidia/hpc_sdk/*/*/cuda/bin")
    return find_executable("compute-sanitizer", "TRITONFORGE_SANITIZER", folders, environment, root=root)
