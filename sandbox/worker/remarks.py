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
from typing import Any

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
WARPS = re.compile(r'"ttg\.num-warps" = (\d+)')
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


class Enough(Exception):
    """Raised where Triton's passes are through: LLVM and the assembler, which come then, take longest, in silence."""


class _Beyond:
    """Stands in for what Triton's backend uses behind its passes."""

    def __init__(self, module: Any, *ends: str) -> None:
        self._module, self._ends = module, ends

    def __getattr__(self, name: str) -> Any:
        if name in self._ends:
            raise Enough
        return getattr(self._module, name)


def said_of(kernel: Any) -> list[str]:
    """What the compiler says of a kernel that it has compiled: it is compiled again, up to LLVM's part."""
    import triton
    from triton.backends.nvidia import compiler

    # What was a tuple has come back from the cache as a list.
    options = {name: _fixed(value) for name, value in kernel.metadata._asdict().items()}
    # Warp specialization has added its own warps.
    warps = WARPS.search(kernel.asm["ttgir"])
    if warps is not None:
        options["num_warps"] = int(warps[1])
    was = compiler.llvm, compiler.subprocess
    compiler.llvm, compiler.subprocess = _Beyond(was[0], "init_targets"), _Beyond(was[1], "run")
    try:
        with heard() as said, contextlib.suppress(Enough):
            triton.compile(kernel.src, target=kernel.metadata.target, options=options)
    finally:
        compiler.llvm, compiler.subprocess = was
    return said


def _fixed(value: Any) -> Any:
    return tuple(map(_fixed, value)) if isinstance(value, list) else value
