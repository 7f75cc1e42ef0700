"""Sizes of a performance file that an adapted task makes no cases of: what a kernel was not optimized for."""

import ast
from pathlib import Path
from typing import Final

from ...sandbox.source import Source

RUNTIME: Final = Path(__file__).parent / "templates" / "further.py.txt"


def has_sizes(task: Source) -> bool:
    """Whether a task was made by an adapter, with a performance file; its text is parsed and never run."""
    try:
        body = ast.parse(task.text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return {"_speed_sizes", "_run_speed"} <= functions and any(
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "SPEED"
        and isinstance(node.value, ast.Constant)
        and bool(node.value.value)
        for node in body
    )


def with_sizes(task: Source) -> Source:
    """The task, with its performance file's further sizes as its hidden cases, the smallest first.

    They are found where it is loaded, in a worker. They keep within the limits that the adapter has for sizes to be
    timed on, differ from the task's cases, and hand over the same arguments to be written to. Those whose inputs have
    at most 128 KiB are marked small.

    Args:
        task: one that `has_sizes`.
    """
    return task._replace(text=f"{task.text}\n{RUNTIME.read_text(encoding='utf-8')}")
