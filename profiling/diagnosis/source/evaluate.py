"""Expressions of a kernel as forms: what an offset or a limit consists of, by the launch's own arguments."""

import ast
from collections.abc import Callable
from typing import Final

from ....sandbox.facts import CapturedLaunch
from . import form
from .form import Form
from .syntax import KernelFile, KernelFunction, keyword, language

DEPTH_LIMIT: Final = 60

_SAME: Final = frozenset({"to", "cast", "broadcast_to", "view", "reshape", "max_contiguous", "max_constancy", "ravel"})


class Evaluator:
    """Evaluates expressions where some names have a value."""

    def __init__(self, file: KernelFile, kernel: KernelFunction, launch: CapturedLaunch) -> None:
        self._file, self._kernel, self._launch = file, kernel, launch
        self.values: dict[str, Form] = {}
        """Of local names, at the statement that is looked at."""

    def constant(self, node: ast.expr) -> bool | int | str | None:
        """A value that is known when the kernel is compiled; None for others, and for None."""
        match node:
            case ast.Constant(value=bool() | int() | str() as value):
                return value
            case ast.Name(id=name) if name not in self.values:
                found = self._launch.constexprs.get(name, self._file.numbers.get(name))
                return found if isinstance(found, bool | int | str) else None
            case _:
                return None

    def truth(self, test: ast.expr, depth: int = 0) -> bool | None:
        """Whether a condition of constants holds; None where it depends on the run."""
        if depth > DEPTH_LIMIT:
            return None
        match test:
            case ast.BoolOp(op=op, values=values):
                parts = [self.truth(each, depth + 1) for each in values]
                decisive = isinstance(op, ast.Or)
                if decisive in parts:
                    return decisive
                return None if None in parts else not decisive
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.truth(operand, depth + 1)
                return None if inner is None else not inner
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compare(left, op, right)
            case ast.Name() | ast.Constant():
                value = self.constant(test)
                return None if value is None and not self._is_none(test) else bool(value)
            case _:
                return None

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
        a, b = self.constant(left), self.constant(right)
        a_known, b_known = a is not None or self._is_none(left), b is not None or self._is_none(right)
        if not (a_known and b_known):
            return None
        match op:
            case ast.Eq() | ast.Is():
                return a == b
            case ast.NotEq() | ast.IsNot():
                return a != b
            case _ if isinstance(a, int) and isinstance(b, int):
                orders: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
                    ast.Lt: int.__lt__, ast.LtE: int.__le__, ast.Gt: int.__gt__, ast.GtE: int.__ge__,
                }  # fmt: skip
                order = orders.get(type(op))
                return None if order is None else order(a, b)
            case _:
                return None

    def _is_none(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=None):
                return True
            case ast.Name(id=name):
                return (
                    name not in self.values
                    and name in self._launch.constexprs
                    and (self._launch.constexprs[name] is None)
                )
            case _:
                return False

    def form(self, node: ast.expr, depth: int = 0) -> Form:
        """What an expression of integers or pointers consists of."""
        if depth > DEPTH_LIMIT:
            return form.unknown("a deep expression")
        inner = depth + 1
        match node:
            case ast.Constant(value=bool()):
                return form.unknown("a truth")
            case ast.Constant(value=int(number)) if abs(number) < 1 << 62:
                return form.constant(number)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return form.multiplied(form.constant(-1), self.form(operand, inner))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return form.added(self.form(left, inner), self.form(right, inner))
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return form.added(self.form(left, inner), form.multiplied(form.constant(-1), self.form(right, inner)))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return form.multiplied(self.form(left, inner), self.form(right, inner))
            case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as op, right=right):
                return self._divided(
                    self.form(left, inner), self.form(right, inner), isinstance(op, ast.Mod), self._file.shown(node)
                )
            case ast.Subscript(value=value, slice=ast.Tuple(elts=places)):
                axes = [n for n, place in enumerate(places) if isinstance(place, ast.Slice)]
                found = self.form(value, inner)
                return form.along(found, axes[0], len(places)) if len(axes) == 1 else found
            case ast.Call():
                return self._call(node, inner)
            case _:
                return form.unknown(type(node).__name__)

    def _name(self, name: str) -> Form:
        if name in self.values:
            return self.values[name]
        constant = self._launch.constexprs.get(name, self._file.numbers.get(name))
        if isinstance(constant, int) and not isinstance(constant, bool) and abs(constant) < 1 << 62:
            return form.constant(constant)
        if name not in self._kernel.parameters:
            return form.unknown(name)
        divisor = 16 if name in self._launch.divisible_by_16 else 1
        pointer = self._launch.signature.get(name, "").startswith("*")
        return form.atom("pointer" if pointer else "argument", name, divisor, names=frozenset({name}))

    def _divided(self, left: Form, right: Form, remainder: bool, text: str) -> Form:
        a, b = form.number(left), form.number(right)
        if a is not None and b:
            return form.constant(a % b if remainder else a // b)
        return form.atom(
            "remainder" if remainder else "quotient",
            text if len(left) + len(right) < 8 else "a division",
            min(form.divisor_of_all(left), form.divisor_of_all(right)) if remainder else 1,
            names=form.names(right),
            has_lanes=form.has_lanes(left),
            number=form.divisor_of_all(right),
            axis=next((lanes.axis for term in left if (lanes := form.lanes_of(term)) is not None), None),
        )

    def _call(self, node: ast.Call, depth: int) -> Form:
        name = language(node)
        first = node.args[0] if node.args else None
        if isinstance(node.func, ast.Attribute) and not name and node.func.attr in _SAME:
            return self.form(node.func.value, depth)
        match name:
            case "arange":
                start = form.number(self.form(first, depth)) if first is not None else None
                lanes = form.atom("lanes", "arange")
                return lanes if start in (0, None) else form.added(form.constant(start), lanes)
            case "program_id" | "num_programs":
                return form.atom("program", f"{name}()")
            case "load":
                lanes = first is not None and form.has_lanes(self.form(first, depth))
                return form.atom("loaded", "a loaded value", has_lanes=lanes, line=node.lineno)
            case "multiple_of" if first is not None:
                return self._hinted(self.form(first, depth), keyword(node, "values", 1))
            case "expand_dims" if first is not None:
                place = keyword(node, "axis", 1)
                axis = self.constant(place) if place is not None else None
                found = self.form(first, depth)
                return form.along(found, 1 - axis, 2) if isinstance(axis, int) and axis in (0, 1) else found
            case _ if name in _SAME and first is not None:
                return self.form(first, depth)
            case _:
                inner = [self.form(each, depth) for each in node.args[:4]]
                every = tuple(term for found in inner for term in found)
                return form.unknown(f"{name or 'a function'}()", form.names(every), has_lanes=form.has_lanes(every))

    def _hinted(self, found: Form, values: ast.expr | None) -> Form:
        """`tl.multiple_of` tells something of an expression; of a bare argument the compiler forgets it."""
        if len(found) == 1 and len(found[0]) == 1 and found[0][0].kind in ("argument", "pointer"):
            return found
        whole = values.elts if isinstance(values, ast.List | ast.Tuple) else [values] if values is not None else []
        numbers = [form.number(self.form(each)) for each in whole]
        least = min((number for number in numbers if number), default=1)
        lanes = tuple(term for term in found if form.lanes_of(term) is not None)
        return form.added(form.atom("hinted", "tl.multiple_of", least & -least if least > 0 else 1), lanes)
