"""What a host function returns, as far as the source tells."""

import ast
from collections.abc import Iterator, Sequence

from .facts import Function, parameters_of


def returns_new(function: Function, written: set[str]) -> bool:
    """Whether a function may return anything but its arguments.

    Args:
        function: the host function.
        written: names of arguments that are written to. One that is assigned where it is None is the argument wherever
            that was given, as these were.
    """
    names = set(parameters_of(function)) - _assigned(function.body, written)
    returned = [node.value for node in own(function) if isinstance(node, ast.Return) and node.value is not None]
    parts = [part for value in returned for part in (value.elts if isinstance(value, ast.Tuple) else [value])]
    return any(
        not (isinstance(part, ast.Constant) and part.value is None)
        and not (isinstance(part, ast.Name) and part.id in names)
        for part in parts
    )


def own(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions in it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def _assigned(body: Sequence[ast.stmt], written: set[str]) -> set[str]:
    """Names that stand for something else after they were assigned; where they are None they may be, if written to."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.If(
                test=ast.Compare(left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(value=None)])
            ) if name in written:
                found |= _assigned(node.body, written) - {name}
                waiting += node.orelse
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                pass
            case ast.AugAssign(target=ast.Name()):
                # A tensor changes in place.
                waiting.append(node.value)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                waiting += ast.iter_child_nodes(node)
    return found
