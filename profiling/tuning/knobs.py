"""Where a kernel file's knobs stand: literals behind a launch's constants, its options, and the grid's own numbers."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from ..diagnosis.edits import with_argument
from ..diagnosis.source import host
from ..diagnosis.source.host import Launch
from ..diagnosis.source.syntax import KernelFile, KernelFunction, calls, dotted, keyword
from .listing import Listing, listed
from .origin import Origin, Slot, follows_program, is_alike, is_shape, is_stepped, origin, slot_of

Value = int | bool | None
"""Of a knob; None: as the file has it, where that is no literal."""
Role = Literal["tile", "size", "warps", "stages", "flag", "grid"]
"""`tile`: the length of a `tl.arange` or of a block; `size`: another number; `flag`: a boolean; `grid`: a number that
only the grid is made of."""

OPTIONS: Final[dict[str, Role]] = {"num_warps": "warps", "num_stages": "stages"}
_PROBLEM: Final = re.compile(
    r"^(IS|HAS|EVEN|STORE|RETURN|OUTPUT|WITH|NEED|APPLY)_|CAUSAL|DIM|(?<!BLOCK_)HEAD|DTYPE|PREC|EPS|BIAS|MASK|MODE(?!L)"
    r"|DMODEL|TYPE|BITS|EXPONENT|BACKWARD|FORWARD|^STAGE$|THETA|STRIDE",
    re.IGNORECASE,
)
"""Names of constants that say what is computed, not how: they are left alone unless the caller names them."""


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
    limits: int | None = None
    """Where it is the most that something computed may be: what that is as the file is called, if it is known."""


@dataclass(slots=True)
class Found:
    """All that a file exposes."""

    exposed: list[Exposed] = field(default_factory=list[Exposed])
    listings: list[Listing] = field(default_factory=list[Listing])
    left: dict[str, str] = field(default_factory=dict[str, str])
    """What could be a knob and is none, with the reason."""


def find(file: KernelFile, launched: Mapping[str, Mapping[str, int]] | None = None, named: Iterable[str] = ()) -> Found:
    """The knobs of a file.

    Args:
        file: the kernel file.
        launched: kernels that calls of the entry launch, each with its options and constants; None: unknown, so all
            that the file launches.
        named: parameters that the caller asks for, whatever they are called.
    """
    found, wanted = Found(), set(named)
    calls_of: Mapping[str, Mapping[str, int]] = launched or {}
    for name, function in file.kernels.items():
        if launched is not None and name not in launched:
            continue
        known = calls_of.get(name, {})
        launches = list(host.launches(file, name))
        tuner = host.tuner(file, function)
        own: set[str] = set()
        if tuner is not None:
            own = _listed(file, function, tuner, found, known)
        elif function.autotuned:
            found.left[f"{name}'s autotuner"] = "its list can't be read"
        heuristics = _heuristics(function)
        for parameter, value in heuristics.items():
            if parameter not in own:
                found.exposed += _of_heuristic(function, launches, parameter, value, known)
        own |= heuristics.keys()
        merged: dict[tuple[str, Value], Exposed] = {}
        switched = _switched(file, launches)
        for launch in launches:
            around = _Around(file, function, launch, own, wanted, known, switched)
            for one in _of_launch(around, found, tuned=tuner is not None):
                key = (one.parameter, one.present)
                before = merged.get(key)
                slots = one.slots if before is None else tuple(dict.fromkeys((*before.slots, *one.slots)))
                merged[key] = replace(one, slots=slots)
        found.exposed += merged.values()
    found.exposed = _tied(found.exposed)
    return found


def _tied(exposed: Iterable[Exposed]) -> list[Exposed]:
    """Those that stand in one place are one: `BLOCK_M=BLOCK, BLOCK_N=BLOCK`."""
    found: list[Exposed] = []
    for one in exposed:
        others = [each for each in found if set(each.slots) & set(one.slots)]
        if not others:
            found.append(one)
            continue
        first = others[0]
        slots = dict.fromkeys(slot for each in (*others, one) for slot in each.slots)
        roles = [each.role for each in (*others, one)]
        its = replace(first, slots=tuple(slots), role="tile" if "tile" in roles else first.role)
        found = [its if each is first else each for each in found if each is first or each not in others]
    return found


class _Around(NamedTuple):
    """What is known of a launch."""

    file: KernelFile
    function: KernelFunction
    launch: Launch
    own: set[str]
    """Parameters that others than the launch set."""
    wanted: set[str]
    known: Mapping[str, int]
    """Options and constants of the kernel, as calls of the entry launch it."""
    switched: set[str]
    """Parameters that the file gives both true and false."""


def _of_launch(around: _Around, found: Found, *, tuned: bool) -> Iterator[Exposed]:
    file, function, launch, own, wanted, known, _ = around
    origins = {
        parameter: its
        for parameter, value in launch.given.items()
        if parameter in function.constants - own
        and (its := origin(file, launch, value, known.get(parameter))) is not None
        and (its.present is not None or _role(function, parameter) == "tile")
    }
    for parameter, its in origins.items():
        value, role, present = launch.given[parameter], _role(function, parameter), its.present
        if parameter not in wanted and (why := _why_left(around, parameter, role, its)) is not None:
            found.left[parameter] = why
            continue
        if present is None and parameter not in known:
            found.left[parameter] = "it is computed, and not known what it is"
            continue
        slots = list(its.slots)
        if isinstance(value, ast.Constant) and present is not None:
            slots += _divided_by(launch, present)
        elif (
            is_stepped(function, parameter)
            and not follows_program(function, parameter)
            and any(set(slots) & set(each.slots) for name, each in origins.items() if name != parameter)
        ):
            # A loop's step that another length stands for, too, need not be the same.
            slots = [slot_of(value)]
        yield Exposed(
            function.node.name, parameter, "flag" if isinstance(present, bool) else role, present,
            tuple(dict.fromkeys(slots)), limits=known.get(parameter) if its.is_limit else None,
        )  # fmt: skip
    if not tuned:
        yield from _options(file, function, launch, own)
    yield from _of_grid(file, function, launch, found, wanted)


def _why_left(around: _Around, parameter: str, role: Role, its: Origin) -> str | None:
    """Why a constant is no knob unless the caller names it; None: it is one."""
    function = around.function
    its_free = role == "tile" and is_shape(function, parameter) and _is_free(function, around.launch, parameter)
    if _PROBLEM.search(parameter):
        return "its name says what is computed"
    if its.present in (0, 1) and type(its.present) is int and not (its_free and its.present == 1):
        return f"{its.present} may be a switch"
    if isinstance(its.present, bool) and parameter in around.switched:
        return "the file launches the kernel with either: it says what is computed"
    if (its.present is None or its.is_limit) and not its_free:
        return "it is computed, and neither a loop nor the grid makes up for another length"
    return None


def _is_free(function: KernelFunction, launch: Launch, parameter: str) -> bool:
    """Whether a tile may have another length: a loop of the kernel, or the grid, goes by it."""
    if is_stepped(function, parameter):
        return True
    grid, value = _grid_of(launch), launch.given.get(parameter)
    names = {parameter, value.id if isinstance(value, ast.Name) else parameter}
    alike = None if value is None or isinstance(value, ast.Constant) else is_alike(value)
    waiting: list[ast.AST] = [] if grid is None else [grid]
    inner = {each.name: each for each in launch.function.nodes if isinstance(each, ast.FunctionDef)}
    seen = {launch.function.node.name}
    while waiting:
        for node in ast.walk(waiting.pop()):
            match node:
                case ast.Constant(value=str(text)) if text == parameter:
                    return True
                case ast.Name(id=name) if name in names:
                    return True
                case ast.Name(id=name) if name not in seen:
                    seen.add(name)
                    waiting += launch.function.assigned(name)
                    waiting += [inner[name]] if name in inner else []
                case ast.expr() if alike is not None and alike(node):
                    return True
                case _:
                    pass
    return False


def _switched(file: KernelFile, launches: Iterable[Launch]) -> set[str]:
    """Parameters that are true in one launch and false in another."""
    given: dict[str, set[bool]] = {}
    for launch in launches:
        for parameter, value in launch.given.items():
            its = origin(file, launch, value, None)
            if its is not None and isinstance(its.present, bool):
                given.setdefault(parameter, set()).add(its.present)
    return {parameter for parameter, values in given.items() if len(values) > 1}


def _heuristics(function: KernelFunction) -> dict[str, ast.expr]:
    """What `@triton.heuristics({…})` computes, by parameter."""
    found: dict[str, ast.expr] = {}
    for each in function.node.decorator_list:
        if isinstance(each, ast.Call) and dotted(each.func).rpartition(".")[2] == "heuristics":
            table = keyword(each, "values", 0)
            for key, value in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found[key.value] = value
    return found


def _of_heuristic(
    function: KernelFunction, launches: Iterable[Launch], parameter: str, value: ast.expr, known: Mapping[str, int]
) -> Iterator[Exposed]:
    """A number in place of a function that computes a tile's length, or an option."""
    role: Role = OPTIONS.get(parameter) or _role(function, parameter)
    is_tile = role == "tile" and any(_is_free(function, launch, parameter) for launch in launches)
    if parameter in known and (is_tile or (parameter in OPTIONS and (role == "warps" or _loops(function)))):
        slot = slot_of(value)._replace(before="lambda *_, **__: ")
        yield Exposed(function.node.name, parameter, role, None, (slot,))


def _options(file: KernelFile, function: KernelFunction, launch: Launch, own: set[str]) -> Iterator[Exposed]:
    """`num_warps` and `num_stages` of a launch, whether it gives them or not."""
    unknown = any(each.arg is None for each in launch.call.keywords)  # **options may hold what is not given
    for option, role in OPTIONS.items():
        if option in function.parameters or option in own or (option == "num_stages" and not _loops(function)):
            continue
        value = keyword(launch.call, option)
        if value is None:
            edit = None if unknown else with_argument(file, launch.call, f"{option}=")
            if edit is not None:
                slot = Slot(edit.line, edit.column, edit.end_line, edit.end_column, edit.text)
                yield Exposed(function.node.name, option, role, None, (slot,))
            continue
        literal = _literal(file, launch, value)
        if literal is not None and type(literal[1]) is int:
            yield Exposed(function.node.name, option, role, literal[1], (literal[0],))
        else:
            # Computed: the literal takes the whole expression's place.
            yield Exposed(function.node.name, option, role, None, (slot_of(value),))


def _literal(file: KernelFile, launch: Launch, value: ast.expr) -> tuple[Slot, int | bool] | None:
    """The one literal that an argument's value comes from: itself, a local name's, or a module's."""
    if isinstance(value, ast.Name) and value.id in launch.function.parameters:
        return None
    found = origin(file, launch, value, None)
    if found is None or found.present is None or found.is_limit or len(found.slots) != 1:
        return None
    return found.slots[0], found.present


def _role(function: KernelFunction, parameter: str) -> Role:
    """A tile's length stands in `tl.arange` or in a shape; names that say so count as well."""
    named = re.search(r"BLOCK|TILE", parameter, re.IGNORECASE)
    return "tile" if named or is_shape(function, parameter) else "size"


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
                yield slot_of(literal)
            case ast.BinOp(op=ast.FloorDiv(), right=ast.Constant(value=value) as literal) if value == present:
                yield slot_of(literal)
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
        yield Exposed(function.node.name, label, "grid", literal[1], (literal[0],))


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


def _listed(
    file: KernelFile, function: KernelFunction, tuner: host.Tuner, found: Found, known: Mapping[str, int]
) -> set[str]:
    """The knobs of an autotuner's list; the names that it sets."""
    name = function.node.name
    its, own = listed(file, function, tuner, known)
    if isinstance(its, str):
        found.left[f"{name}'s autotuner"] = its
        return own
    found.listings.append(its)
    computed = _heuristics(function)
    for key, present in its.configurations[0].items():
        if key in computed or (key == "num_stages" and not _loops(function)):
            continue
        values = tuple(tuner.values(key)) or (present,)
        role: Role = OPTIONS[key] if key in OPTIONS else _role(function, key)
        booleans = all(isinstance(value, bool) for value in values)
        found.exposed.append(
            Exposed(name, key, "flag" if booleans else role, present, (), listed=values)
        )  # fmt: skip
    return own
