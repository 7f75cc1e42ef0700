"""One kernel as a launch compiles it: its live statements with their loops, accesses, dots and other calls."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from ....sandbox.facts import CapturedLaunch
from . import form
from .evaluate import Evaluator
from .form import Form
from .syntax import KernelFile, KernelFunction, calls, keyword, language

NODES_LIMIT: Final = 20_000
"""Of one kernel's tree: ours have some hundred, and rules look at pairs of them."""
SPAN_LIMIT: Final = 50
"""Lines of one call."""
CALLS_LIMIT: Final = 500
"""Accesses, and other calls of the language, that are kept of a kernel."""
_ATOMICS: Final = ("atomic_",)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop in the source."""

    node: ast.For | ast.While
    kind: Literal["for", "while", "static_range"]
    stages: int | None
    """`num_stages` of `tl.range`."""
    call: ast.Call | None
    """`range(...)` or its like."""
    assigned: frozenset[str]
    """Names that its body assigns."""

    @property
    def line(self) -> int:
        return self.node.lineno


@dataclass(frozen=True, slots=True)
class Branch:
    """An `if` whose condition is known at run time only."""

    node: ast.If
    other: bool
    """Whether it is the `else` side."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One comparison of a mask."""

    left: Form
    right: Form
    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands."""

    line: int
    loops: tuple[Loop, ...]
    branches: tuple[Branch, ...]
    statement: ast.stmt

    @property
    def unrolled(self) -> bool:
        return any(loop.kind == "static_range" for loop in self.loops)


@dataclass(frozen=True, slots=True)
class Access:
    """One load, store or atomic."""

    kind: Literal["load", "store", "atomic"]
    call: ast.Call
    place: Place
    address: Form
    limits: tuple[Limit, ...] | None
    """Of its mask; None where the mask can't be read, empty without one."""
    masked: bool

    @property
    def line(self) -> int:
        return self.place.line

    @property
    def pointer(self) -> str | None:
        """The argument that the address begins with."""
        found = [each.text for term in self.address for each in term if each.kind == "pointer"]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Call:
    """Any other call of the language."""

    name: str
    node: ast.Call
    place: Place

    @property
    def line(self) -> int:
        return self.place.line


@dataclass(slots=True)
class LiveKernel:
    """What is left of a kernel after the branches that constants rule out."""

    function: KernelFunction
    accesses: list[Access] = field(default_factory=list[Access])
    calls: list[Call] = field(default_factory=list[Call])
    statements: list[tuple[ast.stmt, Place]] = field(default_factory=list[tuple[ast.stmt, Place]])
    loops: list[Loop] = field(default_factory=list[Loop])
    values: dict[str, Form] = field(default_factory=dict[str, Form])
    """Of local names, at the end."""
    definitions: dict[str, list[ast.expr]] = field(default_factory=dict[str, list[ast.expr]])
    """All that a local name is ever assigned."""

    def first_lines(self) -> dict[int, int]:
        """The line on which a call begins, for each line that it spans: the compiler names that of an argument."""
        nodes = [*(access.call for access in self.accesses), *(call.node for call in self.calls)]
        spans = sorted((node.lineno, -(node.end_lineno or node.lineno)) for node in nodes)
        found: dict[int, int] = {}
        for start, end in spans:  # what is within another comes later
            found |= dict.fromkeys(range(start, min(-end, start + SPAN_LIMIT) + 1), start)
        return found

    def changes(self, names: tuple[str, ...]) -> bool:
        """Whether the live kernel assigns to one of its arguments, or uses it with a method or attribute."""
        for node in (each for statement, _ in self.statements for each in ast.walk(statement)):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) if name in names:
                    return True
                case ast.Attribute(value=ast.Name(id=name)) if name in names:
                    return True
                case _:
                    pass
        return False

    def named(self, *names: str) -> list[Call]:
        return [call for call in self.calls if call.name in names]


def live(file: KernelFile, name: str, launch: CapturedLaunch) -> LiveKernel | None:
    """A kernel of a file as it is launched; None where the file has none of that name, or it is too long."""
    function = file.kernels.get(name)
    if function is None or sum(1 for _ in ast.walk(function.node)) > NODES_LIMIT:
        return None
    walk = _Walk(file, LiveKernel(function), Evaluator(file, function, launch))
    try:
        walk.block(function.node.body, (), ())
    except RecursionError:
        return None
    walk.found.values = walk.evaluator.values
    return walk.found


class _Walk:
    def __init__(self, file: KernelFile, found: LiveKernel, evaluator: Evaluator) -> None:
        self.file, self.found, self.evaluator = file, found, evaluator
        self._limits: dict[str, tuple[Limit, ...] | None] = {}

    def block(self, body: list[ast.stmt], loops: tuple[Loop, ...], branches: tuple[Branch, ...]) -> None:
        for statement in body:
            self._statement(statement, loops, branches)

    def _statement(self, node: ast.stmt, loops: tuple[Loop, ...], branches: tuple[Branch, ...]) -> None:
        place = Place(node.lineno, loops, branches, node)
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                self._calls(test, place)
                truth = self.evaluator.truth(test)
                if truth is not False:
                    self.block(body, loops, (*branches, Branch(node, False)) if truth is None else branches)
                if truth is not True:
                    self.block(orelse, loops, (*branches, Branch(node, True)) if truth is None else branches)
            case ast.For(iter=over, body=body):
                self._calls(over, place)
                loop = self._loop(node)
                self.found.loops.append(loop)
                self._advance(body, loop)
                self._count(node)
                self.block(body, (*loops, loop), branches)
            case ast.While(test=test, body=body):
                self._calls(test, place)
                loop = Loop(node, "while", None, None, _assigned(body))
                self.found.loops.append(loop)
                self._advance(body, loop)
                self.block(body, (*loops, loop), branches)
            case ast.With(body=body):
                self.block(body, loops, branches)
            case _:
                self.found.statements.append((node, place))
                self._calls(node, place)
                self._assign(node)

    def _loop(self, node: ast.For) -> Loop:
        call = node.iter if isinstance(node.iter, ast.Call) else None
        name = language(call) if call is not None else ""
        stages = keyword(call, "num_stages") if call is not None else None
        number = self.evaluator.constant(stages) if stages is not None else None
        return Loop(
            node=node,
            kind="static_range" if name == "static_range" else "for",
            stages=number if isinstance(number, int) else None,
            call=call,
            assigned=_assigned(node.body),
        )

    def _advance(self, body: list[ast.stmt], loop: Loop) -> None:
        """What `a += step` in a loop makes of `a`: its value plus a multiple of the step."""
        for node in (each for statement in body for each in ast.walk(statement)):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                if name in self.evaluator.values or name in self.found.function.parameters:
                    before = self.evaluator.form(ast.Name(id=name))
                    step = form.multiplied(self.evaluator.form(node.value), form.atom("step", "a count"))
                    self.evaluator.values[name] = form.added(before, step)
        for name in loop.assigned:
            self._limits.pop(name, None)

    def _count(self, node: ast.For) -> None:
        if not isinstance(node.target, ast.Name):
            return
        call = node.iter if isinstance(node.iter, ast.Call) else None
        arguments = call.args if call is not None else []
        start = self.evaluator.form(arguments[0]) if len(arguments) > 1 else form.constant(0)
        step = self.evaluator.form(arguments[2]) if len(arguments) > 2 else form.constant(1)
        counted = form.multiplied(step, form.atom("step", node.target.id))
        self.evaluator.values[node.target.id] = form.added(start, counted)

    def _assign(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(
                values
            ):
                pairs = [(target, value) for target, value in zip(targets, values, strict=True)]
                forms = [self.evaluator.form(value) for _, value in pairs]
                for (target, value), found in zip(pairs, forms, strict=True):
                    self._bind(target, value, found)
            case ast.Assign(targets=targets, value=value):
                found = self.evaluator.form(value)
                limits = self._mask(value)
                for target in targets:
                    self._bind(target, value, found)
                    if isinstance(target, ast.Name):
                        self._limits[target.id] = limits
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, value, self.evaluator.form(value))
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub(), value=value):
                before = self.evaluator.form(ast.Name(id=name))
                self.found.definitions.setdefault(name, []).append(value)
                self.evaluator.values[name] = form.added(before, self.evaluator.form(value))
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                self.found.definitions.setdefault(name, []).append(value)
                self.evaluator.values[name] = form.unknown(name)
            case _:
                pass

    def _bind(self, target: ast.expr, value: ast.expr, found: Form) -> None:
        if isinstance(target, ast.Name):
            self.evaluator.values[target.id] = form.named(found, target.id)
            self.found.definitions.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._bind(each, value, form.unknown("a part"))

    def _calls(self, node: ast.AST, place: Place) -> None:
        for call in calls(node):
            name = language(call)
            if not name:
                continue
            here = Place(call.lineno, place.loops, place.branches, place.statement)
            if name in ("load", "store") or name.startswith(_ATOMICS):
                self._access(call, name, here)
            elif len(self.found.calls) < CALLS_LIMIT:
                self.found.calls.append(Call(name, call, here))

    def _access(self, call: ast.Call, name: str, place: Place) -> None:
        address = keyword(call, "pointer", 0)
        if address is None or len(self.found.accesses) == CALLS_LIMIT:
            return
        mask = keyword(call, "mask", 1 if name == "load" else 2)
        masked = mask is not None and not (isinstance(mask, ast.Constant) and mask.value is None)
        self.found.accesses.append(
            Access(
                kind="load" if name == "load" else "store" if name == "store" else "atomic",
                call=call,
                place=place,
                address=self.evaluator.form(address),
                limits=self._mask(mask) if masked and mask is not None else (),
                masked=masked,
            )
        )

    def _mask(self, node: ast.expr, depth: int = 0) -> tuple[Limit, ...] | None:
        if depth > 20:
            return None
        match node:
            case ast.Compare(left=left, comparators=comparators):
                edges, text = [left, *comparators], self.file.shown(node)
                forms = [self.evaluator.form(each) for each in edges]
                return tuple(Limit(forms[n], forms[n + 1], text) for n in range(len(comparators)))
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
                return _both(self._mask(left, depth + 1), self._mask(right, depth + 1))
            case ast.BoolOp(values=values):
                found: tuple[Limit, ...] | None = ()
                for each in values:
                    found = _both(found, self._mask(each, depth + 1))
                return found
            case ast.Subscript(value=value, slice=ast.Tuple(elts=places)):
                inner = self._mask(value, depth + 1)
                axes = [n for n, each in enumerate(places) if isinstance(each, ast.Slice)]
                if inner is None or len(axes) != 1:
                    return inner
                turned = [(form.along(each.left, axes[0], len(places)), each) for each in inner]
                return tuple(
                    Limit(left, form.along(each.right, axes[0], len(places)), each.text) for left, each in turned
                )
            case ast.Name(id=name):
                return self._limits.get(name)
            case _:
                return None


def _both(left: tuple[Limit, ...] | None, right: tuple[Limit, ...] | None) -> tuple[Limit, ...] | None:
    return None if left is None or right is None else left + right


def _assigned(body: list[ast.stmt]) -> frozenset[str]:
    return frozenset(_targets(body))


def _targets(body: list[ast.stmt]) -> Iterator[str]:
    for node in (each for statement in body for each in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
