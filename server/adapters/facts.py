"""What a source says about itself: its names, what launches, and what a test needs of it. Nothing is executed."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
JIT: Final = ("jit", "autotune", "heuristics")
"""Last parts of the names of decorators that make a function a kernel."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names of a module that matter for calling it."""

    statements: tuple[ast.stmt, ...]
    """At module level, those within `if` and `try` too."""
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    classes: dict[str, ast.ClassDef] = field(default_factory=dict[str, ast.ClassDef])
    kernels: frozenset[str] = frozenset()
    """Functions that Triton compiles."""
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    """Names assigned from a dotted one, such as ``norm = Norm.apply``."""
    launching: frozenset[str] = frozenset()
    """Functions, classes and aliases that launch a kernel, by way of others too."""


def facts_of(tree: ast.Module) -> Facts:
    """Read a module."""
    statements = tuple(_module_level(tree.body))
    functions = {node.name: node for node in statements if isinstance(node, Function)}
    classes = {node.name: node for node in statements if isinstance(node, ast.ClassDef)}
    kernels = {name for name, node in functions.items() if any(_is_jit(found) for found in node.decorator_list)}
    aliases: dict[str, str] = {}
    for node in statements:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(target := node.targets[0], ast.Name):
            dotted = dotted_name(node.value)
            if dotted is not None:
                aliases[target.id] = dotted
            elif isinstance(node.value, ast.Call) and _is_jit(node.value):
                kernels.add(target.id)
    kernels |= {name for name, dotted in aliases.items() if dotted in kernels}
    bodies: dict[str, ast.AST] = {**functions, **classes}
    uses = {name: names_in(node) for name, node in bodies.items() if name not in kernels}
    uses |= {name: {dotted.partition(".")[0]} for name, dotted in aliases.items()}
    launching = {name for name, node in bodies.items() if name not in kernels and _launches(node, kernels)}
    grown = True
    while grown:
        more = {name for name, used in uses.items() if name not in kernels and used & launching}
        grown = not more <= launching
        launching |= more
    return Facts(statements, functions, classes, frozenset(kernels), aliases, frozenset(launching))


def _module_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        match node:
            case ast.If() if not is_main(node.test):
                yield from _module_level([*node.body, *node.orelse])
            case ast.Try():
                yield from _module_level([*node.body, *node.orelse])
                for handler in node.handlers:
                    yield from _module_level(handler.body)
            case _:
                pass


def is_main(test: ast.expr) -> bool:
    """Whether it is ``__name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and {ast.unparse(test.left), ast.unparse(test.comparators[0])} == {
        "__name__",
        "'__main__'",
    }


def _is_jit(decorator: ast.expr) -> bool:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator).rpartition(".")[2] in JIT or (
        isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Call) and _is_jit(decorator.func)
    )


def _launches(node: ast.AST, kernels: set[str]) -> bool:
    return any(
        isinstance(call, ast.Call)
        and (
            (isinstance(call.func, ast.Subscript) and root_name(call.func) in kernels)
            or (isinstance(call.func, ast.Attribute) and call.func.attr == "run" and root_name(call.func) in kernels)
        )
        for call in ast.walk(node)
    ) or any(isinstance(name, ast.Name) and name.id in kernels for name in ast.walk(node))


def dotted_name(node: ast.expr) -> str | None:
    """``a.b.c`` as it stands in the source; None for any other expression."""
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def root_name(node: ast.AST) -> str | None:
    """The name that a chain of attributes, calls and subscripts begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def names_in(node: ast.AST) -> set[str]:
    """All names that are read below a node."""
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


def defined_by(statement: ast.stmt) -> set[str]:
    """Names that a statement at module level gives a value."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Import():
            return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
        case ast.ImportFrom():
            return {alias.asname or alias.name for alias in statement.names}
        case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
            inner = [child for child in ast.walk(statement) if isinstance(child, ast.stmt) and child is not statement]
            return {name for child in inner for name in defined_by(child)}
        case _:
            return {
                node.id
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }


def needed(tree: ast.Module, wanted: Iterable[str], without: Iterable[str]) -> list[ast.stmt]:
    """The statements of a module that give the wanted names their values, and what those need, in their order.

    Args:
        tree: the module.
        wanted: names.
        without: names that something else stands in for: what defines them is left out.
    """
    stand_ins = set(without)
    known, chosen, asked = set[str](), set[int](), set(wanted) - stand_ins
    while asked:
        known |= asked
        found = set[str]()
        for at, statement in enumerate(tree.body):
            defined = defined_by(statement)
            if at not in chosen and defined & asked and not defined & stand_ins:
                chosen.add(at)
                found |= names_in(statement)
        asked = found - known - stand_ins
    star = [at for at, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return [tree.body[at] for at in sorted(chosen - set(star))]


def segments(text: str, statements: Iterable[ast.stmt]) -> str:
    """The source of some statements, decorators and comments inside them as they stand."""
    lines = text.splitlines(keepends=True)
    parts: list[str] = []
    for node in statements:
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(found.lineno for found in decorators)])
        part = "".join(lines[first - 1 : node.end_lineno])
        parts.append(part if part.endswith("\n") else f"{part}\n")
    return "".join(parts)


def parameters_of(function: Function) -> list[str]:
    """Names of the parameters, keyword-only ones last."""
    found = function.args
    return [each.arg for each in [*found.posonlyargs, *found.args, *found.kwonlyargs]]
