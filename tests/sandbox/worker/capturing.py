# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Records entries in this process under the capturing driver, which is taken away again."""

import contextlib
import importlib
from collections.abc import Callable, Generator
from typing import Any

from triton.backends.nvidia import compiler as nvidia_compiler
from triton.compiler import CompiledKernel
from triton.runtime.driver import driver

from tests.sandbox.conftest import H100
from tritonforge.sandbox.replay_plan import Recorded

Record = Callable[..., Recorded]
"""Takes an entry, its inputs and the arguments that are its outputs."""


@contextlib.contextmanager
def recording() -> Generator[Record]:
    """Within this context, no launch reaches a device."""
    capture, recorder, remap, values = (
        importlib.import_module(f"tritonforge_worker.{name}") for name in ("capture", "recording", "remap", "values")
    )
    # Each version of Triton keeps its driver in fields of other names.
    config = dict(vars(driver))
    was = CompiledKernel.__init__, nvidia_compiler.subprocess
    capture.install(H100.model_dump())

    def record(
        entry: Callable[..., Any], inputs: Any, in_place: tuple[str, ...] = (), *, copied: bool = True
    ) -> Recorded:
        own = values.copy(inputs) if copied else inputs
        with remap.cuda_on_cpu(H100.capability, H100.sm_count, H100.name):
            fields, blobs = recorder.record(entry, own, list(in_place), "cpu")
        return Recorded(**fields, blobs=blobs)

    try:
        yield record
    finally:
        CompiledKernel.__init__, nvidia_compiler.subprocess = was
        vars(driver).update(config)
