"""What a file imports from a folder, and which folder it means."""

import ast
import contextlib
from pathlib import Path

from ...sandbox.source import Source


def neighbours(text: str, folder: str) -> list[str]:
    """Names of the modules in a folder that a file imports; none of what is no Python."""
    names: set[str] = set()
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names.add(node.module.partition(".")[0])
    place = Path(folder)
    return sorted(one for one in names if (place / f"{one}.py").is_file() or (place / one).is_dir())


def at_home(candidate: Source, baseline_origin: str | None) -> Source:
    """A candidate with the folder that its imports are found in: its own, or, where none of them is there, the
    baseline's. Whoever works in a folder of his own has no copy of what the baseline imports."""
    own = candidate.origin
    if own is None or baseline_origin is None or own == baseline_origin or neighbours(candidate.text, own):
        return candidate
    return candidate._replace(origin=baseline_origin) if neighbours(candidate.text, baseline_origin) else candidate
