"""I: selections that take more instructions than their result needs."""

import ast
from typing import Final

from ..expressions import calls_of, reached
from ..facts import Facts, Need
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, advice, seen
from ..source.kernel import Call, LiveKernel, Loop
from ..source.syntax import keyword, language

_NEEDS: Final[frozenset[Need]] = frozenset({"source", "code", "lines"})
_MEMORY: Final = (
    "The launch waits for memory: the profile shows few busy issue slots, and fewer instructions change nothing."
)
_COSTLY: Final = ("exp", "log", "exp2", "log2", "log1p", "expm1", "sin", "cos", "tan", "tanh", "erf", "sigmoid", "pow")
_LEAST_INSTRUCTIONS: Final = 8
"""Own: a handful beside a function says nothing."""


def _count(facts: Facts, line: int, *kinds: str) -> int:
    return sum(site.count for site in facts.instructions(*kinds) if site.line == line)


def _sides(call: Call) -> tuple[ast.expr | None, ast.expr | None]:
    """What a `tl.where` gives where its condition holds, and where not."""
    return keyword(call.node, "x", 1), keyword(call.node, "y", 2)


def _both_sides(facts: Facts) -> list[Hit]:
    if facts.source is None:
        return []
    for call in facts.source.named("where"):
        yes, no = (calls_of(reached(facts.source, side), *_COSTLY) for side in _sides(call))
        shared = {id(each) for each in yes} & {id(each) for each in no}
        apart = [[each for each in side if id(each) not in shared] for side in (yes, no)]
        if not all(apart):
            continue
        lines = dict.fromkeys(each.lineno for side in apart for each in side)
        count = sum(_count(facts, line, "fused_multiply", "multiply", "select") for line in lines)
        if count < _LEAST_INSTRUCTIONS:
            continue
        named = " and ".join(dict.fromkeys(language(side[0]) for side in apart))
        source = seen(Level.SOURCE, f"each side of the selection computes something: {named}", call.line)
        told = f"{count} multiplications and selections a thread for both sides"
        return [Hit((source, seen(Level.CODE, told, call.line)), call.line)]
    return []


def _mask_between(facts: Facts) -> list[Hit]:
    """`x = tl.where(mask, x * scale, …)` and then `exp2(x - m)`: scale and subtraction can't be one instruction."""
    if facts.source is None:
        return []
    for call in facts.source.named("where"):
        match call.place.statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is call.node:
                pass
            case _:
                continue
        scaled = next((line for side in _sides(call) if (line := _scaled_at(facts.source, side)) is not None), None)
        power = _power_of_difference(facts.source, name)
        if scaled is None or power is None or power < call.line:
            continue
        count = _count(facts, scaled, "multiply")
        if count < _LEAST_INSTRUCTIONS // 2 or _count(facts, power, "fused_multiply"):
            continue
        source = seen(Level.SOURCE, f"the mask stands between the scale (line {scaled}) and `{name} - …`", call.line)
        told = f"{count} multiplications by themselves, and none is fused with the subtraction at line {power}"
        return [Hit((source, seen(Level.CODE, told, call.line, "ptx.multiply", count)), call.line)]
    return []


def _scaled_at(kernel: LiveKernel, side: ast.expr | None) -> int | None:
    """The line on which one side is multiplied by a single value."""
    if isinstance(side, ast.BinOp):
        return side.lineno if _by_scalar(kernel, side) else None
    if not isinstance(side, ast.Name):
        return None
    for statement, _ in kernel.statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp() as value) if name == side.id:
                if _by_scalar(kernel, value):
                    return value.lineno
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Mult(), value=value) if name == side.id:
                if _is_scalar(kernel, value):
                    return statement.lineno
            case _:
                pass
    return None


def _by_scalar(kernel: LiveKernel, node: ast.BinOp) -> bool:
    return isinstance(node.op, ast.Mult) and (_is_scalar(kernel, node.left) or _is_scalar(kernel, node.right))


def _is_scalar(kernel: LiveKernel, node: ast.expr) -> bool:
    """Whether an expression is made of nothing but numbers and arguments."""
    nodes = reached(kernel, node)
    known = {*kernel.function.parameters, *kernel.definitions}
    return not any(
        isinstance(each, ast.Call) or (isinstance(each, ast.Name) and each.id not in known) for each in nodes
    )


def _power_of_difference(kernel: LiveKernel, name: str) -> int | None:
    """The line of `exp(name - …)`."""
    for call in kernel.named("exp", "exp2"):
        match call.node.args:
            case [ast.BinOp(left=ast.Name(id=left), op=ast.Sub())] if left == name:
                return call.line
            case _:
                pass
    return None


def _masked_each_step(facts: Facts) -> list[Hit]:
    """A selection in a loop that compares a position with the step: only the first or last steps need it."""
    if facts.source is None:
        return []
    for call in facts.source.named("where"):
        loop = next((each for each in reversed(call.place.loops) if each.kind == "for"), None)
        condition = keyword(call.node, "condition", 0)
        if loop is None or condition is None or not _by_position(reached(facts.source, condition), loop):
            continue
        count = sum(site.count for site in facts.instructions("select") if site.in_loop and site.line == call.line)
        if count < _LEAST_INSTRUCTIONS // 2:
            continue
        source = seen(Level.SOURCE, f"the condition compares positions with the step of line {loop.line}", call.line)
        told = f"{count} selections a thread in each step"
        return [Hit((source, seen(Level.CODE, told, call.line, "ptx.select.in_loops", count)), call.line)]
    return []


def _by_position(nodes: list[ast.AST], loop: Loop) -> bool:
    """Whether a condition compares with the loop's step by order, and of nothing that is loaded or repeats."""
    target = loop.node.target if isinstance(loop.node, ast.For) else None
    orders = [each for each in nodes if isinstance(each, ast.Compare)]
    if not orders or calls_of(nodes, "load", "dot") or any(isinstance(each, ast.Mod) for each in nodes):
        return False
    if not all(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for each in orders for op in each.ops):
        return False
    return isinstance(target, ast.Name) and any(isinstance(each, ast.Name) and each.id == target.id for each in nodes)


I5: Final = Rule(
    id="I5",
    name="Both sides of a selection are computed for each element",
    example="y = tl.where(x >= 0, 1 / (1 + tl.exp(-x)), tl.exp(x) / (1 + tl.exp(x)))\n->\n"
    "e = tl.exp(-tl.abs(x))\ny = tl.where(x >= 0, 1.0, e) / (1.0 + e)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=30,
    if_busy=True,
    detect=_both_sides,
    explain=lambda facts, hit: (
        "tl.where is a selection, not a branch: both sides are computed, and one is thrown away."
    ),
    rewrite=advice(
        "Select the arguments first and compute one function of them. Where a whole block takes the same side, use an "
        "`if` on a value of the program (`if tl.max(x) <= 0:`).",
        "the two functions have to become one",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact=f"ptx.{kind}", now=facts.count(kind), expected="falls")
        for kind in ("fused_multiply", "multiply", "select")
        if facts.count(kind)
    ][:1],
    falsified_by=_MEMORY,
    risks=("a side that gives NaN or infinity where it is not selected may do so for other elements",),
)
I6: Final = Rule(
    id="I6",
    name="A mask between scale and subtraction keeps them from fusing",
    example="x = tl.where(mask, x * scale, -1e6)\np = tl.exp2(x - m[:, None])   # m: maximum of x\n->\n"
    "x = tl.where(mask, x, -1e30)\np = tl.exp2(x * scale - (m * scale)[:, None])   # m: maximum of x, not scaled",
    level=Level.CODE,
    needs=_NEEDS,
    weight=25,
    if_busy=True,
    detect=_mask_between,
    explain=lambda facts, hit: (
        "x * scale - m is one fused instruction an element; with the selection between product and subtraction it is "
        "two."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Mask the raw values, take their maximum, and scale within the exponent: exp2(x * scale - m * scale). "
        "Or leave the mask out where a whole tile lies inside (I7).",
        applies_if="the scale is positive",
        no_diff="maximum and sums are kept in scaled units elsewhere",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.fused_multiply", now=facts.count("fused_multiply"), expected="rises")
    ],
    falsified_by=_MEMORY,
    risks=("the last bits may differ",),
)
I7: Final = Rule(
    id="I7",
    name="A mask that only some steps need is applied in all",
    example="for start in range(0, last + BLOCK, BLOCK):\n"
    "    x = tl.where(rows[:, None] >= start + i[None, :], f(start), 0.0)\n->\n"
    "for start in range(0, last, BLOCK):\n    x = f(start)   # below the diagonal: no mask\n"
    "x = tl.where(rows[:, None] >= last + i[None, :], f(last), 0.0)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=24,
    if_busy=True,
    detect=_masked_each_step,
    explain=lambda facts, hit: (
        "The condition changes along the loop, but within a tile only where its edge lies: all other tiles are wholly "
        "in, or wholly out, and pay a comparison and a selection for each element."
    ),
    rewrite=advice(
        "Divide the loop: the tiles that lie wholly inside without a mask, then those on the edge with it. Tiles "
        "wholly outside need no step at all.",
        "where the edge lies is a matter of the algorithm",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.select.in_loops", now=facts.count("select", in_loop=True), expected="falls")
    ],
    falsified_by=_MEMORY,
    risks=("a range that is off by one tile leaves elements out, or masks none",),
)
RULES: Final = (I5, I6, I7)
