"""V: tiles whose shape or types keep accesses narrow, or apart from each other."""

import re
from typing import Final

from ...compiler.occupancy import WARP_THREADS
from ...ncu.waste import CONFLICTS_PCT
from ..expressions import reached
from ..facts import Facts, Need
from ..model import Level, Prediction, Rewrite
from ..narrow import Narrow, evidence, narrow_accesses, tile_of, wider
from ..rule import Hit, Rule, advice, seen
from ..source.form import Term, lanes_of

_NEEDS: Final[frozenset[Need]] = frozenset({"source", "code", "lines"})
_CONVERTED: Final = re.compile(r"tensor<((?:\d{1,9}x){1,8})[a-z]{1,4}(\d{1,3}), ")
_BYTES: Final = frozenset({"*u1", "*i1", "*i8", "*u8"})
_REDUCTIONS: Final = ("sum", "max", "min", "reduce", "argmax", "argmin", "xor_sum")
_WORD_BYTES: Final = 4
"""Elements beside the bytes are at least as wide."""
_LEAST_WIDTH_BYTES: Final = 16


def _small(facts: Facts) -> list[Hit]:
    found = facts.observations.get("V6")
    if found is None or facts.launch is None:
        return []
    line = None
    if facts.lines is not None:
        accesses = [site for site in facts.lines.ttgir if site.kind in ("load", "store") and site.line is not None]
        line = accesses[0].line if accesses else None
    tile = facts.launch.elements_per_program_max
    return [Hit((seen(Level.CODE, found.detail, line, "launch.elements_per_program_max", tile),), line)]


def _thin(facts: Facts) -> list[Hit]:
    """The tile's fastest axis ends before 16 bytes."""
    hits: list[Hit] = []
    for one in narrow_accesses(facts):
        run_bytes = (one.run_elements or 0) * one.element_bytes
        if one.obstacles or one.width_bytes != run_bytes:
            continue
        line = one.access.line
        why = f"condition of the pass tritongpu-coalesce: the tile's fastest axis has {one.run_elements} elements, "
        told = seen(Level.COMPILER, f"{why}{run_bytes} bytes, and a thread moves no more at once", line)
        hits.append(Hit((*evidence(facts, one), told), line))
    return sorted(hits, key=lambda hit: hit.line or 0)[:1]


def _columns(facts: Facts) -> list[Hit]:
    """A program reduces a column: its elements lie apart, and those of the next program beside them."""
    if facts.source is None or not any(site.kind == "reduction" for site in (facts.lines.ttgir if facts.lines else ())):
        return []
    reduced = {
        id(node)
        for call in facts.source.named(*_REDUCTIONS)
        for node in reached(facts.source, *call.node.args, *(each.value for each in call.node.keywords))
    }
    for one in narrow_accesses(facts):
        apart = next((each for each in one.obstacles if each.reason in ("stride", "pairs")), None)
        if apart is not None and id(one.access.call) in reduced and _next_to_each_other(one):
            beside = seen(
                Level.SOURCE, "neighbouring programs, not threads, read neighbouring elements", one.access.line
            )
            return [Hit((beside, *evidence(facts, one, apart)), one.access.line)]
    return []


def _next_to_each_other(one: Narrow) -> bool:
    """Whether the address is the program's own number plus lanes of a single axis times something."""
    lanes = [found for term in one.access.address if (found := lanes_of(term)) is not None]
    return all(each.axis is None for each in lanes) and any(_is_program(term) for term in one.access.address)


def _is_program(term: Term) -> bool:
    return [each.kind for each in term if each.number != 1] == ["program"]


def _turned(facts: Facts) -> list[Hit]:
    """A copy that changes the fast axis, where the profile sees its passes collide in shared memory."""
    profile = facts.profile
    if profile is None or facts.lines is None or facts.launch is None or facts.launch.dots:
        return []
    conflicts = profile.bank_conflict_pct
    sites = [site for site in facts.lines.ttgir if site.through_memory and not site.in_loop]
    turned = [site for site in sites if (match := _CONVERTED.search(site.detail)) and match[1].count("x") > 1]
    if not turned or conflicts is None or conflicts < CONFLICTS_PCT:
        return []
    line, stores, loads = turned[0].line, facts.count("shared_store"), facts.count("shared_load")
    told = f"the tile goes through shared memory, by {stores} stores and {loads} loads a thread"
    measured = seen(Level.PROFILE, f"{conflicts:.0f} % of the passes through it are bank conflicts", line)
    return [Hit((measured, seen(Level.CODE, told, line, "ptx.shared_store", stores)), line)]


def _bytes_beside(facts: Facts) -> list[Hit]:
    """A tile of bytes beside one of words: each wants a layout of its own, and the words are taken from one to the
    other."""
    if facts.source is None or facts.lines is None or facts.launch is None or facts.launch.dots:
        return []
    for access in facts.source.accesses:
        if access.kind != "load" or facts.captured.signature.get(access.pointer or "") not in _BYTES:
            continue
        tiles = [tile for site in facts.operations_at(access.line) if (tile := tile_of(site, "load"))]
        of_bytes = next((tile for tile in tiles if tile.element_bytes == 1), None)
        if of_bytes is None:
            continue
        for site in facts.lines.ttgir:
            match = _CONVERTED.search(site.detail) if site.through_memory and not site.in_loop else None
            shape = tuple(int(size) for size in match[1].rstrip("x").split("x")) if match is not None else ()
            if match is None or shape != of_bytes.shape or int(match[2]) < 8 * _WORD_BYTES:
                continue
            barriers = sum(each.count for each in facts.instructions_at(site.line or 0) if each.kind == "barrier")
            told = f"line {site.line}: a tile of {of_bytes.elements} words changes its layout through shared memory, "
            return [
                Hit(
                    (
                        seen(Level.SOURCE, f"`{access.pointer}` has elements of one byte", access.line),
                        seen(
                            Level.CODE,
                            f"{told}with {barriers} barriers",
                            access.line,
                            "ptx.shared_store",
                            facts.count("shared_store"),
                        ),
                    ),
                    access.line,
                )
            ]
    return []


def _fours(facts: Facts) -> int:
    """Elements of a block in which a thread has one vector of words."""
    return (facts.launch.num_warps if facts.launch else 4) * WARP_THREADS * _LEAST_WIDTH_BYTES // _WORD_BYTES


V6: Final = Rule(
    id="V6",
    name="Block too small for its threads",
    example="kernel[(n // 128,)](x, y, BLOCK=128)\n->\nkernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)",
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=70,
    detect=_small,
    explain=lambda facts, hit: (
        "tritongpu-coalesce gives a thread at most its share of the tile, and that is less than "
        "16 bytes; no pass says so."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe=facts.observations["V6"].suggestion,
        no_diff="the grid has to follow the block",
    ),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.elements_per_program_max",
            now=facts.launch.elements_per_program_max if facts.launch else None,
            expected="rises",
        )
    ],
    falsified_by="With a larger block the launch takes as long: starting it, or waiting for memory, costs more.",
    risks=("a grid that is not adapted covers the wrong elements",),
    explains=frozenset({"M3", "R3"}),
)
V7: Final = Rule(
    id="V7",
    name="The tile's fast axis is shorter than 16 bytes",
    example="at = rows[:, None] * stride + tl.arange(0, 2)[None, :]   # 256 rows\n->\n"
    "at = rows[:, None] * stride + tl.arange(0, 8)[None, :]   # 64 rows",
    level=Level.CODE,
    needs=_NEEDS,
    weight=79,
    detect=_thin,
    explain=lambda facts, hit: (
        "tritongpu-coalesce makes an access no wider than the run of neighbours that the tile has: where the row of "
        "the tile ends, the next element lies a stride away."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Give the fast axis at least 16 bytes (4 elements of fp32, 8 of fp16) and the other axis less. Where "
        "the tensor itself has so few columns and its rows lie side by side, load it as one run and part it in "
        "registers: tl.reshape and tl.split.",
        no_diff="grid and tile have to change together",
    ),
    predicts=lambda facts, hit: wider(facts, hit.line),
    falsified_by="With a longer fast axis the launch takes as long: it waits for something else.",
    risks=("a grid that is not adapted covers the wrong elements",),
    explains=frozenset({"P8", "M3", "R3"}),
    explains_here=frozenset({"V13"}),
)
V12: Final = Rule(
    id="V12",
    name="A transposing copy collides in shared memory",
    example="BLOCK = 64   # tile of (64, 64), bank conflicts 40 %\n->\nBLOCK = 32   # tile of (32, 32): time both",
    level=Level.PROFILE,
    needs=frozenset({"code", "lines", "profile"}),
    weight=43,
    detect=_turned,
    explain=lambda facts, hit: (
        "Loads and stores run along different axes. The compiler keeps both wide and turns the tile in shared memory, "
        "where threads of one warp meet the same bank."
    ),
    rewrite=advice(
        "Try other tiles and num_warps and compare the conflicts; or write the tensor in the order in which it is "
        "read next, so that nothing has to be turned.",
        "which shape meets different banks has to be measured",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="With fewer bank conflicts the launch takes as long: device memory is what it waits for.",
    explains=frozenset({"L2"}),
)
V14: Final = Rule(
    id="V14",
    name="Truths or bytes beside wider elements force a change of layout",
    example="kernel[(n // 1024,)](x, keep, y, BLOCK=1024)   # keep: torch.bool, x: fp32\n->\n"
    "kernel[(n // 512,)](x, keep, y, BLOCK=512)   # 4 elements a thread, for both",
    level=Level.CODE,
    needs=_NEEDS,
    weight=38,
    detect=_bytes_beside,
    explain=lambda facts, hit: (
        "tritongpu-coalesce gives a thread up to 16 neighbours of a byte each, but 4 of a word: the layouts differ, "
        "and the wider tile is carried from one to the other through shared memory."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe=f"Use a block of {_fours(facts)} elements at this num_warps, in which a thread has 4 elements of both; "
        "or keep the truths as bits of int32 words, or in elements as wide as those beside them if they are few.",
        no_diff="the grid has to follow the block",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.shared_store", now=facts.count("shared_store"), expected="falls")
    ],
    falsified_by="Without the change of layout the launch takes as long: other warps covered it.",
    risks=("a grid that is not adapted covers the wrong elements",),
)
V15: Final = Rule(
    id="V15",
    name="A program reduces one column: its threads lie along the slow axis",
    example="s = tl.sum(tl.load(x + tl.arange(0, 1024) * stride + tl.program_id(0)))\n->\n"
    "columns = tl.program_id(0) * 32 + tl.arange(0, 32)\n"
    "s = tl.sum(tl.load(x + tl.arange(0, 1024)[:, None] * stride + columns[None, :]), 0)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=84,
    detect=_columns,
    explain=lambda facts, hit: (
        "Each element of the column is a sector of 32 bytes of its own, and the rest of the sector belongs to other "
        "programs: the data moves up to 8 times (fp32), as far as caches don't keep it."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Give a program a tile of neighbouring columns, at least 32 bytes of them, with the contiguous axis "
        "last, and reduce over axis 0; loop over the rows if the tile gets too large.",
        no_diff="grid, tile and store have to change together",
    ),
    predicts=lambda facts, hit: wider(facts, hit.line),
    falsified_by="The profile's bytes per sector of loads are near 32.",
    risks=("sums in another order round differently",),
    explains=frozenset({"M3", "M4", "R3"}),
    explains_here=frozenset({"V4", "V9"}),
    relieves="bytes",
)
