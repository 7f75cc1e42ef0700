"""Why an access can't be as wide as its tile would let it be, from the source and the launch's arguments.

Conditions are those of Triton's `tritongpu-coalesce` and of the lowering of loads and stores: elements that lie side by
side along the fastest axis, an address that is divisible by the width, and a mask that is constant over it.
"""

from typing import Final, Literal, NamedTuple

from . import form
from .form import Atom, Form, Term
from .kernel import Access, Limit

WIDTH_BYTES: Final = 16

Reason = Literal["pointer", "offset", "constant", "limit", "stride", "pairs", "gather", "division"]
"""What isn't known to be aligned: the `pointer` itself, an `offset` with an argument, a `constant` offset, a mask's
`limit`; or neighbours don't lie side by side: a `stride` at run time, `pairs` (a constant stride), a `gather`, a
`division` of the offset by an argument."""


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
    for limit in access.limits or ():
        found += _of_limit(limit, fast, wanted)
    return list(dict.fromkeys(found))


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
    return [Obstacle("division", tuple(divided), _text(term))] if divided else []


def _of_limit(limit: Limit, fast: tuple[int, int] | Literal["only"], wanted: int) -> list[Obstacle]:
    """A mask changes within a vector where the limit of the fast axis is not known to be a multiple of its width."""
    sides = (*limit.left, *limit.right)
    lanes = [found for term in sides if (found := form.lanes_of(term)) is not None]
    if not any((found.axis or "only") == fast for found in lanes):
        return []
    names: set[str] = set()
    for term in sides:
        if form.lanes_of(term) is None and form.divisor(term) < wanted:
            names |= {each.text for each in term if each.kind == "argument" and each.divisor == 1}
    return [Obstacle("limit", tuple(sorted(names)), limit.text, limit)] if names else []


def _text(term: Term) -> str:
    return " * ".join(each.text for each in term)
