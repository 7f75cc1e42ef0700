"""Which arguments of a host function its kernels write to, as far as the source tells. Nothing is executed."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .facts import Facts, Function, dotted_name, parameters_of, root_name
from .returned import own

STORES: Final = (
    "store",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "atomic_cas",
    "atomic_xchg",
    "atomic_and",
    "atomic_or",
)
VIEWS: Final = frozenset(
    (
        "view", "reshape", "transpose", "permute", "contiguous", "squeeze", "unsqueeze", "flatten", "t", "detach",
        "data", "T", "mT", "expand", "narrow", "select", "movedim", "swapaxes", "as_strided", "view_as", "reshape_as",
        "unflatten",
    )
)  # fmt: skip
"""Methods and attributes of a tensor that mostly lie in the same memory."""
SAME: Final = frozenset(("triton.reinterpret", "triton.TensorWrapper", "torch.as_strided"))
"""Functions whose result lies in the memory of their first argument."""
DEPTH: Final = 6
"""Calls within calls that are followed."""

Aliases = dict[str, set[str]]
"""By local name, the parameters that it may stand for."""


@dataclass(slots=True)
class Writes:
    """What a function writes to, and what it returns."""

    written: set[str] = field(default_factory=set[str])
    """Parameters."""
    fresh: bool = False
    """Whether it returns something that is none of them."""


def writes_of(
    function: Function,
    facts: Facts,
    passed: set[str] | None = None,
    depth: int = 0,
    fixed: Mapping[str, object] | None = None,
) -> Writes:
    """Follow the function's arguments into kernels, other functions and torch's own writes.

    Args:
        function: the host function.
        facts: of its module.
        passed: the parameters that are given; the others have their defaults. None: all are given.
        depth: of the call.
        fixed: parameters whose value is known.
    """
    names = parameters_of(function)
    walk = _Walk(facts, {**_constants(function, passed), **(fixed or {})}, depth)
    aliases: Aliases = {name: {name} for name in names}
    walk.block(function.body, aliases)
    return walk.found


def unreturned(function: Function, facts: Facts) -> list[str]:
    """Local tensors of a function that returns nothing which its kernels write to, in their order; none where some
    are made only in a branch."""
    names = parameters_of(function)
    walk = _Walk(facts, {}, 0, with_locals=True)
    walk.block(function.body, {name: {name} for name in names})
    at_top = [
        target.id
        for node in function.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    found = walk.found.written - set(names)
    if any(isinstance(node, ast.Return) for node in own(function)) or not found <= set(at_top):
        return []
    return [name for name in dict.fromkeys(at_top) if name in found]


def kernel_writes(kernel: Function, facts: Facts, depth: int = 0) -> set[str]:
    """Parameters of a kernel through which it stores."""
    spec = kernel.args
    constant = {
        each.arg
        for each in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
        if each.annotation is not None and "constexpr" in ast.unparse(each.annotation)
    }
    holds: Aliases = {name: {name} for name in parameters_of(kernel) if name not in constant}
    # Twice: pointers are advanced in loops.
    for _ in range(2):
        for node in ast.walk(kernel):
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                held = _held(node.value, holds)
                for target in targets:
                    for name in [each for each in ast.walk(target) if isinstance(each, ast.Name)]:
                        holds[name.id] = holds.get(name.id, set()) | held
    found = set[str]()
    for call in [node for node in ast.walk(kernel) if isinstance(node, ast.Call)]:
        called = ast.unparse(call.func).rpartition(".")[2]
        if called in STORES and call.args:
            found |= _held(call.args[0], holds)
        elif called in facts.kernels and called in facts.functions and depth < DEPTH:
            inner = facts.functions[called]
            below = kernel_writes(inner, facts, depth + 1)
            for name, value in _bound(call, parameters_of(inner)).items():
                if name in below:
                    found |= _held(value, holds)
    return found


def _held(node: ast.expr, holds: Aliases) -> set[str]:
    """Parameters that an address may be made of; what is loaded from memory is none."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        if called not in ("make_block_ptr", "advance", "to", "cast", "multiple_of", "max_contiguous", "where"):
            return set()
        values = [*node.args[:1], *[each.value for each in node.keywords if each.arg == "base"]]
        if isinstance(node.func, ast.Attribute) and called == "to":
            values = [node.func.value]
        return {name for value in values for name in _held(value, holds)}
    if isinstance(node, ast.Name):
        return holds.get(node.id, set())
    if isinstance(node, ast.Compare) or (isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Add | ast.Sub)):
        # A pointer is never multiplied: that is a stride or a size of a block.
        return set()
    if isinstance(node, ast.Subscript):
        return _held(node.value, holds)
    return {name for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) for name in _held(child, holds)}


def _constants(function: Function, passed: set[str] | None) -> dict[str, object]:
    """Parameters whose value is known: those that nobody gives."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    pairs = list(zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True))
    pairs += [(each, default) for each, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default]
    return {
        each.arg: default.value
        for each, default in pairs
        if passed is not None and each.arg not in passed and isinstance(default, ast.Constant)
    }


class _Walk:
    """Goes through the statements of a host function."""

    def __init__(self, facts: Facts, constants: dict[str, object], depth: int, *, with_locals: bool = False) -> None:
        self.found = Writes()
        self._with_locals = with_locals
        self._facts, self._constants, self._depth = facts, constants, depth

    def block(self, body: list[ast.stmt], aliases: Aliases) -> None:
        """In their order, so that a name that is assigned anew stands for something else."""
        for statement in body:
            match statement:
                case ast.If():
                    self._branch(statement, aliases)
                case ast.For() | ast.While() | ast.With() | ast.Try():
                    for part in ("body", "orelse", "finalbody"):
                        self.block(getattr(statement, part, []), aliases)
                case ast.FunctionDef() | ast.ClassDef():
                    pass
                case _:
                    self._calls(statement, aliases)
                    self._simple(statement, aliases)

    def _branch(self, statement: ast.If, aliases: Aliases) -> None:
        self._calls(statement.test, aliases)
        known = self._known(statement.test)
        if known is not None:
            self.block(statement.body if known else statement.orelse, aliases)
            return
        other = {name: set(held) for name, held in aliases.items()}
        self.block(statement.body, aliases)
        self.block(statement.orelse, other)
        for name, held in other.items():
            aliases[name] = aliases.get(name, set()) | held

    def _known(self, test: ast.expr) -> bool | None:
        """The outcome of a test where it is about parameters that nobody gives, or about whether one is given."""
        match test:
            case ast.Name(id=name) if name in self._constants:
                return bool(self._constants[name])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                known = self._known(operand)
                return None if known is None else not known
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as operator], comparators=[other]):
                if not (isinstance(other, ast.Constant) and other.value is None):
                    return None
                absent = self._constants[name] is None if name in self._constants else False
                return absent == isinstance(operator, ast.Is)
            case _:
                return None

    def _simple(self, statement: ast.stmt, aliases: Aliases) -> None:
        match statement:
            case ast.Assign():
                for target in statement.targets:
                    self._assign(target, statement.value, aliases)
            case ast.AnnAssign(value=ast.expr() as value):
                self._assign(statement.target, value, aliases)
            case ast.AugAssign():
                # `x += 1` is in place for a tensor; for a number it is no output.
                if isinstance(statement.target, ast.Subscript):
                    self.found.written |= self._stands_for(statement.target.value, aliases)
            case ast.Return(value=ast.expr() as value):
                for part in value.elts if isinstance(value, ast.Tuple) else [value]:
                    held = self._stands_for(part, aliases)
                    self.found.fresh |= not held and not isinstance(part, ast.Constant)
            case _:
                pass

    def _assign(self, target: ast.expr, value: ast.expr, aliases: Aliases) -> None:
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=parts) if len(targets) == len(parts):
                held = [self._stands_for(part, aliases) for part in parts]
                for one, of in zip(targets, held, strict=True):
                    if isinstance(one, ast.Name):
                        aliases[one.id] = of
            case ast.Name(id=name), _:
                held = self._stands_for(value, aliases)
                aliases[name] = {name} if self._with_locals and not held else held
            case ast.Tuple(elts=targets), _:
                for one in [each for each in targets if isinstance(each, ast.Name)]:
                    aliases[one.id] = set()
            case ast.Subscript(value=whole), _:
                self.found.written |= self._stands_for(whole, aliases)
            case _:
                pass

    def _stands_for(self, node: ast.expr, aliases: Aliases) -> set[str]:
        match node:
            case ast.Name(id=name):
                return aliases.get(name, set())
            case ast.IfExp():
                known = self._known(node.test)
                if known is not None:
                    return self._stands_for(node.body if known else node.orelse, aliases)
                return self._stands_for(node.body, aliases) | self._stands_for(node.orelse, aliases)
            case ast.Attribute(value=value, attr=attribute) if attribute in VIEWS:
                return self._stands_for(value, aliases)
            case ast.Call(func=function, args=[value, *_]) if dotted_name(function) in SAME:
                return self._stands_for(value, aliases)
            case ast.Call(func=ast.Attribute(value=value, attr=attribute)) if attribute in VIEWS:
                return self._stands_for(value, aliases)
            case ast.Call(func=ast.Attribute(value=value, attr=attribute)) if attribute.endswith("_"):
                return self._stands_for(value, aliases)
            case ast.Subscript(value=value):
                return self._stands_for(value, aliases)
            case _:
                return set()

    def _calls(self, node: ast.AST, aliases: Aliases) -> None:
        for call in [found for found in ast.walk(node) if isinstance(found, ast.Call)]:
            function = call.func
            name = root_name(function)
            if isinstance(function, ast.Subscript) and name in self._facts.kernels:
                self._into(call, name, aliases)
            elif isinstance(function, ast.Name) and name in self._facts.functions and self._depth < DEPTH:
                inner = self._facts.functions[function.id]
                bound = _bound(call, parameters_of(inner))
                below = writes_of(inner, self._facts, set(bound), self._depth + 1).written
                self._take(bound, below, aliases)
            elif isinstance(function, ast.Attribute) and function.attr.endswith("_") and function.attr[:1] != "_":
                self.found.written |= self._stands_for(function.value, aliases)
            for out in [each.value for each in call.keywords if each.arg == "out"]:
                self.found.written |= self._stands_for(out, aliases)

    def _into(self, call: ast.Call, kernel: str, aliases: Aliases) -> None:
        dotted = self._facts.aliases.get(kernel, kernel)
        inner = self._facts.functions.get(dotted)
        if inner is not None:
            self._take(_bound(call, parameters_of(inner)), kernel_writes(inner, self._facts), aliases)

    def _take(self, bound: dict[str, ast.expr], below: set[str], aliases: Aliases) -> None:
        for name, value in bound.items():
            if name in below:
                self.found.written |= self._stands_for(value, aliases)


def _bound(call: ast.Call, names: list[str]) -> dict[str, ast.expr]:
    """The arguments of a call by parameter; what a starred one holds is not known."""
    found: dict[str, ast.expr] = {}
    for name, value in zip(names, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        found[name] = value
    return found | {each.arg: each.value for each in call.keywords if each.arg is not None}
