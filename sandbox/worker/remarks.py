# pyright: basic
# triton ships incomplete types.
"""What the compiler's passes say of their decisions while they compile.

MLIR's remarks and LLVM's debug output go to standard error, past Python. Triton reads the variables that ask for them
each time it runs passes, so a process that is already warm can ask.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Generator

CATEGORIES = (
    "triton-loop-pipeline",
    "triton-wgmma-pipeline",
    "nvgpu-warp-specialization",
    "nvgpu-ws-task-partition",
    "nvgpu-ws-data-partition",
)
"""Passes whose debug output tells why they did not do what one would expect."""
ASKING = {
    "MLIR_ENABLE_DIAGNOSTICS": "remarks",
    "TRITON_LLVM_DEBUG_ONLY": ",".join(CATEGORIES),
    # What is in the cache says nothing.
    "TRITON_ALWAYS_COMPILE": "1",
}
READ_BYTES = 16 << 20
"""Of all that is printed: the passes print whole loops, several times."""
KEPT_LINES = 2_000
LINE_CHARACTERS = 600
SAID = re.compile(rf"\[(?:{'|'.join(CATEGORIES)})\]: |\S.*:\d+:\d+: (?:remark|warning|error): ")


@contextlib.contextmanager
def heard() -> Generator[list[str]]:
    """Within this context all kernels are compiled anew; afterwards the list has what the compiler said, line by line.

    Nothing else may print to standard error meanwhile: it would be lost.
    """
    said: list[str] = []
    before = {name: os.environ.get(name) for name in ASKING}
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as heard_file:
        try:
            os.dup2(heard_file.fileno(), 2)
            os.environ.update(ASKING)
            yield said
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            heard_file.seek(0)
            said += _told(heard_file.read(READ_BYTES).decode(errors="replace"))


def _told(text: str) -> list[str]:
    """The lines that say something, each once, without the loops that are printed between them."""
    lines = dict.fromkeys(line[:LINE_CHARACTERS] for line in text.splitlines() if SAID.match(line))
    return list(lines)[:KEPT_LINES]
