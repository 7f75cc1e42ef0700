"""Processes that are killed at random moments: forked by one that is warm, so that each is there in milliseconds.

A module that makes some says so in its own `main`: ``serve(work)``, where `work` takes a folder and a seed, tells what
it has done, line by line, and ends by being killed only.
"""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

KILLS: Final = int(os.environ.get("TRITONFORGE_KILLS", "50"))
"""How often each test kills; more for the long run."""
ROOT: Final = Path(__file__).parents[3]
SILENT_S: Final = 60.0
"""Far beyond what anything here takes: one that says nothing for so long fails its test instead of stopping it."""
DONE: Final = "done"
"""The line of one that has nothing left to do."""


class Nursery:
    """Makes processes and reads what they tell."""

    def __init__(self, process: "subprocess.Popen[bytes]", *, latest_s: float, lines_at_most: int) -> None:
        """
        Args:
            process: serves them.
            latest_s: kills that do not wait for a line come until then.
            lines_at_most: the others wait for so many lines at most.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout.fileno()
        self._latest_s, self._lines_at_most = latest_s, lines_at_most
        self._rest = b""

    def killed(self, folder: Path, seed: int, chance: random.Random) -> list[list[str]]:
        """Let one work and kill it upon a random line, or at a random moment; what it told."""
        if chance.random() < 0.5:
            return self._killed(folder, seed, chance.randint(0, self._lines_at_most), SILENT_S)
        return self._killed(folder, seed, None, chance.uniform(0, self._latest_s))

    def done(self, folder: Path, seed: int) -> list[list[str]]:
        """Let one work until it has nothing left to do; what it told."""
        told = self._killed(folder, seed, sys.maxsize, SILENT_S)
        assert told[-1] == [DONE], "it was not done"
        return told

    def _killed(self, folder: Path, seed: int, wanted: int | None, patience_s: float) -> list[list[str]]:
        self._input.write(f"{folder} {seed}\n".encode())
        self._input.flush()
        (first, pid), *told = next(self._lines(SILENT_S))
        assert first == "pid"
        until = time.monotonic() + patience_s
        while (wanted is None or len(told) < wanted) and told[-1:] != [[DONE]]:
            left_s = until - time.monotonic()
            lines = next(self._lines(left_s), None) if left_s > 0 else None
            if lines is None:
                assert wanted is None, "it says nothing"
                break
            told += lines
            assert all(line[0] != "ended" for line in lines), f"it failed: {lines}"
        os.kill(int(pid), signal.SIGKILL)
        for lines in self._lines(SILENT_S):
            told += lines
            if told[-1][0] == "ended":
                break
        assert told.pop() == ["ended", str(-signal.SIGKILL)]
        return told

    def _lines(self, patience_s: float) -> Iterator[list[list[str]]]:
        """What comes, some whole lines at a time, until nothing comes for so long."""
        while select.select([self._output], [], [], patience_s)[0]:
            data = os.read(self._output, 1 << 16)
            assert data, "the nursery has ended"
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                yield [line.decode().split() for line in lines]


@contextlib.contextmanager
def nursery(module: str, *, latest_s: float, lines_at_most: int) -> Generator[Nursery]:
    """One for what a module makes."""
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Nursery(process, latest_s=latest_s, lines_at_most=lines_at_most)
        assert process.stdin is not None
        process.stdin.close()


def tell(*words: object) -> None:
    """A line to whoever kills."""
    # Short enough to be written whole or not at all.
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


def serve(work: Callable[[Path, int], None]) -> None:
    """Make processes, one after the other."""
    for line in sys.stdin:
        folder, seed = line.rsplit(maxsplit=1)
        child = os.fork()
        if child == 0:
            try:
                tell("pid", os.getpid())
                work(Path(folder), int(seed))
                while True:
                    signal.pause()
            finally:
                # Not killed: it failed, or nobody reads any more.
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        tell("ended", os.waitstatus_to_exitcode(status))
