"""Hidden cases: read from a file that only the server is given, or derived from the visible shapes."""

import ast
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from ...sandbox.errors import Stopped, rejected
from ...sandbox.source import Source
from ...sandbox.task import Case, Task
from .record import HiddenCases

NAME: Final = "HIDDEN_CASES"
DERIVED_LIMIT: Final = 4
DERIVED_LIMIT_WITHOUT_GPU: Final = 2
"""The interpreter takes seconds a case."""
GIVEN_LIMIT: Final = 64
SIZE_FROM: Final = 16
"""Integers below are counts of heads, kernel widths, and the like."""
SEED: Final = "seed"
"""A parameter of this name decides about contents and is no size."""
INTERPRETED_SHARE: Final = 4
"""By so much sizes are divided for the interpreter."""
EVEN: Final = 16
"""Sizes that are multiples of it stay so when they grow: what is ragged is another case."""
_FORM: Final = f"The file holds nothing but {NAME} = {{'ragged': {{'rows': 1823, 'cols': 781}}}}, of plain values."
_OPERATORS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.LShift: lambda left, right: left << right,
    ast.Pow: lambda left, right: left**right,
}
_BITS_LIMIT: Final = 62
_CASES: Final = TypeAdapter(dict[str, dict[str, JsonValue]])


def read(source: Source) -> HiddenCases:
    """The cases of a file, which is parsed and never run.

    Raises:
        Stopped: ``rejected``. Nothing of what the file holds is told but the line.
    """
    try:
        body = ast.parse(source.text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise _unusable(source, f"it is no Python source{line}") from None
    found: ast.expr | None = None
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if (value := _assigned(statement)) is None or found is not None:
            raise _unusable(source, f"line {statement.lineno} is not the one assignment of {NAME}")
        found = value
    if found is None:
        raise _unusable(source, f"it does not define {NAME}")
    try:
        cases = _CASES.validate_python(_plain(ast.literal_eval(_Folded().visit(found))))
    except (ValueError, TypeError, RecursionError, MemoryError, ArithmeticError, ValidationError):
        raise _unusable(source, f"{NAME} is no dict of dicts of plain values (numbers, texts, lists)") from None
    if not 1 <= len(cases) <= GIVEN_LIMIT:
        raise _unusable(source, f"{NAME} has {len(cases)} cases; 1 to {GIVEN_LIMIT} are allowed")
    return cases


def of_task(spec: Task) -> HiddenCases:
    """A task's own hidden cases."""
    return {name: _fields(case) for name, case in spec.hidden_cases.items()}


def derived(cases: Mapping[str, Case], seed: str, *, on_gpu: bool) -> HiddenCases:
    """Neighbouring shapes of the visible cases: ragged, larger and turned ones, one size changed at a time.

    Args:
        cases: the visible ones.
        seed: decides the sizes; the same seed gives the same cases.
        on_gpu: whether they are run there; the interpreter takes smaller neighbours of small cases.
    """
    random_ = random.Random(seed)
    bases = [case for case in cases.values() if case.small != on_gpu] or list(cases.values())
    turn = random_.randrange(1 << 16)
    series = [_neighbours(case, turn + place, random_, on_gpu=on_gpu) for place, case in enumerate(bases)]
    known = [case.parameters for case in cases.values()]
    found: HiddenCases = {}
    limit = DERIVED_LIMIT if on_gpu else DERIVED_LIMIT_WITHOUT_GPU
    while series and len(found) < limit:
        # In turn, so that each case has neighbours.
        one = series.pop(0)
        if (parameters := next(one, None)) is None:
            continue
        series.append(one)
        if parameters not in known:
            known.append(parameters)
            small = {} if on_gpu else {"small": True}
            name = f"derived-{len(found) + 1}"
            found[f"_{name}" if name in cases else name] = {**parameters, **small}
    return found


def sizes_of(case: Case) -> dict[str, int]:
    """The parameters of a case that say how large its inputs are, as far as that can be seen."""
    sizes = {name: _size(value) for name, value in case.parameters.items() if name != SEED}
    return {name: size for name, size in sizes.items() if size is not None}


def judged(task: Source, hidden: HiddenCases, *, own: bool) -> Source:
    """A task with hidden cases in the place of the visible ones.

    Args:
        task: the task.
        hidden: the cases.
        own: whether they are the task's: then their values are taken from it, whatever JSON makes of them.
    """
    if own:
        chosen = f"{{name: {NAME}[name] for name in {list(hidden)!r}}}"
        return task._replace(text=f"{task.text}\n\nCASES = {chosen}\n{NAME} = {{}}\n")
    return task._replace(text=f"{task.text}\n\nCASES = {hidden!r}\n{NAME} = {{}}\n")


def beside(task: Source, hidden: HiddenCases, *, own: bool) -> Source:
    """A task with hidden cases beside the visible ones; arguments as of `judged`."""
    if own or not hidden:
        return task
    return task._replace(text=f"{task.text}\n\n{NAME} = {hidden!r}\n")


def _unusable(source: Source, why: str) -> Stopped:
    return rejected("source", f"the file of hidden cases can't be used: {why}", file=source.shown_as, fix=_FORM)


def _assigned(statement: ast.stmt) -> ast.expr | None:
    """The value that a statement gives to HIDDEN_CASES."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == NAME:
            return value
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if name == NAME:
            return value
        case _:
            return None


class _Folded(ast.NodeTransformer):
    """Integers in place of arithmetic with them, such as ``1 << 24``, within 62 bits."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.BinOp(left=ast.Constant(value=int(left)), right=ast.Constant(value=int(right))):
                value = _value(left, node.op, right)
                return node if value is None else ast.Constant(value)
            case _:
                return node


def _value(left: int, op: ast.operator, right: int) -> int | None:
    """None for what is not computed here."""
    if type(op) not in _OPERATORS or left < 0 or right < 0 or (right == 0 and isinstance(op, ast.FloorDiv)):
        return None
    if isinstance(op, ast.LShift | ast.Pow) and max(left, 2).bit_length() * right > 2 * _BITS_LIMIT:
        return None
    value = _OPERATORS[type(op)](left, right)
    return value if 0 <= value < 1 << _BITS_LIMIT else None


def _plain(value: object) -> object:
    """Tuples become lists: the cases are kept as JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast(dict[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(Sequence[object], value)]
    return value


def _fields(case: Case) -> dict[str, JsonValue]:
    """A case as a task writes it; its weight says nothing where nothing is timed."""
    return {**case.parameters, **({"small": True} if case.small else {})}


def _neighbours(case: Case, turn: int, random_: random.Random, *, on_gpu: bool) -> Iterator[dict[str, JsonValue]]:
    sizes = sizes_of(case)
    if not on_gpu:
        # Of a case that takes the interpreter long enough.
        sizes = {name: max(size // INTERPRETED_SHARE, SIZE_FROM) for name, size in sizes.items()}
    names = list(sizes)
    # Another size first in each case: together they are to vary all.
    start = turn % len(names) if names else 0
    names = names[start:] + names[:start]

    def ragged(name: str) -> dict[str, JsonValue]:
        return {**case.parameters, name: _ragged(sizes[name], random_)}

    def larger(name: str) -> dict[str, JsonValue]:
        return {**case.parameters, name: _larger(sizes[name], random_)}

    for number, name in enumerate(names):
        yield ragged(name)
        if number == 0:
            yield larger(names[1 % len(names)])
    if len(names) > 1:
        one, other = names[:2]
        yield {**case.parameters, one: sizes[other], other: sizes[one]}
        yield larger(names[0])


def _size(value: JsonValue) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < SIZE_FROM:
        return None
    return value


def _ragged(size: int, random_: random.Random) -> int:
    """Some seventh less, and odd: a multiple of no block."""
    smaller = size - size // 7 - random_.randrange(size // 16 + 1)
    return smaller - 1 + smaller % 2


def _larger(size: int, random_: random.Random) -> int:
    """An eighth to a half more."""
    larger = size + size * random_.randrange(1, 5) // 8
    return larger if size % EVEN else -(-larger // EVEN) * EVEN
