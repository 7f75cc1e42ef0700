"""Which point to measure next: the one of whose gain most is expected, by a surrogate of what was measured so far."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .space import Knob, Point, Space
from .surrogate import Expected, Observed, Surrogate, expected_gain

FLOOR: Final = 1.2
"""log(time) above the best of a case beyond which a point is just bad: how bad teaches nothing about the best."""
FIRST: Final = 2
"""So many points are spread over the space before the surrogate is asked."""
ENOUGH: Final = 40
"""With fewer points there is no room for that."""
COSTLY: Final = 8.0
"""Of what the compiler's output lets one expect of a first point, against its distance in whole ranges of a knob."""
LOOKED_AT: Final = 300
"""Points whose gain is worked out at a time: those near the best, and others at random."""
COMPILED_AT: Final = 100
"""Points not compiled yet that are looked at a time."""
FORETELLING: Final = 4
"""Points compiled before they say which others to compile."""
FORETOLD_BY: Final = 16
"""By the best of them, and as many of the last."""
TRAINED: Final = 80
RECENT: Final = 30
"""Measurements that a surrogate is fitted to, at most, and how many of them are the last."""
REFITTED: Final = 1.2
"""After so many times the measurements, its spread and length are chosen anew."""
LOSS: Final = 0.01
"""log(time / baseline time) of a case: a point that loses more there is none for all cases, as a run refuses it
(`Limits.case_regression_pct`)."""
ASSUMED_APART: Final = 0.25
"""Steps between a value and the same one where the file computes it."""


class Next(NamedTuple):
    """A point to measure in a case."""

    point: Point
    case: str
    gain: float
    """Expected, as log(time); times the case's share."""


def place_of(space: Space, point: Point) -> tuple[float, ...]:
    """A point's coordinates: a doubling is a step, as is one more stage, or the other of two."""
    return tuple(_coordinate(knob, value) for knob, value in zip(space.knobs, point, strict=True))


def _coordinate(knob: Knob, value: int | bool | None) -> float:
    if value is None or (knob.role == "tile" and value == knob.present and knob.assumed not in (None, value)):
        return ASSUMED_APART + (0.0 if knob.assumed is None else _coordinate(knob, knob.assumed))
    if knob.role in ("stages", "flag"):
        return float(value)
    return math.log2(value) if value > 0 else -1.0


@dataclass(slots=True)
class Order:
    """What was measured, and what follows from it."""

    space: Space
    shares: Mapping[str, float]
    """Of the cases in the score; together 1."""
    seed: int = 0
    measured: dict[tuple[str, Point], float] = field(default_factory=dict[tuple[str, Point], float])
    """log(baseline time / time)."""
    parts: dict[tuple[str, Point], tuple[float, ...]] = field(
        default_factory=dict[tuple[str, Point], tuple[float, ...]]
    )
    """What the compiler's output lets one expect, where it is known."""
    _random: random.Random = field(init=False)
    _fit: tuple[int, Surrogate] | None = None
    """The last whose spread and length were chosen, and after how many measurements that was."""
    _foretelling: tuple[int, Surrogate] | None = None
    """The same of what the compiler's output lets one expect."""
    _places: dict[Point, tuple[float, ...]] = field(default_factory=dict[Point, tuple[float, ...]])

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def best(self, case: str) -> float:
        return max((value for (its, _), value in self.measured.items() if its == case), default=0.0)

    def choose(
        self, candidates: Mapping[str, Sequence[Point]], pending: Sequence[tuple[str, Point]] = ()
    ) -> Next | None:
        """The candidate of which most is expected; None where there is none.

        Args:
            candidates: points that may be measured, by case.
            pending: what is being measured: taken to come out as expected.
        """
        if not any(candidates.values()):
            return None
        if (found := self._spread_out(candidates, pending)) is not None:
            return found
        model = self.model(pending)
        number = {case: place for place, case in enumerate(self.shares)}
        found: Next | None = None
        for case, points in candidates.items():
            best = self.best(case)
            for point in self._some(case, points):
                expected = model.expected(self.place(point), self._parts(case, point), number[case])
                gain = self.shares[case] * expected_gain(expected, best)
                if found is None or gain > found.gain:
                    found = Next(point, case, gain)
        return found

    def choose_for_all(
        self,
        candidates: Mapping[str, Sequence[Point]],
        known: Callable[[str, Point], float | None],
        pending: Sequence[tuple[str, Point]] = (),
    ) -> Next | None:
        """The same where one point is for all cases: of its mean over them most is expected, and that it loses in none.

        Args:
            candidates: points that may be measured, by case.
            known: what a point was measured at in a case, itself or another of the same code; None: it was not.
            pending: what is being measured: taken to come out as expected.
        """
        if not any(candidates.values()):
            return None
        if (found := self._spread_out(candidates, pending)) is not None:
            return found
        model, number = self.model(pending), {case: place for place, case in enumerate(self.shares)}
        best = self._best_for_all(known)
        open_in = {case: set(points) for case, points in candidates.items()}
        every = list(dict.fromkeys(point for points in candidates.values() for point in points))
        found: Next | None = None
        for point in self._some(None, every):
            total, variance, passes, unsure = 0.0, 0.0, 1.0, list[tuple[float, str]]()
            for case, share in self.shares.items():
                value = known(case, point)
                if value is not None:
                    total += share * value
                    passes *= value >= -LOSS
                    continue
                its = model.expected(self.place(point), self._parts(case, point), number[case])
                total, variance = total + share * its.mean, variance + (share * its.deviation) ** 2
                passes *= 0.5 * math.erfc(-(its.mean + LOSS) / (its.deviation * math.sqrt(2)))
                if point in open_in[case]:
                    unsure.append((share * its.deviation, case))
            if unsure:
                gain = passes * expected_gain(Expected(total, math.sqrt(variance)), best)
                if found is None or gain > found.gain:
                    found = Next(point, max(unsure, key=lambda one: one[0])[1], gain)
        return found

    def _best_for_all(self, known: Callable[[str, Point], float | None]) -> float:
        """The best mean of what was measured in all cases and loses in none."""
        best = 0.0
        for point in dict.fromkeys(point for _, point in self.measured):
            values = [(share, known(case, point)) for case, share in self.shares.items()]
            if all(value is not None and value >= -LOSS for _, value in values):
                best = max(best, sum(share * (value or 0.0) for share, value in values))
        return best

    def _spread_out(
        self, candidates: Mapping[str, Sequence[Point]], pending: Sequence[tuple[str, Point]]
    ) -> Next | None:
        """One of the first points, far from all others: a surrogate of neighbours sees no further than they."""
        case = next(iter(self.shares))
        taken = [point for its, point in [*self.measured, *pending] if its == case]
        points = candidates.get(case, ())
        if len(taken) > FIRST or len(points) < ENOUGH:
            return None
        places = [self.place(point) for point in taken]
        ranges = [max(spread, 1e-9) for spread in self._ranges()]

        def distance(point: Point) -> float:
            mine = self.place(point)
            cost = sum(self._parts(case, point))
            far = min(
                (sum(abs(a - b) / r for a, b, r in zip(mine, its, ranges, strict=True)) for its in places), default=0
            )
            return far - COSTLY * cost

        point = max(self._some(case, points), key=distance)
        return Next(point, case, math.inf)

    def _ranges(self) -> list[float]:
        ends = [[_coordinate(knob, value) for value in knob.values] for knob in self.space.knobs]
        return [max(each) - min(each) for each in ends]

    def model(self, pending: Sequence[tuple[str, Point]] = ()) -> Surrogate:
        """A surrogate of what is known."""
        number = {case: place for place, case in enumerate(self.shares)}
        observed = [
            Observed(self.place(point), self._parts(case, point), number[case], max(value, self.best(case) - FLOOR))
            for (case, point), value in self.measured.items()
            if not self._is_explained(case, point, value)
        ]
        model = self._fitted(observed)
        believed = [
            Observed(place, parts, number[case], model.expected(place, parts, number[case]).mean)
            for case, point in pending
            for place, parts in [(self.place(point), self._parts(case, point))]
        ]
        return Surrogate([*observed, *believed], like=model) if believed else model

    def _is_explained(self, case: str, point: Point, value: float) -> bool:
        """Whether a point is just bad, and was expected to be: raised to the floor it would say that it wasn't."""
        best = self.best(case)
        if value >= best - FLOOR:
            return False
        at = next(its for (of, its), one in self.measured.items() if of == case and one == best)
        return sum(self._parts(case, point)) - sum(self._parts(case, at)) > FLOOR

    def _fitted(self, observed: list[Observed]) -> Surrogate:
        if len(observed) > TRAINED:
            # The best, which say where the best of all may be, and the last, which say where it is not.
            top = sorted(observed[:-RECENT], key=lambda one: -one.value)[: TRAINED - RECENT]
            observed = [*top, *observed[-RECENT:]]
        if self._fit is not None and len(self.measured) < REFITTED * self._fit[0]:
            return Surrogate(observed, like=self._fit[1])
        model = Surrogate(observed)
        self._fit = len(self.measured), model
        return model

    def promising(
        self, points: Sequence[Point], count: int, burden: Callable[[Point], float]
    ) -> list[tuple[float, Point]]:
        """Of points that were not compiled yet, those of which most is expected, and how much.

        Args:
            points: to choose from.
            count: so many at most.
            burden: log(time) by which a point is expected to be slower for its size alone.
        """
        if len(self.measured) <= len(self.shares):
            return self._foretold(points, count, burden)
        model = self.model()
        scored: list[tuple[float, Point]] = []
        for point in self._some(None, points, COMPILED_AT):
            place, gain, heavy = self.place(point), 0.0, burden(point)
            for number, (case, share) in enumerate(self.shares.items()):
                found = model.expected(place, self._like(case, place), number)
                gain += share * expected_gain(found._replace(mean=found.mean - heavy), self.best(case))
            scored.append((gain, point))
        scored.sort(key=lambda one: -one[0])
        return scored[:count]

    def _known(self) -> dict[Point, float]:
        """What the compiler's output lets one expect of points compiled for all cases, as log(baseline time / time)."""
        points = dict.fromkeys(point for _, point in self.parts)
        return {
            point: -sum(share * sum(self.parts[case, point]) for case, share in self.shares.items())
            for point in points
            if all((case, point) in self.parts for case in self.shares)
        }

    def _foretold(
        self, points: Sequence[Point], count: int, burden: Callable[[Point], float]
    ) -> list[tuple[float, Point]]:
        """The same where nothing is measured: those whose compilation should foretell most."""
        known = self._known()
        best = max(known.values(), default=0.0)
        model = None
        if len(known) >= FORETELLING:
            kept = dict(sorted(known.items(), key=lambda one: -one[1])[:FORETOLD_BY])
            kept |= dict(list(known.items())[-FORETOLD_BY:])
            observed = [Observed(self.place(point), (), 0, max(value, best - FLOOR)) for point, value in kept.items()]
            its = self._foretelling
            is_old = its is None or len(known) >= REFITTED * its[0]
            model = Surrogate(observed, like=None if is_old or its is None else its[1])
            if is_old:
                self._foretelling = len(known), model
        drawn: list[tuple[float, Point]] = []
        for point in self._some(None, points, COMPILED_AT):
            if model is None:
                drawn.append((3 * burden(point) + self._random.random(), point))
            else:
                found = model.expected(self.place(point), (), 0)
                drawn.append((-expected_gain(found._replace(mean=found.mean - burden(point)), best), point))
        drawn.sort(key=lambda one: one[0])
        return [(math.inf, point) for _, point in drawn[:count]]

    def _like(self, case: str, place: tuple[float, ...]) -> tuple[float, ...]:
        """What is expected of the nearest point that was compiled."""
        known = [(its, parts) for (its_case, its), parts in self.parts.items() if its_case == case]
        if not known:
            return self._parts(case, ())
        return min(known, key=lambda one: sum((a - b) ** 2 for a, b in zip(self.place(one[0]), place, strict=True)))[1]

    def _some(self, case: str | None, points: Sequence[Point], count: int = LOOKED_AT) -> Sequence[Point]:
        if len(points) <= count:
            return points
        wanted = set(points)
        tops = sorted(
            (one for one in self.measured.items() if case is None or one[0][0] == case), key=lambda one: -one[1]
        )[:5]  # fmt: skip
        near = dict.fromkeys(each for (_, point), _ in tops for each in self.space.near(point) if each in wanted)
        rest = self._random.sample(points, count)
        return list(dict.fromkeys([*near, *rest]))[:count]

    def place(self, point: Point) -> tuple[float, ...]:
        if point not in self._places:
            self._places[point] = place_of(self.space, point)
        return self._places[point]

    def _parts(self, case: str, point: Point) -> tuple[float, ...]:
        found = self.parts.get((case, point))
        if found is None:
            length = len(next(iter(self.parts.values()), ()))
            found = (0.0,) * length
        return found
