"""Why an access can't be as wide as its tile would let it be, from the source and the launch's arguments.

Conditions are those of Triton's `tritongpu-coalesce` and of the lowering of loads and stores: elements that lie side by
side along the fastest axis, an address that is divisible by the width, and a mask that is constant over it.
"""

import ast
from typing import Final, Literal, NamedTuple

from . import form
from .form import Atom, Form, Term
from .kernel import Access, Limit
from .syntax import keyword

WIDTH_BYTES: Final = 16

Reason = Literal[
    "pointer", "offset", "constant", "limit", "stride", "pairs", "gather", "division", "start", "bound", "mask"
]
"""What isn't known to be aligned: the `pointer` itself, an `offset` with an argument, a `constant` offset, a mask's
`limit`; or neighbours don't lie side by side: a `stride` at run time, `pairs` (a constant stride), a `gather`, a
`division` of the offset by an argument. Or what no argument is to blame for: an offset or a mask's limit that is
loaded, constant or can't be read (`start`, `bound`), and a `mask` that may differ between any two neighbours."""
OF_MASK: Final[frozenset[Reason]] = frozenset({"limit", "bound", "mask"})
NOT_OF_ARGUMENTS: Final[frozenset[Reason]] = frozenset({"start", "bound", "mask"})
"""What stays in the way whatever is known of the arguments."""


class Obstacle(NamedTuple):
    """One reason."""

    reason: Reason
    arguments: tuple[str, ...]
    text: str
    """The part of the address or mask that it is about."""
    limit: Limit | None = None


def obstacles(access: Access, element_bytes: int) -> list[Obstacle]:
    """Everything that keeps the access from 16 bytes a thread; empty where nothing that the source shows does."""
    wanted = max(WIDTH_BYTES // element_bytes, 1)
    if wanted == 1:
        return []
    fast = _fast_axis(access.address)
    if fast is None:
        return _apart(access.address)
    found: list[Obstacle] = []
    for term in access.address:
        if form.is_unit(term):
            continue
        divided = [each for each in term if _varies(each) and (each.axis or "only") == fast]
        if any((each.number or 1) < wanted for each in divided):
            found += _divided(divided)
            continue
        if _wraps(term):
            continue
        divisor = form.divisor(term)
        if term[0].kind == "pointer" and len(term) == 1:
            if divisor == 1:
                found.append(Obstacle("pointer", (term[0].text,), term[0].text))
        elif divisor < wanted:
            found += _of_term(term)
    if access.limits is None:
        found.append(Obstacle("mask", (), mask_of(access)))
    for limit in access.limits or ():
        found += _of_limit(limit, fast, wanted)
    return list(dict.fromkeys(found))


def mask_of(access: Access) -> str:
    """The mask's name."""
    mask = keyword(access.call, "mask", 1 if access.kind == "load" else 2)
    return mask.id[:40] if isinstance(mask, ast.Name) else "its mask"


def _fast_axis(address: Form) -> tuple[int, int] | Literal["only"] | None:
    """The axis along which neighbours lie side by side; None where there is none."""
    for term in address:
        lanes = form.lanes_of(term)
        if lanes is not None and form.is_unit(term):
            return lanes.axis or "only"
        if _wraps(term):
            return term[0].axis or "only"
    return None


def _varies(atom: Atom) -> bool:
    """Whether an atom is a division of lanes."""
    return atom.kind in ("quotient", "remainder") and atom.has_lanes


def _wraps(term: Term) -> bool:
    """Whether the term is lanes modulo something: side by side up to where they wrap."""
    return len(term) == 1 and term[0].kind == "remainder" and term[0].has_lanes


def _divided(divided: list[Atom]) -> list[Obstacle]:
    names = tuple(sorted(frozenset[str]().union(*(each.names for each in divided))))
    return [Obstacle("division", names, divided[0].text)] if names else []


def _apart(address: Form) -> list[Obstacle]:
    """Why neighbours don't lie side by side."""
    for term in address:
        divided = [each for each in term if _varies(each)]
        if divided:
            return _divided(divided)
    for term in address:
        if any(each.kind == "loaded" and each.has_lanes for each in term):
            return [Obstacle("gather", (), _text(term))]
    for term in address:
        if form.lanes_of(term) is None:
            continue
        names = tuple(sorted(form.names((form.coefficient(term),))))
        if names:
            return [Obstacle("stride", names, _text(term))]
        step = form.number((form.coefficient(term),))
        if step is not None and abs(step) > 1:
            return [Obstacle("pairs", (), f"tl.arange(…) * {step}")]
    return []


def _of_term(term: Term) -> list[Obstacle]:
    names = tuple(sorted({each.text for each in term if each.kind == "argument" and each.divisor == 1}))
    if names:
        return [Obstacle("offset", names, _text(term))]
    if all(each.kind == "constant" for each in term):
        return [Obstacle("constant", (), _text(term))]
    divided = sorted(frozenset[str]().union(*(each.names for each in term if each.kind in ("quotient", "remainder"))))
    return [Obstacle("division", tuple(divided), _text(term)) if divided else Obstacle("start", (), _text(term))]


def _of_limit(limit: Limit, fast: tuple[int, int] | Literal["only"], wanted: int) -> list[Obstacle]:
    """A mask changes within a vector where the limit of the fast axis is not known to be a multiple of its width."""
    sides = (*limit.left, *limit.right)
    if any(each.kind == "loaded" and each.has_lanes and (each.axis or "only") == fast for t in sides for each in t):
        return [Obstacle("mask", (), limit.text, limit)]
    lanes = [found for term in sides if (found := form.lanes_of(term)) is not None]
    if not any((found.axis or "only") == fast for found in lanes):
        return []
    names, found = set[str](), list[Obstacle]()
    for term in sides:
        if form.lanes_of(term) is not None or form.divisor(term) >= wanted:
            continue
        of_arguments = {each.text for each in term if each.kind == "argument" and each.divisor == 1}
        names |= of_arguments
        if not of_arguments:
            found.append(Obstacle("bound", (), limit.text, limit))
    return [Obstacle("limit", tuple(sorted(names)), limit.text, limit), *found] if names else found


def _text(term: Term) -> str:
    return " * ".join(each.text for each in term)
