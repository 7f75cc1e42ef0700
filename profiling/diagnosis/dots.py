"""What rules about matrix products ask of the source and the code."""

import ast
import re
from typing import Final

from ..compiler.ttgir import Dot
from .facts import Facts
from .model import Evidence, Level
from .rule import seen
from .source.kernel import Branch, Call, LiveKernel, Loop, Place
from .source.syntax import calls, keyword, language

_BITS: Final = re.compile(r"[a-z]{1,4}(\d{1,3})")
_VIEWS: Final = frozenset({"trans", "reshape", "permute", "view", "expand_dims"})


def dot_line(facts: Facts) -> int | None:
    """The line of the first dot, those in loops first."""
    found = [] if facts.lines is None else [site for site in facts.lines.ttgir if site.kind == "dot"]
    found.sort(key=lambda site: not site.in_loop)
    return next((site.line for site in found if site.line is not None), None)


def looped_product(facts: Facts) -> Dot | None:
    """The only product of the loops in the code; None where there are several, as in attention, or none."""
    found = [dot for dot in (facts.launch.dots if facts.launch is not None else ()) if dot.in_loop]
    return found[0] if len(found) == 1 else None


def element_bytes(dtype: str) -> int:
    """Of a type as the compiler names it, such as `bf16` or `f8E4M3FN`."""
    match = _BITS.match(dtype)
    return max(int(match[1]) // 8, 1) if match else 1


def waiting(facts: Facts) -> list[Evidence]:
    """Loads of tiles that wait beside a dot."""
    sites = [] if facts.lines is None else [site for site in facts.lines.ttgir if site.waits_beside_dot]
    lines = dict.fromkeys(site.line for site in sites)
    return [
        seen(
            Level.CODE,
            "a load of a tile waits for its data in the loop of the dot",
            line,
            "launch.sync_loads_beside_dots",
            len(sites),
        )
        for line in lines
    ]


def looped_dots(kernel: LiveKernel | None) -> list[Call]:
    """Dots of the source that stand in a loop which is one in the code too."""
    if kernel is None:
        return []
    return [call for call in kernel.named("dot") if any(loop.kind != "static_range" for loop in call.place.loops)]


def innermost(call: Call) -> Loop | None:
    return next((loop for loop in reversed(call.place.loops) if loop.kind != "static_range"), None)


def alone(dots: list[Call]) -> bool:
    """Whether no loop has two dots, as attention has, where one feeds the other."""
    loops = [id(loop.node) for call in dots if (loop := innermost(call)) is not None]
    return len(loops) == len(set(loops))


def lone(facts: Facts) -> bool:
    """The same by the code too, where products in helpers count: those of `tf32x3` stand on one line."""
    if facts.lines is None:
        coded = sum(dot.in_loop for dot in (facts.launch.dots if facts.launch is not None else ()))
    else:
        coded = len({site.line for site in facts.lines.ttgir if site.kind == "dot" and site.in_loop})
    dots = looped_dots(facts.source)
    return alone(dots) and coded <= max(len(dots), 1)


def is_running(kernel: LiveKernel, call: Call) -> bool:
    """Whether a product is added to a sum that its loop carries from step to step."""
    name, loop = accumulator(call), innermost(call)
    if name is None or loop is None or name not in loop.assigned or not _adds(call, name):
        return False
    for statement, place in kernel.statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                kept = any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(value))
                if not kept and loop in place.loops and branch_within(place) is None:
                    return False  # it begins anew in each step
            case _:
                pass
    return True


def _adds(call: Call, name: str) -> bool:
    match call.place.statement:
        case ast.AugAssign(target=ast.Name(id=target), op=ast.Add()):
            return target == name
        case ast.Assign(value=ast.BinOp(op=ast.Add(), left=left, right=right)):
            return any(isinstance(each, ast.Name) and each.id == name for each in (left, right))
        case _:
            return keyword(call.node, "acc", 2) is not None


def branch_within(place: Place) -> Branch | None:
    """An `if` between a place and its loop."""
    if not place.loops:
        return None
    within = {id(each) for each in ast.walk(place.loops[-1].node)}
    return next((branch for branch in place.branches if id(branch.node) in within), None)


def text_of(facts: Facts, node: ast.expr) -> str:
    """What stands in the file, shortened."""
    return facts.file.shown(node) if facts.file is not None else "an expression"


def operands(call: Call) -> tuple[ast.expr | None, ast.expr | None]:
    return keyword(call.node, "input", 0), keyword(call.node, "other", 1)


def given(kernel: LiveKernel, node: ast.expr | None) -> list[ast.expr]:
    """What an operand is, with names followed once."""
    if isinstance(node, ast.Name):
        return kernel.definitions.get(node.id, [])
    return [] if node is None else [node]


def is_load(node: ast.expr) -> bool:
    """Whether an expression is a load, seen through views."""
    while True:
        match node:
            case ast.Call() if language(node) == "load":
                return True
            case ast.Call(args=[first, *_]) if language(node) in _VIEWS:
                node = first
            case ast.Attribute(value=value, attr="T"):
                node = value
            case ast.Call(func=ast.Attribute(value=value, attr="load" | "T")) if not isinstance(value, ast.Call):
                return True  # of a descriptor
            case _:
                return False


def is_product(node: ast.expr) -> bool:
    """Whether an expression is a dot, seen through conversions."""
    while True:
        match node:
            case ast.Call() if language(node) == "dot":
                return True
            case ast.Call(func=ast.Attribute(value=value, attr="to")):
                node = value
            case _:
                return False


def is_computed_load(node: ast.expr) -> bool:
    """Whether an expression computes something of a load."""
    return not is_load(node) and any(language(call) == "load" for call in calls(node))


def accumulator(call: Call) -> str | None:
    """The name that the product is added to."""
    acc = keyword(call.node, "acc", 2)
    if isinstance(acc, ast.Name):
        return acc.id
    match call.place.statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
            return name
        case _:
            return None


def refusal(facts: Facts, line: int | None) -> list[Evidence]:
    """The compiler's own refusal of warp-group products."""
    remark = facts.said("wgmma-rejected", line) or facts.said("wgmma-rejected")
    return (
        []
        if remark is None
        else [seen(Level.COMPILER, f"compiler: {remark.message}", remark.line, "remark.wgmma-rejected")]
    )


def said(facts: Facts, id: str, line: int | None = None) -> list[Evidence]:
    """A remark as evidence."""
    remark = facts.said(id)
    if remark is None:
        return []
    where = "" if remark.category == "remark" else f" ({remark.category})"
    return [
        seen(Level.COMPILER, f"compiler{where}: {remark.message}", remark.line or line, f"remark.{id}", remark.count)
    ]
