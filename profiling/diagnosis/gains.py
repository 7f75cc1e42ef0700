"""What an edit is expected to save: what is left of a launch's time when its cause is gone.

Two models, by rule. Where a cause keeps a launch from its roof, the launch without it takes what good kernels take
for the same work: its floor over the share of the floor's rate that they reach. Where a cause makes warps wait for
one thing, that waiting goes. In either case units that are busy with what stays are busy as long as before. The
shares are measured, see docs/diagnosis.md; what was not profiled has no expectation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

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
    left: Callable[[Facts], Left | None]


def to_the_floor(*stays: str) -> Model:
    """The launch gets as near to its floor as good kernels do.

    Args:
        stays: pipes whose work the edit does not change.
    """

    def left(facts: Facts) -> Left | None:
        floor = facts.floor
        reached = None if floor is None else REACHED.get(floor.bound)
        if floor is None or reached is None:
            return None
        share, why = (
            floor.share_pct / 100 / reached,
            f"what good kernels take for {floor.why}: {floor.us / reached:.1f} us",
        )
        pipe = _busiest(facts, stays)
        if pipe is not None and pipe[1] / BUSY > share:
            share, why = pipe[1] / BUSY, f"the {pipe[0]} pipe stays as busy as it is: {100 * pipe[1]:.0f} %"
        return Left(min(share, 1.0), why, shared=True)

    return Model("floor", left)


def without_stall(*reasons: str) -> Model:
    """What warps waited for is gone; they wait for nothing else instead."""

    def left(facts: Facts) -> Left | None:
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

    def left(facts: Facts) -> Left | None:
        profile = facts.profile
        if profile is None or facts.floor is None:
            return None
        shares = [profile.issue_slot_pct, *(pipe.pct for pipe in profile.pipes if pipe.name != "tensor")]
        busy = max((share for share in shares if share is not None), default=None)
        if busy is None:
            return None
        bounded = min(1.0, busy / 100 / BUSY)
        floor = facts.floor.share_pct / 100 / REACHED.get(facts.floor.bound, 1.0)
        share = max(1 - gone * bounded, min(floor, 1.0))
        return Left(
            share, f"about {100 * gone:.0f} % of the instructions go, and the SM is busy {busy:.0f} %", shared=False
        )

    return Model("instructions", left)


def _busiest(facts: Facts, names: tuple[str, ...]) -> tuple[str, float] | None:
    pipes = [] if facts.profile is None else [pipe for pipe in facts.profile.pipes if pipe.name in names]
    busiest = max(pipes, key=lambda pipe: pipe.pct, default=None)
    return None if busiest is None else (busiest.name, busiest.pct / 100)


_PIPELINE: Final = to_the_floor("xu", "fma", "alu", "fp64")
_WIDE: Final = to_the_floor("xu", "fma", "fp64")
"""Wider accesses take fewer address instructions, which the ALU does."""
MODELS: Final[dict[str, Model]] = {
    **dict.fromkeys(("T1", "T2", "T3", "T5", "T6", "T7", "T8", "T9", "T10", "T11", "T13", "T15", "T16"), _PIPELINE),
    "T4": to_the_floor("xu"),
    **dict.fromkeys(("P1", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11"), _PIPELINE),
    **dict.fromkeys(("V1", "V2", "V3", "V4", "V5", "V6", "V7", "V9", "V13", "V14"), _WIDE),
    "V10": to_the_floor("xu", "fp64"),
    **dict.fromkeys(("R1", "R2", "R4"), _PIPELINE),
    "U16": _WIDE,
    "A1": without_stall("membar"),
    **dict.fromkeys(("L1", "L7"), without_stall("barrier", "short_scoreboard", "mio_throttle")),
    **dict.fromkeys(("A3", "A4"), _PIPELINE),
    "I1": fewer_instructions(0.3),
    "I2": fewer_instructions(0.5),
    "I3": fewer_instructions(0.7),
    "I4": fewer_instructions(0.8),
    "I8": fewer_instructions(0.5),
}
"""Rule -> how its gain is expected. A rule without one has none: nothing that is measured tells it."""
