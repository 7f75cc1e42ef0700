"""The space that is searched: each knob with the values that it may take."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from ..diagnosis.source import syntax
from . import knobs, origin
from .knobs import Exposed, Found, Listing, Role, Slot, Value

Point = tuple[Value, ...]
"""One value for each knob, in their order."""

POINTS_LIMIT: Final = 4096
"""Points of a larger space that are looked at: a sample."""
VALUES_LIMIT: Final = 32
"""Of a knob, given by the caller."""
KNOBS_LIMIT: Final = 16
WARPS: Final = (1, 2, 4, 8, 16)
STAGES: Final = (1, 2, 3, 4, 5)
LONE_TILE: Final = (32, 8192)
"""Where a kernel has one tile length."""
TILES: Final = (16, 256)
"""Where it has several, or multiplies matrices: each of two is at most that long."""
FEWER: Final = 4
"""Each of several lengths of a kernel that multiplies no matrices may be so many times shorter and longer than it is,
where that is beyond `TILES`."""
_DEFAULTS: Final = {"num_warps": 4, "num_stages": 3}
"""Of a launch that does not say (Triton 3.6, `backends/nvidia/compiler.py`)."""


class SpaceError(ValueError):
    """A space that the caller gave and that can't be searched; the message says why, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Knob:
    """Something that can be set, and to what."""

    name: str
    """Unique within the space."""
    kernel: str
    parameter: str
    role: Role
    present: Value
    """What the file has; None where that is no literal."""
    values: tuple[Value, ...]
    slots: tuple[Slot, ...]
    assumed: int | bool | None = None
    """What the present value comes to where it is None, or a limit that is not reached: to tell how far others are."""

    def shown(self, value: Value) -> Value:
        """A value as a reader knows it: what the file does not say is the compiler's default."""
        absent = value is None and self.parameter in knobs.OPTIONS and all(_is_added(slot) for slot in self.slots)
        return self.assumed if absent else value


@dataclass(frozen=True, slots=True)
class Space:
    """All knobs of a kernel file."""

    knobs: tuple[Knob, ...]
    listings: tuple[Listing, ...]
    left: Mapping[str, str]
    """What could be a knob and is none, with the reason."""

    @property
    def size(self) -> int:
        return prod(len(knob.values) for knob in self.knobs)

    @property
    def present(self) -> Point:
        """The file as it is."""
        return tuple(knob.present for knob in self.knobs)

    def named(self, point: Point) -> dict[str, Value]:
        """A point by the knobs' names; None only for what the file computes."""
        return {knob.name: knob.shown(value) for knob, value in zip(self.knobs, point, strict=True)}

    def changed(self, point: Point) -> dict[str, Value]:
        """What differs from the file."""
        pairs = zip(self.knobs, point, strict=True)
        return {knob.name: value for knob, value in pairs if value != knob.present}

    def points(self, seed: int = 0) -> list[Point]:
        """All points, or a sample of a large space: what lies near the file's own point, and others at random."""
        if self.size <= POINTS_LIMIT:
            return list(product(*(knob.values for knob in self.knobs)))
        drawn = random.Random(seed)
        found = dict.fromkeys([*self.seeds(), *self.near(self.present)])
        while len(found) < POINTS_LIMIT:
            found[tuple(drawn.choice(knob.values) for knob in self.knobs)] = None
        return list(found)

    def near(self, point: Point) -> Iterator[Point]:
        """Points that differ in one knob, by one step."""
        for place, knob in enumerate(self.knobs):
            at = knob.values.index(point[place]) if point[place] in knob.values else -1
            steps = (at - 1, at + 1) if at >= 0 else (0, len(knob.values) - 1)
            for step in steps:
                if 0 <= step < len(knob.values):
                    yield (*point[:place], knob.values[step], *point[place + 1 :])

    def seeds(self) -> list[Point]:
        """Points that the file's authors chose: configurations of its autotuners, those within the space."""
        found: list[Point] = []
        for listing in self.listings:
            for configuration in listing.configurations:
                point = tuple(
                    configuration.get(knob.parameter, knob.present) if knob.kernel == listing.kernel else knob.present
                    for knob in self.knobs
                )
                if all(value in knob.values for knob, value in zip(self.knobs, point, strict=True)):
                    found.append(point)
        return list(dict.fromkeys(found))

    def contains(self, point: Point) -> bool:
        return all(value in knob.values for knob, value in zip(self.knobs, point, strict=True))


def infer(
    text: str,
    *,
    launched: Mapping[str, Mapping[str, int]] | None = None,
    given: Mapping[str, Sequence[int | bool]] | None = None,
) -> Space:
    """The space of a kernel file.

    Args:
        text: the file.
        launched: kernels that calls of the entry launch, each with its `num_warps` and `num_stages`, and the integers
            that its constants are; None: unknown.
        given: values of some knobs, by their names; other knobs keep the inferred ones. An empty list leaves a knob
            as it is.

    Raises:
        SpaceError: the file can't be read, or `given` names what is no knob.
    """
    file = syntax.parse(text)
    if file is None:
        raise SpaceError("the kernel file can't be parsed, or is too long to be analysed")
    wanted = dict(given or {})
    try:
        found = knobs.find(file, launched, wanted)
    except RecursionError:
        raise SpaceError("an expression of the kernel file is nested too deeply to be analysed") from None
    names = _names(found)
    _check(wanted, names, found)
    made: list[Knob] = []
    for name, one in zip(names, found.exposed, strict=True):
        assumed = one.present
        if assumed is None:
            assumed = (launched or {}).get(one.kernel, {}).get(one.parameter, _DEFAULTS.get(one.parameter))
        if one.limits is not None and one.limits < int(one.present or 0):
            assumed = one.limits
        values = _values(file, one, assumed)
        # What the file has need not be among the values given: it is measured in any case, as what others have to beat.
        values = _sorted(wanted[name] or (one.present,)) if name in wanted else _sorted({*values, one.present})
        if _is_absent(one) and assumed is not None:
            # Not to say it means just that.
            values = _sorted(None if value == assumed else value for value in values)
        if values != (one.present,):
            made.append(Knob(name, one.kernel, one.parameter, one.role, one.present, values, one.slots, assumed))
    left = dict(found.left)
    if len(made) > KNOBS_LIMIT:
        # Those that the caller names come first, then in the order of the file; which ones matter is not known yet.
        kept = sorted(made, key=lambda knob: knob.name not in wanted)[:KNOBS_LIMIT]
        left |= {knob.name: f"there are more than {KNOBS_LIMIT} knobs" for knob in made if knob not in kept}
        made = [knob for knob in made if knob in kept]
    return Space(tuple(made), tuple(found.listings), left)


def _is_absent(one: Exposed) -> bool:
    """Whether it is an option of which the file says nothing."""
    return one.parameter in knobs.OPTIONS and bool(one.slots) and all(_is_added(slot) for slot in one.slots)


def _is_added(slot: Slot) -> bool:
    """Whether nothing of the file is replaced."""
    return (slot.line, slot.column) == (slot.end_line, slot.end_column)


def _names(found: Found) -> list[str]:
    """The parameter alone where it is unique; else with its kernel; else with the line, too."""
    plain = [one.parameter for one in found.exposed]
    whole = [f"{one.kernel}.{one.parameter}" for one in found.exposed]
    return [
        short if plain.count(short) == 1 else long if whole.count(long) == 1 else f"{long}:{_line(one)}"
        for short, long, one in zip(plain, whole, found.exposed, strict=True)
    ]


def _line(one: Exposed) -> int:
    return min((slot.line for slot in one.slots), default=0)


def _check(given: Mapping[str, Sequence[int | bool]], names: Iterable[str], found: Found) -> None:
    known = list(names)
    for name, values in given.items():
        if name not in known:
            reason = f" ({found.left[name]})" if name in found.left else ""
            allowed = ", ".join(known) or "none"
            raise SpaceError(
                f"the kernel file has no knob {name[:60]!r}{reason}; its knobs are: {allowed}. A knob is an integer or "
                "boolean literal behind a constexpr argument of a launch, num_warps, num_stages, or a value of an "
                "@triton.autotune list"
            )
        if len(values) > VALUES_LIMIT:
            raise SpaceError(f"{len(values)} values of {name} are given, {VALUES_LIMIT} are allowed")
        if name.rpartition(".")[2].partition(":")[0] in knobs.OPTIONS and any(value < 1 for value in values):
            raise SpaceError(f"{name} must be 1 or more")


def _lengths(file: syntax.KernelFile, kernel: str, present: int) -> tuple[int, int]:
    """The least and the most that the length of a kernel's tile may be."""
    function = file.kernels[kernel]
    if origin.multiplies(file, function):
        return TILES
    if sum(origin.is_shape(function, name) for name in function.constants) <= 1:
        return LONE_TILE
    return max(1, min(TILES[0], present // FEWER)), max(TILES[1], FEWER * present)


def _values(file: syntax.KernelFile, one: Exposed, assumed: Value) -> tuple[Value, ...]:
    present = int(assumed or 0)
    match one.role:
        case "flag":
            return (False, True)
        case "warps":
            return WARPS
        case "stages":
            return STAGES
        case "tile" if present & (present - 1) == 0 and present > 0:
            low, high = _lengths(file, one.kernel, present)
            low, high = min(low, *one.listed, present), max(high, *one.listed, present)
            if assumed != one.present and one.present is not None:
                high = present // 2  # more than a limit that is not reached changes nothing
            return tuple(value for value in _powers(high) if low <= value)
        case _:
            return _around(present, one.listed)


def _around(present: int, listed: Sequence[int | bool]) -> tuple[int, ...]:
    """A quarter to four times the present value."""
    steps = {max(1, present // 4), max(1, present // 2), present, 2 * present, 4 * present}
    return tuple(sorted({*steps, *map(int, listed)}))


def _powers(high: int) -> Iterator[int]:
    value = 1
    while value <= high:
        yield value
        value *= 2


def _sorted(values: Iterable[Value]) -> tuple[Value, ...]:
    return tuple(sorted(set(values), key=lambda value: (value is None, value or 0)))
