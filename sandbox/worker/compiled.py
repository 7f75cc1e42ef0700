# pyright: basic
# torch ships incomplete types.
"""A task's reference as torch.compile makes it: what a candidate has to beat to be worth writing.

Everything happens in this process and in its scratch folder, as a sealed worker demands: no pool of processes that
compile, no cache elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch

from . import reference, values
from .failures import Refused

SHAPES_LIMIT = 256
"""Sets of shapes for which one function is compiled; beyond it torch runs it as it is, and says so only in a log."""


def compiled(function: Callable[..., Any], inputs: Any, *, backend: str = "inductor") -> Callable[..., Any]:
    """Compile a reference for these inputs, and call it once on copies of them.

    What is returned takes what the reference took. Called with other shapes, or with gradients on where they were off,
    it compiles again; so does what was compiled here before.

    Args:
        function: the reference.
        inputs: a tuple or a dict, as `reference.call` takes them.
        backend: of torch.compile; any but the default only says whether torch can trace the function.

    Raises:
        Refused: ``unsupported``, with the reason in one line: no compiler, no Triton, or the function is not one that
            torch can compile.
    """
    try:
        _settle()
        # Nothing of what was compiled before is taken for this.
        torch.compiler.reset()
        before = _graphs()
        # Shapes stay what they are in a case; code for any shape would be slower.
        entry = torch.compile(function, backend=backend, fullgraph=False, dynamic=False)
        reference.call(entry, values.copy(inputs))
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        graphs = _graphs() - before
    except _errors() as error:
        raise Refused("unsupported", "benchmark", _in_words(error)) from error
    if not graphs:
        raise Refused("unsupported", "benchmark", "torch.compile finds nothing in the reference that it can compile")
    return entry


def _settle() -> None:
    """Caches in the scratch folder, one process, and errors rather than falling back to what was to be compiled."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{tempfile.gettempdir()}/inductor-cache"
    # Read when the compiler is imported, which may have been before.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    from torch._dynamo import config as dynamo
    from torch._inductor import config as inductor

    inductor.compile_threads = 1
    dynamo.suppress_errors = False
    dynamo.recompile_limit = SHAPES_LIMIT


def _graphs() -> int:
    """How many graphs torch has compiled in this process."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


def _errors() -> tuple[type[BaseException], ...]:
    """What torch, its compilers and the programs that they start raise; torch's own are RuntimeErrors."""
    triton = sys.modules.get("triton.errors")
    own = () if triton is None else (triton.TritonError,)
    return (*reference.REFUSALS, *own, OSError, ImportError, SyntaxError, subprocess.SubprocessError)


def _in_words(error: BaseException) -> str:
    """The innermost error: those around it say that a backend failed, and how to log more."""
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        inner = getattr(error, "inner_exception", None) or error.__cause__
        error = inner if isinstance(inner, BaseException) else error
    return reference.in_words(error, "torch.compile can't compile the reference")
