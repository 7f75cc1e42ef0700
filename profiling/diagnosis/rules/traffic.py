"""M: how many bytes move, and whether they have to."""

import ast
from typing import Final

from ..caused import caused, line_of, measured
from ..facts import Facts
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, advice, seen
from ..source.form import Form
from ..source.host import is_cast, is_name, outputs, shown
from ..source.kernel import Access

_BETTER_NAMED: Final = frozenset(
    {"small_grid", "tail", "imbalance", "tiny_block", "spills", "uncoalesced_loads", "uncoalesced_stores"}
)
"""Causes that say more of what a launch waits for than that it waits."""
_SAID_BY_CAUSE: Final = frozenset({"spills", "uncoalesced_loads", "uncoalesced_stores"})
"""Causes that move bytes in vain, each with a finding of its own."""
_LEAST: Final = 2
"""Passes that a row which does not fit into registers takes: one for its sum, one for its results."""
_OF_MAXIMUM: Final = "compute maximum and sum in one pass, correcting the sum when the maximum grows"
_OF_SUMS: Final = (
    "take all sums in one pass, a variance beside its mean by Welford's update (the mean of squares less the squared "
    "mean loses digits where the mean is large)"
)
_OF_ANY: Final = "compute what is reduced in one pass"
_WELFORD: Final = (
    "for start in range(0, n, BLOCK):\n    total += tl.load(x + start + i)\nmean = tl.sum(total) / n\n"
    "for start in range(0, n, BLOCK):\n    off = tl.load(x + start + i) - mean\n    squares += off * off\n->\n"
    "for start in range(0, n, BLOCK):   # lane by lane: n = steps * BLOCK\n    part = tl.load(x + start + i)\n"
    "    off = part - means\n    steps += 1\n    means += off / steps\n    squares += off * (part - means)\n"
    "mean = tl.sum(means) / BLOCK\noff = means - mean\nsquare = tl.sum(squares) + steps * tl.sum(off * off)"
)


def _plain(address: Form) -> tuple[tuple[tuple[str, str], ...], ...] | None:
    """An address whatever its loop's variable is called; None where a part of it can't be read."""
    if any(each.kind == "unknown" for term in address for each in term):
        return None
    terms = (tuple(sorted((each.kind, "" if each.kind == "step" else each.text) for each in term)) for term in address)
    return tuple(sorted(terms))


def _words(node: ast.expr) -> tuple[object, ...]:
    """Equal for expressions that are written alike. (`ast.dump` may run out of stack.)"""
    return tuple(_word(each) for each in ast.walk(node))


def _word(node: ast.AST) -> object:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return type(node).__name__, name
        case ast.Constant(value=value):
            return "Constant", value
        case _:
            return type(node).__name__


def _passes(facts: Facts) -> list[Access]:
    """Loads of the same elements by one loop after another: the most of them.

    Products are left out: tiles that have to be read again are how those work that don't fit into registers.
    """
    if facts.source is None:
        return []
    found: dict[object, list[Access]] = {}
    written = {access.pointer for access in facts.source.accesses if access.kind != "load"}
    products = {id(loop.node) for call in facts.source.named("dot", "dot_scaled") for loop in call.place.loops}
    for access in facts.source.accesses:
        plain, loops = _plain(access.address), access.place.loops
        if access.kind != "load" or access.pointer in {None, *written} or plain is None or not loops:
            continue
        call = loops[-1].call
        if (
            call is None
            or id(loops[-1].node) in products
            or not any(kind == "step" for term in plain for kind, _ in term)
        ):
            continue
        branches = tuple((id(each.node), each.other) for each in access.place.branches)
        outer = (*(id(each.node) for each in loops[:-1]), *branches)
        same = found.setdefault((plain, tuple(map(_words, call.args)), outer), [])
        if all(each.place.loops[-1] is not loops[-1] for each in same):
            same.append(access)
    return max(found.values(), key=len, default=list[Access]())


def _read_again(facts: Facts) -> list[Hit]:
    extra, row = caused(facts, "extra_traffic"), _passes(facts)
    told = [measured(extra, "dram_bytes")] if extra is not None else []
    loaded = {site.line for site in (facts.lines.ttgir if facts.lines else ()) if site.kind == "load" and site.in_loop}
    if len(row) < _LEAST or any(access.line not in loaded for access in row):
        dots = facts.source.named("dot", "dot_scaled") if facts.source is not None else []
        said = not _SAID_BY_CAUSE.isdisjoint(each.id for each in facts.causes)
        return [Hit(tuple(told), subject=("0",))] if told and not dots and not said else []
    told.append(seen(Level.SOURCE, f"{len(row)} loops load the same elements of `{row[0].pointer}`", row[1].line))
    last = row[-1].place.loops[-1]
    stores = any(
        access.kind == "store" and last in access.place.loops
        for access in (facts.source.accesses if facts.source is not None else ())
    )
    if len(row) > _LEAST or not stores:
        told += [seen(Level.CODE, f"pass {n} loads them here", access.line) for n, access in enumerate(row, 1)]
    return [Hit(tuple(told), row[1].line, (str(len(row)),))]


def _fewer_loops(facts: Facts, hit: Hit) -> list[Prediction]:
    if hit.line is None or facts.launch is None:
        return []
    return [Prediction(fact="launch.loops", now=facts.launch.loops, expected="falls")]


def _read_once(facts: Facts, hit: Hit) -> Rewrite:
    """By what the kernel reduces: only a sum under a maximum has to be corrected."""
    source = facts.source
    largest = source is not None and bool(source.named("max", "maximum"))
    sums = source is not None and bool(source.named("sum")) and not largest and not source.named("min", "minimum")
    softmax = largest and source is not None and bool(source.named("exp", "exp2"))
    together = _OF_MAXIMUM if softmax else _OF_SUMS if sums else _OF_ANY
    return Rewrite(
        recipe="Keep the row in registers, where it fits (up to some 16,000 elements of 8 to 16 warps): load it once, "
        f"without a loop. Longer rows: {together}; two passes are the least if every element has a result. Fuse "
        "neighbouring kernels that read what this one writes.",
        example=_WELFORD if sums else "",
        no_diff="the loops have to be merged",
    )


def _late(facts: Facts) -> list[Hit]:
    found, stall = caused(facts, "latency_bound"), caused(facts, "stall_long_scoreboard")
    if found is None or stall is None or not _BETTER_NAMED.isdisjoint(each.id for each in facts.causes):
        return []
    if facts.launch is None or any(dot.in_loop for dot in facts.launch.dots):
        return []  # what keeps a product's loads from being copied ahead, the code tells
    return [Hit((measured(found, "memory_pct"), measured(stall, "stall_pct")), line_of(stall))]


def _scattered(facts: Facts, kind: str) -> list[Hit]:
    found = caused(facts, f"uncoalesced_{kind}s")
    if facts.floor is not None and facts.floor.reached and caused(facts, "extra_traffic") is None:
        return []  # device memory moves nothing in vain: what a sector has besides, L1 or L2 keeps for its neighbours
    return [] if found is None else [Hit((measured(found, f"{kind}_bytes_per_sector"),), line_of(found))]


def _stored_wide(facts: Facts) -> list[Hit]:
    if facts.file is None or facts.source is None:
        return []
    added = {access.pointer for access in facts.source.accesses if access.kind == "atomic"}
    for launch, parameter, name in outputs(facts.file, facts.source):
        if parameter in added or facts.captured.signature.get(parameter) != "*fp32":
            continue
        for call in launch.function.calls:
            on = call.func.value if isinstance(call.func, ast.Attribute) else None
            if call.lineno >= launch.call.lineno and on is not None and is_name(on, name) and is_cast(call):
                told = f"`{name}` is stored in fp32, and `{shown(facts.file, call)}` reads and writes it once more"
                return [Hit((seen(Level.SOURCE, told, call.lineno),), call.lineno, (name,))]
    return []


M1: Final = Rule(
    id="M1",
    name="The same data is read more than once",
    example="for start in range(0, n, BLOCK):\n    peak = tl.maximum(peak, tl.load(x + start + i))\n"
    "for start in range(0, n, BLOCK):\n    total += tl.exp(tl.load(x + start + i) - tl.max(peak))\n->\n"
    "for start in range(0, n, BLOCK):\n    part = tl.load(x + start + i)\n    new = tl.maximum(peak, part)\n"
    "    total = total * tl.exp(peak - new) + tl.exp(part - new)\n    peak = new",
    level=Level.CODE,
    needs=frozenset({"source", "lines"}),
    weight=54,
    detect=_read_again,
    explain=lambda facts, hit: (
        "Each pass loads the elements again: from device memory, unless they are still in L2."
        if hit.line is not None
        else "More bytes go to and from device memory than the work needs."
    ),
    rewrite=_read_once,
    predicts=_fewer_loops,
    falsified_by="The profile's bytes of device memory are what the work needs, and the time is too: L2 serves the "
    "later passes.",
    risks=("sums in another order round differently",),
    relieves="bytes",
)
M3: Final = Rule(
    id="M3",
    name="Too few bytes are under way to keep memory busy",
    example="kernel[grid](x, BLOCK=256)\n->\nkernel[grid](x, BLOCK=2048)   # or in a loop: tl.range(0, n, BLOCK, "
    "num_stages=4)",
    level=Level.PROFILE,
    needs=frozenset({"code", "profile"}),
    weight=31,
    detect=_late,
    explain=lambda facts, hit: (
        "Warps wait for their loads, and all that are resident together have asked for too little to fill the time: "
        "bandwidth times latency, on an H200 4.8 TB/s times some 800 ns, 29 KB for each SM."
    ),
    rewrite=advice(
        "Let each thread have more loads under way before it uses the first: a larger block, more warps, two rows a "
        "program, or num_stages=3 to 4 at the loop (tl.range).",
        "which of them fits only timing tells",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="With twice the block the time stays the same, at the same number of resident warps.",
)
M4: Final = Rule(
    id="M4",
    name="Loads use a part of each sector only",
    example="at = i * stride + row   # neighbours lie apart\n->\nat = row * stride + i   # neighbours lie side by side",
    level=Level.PROFILE,
    needs=frozenset({"profile"}),
    weight=58,
    detect=lambda facts: _scattered(facts, "load"),
    explain=lambda facts, hit: "Memory moves sectors of 32 bytes, whatever part of them a warp asks for.",
    rewrite=advice(
        "Let the tile's last axis run along the tensor's contiguous one; pass a stride that is 1 as the constant 1; "
        "load a gathered row whole.",
        "which axis is contiguous the profile does not tell",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="The line's other bytes are used by the same warp's next loads, from L1.",
    relieves="bytes",
)
M5: Final = Rule(
    id="M5",
    name="Stores fill a part of each sector only",
    example="tl.store(y + column * stride + row, tile)\n->\ntl.store(y + row * stride + column, tl.trans(tile))",
    level=Level.PROFILE,
    needs=frozenset({"profile"}),
    weight=57,
    detect=lambda facts: _scattered(facts, "store"),
    explain=lambda facts, hit: (
        "Memory moves sectors of 32 bytes: of one that is written in part L2 keeps a mask, and several passes write it."
    ),
    rewrite=advice(
        "Store along the contiguous axis, turning the tile before if need be; pad rows whose length is no multiple of "
        "32 bytes.",
        "which axis is contiguous the profile does not tell",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="Device memory writes no more bytes than the output has: L2 puts the parts together.",
    relieves="bytes",
)
M7: Final = Rule(
    id="M7",
    name="The output is stored in fp32 and narrowed afterwards",
    example="out = torch.empty(x.shape, dtype=torch.float32, device=x.device)\nkernel[grid](x, out)\n"
    "return out.to(x.dtype)\n->\nout = torch.empty_like(x)\nkernel[grid](x, out)   # tl.store converts to the "
    "pointer's type\nreturn out",
    level=Level.SOURCE,
    needs=frozenset({"source"}),
    weight=39,
    detect=_stored_wide,
    explain=lambda facts, hit: (
        "The conversion is a launch of its own: 4 bytes of each element are written and read where 2 had to be written."
    ),
    rewrite=advice(
        "Allocate the output in the type that is returned, and let the kernel's store convert.",
        "other uses of the wide output can't be excluded",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="The wide values are used elsewhere, or a later kernel adds to them.",
    relieves="bytes",
)

RULES: Final = (M4, M5, M1, M3, M7)
DROPPED: Final[dict[str, str]] = {
    "M2": "no rule: a diagnosis says so itself (`done`), where device memory is busy with nothing in vain",
    "M6": "no counter tells which data pushed which out of L2, and hints leave the code's counts as they are: only "
    "timing both versions tells whether they help",
}
"""Entries of the catalogue without a rule, and why."""
