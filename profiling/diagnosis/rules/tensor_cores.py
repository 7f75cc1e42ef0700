"""T: matrix products that don't run on Hopper's warp groups, or whose products can't overlap."""

import ast
from collections.abc import Callable
from typing import Final

from ...compiler.launch import LaunchFacts
from ...compiler.ttgir import Dot
from ..dots import dot_line, given, looped_dots, operands, refusal, said, text_of
from ..edits import diff, launch_option, replaced
from ..facts import Facts
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, advice, seen, silenced
from ..source.kernel import LiveKernel
from ..source.syntax import dotted, keyword

_SINGLE: Final = frozenset({"tl.float32", "triton.language.float32"})
_SIXTEEN_BITS: Final = frozenset({"*fp16", "*bf16"})
_SLOWER: Final = "With warp-group products the launch takes as long: then it waits for memory, which the profile tells."


def _refused(id: str) -> Callable[[Facts], list[Hit]]:
    """Hits of what the record alone gives away, with the compiler's refusal. T1 only if nothing but the warps fails."""

    def detect(facts: Facts) -> list[Hit]:
        found = facts.observations.get(id) or facts.observations.get("T1")
        if found is None or facts.launch is None:
            return []
        failed = _failed(facts.launch)
        if found.id == "T1" and next((each for each in failed if each != "T1"), "T1") != id:
            return []
        line = dot_line(facts)
        told = seen(Level.CODE, found.detail, line, "launch.mma", facts.launch.mma)
        more = [seen(Level.CODE, failed[id], line)] if found.id != id else []
        return [Hit((told, *more, *refusal(facts, line)), line)]

    return detect


def _largest(launch: LaunchFacts) -> Dot | None:
    return max(launch.dots, key=lambda one: one.batch * one.m * one.n * one.k, default=None)


def _failed(launch: LaunchFacts) -> dict[str, str]:
    """Conditions of supportMMA that the largest product fails, by rule: what costs most comes first, the warps last."""
    dot = _largest(launch)
    if dot is None:
        return {}
    checked = {
        "T4": ("the operands are fp32 with IEEE precision", dot.precision == "ieee"),
        "T11": (f"the operands have a batch of {dot.batch}, and rank 2 is needed", dot.batch > 1),
        "T2": (f"M is {dot.m}, below 64", dot.m < 64),
        "T3": (f"N is {dot.n}, no multiple of 16 (of 8 from Triton 3.8)", dot.n % 16 != 0),
        "T1": (f"num_warps is {launch.num_warps}, no multiple of 4", launch.num_warps % 4 != 0),
    }
    return {id: text for id, (text, fails) in checked.items() if fails}


def _conditions(facts: Facts, hit: Hit) -> str:
    """Names the conditions that fail: the compiler's remark is the same for all of them."""
    failed = list(_failed(facts.launch).values()) if facts.launch is not None else []
    return (
        f"tritongpu-accelerate-matmul (supportMMA) refused wgmma: {'; '.join(failed) or 'its condition is not known'}. "
        "Its remark does not say which condition failed; warps, M, N, rank and precision were evaluated here."
    )


def _with_warps(recipe: str, why: str) -> Callable[[Facts, Hit], Rewrite]:
    """An edit of the product that warps which form no group need besides."""

    def rewrite(facts: Facts, hit: Hit) -> Rewrite:
        few = facts.launch is not None and "T1" in _failed(facts.launch)
        more = " Launch with num_warps=4 as well: fewer form no warp group." if few else ""
        return Rewrite(recipe=recipe + more, no_diff=why)

    return rewrite


def _becomes_wgmma(facts: Facts, hit: Hit) -> list[Prediction]:
    now = facts.launch.mma if facts.launch else None
    return [Prediction(fact="launch.mma", now=now, expected="becomes", to="wgmma")]


def _four_warps(facts: Facts, hit: Hit) -> Rewrite:
    edit = None
    if facts.file is not None and facts.launch is not None:
        place = launch_option(facts.file, facts.captured.kernel, "num_warps", facts.launch.num_warps)
        edit = diff(facts.file, [replaced(place, "4")]) if place is not None else None
    return Rewrite(
        recipe="Launch with num_warps=4, or 8 with a tile of 128x256.",
        diff=edit,
        no_diff=None if edit else "num_warps is not said exactly once in the file",
    )


def _on_tensor_cores(facts: Facts, hit: Hit) -> list[Prediction]:
    """By warp groups, where the precision is all that fails."""
    failed = _failed(facts.launch) if facts.launch is not None else {}
    now = facts.launch.mma if facts.launch is not None else None
    return [Prediction(fact="launch.mma", now=now, expected="becomes", to="mma" if failed.keys() - {"T4"} else "wgmma")]


def _besides(facts: Facts) -> str:
    failed = _failed(facts.launch) if facts.launch is not None else {}
    more = "; ".join(text for id, text in failed.items() if id != "T4")
    return f" With another precision single warps multiply, by mma.sync: {more}." if more else ""


def _tf32x3(facts: Facts, hit: Hit) -> Rewrite:
    edit = None
    places = [
        value
        for call in (facts.source.named("dot") if facts.source is not None else [])
        if isinstance(value := keyword(call.node, "input_precision"), ast.Constant) and value.value == "ieee"
    ]
    if facts.file is not None and len(places) == 1:
        edit = diff(facts.file, [replaced(places[0], '"tf32x3"')])
    return Rewrite(
        recipe='Use input_precision="tf32x3" (three products, nearly fp32), "tf32" where 1e-3 relative is enough, or '
        "bf16 operands.",
        diff=edit,
        no_diff=None if edit else "the precision is not said by exactly one literal in the kernel",
    )


def _imprecise(facts: Facts) -> list[Hit]:
    if facts.launch is None or facts.source is None or not facts.launch.dots:
        return []
    refused = "T" in facts.observations
    notes = [note for note in facts.launch.ptxas_notes if "C7517" in note or "C7514" in note]
    # Where it is refused, the operands in the code are fp16 already.
    if not any(kind.startswith("*fp8") for kind in facts.captured.signature.values()) or not (refused or notes):
        return []
    for call in facts.source.named("dot"):
        limit = keyword(call.node, "max_num_imprecise_acc")
        if limit is None or (isinstance(limit, ast.Name) and facts.captured.constexprs.get(limit.id) is None):
            continue
        shown = facts.captured.constexprs.get(limit.id) if isinstance(limit, ast.Name) else text_of(facts, limit)
        told = [seen(Level.SOURCE, f"max_num_imprecise_acc is {shown}", call.line)]
        if refused:
            told += [seen(Level.CODE, facts.observations["T"].detail, call.line), *refusal(facts, call.line)]
        else:
            told.append(seen(Level.CODE, f"ptxas: {notes[0]}", call.line))
        return [Hit(tuple(told), call.line)]
    return []


def _forced(facts: Facts) -> list[Hit]:
    remark = facts.said("operand-order-forced")
    if remark is None or facts.launch is None:
        return []
    # 16-bit operands may be transposed for free.
    if not any(dot.a_dtype in ("f32", "i8") or dot.a_dtype.startswith("f8") for dot in facts.launch.dots):
        return []
    waiting = facts.launch.sync_loads_beside_dots
    copies = (facts.launch.async_copies or 0) + (facts.launch.tma_copies or 0)
    if not waiting and not copies:
        return []  # no pipeline that it could cost
    loads = "1 load waits" if waiting == 1 else f"{waiting} loads wait"
    cost = f"{loads} in the loop" if waiting else f"{copies} copies"
    told = seen(Level.CODE, f"the operand is rearranged on its way: {cost}", remark.line)
    return [Hit((told, *said(facts, remark.id)), remark.line)]


def _in_order(facts: Facts, hit: Hit) -> Rewrite:
    if _widened(facts, hit.line):
        return Rewrite(
            recipe="Both operands are loaded as 16 bits and cast to fp32: don't cast them. wgmma takes 16-bit operands "
            "in either order, twice as fast as tf32, and adds in fp32.",
            example="tl.dot(tl.load(a).to(tl.float32), tl.load(b).to(tl.float32), acc)\n->\n"
            "tl.dot(tl.load(a), tl.load(b), acc)",
            no_diff="the operands may be used elsewhere as fp32",
        )
    return Rewrite(
        recipe="Store the operand (usually the weight) transposed, once, on the host, and index it with K contiguous.",
        no_diff="the layout is chosen outside the kernel",
    )


def _widened(facts: Facts, line: int | None) -> bool:
    """Whether both operands of the dot on a line are loads of the same 16-bit type that are cast to fp32."""
    for call in looped_dots(facts.source):
        if call.line == line and facts.source is not None:
            types = [_cast_from(facts, facts.source, operand) for operand in operands(call)]
            return types[0] is not None and types[0] == types[1]
    return False


def _cast_from(facts: Facts, kernel: LiveKernel, operand: ast.expr | None) -> str | None:
    """The 16-bit type in memory of what is cast to fp32."""
    types: set[str] = set()
    for value in given(kernel, operand):
        match value:
            case ast.Call(func=ast.Attribute(value=cast, attr="to"), args=[kind, *_]) if dotted(kind) in _SINGLE:
                loads = {id(each) for each in given(kernel, cast)}
                pointers = [access.pointer for access in kernel.accesses if id(access.call) in loads]
                types |= {facts.captured.signature.get(pointer or "", "") for pointer in pointers or [None]}
            case _:
                return None
    return types.pop() if len(types) == 1 and types <= _SIXTEEN_BITS else None


def _serialized(facts: Facts) -> list[Hit]:
    if facts.launch is None or not facts.launch.dots:
        return []
    note = next((note for note in facts.launch.ptxas_notes if "C7511" in note), None)
    if note is None:
        return []
    dot = max(facts.launch.dots, key=lambda one: one.m * one.n)
    each = dot.m * dot.n // (32 * facts.launch.num_warps)
    line = dot_line(facts)
    return [
        Hit(
            (
                seen(Level.CODE, f"the {dot.m}x{dot.n} accumulator takes {each} registers a thread", line),
                seen(
                    Level.CODE,
                    f"{facts.launch.spill_bytes} bytes spill",
                    line,
                    "launch.spill_bytes",
                    facts.launch.spill_bytes,
                ),
                seen(Level.COMPILER, f"ptxas: {note[:200]}", line),
            ),
            line,
        )
    ]


T1: Final = Rule(
    id="T1",
    name="The warps can't form a warp group",
    example="kernel[grid](..., num_warps=2)\n->\nkernel[grid](..., num_warps=4)",
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=95,
    detect=_refused("T1"),
    explain=_conditions,
    rewrite=_four_warps,
    predicts=_becomes_wgmma,
    falsified_by=_SLOWER,
    explains=frozenset({"R1", "P8"}),
)
T2: Final = Rule(
    id="T2",
    name="Fewer than 64 rows",
    example="acc = tl.dot(a, b, acc)         # (32, K) by (K, 128)\n->\nacc_t = tl.dot(b_t, a_t, acc_t)   # (128, K) "
    "by (K, 32)",
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=55,
    detect=_refused("T2"),
    explain=_conditions,
    rewrite=_with_warps(
        "Swap the operands so that the larger dimension is M, or pad M to 64. A kernel that memory limits, as in "
        "decoding, gains nothing from either.",
        "loads and stores have to be transposed with it",
    ),
    predicts=_becomes_wgmma,
    falsified_by="Device memory is busy above 60 %: the products are not what it waits for.",
)
T3: Final = Rule(
    id="T3",
    name="N is not a multiple of 16",
    example="BLOCK_N=8\n->\nBLOCK_N=16   # masked",
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=90,
    detect=_refused("T3"),
    explain=_conditions,
    rewrite=_with_warps("Pad N to a multiple of 16.", "the grid follows the block"),
    predicts=_becomes_wgmma,
    falsified_by=_SLOWER,
)
T4: Final = Rule(
    id="T4",
    name="fp32 product with IEEE precision",
    example='tl.dot(a, b, acc, input_precision="ieee")\n->\ntl.dot(a, b, acc, input_precision="tf32x3")',
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=94,
    detect=_refused("T4"),
    explain=lambda facts, hit: (
        "tritongpu-accelerate-matmul: tensor cores have no fp32, so each product is an FFMA of the "
        "plain cores, whose peak is a seventh of tf32's." + _besides(facts)
    ),
    rewrite=_tf32x3,
    predicts=_on_tensor_cores,
    falsified_by=_SLOWER,
    risks=("tf32x3 differs from fp32 in the last bits; tf32 by some 1e-3 relative",),
)
T11: Final = Rule(
    id="T11",
    name="Batched product in one operation",
    example="tl.dot(a, b)   # (B, M, K) by (B, K, N)\n->\nb = tl.program_id(2)\ntl.dot(tl.load(a_ptr + b * s + "
    "at), ...)",
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=92,
    detect=_refused("T11"),
    explain=_conditions,
    rewrite=_with_warps(
        "Put the batch into the grid, or into a loop over 2-D dots.",
        "the grid has to follow",
    ),
    predicts=_becomes_wgmma,
    falsified_by=_SLOWER,
    explains=frozenset({"R1"}),
)
T6: Final = Rule(
    id="T6",
    name="fp8 sums are split by max_num_imprecise_acc",
    example="tl.dot(a, b, acc, max_num_imprecise_acc=0)\n->\ntl.dot(a, b, acc)",
    level=Level.CODE,
    needs=frozenset({"code", "source"}),
    weight=91,
    detect=_imprecise,
    explain=lambda facts, hit: (
        "tritongpu-accelerate-matmul: a limit below 32 is refused for fp8 with an fp32 sum; a "
        "larger one is met by adding partial sums on the plain cores between products."
    ),
    rewrite=advice(
        "Leave max_num_imprecise_acc at its default (on sm_90 no limit), or raise it to K.",
        "the accuracy may have been chosen",
    ),
    predicts=lambda facts, hit: (
        _becomes_wgmma(facts, hit)
        if facts.launch is not None and facts.launch.mma != "wgmma"
        else [
            Prediction(fact="launch.registers", now=facts.launch.registers if facts.launch else None, expected="falls")
        ]
    ),
    falsified_by=_SLOWER,
    risks=("sums of fp8 products keep fewer bits",),
    explains=frozenset({"R1", "T13", "T14"}),
)
T5: Final = Rule(
    id="T5",
    name="An 8-bit or tf32 operand is not K-major",
    example="b: (K, N) row-major\n->\nb = b.t().contiguous()   # (N, K), once\ntl.load(b_ptr + n[None, :] * K + k[:, "
    "None])",
    level=Level.COMPILER,
    needs=frozenset({"code", "remarks"}),
    weight=76,
    detect=_forced,
    explain=lambda facts, hit: (
        "tritongpu-accelerate-matmul: for types other than fp16 and bf16 wgmma reads operands from "
        "shared memory along K only; the pass forces that order, so that the tile goes through registers or in "
        "narrow copies."
    ),
    rewrite=_in_order,
    predicts=silenced("operand-order-forced"),
    falsified_by="The launch waits for something else than its loads in the loop.",
    explains=frozenset({"P8", "T10"}),
)
T13: Final = Rule(
    id="T13",
    name="Products are serialized for want of registers",
    example="BLOCK_M=128, BLOCK_N=256, num_warps=4\n->\nBLOCK_M=128, BLOCK_N=256, num_warps=8",
    level=Level.COMPILER,
    needs=frozenset({"code"}),
    weight=89,
    detect=_serialized,
    explain=lambda facts, hit: (
        "ptxas (C7511): the sums of wgmma have to stay in fixed registers, and there are not enough."
    ),
    rewrite=advice(
        "Double num_warps, or halve the tile; set no maxnreg. A thread needs M * N / (32 * warps) registers for "
        "the sum "
        "and some 40 for the rest.",
        "tiles and warps are chosen together",
    ),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.spill_bytes", now=facts.launch.spill_bytes if facts.launch else None, expected="becomes", to=0
        )
    ],
    falsified_by="Without spills the launch takes as long.",
    explains=frozenset({"R1", "T14"}),
)

RULES: Final = (T1, T4, T11, T6, T3, T13, T5, T2)
