"""Loads a kernel or task file: into the scratch folder, then as a module of its own."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .failures import Refused, Sources


def load_module(
    text: str,
    *,
    name: str,
    shown_as: str,
    stage: str,
    origin: str | None,
    sources: Sources,
    may_exit: bool = False,
) -> ModuleType:
    """Execute ``text`` as the module ``name``.

    ``origin`` is the folder that the file came from: appended to the import path, so that its own imports
    work and the standard library is never shadowed. ``may_exit``: a successful ``sys.exit`` is its end and no error.

    Raises:
        Refused: a syntax error, a module that calls ``sys.exit``, or an import from a folder that the sandbox hides.
        Exception: whatever executing the module raises.
    """
    # Triton reads a kernel's source from disk, and tracebacks quote from it.
    path = Path.cwd() / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    sources.add(str(path), shown_as, text)
    if origin is not None and origin not in sys.path:
        sys.path.append(origin)
    try:
        code = compile(text, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        refusal = Refused("rejected", "source", f"{shown_as} is not valid Python: {error.msg}", line=error.lineno)
        raise refusal from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise Refused("rejected", "source", f"{shown_as} can't be parsed: {error or type(error).__name__}") from error
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        if may_exit and not error.code:
            return module
        raise Refused("rejected", stage, f"{shown_as} calls sys.exit({error.code!r}) while it is imported") from error
    except ModuleNotFoundError as error:
        if origin is None or _is_known(error.name) or _is_visible(origin):
            raise
        message = (
            f"{shown_as} imports {error.name!r}, which is not installed, and its own folder {origin} is not readable "
            f"in the sandbox. If the module lies there, start the server with --allow-read {origin}"
        )
        raise Refused("rejected", stage, message) from error
    return module


def _is_known(name: str | None) -> bool:
    """Whether it is a part of a package that was found."""
    return name is None or name.partition(".")[0] in sys.modules


def _is_visible(folder: str) -> bool:
    """Whether a folder that a source was read from shows its files here; one on the way to others is there, empty."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.is_file() for entry in entries)
    except OSError:
        return False


def find_entry(module: ModuleType, entry: str, shown_as: str) -> Callable[..., Any]:
    """The host function that callers use.

    Raises:
        Refused: there is none of that name, or it is a bare ``@triton.jit`` function.
    """
    function = getattr(module, entry, None)
    if function is None:
        defined = sorted(
            name
            for name, value in vars(module).items()
            if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        )
        raise Refused(
            "rejected",
            "load",
            f"{shown_as} has no function {entry!r} (the task's ENTRY). "
            f"It defines: {', '.join(defined) or 'no function'}. "
            "Define the entry, or set ENTRY to the host function that launches the kernel.",
        )
    if hasattr(function, "run") and hasattr(function, "arg_names"):
        raise Refused(
            "rejected",
            "load",
            f"{entry!r} is a Triton kernel; ENTRY must name the host function that allocates outputs and launches it.",
        )
    if not callable(function):
        raise Refused("rejected", "load", f"{entry!r} in {shown_as} is a {type(function).__name__}, not a function.")
    return function
