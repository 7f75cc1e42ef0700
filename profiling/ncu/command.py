"""Finds Nsight Compute and writes its command lines. Runs nothing."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from ..executables import TOOLKITS, find_executable
from .metrics import SECTIONS

RANGE: Final = "BIG_OP"
"""The NVTX push/pop range around the launches that count."""

Page = Literal["raw", "details", "source"]

_VERSION = re.compile(r"\bVersion\s+(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)


def command(
    ncu: str,
    report: Path,
    target: Sequence[str],
    *,
    sections: Sequence[str] = SECTIONS,
    metrics: Sequence[str] = (),
    kernel: str | None = None,
    launch_skip: int = 0,
    launch_count: int | None = None,
    cache_control: Literal["all", "none"] = "all",
    import_source: bool = False,
    nvtx_range: str = RANGE,
) -> list[str]:
    """The command that profiles the launches inside `nvtx_range` of `target`.

    Args:
        ncu: The executable.
        report: Where the report goes; ncu adds `.ncu-rep` where that is missing.
        target: The program and its arguments.
        sections: Sections to collect. ncu's rules run only on sections, never on bare metrics.
        metrics: More counters by name; with no sections, these alone (the quick look).
        kernel: Only launches of this function (for Triton: the name of the Python function).
        launch_skip: Matching launches to let pass first.
        launch_count: Matching launches to profile; all without it.
        cache_control: `all` empties the caches before every pass (cold), `none` leaves them warm.
        import_source: Put the kernel's source into the report.
        nvtx_range: Name of the push/pop range. Ranges are seen from every thread of the process, since
            autograd launches from its own.

    Raises:
        ValueError: Nothing to run or nothing to collect, or a negative skip or a count below one.
    """
    if not target:
        raise ValueError("target is empty: name the program that ncu is to start")
    if not sections and not metrics:
        raise ValueError("neither sections nor metrics: there is nothing to collect")
    if launch_skip < 0 or (launch_count is not None and launch_count < 1):
        raise ValueError("launch_skip must be 0 or more and launch_count 1 or more")
    # Clocks stay as they are: locking them needs rights, disturbs neighbours and slows the kernel.
    # A trailing slash means a push/pop range; without it ncu waits for a start/end range and finds nothing.
    line = [ncu, "--target-processes", "all", "--clock-control", "none", "--cache-control", cache_control]
    line += ["--nvtx", "--nvtx-include", f"{nvtx_range}/", "--nvtx-push-pop-scope", "process"]
    if kernel is not None:
        line += ["--kernel-name-base", "function", "--kernel-name", kernel]
    if launch_skip:
        line += ["--launch-skip", str(launch_skip)]
    if launch_count is not None:
        line += ["--launch-count", str(launch_count)]
    for section in sections:
        line += ["--section", section]
    if metrics:
        line += ["--metrics", ",".join(metrics)]
    if import_source:
        line += ["--import-source", "yes"]
    return [*line, "-f", "-o", str(report), *target]


def export_command(ncu: str, report: Path, page: Page) -> list[str]:
    """The command that prints one page of a finished report as CSV, in base units (ns, byte, hz)."""
    return [ncu, "--import", str(report), "--csv", "--page", page, "--print-units", "base"]


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
