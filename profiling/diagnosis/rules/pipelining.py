"""P: loads in loops that nothing copies ahead."""

import ast
from typing import Final

from ..dots import branch_within, dot_line, given, looped_dots, operands, said, waiting
from ..edits import diff, launch_option, replaced
from ..facts import Facts, Need
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, advice, seen
from ..source.kernel import Access, LiveKernel
from ..source.syntax import calls, keyword, language
from . import loops

_NEEDS: Final[frozenset[Need]] = frozenset({"source", "code", "lines"})
_FALSIFIED: Final = "The profile shows little waiting for global memory (stall `long_scoreboard`): other warps hide it."


def _copied(facts: Facts, hit: Hit) -> list[Prediction]:
    now = facts.launch.sync_loads_beside_dots if facts.launch else None
    return [Prediction(fact="launch.sync_loads_beside_dots", now=now, expected="becomes", to=0)]


def _too_much(facts: Facts) -> list[Hit]:
    if facts.launch is None or facts.launch.shared_bytes <= facts.target.limits.shared_bytes_per_block:
        return []
    told = f"{facts.launch.shared_bytes} bytes a block, of at most {facts.target.limits.shared_bytes_per_block}"
    return [Hit((seen(Level.CODE, told, None, "launch.shared_bytes", facts.launch.shared_bytes),))]


def _one_stage(facts: Facts) -> list[Hit]:
    if "P1" not in facts.observations:
        return []
    told = waiting(facts)
    detail = seen(Level.CODE, facts.observations["P1"].detail, None, "launch.num_stages", 1)
    line = told[0].line if told else dot_line(facts)
    return [Hit((detail, *told, *said(facts, "dot-waits-for-operands", line)), line)]


def _more_stages(facts: Facts, hit: Hit) -> Rewrite:
    place = launch_option(facts.file, facts.captured.kernel, "num_stages", 1) if facts.file is not None else None
    edit = diff(facts.file, [replaced(place, "3")]) if facts.file is not None and place is not None else None
    return Rewrite(
        recipe="Launch with num_stages=3 or 4, as far as shared memory goes.",
        diff=edit,
        no_diff=None if edit else "num_stages is not said exactly once in the file",
    )


def _while(facts: Facts) -> list[Hit]:
    if "P3" not in facts.observations:
        return []
    loops = [call.place.loops[-1] for call in looped_dots(facts.source) if call.place.loops[-1].kind == "while"]
    told = waiting(facts)
    if not loops or not told:
        return []
    return [Hit((seen(Level.SOURCE, "the dot stands in a while loop", loops[0].line), *told), loops[0].line)]


def _unrolled(facts: Facts) -> list[Hit]:
    if facts.source is None or facts.launch is None or len(facts.launch.dots) < 2 or facts.launch.async_copies:
        return []
    for call in facts.source.named("dot"):
        loop = call.place.loops[-1] if call.place.loops else None
        if loop is None or loop.kind != "static_range" or any(dot.in_loop for dot in facts.launch.dots):
            continue
        count = len(facts.launch.dots)
        told = seen(Level.CODE, f"{count} dots, no loop, no asynchronous copy", call.line, "launch.async_copies", 0)
        return [Hit((seen(Level.SOURCE, "the loop around the dot is tl.static_range", loop.line), told), loop.line)]
    return []


def _prefetched(facts: Facts) -> list[Hit]:
    told = waiting(facts)
    if "P" not in facts.observations or facts.source is None or not told:
        return []
    lines = {each.line for each in told}
    for call in looped_dots(facts.source):
        loop = call.place.loops[-1]
        for operand in operands(call):
            carried = isinstance(operand, ast.Name) and operand.id in loop.assigned
            values = given(facts.source, operand) if carried else []
            if any(isinstance(each, ast.Name) for each in values):
                line = next(
                    (a.line for a in _loads(facts.source) if a.line in lines and loop in a.place.loops), call.line
                )
                source = seen(
                    Level.SOURCE, "what a dot multiplies was loaded by the step before, and carried over", call.line
                )
                return [Hit((source, *told, *said(facts, "dot-waits-for-operands", line)), line)]
    return []


def _under_branch(facts: Facts) -> list[Hit]:
    told = waiting(facts)
    if "P" not in facts.observations or facts.source is None or not told:
        return []
    lines = {each.line for each in told}
    for access in _loads(facts.source):
        branch = branch_within(access.place)
        if access.line in lines and branch is not None:
            line = branch.node.lineno
            return [
                Hit(
                    (seen(Level.SOURCE, "load and dot stand under an if that is decided at run time", line), *told),
                    line,
                )
            ]
    return []


def _loads(kernel: LiveKernel) -> list[Access]:
    return [access for access in kernel.accesses if access.kind == "load"]


def _filled(facts: Facts) -> list[Hit]:
    if facts.source is None or facts.said("dot-waits-for-operands") is None:
        return []
    for call in looped_dots(facts.source):
        for operand in operands(call):
            for value in given(facts.source, operand):
                for load in (each for each in calls(value) if language(each) == "load"):
                    other = keyword(load, "other", 2)
                    if isinstance(other, ast.Constant) and isinstance(other.value, int | float) and other.value != 0:
                        told = seen(Level.SOURCE, f"the load fills with {other.value}", load.lineno)
                        return [Hit((told, *said(facts, "dot-waits-for-operands", load.lineno)), load.lineno)]
    return []


def _indirect(facts: Facts) -> list[Hit]:
    if facts.source is None or facts.launch is None or facts.lines is None or facts.launch.num_stages > 2:
        return []
    loops = {id(loop.node) for call in looped_dots(facts.source) for loop in call.place.loops}
    for access in _loads(facts.source):
        inner = [each.line for term in access.address for each in term if each.kind == "loaded" and each.line]
        if not inner or not access.place.loops or id(access.place.loops[-1].node) not in loops:
            continue
        for site in facts.lines.ttgir:
            if site.line == inner[0] and site.kind == "load" and site.in_loop and site.operation == "tt.load":
                told = seen(
                    Level.CODE,
                    f"the load of indices waits in the loop, with num_stages={facts.launch.num_stages}",
                    site.line,
                )
                return [
                    Hit(
                        (seen(Level.SOURCE, "a load's address is loaded in the same loop", access.line), told),
                        site.line,
                    )
                ]
    return []


def _too_narrow(facts: Facts) -> list[Hit]:
    told = waiting(facts)
    if "P8" not in facts.observations or not told:
        return []
    line = told[0].line
    detail = seen(Level.CODE, facts.observations["P8"].detail, line)
    return [Hit((*told[:1], detail, *said(facts, "load-too-narrow-to-pipeline", line)), line)]


P2: Final = Rule(
    id="P2",
    name="More shared memory than a block can have",
    example="kernel[grid](..., num_stages=8)\n->\nkernel[grid](..., num_stages=4)",
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=100,
    detect=_too_much,
    explain=lambda facts, hit: "The driver refuses to load it: the launch fails with OutOfResources.",
    rewrite=advice("Lower num_stages, or make the tiles smaller.", "which of them is to give way is a choice"),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.shared_bytes",
            now=facts.launch.shared_bytes if facts.launch else None,
            expected="falls",
            to=facts.target.limits.shared_bytes_per_block,
        )
    ],
    falsified_by="The launch runs.",
)
P1: Final = Rule(
    id="P1",
    name="No software pipeline",
    example="kernel[grid](..., num_stages=1)\n->\nkernel[grid](..., num_stages=3)",
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=79,
    detect=_one_stage,
    explain=lambda facts, hit: (
        "tritongpu-pipeline copies nothing ahead with num_stages=1: each step waits for its own loads."
    ),
    rewrite=_more_stages,
    predicts=_copied,
    falsified_by=_FALSIFIED,
    risks=("none to results; more shared memory",),
    explains=frozenset({"M3", "P8", "P10", "R3", "T10"}),
)
P3: Final = Rule(
    id="P3",
    name="A while loop is never pipelined",
    example="while start < K:\n    ...\n    start += BLOCK\n->\nfor start in range(0, K, BLOCK):\n    ...",
    level=Level.CODE,
    needs=_NEEDS,
    weight=81,
    detect=_while,
    explain=lambda facts, hit: "tritongpu-assign-latencies and -pipeline look at scf.for only; this is an scf.while.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Write it as a for loop over a range that is known when the loop begins.",
        no_diff="whether the condition depends on the body can't be told for sure",
    ),
    predicts=_copied,
    falsified_by=_FALSIFIED,
    risks=("a loop whose condition depends on what it computes runs differently",),
    explains=frozenset({"L1", "M3", "P8", "R3"}),
)
P4: Final = Rule(
    id="P4",
    name="An unrolled loop leaves nothing to pipeline",
    example="for k in tl.static_range(STEPS):\n->\nfor k in tl.range(STEPS):",
    level=Level.CODE,
    needs=_NEEDS,
    weight=77,
    detect=_unrolled,
    explain=lambda facts, hit: "tl.static_range is unrolled before any pass runs: tritongpu-pipeline finds no loop.",
    rewrite=lambda facts, hit: _ranged(facts, hit),
    predicts=lambda facts, hit: [Prediction(fact="launch.async_copies", now=0, expected="rises", to=1)],
    falsified_by=_FALSIFIED,
    explains=frozenset({"M3", "R3", "R7"}),
)
P5: Final = Rule(
    id="P5",
    name="A hand-written prefetch hides the load from the pipeliner",
    example="next_a = tl.load(a)\nacc = tl.dot(cur_a, cur_b, acc)\ncur_a = next_a\n->\n"
    "acc = tl.dot(tl.load(a), tl.load(b), acc)   # num_stages=3",
    level=Level.CODE,
    needs=_NEEDS,
    weight=80,
    detect=_prefetched,
    explain=lambda facts, hit: (
        "tritongpu-assign-latencies: the load has to feed the dot of the same step; one whose value "
        "is carried to the next is left as it is."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Load in the step that multiplies, and let num_stages copy ahead.",
        no_diff="the loop's first and last steps change with it",
    ),
    predicts=_copied,
    falsified_by=_FALSIFIED,
    explains=frozenset({"M3", "R3"}),
)
P6: Final = Rule(
    id="P6",
    name="Load and product under a run-time condition",
    example="for k in range(0, K, B):\n    if k % 128 == 0: acc = tl.dot(...)\n->\nfor k in range(0, K, "
    "128): acc = tl.dot(...)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=78,
    detect=_under_branch,
    explain=lambda facts, hit: (
        "tritongpu-schedule-loops moves operations of the loop's own body only, none inside scf.if."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Mask instead of branching, or divide the loop into ranges for which the condition is settled. "
        "Conditions "
        "of constants cost nothing.",
        no_diff="only the algorithm tells which ranges there are",
    ),
    predicts=_copied,
    falsified_by=_FALSIFIED,
    explains=frozenset({"M3", "R3"}),
)
P9: Final = Rule(
    id="P9",
    name="Masked elements are filled with something other than zero",
    example="tl.load(a, mask=m, other=1.0)\n->\ntl.load(a, mask=m, other=0.0)   # and correct what the ones "
    "would have added",
    level=Level.COMPILER,
    needs=frozenset({"source", "code", "remarks"}),
    weight=72,
    detect=_filled,
    explain=lambda facts, hit: (
        "tritongpu-pipeline: cp.async can fill with zeros only. The tile is read back into registers, "
        "the fill selected there, and the result stored again for the dot, which waits."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Fill with 0 and correct the result: mask the scores after the dot, for example.",
        no_diff="the correction depends on the algorithm",
    ),
    predicts=lambda facts, hit: [Prediction(fact="remark.dot-waits-for-operands", now=1, expected="becomes", to=0)],
    falsified_by=_FALSIFIED,
    risks=("the filled value enters the sum: without the correction results change",),
    explains=frozenset({"M3", "R3", "T10"}),
)
P10: Final = Rule(
    id="P10",
    name="Two levels of loads in too few stages",
    example="kernel[grid](..., num_stages=2)\n->\nkernel[grid](..., num_stages=4)",
    level=Level.CODE,
    needs=_NEEDS,
    weight=64,
    detect=_indirect,
    explain=lambda facts, hit: (
        "tritongpu-assign-latencies: a load that another load's address needs takes a stage of its "
        "own; with two stages it is not copied ahead."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Use num_stages=4 or more, as far as shared memory goes, or load the indices before the loop.",
        no_diff="shared memory may not suffice",
    ),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.async_copies", now=facts.launch.async_copies if facts.launch else None, expected="rises"
        )
    ],
    falsified_by=_FALSIFIED,
    explains_here=frozenset({"V13"}),
    explains=frozenset({"M3", "R3"}),
)
P8: Final = Rule(
    id="P8",
    name="Loads too narrow for asynchronous copies",
    example="tl.load(a_ptr + m[:, None] * stride + k[None, :])\n->\n"
    "stride = (stride // 8) * 8   # the host asserts stride % 8 == 0\n"
    "tl.load(a_ptr + m[:, None] * stride + k[None, :])",
    level=Level.CODE,
    needs=frozenset({"code", "lines"}),
    weight=74,
    detect=_too_narrow,
    explain=lambda facts, hit: "tritongpu-assign-latencies: cp.async moves at least 4 bytes a thread.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Restore the alignment of the load's address and mask, then compile again.",
        no_diff="what is misaligned could not be told from the source",
    ),
    predicts=_copied,
    falsified_by=_FALSIFIED,
    explains_here=frozenset({"V13"}),
    explains=frozenset({"M3", "R3"}),
)


def _reads_variable(loop: ast.For) -> bool:
    """Whether a loop's body uses its variable."""
    name = loop.target.id if isinstance(loop.target, ast.Name) else None
    inside = (node for statement in loop.body for node in ast.walk(statement))
    return name is None or any(isinstance(node, ast.Name) and node.id == name for node in inside)


def _ranged(facts: Facts, hit: Hit) -> Rewrite:
    """`tl.range` in the place of `tl.static_range`, where the loop's variable indexes nothing at compile time."""
    loops = [loop for loop in (facts.source.loops if facts.source else []) if loop.line == hit.line]
    call = loops[0].call if loops else None
    edit = None
    unused = bool(loops) and isinstance(loops[0].node, ast.For) and not _reads_variable(loops[0].node)
    if facts.file is not None and call is not None and unused:
        edit = diff(facts.file, [replaced(call.func, "tl.range")])
    return Rewrite(
        recipe="Use tl.range: the pipeline needs a loop.",
        diff=edit,
        no_diff=None if edit else "the loop's variable may have to be a constant in the body",
    )


DROPPED: Final[dict[str, str]] = {
    "P16": "told as V2: a mask whose limit along K is not divisible by 16 is the same fault inside a loop with a dot.",
}
RULES: Final = (P2, P3, P5, P6, P4, P1, P9, P10, P8, *loops.RULES)
