"""What a kernel's machine code consists of, and which Python lines it comes from."""

from collections import Counter
from typing import Final, Literal, NamedTuple

from ...sandbox.wire import Wire
from . import sass, sass_flow, sass_liveness
from .sass import Instruction, SassKind

ROWS_LIMIT: Final = 1_000
LINES_SHOWN: Final = 3
LIVE_LINES_SHOWN: Final = 3
OPCODE_CHARACTERS: Final = 60

_MOVES_DATA: Final[dict[SassKind, tuple[str, str]]] = {
    "global_load": ("global", "load"),
    "global_store": ("global", "store"),
    "shared_load": ("shared", "load"),
    "shared_store": ("shared", "store"),
    "local_load": ("local", "load"),
    "local_store": ("local", "store"),
    "async_copy": ("global to shared", "async copy"),
}


class SassSite(Wire):
    """Instructions of one form on one line."""

    line: int | None
    """In the kernel file; null where the compiler does not say."""
    library: str | None
    """Place in Triton's library that was inlined there, such as `standard.py:293`; null for the kernel's own code."""
    kind: SassKind
    opcode: str
    width_bytes: int | None
    """That one thread moves by one instruction; null for kinds that move none, and for TMA."""
    in_loop: bool
    count: int
    """Instructions in the code, not executions."""
    live_registers: int | None
    """Most registers that hold a value at one of them."""


class SassAccess(Wire):
    """Loads, stores or copies of one width."""

    space: Literal["global", "shared", "local", "global to shared"]
    kind: Literal["load", "store", "async copy"]
    width_bytes: int
    count: int
    in_loops: int


class LoopLine(Wire):
    """A line's share of the code that is executed again and again."""

    line: int | None
    library: str | None
    instructions: int
    """In loops."""
    mix: dict[SassKind, int]
    """The three commonest kinds among them."""


class LocalLine(Wire):
    """A line's accesses to local memory, which lies in the same DRAM as global memory."""

    line: int | None
    library: str | None
    loads: int
    stores: int
    in_loop: bool


class LiveLine(Wire):
    """A line at which many registers hold a value."""

    line: int | None
    library: str | None
    live_registers: int


class SassFacts(Wire):
    """The machine code of one kernel. Counts are instructions in the code, not executions."""

    instructions: int
    """Without padding."""
    in_loops: int
    mix: dict[SassKind, int]
    mix_in_loops: dict[SassKind, int]
    accesses: list[SassAccess]
    """Of global, shared and local memory, TMA and atomics apart, the widest first."""
    loop_lines: list[LoopLine]
    """At most 3 lines, those with most instructions in loops first."""
    local_lines: list[LocalLine]
    """At most 3 lines that use local memory, those in loops first."""
    spills: bool | None
    """Whether local memory holds spilled registers, by ptxas' count; if false, it is an array's, such as of sine and
    cosine. Null where no local memory is used, or ptxas' log is missing."""
    live_registers: int | None
    """Most registers that hold a value at one instruction; ptxas may give the kernel a few more."""
    live_lines: list[LiveLine]
    """At most 3 lines with most of them; where registers limit occupancy or spill, these are to be relieved."""
    live_absent: str | None
    """Why `live_registers` is null."""
    library_instructions: int
    """That come from Triton's library, inlined."""
    without_line: int
    """That can't be attributed to one line of the kernel file."""


class SassDetails(NamedTuple):
    """Facts for a result, and the complete table for an artifact."""

    facts: SassFacts
    sites: list[SassSite]


class _Line(NamedTuple):
    line: int | None
    library: str | None


def read(text: str, ptx: str, spill_bytes: int | None) -> SassDetails | None:
    """Reads nvdisasm's output; None where it holds no instruction.

    Args:
        text: output of `nvdisasm -gi -c` for one kernel.
        ptx: of the same kernel.
        spill_bytes: as ptxas counts them.
    """
    code = sass.parse(text, ptx)
    if not code.instructions:
        return None
    flow = sass_flow.flow(code)
    looped, live = sass_flow.in_loops(flow), sass_liveness.live(code, flow)
    rows: Counter[SassSite] = Counter()
    most: dict[SassSite, int] = {}
    for number, (instruction, in_loop) in enumerate(zip(code.instructions, looped, strict=True)):
        site = _site(instruction, in_loop)
        rows[site] += 1
        if live.reason is None:
            most[site] = max(most.get(site, 0), live.counts[number])
    sites = [site.model_copy(update={"count": count, "live_registers": most.get(site)}) for site, count in rows.items()]
    local = _local_lines(sites)
    return SassDetails(
        SassFacts(
            instructions=len(code.instructions),
            in_loops=sum(looped),
            mix=_mix(sites),
            mix_in_loops=_mix([site for site in sites if site.in_loop]),
            accesses=_accesses(sites),
            loop_lines=_loop_lines(sites),
            local_lines=local[:LINES_SHOWN],
            spills=None if not local or spill_bytes is None else spill_bytes > 0,
            live_registers=max(live.counts, default=None),
            live_lines=_live_lines(sites),
            live_absent=live.reason,
            library_instructions=sum(site.count for site in sites if site.library is not None),
            without_line=sum(site.count for site in sites if site.line is None),
        ),
        sites[:ROWS_LIMIT],
    )


def _site(instruction: Instruction, in_loop: bool) -> SassSite:
    kind = sass.kind(instruction)
    return SassSite.model_construct(
        line=instruction.origin.line,
        library=instruction.origin.library,
        kind=kind,
        opcode=instruction.opcode[:OPCODE_CHARACTERS],
        width_bytes=sass.width_bytes(instruction) if kind in _MOVES_DATA or kind == "generic" else None,
        in_loop=in_loop,
        count=1,
        live_registers=None,
    )


def _mix(sites: list[SassSite]) -> dict[SassKind, int]:
    counts: Counter[SassKind] = Counter()
    for site in sites:
        counts[site.kind] += site.count
    return dict(counts.most_common())


def _accesses(sites: list[SassSite]) -> list[SassAccess]:
    counts: Counter[tuple[SassKind, int]] = Counter()
    looped: Counter[tuple[SassKind, int]] = Counter()
    for site in sites:
        if site.kind in _MOVES_DATA and site.width_bytes is not None:
            counts[site.kind, site.width_bytes] += site.count
            looped[site.kind, site.width_bytes] += site.count if site.in_loop else 0
    order = list(_MOVES_DATA)
    return [
        SassAccess.model_validate(
            {
                "space": _MOVES_DATA[kind][0],
                "kind": _MOVES_DATA[kind][1],
                "width_bytes": width,
                "count": counts[kind, width],
                "in_loops": looped[kind, width],
            }
        )
        for kind, width in sorted(counts, key=lambda key: (order.index(key[0]), -key[1]))
    ]


def _loop_lines(sites: list[SassSite]) -> list[LoopLine]:
    lines: dict[_Line, Counter[SassKind]] = {}
    for site in sites:
        if site.in_loop:
            lines.setdefault(_Line(site.line, site.library), Counter())[site.kind] += site.count
    ranked = sorted(lines.items(), key=lambda item: -item[1].total())
    return [
        LoopLine(line=at.line, library=at.library, instructions=mix.total(), mix=dict(mix.most_common(3)))
        for at, mix in ranked[:LINES_SHOWN]
    ]


def _local_lines(sites: list[SassSite]) -> list[LocalLine]:
    lines: dict[_Line, LocalLine] = {}
    for site in sites:
        if site.kind not in ("local_load", "local_store"):
            continue
        at = _Line(site.line, site.library)
        known = lines.get(at) or LocalLine(line=at.line, library=at.library, loads=0, stores=0, in_loop=False)
        lines[at] = LocalLine(
            line=at.line,
            library=at.library,
            loads=known.loads + (site.count if site.kind == "local_load" else 0),
            stores=known.stores + (site.count if site.kind == "local_store" else 0),
            in_loop=known.in_loop or site.in_loop,
        )
    return sorted(lines.values(), key=lambda found: (not found.in_loop, -found.loads - found.stores))


def _live_lines(sites: list[SassSite]) -> list[LiveLine]:
    lines: dict[_Line, int] = {}
    for site in sites:
        if site.live_registers is not None:
            at = _Line(site.line, site.library)
            lines[at] = max(lines.get(at, 0), site.live_registers)
    ranked = sorted(lines.items(), key=lambda item: -item[1])[:LIVE_LINES_SHOWN]
    return [LiveLine(line=at.line, library=at.library, live_registers=count) for at, count in ranked]
