"""How this server is set up: one object, from the command line and the environment."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..sandbox.limits import Limits
from ..sandbox.wire import Wire

GB = 10**9


class Settings(Wire):
    """Settings of one server process."""

    python: str = sys.executable
    """The interpreter that workers use: the environment that the user's model runs in."""
    state_dir: Path = Path(".tritonforge")
    """Where reports and other artifacts are kept; made when the first one is stored."""
    limits: Limits = Limits()
    require_sandbox: bool = False
    """Refuse to run kernels where this machine allows no sandbox."""
    allow_read: tuple[Path, ...] = ()
    """Folders that sandboxed kernels and tasks may read, for what they import from them."""
    spares: int = 2
    """Workers kept ready for the CPU, and for Triton's interpreter."""
    gpu_spares: int = 6
    """Workers kept ready on the GPU; each holds a CUDA context of about 0.5 GB."""
    idle_s: float = 600.0
    """Ready workers that nobody has used for so long are ended."""
    target: str = "h100"
    """What is compiled for where a call names no target and this machine has no GPU."""
    without: tuple[str, ...] = ()
    """Tools that are switched off: they are not offered, and evaluations of runs go without them."""


def from_environment(
    *,
    python: str | None = None,
    state_dir: str | None = None,
    require_sandbox: bool = False,
    allow_read: Sequence[str] = (),
    spares: int | None = None,
    gpu_spares: int | None = None,
    idle_s: float | None = None,
    memory_gb: float | None = None,
    gpu_memory_gb: float | None = None,
    without: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Command-line values first, then ``TRITONFORGE_PYTHON``, ``TRITONFORGE_STATE_DIR``,
    ``TRITONFORGE_REQUIRE_SANDBOX`` and ``TRITONFORGE_ALLOW_READ`` (separated like PATH), then the defaults.

    `memory_gb` and `gpu_memory_gb` limit one worker, in units of 10^9 bytes; `without` names tools.
    """
    chosen_python = python or environment.get("TRITONFORGE_PYTHON") or sys.executable
    chosen_state = state_dir or environment.get("TRITONFORGE_STATE_DIR") or ".tritonforge"
    # A bare name is looked up on PATH; a path must not depend on the folder that a worker starts in.
    if os.sep in chosen_python:
        chosen_python = str(_absolute(chosen_python))
    named = [*allow_read, *environment.get("TRITONFORGE_ALLOW_READ", "").split(os.pathsep)]
    pools = {"spares": spares, "gpu_spares": gpu_spares, "idle_s": idle_s}
    memory = {"memory_bytes": memory_gb, "gpu_memory_bytes": gpu_memory_gb}
    limits = {name: int(gb * GB) for name, gb in memory.items() if gb is not None}
    settings = Settings(
        python=chosen_python,
        state_dir=_absolute(chosen_state),
        limits=Limits.model_validate(limits),
        require_sandbox=require_sandbox or environment.get("TRITONFORGE_REQUIRE_SANDBOX", "") not in {"", "0"},
        allow_read=tuple(_absolute(folder) for folder in named if folder),
        without=tuple(dict.fromkeys(without)),
    )
    return settings.model_copy(update={name: value for name, value in pools.items() if value is not None})


def _absolute(path: str) -> Path:
    """Links stay as they are: a virtual environment's interpreter is one."""
    # Unlike Path.expanduser, this leaves the name of an unknown user alone.
    return Path(os.path.expanduser(path)).absolute()
