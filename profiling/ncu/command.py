"""Finds Nsight Compute and writes its command lines. Runs nothing."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..executables import TOOLKITS, find_executable

RANGE: Final = "BIG_OP"
"""The NVTX push/pop range around the launches that count."""

REPORT: Final = "report.ncu-rep"
"""Name of the report in the worker's folder."""
OLDEST: Final = (2023, 3, 0)
"""The first that knows all counters of GH100 that are asked for here, and takes their names as they are now."""

_VERSION = re.compile(r"\bVersion\s+(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)
_FUNCTION = re.compile(r"[A-Za-z_]\w*")


def command(
    ncu: str, collect: Sequence[str], *, folder: str = "{folder}", kernels: Sequence[str] = (), launch_count: int
) -> list[str]:
    """The command, without the program that it starts, that profiles launches inside the range `BIG_OP`.

    Args:
        ncu: The executable.
        collect: What is counted: the words of a `Level`.
        folder: Where the report goes, under the name `REPORT`.
        kernels: Only launches of these functions (for Triton: names of Python functions); of all without it.
        launch_count: How many matching launches are profiled, from the first.

    Raises:
        ValueError: Nothing to collect, a count below one, or a name that is no function's.
    """
    if not collect:
        raise ValueError("nothing is to be collected")
    if launch_count < 1:
        raise ValueError("launch_count must be 1 or more")
    for name in kernels:
        if not _FUNCTION.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a function")
    # Clocks stay as they are: locking them needs rights, disturbs neighbours and slows the kernel. Caches are emptied
    # before every pass, as `benchmark` empties them before every call.
    # The compiler's programs, which the worker starts, are let alone: ncu would only slow them down.
    line = [ncu, "--target-processes", "application-only", "--clock-control", "none", "--cache-control", "all"]
    # A trailing slash means a push/pop range; without it ncu waits for a start/end range and finds nothing. Ranges are
    # those of the whole process, since autograd launches from a thread of its own.
    line += ["--nvtx", "--nvtx-include", f"{RANGE}/", "--nvtx-push-pop-scope", "process"]
    if kernels:
        line += ["--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(kernels)})$"]
    return [*line, "--launch-count", str(launch_count), *collect, "-f", "-o", f"{folder}/{REPORT}"]


def query_command(ncu: str, chip: str) -> list[str]:
    """The command that lists what a chip, such as `gh100`, can count; needs no GPU."""
    return [ncu, "--query-metrics", "--chips", chip]


def find_reader(ncu: Path, *, root: Path = Path("/")) -> Path | None:
    """The folder of NVIDIA's Python module `ncu_report`, which comes with Nsight Compute; None where there is none.

    Beside the executable that was found, where that is the program itself; a toolkit's `ncu` is a script that starts
    one from elsewhere: then beside that toolkit, or the newest of all that are installed.

    Args:
        ncu: The executable.
        root: Where the file system starts, for tests.
    """
    real = Path(os.path.realpath(ncu))
    places = [real.parent, *_newest(real.parent.parent, "nsight-compute-*")]
    places += _newest(root / "opt/nvidia/nsight-compute", "*")
    places += [one for toolkit in _newest(root / "usr/local", "cuda*") for one in _newest(toolkit, "nsight-compute-*")]
    folders = [place / "extras/python" for place in places]
    return next((folder for folder in folders if (folder / "ncu_report.py").is_file()), None)


def _newest(folder: Path, pattern: str) -> list[Path]:
    def version(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", path.name)]

    return sorted(folder.glob(pattern), key=version, reverse=True) if folder.is_dir() else []


def find_ncu(environment: Mapping[str, str] | None = None, *, root: Path = Path("/")) -> Path | None:
    """The ncu to use, or None where there is none.

    Clients start servers with a bare environment, so the usual places are searched too.
    `TRITONFORGE_NCU` decides alone where it is set: if it doesn't name an executable there is no ncu, rather
    than another one that nobody asked for. Then come PATH, `/usr/local/cuda*/bin` (the unversioned link
    first, then the newest) and `/opt/nvidia/nsight-compute/*` (the newest first).

    Args:
        environment: Instead of the process's own.
        root: Where the file system starts, for tests.
    """
    return find_executable("ncu", "TRITONFORGE_NCU", (TOOLKITS, "opt/nvidia/nsight-compute/*"), environment, root=root)


def parse_version(text: str) -> tuple[int, int, int] | None:
    """(year, major, minor) from the output of `ncu --version`; None where there is none."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
