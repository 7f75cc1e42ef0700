"""Which knobs mattered, as far as what was measured tells."""

import math
from collections.abc import Sequence
from typing import Final

from ...sandbox.wire import Wire
from .knobs import Value
from .search import Search
from .space import Point

MATTERS: Final = 1.0
"""Percent: less is about what neighbours differ by without a reason."""
VALUES_SHOWN: Final = 6


class KnobEffect(Wire):
    """What a knob's values cost, each with the best of the others that was measured beside it."""

    knob: str
    best: int | bool | None
    """Of the chosen point; null: as the file computes it."""
    lost_pct: dict[str, float]
    """By value: how much slower the best variant with it is than the best of all. Values never measured are missing."""
    matters: bool | None
    """Whether another value loses more than 1 %; null where no other was measured."""


def effects(search: Search, chosen: Point) -> list[KnobEffect]:
    """One entry a knob, those that matter most first."""
    measured = list(search.measured_points())
    found: list[KnobEffect] = []
    for place, knob in enumerate(search.space.knobs):
        lost: dict[Value, float] = {}
        for value in knob.values:
            its = _lost(search, measured, place, value)
            if its is not None:
                lost[value] = its
        others = [loss for value, loss in lost.items() if value != chosen[place]]
        shown = sorted(lost.items(), key=lambda one: one[1])[:VALUES_SHOWN]
        found.append(
            KnobEffect(
                knob=knob.name,
                best=knob.shown(chosen[place]),
                lost_pct={named(knob.shown(value)): round(loss, 1) for value, loss in shown},
                matters=max(others) > MATTERS if others else None,
            )
        )
    return sorted(found, key=lambda one: (one.matters is not True, one.matters is None))


def _lost(search: Search, measured: Sequence[tuple[Point, dict[str, float]]], place: int, value: Value) -> float | None:
    """Percent that the best with a value loses to the best of all, over the cases in which any was measured."""
    total = weight = 0.0
    for case, share in search.shares.items():
        all_of_them = [values[case] for _, values in measured if case in values]
        with_it = [values[case] for point, values in measured if case in values and point[place] == value]
        if with_it:
            total += share * (max(all_of_them) - max(with_it))
            weight += share
    return 100 * math.expm1(total / weight) if weight else None


def named(value: Value) -> str:
    return "as written" if value is None else str(value)
