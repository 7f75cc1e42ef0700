"""What a kernel's TTGIR says: tiles moved, dots, loops, pipelining.

TTGIR is Triton's GPU dialect, printed one operation a line. These are counts and shapes of operations in the
text; shapes are per program. The text comes from a worker and is not trusted: everything here takes time linear
in its length and raises nothing.
"""

import re
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

from ...sandbox.wire import Wire

# "%acc_108:3 = ttng.warp_group_dot_wait …", "tt.store …", "%m = "tt.reduce"(…) …"
_OPERATION = re.compile(r'(?:%[^=]+ = )?"?([a-z_]\w*(?:\.\w+)+)"?')
_POINTERS = re.compile(r"tensor<((?:\d{1,9}x){1,8})!tt\.ptr<(\w+)(?:, \d+)?>")
_DESCRIPTOR = re.compile(r"tensordesc<(?:tensor<)?((?:\d{1,9}x){1,8})(\w+)")
_VALUE = re.compile(r"(?:tensor|memdesc)<((?:\d{1,9}x){1,8})(\w+)")
_BUFFERS = re.compile(r"memdesc<(\d{1,9})x\d+x\d+(?:x\d+)*x[a-z]")
_RESULT = re.compile(r"-> (.*)$")
_PENDING = re.compile(r"\b(?:pendings|num) = (\d{1,9})\b")
_SWIZZLE = re.compile(r"#ttg\.nvmma_shared<\{swizzlingByteWidth = (\d{1,4})\b")
_BITS = re.compile(r"[a-z]+(\d{1,3})")

_LOADS = {"tt.load", "ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"}
_STORES = {"tt.store", "ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter"}
DOTS = {"tt.dot", "ttng.warp_group_dot", "ttng.tc_gen5_mma"}
_PICKS = {"ttg.memdesc_index", "ttg.memdesc_subview"}  # the second up to Triton 3.4
_LOOPS = {"scf.for", "scf.while"}


class Dot(Wire):
    """One matrix product of tiles."""

    m: int
    n: int
    k: int
    batch: int = 1
    """Above 1 for products of 3-D tiles, which no warp-group instruction takes."""
    a_dtype: str
    """As the compiler names it: f16, bf16, f32, f8E4M3FN, i8, …"""
    b_dtype: str
    accumulator_dtype: str
    precision: str | None
    """Of fp32 operands: `ieee` (no tensor cores) or `tf32`; null for other types."""
    in_loop: bool
    in_while: bool
    """In a `while` loop, which Triton never pipelines."""


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store of a tile in global memory."""

    kind: Literal["load", "store"]
    elements: int
    element_bytes: int
    rank: int
    is_async: bool
    by_tma: bool
    loop: int | None
    """Number of the innermost loop around it, in order of appearance."""

    @property
    def tile_bytes(self) -> int:
        return self.elements * self.element_bytes


@dataclass(frozen=True, slots=True)
class TtgirFacts:
    """Facts of one kernel's TTGIR."""

    accesses: tuple[Access, ...]
    dots: tuple[Dot, ...]
    loops: int
    buffers: int
    """Copies of a tile that the pipeliner keeps in shared memory: 0 without pipelining, else about num_stages."""
    async_copies_in_loops: int
    sync_loads_beside_dots: int
    """Loads of tiles (not of vectors) that wait for their data in the very loop that holds a dot."""
    layout_conversions: int
    """Without those that stay in registers: row statistics, and a dot's result fed to the next dot."""
    layout_conversions_in_loops: int
    """The same, of those in loops."""
    staged_in_loops: int
    """Tiles that loops write from registers to shared memory, as for a dot whose operand was computed or not copied
    ahead."""
    shared_loads_in_loops: int
    """Tiles that loops read from shared memory into registers."""
    dot_waits_in_loops: tuple[int, ...]
    """Of each wait for warp-group dots in a loop, how many may go on: 0 lets none overlap with the next."""
    copy_waits_in_loops: tuple[int, ...]
    """Of each wait for asynchronous copies in a loop, how many groups may stay in flight."""
    swizzles_bytes: tuple[int, ...]
    """Distinct widths of the patterns in which tiles for warp groups lie in shared memory; 128 is the widest."""
    descriptors_made: int
    """Tensor descriptors that the kernel writes itself, on the device."""
    warp_specialized: bool

    @property
    def pipelined(self) -> bool:
        """Whether some loop copies tiles ahead, asynchronously."""
        return self.async_copies_in_loops > 0

    def largest_access(self) -> Access | None:
        """The load or store with the most bytes."""
        return max(self.accesses, key=lambda access: access.tile_bytes, default=None)

    def largest_by_threads(self, kind: Literal["load", "store"]) -> Access | None:
        """The same of one kind, among those that threads carry out themselves, without TMA."""
        chosen = (access for access in self.accesses if access.kind == kind and not access.by_tma)
        return max(chosen, key=lambda access: access.tile_bytes, default=None)


class Loop(NamedTuple):
    """A loop, by its place in the order of appearance."""

    number: int
    kind: str


class Operation(NamedTuple):
    """One operation: the line of text that it starts with."""

    name: str
    text: str
    loop: Loop | None
    """The innermost loop around it."""
    location: str
    """What stands in its `loc(…)`, unresolved; empty where there is none."""


def parse(ttgir: str) -> TtgirFacts:
    """Reads the TTGIR of one kernel, after Triton's last pass over it."""
    found = operations(ttgir)
    placed_dots = [(dot, op) for op in found if op.name in DOTS and (dot := _dot(op))]
    accesses = tuple(access for op in found if (access := access_of(op)))
    dot_loops = {op.loop.number for _, op in placed_dots if op.loop}
    looped = [op for op in found if op.loop]
    return TtgirFacts(
        accesses=accesses,
        dots=tuple(dot for dot, _ in placed_dots),
        loops=sum(op.name in _LOOPS for op in found),
        buffers=max((_buffers(op) for op in found), default=0),
        async_copies_in_loops=sum(
            access.is_async and access.kind == "load" and access.loop is not None for access in accesses
        ),
        sync_loads_beside_dots=sum(
            access.kind == "load" and not access.is_async and access.rank > 1 and access.loop in dot_loops
            for access in accesses
        ),
        layout_conversions=sum(converts_through_memory(op) for op in found),
        layout_conversions_in_loops=sum(converts_through_memory(op) for op in looped),
        staged_in_loops=sum(_stages(op) for op in looped),
        shared_loads_in_loops=sum(op.name == "ttg.local_load" for op in looped),
        dot_waits_in_loops=_pending(looped, "ttng.warp_group_dot_wait"),
        copy_waits_in_loops=_pending(looped, "ttg.async_wait"),
        swizzles_bytes=tuple(dict.fromkeys(int(width) for width in _SWIZZLE.findall(ttgir))),
        descriptors_made=sum(op.name == "ttng.tensormap_create" for op in found),
        warp_specialized=any(op.name == "ttg.warp_specialize" for op in found),
    )


def operations(ttgir: str) -> list[Operation]:
    """Walks the lines, keeping track of the innermost loop around each.

    An operation with regions has its location behind the last one's closing brace.
    """
    found: list[Operation] = []
    regions: list[tuple[Loop | None, int | None]] = []
    loops = 0
    for line in ttgir.splitlines():
        text, location = _without_location(line.strip())
        if text.startswith("}"):
            closed = regions.pop() if regions else (None, None)
            if text.endswith("{"):  # "} do {" goes on with the same loop, "} else {" with the same branch
                regions.append(closed)
            elif closed[1] is not None:
                found[closed[1]] = found[closed[1]]._replace(location=location)
            continue
        around = regions[-1][0] if regions else None
        match = _OPERATION.match(text)
        if match:
            found.append(Operation(match[1], text, around, location))
        if text.endswith("{"):
            if match and match[1] in _LOOPS:
                around = Loop(loops, match[1])
                loops += 1
            regions.append((around, len(found) - 1 if match else None))
    return found


def _without_location(text: str) -> tuple[str, str]:
    if not text.endswith(")"):
        return text, ""
    return text.partition(" loc(")[0], text.rpartition(" loc(")[2][:-1]


def access_of(op: Operation) -> Access | None:
    """The load or store of a tile that an operation is, if it is one."""
    kind = "load" if op.name in _LOADS else "store" if op.name in _STORES else None
    tile = _POINTERS.search(op.text) or _DESCRIPTOR.search(op.text)
    if kind is None or tile is None:
        return None
    shape = _shape(tile[1])
    return Access(
        kind=kind,
        elements=prod(shape),
        element_bytes=_element_bytes(tile[2]),
        rank=len(shape),
        is_async=".async_" in op.name,
        by_tma=".async_tma_" in op.name,
        loop=op.loop.number if op.loop else None,
    )


def _dot(op: Operation) -> Dot | None:
    """The types stand in the same order in all three spellings: a, b, then the result or the accumulator."""
    values = [(_shape(match[1]), match[2]) for match in _VALUE.finditer(op.text)]
    if len(values) < 3:
        return None
    (a, a_dtype), (b, b_dtype), (_, accumulator_dtype) = values[:3]
    if len(a) < 2 or len(b) < 2:
        return None
    # tt.dot prints its precision unless it is IEEE; the other two exist for tensor cores only.
    ieee = op.name == "tt.dot" and "inputPrecision" not in op.text
    return Dot(
        m=a[-2],
        n=b[-1],
        k=a[-1],
        batch=prod(a[:-2]),
        a_dtype=a_dtype,
        b_dtype=b_dtype,
        accumulator_dtype=accumulator_dtype,
        precision=("ieee" if ieee else "tf32") if a_dtype == "f32" else None,
        in_loop=op.loop is not None,
        in_while=op.loop is not None and op.loop.kind == "scf.while",
    )


def _buffers(op: Operation) -> int:
    """Leading dimension of the buffer that a loop picks a tile from."""
    match = _BUFFERS.search(op.text) if op.name in _PICKS else None
    return int(match[1]) if match else 0


def _stages(op: Operation) -> bool:
    """Whether an operation writes a tile to shared memory: an allocation that has contents, or a store."""
    return op.name == "ttg.local_store" or (op.name == "ttg.local_alloc" and "local_alloc %" in op.text)


def _pending(found: list[Operation], name: str) -> tuple[int, ...]:
    """What each wait of a kind leaves unfinished."""
    waits = (_PENDING.search(op.text) for op in found if op.name == name)
    return tuple(int(match[1]) for match in waits if match)


def converts_through_memory(op: Operation) -> bool:
    """Whether an operation is a layout conversion that goes through shared memory."""
    result = _RESULT.search(op.text) if op.name == "ttg.convert_layout" else None
    return result is not None and "#ttg.slice" not in result[1] and "#ttg.dot_op" not in result[1]


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.rstrip("x").split("x"))


def _element_bytes(dtype: str) -> int:
    match = _BITS.match(dtype)
    return max(int(match[1]) // 8, 1) if match else 1
