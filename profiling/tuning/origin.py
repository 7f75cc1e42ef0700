"""Where the host makes the value of a launch's argument, and where another can take its place."""

import ast
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from ..diagnosis.source.host import Launch
from ..diagnosis.source.syntax import HostFunction, KernelFile, KernelFunction, calls, dotted, keyword

DEPTH_LIMIT: Final = 4
"""Names and functions through which a value is followed."""
CALLERS_LIMIT: Final = 8
"""Calls of a function that are looked at: a number in so many places is no choice of one."""
SHOWN_LIMIT: Final = 2000
"""Characters of an expression whose repetitions are looked for."""
LARGEST: Final = 1 << 40
"""Of numbers worked out from others."""
_SHAPED: Final = ("arange", "zeros", "full")
_BLOCKS: Final = {"make_block_ptr": 4, "make_tensor_descriptor": 3}
"""Places of `block_shape` (Triton 3.7.1, `language/core.py`): their `shape` is that of the whole tensor."""


class Slot(NamedTuple):
    """A place in the file where a knob's value stands, or could stand."""

    line: int
    column: int
    """In bytes of UTF-8."""
    end_line: int
    end_column: int
    before: str = ""
    """Written before the value, where more than a value takes the place."""
    after: str = ""
    """Written after it."""


class Origin(NamedTuple):
    """What gives an argument its value."""

    slots: tuple[Slot, ...]
    """A number in all of them gives it another."""
    present: int | bool | None
    """The number that stands there; None where the value is computed, or handed to a function that nobody here calls.
    """
    is_limit: bool = False
    """Whether the number is the most that the value may be, as in `min(64, triton.next_power_of_2(n))`."""


def slot_of(node: ast.expr) -> Slot:
    return Slot(node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)


def origin(file: KernelFile, launch: Launch, value: ast.expr, present: int | None) -> Origin | None:
    """What gives an argument of a launch its value.

    Args:
        file: the kernel file.
        launch: one of its launches.
        value: the argument.
        present: what the argument was in calls of the entry; None: unknown.

    Returns:
        None where no number could take its place.
    """
    if isinstance(value, ast.Name):
        return _of_name(file, launch.function, value.id, present, DEPTH_LIMIT)
    if isinstance(value, ast.Attribute) and _is_its_own(launch.function, value):
        return None
    found = _of_values(file, launch.function, [value], present, DEPTH_LIMIT)
    if found is None or found.slots != (slot_of(value),) or found.present is not None:
        return found
    # The grid, say, may be computed from the same expression.
    alike = is_alike(value)
    return Origin(
        tuple(slot_of(each) for each in launch.function.nodes if isinstance(each, ast.expr) and alike(each)), None
    )


def is_alike(value: ast.expr) -> Callable[[ast.AST], bool]:
    """What tells whether a node is an expression over again; of a long one it knows only the node itself."""
    shown = ast.dump(value)
    if len(shown) > SHOWN_LIMIT:
        return lambda node: node is value
    return lambda node: type(node) is type(value) and ast.dump(node) == shown


def constant(node: ast.expr | None) -> int | bool | None:
    """A boolean, or an integer, also as a product or the like of several."""
    match node:
        case ast.Constant(value=bool() | int() as value):
            return value
        case ast.Call(args=[one], keywords=[]) if dotted(node.func).endswith("constexpr"):
            return constant(one)
        case ast.BinOp(left=left, op=op, right=right):
            one, other = constant(left), constant(right)
            if one is None or other is None:
                return None
            match op:
                case ast.Mult():
                    found = one * other
                case ast.Add():
                    found = one + other
                case ast.Sub():
                    found = one - other
                case ast.LShift() if 0 <= other < LARGEST.bit_length():
                    found = one << other
                case ast.Pow() if 0 <= other < LARGEST.bit_length() and abs(one) <= 2:
                    found = one**other
                case _:
                    return None
            return found if abs(found) <= LARGEST else None
        case _:
            return None


def written(node: ast.expr) -> ast.expr:
    """Where a constant's number stands."""
    if isinstance(node, ast.Call) and dotted(node.func).endswith("constexpr") and len(node.args) == 1:
        return written(node.args[0])
    return node


def _of_name(file: KernelFile, function: HostFunction, name: str, present: int | None, depth: int) -> Origin | None:
    local = function.assigned(name)
    if name in function.parameters:
        return None if local else _of_parameter(file, function, name, present, depth)
    if _is_changed(function, name):
        return None
    local = [each for each in local if not _mentions(each, name)]
    if not local and name in file.assigned:
        return _of_values(file, function, [file.assigned[name]], present, depth)
    return _of_values(file, function, local, present, depth)


def _of_values(
    file: KernelFile, function: HostFunction, nodes: list[ast.expr], present: int | None, depth: int
) -> Origin | None:
    """What is behind the expressions that are a name's value, one or the other."""
    if not nodes or depth <= 0 or not all(map(_stands_there, nodes)):
        return None
    if len(nodes) > 1:
        return Origin(tuple(map(slot_of, nodes)), None)
    (node,) = nodes
    number = constant(node)
    if number is not None:
        return Origin((slot_of(written(node)),), number)
    match node:
        case ast.Name(id=name):
            return _of_name(file, function, name, present, depth - 1)
        case ast.Call(func=ast.Name(id="min"), args=[_, _], keywords=[]):
            for each in node.args:
                found = _of_values(file, function, [each], present, depth - 1)
                if found is not None and found.present is not None:
                    return found._replace(is_limit=True)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            entries = _entries(file, function, node.value, key)
            if entries:
                numbers = set(map(constant, entries))
                return Origin(tuple(map(slot_of, entries)), numbers.pop() if len(numbers) == 1 else None)
        case _:
            pass
    return None if _is_counted(node) else Origin((slot_of(node),), None)


def _is_counted(node: ast.expr) -> bool:
    """Whether it is a size of the inputs, or how often something fits into one: no length of the host's choice."""
    match node:
        case ast.Subscript() | ast.BinOp(op=ast.FloorDiv() | ast.Div()):
            return True
        case ast.Call(func=ast.Attribute(attr="cdiv" | "size" | "numel" | "stride" | "dim" | "item")):
            return True
        case ast.Call(func=ast.Name(id="cdiv" | "len" | "int")):
            return True
        case _:
            return False


def _is_its_own(function: HostFunction, node: ast.expr) -> bool:
    """Whether it belongs to an argument or a local, as `ctx.BLOCK` does, and not to a class or module."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return not isinstance(node, ast.Name) or node.id in function.parameters or bool(function.assigned(node.id))


def _of_parameter(
    file: KernelFile, function: HostFunction, name: str, present: int | None, depth: int
) -> Origin | None:
    """What a function is called with, or its default; of one that nobody here calls a statement in front of it."""
    found: list[Origin] = []
    default = _default(function, name)
    callers = list(islice(_callers(file, function), CALLERS_LIMIT + 1))
    if len(callers) > CALLERS_LIMIT:
        return None
    for caller, call in callers:
        given = _given(function, call, name)
        if given is None:
            given, caller = default, function
        its = None if given is None else _of_values(file, caller, [given], present, depth - 1)
        if its is None or its.present is None or its.is_limit:
            return None
        found.append(its)
    if found:
        numbers = {each.present for each in found}
        slots = dict.fromkeys(slot for each in found for slot in each.slots)
        return Origin(tuple(slots), numbers.pop() if len(numbers) == 1 else None)
    # `apply` hands over all that an autograd function takes.
    is_applied = "ctx" in function.parameters
    if default is not None and not is_applied and constant(default) is not None and constant(default) == present:
        return Origin((slot_of(default),), constant(default))
    first = next((each for each in function.node.body if not _is_text(each)), None)
    if first is None or isinstance(first, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return None
    indent = file.lines[first.lineno - 1].encode()[: first.col_offset].decode(errors="replace")
    if indent.strip():
        return None
    line, column = first.lineno, first.col_offset
    return Origin((Slot(line, column, line, column, f"{name} = ", f"\n{indent}"),), None)


def _callers(file: KernelFile, function: HostFunction) -> Iterator[tuple[HostFunction, ast.Call]]:
    """Calls of a function by its name, in functions that are no tests."""
    for name, caller in file.host.items():
        for call in caller.calls if not name.startswith("test") else ():
            called = dotted(call.func)
            if called == function.node.name or (
                called.startswith(("self.", "cls.")) and _method(call) == function.node.name
            ):
                yield caller, call


def _method(call: ast.Call) -> str:
    return dotted(call.func).rpartition(".")[2]


def _given(function: HostFunction, call: ast.Call, name: str) -> ast.expr | None:
    arguments = function.node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    if isinstance(call.func, ast.Attribute) and names:
        names = names[1:]
    return keyword(call, name, names.index(name) if name in names else None)


def _default(function: HostFunction, name: str) -> ast.expr | None:
    arguments = function.node.args
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(named), reversed(arguments.defaults), strict=False)]
    pairs += [(each, value) for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    return next((value for each, value in pairs if each.arg == name), None)


def _entries(file: KernelFile, function: HostFunction, node: ast.expr, key: str) -> list[ast.expr]:
    """Numbers that a table has for a key, in all of its rows: `{torch.float16: {"BLOCK": 64}, …}`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        local = function.assigned(node.id)
        found = local[0] if len(local) == 1 else None if local else file.assigned.get(node.id)
        if found is None:
            return []
        node = found
    entries = [
        value
        for each in ast.walk(node)
        if isinstance(node, ast.Dict) and isinstance(each, ast.Dict)
        for its, value in zip(each.keys, each.values, strict=True)
        if isinstance(its, ast.Constant) and its.value == key
    ]
    return entries if all(constant(each) is not None for each in entries) else []


def _stands_there(node: ast.expr) -> bool:
    """Whether it is in the file: what `a, b = settings(n)` gives to `a` is not."""
    return not isinstance(node, ast.Subscript) or hasattr(node.slice, "lineno")


def _is_changed(function: HostFunction, name: str) -> bool:
    """Whether `+=` or its like, or a loop, gives it other values."""
    for node in function.nodes:
        target = node.target if isinstance(node, ast.AugAssign | ast.For) else None
        if target is not None and _mentions(target, name):
            return True
    return False


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


# What a kernel does with a constant


def is_shape(function: KernelFunction, parameter: str) -> bool:
    """Whether a constant is a tile's length by what the kernel does with it: it stands in `tl.arange` or in a shape."""
    for call in calls(function.node):
        name = dotted(call.func).rpartition(".")[2]
        shape = keyword(call, "block_shape", _BLOCKS[name]) if name in _BLOCKS else None
        if _mentions(shape or call, parameter) and (name in _SHAPED or shape is not None):
            return True
    return False


def multiplies(file: KernelFile, function: KernelFunction) -> bool:
    """Whether it multiplies matrices, itself or in a function that it calls."""
    called = [dotted(call.func) for call in calls(function.node)]
    inner = [file.kernels[name] for name in called if name in file.kernels]
    names = [*called, *(dotted(call.func) for each in inner for call in calls(each.node))]
    return any(name.rpartition(".")[2] in ("dot", "dot_scaled") for name in names)


def is_stepped(function: KernelFunction, parameter: str) -> bool:
    """Whether a loop of the kernel goes on by a length, or counts how often it fits."""
    for node in ast.walk(function.node):
        match node:
            case ast.Call(func=ast.Name(id="range"), args=arguments) if any(
                _mentions(each, parameter) for each in arguments
            ):
                return True
            case _:
                if _is_fitted(node, parameter):
                    return True
    return False


def follows_program(function: KernelFunction, parameter: str) -> bool:
    """Whether a program's part of the work is told by its place times a length, or by how often that fits."""
    placed = _placed(function)
    for node in ast.walk(function.node):
        match node:
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                for one, other in ((left, right), (right, left)):
                    if _mentions(one, parameter) and (_asks(other) or _names(other) & placed):
                        return True
            case _:
                if _is_fitted(node, parameter):
                    return True
    return False


def _is_fitted(node: ast.AST, parameter: str) -> bool:
    """Whether it counts how often a length fits into something."""
    match node:
        case ast.Call(func=called, args=[_, divisor]):
            return dotted(called).endswith("cdiv") and _mentions(divisor, parameter)
        case ast.BinOp(op=ast.FloorDiv(), right=divisor):
            return _mentions(divisor, parameter)
        case _:
            return False


def _placed(function: KernelFunction) -> set[str]:
    """Names that hold a program's place, or what was worked out from it by numbers alone."""
    placed: set[str] = set()
    assigned = [
        (node.targets[0].id, node.value)
        for node in ast.walk(function.node)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    ]
    values = [(name, _asks(value), _names(value)) for name, value in assigned]
    for _ in range(DEPTH_LIMIT):
        before = len(placed)
        placed.update(name for name, asks, names in values if asks or names & placed)
        if len(placed) == before:
            break
    return placed


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _asks(node: ast.AST) -> bool:
    return any(dotted(call.func).endswith("program_id") for call in calls(node))
