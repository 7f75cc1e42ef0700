"""T, second part: products of warp groups that can't overlap with one another, or are too small."""

import ast
from collections.abc import Callable
from typing import Final

from ..caused import caused, measured
from ..dots import (
    accumulator,
    dot_line,
    element_bytes,
    given,
    innermost,
    is_computed_load,
    is_running,
    lone,
    looped_dots,
    looped_product,
    operands,
    said,
    text_of,
)
from ..edits import Edit, diff, with_argument
from ..facts import Facts
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, advice, seen, silenced
from ..source.syntax import calls, keyword, language

WIDEST_PATTERN_BYTES: Final = 128
"""The widest pattern in which wgmma reads tiles from shared memory (PTX ISA, asynchronous warpgroup matrix layouts)."""
SMALL_TILE: Final = 128 * 128
"""Elements of the largest fp32 sum that one warp group holds beside the rest: 128 registers of each of 128 threads."""
_INJECTED: Final = ("C7514", "C7517")
_OVERLAP: Final = "The profile shows no waiting for products (stall `gmma`): other warps fill the gaps already."


def _by_groups(facts: Facts) -> bool:
    """Whether warp groups multiply at all: other products never overlap."""
    return facts.launch is not None and facts.launch.mma == "wgmma"


def _synchronous(id: str, lines: Callable[[Facts], int | None]) -> Callable[[Facts], list[Hit]]:
    """A refusal to overlap products, in loops with a single one."""

    def detect(facts: Facts) -> list[Hit]:
        if not _by_groups(facts) or facts.said(id) is None or not lone(facts):
            return []
        line = lines(facts) or dot_line(facts)
        told = said(facts, id, line)
        if line is not None and line != dot_line(facts):
            told.insert(0, seen(Level.SOURCE, "the sum is touched here, in the loop of the dot", line))
        return [Hit(tuple(told), line)]

    return detect


def _used(facts: Facts) -> list[Hit]:
    """Of sums that a loop carries: what is no sum, such as scores, can't be used after the loop."""
    kernel = facts.source
    if kernel is None or not any(is_running(kernel, call) for call in looped_dots(kernel)):
        return []
    return _synchronous("dot-result-used-in-loop", _used_line)(facts)


def _changed(facts: Facts) -> list[Hit]:
    """Not of sums that are only stored in each step, as states are."""
    if looped_dots(facts.source) and _changed_line(facts) is None:
        return []
    return _synchronous("accumulator-changed-in-loop", _changed_line)(facts)


def _changed_line(facts: Facts) -> int | None:
    """Where the accumulator is changed by something other than the dot."""
    for call in looped_dots(facts.source):
        name, loop = accumulator(call), innermost(call)
        for statement, place in facts.source.statements if facts.source is not None else []:
            target = getattr(statement, "target", None) or next(iter(getattr(statement, "targets", [])), None)
            touches = isinstance(target, ast.Name) and target.id == name
            if touches and loop in place.loops and not any(language(each) == "dot" for each in calls(statement)):
                return statement.lineno
    return None


def _used_line(facts: Facts) -> int | None:
    """Where the product is used in its loop."""
    for call in looped_dots(facts.source):
        name, loop = accumulator(call), innermost(call)
        for statement, place in facts.source.statements if facts.source is not None else []:
            reads = any(
                isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(statement)
            )
            if reads and loop in place.loops and statement is not call.place.statement:
                return statement.lineno
    return None


def _computed(facts: Facts) -> list[Hit]:
    if not _by_groups(facts) or facts.said("dot-waits-for-operands") is None or facts.source is None:
        return []
    for call in looped_dots(facts.source):
        _, second = operands(call)
        for value in given(facts.source, second):
            if is_computed_load(value):
                told = seen(Level.SOURCE, f"the second operand is computed: `{text_of(facts, value)}`", call.line)
                return [Hit((told, *said(facts, "dot-waits-for-operands", call.line)), call.line)]
    return []


def _added(facts: Facts) -> list[Hit]:
    """`total += tl.dot(a, b)` of fp8: for 16-bit types it is the same code as passing the sum."""
    if facts.launch is None or not _by_groups(facts) or facts.said("dot-result-used-in-loop") is None:
        return []
    if not any(dot.in_loop and dot.a_dtype.startswith("f8") for dot in facts.launch.dots):
        return []
    for call in looped_dots(facts.source):
        if _sum_of(call.place.statement, call.node) is not None and keyword(call.node, "acc", 2) is None:
            told = seen(Level.SOURCE, "an fp8 product is added to the sum, outside of the dot", call.line)
            return [Hit((told, *said(facts, "dot-result-used-in-loop", call.line)), call.line)]
    return []


def _sum_of(statement: ast.stmt, product: ast.Call) -> ast.AugAssign | None:
    """The statement, if it is `name += product`."""
    match statement:
        case ast.AugAssign(target=ast.Name(), op=ast.Add(), value=value) if value is product:
            return statement
        case _:
            return None


def _passed(facts: Facts, hit: Hit) -> Rewrite:
    """`total = tl.dot(a, b, acc=total)` in its place."""
    edit = None
    for call in looped_dots(facts.source):
        adding = _sum_of(call.place.statement, call.node)
        if facts.file is None or adding is None or not isinstance(adding.target, ast.Name) or call.line != hit.line:
            continue
        name, value = adding.target, adding.value
        start = Edit(name.lineno, name.col_offset, value.lineno, value.col_offset, f"{name.id} = ")
        end = with_argument(facts.file, call.node, f"acc={name.id}")
        edit = diff(facts.file, [start, end]) if end is not None else None
    return Rewrite(
        recipe="Pass the sum to the dot: total = tl.dot(a, b, total).",
        diff=edit,
        no_diff=None if edit else "the statement could not be found again",
    )


def _injected(facts: Facts) -> list[Hit]:
    """Not C7515 alone: ptxas notes it of loops whose products do overlap. In attention one product waits for another
    anyway."""
    if not _by_groups(facts) or facts.launch is None or not lone(facts):
        return []
    note = next((note for note in facts.launch.ptxas_notes if any(code in note for code in _INJECTED)), None)
    if note is None:
        return []
    line = dot_line(facts)
    return [Hit((seen(Level.COMPILER, f"ptxas: {note[:200]}", line),), line)]


def _small(facts: Facts) -> list[Hit]:
    """A small sum, where the profile shows that warps wait for products."""
    found, product = caused(facts, "stall_gmma"), looped_product(facts)
    if found is None or product is None or facts.profile is None or not _by_groups(facts):
        return []
    if product.m * product.n >= SMALL_TILE:
        return []
    line = dot_line(facts)
    told = f"the sum of a block is {product.m}x{product.n}; tensor cores are {facts.profile.tensor_pct or 0:.0f} % busy"
    return [Hit((measured(found, "stall_pct"), seen(Level.CODE, told, line)), line)]


def _short(facts: Facts) -> list[Hit]:
    """Steps along K that are shorter than shared memory's pattern, where shared memory has room for longer ones."""
    product = looped_product(facts)
    if product is None or not _by_groups(facts) or facts.launch is None:
        return []
    if facts.launch.sync_loads_beside_dots or facts.launch.spill_bytes:
        return []  # first things first
    width = product.k * element_bytes(product.a_dtype)
    more = facts.launch.pipeline_buffers * (product.m + product.n) * width
    if width >= WIDEST_PATTERN_BYTES or facts.launch.shared_bytes + more > facts.target.limits.shared_bytes_per_block:
        return []
    line = dot_line(facts)
    told = f"a step multiplies {product.k} along K: {width} bytes, of the {WIDEST_PATTERN_BYTES} of the widest pattern"
    return [Hit((seen(Level.CODE, told, line),), line)]


def _longer(facts: Facts, hit: Hit) -> list[Prediction]:
    now = facts.count("mma", in_loop=True)
    return [Prediction(fact="ptx.mma.in_loops", now=now, expected="rises", to=2 * now)]


T7: Final = Rule(
    id="T7",
    name="The sum is not fp32: products don't overlap",
    example="acc = tl.zeros((M, N), tl.float16)\n->\nacc = tl.zeros((M, N), tl.float32)   # .to(tl.float16) "
    "after the loop",
    level=Level.COMPILER,
    needs=frozenset({"code", "remarks"}),
    weight=58,
    explains=frozenset({"T14"}),
    detect=_synchronous("accumulator-not-fp32", dot_line),
    explain=lambda facts, hit: (
        "triton-wgmma-pipeline (dotCanBeProperlyAsync): only products with an fp32 sum may be in "
        "flight while the next begins."
    ),
    rewrite=advice(
        "Accumulate fp16 products in fp32 and convert once after the loop. For int8 there is no such way: use a "
        "larger K "
        "per step.",
        "the type is also named where the result is used",
    ),
    predicts=silenced("accumulator-not-fp32"),
    falsified_by=_OVERLAP,
    risks=("results get more accurate, not less",),
)
T8: Final = Rule(
    id="T8",
    name="The sum is changed between products",
    example="for ...:\n    acc = acc * 0.5\n    acc = tl.dot(a, b, acc)\n->\nfor ...:\n    acc = tl.dot(a, b, acc)\n"
    "acc = acc * scale",
    level=Level.COMPILER,
    needs=frozenset({"code", "remarks"}),
    weight=62,
    detect=_changed,
    explain=lambda facts, hit: (
        "triton-wgmma-pipeline (dotCanBeProperlyAsync): the sum of the step before is used by "
        "something other than the next dot, so each product is waited for."
    ),
    rewrite=advice(
        "Move the scale behind the loop; apply a scale that differs between steps to the smaller operand or to a "
        "partial "
        "sum of several steps. Where it can't move, 8 warps let two groups hide each other's waits.",
        "only the algorithm tells whether the change may move",
    ),
    predicts=silenced("accumulator-changed-in-loop"),
    falsified_by=_OVERLAP,
    risks=("sums in another order round differently",),
    explains=frozenset({"T14"}),
)
T9: Final = Rule(
    id="T9",
    name="The product is used in the same step",
    example="for ...:\n    acc = tl.dot(a, b, acc)\n    tl.store(c, acc)\n->\nfor ...:\n    acc = tl.dot(a, b, acc)\n"
    "tl.store(c, acc)",
    level=Level.COMPILER,
    needs=frozenset({"code", "source", "remarks"}),
    weight=63,
    detect=_used,
    explain=lambda facts, hit: (
        "triton-wgmma-pipeline (dotCanBeProperlyAsync): the result is used unconditionally in the "
        "loop, so the product is waited for before the next begins."
    ),
    rewrite=advice(
        "Use the sum after the loop, or under an `if` that is rarely taken: the pass allows uses there.",
        "only the algorithm tells whether the use may move",
    ),
    predicts=silenced("dot-result-used-in-loop"),
    falsified_by=_OVERLAP,
    explains=frozenset({"L1", "T14"}),
)
T10: Final = Rule(
    id="T10",
    name="The second operand is computed between load and product",
    example="acc = tl.dot(tl.load(a), tl.load(w).to(tl.float16), acc)\n->\n"
    "acc_t = tl.dot(tl.load(w_t).to(tl.float16), tl.load(a).T, acc_t)",
    level=Level.COMPILER,
    needs=frozenset({"code", "source", "remarks"}),
    weight=66,
    detect=_computed,
    explain=lambda facts, hit: (
        "triton-wgmma-pipeline: wgmma reads its second operand from shared memory only. What is "
        "computed in registers is written back there, into a single buffer, and the product waits for it."
    ),
    rewrite=advice(
        "Make the computed operand the first one, which may come from registers: compute the transposed product. Apply "
        "scales after the loop. Or convert in a pass of its own, if the operand is used often.",
        "loads and stores have to be transposed with it",
    ),
    predicts=silenced("dot-waits-for-operands"),
    falsified_by=_OVERLAP,
    risks=("a scale that moves behind the sum rounds differently",),
    explains=frozenset({"T14"}),
)
T12: Final = Rule(
    id="T12",
    name="fp8 products are added outside of the dot",
    example="total += tl.dot(a, b)\n->\ntotal = tl.dot(a, b, total)",
    level=Level.COMPILER,
    needs=frozenset({"code", "source", "remarks"}),
    weight=64,
    detect=_added,
    explain=lambda facts, hit: (
        "Triton adds a 16-bit product into the sum of wgmma by itself, an fp8 one it does not, as tensor cores keep "
        "fewer bits of those: each product is waited for (triton-wgmma-pipeline) and added by plain cores."
    ),
    rewrite=_passed,
    predicts=silenced("dot-result-used-in-loop"),
    falsified_by=_OVERLAP,
    risks=("sums of fp8 products keep fewer bits: the addition may have been put outside for that",),
    explains=frozenset({"T14"}),
    explains_here=frozenset({"T9"}),
)
T14: Final = Rule(
    id="T14",
    name="ptxas waits for each product",
    example="acc = (acc.to(tl.float16)).to(tl.float32)\nacc = tl.dot(a, b, acc)\n->\nacc = tl.dot(a, b, acc)   # "
    "converted after the loop",
    level=Level.COMPILER,
    needs=frozenset({"code"}),
    weight=56,
    detect=_injected,
    explain=lambda facts, hit: (
        "ptxas (C7514, C7517) puts a wait behind wgmma where other instructions read or write the registers of the "
        "sum before the product is done."
    ),
    rewrite=advice(
        "Let nothing but dots touch the sum in the loop: no conversion, scale, or change of layout. Leave its type "
        "fp32.",
        "what touches the sum could not be told from the source",
    ),
    predicts=lambda facts, hit: [],
    falsified_by=_OVERLAP,
)
T15: Final = Rule(
    id="T15",
    name="The tile is too small for the tensor cores' peak",
    example="BLOCK_M=64, BLOCK_N=64, num_warps=4\n->\nBLOCK_M=128, BLOCK_N=128, num_warps=4   # or 128x256 with 8",
    level=Level.CODE,
    needs=frozenset({"code", "profile"}),
    weight=46,
    detect=_small,
    explain=lambda facts, hit: (
        "wgmma reads its operands from shared memory: a sum of M x N takes M + N elements for M * N products, so small "
        "tiles wait for shared memory, and for one another."
    ),
    rewrite=advice(
        "Use tiles of 128x128 with 4 warps or 128x256 with 8, as long as the grid still fills the GPU.",
        "the grid and the masks follow the tile",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.mma.in_loops", now=facts.count("mma", in_loop=True), expected="rises")
    ],
    falsified_by="A larger tile takes as long: then loads or the grid are what it waits for.",
    risks=("a grid of fewer blocks than SMs",),
)
T16: Final = Rule(
    id="T16",
    name="Short steps along K",
    example="BLOCK_K=32   # 16-bit operands\n->\nBLOCK_K=64   # fp8: 128",
    level=Level.CODE,
    needs=frozenset({"code", "lines"}),
    weight=34,
    detect=_short,
    explain=lambda facts, hit: (
        "Tiles lie in shared memory in patterns of 128, 64 or 32 bytes along K; wgmma reads the narrow ones slower, "
        "and each step has its own barriers and waits."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Multiply at least 128 bytes along K in a step: 64 elements of 16 bits, 128 of 8.",
        applies_if="K is at least that long.",
        no_diff="the block's size is also in the loop and the masks",
    ),
    predicts=_longer,
    falsified_by="The launch takes as long with twice the step: it waits for memory.",
    risks=("sums in another order round differently",),
)

RULES: Final = (T10, T12, T9, T8, T7, T14, T15, T16)
