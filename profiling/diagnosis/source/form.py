"""Offsets as sums of products, so that one sees which part of an address is not known to be aligned.

`(pid * BLOCK + i) * stride` becomes the terms `pid * BLOCK * stride` and `i * stride`. A term's divisor is the largest
power of two that the compiler can prove it divisible by; it follows Triton's AxisInfo analysis: an integer argument is
known to be divisible by 16 or not at all, products multiply, sums take the least, quotients and loads tell nothing.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal

TERMS_LIMIT: Final = 64
FACTORS_LIMIT: Final = 16
DIVISOR_LIMIT: Final = 1 << 12

AtomKind = Literal[
    "constant",
    "argument",
    "pointer",
    "lanes",
    "program",
    "step",
    "loaded",
    "quotient",
    "remainder",
    "hinted",
    "unknown",
]
"""`lanes` are those of `tl.arange`; `step` counts a loop's iterations; `loaded` comes from memory; `hinted` is what
`tl.multiple_of` says of an expression."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One factor."""

    kind: AtomKind
    text: str
    divisor: int = 1
    number: int | None = None
    """Of a constant; of a quotient or remainder, what its divisor is known to be divisible by."""
    axis: tuple[int, int] | None = None
    """Of lanes: the axis along which they lie, and how many there are; None before they have two."""
    names: frozenset[str] = frozenset()
    """Arguments within."""
    has_lanes: bool = False
    """Whether a quotient, remainder or load differs between lanes."""
    line: int | None = None


Term = tuple[Atom, ...]
Form = tuple[Term, ...]
"""A sum of terms."""


def constant(number: int) -> Form:
    return ((Atom("constant", str(number), _low_bit(number), number),),)


def unknown(text: str, names: frozenset[str] = frozenset(), *, has_lanes: bool = False) -> Form:
    return ((Atom("unknown", text[:40], names=names, has_lanes=has_lanes),),)


def atom(kind: AtomKind, text: str, divisor: int = 1, **values: object) -> Form:
    return ((Atom(kind, text[:40], divisor, **values),),)  # pyright: ignore[reportArgumentType]  fields of Atom by name


def named(form: Form, name: str) -> Form:
    """A value that is loaded as a whole is told by the name that it gets."""
    if len(form) == 1 and len(form[0]) == 1 and form[0][0].kind == "loaded":
        return ((replace(form[0][0], text=name[:40]),),)
    return form


def added(left: Form, right: Form) -> Form:
    both = left + right
    return both if len(both) <= TERMS_LIMIT else unknown("a long sum", names(both), has_lanes=has_lanes(both))


def multiplied(left: Form, right: Form) -> Form:
    if len(left) * len(right) > TERMS_LIMIT or any(len(a) + len(b) > FACTORS_LIMIT for a in left for b in right):
        both = left + right
        return unknown("a long product", names(both), has_lanes=has_lanes(both))
    return tuple(a + b for a in left for b in right)


def number(form: Form) -> int | None:
    """The value of a sum of constants."""
    if not all(each.kind == "constant" and each.number is not None for term in form for each in term):
        return None
    total = sum(prod(each.number or 0 for each in term) for term in form)
    return total if abs(total) < 1 << 62 else None


def divisor(term: Term) -> int:
    """The largest power of two that the term is known to be divisible by."""
    found = 1
    for each in term:
        found = min(found * each.divisor, DIVISOR_LIMIT)
    return found


def divisor_of_all(form: Form) -> int:
    return min((divisor(term) for term in form), default=DIVISOR_LIMIT)


def names(form: Form) -> frozenset[str]:
    """Arguments in it."""
    return frozenset[str]().union(*(each.names for term in form for each in term))


def has_lanes(form: Form) -> bool:
    """Whether it differs between the elements of a tile."""
    return any(lanes_of(term) is not None or any(each.has_lanes for each in term) for term in form)


def lanes_of(term: Term) -> Atom | None:
    """The lanes that the term counts."""
    return next((each for each in term if each.kind == "lanes"), None)


def coefficient(term: Term) -> Term:
    """A term without its lanes."""
    return tuple(each for each in term if each.kind != "lanes")


def is_unit(term: Term) -> bool:
    """Whether the term is lanes times one: neighbours lie side by side."""
    rest = coefficient(term)
    return lanes_of(term) is not None and all(each.kind == "constant" and each.number in (1,) for each in rest)


def along(form: Form, axis: int, rank: int) -> Form:
    """The same with its lanes along an axis."""
    return tuple(
        tuple(replace(each, axis=(axis, rank)) if each.kind == "lanes" or each.has_lanes else each for each in term)
        for term in form
    )


def _low_bit(number: int) -> int:
    return DIVISOR_LIMIT if number == 0 else min(abs(number) & -abs(number), DIVISOR_LIMIT)
