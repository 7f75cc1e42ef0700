# pyright: basic
# triton ships incomplete types.
"""Machine code as text, by the disassembler that comes with Triton: a program of its own, several at once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

LIMIT_S = 20.0
"""For all of them together; one takes half a second to start, and little more."""
TEXT_BYTES = 16 << 20


def command(program: str, binary: str) -> list[str]:
    """Code alone, with source lines and inlined frames, without analysis of its flow: that takes half of the time."""
    return [program, "-gi", "-c", "-ndf", binary]


@contextlib.contextmanager
def started(binaries: list[bytes]) -> Generator[list[Disassembly]]:
    """All of them under way; whatever still runs at the end of this context is killed."""
    from triton import knobs

    # TRITON_NVDISASM_PATH, or the one in Triton's wheel; a RuntimeError where there is none.
    program = knobs.nvidia.nvdisasm.path
    deadline = time.monotonic() + LIMIT_S
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        found = []
        for number, binary in enumerate(binaries):
            path = Path(folder, f"{number}.cubin")
            path.write_bytes(binary)
            found.append(Disassembly(command(program, str(path)), str(path.with_suffix(".sass")), deadline))
            running.callback(found[-1].end)
        yield found


class Disassembly:
    """One run of the disassembler."""

    def __init__(self, arguments: list[str], output: str, deadline: float) -> None:
        self._output, self._deadline = output, deadline
        with open(output, "wb") as stdout, open(output + ".errors", "wb") as stderr:
            self._process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)

    def result(self) -> tuple[bytes | None, str | None]:
        """The text, or why there is none; waits for it until the deadline."""
        try:
            code = self._process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None, f"nvdisasm took longer than {LIMIT_S:g} s"
        if code != 0:
            return None, f"nvdisasm ended with exit code {code}: {self._said()}"
        if os.path.getsize(self._output) > TEXT_BYTES:
            return None, f"nvdisasm wrote more than {TEXT_BYTES >> 20} MiB"
        return Path(self._output).read_bytes(), None

    def end(self) -> None:
        """Kill it, if it still runs."""
        self._process.kill()
        self._process.wait()

    def _said(self) -> str:
        with open(self._output + ".errors", errors="replace") as errors:
            return " ".join(errors.read(300).split())
