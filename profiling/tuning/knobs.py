"""Where a kernel file's knobs stand: literals behind a launch's constants, its options, and the grid's own numbers."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ..diagnosis.edits import with_argument
from ..diagnosis.source import host
from ..diagnosis.source.host import Launch
from ..diagnosis.source.syntax import KernelFile, KernelFunction, calls, dotted, keyword

Value = int | bool | None
"""Of a knob; None: as the file has it, where that is no literal."""
Role = Literal["tile", "size", "warps", "stages", "flag", "grid"]
"""`tile`: the length of a `tl.arange` or of a block; `size`: another number; `flag`: a boolean; `grid`: a number that
only the grid is made of."""

OPTIONS: Final[dict[str, Role]] = {"num_warps": "warps", "num_stages": "stages"}
_PROBLEM: Final = re.compile(
    r"^(IS|HAS|EVEN|STORE|RETURN|OUTPUT|WITH|NEED|APPLY)_|CAUSAL|DIM|HEAD|DTYPE|PREC|EPS|BIAS|MASK|MODE|TYPE",
    re.IGNORECASE,
)
"""Names of constants that say what is computed, not how: they are left alone unless the caller names them."""


class Slot(NamedTuple):
    """A place in the file where a knob's value stands, or could stand."""

    line: int
    column: int
    """In bytes of UTF-8."""
    end_line: int
    end_column: int
    before: str = ""
    """Written before the value, where nothing stands there yet."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """Something in the file that can be set."""

    kernel: str
    parameter: str
    role: Role
    present: Value
    slots: tuple[Slot, ...]
    """Empty where it belongs to an autotuner's list."""
    listed: tuple[int | bool, ...] = ()
    """What an autotuner's list has for it."""


class Listing(NamedTuple):
    """An autotuner's list of configurations."""

    kernel: str
    slot: Slot
    names: tuple[str, ...]
    """Of its configurations' own parameters."""
    configurations: tuple[dict[str, int | bool], ...]
    """Those that could be read, options included."""


@dataclass(slots=True)
class Found:
    """All that a file exposes."""

    exposed: list[Exposed] = field(default_factory=list[Exposed])
    listings: list[Listing] = field(default_factory=list[Listing])
    left: dict[str, str] = field(default_factory=dict[str, str])
    """What could be a knob and is none, with the reason."""


def find(file: KernelFile, launched: Iterable[str] | None = None, named: Iterable[str] = ()) -> Found:
    """The knobs of a file.

    Args:
        file: the kernel file.
        launched: names of the kernels that calls of the entry launch; None: all that the file launches.
        named: parameters that the caller asks for, whatever they are called.
    """
    found, wanted = Found(), set(named)
    for name, function in file.kernels.items():
        if launched is not None and name not in launched:
            continue
        launches = list(host.launches(file, name))
        tuner = host.tuner(file, function)
        own: set[str] = set()
        if tuner is not None:
            own = _listed(file, function, tuner, found)
        elif function.autotuned:
            found.left[f"{name}'s autotuner"] = "its list can't be read"
        merged: dict[tuple[str, Value], Exposed] = {}
        for launch in launches:
            for one in _of_launch(file, function, launch, own, wanted, found, tuned=tuner is not None):
                key = (one.parameter, one.present)
                before = merged.get(key)
                slots = one.slots if before is None else tuple(dict.fromkeys((*before.slots, *one.slots)))
                merged[key] = Exposed(name, one.parameter, one.role, one.present, slots)
        found.exposed += merged.values()
    return found


def _of_launch(
    file: KernelFile,
    function: KernelFunction,
    launch: Launch,
    own: set[str],
    wanted: set[str],
    found: Found,
    *,
    tuned: bool,
) -> Iterator[Exposed]:
    name = function.node.name
    tied: list[tuple[int, list[Slot]]] = []
    for parameter, value in launch.given.items():
        if parameter not in function.constants or parameter in own:
            continue
        literal = _literal(file, launch, value)
        if literal is None:
            continue
        node, present = literal
        if parameter not in wanted and _PROBLEM.search(parameter):
            found.left[parameter] = "its name says what is computed"
            continue
        if present in (0, 1) and type(present) is int and parameter not in wanted:
            found.left[parameter] = f"{present} may be a switch"
            continue
        slots = [_slot(node)]
        if isinstance(value, ast.Constant):
            tied.append((int(present), slots))
            slots += _divided_by(launch, present)
        role: Role = "flag" if isinstance(present, bool) else _role(function, parameter)
        yield Exposed(name, parameter, role, present, tuple(dict.fromkeys(slots)))
    if not tuned:
        yield from _options(file, function, launch)
    yield from _of_grid(file, function, launch, found, wanted)


def _options(file: KernelFile, function: KernelFunction, launch: Launch) -> Iterator[Exposed]:
    """`num_warps` and `num_stages` of a launch, whether it gives them or not."""
    if any(each.arg is None for each in launch.call.keywords):
        return  # **options may hold them
    for option, role in OPTIONS.items():
        if option in function.parameters or (option == "num_stages" and not _loops(function)):
            continue
        value = keyword(launch.call, option)
        if value is None:
            edit = with_argument(file, launch.call, f"{option}=")
            if edit is not None:
                slot = Slot(edit.line, edit.column, edit.end_line, edit.end_column, edit.text)
                yield Exposed(function.node.name, option, role, None, (slot,))
            continue
        literal = _literal(file, launch, value)
        if literal is not None and type(literal[1]) is int:
            yield Exposed(function.node.name, option, role, literal[1], (_slot(literal[0]),))
        else:
            # Computed: the literal takes the whole expression's place.
            yield Exposed(function.node.name, option, role, None, (_slot(value),))


def _literal(file: KernelFile, launch: Launch, value: ast.expr) -> tuple[ast.Constant, int | bool] | None:
    """The one literal that an argument's value comes from: itself, a local name's, or a module's."""
    node: ast.expr | None = value
    if isinstance(value, ast.Name):
        local = launch.function.assigned(value.id)
        if value.id in launch.function.parameters:
            return None
        node = local[0] if len(local) == 1 else None if local else file.assigned.get(value.id)
        if isinstance(node, ast.Call) and dotted(node.func).endswith("constexpr") and len(node.args) == 1:
            node = node.args[0]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        return node, node.value
    return None


def _role(function: KernelFunction, parameter: str) -> Role:
    """A tile's length stands in `tl.arange` or in a shape; names that say so count as well."""
    for call in calls(function.node):
        name = dotted(call.func).rpartition(".")[2]
        if name in ("arange", "zeros", "full", "make_block_ptr", "make_tensor_descriptor"):
            for node in ast.walk(call):
                if isinstance(node, ast.Name) and node.id == parameter:
                    return "tile"
    return "tile" if re.search(r"BLOCK|TILE", parameter, re.IGNORECASE) else "size"


def _loops(function: KernelFunction) -> bool:
    return any(isinstance(node, ast.For) for node in ast.walk(function.node))


def _grid_of(launch: Launch) -> ast.expr | None:
    grid = launch.call.func
    if not isinstance(grid, ast.Subscript):
        return None
    node = launch.meant(grid.slice)
    return node.body if isinstance(node, ast.Lambda) else node


def _divided_by(launch: Launch, present: int | bool) -> Iterator[Slot]:
    """Where the grid divides by the same number as a literal constant: they must change together."""
    grid = _grid_of(launch)
    for node in ast.walk(grid) if grid is not None else ():
        match node:
            case ast.Call(func=function, args=[_, ast.Constant(value=value) as literal]) if (
                dotted(function).endswith("cdiv") and value == present
            ):
                yield _slot(literal)
            case ast.BinOp(op=ast.FloorDiv(), right=ast.Constant(value=value) as literal) if value == present:
                yield _slot(literal)
            case _:
                pass


def _of_grid(
    file: KernelFile, function: KernelFunction, launch: Launch, found: Found, wanted: set[str]
) -> Iterator[Exposed]:
    """Numbers that only the grid is made of, of kernels that ask how many programs there are."""
    grid = _grid_of(launch)
    if grid is None:
        return
    asks = any(dotted(call.func).endswith("num_programs") for call in calls(function.node))
    divisors = {id(each) for each in _divisors(grid)}
    number = 0
    for node in ast.walk(grid):
        named = isinstance(node, ast.Name) and _only_in_grid(launch, grid, node.id)
        literal = _literal(file, launch, node) if isinstance(node, ast.expr) and (
            named or (isinstance(node, ast.Constant) and id(node) not in divisors)
        ) else None  # fmt: skip
        if literal is None or type(literal[1]) is not int or literal[1] < 2:
            continue
        label = node.id if isinstance(node, ast.Name) else f"grid_{number}"
        number += not named
        if not asks and label not in wanted:
            found.left[label] = "the kernel does not ask how many programs there are, so its grid is part of its work"
            continue
        yield Exposed(function.node.name, label, "grid", literal[1], (_slot(literal[0]),))


def _divisors(grid: ast.expr) -> Iterator[ast.expr]:
    for node in ast.walk(grid):
        match node:
            case ast.Call(func=function, args=[_, divisor]) if dotted(function).endswith("cdiv"):
                yield divisor
            case ast.BinOp(op=ast.FloorDiv() | ast.Div(), right=divisor):
                yield divisor
            case ast.Subscript(slice=place):
                yield place
            case _:
                pass


def _only_in_grid(launch: Launch, grid: ast.expr, name: str) -> bool:
    """Whether all that reads a local name stands in the grid."""
    uses = [node for node in launch.function.nodes if isinstance(node, ast.Name) and node.id == name]
    inside = {id(node) for node in ast.walk(grid)}
    return all(isinstance(node.ctx, ast.Store) or id(node) in inside for node in uses)


def _listed(file: KernelFile, function: KernelFunction, tuner: host.Tuner, found: Found) -> set[str]:
    """The knobs of an autotuner's list; the names that it sets."""
    name = function.node.name
    configs = keyword(tuner.call, "configs", 0)
    read = [{key: value[0] for key, value in each.items()} for each in tuner.choices if all(map(len, each.values()))]
    own = {key for each in tuner.choices for key in each if key not in OPTIONS}
    if configs is None or tuner.hooked or not read or len(read) < len(tuner.choices):
        found.left[f"{name}'s autotuner"] = "its list has hooks, or can't be read"
        return own
    if any(set(each) != set(read[0]) for each in read):
        found.left[f"{name}'s autotuner"] = "its configurations set different parameters"
        return own
    names = [*(key for key in read[0] if key in own), *(key for key in OPTIONS if key in read[0])]
    many = {key: tuple(tuner.values(key)) for key in names}
    # Of values that a comprehension makes only the first of each is a configuration known to be meant.
    found.listings.append(Listing(name, _slot(configs), tuple(key for key in read[0] if key in own), tuple(read)))
    for key, values in many.items():
        role: Role = OPTIONS[key] if key in OPTIONS else _role(function, key)
        if key == "num_stages" and not _loops(function):
            continue
        booleans = all(isinstance(value, bool) for value in values)
        found.exposed.append(
            Exposed(name, key, "flag" if booleans else role, read[0][key], (), listed=values)
        )  # fmt: skip
    return own


def _slot(node: ast.expr) -> Slot:
    return Slot(node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
