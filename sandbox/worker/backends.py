# pyright: basic
# triton ships incomplete types.
"""What the capturing driver has to know of each of Triton's backends.

For the GPUs of another vendor, write one more class like these, and its counterpart in
`profiling/compiler/backends.py`, which reads what the backend leaves.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from triton.backends.compiler import GPUTarget

Heard = Callable[[str], None]
Grid = tuple[int, int, int]
MOST = 2**31 - 1
"""Of an int, which is what launchers take."""


class Backend(Protocol):
    """How the GPUs of one vendor present themselves."""

    stages: tuple[str, ...]
    """What is kept of what Triton's backend leaves of a kernel, in the order of its making."""

    def target(self, facts: dict[str, Any]) -> GPUTarget:
        """What Triton is to compile for."""
        ...

    def grid_limits(self, threads: int) -> Grid:
        """The largest grid that a launch with so many threads a block allows."""
        ...

    def cpp_type(self, ty: str) -> str:
        """The launcher's type for an argument of a Triton type."""
        ...

    def listen(self, heard: Heard) -> None:
        """From now on, pass on what is said while a kernel is assembled; called before the first one is."""
        ...


class Nvidia:
    """CUDA: the assembler, ptxas, is a program of its own, and tells what a kernel takes."""

    stages: tuple[str, ...] = ("ttir", "ttgir", "llir", "ptx", "cubin")

    def target(self, facts: dict[str, Any]) -> GPUTarget:
        return GPUTarget("cuda", facts["capability"], facts["warp_threads"])

    def grid_limits(self, threads: int) -> Grid:
        # CUDA C++ programming guide: for compute capability 3.0 and later.
        return MOST, 65_535, 65_535

    def cpp_type(self, ty: str) -> str:
        from triton.backends.nvidia import driver

        return driver.ty_to_cpp(ty)

    def listen(self, heard: Heard) -> None:
        from triton.backends.nvidia import compiler

        compiler.subprocess = PtxasListener(heard)


class Amd:
    """HIP: LLVM assembles and links in this process, and writes what a kernel takes into the assembly itself."""

    stages: tuple[str, ...] = ("ttir", "ttgir", "llir", "amdgcn", "hsaco")

    def target(self, facts: dict[str, Any]) -> GPUTarget:
        return GPUTarget("hip", facts["architecture"], facts["warp_threads"])

    def grid_limits(self, threads: int) -> Grid:
        # hip_runtime_api.h, hipModuleLaunchKernel: in each dimension, below 2^32 threads in all.
        return min(MOST, (2**32 - 1) // threads), MOST, MOST

    def cpp_type(self, ty: str) -> str:
        from triton.backends.amd import driver

        return driver.ty_to_cpp(ty)

    def listen(self, heard: Heard) -> None:
        from triton.backends.amd import compiler

        if hasattr(compiler.HIPBackend, "path_to_rocm_lld"):
            self.stages = tuple(stage for stage in self.stages if stage != "hsaco")
            leave_unlinked(compiler, heard)


def leave_unlinked(compiler: Any, heard: Heard) -> None:
    """Older Tritons link by a program of ROCm's, which is seldom there without AMD's GPUs: from now on they stop at the
    object file, which stands in for what would be linked."""
    backend = compiler.HIPBackend

    def make_hsaco(src: str, metadata: dict[str, Any], options: Any) -> bytes:
        heard(f"{metadata['name']} is not linked: this version of Triton does that by a program of ROCm's")
        return compiler.amd.assemble_amdgcn(src, options.arch, "")

    backend.make_hsaco = staticmethod(make_hsaco)
    backend.hash = lambda self: f"{self.target}"


class PtxasListener:
    """Stands in for ``subprocess`` in Triton's backend: every version runs ptxas verbosely, its words to a file that is
    then deleted; they are read before."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def run(self, *args: Any, **kwargs: Any) -> Any:
        log = getattr(kwargs.get("stderr"), "name", None)
        done = subprocess.run(*args, **kwargs)
        if isinstance(log, str):
            self._heard(Path(log).read_text(errors="replace"))
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)


BACKENDS: dict[str, Backend] = {"nvidia": Nvidia(), "amd": Amd()}
"""By vendor."""
