"""A kernel file as a syntax tree: its Triton functions, the functions of the host, and constants of the module.

The file is hostile: it is parsed, never imported, and what can't be parsed or is too large is not analysed.
"""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

CHARACTERS_LIMIT: Final = 200_000
"""Of a file; ours have a tenth. Parsing more takes seconds."""
NODES_LIMIT: Final = 100_000
"""Of a file's tree; kernels of ours have some thousand."""


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """One function with `@triton.jit`."""

    node: ast.FunctionDef
    parameters: tuple[str, ...]
    constants: frozenset[str]
    """Parameters that are `tl.constexpr`."""
    unspecialized: frozenset[str]
    """Parameters that `do_not_specialize` or `do_not_specialize_on_alignment` names."""
    configs: tuple[ast.Call, ...]
    """`triton.Config(...)` of its autotuner."""
    autotuned: bool


@dataclass(frozen=True, slots=True)
class KernelFile:
    """What a file defines."""

    text: str
    lines: tuple[str, ...]
    kernels: dict[str, KernelFunction]
    host: dict[str, ast.FunctionDef]
    """Functions that run on the CPU."""
    calls: tuple[ast.Call, ...]
    """All calls outside of kernels."""
    numbers: dict[str, int]
    """Integers that the module assigns once to a name."""

    def excerpt(self, line: int | None) -> str | None:
        return self.lines[line - 1].strip() if line is not None and 0 < line <= len(self.lines) else None


def parse(text: str) -> KernelFile | None:
    """Reads a file; None where it can't be read, or is too long."""
    if len(text) > CHARACTERS_LIMIT:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file's own escapes are none of our business
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if sum(1 for _ in ast.walk(tree)) > NODES_LIMIT:
        return None
    kernels: dict[str, KernelFunction] = {}
    host: dict[str, ast.FunctionDef] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        if any(dotted(_called(each)).rpartition(".")[2] == "jit" for each in node.decorator_list):
            kernels.setdefault(node.name, _kernel(node))
        else:
            host.setdefault(node.name, node)
    inside = {id(each) for kernel in kernels.values() for each in calls(kernel.node)}
    outside = tuple(each for each in calls(tree) if id(each) not in inside)
    return KernelFile(text, tuple(text.splitlines()), kernels, host, outside, _numbers(tree))


def _kernel(node: ast.FunctionDef) -> KernelFunction:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    unspecialized: set[str] = set()
    configs: list[ast.Call] = []
    autotuned = False
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        autotuned |= dotted(decorator.func).endswith("autotune")
        for keyword in decorator.keywords:
            if keyword.arg is not None and keyword.arg.startswith("do_not_specialize"):
                unspecialized |= set(_named(keyword.value, arguments))
        configs += [each for each in calls(decorator) if dotted(each.func).rpartition(".")[2] == "Config"]
    return KernelFunction(
        node=node,
        parameters=tuple(argument.arg for argument in arguments),
        constants=frozenset(
            argument.arg
            for argument in arguments
            if argument.annotation is not None and dotted(argument.annotation).endswith("constexpr")
        ),
        unspecialized=frozenset(unspecialized),
        configs=tuple(configs),
        autotuned=autotuned,
    )


def _named(value: ast.expr, arguments: list[ast.arg]) -> Iterator[str]:
    """Names of arguments in a list of names and positions."""
    for each in value.elts if isinstance(value, ast.List | ast.Tuple) else ():
        match each:
            case ast.Constant(value=str(name)):
                yield name
            case ast.Constant(value=int(place)) if 0 <= place < len(arguments):
                yield arguments[place].arg
            case _:
                pass


def _numbers(tree: ast.Module) -> dict[str, int]:
    found: dict[str, int | None] = {}
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if isinstance(value, ast.Call) and dotted(value.func).endswith("constexpr") and len(value.args) == 1:
                    value = value.args[0]
                number = value.value if isinstance(value, ast.Constant) and type(value.value) is int else None
                found[name] = None if name in found else number
            case _:
                pass
    return {name: number for name, number in found.items() if number is not None}


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def dotted(node: ast.expr) -> str:
    """`tl.load` for a name with its attributes; `.load` where it is one of something else; empty for others."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not parts and not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id if isinstance(node, ast.Name) else "", *reversed(parts)])


def calls(node: ast.AST) -> Iterator[ast.Call]:
    """All calls within, itself included."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def language(call: ast.Call) -> str:
    """Name of a function of Triton's language, such as `load` of `tl.load(…)`; empty for other calls."""
    root, _, name = dotted(call.func).partition(".")
    if root in ("tl", "triton", "libdevice", "math") and name:
        return name.rpartition(".")[2]
    return root if not name and root in ("range",) else ""


def keyword(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """An argument by name, or by place."""
    for each in call.keywords:
        if each.arg == name:
            return each.value
    if place is not None and place < len(call.args) and not any(isinstance(each, ast.Starred) for each in call.args):
        return call.args[place]
    return None
