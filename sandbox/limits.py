"""What a worker may use, and what it gets to see of its parent's environment."""

import os

from .wire import Wire


class Limits(Wire):
    """Limits of one worker."""

    start_s: float = 120.0
    """Wall time until the worker has imported torch and says hello (a cold file cache is slow)."""
    request_s: float = 120.0
    """Wall time of one request: a compile, a call, a block of timed calls."""
    reply_bytes: int = 4 << 30
    """Raw bytes that one reply may carry."""
    output_bytes: int = 16 << 10
    """How much of what the code printed is kept: the end of it."""


KEPT_NAMES = frozenset({"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CC", "CXX"})
KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "CONDA_", "TRITON_PTXAS", "TRITON_LIBCUDA")


def worker_environment(scratch: str, *, interpret: bool) -> dict[str, str]:
    """The environment of a worker: an allow-list of the parent's, and its own scratch folders."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT_NAMES or name.startswith(KEPT_PREFIXES)}
    kept.setdefault("PATH", os.defpath)
    environment = {
        **kept,
        "TMPDIR": scratch,
        "TRITON_CACHE_DIR": f"{scratch}/triton-cache",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        # A worker is short-lived and one of several: a pool of threads each would only fight for cores.
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // 2)),
    }
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    return environment
