"""Which Python line each load, store, dot, layout conversion, reduction and atomic of a kernel's TTGIR comes from.

Operations end in `loc(#loc7)`, and the module holds `#loc7 = loc("k.py":8:16)`, `loc("x"(#loc8))` for a named one,
`loc(callsite(#loc9 at #loc8))` for inlined code and `loc(fused[#loc1, #loc2])`. All of them name the innermost frame
first; a line is the innermost one in the kernel's own file. The text comes from a worker and is not trusted:
everything here takes time linear in its length and raises nothing.
"""

import re
from typing import Final, Literal

from ...sandbox.wire import Wire
from . import ttgir

OperationKind = Literal["load", "store", "dot", "layout_conversion", "reduction", "atomic"]
ROWS_LIMIT: Final = 1_000
DETAIL_CHARACTERS: Final = 120
DEPTH_LIMIT: Final = 100
"""Of aliases within aliases: one a level of inlining, and Triton's library has few."""

_ALIAS = re.compile(r"(#loc\d{0,9}) = loc\((.*)\)\s*")
_TOKEN = re.compile(r'"([^"]*)":(\d{1,9}):\d{1,9}|(#loc\d{0,9})')
_TYPES = " : "
_REDUCTIONS = {"tt.reduce", "tt.scan"}
_ATOMICS = {"tt.atomic_rmw", "tt.atomic_cas"}
_SEMANTICS = re.compile(r"\b(acq_rel|acquire|release|relaxed)\b")


class TtgirSite(Wire):
    """One operation of the kernel's TTGIR."""

    line: int | None
    """In the kernel file; null where the compiler does not say."""
    kind: OperationKind
    operation: str
    in_loop: bool
    waits_beside_dot: bool
    """A load of a tile that waits for its data in the very loop that holds a dot."""
    through_memory: bool
    """A layout conversion that goes through shared memory."""
    semantics: str | None
    """Ordering of an atomic."""
    detail: str
    """The operation's types, shortened."""


class Locations:
    """The table of locations at a module's end."""

    def __init__(self, text: str) -> None:
        self._raw = {match[1]: match[2] for line in text.splitlines() if (match := _ALIAS.fullmatch(line))}

    def file(self, location: str) -> str | None:
        """The file of a location's innermost frame."""
        frames = self._resolve(location, None, {}, 0)
        return frames[0] if frames else None

    def line(self, location: str, file: str, known: dict[str, tuple[str, int] | None]) -> int | None:
        """The line of a location's innermost frame in a file. `known` is kept between calls for the same file."""
        found = self._resolve(location, file, known, 0)
        return found[1] or None if found else None

    def _resolve(
        self, text: str, file: str | None, known: dict[str, tuple[str, int] | None], depth: int
    ) -> tuple[str, int] | None:
        for match in _TOKEN.finditer(text):
            alias = match[3]
            if alias is None:
                found = (match[1], int(match[2])) if file is None or match[1] == file else None
            elif alias in known or depth > DEPTH_LIMIT:
                found = known.get(alias)
            else:
                known[alias] = None  # an alias of itself leads nowhere
                found = known[alias] = self._resolve(self._raw.get(alias, ""), file, known, depth + 1)
            if found:
                return found
        return None


def sites(text: str) -> list[TtgirSite]:
    """The operations that matter, in order of appearance; at most `ROWS_LIMIT`."""
    operations = ttgir.operations(text)
    locations = Locations(text)
    function = next((op for op in operations if op.name == "tt.func"), None)
    file = locations.file(function.location) if function else None
    dot_loops = {op.loop.number for op in operations if op.name in ttgir.DOTS and op.loop}
    known: dict[str, tuple[str, int] | None] = {}
    found: list[TtgirSite] = []
    for op in operations:
        kind = _kind(op)
        if kind is None:
            continue
        if len(found) == ROWS_LIMIT:
            break
        access = ttgir.access_of(op)
        types = op.text.rpartition(_TYPES)[2] if not op.text.endswith("{") else ""
        semantics = _SEMANTICS.search(op.text) if kind == "atomic" else None
        found.append(
            TtgirSite(
                line=locations.line(op.location, file, known) if file is not None else None,
                kind=kind,
                operation=op.name,
                in_loop=op.loop is not None,
                waits_beside_dot=access is not None
                and access.kind == "load"
                and not access.is_async
                and access.rank > 1
                and access.loop in dot_loops,
                through_memory=ttgir.converts_through_memory(op),
                semantics=semantics[1] if semantics else None,
                detail=types[:DETAIL_CHARACTERS],
            )
        )
    return found


def _kind(op: ttgir.Operation) -> OperationKind | None:
    access = ttgir.access_of(op)
    if access is not None:
        return access.kind
    if op.name in ttgir.DOTS:
        return "dot"
    if op.name == "ttg.convert_layout":
        return "layout_conversion"
    if op.name in _REDUCTIONS:
        return "reduction"
    return "atomic" if op.name in _ATOMICS else None
