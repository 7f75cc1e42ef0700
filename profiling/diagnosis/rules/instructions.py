"""I: arithmetic that takes more instructions than its result needs. It matters where the SM, not memory, is busy."""

import ast
from typing import Final

from ...ncu.cause import LATENCY_PCT
from ..edits import diff, replaced
from ..expressions import computed
from ..facts import Facts, Need
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, advice, seen
from ..source.kernel import LiveKernel
from ..source.syntax import dotted, keyword
from . import masks

_NEEDS: Final[frozenset[Need]] = frozenset({"source", "code", "lines"})
_PAIRS: Final = 8
"""Own: fp32 products of a thread below which nothing is won by doing two at once."""
_DIVISIONS: Final = 2
"""Own: one division hides behind the loads."""
_MEMORY: Final = (
    "The launch waits for memory: the profile shows few busy issue slots, and fewer instructions change nothing."
)


def _on_line(facts: Facts, kind: str, line: int) -> int:
    return sum(site.count for site in facts.instructions(kind) if site.line == line)


def _exp(facts: Facts) -> list[Hit]:
    for call in facts.source.named("exp") if facts.source is not None else []:
        count = _on_line(facts, "multiply", call.line)
        if count > 1:
            told = seen(
                Level.CODE, f"{count} multiplications beside the exponentials", call.line, "ptx.multiply", count
            )
            return [Hit((seen(Level.SOURCE, "tl.exp", call.line), told), call.line)]
    return []


def _divided(facts: Facts) -> list[Hit]:
    for statement, _ in facts.source.statements if facts.source is not None else []:
        for node in ast.walk(statement):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
                continue
            count = _on_line(facts, "division", node.lineno)
            if isinstance(node.right, ast.Name) and _is_float_argument(facts, node.right.id) and count > 1:
                told = seen(Level.CODE, f"{count} divisions", node.lineno, "ptx.division", count)
                source = seen(Level.SOURCE, f"each element is divided by `{node.right.id}`", node.lineno)
                return [Hit((source, told), node.lineno)]
    return []


def _is_float_argument(facts: Facts, name: str) -> bool:
    return facts.captured.signature.get(name, "").startswith("fp")


def _reciprocal(facts: Facts, hit: Hit) -> Rewrite:
    found = [
        (node, node.left.id, node.right.id)
        for node in (computed(facts.source) if facts.source is not None else ())
        if isinstance(node.op, ast.Div) and node.lineno == hit.line
        if isinstance(node.right, ast.Name) and isinstance(node.left, ast.Name)
    ]
    edit = None
    if facts.file is not None and len(found) == 1:
        node, left, right = found[0]
        edit = diff(facts.file, [replaced(node, f"({left} * (1.0 / {right}))")])
    return Rewrite(
        recipe="Divide once, and multiply by the reciprocal.",
        diff=edit,
        no_diff=None if edit else "the division is not of one name by another",
    )


def _doubles(facts: Facts) -> list[Hit]:
    sites = [site for site in facts.instructions("fp64") if site.line is not None]
    if not sites or any(kind in ("*fp64",) for kind in facts.captured.signature.values()):
        return []
    line = sites[0].line
    count = sum(site.count for site in sites)
    return [Hit((seen(Level.CODE, f"{count} instructions in double precision", line, "ptx.fp64", count),), line)]


def _checked(facts: Facts) -> list[Hit]:
    if facts.source is None or not facts.count("call"):
        return []
    for call in facts.source.named("device_assert"):
        count = _on_line(facts, "call", call.line)
        if count:
            told = seen(
                Level.CODE,
                f"{count} calls and {_on_line(facts, 'barrier', call.line)} barriers",
                call.line,
                "ptx.call",
                count,
            )
            return [
                Hit((seen(Level.SOURCE, "tl.device_assert is compiled in: debug is on", call.line), told), call.line)
            ]
    return []


def _library(facts: Facts) -> list[Hit]:
    for call in facts.source.named("tanh") if facts.source is not None else []:
        count = _on_line(facts, "select", call.line)
        if count > 1:
            told = seen(Level.CODE, f"{count} selections: both ways of each tanh", call.line, "ptx.select", count)
            return [Hit((told,), call.line)]
    return []


def _fusion_off(facts: Facts) -> ast.expr | None:
    """The `False` of a launch of this kernel with `enable_fp_fusion=False`."""
    for call in facts.file.calls if facts.file is not None else ():
        if not isinstance(call.func, ast.Subscript) or dotted(call.func.value) != facts.captured.kernel:
            continue
        given = keyword(call, "enable_fp_fusion")
        if isinstance(given, ast.Constant) and given.value is False:
            return given
    return None


def _not_fused(facts: Facts) -> list[Hit]:
    off = _fusion_off(facts)
    if off is None or facts.source is None or facts.count("fused_multiply"):
        return []
    for node in computed(facts.source):
        if not isinstance(node.op, ast.Add | ast.Sub):
            continue
        for side in (node.left, node.right):
            line = _product_at(facts.source, side)
            count = 0 if line is None else _on_line(facts, "multiply", line)
            if count > 1:
                told = f"{count} multiplications at line {line} that are not fused with the addition after them"
                code = seen(Level.CODE, told, line, "ptx.fused_multiply", 0)
                return [Hit((seen(Level.SOURCE, "enable_fp_fusion is False", off.lineno), code), off.lineno)]
    return []


def _product_at(kernel: LiveKernel, side: ast.expr) -> int | None:
    """The line of the product that one side of a sum is."""
    given = kernel.definitions.get(side.id, []) if isinstance(side, ast.Name) else [side]
    return next((each.lineno for each in given if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult)), None)


def _fused(facts: Facts, hit: Hit) -> Rewrite:
    off = _fusion_off(facts)
    edit = diff(facts.file, [replaced(off, "True")]) if facts.file is not None and off is not None else None
    return Rewrite(
        recipe="Leave enable_fp_fusion at its default, True.",
        applies_if="results need not be bit for bit those of separate products and sums",
        diff=edit,
        no_diff=None if edit else "the option could not be found",
    )


def _upcast(facts: Facts) -> list[Hit]:
    """fp32 arithmetic on halves that become halves again, where the profile sees it fill the fma pipe."""
    if facts.source is None or facts.profile is None or facts.launch is None or facts.launch.dots:
        return []
    busy = next((pipe.pct for pipe in facts.profile.pipes if pipe.name == "fma"), None)
    pointers = [kind for kind in facts.captured.signature.values() if kind.startswith("*")]
    if busy is None or busy < LATENCY_PCT or not pointers or not set(pointers) <= {"*fp16", "*bf16"}:
        return []
    if any(site.kind == "reduction" for site in (facts.lines.ttgir if facts.lines else ())):
        return []  # sums of halves want fp32
    for statement, _ in facts.source.statements:
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Attribute(attr="to"), args=[kind, *_]) if dotted(kind).endswith("float32"):
                    sites = facts.instructions("multiply", "fused_multiply")
                    count = sum(site.count for site in sites if site.instruction.endswith(".f32"))
                    if count < _PAIRS:
                        return []
                    pipe = seen(Level.PROFILE, f"the fma pipe is busy {busy:.0f} % of its peak", node.lineno)
                    told = f"{count} fp32 products a thread, of halves that are stored as halves"
                    return [Hit((pipe, seen(Level.CODE, told, node.lineno)), node.lineno)]
                case _:
                    pass
    return []


def _divided_programs(facts: Facts) -> list[Hit]:
    """Divisions of program numbers, where they are a part of the work: in a loop, or in a kernel without one."""
    if facts.source is None or facts.launch is None:
        return []
    lines: set[int] = set()
    for statement, place in facts.source.statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]):
                parts = [each for term in facts.source.values.get(name, ()) for each in term]
            case _:
                continue
        divided = [each for each in parts if each.kind in ("quotient", "remainder")]
        if divided and not any(each.has_lanes for each in divided):
            inner = place.loops[-1].line if place.loops else 0
            if not any(branch.node.lineno > inner > 0 for branch in place.branches):  # not in each step
                lines.add(statement.lineno)
    sites = [site for site in facts.instructions("integer_division") if site.line in lines]
    sites = [site for site in sites if site.in_loop or not facts.launch.loops]
    if sum(site.count for site in sites) < _DIVISIONS:
        return []
    line, count = sites[0].line, sum(site.count for site in sites)
    where = "in each step of a loop" if sites[0].in_loop else "in each program, which has no loop"
    told = f"{count} integer divisions by run-time values {where}, some 20 instructions each, one after the other"
    return [Hit((seen(Level.CODE, told, line, "ptx.integer_division", facts.count("integer_division")),), line)]


I1: Final = Rule(
    id="I1",
    name="exp where exp2 would do",
    example="tl.exp(x * scale - m)\n->\ntl.exp2(x * (scale * 1.4426950408889634) - m2)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=26,
    if_busy=True,
    detect=_exp,
    explain=lambda facts, hit: "The hardware has exp2 only: tl.exp multiplies each element by log2(e) first.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Fold log2(e) into a factor that is applied anyway, and use tl.exp2.",
        no_diff="without a factor to fold it into nothing is saved",
    ),
    predicts=lambda facts, hit: [Prediction(fact="ptx.multiply", now=facts.count("multiply"), expected="falls")],
    falsified_by=_MEMORY,
    risks=("the last bit may differ",),
)
I2: Final = Rule(
    id="I2",
    name="Each element is divided by the same value",
    example="y = x / s\n->\ny = x * (1.0 / s)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=28,
    if_busy=True,
    detect=_divided,
    explain=lambda facts, hit: (
        "ptxas takes the reciprocal of what all elements are divided by out of the loop; each element keeps two "
        "corrections beside its product."
    ),
    rewrite=_reciprocal,
    predicts=lambda facts, hit: [Prediction(fact="ptx.division", now=facts.count("division"), expected="falls", to=1)],
    falsified_by=_MEMORY,
    risks=("results may differ by one unit in the last place",),
)
I3: Final = Rule(
    id="I3",
    name="tanh of the library branches for each element",
    example="libdevice.tanh(x)\n->\n1.0 - 2.0 / (1.0 + tl.exp2(x * 2.885390082))",
    level=Level.CODE,
    needs=_NEEDS,
    weight=27,
    if_busy=True,
    detect=_library,
    explain=lambda facts, hit: "libdevice computes small and large arguments in two ways, and selects.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Write it by exp2, where its absolute error of some 1e-7 is enough.",
        no_diff="the accuracy that is needed is not known",
    ),
    predicts=lambda facts, hit: [Prediction(fact="ptx.select", now=facts.count("select"), expected="falls")],
    falsified_by=_MEMORY,
    risks=("relative accuracy near zero is lost",),
)
I4: Final = Rule(
    id="I4",
    name="A step in double precision",
    example="(x.to(tl.float64) * 0.1).to(tl.float32)\n->\nx * 0.1",
    level=Level.CODE,
    needs=_NEEDS,
    weight=52,
    detect=_doubles,
    explain=lambda facts, hit: (
        "fp64 runs at half the rate of fp32 at best, and each conversion is an instruction more. No "
        "tensor of the launch is fp64."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Stay in fp32: drop .to(tl.float64), and pass numpy's float64 scalars as float(x).",
        no_diff="the precision may be wanted",
    ),
    predicts=lambda facts, hit: [Prediction(fact="ptx.fp64", now=facts.count("fp64"), expected="becomes", to=0)],
    falsified_by=_MEMORY,
    risks=("results lose the digits that fp64 kept",),
)
I8: Final = Rule(
    id="I8",
    name="Assertions are compiled in",
    example="kernel[grid](..., debug=True)\n->\nkernel[grid](...)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=53,
    detect=_checked,
    explain=lambda facts, hit: "With debug=True or TRITON_DEBUG=1 a device_assert is a barrier and a call.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Launch without debug=True, and unset TRITON_DEBUG.",
        no_diff="it may be set in the environment",
    ),
    predicts=lambda facts, hit: [Prediction(fact="ptx.call", now=facts.count("call"), expected="becomes", to=0)],
    falsified_by=_MEMORY,
    risks=("errors that the assertion would have found pass",),
)
I9: Final = Rule(
    id="I9",
    name="Products and sums are not fused",
    example="kernel[grid](..., enable_fp_fusion=False)\n->\nkernel[grid](...)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=22,
    if_busy=True,
    detect=_not_fused,
    explain=lambda facts, hit: "The launch forbids ptxas and LLVM to make one instruction of a product and a sum.",
    rewrite=_fused,
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.fused_multiply", now=facts.count("fused_multiply"), expected="rises")
    ],
    falsified_by=_MEMORY,
    risks=("results differ in the last bits: a fused product is not rounded before the sum",),
)
I10: Final = Rule(
    id="I10",
    name="Halves are computed in fp32, one at a time",
    example="x = tl.load(x_ptr + i).to(tl.float32)\ny = (x * 0.5 + 1.0) * x\n->\n"
    "x = tl.load(x_ptr + i)\ny = (x * 0.5 + 1.0) * x   # fma.rn.f16x2: two at once",
    level=Level.PROFILE,
    needs=frozenset({"source", "code", "lines", "profile"}),
    weight=20,
    detect=_upcast,
    explain=lambda facts, hit: (
        "Of fp16 and bf16 the compiler makes instructions of two elements (fma.rn.f16x2); after a conversion to fp32 "
        "there is one for each."
    ),
    rewrite=advice(
        "Keep in 16 bits what its 11 (bf16: 8) bits of precision are enough for, such as a scale, a shift or a "
        "short polynomial; keep sums and exponents in fp32.",
        "the accuracy that is needed is not known",
    ),
    predicts=lambda facts, hit: (
        [Prediction(fact="ptx.fused_multiply", now=facts.count("fused_multiply"), expected="falls")]
        if facts.count("fused_multiply")
        else [Prediction(fact="ptx.multiply", now=facts.count("multiply"), expected="falls")]
    ),
    falsified_by="In 16 bits the fma pipe is less busy and the launch takes as long.",
    risks=("each step rounds to 11 bits, of bf16 to 8",),
)
I11: Final = Rule(
    id="I11",
    name="Program numbers are divided at run time",
    example="row, column = pid // columns, pid % columns   # columns = tl.num_programs(0) // rows\n->\n"
    "row, column = tl.program_id(0), tl.program_id(1)   # grid of (rows, columns)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=18,
    if_busy=True,
    detect=_divided_programs,
    explain=lambda facts, hit: (
        "The hardware has no integer division. Before it is done no address is known, so no load begins."
    ),
    rewrite=advice(
        "Use one axis of the grid for each index, or make the divisors tl.constexpr: a division by a constant is a "
        "product and a shift. In a persistent loop count rows and columns up instead.",
        "grid and kernel have to change together",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.integer_division", now=facts.count("integer_division"), expected="falls")
    ],
    falsified_by=_MEMORY,
    risks=("another order of programs may find less in L2",),
)

RULES: Final = (I8, I4, masks.I5, I2, I3, I1, masks.I6, masks.I7, I9, I10, I11)
