"""G: how the grid fills the GPU."""

import ast
from math import prod
from typing import Final

from ..caused import caused, hottest_of, measured
from ..edits import diff, launch_option, replaced
from ..facts import Facts
from ..gains import BUSY, floor_share
from ..model import Level, Prediction, Rewrite
from ..rule import Hit, Rule, advice, seen
from ..source.host import is_first_size, launches, shown
from ..source.kernel import LiveKernel, Loop

TAIL_PCT: Final = 20.0
OCCUPANCY_SHARE: Final = 0.8
"""LaunchConfiguration of Nsight Compute 2025.3.1: what the last wave can lose; and
warps resident over those possible."""
SHORT_US: Final = 5.0
"""Own: about what the CPU takes for one launch by Triton at best."""
L2_HIT_PCT: Final = 50.0
"""Own: a product whose programs share tiles in L2 finds three quarters and more of its sectors there."""
BUSY_DRAM_PCT: Final = 60.0
"""SOLBottleneck of Nsight Compute 2025.3.1: below it, device memory is not what a launch waits for."""


def _small(facts: Facts) -> list[Hit]:
    found = facts.observations.get("G1")
    if found is None or facts.launch is None or facts.target.gpu is None:
        return []
    blocks, sms = prod(facts.launch.grid) * facts.launch.num_ctas, facts.target.gpu.sm_count
    expected, why = _spread(facts, blocks / sms)
    return [
        Hit(
            (seen(Level.CODE, found.detail, None, "launch.waves", facts.launch.waves),),
            bound_pct=100 * (1 - blocks / sms),
            expected_pct=expected,
            bound_why=f"if the same work ran on all {sms} SMs as fast as now on {blocks}{why}",
        )
    ]


def _spread(facts: Facts, filled: float) -> tuple[float | None, str]:
    """What work that is spread over all SMs is expected to save, and what limits it then.

    SMs of a small grid have L2, device memory and the chip's power to themselves. With all at work these bound the
    launch: each is as busy in all as before, and good kernels reach a part of the floor's rate, which was measured on
    the whole device.
    """
    profile = facts.profile
    if profile is None:
        return None, ""
    # `lts__throughput` has parts that the memory system's own share leaves out.
    l2 = min(profile.l2_pct or 0.0, profile.memory_pct or 0.0) / 100 / BUSY
    limits = {
        "": filled,
        ", and L2 allowed it": l2,
        ", and device memory allowed it": (profile.dram_pct or 0.0) / 100 / BUSY,
        ", and all of them reached what good kernels do of the floor": floor_share(facts),
    }
    why, left = max(limits.items(), key=lambda each: each[1])
    return 100 * (1 - min(1.0, left)), why


def _tail(facts: Facts) -> list[Hit]:
    if facts.launch is None or facts.profile is None or "G1" in facts.observations:
        return []
    if facts.profile.duration_us is not None and facts.profile.duration_us < SHORT_US:
        return []
    lost, waves = facts.launch.tail_lost_pct_at_most, facts.launch.waves
    if lost is None or waves is None or lost < TAIL_PCT:
        return []
    resident, possible = facts.profile.achieved_occupancy_pct, facts.profile.theoretical_occupancy_pct
    if resident is None or possible is None or resident >= OCCUPANCY_SHARE * possible:
        return []
    told = f"{waves:.2f} waves: the last one is filled to {facts.launch.last_wave_filled_pct:.0f} %"
    return [
        Hit(
            (
                seen(Level.PROFILE, f"{resident:.0f} % of the warps were resident, of {possible:.0f} % that fit"),
                seen(Level.CODE, told, None, "launch.tail_lost_pct_at_most", lost),
            ),
            bound_pct=lost,
            bound_why="what is idle in the last wave, if every block takes equally long",
        )
    ]


def _uneven(facts: Facts) -> list[Hit]:
    found = caused(facts, "imbalance")
    ratio = facts.profile.sm_imbalance if facts.profile is not None else None
    if found is None or ratio is None or ratio <= 1:
        return []
    told, line = [measured(found, "sm_imbalance")], None
    for loop in facts.source.loops if facts.source is not None else []:
        why = _unequal(facts.source, loop) if facts.source is not None else None
        if why is not None:
            told.append(seen(Level.SOURCE, f"the loop's length depends on {why}", loop.line))
            inside = range(loop.line, (loop.node.end_lineno or loop.line) + 1)
            line = hottest_of(facts, inside) if facts.hotspots else loop.line
            break
    why = "if every SM worked as long as the mean of all does now"
    return [Hit(tuple(told), line, bound_pct=100 * (1 - 1 / ratio), bound_why=why)]


def _unequal(kernel: LiveKernel, loop: Loop) -> str | None:
    """What makes a loop longer in some programs than in others; a loop over tiles starts at the program's number."""
    arguments = loop.call.args[:2] if loop.call is not None else []
    for node in reversed(arguments):
        names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        terms = [term for name in names for term in kernel.values.get(name, ())]
        if any(each.kind == "loaded" for term in terms for each in term):
            return "loaded values"
        scaled = any(isinstance(each, ast.Mult) for each in ast.walk(node))
        if any(each.kind == "program" and (scaled or len(term) > 1) for term in terms for each in term):
            return "the program's number"
    return None


def _short(facts: Facts) -> list[Hit]:
    duration = facts.profile.duration_us if facts.profile is not None else None
    if duration is None or duration >= SHORT_US:
        return []
    told = [seen(Level.PROFILE, f"the GPU takes {duration:.1f} us", None, "duration_us", round(duration, 2))]
    if facts.captured.count > 1:
        told.append(seen(Level.SOURCE, f"one call of the entry makes {facts.captured.count} such launches"))
    return [Hit(tuple(told))]


def _far_apart(facts: Facts) -> list[Hit]:
    profile, source = facts.profile, facts.source
    if profile is None or source is None or profile.l2_hit_pct is None or profile.dram_pct is None:
        return []
    dots = [call for call in source.named("dot") if call.place.loops]
    if not dots or profile.l2_hit_pct >= L2_HIT_PCT or profile.dram_pct < BUSY_DRAM_PCT or _grouped(source):
        return []
    across = sum(extent > 1 for extent in facts.captured.grid) > 1 or _remainders(source) > 0
    if not across:
        return []
    text = f"{profile.l2_hit_pct:.0f} % of the sectors are found in L2; device memory is busy {profile.dram_pct:.0f} %"
    told = seen(Level.PROFILE, text, None, "l2_hit_pct", round(profile.l2_hit_pct, 1))
    order = seen(Level.SOURCE, "programs take the tiles row by row", dots[0].line)
    return [Hit((told, order), hottest_of(facts, [dots[0].line]))]


def _remainders(kernel: LiveKernel) -> int:
    return sum(isinstance(each, ast.Mod) for each in ast.walk(kernel.function.node))


def _grouped(kernel: LiveKernel) -> bool:
    """Whether programs are put into groups already, or how they are numbered can't be told."""
    names = {each.id for each in ast.walk(kernel.function.node) if isinstance(each, ast.Name)}
    named = any("group" in name.lower() or "swizzle" in name.lower() for name in names | {*kernel.function.parameters})
    return named or bool(kernel.named("swizzle2d")) or _remainders(kernel) > 1


def _tiny(facts: Facts) -> list[Hit]:
    found = caused(facts, "tiny_block")
    if found is None or "V6" in facts.observations:
        return []  # V6 tells the same of a block that is too small for its threads
    return [Hit((measured(found, "blocks"),))]


def _varying_constant(facts: Facts) -> list[Hit]:
    function = facts.source.function if facts.source is not None else None
    if facts.file is None or function is None:
        return []
    for launch in launches(facts.file, facts.captured.kernel):
        for name, given in launch.given.items():
            value = facts.captured.constexprs.get(name)
            rounded = not isinstance(value, int) or not value & (value - 1)
            if name in function.constants and not rounded and is_first_size(launch.meant(given)):
                told = f"`{name}` is tl.constexpr and is given `{shown(facts.file, launch.meant(given))}`, now {value}"
                return [Hit((seen(Level.SOURCE, told, given.lineno),), given.lineno, (name,))]
    return []


def _cluster(facts: Facts) -> list[Hit]:
    if facts.launch is None or facts.launch.num_ctas == 1:
        return []
    place = _said(facts)
    line = place.lineno if place is not None else facts.captured.line
    told = f"{facts.launch.num_ctas} blocks of a cluster divide each program's tile"
    return [Hit((seen(Level.CODE, told, line, "launch.num_ctas", facts.launch.num_ctas),), line)]


def _said(facts: Facts) -> ast.expr | None:
    if facts.file is None:
        return None
    return launch_option(facts.file, facts.captured.kernel, "num_ctas", facts.captured.num_ctas)


def _alone(facts: Facts, hit: Hit) -> Rewrite:
    place = _said(facts)
    edit = diff(facts.file, [replaced(place, "1")]) if facts.file is not None and place is not None else None
    return Rewrite(
        recipe="Launch with num_ctas=1.",
        diff=edit,
        no_diff=None if edit else "num_ctas is not said exactly once in the file",
    )


def _divided_further(facts: Facts, hit: Hit) -> Rewrite:
    if facts.launch is not None and facts.launch.dots:
        recipe = (
            "Split the sum (split-K, split-KV): each block takes a part of it, and a second kernel adds the parts. "
            "Half a tile's side fills SMs too, but reads each operand twice as often: 64x64 in the place of 128x128 "
            "took 3 % longer on an H200."
        )
    else:
        recipe = "Divide the work further: smaller tiles, or a split of the reduction."
    return Rewrite(recipe=recipe, no_diff="the reduction of the parts has to be written")


G1: Final = Rule(
    id="G1",
    name="Grid smaller than the GPU",
    example="grid = (cdiv(M, 128), cdiv(N, 128))\n->\ngrid = (cdiv(M, 128), cdiv(N, 128), SPLIT_K)",
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=67,
    detect=_small,
    explain=lambda facts, hit: "The launch has fewer blocks than the GPU has SMs.",
    rewrite=_divided_further,
    predicts=lambda facts, hit: [
        Prediction(fact="launch.waves", now=facts.launch.waves if facts.launch else None, expected="rises")
    ],
    falsified_by="A launch of the same kernel on more data takes longer in proportion: then each block is "
    "limited by what "
    "all share.",
    risks=("sums in another order round differently",),
    explains=frozenset({"M3"}),
)
G2: Final = Rule(
    id="G2",
    name="The last wave is nearly empty",
    example="kernel[(tiles,)](...)\n->\nkernel[(min(tiles, sms * blocks_per_sm),)](...)   # for tile in "
    "range(pid, tiles, programs)",
    level=Level.CODE,
    needs=frozenset({"code", "profile"}),
    weight=57,
    detect=_tail,
    explain=lambda facts, hit: "The blocks don't divide evenly among what the GPU holds at once.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Choose tiles so that the blocks fill whole waves, or loop over tiles in as many programs as fit "
        "at once.",
        no_diff="the loop over tiles has to be written",
    ),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.tail_lost_pct_at_most",
            now=facts.launch.tail_lost_pct_at_most if facts.launch else None,
            expected="falls",
        )
    ],
    falsified_by="Blocks take unequally long, so that others fill the gap: the profile's busiest SM is near the mean.",
    explains=frozenset({"M3"}),
)

G3: Final = Rule(
    id="G3",
    name="Some SMs work longer than others",
    example="tile = tl.program_id(0)   # the longest rows come last\n->\n"
    "tile = tl.num_programs(0) - 1 - tl.program_id(0)",
    level=Level.PROFILE,
    needs=frozenset({"profile"}),
    weight=56,
    detect=_uneven,
    explain=lambda facts, hit: (
        "Blocks start in the order of their numbers, and the launch ends with its last one: long blocks that start "
        "late leave the other SMs idle."
    ),
    rewrite=advice(
        "Start the longest programs first (turn the program's number around where later rows are longer), give each "
        "program a long and a short piece, or let as many programs as fit fetch their next piece by an atomic counter.",
        "which programs are long the profile does not tell",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="With the programs' order turned around the launch takes as long.",
    explains=frozenset({"M3"}),
)
G4: Final = Rule(
    id="G4",
    name="The launch is shorter than launching it takes",
    example="for step in range(n):\n    kernel[grid](x)\n->\ngraph = torch.cuda.CUDAGraph()\n"
    "with torch.cuda.graph(graph):\n    for step in range(n):\n        kernel[grid](x)\ngraph.replay()",
    level=Level.PROFILE,
    needs=frozenset({"profile"}),
    weight=67,
    detect=_short,
    explain=lambda facts, hit: (
        "The CPU needs some 5 to 30 us for a launch by Triton, more with many arguments: what the kernel does hardly "
        "counts, unless other work is queued before it."
    ),
    rewrite=advice(
        "Do more in one launch: fuse it with its neighbours, make a loop over launches an axis of the grid, or record "
        "the launches in a CUDA graph.",
        "what can be fused the source of one kernel does not tell",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="Wall time per call equals the kernel's own time: the launches are queued ahead.",
    explains=frozenset({"M3"}),
    relieves="call",
)
G5: Final = Rule(
    id="G5",
    name="Programs that share tiles do not run together",
    example="row, column = tl.program_id(0), tl.program_id(1)\n->\nrow, column = tl.swizzle2d(tl.program_id(0), "
    "tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 8)",
    level=Level.PROFILE,
    needs=frozenset({"source", "profile"}),
    weight=55,
    detect=_far_apart,
    explain=lambda facts, hit: (
        "Blocks run in the order of their numbers. Row by row, those that run at once need one tile of rows but all "
        "columns, which do not stay in L2 until the next row needs them."
    ),
    rewrite=advice(
        "Number the programs in groups of 8 rows (tl.swizzle2d, or GROUP_M of Triton's tutorial on matrix products).",
        "how programs are numbered and the grid have to change together",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="With groups the hit rate of L2 stays as it is: the operands fit into L2 anyway, or are read once.",
    relieves="bytes",
)
G6: Final = Rule(
    id="G6",
    name="Programs end faster than the GPU starts them",
    example="row = tl.program_id(0)\n->\nfor row in range(tl.program_id(0) * ROWS, tl.program_id(0) * ROWS + ROWS):",
    level=Level.PROFILE,
    needs=frozenset({"code", "profile"}),
    weight=64,
    detect=_tiny,
    explain=lambda facts, hit: "The GPU starts about one block a cycle; blocks that do next to nothing leave it empty.",
    rewrite=advice(
        "Give each program several rows: a tile of two dimensions, or a loop.",
        "the tile has to be written",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="launch.waves", now=facts.launch.waves if facts.launch else None, expected="falls")
    ],
    falsified_by="With twice the work for each of half the programs the launch takes as long.",
    explains=frozenset({"M3"}),
)
G7: Final = Rule(
    id="G7",
    name="A size that may differ from call to call is a constant of the compilation",
    example="def kernel(x, N: tl.constexpr, BLOCK: tl.constexpr)\n->\ndef kernel(x, N, BLOCK: tl.constexpr)",
    level=Level.SOURCE,
    needs=frozenset({"source"}),
    weight=30,
    detect=_varying_constant,
    explain=lambda facts, hit: "Triton compiles the kernel again for each new value: 0.1 s to some seconds.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Make it an ordinary argument, or hand over a rounded size (triton.next_power_of_2) and a limit for the "
        "mask.",
        applies_if="calls have many different sizes",
        no_diff="tl.arange and shapes of tiles need a constant",
    ),
    predicts=lambda facts, hit: [],
    falsified_by="All calls have the same few sizes: then each is compiled once.",
)
G8: Final = Rule(
    id="G8",
    name="A cluster of blocks shares each program's tile",
    example="kernel[grid](..., num_ctas=2)\n->\nkernel[grid](..., num_ctas=1)",
    level=Level.CODE,
    needs=frozenset({"code"}),
    weight=31,
    detect=_cluster,
    explain=lambda facts, hit: (
        "Each block of the cluster computes a part of the tile, so that its matrix products are narrower; all of them "
        "have to be resident at once, and meet at the barriers of the cluster."
    ),
    rewrite=_alone,
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.num_ctas", now=facts.launch.num_ctas if facts.launch else None, expected="becomes", to=1
        )
    ],
    falsified_by="With num_ctas=1 the launch takes longer.",
)

RULES: Final = (G1, G4, G6, G2, G3, G5, G8, G7)
