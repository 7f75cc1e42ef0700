# pyright: basic
# triton ships incomplete types.
"""Runs a kernel file as it stands, with the code in it that calls its kernels."""

from __future__ import annotations

import ast
import contextlib
import inspect
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from . import load
from .failures import Refused, Sources

MODULE = "kernel"


def run(
    text: str, *, shown_as: str, origin: str | None, sources: Sources, launched: Callable[[], bool], limit_s: float
) -> None:
    """Execute a file as it would be imported; if that launches nothing, its ``__main__`` blocks, and then its tests.

    Many files end with calls of their tests, which run on import; in others these stand below
    ``if __name__ == "__main__":``, or are functions for pytest: here those without required parameters are called
    whose name starts with ``test``. The first of these that launches something is enough: what a block adds to tests
    on import is mostly timing and printing.

    Args:
        text: the file's.
        shown_as: its name for messages.
        origin: the folder that it came from, for its imports.
        sources: where errors in it find their lines.
        launched: whether a kernel was launched by now.
        limit_s: after so many seconds it is stopped.

    Raises:
        Refused: as `load.load_module` does, or it took too long.
        Exception: whatever its code raises.
    """
    # Scripts read their options from here; this worker's own are none of theirs.
    sys.argv = [str(Path.cwd() / f"{MODULE}.py")]
    with _stopped_after(limit_s):
        module = load.load_module(
            text, name=MODULE, shown_as=shown_as, stage="capture", origin=origin, sources=sources, may_exit=True
        )
        if not launched():
            _run_main_blocks(text, module, shown_as)
        if not launched():
            for test in _tests(module):
                test()


@contextlib.contextmanager
def _stopped_after(limit_s: float) -> Generator[None]:
    """What was launched until then can still be told; a worker that its parent has to kill tells nothing."""

    def stop(*_: Any) -> None:
        raise Refused("unsupported", "capture", f"the file was stopped after {limit_s:g} s; not all of it was run")

    was = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)


def _tests(module: ModuleType) -> list[FunctionType]:
    """Test functions of the file that can be called without arguments, in its order."""
    return [
        value
        for name, value in vars(module).items()
        if name.startswith("test")
        and isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and all(
            parameter.default is not parameter.empty
            or parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
            for parameter in inspect.signature(value).parameters.values()
        )
    ]


def _run_main_blocks(text: str, module: ModuleType, shown_as: str) -> None:
    blocks = [node for node in ast.parse(text).body if isinstance(node, ast.If) and _is_main(node.test)]
    body = [statement for block in blocks for statement in block.body]
    code = compile(ast.Module(body, []), str(module.__file__), "exec", dont_inherit=True)
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        if error.code:
            raise Refused("rejected", "capture", f"{shown_as} ends with sys.exit({error.code!r})") from error


def _is_main(test: ast.expr) -> bool:
    """Whether it is ``__name__ == "__main__"``, the sides in either order."""
    if not (isinstance(test, ast.Compare) and len(test.comparators) == 1):
        return False
    sides = {ast.unparse(test.left), ast.unparse(test.comparators[0])}
    return isinstance(test.ops[0], ast.Eq) and sides == {"__name__", "'__main__'"}
