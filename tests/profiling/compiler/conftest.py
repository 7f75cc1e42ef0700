"""Recorded compiler output. `tests/recordings/compiler/record.py` wrote it, with Triton 3.7.1."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tritonforge.profiling.compiler.launch import RawLaunch

FOLDER = Path(__file__).parents[2] / "recordings" / "compiler"
# num_warps, num_stages and dynamic shared bytes of the recorded launches, as the compiler's metadata gave them.
LAUNCHES = {
    "sin_baseline": (4, 3, 0),
    "sin_candidate": (4, 3, 0),
    "softmax_baseline": (1, 3, 0),
    "softmax_candidate": (8, 3, 32),
    "softmax_unaligned": (2, 3, 8),
    "matmul_baseline": (2, 1, 8192),
    "matmul_candidate": (8, 3, 147_456),
    "matmul_short": (4, 3, 24_576),
    "matmul_unaligned": (4, 3, 8192),
    "attention": (4, 3, 57_344),
    "tma": (4, 3, 49_176),
    "while_loop": (4, 3, 24_576),
    "atomics": (4, 3, 16),
}

Recorded = Callable[[str], str]
RecordedLaunch = Callable[[str], RawLaunch]


@pytest.fixture
def recorded() -> Recorded:
    """Reads a recording by its file name."""
    return lambda name: (FOLDER / name).read_text()


@pytest.fixture
def recorded_launch(recorded: Recorded) -> RecordedLaunch:
    """A recorded launch by name, on a grid of 4,096 programs."""

    def launch(name: str) -> RawLaunch:
        num_warps, num_stages, shared_bytes = LAUNCHES[name]
        return RawLaunch(
            kernel="kernel",
            grid=(4096, 1, 1),
            num_warps=num_warps,
            num_stages=num_stages,
            num_ctas=1,
            shared_bytes=shared_bytes,
            ptx=recorded(f"{name}.ptx"),
            ttgir=recorded(f"{name}.ttgir"),
            ptxas_log=recorded(f"{name}.ptxas"),
        )

    return launch
