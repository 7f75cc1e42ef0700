"""Whether a file exposes knobs and is otherwise what it was: the same code at its default values."""

from collections.abc import Mapping, Sequence

from ...sandbox.wire import Wire
from ..compiler.launch import LaunchFacts
from .space import SpaceError, infer

DIFFERING_SHOWN = 8


class Parametrized(Wire):
    """What became of a file whose knobs were to be exposed."""

    ok: bool
    """It has knobs that it did not have, or more values to search, and compiles to the same code."""
    knobs: list[str]
    """Of the new file."""
    exposed: list[str]
    """Those that the old file did not have."""
    same_code: bool
    """Each launch of each case has the code and the grid that it had."""
    differing: list[str]
    """What differs, a line each."""
    problem: str | None = None
    """Why the new file can't be searched."""


def parametrized(
    before: str,
    after: str,
    compiled_before: Mapping[str, Sequence[LaunchFacts]],
    compiled_after: Mapping[str, Sequence[LaunchFacts]],
    launched: Mapping[str, Mapping[str, int]] | None = None,
) -> Parametrized:
    """Compare a file with the one that it was made from.

    Args:
        before: the old file.
        after: the new one.
        compiled_before: launches of the old file's entry, by case.
        compiled_after: the same of the new file.
        launched: kernels that the new file's entry launches, with their options; None: all that it holds.
    """
    differing = list(_differing(compiled_before, compiled_after))
    try:
        known = {knob.name for knob in infer(before).knobs}
    except SpaceError:
        known = set[str]()
    try:
        names = [knob.name for knob in infer(after, launched=launched).knobs]
    except SpaceError as error:
        return Parametrized(
            ok=False, knobs=[], exposed=[], same_code=not differing, differing=differing, problem=str(error)
        )
    exposed = [name for name in names if name not in known]
    problem = None
    if not names:
        problem = "no integer or boolean literal stands behind a constexpr argument of its launches"
    elif not exposed:
        problem = "it exposes nothing that the old file did not"
    return Parametrized(
        ok=problem is None and not differing,
        knobs=names,
        exposed=exposed,
        same_code=not differing,
        differing=differing[:DIFFERING_SHOWN],
        problem=problem,
    )


def _differing(before: Mapping[str, Sequence[LaunchFacts]], after: Mapping[str, Sequence[LaunchFacts]]) -> list[str]:
    found: list[str] = []
    for case in dict.fromkeys([*before, *after]):
        mine, its = after.get(case, ()), before.get(case, ())
        if len(mine) != len(its):
            found.append(f"{case}: {len(its)} launches became {len(mine)}")
            continue
        for number, (old, new) in enumerate(zip(its, mine, strict=True)):
            where = f"{case}, launch {number} ({new.kernel})"
            if old.code_hash != new.code_hash:
                found.append(f"{where}: code {old.code_hash} became {new.code_hash}")
            elif old.grid != new.grid:
                found.append(f"{where}: grid {old.grid} became {new.grid}")
    return found
