"""Whether two candidates are the same program: the same machine code, launched alike by the same host code."""

import ast
import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple

from ...sandbox.source import SIZE_LIMIT_BYTES, Source

NODES_LIMIT: Final = 100_000
NEIGHBOURS_LIMIT: Final = 200
"""Files beside a kernel file that it imports; with more, only the same text is the same program."""
_DIGITS: Final = 32


class Launched(NamedTuple):
    """One distinct launch of one case."""

    case: str
    code_hash: str
    grid: tuple[int, int, int]
    times: int
    tuning: bool
    """A trial of the autotuner: which it chooses is known on a GPU only, so all that it may choose count."""


def identity(source: Source, launches: Sequence[Launched], compiled: Set[str], *, complete: bool) -> str:
    """Same for files of which nothing that is measured or judged can differ.

    Args:
        source: the file.
        launches: those of all cases that are judged, in any order.
        compiled: names of the kernels launched in them: their source says no more than their code.
        complete: whether these are all; otherwise only the same text has the same identity.
    """
    found = sorted(Counter(launches).items())
    host = host_code(source.text, compiled) if complete else source.text
    parts = [host, repr(found), *_imported(source)]
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "backslashreplace")
        digest.update(f"{len(data)} ".encode() + data)
    return digest.hexdigest()[:_DIGITS]


def host_code(text: str, compiled: Set[str]) -> str:
    """A file without what its machine code says: comments, formatting, docstrings and bodies of compiled kernels.

    These kernels, what they call, and their parameters are numbered instead of named. Kernels that were not launched
    stay as they are: nothing tells what their code would be.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file's own escapes are none of our business
            tree = ast.parse(text)
        if sum(1 for _ in ast.walk(tree)) > NODES_LIMIT:
            return text
        jitted = _jitted(tree)
        numbers = {name: number for number, name in enumerate(_reached(jitted, compiled))}
        parameters = {name: _parameters(jitted[name]) for name in numbers}
        return ast.dump(_Stripped(numbers, parameters, jitted).visit(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def _jitted(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions that Triton compiles, in the file's order; those whose name another definition has are left out."""
    names = _names_of_jit(tree)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    functions.sort(key=lambda node: node.lineno)
    often = Counter(node.name for node in functions)
    return {
        node.name: node
        for node in functions
        if often[node.name] == 1 and any(_dotted(_called(each)) in names for each in node.decorator_list)
    }


def _names_of_jit(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {f"{alias.asname or alias.name}.jit" for alias in node.names if alias.name == "triton"}
        elif isinstance(node, ast.ImportFrom) and node.module == "triton":
            found |= {alias.asname or alias.name for alias in node.names if alias.name == "jit"}
    return found


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted(value)}.{attribute}"
        case _:
            return ""


def _reached(jitted: dict[str, ast.FunctionDef], compiled: Set[str]) -> list[str]:
    """The compiled kernels and, with those, the functions that they name, in the file's order."""
    found: set[str] = set()
    left = [name for name in jitted if name in compiled]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            named = {node.id for each in jitted[name].body for node in ast.walk(each) if isinstance(node, ast.Name)}
            left += [other for other in jitted if other in named]
    return [name for name in jitted if name in found]


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


class _Stripped(ast.NodeTransformer):
    def __init__(
        self, numbers: dict[str, int], parameters: dict[str, list[str]], jitted: dict[str, ast.FunctionDef]
    ) -> None:
        self._numbers, self._parameters, self._jitted = numbers, parameters, jitted

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = _without_docstring(node.body)
        if self._jitted.get(node.name) is node and node.name in self._numbers:
            node.body = []
            for number, name in enumerate(self._parameters[node.name]):
                for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    if each.arg == name:
                        each.arg = _numbered("parameter", number)
            node.name = _numbered("kernel", self._numbers[node.name])
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        # kernel[grid](..., BLOCK=64)
        if isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name):
            parameters = self._parameters.get(node.func.value.id, [])
            for keyword in node.keywords:
                if keyword.arg in parameters:
                    keyword.arg = _numbered("parameter", parameters.index(keyword.arg))
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._numbers:
            node.id = _numbered("kernel", self._numbers[node.id])
        return node


def _numbered(what: str, number: int) -> str:
    """No name that a file can have."""
    return f"<{what} {number}>"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
        case _:
            return body


def _imported(source: Source) -> Iterator[str]:
    """The texts of what a file imports from its own folder."""
    if source.origin is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    names = sorted({name.partition(".")[0] for node in ast.walk(tree) for name in _modules(node)} - {""})
    folder = Path(source.origin)
    if any((folder / f"{name}.py").exists() or (folder / name).is_dir() for name in names):
        # Any of them may import others.
        yield source.origin
        yield from _texts(folder) or [source.text]


def _modules(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _texts(folder: Path) -> list[str]:
    """The folder's own Python files; none where there are too many to read."""
    found: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        if len(found) == NEIGHBOURS_LIMIT:
            return []
        try:
            if path.stat().st_size > SIZE_LIMIT_BYTES:
                return []
            found.append(path.read_text("utf-8", "backslashreplace"))
        except OSError:
            return []
    return found
