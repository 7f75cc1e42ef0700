"""Files that choose between two points by the size of their inputs, where no single point is the best in all cases.

A condition on an argument of the entry, such as ``x.numel() >= 65536``, parts the cases; each part gets the point that
is best there. Only knobs whose values stand in the entry itself can depend on its arguments.
"""

import ast
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

from ..diagnosis.edits import Edit
from ..diagnosis.source.syntax import split_lines
from .knobs import Slot, Value
from .order import LOSS
from .search import WORTH_IT, Search
from .space import Knob, Point
from .variant import edited

NUMEL: Final = ".numel()"
CONDITIONS_LIMIT: Final = 16
WORTH_A_SPLIT: Final = 0.01
"""log(ratio) that two points must be ahead of the best single one: a file of one is simpler."""

Sizes = Mapping[str, Mapping[str, int]]
"""By case, what expressions of the entry's arguments come to, such as `x.numel()`."""


class Condition(NamedTuple):
    """Something that holds in some cases and not in the others."""

    expression: str
    argument: str
    """Of the entry, that it asks."""
    above: frozenset[str]
    """Cases in which it holds."""


class Split(NamedTuple):
    """Two points and what decides between them."""

    condition: Condition
    above: Point
    """Where it holds."""
    below: Point
    value: float
    """log(baseline time / time) over all cases, weighted."""
    text: str
    """Of the file."""


def sizes_of(text: str, entry: str, inputs: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """What expressions of the entry's arguments come to in each case: elements of tensors, and integers.

    Args:
        text: the kernel file.
        entry: its function that is called.
        inputs: by case, the tree of the call's arguments (`sandbox/trees.py`).
    """
    function = _function(text, entry)
    if function is None or function.args.vararg is not None:
        return {}
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    stored = {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    found: dict[str, dict[str, int]] = {}
    for case, tree in inputs.items():
        tensors: dict[str, int] = {}
        numbers: dict[str, int] = {}
        for name, node in _arguments(tree, names):
            if name in stored:
                continue
            if "tensor" in node:
                tensors[f"{name}{NUMEL}"] = math.prod(node["tensor"]["shape"])
            elif type(node.get("value")) is int:
                numbers[name] = node["value"]
        found[case] = tensors | numbers
    return found


def conditions(sizes: Sizes) -> list[Condition]:
    """What parts the cases, each parting once; the first arguments are asked first."""
    found: dict[frozenset[str], Condition] = {}
    if len(sizes) < 2:
        return []
    for expression in next(iter(sizes.values())):
        values = {case: its[expression] for case, its in sizes.items() if expression in its}
        if len(values) < len(sizes):
            continue
        steps = sorted(set(values.values()))
        for low, high in pairwise(steps):
            above = frozenset(case for case, value in values.items() if value >= high)
            if above not in found:
                argument = expression.removesuffix(NUMEL)
                found[above] = Condition(f"{expression} >= {_between(low, high)}", argument, above)
    return list(found.values())[:CONDITIONS_LIMIT]


def splits(search: Search, text: str, entry: str, sizes: Sizes) -> list[Split]:
    """Files of two points that are better than the best of one, the best first.

    Args:
        search: that has ended, without autotuners' lists.
        text: the kernel file.
        entry: its function that is called.
        sizes: of its cases, by `sizes_of`.
    """
    if search.space.listings or set(sizes) != set(search.shares):
        return []
    single = max(
        (choice.value for choice in search.choices() if not loses(search, choice.point, search.shares)),
        default=0.0,
    )
    found: list[Split] = []
    for condition in conditions(sizes):
        rest = search.shares.keys() - condition.above
        above, below = (_best(search, cases) for cases in (condition.above, rest))
        value = _value(search, above, condition.above) + _value(search, below, rest)
        errors = [
            share * search.error(case, above if case in condition.above else below)
            for case, share in search.shares.items()
        ]
        if above == below or value - math.hypot(*errors) <= WORTH_IT or value < max(0.0, single) + WORTH_A_SPLIT:
            continue
        made = _written(search.space.knobs, text, entry, condition, above, below)
        if made is not None:
            found.append(Split(condition, above, below, value, made))
    return sorted(found, key=lambda one: -one.value)


def _between(low: int, high: int) -> int:
    """A round number above `low`, at most `high`: a power of two, where there is one."""
    power = 1 << (max(low, 1).bit_length() + max(high, 1).bit_length() - 1) // 2
    for candidate in (power, power >> 1, power << 1):
        if low < candidate <= high:
            return candidate
    return high


def _best(search: Search, cases: Collection[str]) -> Point:
    """The best point in some cases; the file as it is, where nothing is better."""
    own = search.space.present
    right = {point for point, _ in search.measured_points()} - {own}
    usable = [
        point
        for point in right
        if all(search.value(case, point) is not None for case in cases)
        and not loses(search, point, cases)
        and point not in search.pruned
    ]
    best = max(usable, key=lambda point: _value(search, point, cases), default=own)
    return best if _value(search, best, cases) > 0 else own


def _value(search: Search, point: Point, cases: Collection[str]) -> float:
    return math.fsum(
        share * (search.value(case, point) or 0.0) for case, share in search.shares.items() if case in cases
    )


def loses(search: Search, point: Point, cases: Collection[str]) -> bool:
    """Whether a point is slower in one of some cases than who judges it lets pass."""
    values = [search.value(case, point) for case in cases]
    return any(value is not None and value < -LOSS for value in values)


def _written(
    knobs: Sequence[Knob], text: str, entry: str, condition: Condition, above: Point, below: Point
) -> str | None:
    """The file; None where a value that differs doesn't stand in the entry, or can't be told."""
    function = _function(text, entry)
    lines = [line.encode() for line in split_lines(text)]
    edits: list[Edit] = []
    for knob, high, low in zip(knobs, above, below, strict=True):
        for slot in knob.slots if (high, low) != (knob.present, knob.present) else ():
            if _parameter(slot) == condition.argument:
                # It would be asked after it was set.
                return None
            if high == low:
                said = f"{slot.before}{high!r}{slot.after}"
            elif function is None or not _is_within(function, slot):
                return None
            else:
                both = _either(knob, slot, _segment(lines, slot), condition.expression, high, low)
                if both is None:
                    return None
                said = both
            edits.append(Edit(slot.line, slot.column, slot.end_line, slot.end_column, said))
        if not knob.slots and high != low:
            return None
    return edited(text, edits)


def _either(knob: Knob, slot: Slot, present: str, condition: str, high: Value, low: Value) -> str | None:
    """What stands in a slot for two values."""
    if present:
        # It may be a condition itself.
        as_is = present if present.isalnum() else f"({present})"
        parts = [as_is if value == knob.present else f"{slot.before}{value!r}{slot.after}" for value in (high, low)]
        return f"({parts[0]} if {condition} else {parts[1]})"
    # Something is put in: what is meant where it is not there has to be said.
    parameter = _parameter(slot)
    if parameter is None and len(knob.slots) > 1:
        # Each launch may mean another number.
        return None
    absent = parameter or (None if knob.assumed is None else repr(knob.assumed))
    said = [absent if value is None else repr(value) for value in (high, low)]
    if None in said:
        return None
    return f"{slot.before}({said[0]} if {condition} else {said[1]}){slot.after}"


def _parameter(slot: Slot) -> str | None:
    """The argument of the entry that a statement in front of it sets."""
    name, equals, rest = slot.before.partition(" = ")
    return name if equals and not rest and name.isidentifier() else None


def _segment(lines: Sequence[bytes], slot: Slot) -> str:
    if slot.line != slot.end_line:
        inner = lines[slot.line : slot.end_line - 1]
        parts = [lines[slot.line - 1][slot.column :], *inner, lines[slot.end_line - 1][: slot.end_column]]
        return b"".join(parts).decode(errors="replace")
    return lines[slot.line - 1][slot.column : slot.end_column].decode(errors="replace")


def _function(text: str, entry: str) -> ast.FunctionDef | None:
    """The entry, where it is a plain function of the file."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == entry]
    # The last one counts.
    return found[-1] if found else None


def _is_within(function: ast.FunctionDef, slot: Slot) -> bool:
    """Whether a slot stands in a function's own body, where its arguments are what they were given as."""
    first, last = function.body[0], function.body[-1]
    if not first.lineno <= slot.line <= slot.end_line <= (last.end_lineno or last.lineno):
        return False
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nested = [node for each in function.body for node in ast.walk(each) if isinstance(node, inner)]
    return not any(node.lineno <= slot.line <= (node.end_lineno or node.lineno) for node in nested)


def _arguments(tree: Any, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments of a call by their names."""
    fields = cast(dict[str, Any], tree)
    given = fields.get("tuple", fields.get("list"))
    if isinstance(given, list):
        yield from zip(names, cast(list[dict[str, Any]], given), strict=False)
    elif isinstance(fields.get("dict"), list):
        yield from ((name, node) for name, node in cast(list[Any], fields["dict"]) if name in names)
