"""What a worker may use, and what it gets to see of its parent's environment."""

import os
import re

from .wire import Wire


class Limits(Wire):
    """Limits of one worker."""

    start_s: float = 120.0
    """Wall time until the worker has imported torch and says hello (a cold file cache is slow)."""
    request_s: float = 120.0
    """Wall time of one request: a compile, a call, a block of timed calls."""
    reply_bytes: int = 64 << 30
    """Raw bytes that one reply may carry."""
    output_bytes: int = 16 << 10
    """How much of what the code printed is kept: the end of it."""
    memory_bytes: int | None = None
    """Host memory of a worker with all its children, polled. None: half of what the machine has."""
    gpu_memory_bytes: int | None = None
    """GPU memory of a worker, polled. None: as much as there is."""
    scratch_bytes: int = 4 << 30
    """What a sealed worker's `/tmp` and `/dev/shm` hold at most, each."""
    file_bytes: int = 8 << 30
    """Size of one file that a worker writes."""
    processes: int = 1024
    """Processes and threads of a sealed worker."""
    descriptors: int = 2048
    cpu_s: int = 1800
    """CPU time of one process."""

    def resources(self) -> dict[str, int]:
        """What the worker sets on itself before it runs foreign code."""
        return {
            "scratch_bytes": self.scratch_bytes,
            "file_bytes": self.file_bytes,
            "processes": self.processes,
            "descriptors": self.descriptors,
            "cpu_s": self.cpu_s,
        }

    def host_memory_bytes(self) -> int:
        """The limit in force."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


KEPT_NAMES = frozenset({"PATH", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CC", "CXX"})
KEPT_PREFIXES = (
    "CUDA_", "NVIDIA_", "CONDA_", "TRITON_PTXAS", "TRITON_NVDISASM", "TRITON_LIBCUDA",
    # What code is made of a kernel: its user's choice.
    "TRITON_DEFAULT_FP_FUSION", "TRITON_F32_DEFAULT",
)  # fmt: skip
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
"""Names that are never passed on: NVIDIA_API_KEY and its like."""


def worker_environment(home: str, *, interpret: bool) -> dict[str, str]:
    """The environment of a worker: an allow-list of the parent's; `home` is a folder that it may write to."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_NAMES or (name.startswith(KEPT_PREFIXES) and not SECRET.search(name))
    }
    kept.setdefault("PATH", os.defpath)
    environment = {
        **kept,
        "HOME": home,
        # torch asks who it runs as, and the user of a sealed worker has no entry anywhere.
        "LOGNAME": "worker",
        "TMPDIR": home,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        # A worker is short-lived and one of several: a pool of threads each would only fight for cores.
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // 2)),
        # These start their threads when numpy is imported, before the preloader forks.
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // 2)),
    }
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    return environment
