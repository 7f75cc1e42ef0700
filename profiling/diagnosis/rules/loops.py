"""P, second part: loops whose copies ahead are few, late, or made for nothing."""

import ast
from collections.abc import Callable
from typing import Final

from ..caused import caused, measured
from ..dots import accumulator, dot_line, looped_dots, looped_product, said, text_of, waiting
from ..edits import diff, replaced, with_argument
from ..expressions import reached
from ..facts import Facts
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, advice, seen, silenced
from ..source.kernel import Access, LiveKernel, Loop
from ..source.syntax import KernelFile, calls, keyword, language

COPY_BYTES: Final = 4
"""The least that one `cp.async` moves (PTX ISA)."""
_FALSIFIED: Final = "The profile shows little waiting for global memory (stall `long_scoreboard`): other warps hide it."


def _alone(facts: Facts) -> list[Hit]:
    """Loads in loops without a dot, where the profile shows that warps wait for them."""
    found = caused(facts, "stall_long_scoreboard")
    if found is None or facts.source is None or facts.lines is None or facts.count("async_copy", "tma_copy"):
        return []
    for access in facts.source.accesses:
        loop = access.place.loops[-1] if access.place.loops else None
        if access.kind != "load" or loop is None or loop.kind != "for" or loop.stages is not None or _nests(loop):
            continue
        if any(language(call) == "dot" for call in calls(loop.node)) or _is_indirect(access):
            continue
        sites = [site for site in facts.instructions_at(access.line) if site.kind == "load" and site.in_loop]
        tiles = [site for site in facts.operations_at(access.line) if site.kind == "load" and site.in_loop]
        if sites and tiles and min(site.width_bytes or 0 for site in sites) >= COPY_BYTES:
            told = "a load of a tile waits for its data in each step: nothing is copied ahead"
            code = seen(Level.CODE, told, access.line, "launch.async_copies", 0)
            return [Hit((measured(found, "stall_pct"), code), access.line)]
    return []


def _nests(loop: Loop) -> bool:
    """Whether a loop has another one in it."""
    return any(isinstance(each, ast.For | ast.While) and each is not loop.node for each in ast.walk(loop.node))


def _is_indirect(access: Access) -> bool:
    """Whether its address is loaded itself."""
    return any(factor.kind == "loaded" for term in access.address for factor in term)


def _staged(facts: Facts, hit: Hit) -> Rewrite:
    """`tl.range(..., num_stages=3)` in the place of the loop's range."""
    loops = [
        access.place.loops[-1]
        for access in (facts.source.accesses if facts.source is not None else ())
        if access.line == hit.line and access.place.loops
    ]
    edit = _ranged(facts.file, loops[0], "num_stages") if loops else None
    return Rewrite(
        recipe="Give the loop itself its stages: tl.range(..., num_stages=3). The launch's num_stages only counts for "
        "loops with a dot.",
        diff=edit,
        no_diff=None if edit else "the loop's range can't be edited safely",
    )


_GIVEN: Final = {"num_stages": "num_stages=3", "flatten": "flatten=True"}


def _ranged(file: KernelFile | None, loop: Loop, option: str) -> str | None:
    """A diff that makes a loop one over `tl.range` with an option that it doesn't have yet."""
    call = loop.call
    if file is None or call is None or language(call) != "range" or keyword(call, option) is not None:
        return None
    end = with_argument(file, call, _GIVEN[option])
    return diff(file, [replaced(call.func, "tl.range"), end]) if end is not None else None


def _nested(facts: Facts) -> list[Hit]:
    """A sum that two loops carry: between them it changes its layout, in each step of the outer one."""
    if facts.launch is None or facts.lines is None or facts.launch.mma != "wgmma" or facts.launch.warp_specialized:
        return []
    for call in looped_dots(facts.source):
        loops = [loop for loop in call.place.loops if loop.kind != "static_range"]
        if len(loops) < 2 or accumulator(call) is None:
            continue
        changes = sum(site.through_memory and site.in_loop for site in facts.operations_at(call.line))
        if changes:
            outer = loops[-2]
            source = seen(Level.SOURCE, "the sum of the dot is carried through two loops", outer.line)
            told = f"{changes} layout changes of it through shared memory in each step of the outer loop"
            now = facts.launch.layout_conversions_in_loops
            code = seen(Level.CODE, told, call.line, "launch.layout_conversions_in_loops", now)
            return [Hit((source, code), outer.line)]
    return []


def _flattened(facts: Facts, hit: Hit) -> Rewrite:
    """`flatten=True`, where the outer loop has nothing but the inner one: else the pipeline is lost with it."""
    edit = None
    for loop in facts.source.loops if facts.source is not None else ():
        if loop.line == hit.line and len(loop.node.body) == 1 and isinstance(loop.node.body[0], ast.For):
            edit = _ranged(facts.file, loop, "flatten")
    return Rewrite(
        recipe="Make one loop of the two, with indices from its one counter, or tl.range(..., flatten=True) where the "
        "outer loop does nothing else. Work that the outer loop does on the sum goes behind it, or into the operands.",
        diff=edit,
        no_diff=None if edit else "the outer loop has work of its own, which has to move",
    )


def _single(facts: Facts) -> list[Hit]:
    launch = facts.launch
    if launch is None or launch.pipeline_buffers != 1 or not facts.count("async_copy", "tma_copy", in_loop=True):
        return []
    # Products of single warps read operands into registers: with two stages one buffer is all they need.
    if looped_product(facts) is None or (launch.mma != "wgmma" and launch.num_stages <= 2):
        return []
    line = dot_line(facts)
    told = f"tiles are copied into a single buffer, with num_stages={launch.num_stages}: each copy is waited for"
    return [Hit((seen(Level.CODE, told, line, "launch.pipeline_buffers", 1),), line)]


def _by_remark(id: str) -> Callable[[Facts], list[Hit]]:
    """What the compiler itself said."""

    def detect(facts: Facts) -> list[Hit]:
        remark = facts.said(id)
        return [] if remark is None else [Hit(tuple(said(facts, id)), remark.line)]

    return detect


def _wrapped(facts: Facts) -> list[Hit]:
    """An index along K that a modulo recomputes in each step."""
    told = waiting(facts)
    if "P8" not in facts.observations or facts.source is None:
        return []
    for access in facts.source.accesses:
        here = [each for each in told if each.line == access.line]
        if access.kind != "load" or not here or not access.place.loops:
            continue
        text = _modulo(facts, facts.source, access)
        if text is not None:
            source = seen(Level.SOURCE, f"its address is computed by `{text}` in each step", access.line)
            return [Hit((source, *here, *said(facts, "load-too-narrow-to-pipeline", access.line)), access.line)]
    return []


def _modulo(facts: Facts, kernel: LiveKernel, access: Access) -> str | None:
    """The remainder in an access's address that is another one in each step of its loop."""
    loop = access.place.loops[-1]
    changing = set(loop.assigned)
    if isinstance(loop.node, ast.For) and isinstance(loop.node.target, ast.Name):
        changing.add(loop.node.target.id)
    for node in reached(kernel, keyword(access.call, "pointer", 0)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            within = reached(kernel, node.left)
            if any(isinstance(each, ast.Name) and each.id in changing for each in within):
                return text_of(facts, node)
    return None


P7: Final = Rule(
    id="P7",
    name="A loop without a dot is not pipelined by itself",
    example="for k in range(0, n, BLOCK):\n    total += tl.load(x + k)\n->\n"
    "for k in tl.range(0, n, BLOCK, num_stages=3):\n    total += tl.load(x + k)",
    level=Level.CODE,
    needs=frozenset({"source", "code", "lines", "profile"}),
    weight=48,
    detect=_alone,
    explain=lambda facts, hit: (
        "tritongpu-assign-latencies looks at loads that feed a dot; those of other loops it copies ahead only where "
        "the loop has a num_stages of its own."
    ),
    rewrite=_staged,
    predicts=lambda facts, hit: [Prediction(fact="launch.async_copies", now=0, expected="rises", to=1)],
    falsified_by="With stages the launch takes as long: other warps hid the latency already.",
    risks=("none to results; more shared memory",),
    explains=frozenset({"M3", "R3"}),
)
P11: Final = Rule(
    id="P11",
    name="A sum is carried through two loops",
    example="for tap in range(TAPS):\n    for k in range(0, K, BLOCK):\n        acc = tl.dot(...)\n->\n"
    "for step in range(TAPS * steps):\n    tap, k = step // steps, step % steps * BLOCK\n    acc = tl.dot(...)",
    level=Level.CODE,
    needs=frozenset({"source", "code", "lines"}),
    weight=68,
    detect=_nested,
    explain=lambda facts, hit: (
        "tritongpu-pipeline makes a pipeline of the inner loop only: it fills and drains in each step of the outer "
        "one, between whose steps the sum is kept in a layout that dots don't have, and goes through shared memory."
    ),
    rewrite=_flattened,
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.layout_conversions_in_loops",
            now=facts.launch.layout_conversions_in_loops if facts.launch else None,
            expected="becomes",
            to=0,
        )
    ],
    falsified_by="The inner loop is so long that what happens between two of them takes no time.",
    risks=("none to results, as long as nothing but the loops changes",),
    explains=frozenset({"L1", "M3", "R3"}),
)
P12: Final = Rule(
    id="P12",
    name="One buffer for all copies",
    example="kernel[grid](..., num_stages=2)\n->\nkernel[grid](..., num_stages=3)",
    level=Level.CODE,
    needs=frozenset({"code", "lines"}),
    weight=71,
    detect=_single,
    explain=lambda facts, hit: (
        "tritongpu-pipeline put one stage between the copy and its use, so that a tile's only buffer is free again "
        "just when the product is done: nothing overlaps."
    ),
    rewrite=advice(
        "Use each loaded tile at one place of the loop only, and num_stages=3 or more; else try another version of "
        "Triton.",
        "which use puts the stages together can't be told",
    ),
    predicts=lambda facts, hit: [Prediction(fact="launch.pipeline_buffers", now=1, expected="rises", to=2)],
    falsified_by=_FALSIFIED,
)
P13: Final = Rule(
    id="P13",
    name="One loaded tile in two layouts",
    example="x = a.load([row, k])\nacc = tl.dot(x, x, acc)   # fp8\n->\n"
    "x, y = a.load([row, k]), a_t.load([k, row])   # the transposed copy is made once\nacc = tl.dot(x, y.T, acc)",
    level=Level.COMPILER,
    needs=frozenset({"code", "remarks"}),
    weight=77,
    detect=_by_remark("load-with-two-layouts"),
    explain=lambda facts, hit: (
        "tritongpu-pipeline: what uses the tile wants it in different layouts. One gets it from the buffer; for the "
        "other it is read into registers and stored again, and the product waits."
    ),
    rewrite=advice(
        "Load the tile twice (the second comes from L1 or L2), each time as one consumer needs it; compute a sum of "
        "its rows by a dot with ones.",
        "only the algorithm tells which consumer may have another load",
    ),
    predicts=silenced("load-with-two-layouts"),
    falsified_by=_FALSIFIED,
    explains=frozenset({"T5", "T10"}),
)
P14: Final = Rule(
    id="P14",
    name="Tiles are copied ahead in registers",
    example="tl.load(b_ptr + k[:, None] * stride + n[None, :])   # 8 bits, used along K\n->\n"
    "tl.load(b_t_ptr + n[None, :] * stride + k[:, None])   # stored along K",
    level=Level.COMPILER,
    needs=frozenset({"code", "remarks"}),
    weight=75,
    detect=_by_remark("pipelined-through-registers"),
    explain=lambda facts, hit: (
        "tritongpu-pipeline: in the layout that the dot needs, fewer than 4 bytes lie side by side, and cp.async moves "
        "no fewer. The loads of later steps are kept in registers instead."
    ),
    rewrite=advice(
        "Store operands of 8 bits along K, so that nothing is transposed on the way, and keep addresses and masks "
        "aligned.",
        "the layout is chosen outside the kernel",
    ),
    predicts=silenced("pipelined-through-registers"),
    falsified_by=_FALSIFIED,
    explains=frozenset({"R1"}),
)
P15: Final = Rule(
    id="P15",
    name="An index that wraps around in each step",
    example="at = (start + k) % K\na = tl.load(a_ptr + m[:, None] * stride + at[None, :])\n->\n"
    "at = start + k\na = tl.load(a_ptr + m[:, None] * stride + at[None, :], mask=at[None, :] < K, other=0.0)",
    level=Level.COMPILER,
    needs=frozenset({"source", "code", "lines", "remarks"}),
    weight=81,
    detect=_wrapped,
    explain=lambda facts, hit: (
        "AxisInfo: of x % n only common divisors of both are known, so neighbours count as strangers, and the load is "
        "too narrow for cp.async."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Advance the pointers by a step, and mask the last tile instead of wrapping around; or pass a divisor "
        "that is divisible by 16.",
        applies_if="The index never goes around more than once, or the wrapped elements are not meant to count.",
        no_diff="whether wrapped elements are meant to count can't be told",
    ),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.sync_loads_beside_dots",
            now=facts.launch.sync_loads_beside_dots if facts.launch else None,
            expected="becomes",
            to=0,
        )
    ],
    falsified_by=_FALSIFIED,
    risks=("without the wrap, elements beyond the end are zeros",),
    explains=frozenset({"M3", "P8", "R3", "V10"}),
)

RULES: Final = (P15, P13, P14, P12, P11, P7)
