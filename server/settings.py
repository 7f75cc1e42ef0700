"""How this server is set up: one object, from the command line and the environment."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ..sandbox.limits import Limits
from ..sandbox.wire import Wire


class Settings(Wire):
    """Settings of one server process."""

    python: str = sys.executable
    """The interpreter that workers use: the environment that the user's model runs in."""
    state_dir: Path = Path(".tritonforge")
    """Where reports and other artifacts are kept; made when the first one is stored."""
    limits: Limits = Limits()
    target: str = "h100"
    """What is compiled for where a call names no target and this machine has no GPU."""


def from_environment(
    *, python: str | None = None, state_dir: str | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Command-line values first, then ``TRITONFORGE_PYTHON`` and ``TRITONFORGE_STATE_DIR``, then the defaults."""
    chosen_python = python or environment.get("TRITONFORGE_PYTHON") or sys.executable
    chosen_state = state_dir or environment.get("TRITONFORGE_STATE_DIR") or ".tritonforge"
    # A bare name is looked up on PATH; a path must not depend on the folder that a worker starts in.
    if os.sep in chosen_python:
        chosen_python = str(_absolute(chosen_python))
    return Settings(python=chosen_python, state_dir=_absolute(chosen_state))


def _absolute(path: str) -> Path:
    """Links stay as they are: a virtual environment's interpreter is one."""
    # Unlike Path.expanduser, this leaves the name of an unknown user alone.
    return Path(os.path.expanduser(path)).absolute()
