"""TritonBench-G files: a kernel file, a line of ``#``, and its own test; where given, a performance file beside."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .facts import defined_by, facts_of, names_in, segments
from .model import Adapted, Form
from .recorded import Tested, adaptations, without_imports

SEPARATOR: Final = re.compile(r"^#{40,}\s*$", re.MULTILINE)
PERFORMANCE: Final = Path("performance_metrics", "perf_G", "golden_metrics")
"""From the root of the repository."""
SPEED_MODULES: Final = frozenset({"TritonBench_v1", "performance_utils"})


def is_triton_bench(text: str) -> bool:
    """Whether there is a separator with a test below it."""
    found = SEPARATOR.search(text)
    return found is not None and bool(text[found.end() :].strip())


def performance_file(path: Path) -> Path | None:
    """The performance file of a kernel file, where the repository has its usual form."""
    found = [folder / PERFORMANCE / f"{path.stem}_perf.py" for folder in path.resolve().parents[1:4]]
    return next((file for file in found if file.is_file()), None)


def from_triton_bench(path: Path, text: str, speed: str | None) -> Iterator[Adapted]:
    """Tasks, the likeliest first.

    Raises:
        SyntaxError: one of the parts is no Python.
    """
    found = SEPARATOR.search(text)
    assert found is not None
    kernel, test = _split(text[: found.start()], text[found.end() :].lstrip("\n"))
    kernel = _with_imports(kernel, test)
    names = {name: name for name in _defined(kernel)}
    speed_text, speed_names = "", dict[str, str]()
    said = [f"{path.name}: above its line of # stands the kernel file, below it the test"]
    if speed is not None:
        speed_text, speed_names = without_imports(speed, SPEED_MODULES, scripts=True)
        said.append("a performance file was found and read for its sizes")
    yield from adaptations(Tested(Form.TRITONBENCH, path, kernel, test, names, speed_text, speed_names, tuple(said)))


def _split(kernel: str, test: str) -> tuple[str, str]:
    """What the test part has of kernels, and of functions that launch them, goes to the kernel part."""
    tree = ast.parse(test)
    facts = facts_of(tree)
    ours = facts.kernels | {name for name in facts.launching if not name.startswith("test")}
    moved = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in ours and facts.kernels
    ]
    if not moved:
        return kernel, test
    rest = [node for node in tree.body if node not in moved]
    imports = [node for node in rest if isinstance(node, ast.Import | ast.ImportFrom)]
    return f"{kernel}\n{segments(test, [*imports, *moved])}", segments(test, rest)


def _with_imports(kernel: str, test: str) -> str:
    """In one module, functions above may need what is imported below them."""
    tree = ast.parse(kernel)
    known = {name for node in tree.body for name in defined_by(node)}
    lacking = names_in(tree) - known
    imports = [
        node
        for node in ast.parse(test).body
        if isinstance(node, ast.Import | ast.ImportFrom) and defined_by(node) & lacking
    ]
    return f"{kernel.rstrip()}\n\n\n{segments(test, imports)}" if imports else kernel


def _defined(kernel: str) -> set[str]:
    facts = facts_of(ast.parse(kernel))
    return facts.functions.keys() | facts.classes.keys() | facts.aliases.keys() | facts.kernels
