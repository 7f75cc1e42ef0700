"""W: warp specialization that was asked for and is not there, and tensor descriptors."""

import ast
from typing import Final

from ..edits import diff, launch_option, replaced
from ..facts import Facts
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, seen
from ..source.kernel import Loop
from ..source.syntax import keyword

_WARPS: Final = 4


def _asked(facts: Facts) -> tuple[Loop, list[str]] | None:
    """The loop that asks for it, with the conditions that fail."""
    for loop in facts.source.loops if facts.source is not None else []:
        if loop.call is None or not _on(facts, keyword(loop.call, "warp_specialize")):
            continue
        failed: list[str] = []
        if facts.launch is not None and facts.launch.num_warps != _WARPS:
            failed.append(f"num_warps is {facts.launch.num_warps}, not {_WARPS}")
        if _on(facts, keyword(loop.call, "flatten")):
            failed.append("flatten=True makes an if with two sides of the loop")
        if facts.source is not None and any(
            branch.other and call.place.loops and call.place.loops[-1] is loop
            for call in (*facts.source.accesses, *facts.source.calls)
            for branch in call.place.branches
        ):
            failed.append("the loop has an if with an else")
        return loop, failed
    return None


def _on(facts: Facts, value: ast.expr | None) -> bool:
    match value:
        case ast.Constant(value=given):
            return given is True
        case ast.Name(id=name):
            return facts.captured.constexprs.get(name) is True
        case _:
            return False


def _ignored(facts: Facts) -> list[Hit]:
    found = _asked(facts)
    if found is None or facts.launch is None or facts.launch.warp_specialized:
        return []
    loop, failed = found
    told = [
        seen(Level.SOURCE, "the loop asks for warp_specialize", loop.line),
        seen(Level.CODE, "no ttg.warp_specialize in the code", loop.line, "launch.warp_specialized", 0),
        *(seen(Level.COMPILER, f"condition of the pass: {each}", loop.line) for each in failed),
    ]
    remark = facts.said("warp-specialization-failed")
    if remark is not None:
        told.append(seen(Level.COMPILER, f"compiler: {remark.message}", loop.line))
    return [Hit(tuple(told), loop.line, tuple(failed))]


def _four(facts: Facts, hit: Hit) -> Rewrite:
    edit = None
    only_warps = len(hit.subject) == 1 and hit.subject[0].startswith("num_warps")
    if facts.file is not None and facts.launch is not None and only_warps:
        place = launch_option(facts.file, facts.captured.kernel, "num_warps", facts.launch.num_warps)
        edit = diff(facts.file, [replaced(place, str(_WARPS))]) if place is not None else None
    return Rewrite(
        recipe="Drop warp_specialize, which does nothing here. To try it: num_warps=4, no flatten, a loop without if "
        "and else, loads by host-made descriptors (TMA) and a store through pointers; and time both versions.",
        diff=edit,
        no_diff=None if edit else "several things have to change, or num_warps is not said exactly once",
    )


W1: Final = Rule(
    id="W1",
    name="Warp specialization is asked for and ignored",
    example="kernel[grid](..., num_warps=8)\n->\nkernel[grid](..., num_warps=4)",
    level=Level.CODE,
    needs=frozenset({"source", "code"}),
    weight=69,
    detect=_ignored,
    explain=lambda facts, hit: (
        "nvgpu-warp-specialization leaves a loop as it is without a word"
        + (f": {'; '.join(hit.subject)}." if hit.subject else "; which of its conditions failed is not known.")
    ),
    rewrite=_four,
    predicts=lambda facts, hit: [Prediction(fact="launch.warp_specialized", now=0, expected="becomes", to=1)],
    falsified_by="With specialized warps the launch takes as long: its loads were hidden already.",
    demoted="a product of 64x128 tiles took 65.6 us on an H200 while 8 warps let it be ignored, and 120.3 us with 4 "
    "and specialized warps: their 12 warps of 168 registers fill an SM with one tile, where three were at work before",
)


def _described_again(facts: Facts) -> list[Hit]:
    """A descriptor that each iteration of an innermost loop writes to memory once more."""
    loops = [] if facts.source is None else facts.source.loops
    for call in facts.source.named("make_tensor_descriptor") if facts.source is not None else ():
        inner = call.place.loops[-1] if call.place.loops else None
        if inner is None or call.place.branches:  # only where something else comes next
            continue
        if any(loop.node is not inner.node and _within(loop, inner) for loop in loops):
            continue
        writes = sum(
            each.count for each in facts.instructions_at(call.line) if each.in_loop and each.kind == "shared_store"
        )
        if writes:
            told = "each iteration writes the 128 bytes of the descriptor and waits until the copy unit sees them"
            return [
                Hit(
                    (
                        seen(Level.SOURCE, "the descriptor is made in the innermost loop", call.line),
                        seen(Level.CODE, told, call.line, "ptx.shared_store.in_loops", writes),
                    ),
                    call.line,
                )
            ]
    return []


def _within(loop: Loop, outer: Loop) -> bool:
    return outer.node.lineno <= loop.line and (loop.node.end_lineno or 0) <= (outer.node.end_lineno or 0)


W5: Final = Rule(
    id="W5",
    name="A tensor descriptor is made anew in each iteration",
    example="for k in range(0, K, BK):\n    a = tl.make_tensor_descriptor(a_ptr + k, [M, BK], [K, 1], [BM, BK])\n"
    "    x = a.load([m, 0])\n->\na = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])\n"
    "for k in range(0, K, BK):\n    x = a.load([m, k])",
    level=Level.CODE,
    needs=frozenset({"source", "code", "lines"}),
    weight=62,
    detect=_described_again,
    explain=lambda facts, hit: (
        "A descriptor made in the kernel lies in global memory: making it takes a store, a fence between memory and "
        "the copy unit (fence.proxy.tensormap) and a barrier. The compiler moves it before the loop only where its "
        "address and shape are the same in each iteration; here they are not."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Make one descriptor before the loop, and put what changes into the coordinates of load and store, with "
        "one more dimension if need be; or make it on the host with TensorDescriptor.from_tensor.",
        no_diff="the coordinates have to be written",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="launch.barriers", now=facts.launch.barriers if facts.launch else None, expected="falls")
    ],
    falsified_by="Few iterations, each long: the profile shows hardly a sample on the line.",
)

RULES: Final = (W1, W5)
DROPPED: Final[dict[str, str]] = {
    "W2": "the compiler aborts, so that there is nothing to diagnose: compile_kernel tells it",
    "W3": "the compiler refuses or splits the store: the remark descriptor-type-mismatch of compile_kernel tells it",
    "W4": "never a finding: what specialized code looks like",
    "W6": "the descriptor is refused when it is made, so that there is nothing to diagnose",
    "W7": "never a finding: descriptors gain nothing for element-wise kernels, and no rule proposes them there",
    "W8": "no fault of its own: descriptors are one of the rewrites where products run out of registers (R1, R3)",
}
"""Entries of the catalogue without a rule, and why."""
