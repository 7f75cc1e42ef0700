"""L: layout changes, reductions and sorts that go through shared memory."""

import ast
import re
from collections.abc import Callable
from typing import Final

from ...compiler import ttgir
from ..caused import caused, line_of, measured
from ..dots import branch_within, given, is_product, looped_product
from ..edits import diff, launch_option, replaced
from ..expressions import calls_of, reached
from ..facts import Facts, Need
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, advice, seen
from ..source.kernel import LiveKernel, Place
from ..source.syntax import calls, keyword, language

WIDE_TILE: Final = 128 * 256
"""Elements of a sum with which one block per SM is normal: as fp32 it fills half of an SM's registers."""
SHORT_ROW: Final = 2048
"""Elements that two warps hold, `ROW_OF_THREAD` a thread; a judgement: what is longer may need its warps."""
ROW_OF_THREAD: Final = 32
"""Elements that one thread holds then at most, 1024 a warp: 8 accesses of 16 bytes in fp32."""
SORTED_BARRIERS: Final = 4
"""A sort of a block has one and more for each round between warps; a scan or a histogram has one or two."""
SHARED_STALLS: Final = frozenset({"short_scoreboard", "mio_throttle"})
"""What warps are in that wait for shared memory, or for room in its queue."""
_STATISTICS: Final = re.compile(r"tensor<(?:1x){0,7}(?:\d{1,9}x)?(?:1x){1,7}[a-z]|tensor<(?:1x){1,7}\d{1,9}x[a-z]")
"""One value for each row or column of a tile, such as the maxima of attention: too few to matter."""
_SORTS: Final = ("sort", "topk")
_NEEDS: Final[frozenset[Need]] = frozenset({"code", "lines"})


def _converted(facts: Facts) -> list[Hit]:
    found = [] if facts.lines is None else [site for site in facts.lines.ttgir if site.through_memory and site.in_loop]
    needed = {line: _has_to_be(facts, line) for line in {site.line for site in found}}
    found = [site for site in found if not needed[site.line] and not _STATISTICS.match(site.detail)]
    if not found or facts.launch is None:
        return []
    line, count = found[0].line, len(found)
    barriers = sum(site.count for site in facts.instructions("barrier") if site.in_loop and site.line == line)
    told = seen(
        Level.CODE,
        f"{count} layout changes through shared memory in a loop, with {barriers} barriers on the line",
        line,
        "launch.layout_conversions_in_loops",
        facts.launch.layout_conversions_in_loops,
    )
    return [Hit((told,), line)]


def _has_to_be(facts: Facts, line: int | None) -> bool:
    """Whether the line stores what products have made: after a loop of them, once in a while, or in each step."""
    for statement, place in facts.source.statements if facts.source is not None else []:
        if statement.lineno <= (line or 0) <= (statement.end_lineno or 0) and place.loops:
            around = place.loops[-1].node
            inner = [each for each in ast.walk(around) if isinstance(each, ast.For | ast.While) and each is not around]
            after = any(language(call) == "dot" for each in inner for call in calls(each))
            return after or _stores_product(facts.source, statement, place)
    return False


def _stores_product(kernel: LiveKernel | None, statement: ast.stmt, place: Place) -> bool:
    """Whether a statement stores what a dot of its loop has made, or stores in few steps only."""
    within = {id(each) for each in ast.walk(place.loops[-1].node)}
    for store in (call for call in calls(statement) if language(call) == "store"):
        made = calls_of(reached(kernel, keyword(store, "value", 1)), "dot") if kernel is not None else []
        if branch_within(place) is not None or any(id(dot) in within for dot in made):
            return True
    return False


def _reduced(facts: Facts) -> list[Hit]:
    """`s += tl.sum(x)` in a loop: a sum across threads in each step, where threads could keep their own."""
    if facts.source is None or facts.lines is None:
        return []
    for statement, place in facts.source.statements:
        if not place.loops or place.unrolled or not isinstance(statement, ast.AugAssign):
            continue
        if not isinstance(statement.value, ast.Call) or language(statement.value) != "sum":
            continue
        line = statement.lineno
        sites = [site for site in facts.lines.ptx if site.in_loop and site.line == line]
        shuffles, barriers = (sum(s.count for s in sites if s.kind == kind) for kind in ("shuffle", "barrier"))
        if not shuffles:
            continue  # the axis lies within a thread
        told = f"a reduction of {shuffles} shuffles and {barriers} barriers in each step"
        source = seen(Level.SOURCE, "a sum over threads is added up in a loop", line)
        return [Hit((source, seen(Level.CODE, told, line, "ptx.shuffle.in_loops", shuffles)), line)]
    return []


def _conflicts(facts: Facts) -> list[Hit]:
    found = caused(facts, "bank_conflicts")
    if found is None:
        return []
    line = line_of(found)
    sites = facts.instructions("shared_load", "shared_store")
    here = [site for site in sites if site.line == line] or sites
    if not here:
        return []
    kinds = ", ".join(dict.fromkeys(site.instruction for site in here))
    told = seen(Level.CODE, f"{sum(site.count for site in here)} instructions on shared memory: {kinds[:120]}", line)
    stalls = facts.profile.stalls if facts.profile is not None else ()
    waiting = sum(one.pct for one in stalls if one.reason in SHARED_STALLS) if stalls else None
    why = "" if waiting is None else f"warps wait {waiting:.0f} % of their time for shared memory, conflicts or not"
    return [Hit((measured(found, "bank_conflict_pct"), told), line, bound_pct=waiting, bound_why=why)]


def _transposed(facts: Facts) -> list[Hit]:
    """A dot of the transpose of another dot's result, which is stored and read again for it."""
    if facts.source is None or facts.launch is None:
        return []
    for call in facts.source.named("trans", "permute"):
        value = call.node.args[0] if call.node.args else None
        if not call.place.loops or not any(is_product(each) for each in given(facts.source, value)):
            continue
        stores = [s for s in facts.instructions_at(call.line) if s.kind == "shared_store" and s.in_loop]
        if stores:
            count = sum(site.count for site in stores)
            source = seen(Level.SOURCE, "the result of a dot is transposed in the loop", call.line)
            told = f"it is written to shared memory by {count} stores and read again"
            return [Hit((source, seen(Level.CODE, told, call.line)), call.line)]
    return []


def _beside_tiles(facts: Facts) -> list[Hit]:
    """Shared memory beside the pipeline's tiles that costs the second block on an SM."""
    launch, product = facts.launch, looped_product(facts)
    if launch is None or product is None or launch.blocks_per_sm != 1 or product.m * product.n >= WIDE_TILE:
        return []
    if "shared_memory" not in (launch.occupancy_limiter or "") or launch.shared_bytes_for_next_block is None:
        return []
    tiles = launch.pipeline_buffers * _copied_bytes(facts)
    if not 0 < tiles <= launch.shared_bytes_for_next_block < launch.shared_bytes:
        return []
    told = (
        f"{launch.shared_bytes} bytes of shared memory, of which the copied tiles take at most {tiles}; a second block "
        f"fits on an SM at {launch.shared_bytes_for_next_block}"
    )
    return [Hit((seen(Level.CODE, told, None, "launch.shared_bytes", launch.shared_bytes),))]


def _copied_bytes(facts: Facts) -> int:
    """Of all tiles that one step of the loops copies ahead: operands, and what they are computed from."""
    sites = facts.lines.ttgir if facts.lines is not None else []
    read = (ttgir.Operation(site.operation, site.detail, None, "") for site in sites if site.in_loop)
    copies = (access for operation in read if (access := ttgir.access_of(operation)) is not None)
    return sum(access.tile_bytes for access in copies if access.is_async and access.kind == "load")


def _across_warps(facts: Facts) -> list[Hit]:
    found, launch = caused(facts, "stall_barrier"), facts.launch
    if found is None or launch is None or launch.dots or (launch.elements_per_program_max or SHORT_ROW + 1) > SHORT_ROW:
        return []
    if launch.num_warps <= _warps_for(launch.elements_per_program_max):
        return []
    for site in facts.instructions("barrier"):
        line = site.line
        if line is not None and any(each.kind == "reduction" for each in facts.operations_at(line)):
            told = (
                f"{launch.num_warps} warps reduce {launch.elements_per_program_max} elements, by {site.count} barriers"
            )
            code = seen(Level.CODE, told, line, "launch.num_warps", launch.num_warps)
            return [Hit((measured(found, "stall_pct"), code), line)]
    return []


def _warps_for(elements: int | None) -> int:
    """Of a row so short that waiting for other warps takes longer than holding more of it."""
    return max(1, (elements or 0) // (32 * ROW_OF_THREAD))


def _fewer_warps(recipe: str, why: str) -> Callable[[Facts, Hit], Rewrite]:
    """Another num_warps, where the file says it once."""

    def rewrite(facts: Facts, hit: Hit) -> Rewrite:
        edit = None
        if facts.file is not None and facts.launch is not None:
            place = launch_option(facts.file, facts.captured.kernel, "num_warps", facts.launch.num_warps)
            wanted = str(_warps_for(facts.launch.elements_per_program_max))
            edit = diff(facts.file, [replaced(place, wanted)]) if place is not None else None
        return Rewrite(recipe=recipe, diff=edit, no_diff=None if edit else why)

    return rewrite


def _fewer_barriers(facts: Facts, hit: Hit) -> list[Prediction]:
    return [Prediction(fact="ptx.barrier", now=facts.count("barrier"), expected="falls")]


def _sorted(facts: Facts) -> list[Hit]:
    if facts.source is None or facts.launch is None:
        return []
    if facts.launch.num_warps <= _warps_for(facts.launch.elements_per_program_max):
        return []
    for call in facts.source.named(*_SORTS):
        sites = facts.instructions_at(call.line)
        barriers, shuffles = (sum(s.count for s in sites if s.kind == kind) for kind in ("barrier", "shuffle"))
        if barriers >= SORTED_BARRIERS:
            told = (
                f"tl.{call.name} is {shuffles} shuffles and {barriers} barriers of all {facts.launch.num_warps} warps"
            )
            return [Hit((seen(Level.CODE, told, call.line, "ptx.barrier", facts.count("barrier")),), call.line)]
    return []


L1: Final = Rule(
    id="L1",
    name="A layout change through shared memory in a loop",
    example="for ...:\n    tl.store(y + by_column, total)\n->\nfor ...: ...\ntl.store(y + by_column, total)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=59,
    detect=_converted,
    explain=lambda facts, hit: (
        "tritongpu-remove-layout-conversions could not do away with it: what is made in one layout "
        "is used in another. Each time it is stored, waited for, and loaded."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Do it once after the loop; keep one layout in the loop: take vectors as slices of the same tile, avoid "
        "transposes and reshapes of results.",
        no_diff="only the algorithm tells whether it may move",
    ),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.layout_conversions_in_loops",
            now=facts.launch.layout_conversions_in_loops if facts.launch else None,
            expected="falls",
        )
    ],
    falsified_by="The profile shows no waiting at barriers or for shared memory on the line.",
    # Its barrier stands between a step and the loads of the next.
    explains=frozenset({"L5", "P7"}),
)
L7: Final = Rule(
    id="L7",
    name="A sum across threads in each step",
    example="total = 0.0\nfor k in ...:\n    total += tl.sum(tl.load(x + k))\n->\npartial = "
    "tl.zeros((BLOCK,), tl.float32)\n"
    "for k in ...:\n    partial += tl.load(x + k)\ntotal = tl.sum(partial)",
    level=Level.CODE,
    needs=frozenset({"source", "code", "lines"}),
    weight=61,
    detect=_reduced,
    explain=lambda facts, hit: (
        "Each tl.sum across threads is a chain of shuffles, and across warps a store to shared memory, barriers and "
        "a load, before the step ends. tritongpu-optimize-thread-locality moves it behind the loop where the sum "
        "stands alone; here it did not."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Add up a tile of partial sums in the loop and reduce it once after.",
        no_diff="the tile's shape has to be named",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.shuffle.in_loops", now=facts.count("shuffle", in_loop=True), expected="falls")
    ],
    falsified_by="The profile shows waiting neither at barriers nor for shuffles (stalls `barrier`, "
    "`short_scoreboard`), nor for loads.",
    risks=("sums in another order round differently",),
)

L2: Final = Rule(
    id="L2",
    name="Bank conflicts in shared memory",
    example="tile = tl.trans(tl.load(x + rows[:, None] * S + columns[None, :]))   # fp32\n->\n"
    "tile = tl.load(x + rows[None, :] * S + columns[:, None])   # loaded as it is used",
    level=Level.CODE,
    needs=frozenset({"lines", "profile"}),
    weight=52,
    detect=_conflicts,
    explain=lambda facts, hit: (
        "Threads of a warp meet in the same banks, and their accesses are done one after the other. The layouts on "
        "both sides of the change through shared memory, which the compiler chooses by tile, warps and order, don't "
        "suit each other."
    ),
    rewrite=advice(
        "Avoid the layout change: load a tile in the order in which it is used, and transpose nothing but 16-bit "
        "operands of dots. Else change num_warps or the shape of the tile, or load by a tensor descriptor, and profile "
        "again.",
        "which layout the compiler chooses for another shape only compiling tells",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="Without conflicts the launch takes as long: shared memory is not what it waits for.",
)
L4: Final = Rule(
    id="L4",
    name="The result of a dot is transposed for another",
    example="s = tl.dot(a, b).to(tl.float16)\nacc = tl.dot(tl.trans(s), c, acc)\n->\n"
    "s_t = tl.dot(b_t, a_t).to(tl.float16)   # a and b are loaded transposed, which is free for 16 bits\n"
    "acc = tl.dot(s_t, c, acc)",
    level=Level.CODE,
    needs=frozenset({"source", "code", "lines"}),
    weight=57,
    detect=_transposed,
    explain=lambda facts, hit: (
        "A result lies in registers, and wgmma takes a first operand from there only as it lies: the transposed one is "
        "stored to shared memory, fenced and waited for in each step."
    ),
    rewrite=advice(
        "Compute the transposed product: tl.trans(tl.dot(a, b)) is tl.dot(b_t, a_t), and 16-bit operands may be loaded "
        "in either order.",
        "the loads of both operands have to be transposed with it",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.shared_store.in_loops", now=facts.count("shared_store", in_loop=True), expected="falls")
    ],
    falsified_by="The profile shows waiting neither for shared memory nor at barriers on the line.",
    explains=frozenset({"T14"}),
)
L5: Final = Rule(
    id="L5",
    name="Results staged in shared memory cost the second block",
    example="tl.store(c, acc)   # fp32\n->\ntl.store(c, acc.to(tl.bfloat16))",
    level=Level.CODE,
    needs=_NEEDS,
    weight=36,
    detect=_beside_tiles,
    explain=lambda facts, hit: (
        "To be stored in rows, results change their layout through shared memory. In or between loops that need their "
        "tiles meanwhile, that memory adds to the tiles'."
    ),
    rewrite=advice(
        "Store 16-bit results instead of fp32, in halves, or by a tensor descriptor; or lower num_stages by one.",
        "which of them is to give way is a choice",
    ),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.shared_bytes",
            now=facts.launch.shared_bytes if facts.launch else None,
            expected="falls",
            to=facts.launch.shared_bytes_for_next_block if facts.launch else None,
        )
    ],
    falsified_by="The tensor pipe is busy above 60 %: one block per SM is enough.",
    risks=("16-bit results are rounded",),
)
L6: Final = Rule(
    id="L6",
    name="A short row is reduced by many warps",
    example="row_kernel[(rows,)](..., num_warps=8)   # 1024 columns\n->\nrow_kernel[(rows,)](..., num_warps=1)",
    level=Level.CODE,
    needs=frozenset({"code", "lines", "profile"}),
    weight=49,
    detect=_across_warps,
    explain=lambda facts, hit: (
        "A reduction across warps goes through shared memory with two barriers; within a warp it is shuffles only."
    ),
    rewrite=_fewer_warps(
        "Use one warp for each 1024 columns or so, and several rows a program where programs get too short.",
        "num_warps is not said exactly once in the file",
    ),
    predicts=_fewer_barriers,
    falsified_by="With fewer warps the launch takes as long: it waits for memory at the barriers, not for the "
    "reduction.",
    risks=("sums in another order round differently",),
)
L8: Final = Rule(
    id="L8",
    name="A sort across warps",
    example="sort_kernel[(rows,)](..., num_warps=4)   # tl.sort of 1024\n->\nsort_kernel[(rows,)](..., num_warps=1)",
    level=Level.CODE,
    needs=frozenset({"source", "code", "lines"}),
    weight=33,
    detect=_sorted,
    explain=lambda facts, hit: (
        "tl.sort and tl.topk are bitonic: log2(n) * (log2(n) + 1) / 2 rounds of exchanges (55 for 1024 elements). "
        "Those between warps go through shared memory and barriers, those within one are shuffles."
    ),
    rewrite=_fewer_warps(
        "Sort up to some 1024 elements within one warp. For a few largest use tl.topk or a threshold found by "
        "counting; for long rows torch.sort or torch.topk, which sort by digits.",
        "num_warps is not said exactly once in the file",
    ),
    predicts=_fewer_barriers,
    falsified_by="The profile shows little waiting at barriers or for shared memory on the line.",
)
DROPPED: Final[dict[str, str]] = {
    "L3": "never a finding of its own: wgmma reads 16-bit operands in either order, so tl.trans of a load is free; one "
    "of 8 bits or tf32 that it turns away from K is told as T5.",
}
RULES: Final = (L7, L1, L4, L2, L6, L5, L8)
