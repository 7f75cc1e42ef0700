"""A kernel file as a syntax tree: its Triton functions, the functions of the host, and constants of the module.

The file is hostile: it is parsed, never imported, and what can't be parsed or is too large is not analysed.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

CHARACTERS_LIMIT: Final = 200_000
"""Of a file; ours have a tenth. Parsing more takes seconds."""
NODES_LIMIT: Final = 100_000
"""Of a file's tree; kernels of ours have some thousand."""
SHOWN_CHARACTERS: Final = 60
"""Of an expression."""
CONDITIONS_LIMIT: Final = 50
"""Around one call: the innermost are kept."""

Condition = tuple[int, bool]
"""An `if`, by the identity of its node, and whether it holds."""


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


@dataclass(frozen=True)
class HostFunction:
    """A function that runs on the CPU. Rules ask much of it, so it is walked once."""

    node: ast.FunctionDef

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.node))

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        return tuple(each for each in self.nodes if isinstance(each, ast.Call))

    @cached_property
    def parameters(self) -> frozenset[str]:
        arguments = self.node.args
        return frozenset(each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))

    @cached_property
    def _assigned(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            for name, value in _assignments(node):
                found.setdefault(name, []).append(value)
        return found

    def assigned(self, name: str) -> list[ast.expr]:
        """All that it assigns to a name. Of `m, n = x.shape` that is `x.shape[0]` and `x.shape[1]`."""
        return self._assigned.get(name, [])

    @cached_property
    def _conditions(self) -> dict[int, frozenset[Condition]]:
        found: dict[int, frozenset[Condition]] = {}
        waiting: list[tuple[ast.AST, tuple[Condition, ...]]] = [(self.node, ())]
        while waiting:
            node, around = waiting.pop()
            if isinstance(node, ast.Call):
                found[id(node)] = frozenset(around)
            sides = {id(each): True for each in node.body} if isinstance(node, ast.If) else {}
            sides |= {id(each): False for each in node.orelse} if isinstance(node, ast.If) else {}
            for each in ast.iter_child_nodes(node):
                side = sides.get(id(each))
                more = around if side is None else (*around, (id(node), side))[-CONDITIONS_LIMIT:]
                waiting.append((each, more))
        return found

    def always_with(self, call: ast.Call, other: ast.Call) -> bool:
        """Whether each condition that a call of the function is under is one of another call, too."""
        return self._conditions.get(id(call), frozenset()) <= self._conditions.get(id(other), frozenset())


@dataclass(frozen=True)
class KernelFile:
    """What a file defines."""

    text: str
    lines: tuple[str, ...]
    kernels: dict[str, KernelFunction]
    host: dict[str, HostFunction]
    """Functions that run on the CPU."""
    calls: tuple[ast.Call, ...]
    """All calls outside of kernels."""
    assigned: dict[str, ast.expr]
    """What the module assigns to a name, if only once."""

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Integers that the module assigns once to a name."""
        return dict(_numbers(self.assigned))

    @cached_property
    def launches(self) -> dict[str, list[tuple[HostFunction, ast.Call]]]:
        """`kernel[grid](...)` by the kernel's name, in all functions of the host that are no tests."""
        found: dict[str, list[tuple[HostFunction, ast.Call]]] = {}
        for name, function in self.host.items():
            for call in function.calls if not name.startswith("test") else ():
                kernel = launched(call)
                if kernel in self.kernels:
                    found.setdefault(kernel, []).append((function, call))
        return found

    def shown(self, node: ast.expr | ast.stmt) -> str:
        """A node's text, or what stands of it on its first line. (`ast.unparse` may run out of stack.)"""
        line = self.lines[node.lineno - 1] if 0 < node.lineno <= len(self.lines) else ""
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        return line.encode()[node.col_offset : end].decode(errors="replace").strip()[:SHOWN_CHARACTERS]

    def excerpt(self, line: int | None) -> str | None:
        return self.lines[line - 1].strip() if line is not None and 0 < line <= len(self.lines) else None


_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def split_lines(text: str) -> list[str]:
    """Lines with their ends, as Python counts them: `str.splitlines` also splits at form feeds and others."""
    return _LINE.findall(text)


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
    host: dict[str, HostFunction] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        if any(dotted(_called(each)).rpartition(".")[2] == "jit" for each in node.decorator_list):
            # Of two with the same name the last one counts.
            kernels[node.name] = _kernel(node)
        else:
            host.setdefault(node.name, HostFunction(node))
    inside = {id(each) for kernel in kernels.values() for each in calls(kernel.node)}
    outside = tuple(each for each in calls(tree) if id(each) not in inside)
    return KernelFile(
        text, tuple(line.rstrip("\r\n") for line in split_lines(text)), kernels, host, outside, _module(tree)
    )


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
            if argument.annotation is not None and _is_constexpr(argument.annotation)
        ),
        unspecialized=frozenset(unspecialized),
        configs=tuple(configs),
        autotuned=autotuned,
    )


def _is_constexpr(annotation: ast.expr) -> bool:
    """Whether it is `tl.constexpr`, which may stand there as a text."""
    match annotation:
        case ast.Constant(value=str(text)):
            return text.strip().rpartition(".")[2] == "constexpr"
        case _:
            return dotted(annotation).endswith("constexpr")


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


def _module(tree: ast.Module) -> dict[str, ast.expr]:
    found: dict[str, ast.expr | None] = {}
    for node in tree.body:
        for name, value in _assignments(node):
            found[name] = None if name in found else value
    return {name: value for name, value in found.items() if value is not None}


def _numbers(assigned: dict[str, ast.expr]) -> Iterator[tuple[str, int]]:
    for name, value in assigned.items():
        if isinstance(value, ast.Call) and dotted(value.func).endswith("constexpr") and len(value.args) == 1:
            value = value.args[0]
        if isinstance(value, ast.Constant) and type(value.value) is int:
            yield name, value.value


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement or `:=` assigns, each with its value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _taken(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield from _taken(target, value)
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            yield name, value
        case _:
            pass


def _taken(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one, whole in zip(targets, values, strict=True):
                yield from _taken(one, whole)
        case ast.Tuple(elts=targets), _:
            for place, each in enumerate(targets):
                if isinstance(each, ast.Name):
                    part = ast.Subscript(value, ast.Constant(place), ast.Load())
                    yield each.id, ast.copy_location(part, value)
        case _:
            pass


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


def launched(call: ast.Call) -> str:
    """`kernel` of `kernel[grid](...)`; empty for other calls."""
    on = call.func.value if isinstance(call.func, ast.Subscript) else None
    return on.id if isinstance(on, ast.Name) else ""


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
