"""R: registers that spill, and local memory that is none of theirs."""

import ast
from typing import Final

from ...ncu.cause import LATENCY_PCT
from ...ncu.waits import BUSY_WARPS_PCT, LOW_OCCUPANCY_PCT, USED_OCCUPANCY
from ..expressions import form_of
from ..facts import Facts, Need
from ..model import Evidence, Level, Prediction, Rewrite
from ..rule import Hit, Rule, seen
from ..source import form
from ..source.syntax import calls, dotted, keyword, language

_CODE: Final[frozenset[Need]] = frozenset({"code"})
_ELEMENTS_PER_THREAD: Final = 128
"""Half of a thread's 255 registers for one fp32 tile."""
_STEPS: Final = 32
"""Own: below it the code of an unrolled loop is small."""
_WIDE_PRODUCTS: Final = 4
"""Own, on one line: a program's base address has up to three."""
_FETCHED_PCT: Final = 5.0
"""Own: what costs warps less of their time than this hardly shows in the launch's. A sum over 64 steps on an H200, 94 %
of whose warps' time went to its loads, took as long unrolled as in a loop."""
_TRIGONOMETRY: Final = ("sin", "cos")


def _spilled(facts: Facts) -> Evidence | None:
    if facts.launch is None or not facts.launch.spill_bytes:
        return None
    told = f"{facts.launch.spill_bytes} bytes a thread spill at {facts.launch.registers} registers"
    return seen(Level.CODE, told, None, "launch.spill_bytes", facts.launch.spill_bytes)


def _spill_line(facts: Facts) -> tuple[int | None, list[Evidence]]:
    """The line that the machine code blames, where it was read."""
    if facts.machine_code is None or not facts.machine_code.live_lines:
        return None, []
    most = facts.machine_code.live_lines[0]
    return most.line, [seen(Level.CODE, f"{most.live_registers} registers hold a value here", most.line)]


def _spills(facts: Facts) -> list[Hit]:
    told = _spilled(facts)
    line, more = _spill_line(facts)
    return [] if told is None else [Hit((told, *more), line)]


def _long_row(facts: Facts) -> list[Hit]:
    told = _spilled(facts)
    if told is None or facts.launch is None or facts.launch.dots or facts.launch.elements_per_program_max is None:
        return []
    each = facts.launch.elements_per_program_max // (32 * facts.launch.num_warps)
    if each < _ELEMENTS_PER_THREAD:
        return []
    line = None
    if facts.lines is not None:
        line = next((site.line for site in facts.lines.ttgir if site.kind in ("load", "store")), None)
    return [Hit((told, seen(Level.CODE, f"a thread has {each} elements of the largest tile", line)), line)]


def _limited(facts: Facts) -> list[Hit]:
    told = _spilled(facts)
    if told is None or facts.file is None:
        return []
    for call in facts.file.calls:
        limit = keyword(call, "maxnreg")
        number = limit.value if isinstance(limit, ast.Constant) else None
        taken = facts.launch.registers if facts.launch else None
        # ptxas rounds the limit down to what the hardware hands out: 8 registers at a time.
        if limit is not None and isinstance(number, int) and taken is not None and number - 8 <= taken <= number:
            return [Hit((told, seen(Level.SOURCE, f"maxnreg is {number}", limit.lineno)), limit.lineno)]
    return []


def _stack(facts: Facts) -> list[Hit]:
    if facts.launch is None or facts.source is None or not facts.launch.stack_bytes or facts.launch.spill_bytes:
        return []
    for call in facts.source.named(*_TRIGONOMETRY, "device_print"):
        told = seen(
            Level.CODE,
            f"{facts.launch.stack_bytes} bytes of stack a thread and no spill",
            call.line,
            "launch.stack_bytes",
            facts.launch.stack_bytes,
        )
        return [Hit((told,), call.line, (call.name,))]
    return []


def _unrolled(facts: Facts) -> list[Hit]:
    if facts.source is None or facts.lines is None:
        return []
    for access in facts.source.accesses:
        loop = next((each for each in reversed(access.place.loops) if each.kind == "static_range"), None)
        sites = [site for site in facts.lines.ttgir if site.line == access.line and site.kind == access.kind]
        if loop is None or len(sites) < _STEPS or any(language(each) == "dot" for each in calls(loop.node)):
            continue
        told = [seen(Level.CODE, f"the {access.kind} is in the code {len(sites)} times", access.line)]
        spilled, fetched = _spilled(facts), _without_instructions(facts)
        if spilled is not None:
            told.append(spilled)
        elif fetched is not None and fetched < _FETCHED_PCT:
            return []
        source = seen(Level.SOURCE, "the loop is tl.static_range", loop.line)
        return [Hit((source, *told), loop.line, unsure=spilled is None and fetched is None)]
    return []


def _without_instructions(facts: Facts) -> float | None:
    """Share of the warps' time in which they wait for their next instruction to be fetched."""
    if facts.profile is None or not facts.profile.stalls:
        return None
    return sum(one.pct for one in facts.profile.stalls if one.reason == "no_instruction")


def _few_warps(facts: Facts) -> list[Hit]:
    """Registers alone limit how many warps there are to wait for memory by turns, and all of them do wait."""
    profile, launch = facts.profile, facts.launch
    if profile is None or launch is None or launch.registers_for_next_block is None or launch.spill_bytes:
        return []
    room, there = profile.theoretical_occupancy_pct, profile.achieved_occupancy_pct
    if room is None or room >= LOW_OCCUPANCY_PCT or profile.occupancy_limiter != "registers":
        return []
    if profile.mma == "gmma" or (profile.tensor_pct or 0) >= BUSY_WARPS_PCT:
        return []  # products of warpgroups want few blocks
    if there is not None and there < USED_OCCUPANCY * room:
        return []  # it isn't room that is missing
    issued = profile.issue_slot_pct
    worst = profile.stalls[0] if profile.stalls else None
    if issued is None or issued >= LATENCY_PCT or worst is None or worst.reason != "long_scoreboard":
        return []
    measured = (
        f"{room:.0f} % of an SM's warps fit, and they spend {worst.pct:.0f} % of the time between two instructions "
        "waiting for memory"
    )
    told = f"{launch.registers} registers a thread; one more block fits at {launch.registers_for_next_block}"
    code = seen(Level.CODE, told, None, "launch.registers", launch.registers)
    return [Hit((seen(Level.PROFILE, measured), code), None)]


def _wide_offsets(facts: Facts) -> list[Hit]:
    """Products of 64 bits for each element, where the source makes the offsets of a tile so wide."""
    counts: dict[int, int] = {}
    for site in facts.instructions("wide_multiply"):
        if site.line is not None:
            counts[site.line] = counts.get(site.line, 0) + site.count
    line, count = max(counts.items(), key=lambda each: each[1], default=(0, 0))
    source = _widened(facts) if count >= _WIDE_PRODUCTS else None
    if source is None:
        return []
    told = f"{count} multiplications of 64 bits a thread, each of some 4 instructions"
    return [Hit((source, seen(Level.CODE, told, line, "ptx.wide_multiply", facts.count("wide_multiply"))), line)]


def _widened(facts: Facts) -> Evidence | None:
    if facts.source is None:
        return None
    for statement, _ in facts.source.statements:
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr="to"), args=[kind, *_]) if dotted(kind).endswith(
                    "int64"
                ) and form.has_lanes(form_of(facts, value)):
                    return seen(Level.SOURCE, "a tile of offsets is made 64 bits wide", node.lineno)
                case _:
                    pass
    for access in facts.source.accesses:
        loaded = access.kind == "load" and facts.captured.signature.get(access.pointer or "") in ("*i64", "*u64")
        if loaded and form.has_lanes(access.address):
            return seen(Level.SOURCE, f"indices of 64 bits are loaded from `{access.pointer}`", access.line)
    return None


def _no_spill(facts: Facts, hit: Hit) -> list[Prediction]:
    now = facts.launch.spill_bytes if facts.launch else None
    return [Prediction(fact="launch.spill_bytes", now=now, expected="becomes", to=0)]


_FALSIFIED: Final = "Without spills the launch takes as long: they are outside of what is executed often."

R1: Final = Rule(
    id="R1",
    name="Registers spill to local memory",
    example="kernel[grid](..., BLOCK=8192, num_warps=4)\n->\nkernel[grid](..., BLOCK=8192, num_warps=8)",
    level=Level.CODE,
    needs=_CODE,
    weight=68,
    detect=_spills,
    explain=lambda facts, hit: (
        "ptxas: a thread has at most 255 registers (65,536 for the block's threads together), and "
        "more values are alive at once."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe=facts.observations["R1"].suggestion if "R1" in facts.observations else "Give a thread less.",
        no_diff="tiles and warps are chosen together",
    ),
    predicts=_no_spill,
    falsified_by=_FALSIFIED,
    explains=frozenset({"M3"}),
)
R2: Final = Rule(
    id="R2",
    name="A row too long for registers",
    example="x = tl.load(row + tl.arange(0, 32768)); s = tl.sum(f(x))\n->\n"
    "for k in tl.range(0, 32768, 1024, num_stages=3):\n    acc += f(tl.load(row + k + i))\ns = tl.sum(acc)",
    level=Level.CODE,
    needs=_CODE,
    weight=75,
    detect=_long_row,
    explain=lambda facts, hit: "ptxas: the whole row is alive at once, in registers.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Loop over chunks with running statistics and reduce once after the loop, or use 16 to 32 warps "
        "and at most "
        "64 elements a thread.",
        no_diff="the reduction has to become a running one",
    ),
    predicts=_no_spill,
    falsified_by=_FALSIFIED,
    risks=("sums in another order round differently",),
    explains=frozenset({"R1", "M3"}),
)
R4: Final = Rule(
    id="R4",
    name="A limit on registers makes them spill",
    example="kernel[grid](..., maxnreg=96)\n->\nkernel[grid](...)",
    level=Level.CODE,
    needs=frozenset({"code", "source"}),
    weight=90,
    detect=_limited,
    explain=lambda facts, hit: "ptxas keeps to maxnreg and parks the rest in local memory.",
    rewrite=lambda facts, hit: Rewrite(
        recipe="Remove maxnreg, or raise it until nothing spills.",
        no_diff="it may be what a second block needs",
    ),
    predicts=_no_spill,
    falsified_by=_FALSIFIED,
    explains=frozenset({"R1", "T13", "M3"}),
)
R5: Final = Rule(
    id="R5",
    name="A function's slow path uses the stack",
    example="tl.sin(x)\n->\nlibdevice.fast_sinf(x)   # absolute error grows with |x|",
    level=Level.CODE,
    needs=frozenset({"code", "source"}),
    weight=45,
    detect=_stack,
    explain=lambda facts, hit: (
        f"`{hit.subject[0] if hit.subject else 'it'}` brings an array in local memory, which is no spill: "
        "sine and cosine reduce large arguments there, a print its arguments."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Remove prints. For small arguments use libdevice.fast_sinf and fast_cosf, or reduce the range "
        "yourself. Their error is absolute, some 2**-21: near its zeros a sine is its reduced argument.",
        no_diff="the accuracy that is needed is not known",
    ),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.stack_bytes", now=facts.launch.stack_bytes if facts.launch else None, expected="becomes", to=0
        )
    ],
    falsified_by="The launch is limited by memory: the instructions are hidden.",
    risks=("the fast functions are inaccurate for large arguments, and relatively near zero",),
    explains_here=frozenset({"I4"}),
)
R7: Final = Rule(
    id="R7",
    name="An unrolled loop makes the code long",
    example="for k in tl.static_range(64):\n->\nfor k in tl.range(64):",
    level=Level.CODE,
    needs=frozenset({"code", "source", "lines"}),
    weight=44,
    detect=_unrolled,
    explain=lambda facts, hit: (
        "tl.static_range is unrolled before any pass runs; code beyond the instruction cache is fetched, and ptxas "
        "moves the loads of many steps ahead, more than there are registers for."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Use tl.range, with num_stages where its loads may be copied ahead.",
        no_diff="the loop's variable may have to be a constant in the body",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="launch.loops", now=facts.launch.loops if facts.launch else None, expected="rises")
    ],
    falsified_by="Nothing spills, and the profile shows no waiting for instructions (stall `no_instruction`).",
    explains=frozenset({"R1"}),
)
R3: Final = Rule(
    id="R3",
    name="Registers leave room for too few warps",
    example="kernel[grid](..., BLOCK=4096, num_warps=4)   # 128 registers a thread\n->\n"
    "kernel[grid](..., BLOCK=4096, num_warps=8)   # half the elements a thread",
    level=Level.PROFILE,
    needs=frozenset({"code", "profile"}),
    weight=40,
    detect=_few_warps,
    explain=lambda facts, hit: (
        "An SM's 65,536 registers are all given out. While the warps that fit wait for memory there is no other to "
        "issue from."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe=f"Get to {facts.launch.registers_for_next_block if facts.launch else 'fewer'} registers a thread or "
        "less: a smaller tile, more warps for the same tile, or a shorter life of large values. maxnreg does it only "
        "where nothing spills. As good as more warps are more loads in flight for each.",
        no_diff="tiles and warps are chosen together",
    ),
    predicts=lambda facts, hit: [
        Prediction(
            fact="launch.registers",
            now=facts.launch.registers if facts.launch else None,
            expected="falls",
            to=facts.launch.registers_for_next_block if facts.launch else None,
        )
    ],
    falsified_by="With one more block on an SM the launch takes as long: what it waits for is not latency.",
    explains=frozenset({"M3"}),
)
R6: Final = Rule(
    id="R6",
    name="Offsets of a tile have 64 bits",
    example="at = (pid * BLOCK + tl.arange(0, BLOCK)).to(tl.int64) * stride\nx = tl.load(x_ptr + at)\n->\n"
    "base = pid.to(tl.int64) * BLOCK * stride\nx = tl.load(x_ptr + base + tl.arange(0, BLOCK) * stride)",
    level=Level.CODE,
    needs=frozenset({"code", "source", "lines"}),
    weight=23,
    if_busy=True,
    detect=_wide_offsets,
    explain=lambda facts, hit: (
        "The hardware multiplies 32 bits: a product or a division of 64 bits is several instructions and takes two "
        "registers, and here each element has its own."
    ),
    rewrite=lambda facts, hit: Rewrite(
        recipe="Use 64 bits for the program's base only (`pid.to(tl.int64) * stride`), and 32 for offsets within its "
        "tile; turn loaded indices of 64 bits into tl.int32.",
        applies_if="offsets within a tile (of loaded indices: in the whole tensor) stay below 2**31 elements",
        no_diff="how large the tensor gets is not known",
    ),
    predicts=lambda facts, hit: [
        Prediction(fact="ptx.wide_multiply", now=facts.count("wide_multiply"), expected="falls")
    ],
    falsified_by="The launch waits for memory: the profile shows few busy issue slots, and fewer instructions change "
    "nothing.",
    risks=("offsets of 2**31 elements and more wrap around, and read or write elsewhere",),
)

RULES: Final = (R4, R2, R1, R3, R5, R7, R6)
DROPPED: Final[dict[str, str]] = {
    "R8": "too many warps show in the code as what they cause, and are told as that: V6 (fewer than 16 bytes a "
    "thread) and L6 (rows summed across warps).",
}
"""Entries of the family that have no rule, and why."""
