"""A test file that calls a kernel: its own, or one that it imports from a file beside it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from .facts import Facts, facts_of, is_main, root_name, segments
from .model import Adapted, Form
from .recorded import Tested, adaptations, without_imports


def is_pytest_file(text: str) -> bool:
    """Whether it defines a test function."""
    tree = ast.parse(text)
    return any(
        isinstance(node, ast.FunctionDef) and node.name.startswith("test")
        for each in tree.body
        for node in ([*each.body] if isinstance(each, ast.ClassDef) else [each])
    )


def from_pytest_file(path: Path, text: str) -> Iterator[Adapted]:
    """Tasks, the likeliest first."""
    found = imported(path, text)
    if found is None:
        yield from _of_one_file(path, text)
        return
    file, module = found
    kernel = file.read_text(encoding="utf-8-sig")
    facts = facts_of(ast.parse(kernel))
    test, names = without_imports(text, {module}, scripts=True)
    if not names:
        return
    said = (f"{path.name} is the test, {file.name} beside it the kernel file",)
    ours = facts.launching | facts.kernels | facts.classes.keys()
    yield from adaptations(
        Tested(Form.PYTEST, path, kernel, test, {n: of for n, of in names.items() if of in ours}, assumptions=said)
    )


def imported(path: Path, text: str) -> tuple[Path, str] | None:
    """The first file that the test imports from near it and that has a kernel, and its module's name."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        for folder in [path.parent, path.parent.parent, path.parent / "src", path.parent.parent / "src"]:
            file = folder.joinpath(*node.module.split(".")).with_suffix(".py")
            if file.is_file() and facts_of(ast.parse(file.read_text(encoding="utf-8-sig"))).kernels:
                return file, node.module
    return None


def _of_one_file(path: Path, text: str) -> Iterator[Adapted]:
    """Kernels and the functions that launch them on one side, tests on the other; imports on both."""
    tree = ast.parse(text)
    facts = facts_of(tree)
    if not facts.kernels:
        return
    tests = [node for node in tree.body if _is_test(node, facts)]
    kernel = [node for node in tree.body if node not in tests]
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    own = [node for node in tests if not (isinstance(node, ast.If) and is_main(node.test))]
    names = {name: name for name in facts.launching | facts.kernels | facts.classes.keys()}
    said = (f"{path.name} holds both: its tests, and, in the kernel file, all else",)
    # `import pytest` is for the tests: whoever runs the kernel need not have it.
    kept = [node for node in kernel if not (isinstance(node, ast.Import) and node.names[0].name == "pytest")]
    yield from adaptations(
        Tested(Form.PYTEST, path, segments(text, kept), segments(text, [*imports, *own]), names, assumptions=said)
    )


def _is_test(node: ast.stmt, facts: Facts) -> bool:
    match node:
        case ast.FunctionDef():
            marks = [ast.unparse(found) for found in node.decorator_list]
            return node.name.startswith("test") or any("fixture" in mark for mark in marks)
        case ast.Expr(value=ast.Call() as call):
            return root_name(call.func) not in facts.kernels
        case ast.If():
            return is_main(node.test)
        case _:
            return False
