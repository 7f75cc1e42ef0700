"""What an edit is expected to save: what is left of a launch's time when its cause is gone.

Models, by rule; each says what it takes from where. Where a cause keeps a launch from its roof, the launch without it
takes what good kernels take for the same work: its floor over the share of the floor's rate that they reach. Where a
cause makes warps wait for one thing, that waiting goes. Where it is instructions, they go as far as the SM is busy with
them. In each case what stays takes as long as before. The shares are measured, see docs/diagnosis.md; what was not
profiled has no expectation, and neither has a rule whose edit gives up as much as it wins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from .caused import caused
from .facts import Facts

REACHED: Final = {"memory": 0.9, "compute": 0.75}
"""Of the rate measured on the device, what kernels of ours reach without a fault, on one H200: copies and row-wise
kernels 0.87 to 0.95; 4096 x 4096 x 1024 products of fp16 by tiles of 128 x 256 with 8 warps 0.76."""
BUSY: Final = 0.85
"""Of its peak, what a pipe reaches in kernels that are limited by it (own)."""


class Left(NamedTuple):
    """Of a launch's time."""

    share: float
    """0 to 1."""
    why: str
    shared: bool
    """With other causes that keep the launch from the same roof."""


@dataclass(frozen=True, slots=True)
class Model:
    """How what is left is told."""

    name: str
    left: Callable[[Facts, int | None], Left | None]
    """Of the launch, for a finding on a line."""


def to_the_floor(*stays: str, times: float = 1.0) -> Model:
    """The launch gets as near to its floor as good kernels do.

    Args:
        stays: pipes whose work the edit does not change.
        times: how many times the floor's work the edit needs.
    """

    def left(facts: Facts, line: int | None) -> Left | None:
        floor = facts.floor
        reached = None if floor is None else REACHED.get(floor.bound)
        if floor is None or reached is None:
            return None
        work = floor.why if times == 1 else f"{times:g} times {floor.why}"
        share, why = (
            times * floor.share_pct / 100 / reached,
            f"what good kernels take for {work}: {times * floor.us / reached:.1f} us",
        )
        pipe = _busiest(facts, stays)
        if pipe is not None and pipe[1] / BUSY > share:
            share, why = pipe[1] / BUSY, f"the {pipe[0]} pipe stays as busy as it is: {100 * pipe[1]:.0f} %"
        return Left(min(share, 1.0), why, shared=True)

    return Model("floor", left)


def by_one_block(model: Model) -> Model:
    """A pipeline of more steps, where a single block has an SM: several hide each other's waiting already.

    The buffers and addresses of further steps also take the place of one of them. Of a product that gathers its rows,
    with three blocks on an SM, more stages left two and saved 2 % on an H200, where the floor alone promised 22 %.
    """

    def left(facts: Facts, line: int | None) -> Left | None:
        alone = facts.launch is not None and facts.launch.blocks_per_sm == 1
        return model.left(facts, line) if alone else None

    return Model(f"{model.name}, of one block on an SM", left)


def in_turns(*computes: str) -> Model:
    """What converts an operand and what multiplies it take turns, whichever side of the product it is on.

    A converted first operand lies in the registers that wgmma reads, so the warps that multiply convert before, and
    wait for the product before they convert for the next step. Their pipes' times add up; only what went through shared
    memory and its barriers goes. In the code of int8 weights 18 of a step's 32 conversions come before its first wgmma,
    30 before its second, and it ends with a wait for the last.

    Args:
        computes: pipes that may do the conversion; the busiest counts.
    """

    def left(facts: Facts, line: int | None) -> Left | None:
        floor = _PIPELINE.left(facts, line)
        busy, tensor = _busiest(facts, computes), _busiest(facts, ("tensor",))
        if floor is None or busy is None or tensor is None:
            return floor
        share = min(1.0, (busy[1] + tensor[1]) / BUSY)
        if share <= floor.share:
            return floor
        why = (
            f"the {busy[0]} pipe, {100 * busy[1]:.0f} % busy, and the tensor pipe, {100 * tensor[1]:.0f} %, take turns"
        )
        return Left(share, why, shared=True)

    return Model("turns", left)


def without_spills() -> Model:
    """Spilled bytes go, and device memory stays as busy with the others as it is with all.

    More registers for a row, from more warps, are still one row's: it fills half of an SM's registers or more, so that
    one or two blocks fit, and while they compute nothing is loaded. Two softmaxes of rows of 32,768 on an H200 came to
    69 % of its bandwidth by this, not to the 90 % of kernels with many small blocks. A product gets all of its
    registers back.
    """

    def left(facts: Facts, line: int | None) -> Left | None:
        floor, roof = facts.floor, caused(facts, "dram_bound")
        if floor is None or floor.bound == "compute":
            return _PIPELINE.left(facts, line)
        moved = None if roof is None else roof.evidence.get("achieved_share_pct")
        if not isinstance(moved, int | float) or not moved:
            return None
        share = floor.share_pct / moved
        why = f"device memory moves {moved:.0f} % of what it can, {floor.share_pct:.0f} % of it for {floor.why}"
        return Left(min(1.0, share), why, shared=False)

    return Model("spills", left)


def or_spills(model: Model) -> Model:
    """The same, but where registers spill: without these the launch gets to its floor, as a loop holds one step's."""

    def left(facts: Facts, line: int | None) -> Left | None:
        spills = facts.launch is not None and facts.launch.spill_bytes
        return (_PIPELINE if spills else model).left(facts, line)

    return Model(f"{model.name}, of spills floor", left)


def without_stall(*reasons: str) -> Model:
    """What warps waited for is gone; they wait for nothing else instead."""

    def left(facts: Facts, line: int | None) -> Left | None:
        stalls = [] if facts.profile is None else [one for one in facts.profile.stalls if one.reason in reasons]
        if not stalls:
            return None
        lost = sum(one.pct for one in stalls)
        names = " and ".join(one.reason for one in stalls)
        return Left(max(0.0, 1 - lost / 100), f"warps wait {lost:.0f} % of their time in {names}", shared=False)

    return Model("stall", left)


def fewer_instructions(gone: float) -> Model:
    """A part of the instructions goes; what limits a launch whose schedulers or pipes are full.

    Args:
        gone: share of the launch's instructions, as counted in the compiled code of worked examples.
    """

    def left(facts: Facts, line: int | None) -> Left | None:
        busy = _busy(facts)
        if busy is None:
            return None
        share = max(1 - gone * min(1.0, busy / BUSY), floor_share(facts))
        why = f"about {100 * gone:.0f} % of the instructions go, and the SM is busy {100 * busy:.0f} %"
        return Left(share, why, shared=False)

    return Model("instructions", left)


def less_on_line(gone: float) -> Model:
    """A part of what one line does goes, which takes the warps' time there and where they wait for its results.

    Warps of one kernel do the same, so that a line's share of their samples is its share of their time, which is the
    launch's as far as the SM is busy. What other lines do is not touched, however long the line's own code is.

    Args:
        gone: share of the line's time, from the instructions before and after, by the rates of their pipes.
    """

    def left(facts: Facts, line: int | None) -> Left | None:
        busy, spent = _busy(facts), _samples(facts, line)
        if busy is None or spent is None:
            return None
        share = max(1 - gone * spent * min(1.0, busy / BUSY), floor_share(facts))
        why = (
            f"warps spend {100 * spent:.0f} % of their time on the line or waiting for it, some {100 * gone:.0f} % of "
            f"that goes, and the SM is busy {100 * busy:.0f} %"
        )
        return Left(share, why, shared=False)

    return Model("line", left)


def _busy(facts: Facts) -> float | None:
    """How full the schedulers or the busiest pipe are; None where no floor tells what a full one may come to."""
    profile = facts.profile
    if profile is None or facts.floor is None:
        return None
    shares = [profile.issue_slot_pct, *(pipe.pct for pipe in profile.pipes if pipe.name != "tensor")]
    busy = max((share for share in shares if share is not None), default=None)
    return None if busy is None else busy / 100


def floor_share(facts: Facts) -> float:
    """What good kernels need of the launch's time."""
    floor = facts.floor
    return 0.0 if floor is None else min(1.0, floor.share_pct / 100 / REACHED.get(floor.bound, 1.0))


def _samples(facts: Facts, line: int | None) -> float | None:
    """Share of the warps' time on a line, with that on others in which they wait for what it computes."""
    if line is None or not facts.hotspots:
        return None
    here = sum(spot.pct for spot in facts.hotspots if spot.line == line)
    waiting = sum(
        spot.pct * (spot.stall_pct or 0.0) / 100
        for spot in facts.hotspots
        if spot.line != line and spot.waits_for_line == line
    )
    return min(1.0, (here + waiting) / 100)


def in_one_launch(facts: Facts) -> Left | None:
    """Many launches as one: what is busiest in one of them is busy in it all the time.

    What passes between launches is not counted, as a profile of each tells nothing of it: more than this is saved.
    """
    profile, call = facts.profile, facts.call
    if profile is None or call is None or not call.us or profile.memory_pct is None or profile.compute_pct is None:
        return None
    busiest = max(profile.memory_pct, profile.compute_pct, profile.issue_slot_pct or 0.0) / 100
    others = call.others_us / call.us
    why = (
        f"each launch keeps the busiest part of the GPU {100 * busiest:.0f} % busy, which is what {call.launches} of "
        "them need as one"
    )
    return Left(others + (1 - others) * min(1.0, busiest / BUSY), why, shared=False)


def _busiest(facts: Facts, names: tuple[str, ...]) -> tuple[str, float] | None:
    pipes = [] if facts.profile is None else [pipe for pipe in facts.profile.pipes if pipe.name in names]
    busiest = max(pipes, key=lambda pipe: pipe.pct, default=None)
    return None if busiest is None else (busiest.name, busiest.pct / 100)


_PIPELINE: Final = to_the_floor("xu", "fma", "alu", "fp64")
_WIDE: Final = to_the_floor("xu", "fma", "fp64")
"""Wider accesses take fewer address instructions, which the ALU does."""
MODELS: Final[dict[str, Model]] = {
    **dict.fromkeys(("T1", "T2", "T3", "T5", "T6", "T7", "T8", "T9", "T11", "T13", "T15", "T16"), _PIPELINE),
    # Three products of tf32 in the place of each.
    "T4": to_the_floor("xu", times=3),
    "T10": in_turns("xu", "alu", "fma", "fp64"),
    **dict.fromkeys(("P1", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P11"), _PIPELINE),
    "P10": by_one_block(_PIPELINE),
    **dict.fromkeys(("V1", "V2", "V3", "V4", "V5", "V6", "V7", "V9", "V13", "V14"), _WIDE),
    "V10": to_the_floor("xu", "fp64"),
    **dict.fromkeys(("R1", "R2"), without_spills()),
    "R4": _PIPELINE,
    # Of some 28 instructions of an element's short way 8 stay.
    "R5": less_on_line(0.7),
    "R7": or_spills(without_stall("no_instruction")),
    "A1": without_stall("membar"),
    **dict.fromkeys(("L1", "L7"), without_stall("barrier", "short_scoreboard", "mio_throttle")),
    **dict.fromkeys(("A3", "A4"), _PIPELINE),
    "I1": fewer_instructions(0.3),
    # ptxas takes the reciprocal of what is the same for all out of the loop; two corrections and a product are left.
    "I2": less_on_line(2 / 3),
    "I3": fewer_instructions(0.7),
    # Two conversions at an eighth and an fp64 operation at half of the rate of the one fp32 operation that stays.
    "I4": less_on_line(0.94),
    "I8": less_on_line(1.0),
}
"""Rule -> how its gain is expected. A rule without one has none: nothing that is measured tells it."""
