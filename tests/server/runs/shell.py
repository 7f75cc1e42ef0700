"""Commands as a shell runs them, on one state folder."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tritonforge.server.cli import run


class Ended(NamedTuple):
    """A command that has ended."""

    code: int | str | None
    out: str
    err: str


class Shell:
    """Runs commands on one state folder."""

    def __init__(self, state: Path, capture: pytest.CaptureFixture[str]) -> None:
        self._state, self._capture = state, capture

    def __call__(self, *words: str) -> Ended:
        try:
            code: int | str | None = run(["--state-dir", str(self._state), *words])
        except SystemExit as end:
            code = end.code
        out, err = self._capture.readouterr()
        return Ended(code, out, err)
