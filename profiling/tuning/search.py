"""The state of a search: what is compiled, what is measured, what comes next, and what follows from it all.

It asks nobody: whoever runs it compiles and measures what it names, side by side if they like, and tells it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...sandbox.outcome import Kind, Problem
from ..compiler.launch import LaunchFacts
from ..hardware.model import Target
from . import predict, prune
from .knobs import Value
from .order import Next, Order
from .prune import Best, Pruned
from .space import Point, Space

SMALLEST_GAIN: Final = 0.001
"""Expected of the best point left, as log(time): with less the search is over."""
LEAST_MEASURED: Final = 8
"""Before it may be over for that."""
WAITING: Final = 200
"""Points compiled and not yet measured: while there are so many, no more are compiled."""
FINALISTS: Final = 3
WORTH_IT: Final = 0.005
"""log(ratio) by the search's own races that a variant must be ahead of the file as it is, for sure, to be offered."""
MANY: Final = 192
"""Elements a thread, of the 255 registers that it has."""
WRONG_TWICE: Final = 2
"""A knob's value with which so many variants were wrong, and none was right, is not tried again."""
REFUSED_OFTEN: Final = 3
"""One with which the file refused so many, as an assertion does, or so many did not compile, and none was compiled."""

Identity = tuple[object, ...]


class Choice(NamedTuple):
    """A point and what it gains."""

    point: Point
    value: float
    """log(baseline time / time); of several cases the weighted mean."""


@dataclass(slots=True)
class Search:
    """One search over one kernel's space."""

    space: Space
    shares: Mapping[str, float]
    """Of the cases in the score; together 1."""
    target: Target
    most: int | None = None
    """Evaluations: variants measured in a case."""
    input_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of each case's largest tensor, where it is known."""
    seed: int = 0
    evaluations: int = 0
    filling: bool = False
    """Whether what is measured next is to complete what is known of the best, rather than to find better."""
    pruned: dict[Point, Pruned] = field(default_factory=dict[Point, Pruned])
    failures: dict[tuple[str, Point], str] = field(default_factory=dict[tuple[str, Point], str])
    """Variants that failed, or were wrong, when they were run, by kind of outcome."""
    order: Order = field(init=False)
    _left: dict[Point, None] = field(init=False)
    """Not compiled yet."""
    _facts: dict[Point, Mapping[str, Sequence[LaunchFacts]]] = field(
        default_factory=dict[Point, Mapping[str, Sequence[LaunchFacts]]]
    )
    _first: dict[tuple[str, Identity], Point] = field(default_factory=dict[tuple[str, Identity], Point])
    """Whoever compiled to a code first, for each case."""
    _identity: dict[tuple[str, Point], Identity] = field(default_factory=dict[tuple[str, Point], Identity])
    _errors: dict[tuple[str, Point], float] = field(default_factory=dict[tuple[str, Point], float])
    _pending: list[tuple[str, Point]] = field(default_factory=list[tuple[str, Point]])
    _base: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """What the compiler's output lets one expect of the baseline."""
    _right: Counter[tuple[int, Value]] = field(default_factory=Counter[tuple[int, Value]])
    _wrong: Counter[tuple[int, Value]] = field(default_factory=Counter[tuple[int, Value]])
    _compiled: Counter[tuple[int, Value]] = field(default_factory=Counter[tuple[int, Value]])
    _refused: Counter[tuple[int, Value]] = field(default_factory=Counter[tuple[int, Value]])
    _elements: int = 1
    """Of the file's largest tile, as it is."""
    _spent: float = math.inf
    """The gain expected of the point that was chosen last."""

    def __post_init__(self) -> None:
        self.order = Order(self.space, self.shares, self.seed)
        self._left = dict.fromkeys([*self.space.seeds(), *self.space.points(self.seed)])
        if not self.space.listings:
            # The file's own point is the baseline itself.
            self._left.pop(self.space.present, None)

    # Compiling

    def to_compile(self, count: int) -> list[Point]:
        """The next points to compile; they count as underway. Empty where enough wait to be measured."""
        waiting = sum(map(len, self.candidates().values()))
        if not self._left or (waiting >= WAITING and not self.is_spent):
            return []
        chosen = [point for point in self.space.seeds() if point in self._left][:count]
        if not chosen:
            points = [point for point in self._left if not self._is_known_wrong(point) and not self._is_refused(point)]
            scored = self.order.promising(points, count, self._burden)
            chosen = [point for _, point in scored]
            hopeless = self.evaluations >= LEAST_MEASURED and all(gain < SMALLEST_GAIN for gain, _ in scored)
            if hopeless or not chosen:
                self._left.clear()
                return []
        for point in chosen:
            del self._left[point]
        return chosen

    def baseline(self, facts: Mapping[str, Sequence[LaunchFacts]]) -> None:
        """The file as it is, compiled."""
        for case, launches in facts.items():
            self._base[case] = predict.parts(launches, self.target, self.input_bytes.get(case))
            self._elements = max(self._elements, *(predict.elements(one) for one in launches))
        if not self.space.listings:
            self._know(self.space.present, facts)
            for case in self.shares:
                self.order.measured[case, self.space.present] = 0.0
            self._right.update(enumerate(self.space.present))

    def compiled(self, point: Point, facts: Mapping[str, Sequence[LaunchFacts]]) -> None:
        """A variant that was compiled, by case."""
        self._know(point, facts)

    def refused(self, point: Point, kind: Kind, problem: Problem) -> None:
        """A variant that could not be compiled."""
        found = self.pruned[point] = prune.refused(kind, problem)
        if found.reason in ("unusable", "does not compile"):
            self._refused.update(enumerate(point))

    def _is_refused(self, point: Point) -> bool:
        return any(self._refused[each] >= REFUSED_OFTEN and not self._compiled[each] for each in enumerate(point))

    def _burden(self, point: Point) -> float:
        """What a point that was not compiled loses for far too many elements a thread, or for less than one."""
        grown, warps, tiles = 1.0, 4.0, 0
        for knob, value in zip(self.space.knobs, point, strict=True):
            before, after = knob.assumed or 1, knob.assumed or 1 if value is None else value
            if knob.role == "tile":
                grown, tiles = grown * max(after, 1) / before, tiles + 1
            elif knob.role == "warps":
                warps = after
        # Of three lengths of a product's tiles two make the sums.
        each = self._elements * grown ** (2 / 3 if tiles > 2 else 1) / (32 * warps)
        return max(0.0, math.log2(each / MANY)) + max(0.0, -0.5 * math.log2(each))

    def _know(self, point: Point, facts: Mapping[str, Sequence[LaunchFacts]]) -> None:
        self._facts[point] = facts
        self._compiled.update(enumerate(point))
        for case, launches in facts.items():
            identity = tuple((one.code_hash, one.grid, one.num_ctas) for one in launches)
            self._identity[case, point] = identity
            self._first.setdefault((case, identity), point)
            mine = predict.parts(launches, self.target, self.input_bytes.get(case))
            base = self._base.setdefault(case, mine)
            self.order.parts[case, point] = tuple(one - other for one, other in zip(mine, base, strict=True))

    # Measuring

    def candidates(self) -> dict[str, list[Point]]:
        """Points that may be measured, by case: compiled, of a code of their own, and not ruled out."""
        self._rule_out()
        return {case: [point for point in self._facts if self._may_run(case, point)] for case in self.shares}

    def _may_run(self, case: str, point: Point) -> bool:
        key = case, point
        return (
            case in self._facts[point]
            and point not in self.pruned
            and key not in self.order.measured
            and key not in self.failures
            and key not in self._pending
            and self._first[case, self._identity[key]] == point
            and not self._is_known_wrong(point)
        )

    def _rule_out(self) -> None:
        known = [launches for each in self._facts.values() for launches in each.values()]
        best: Best = prune.best_of(known)
        for point, facts in self._facts.items():
            if point in self.pruned or (point == self.space.present and not self.space.listings):
                continue
            for launches in facts.values():
                found = prune.prune(launches, self.target.limits, best)
                if found is not None:
                    self.pruned[point] = found
                    break

    def next(self) -> Next | None:
        """What to measure next; it counts as pending. None where nothing is to be measured now."""
        if self.most is not None and self.evaluations + len(self._pending) >= self.most:
            return None
        candidates = self.candidates()
        missing = self._missing(candidates) if self.filling else {}
        completes = any(missing.values())
        if completes:
            candidates = missing
        if len(self.shares) > 1 and not self.space.listings and not completes:
            found = self.order.choose_for_all(candidates, self.value, self._pending)
        else:
            # An autotuner's list has room for the best of each case.
            found = self.order.choose(candidates, self._pending)
        if found is None:
            return None
        self._spent = found.gain
        if self.is_spent and not completes:
            return None
        self._pending.append((found.case, found.point))
        return found

    @property
    def is_spent(self) -> bool:
        """Whether nothing better is to be expected of what is compiled."""
        return self._spent < SMALLEST_GAIN and self.evaluations >= LEAST_MEASURED

    @property
    def may_compile(self) -> bool:
        """Whether points are left that will be compiled once fewer wait."""
        return bool(self._left)

    def measured(self, case: str, point: Point, value: float, error: float = 0.0) -> None:
        """A variant's time is known: log(baseline time / time), and how far off that may be to each side."""
        self._settle(case, point)
        self.order.measured[case, point] = value
        self._errors[case, point] = error

    def error(self, case: str, point: Point | None) -> float:
        """How far off a measured value may be to each side; 0 for the file as it is."""
        return 0.0 if point is None else self._errors.get((case, self._measured_as(case, point)), 0.0)

    def failed(self, case: str, point: Point, kind: Kind) -> None:
        """A variant failed when it was run, or its results were wrong."""
        self._settle(case, point)
        self.failures[case, point] = kind.value
        self.order.measured.pop((case, point), None)
        if kind is Kind.WRONG:
            self._wrong.update(enumerate(point))

    def right(self, point: Point) -> None:
        """A variant's results were found right."""
        self._right.update(enumerate(point))

    def _settle(self, case: str, point: Point) -> None:
        if (case, point) in self._pending:
            self._pending.remove((case, point))
            self.evaluations += 1

    def _is_known_wrong(self, point: Point) -> bool:
        return any(self._wrong[each] >= WRONG_TWICE and not self._right[each] for each in enumerate(point))

    def _missing(self, candidates: Mapping[str, Sequence[Point]]) -> dict[str, list[Point]]:
        """Of what may be measured, that which would complete the best points."""
        wanted = {choice.point for choice in self.choices(expected=True)[:FINALISTS]}
        wanted |= {self.champion(case).point for case in self.shares}
        alike = {
            (case, self._identity[case, point])
            for point in wanted
            for case in self.shares
            if (case, point) in self._identity
        }
        return {
            case: [point for point in points if (case, self._identity[case, point]) in alike]
            for case, points in candidates.items()
        }

    # What follows

    def value(self, case: str, point: Point) -> float | None:
        """What a point, or another of the same code, was measured at; None where it was not, or failed."""
        return self.order.measured.get((case, self._measured_as(case, point)))

    def _measured_as(self, case: str, point: Point) -> Point:
        """The point of the same code that stands for a point."""
        if (case, point) in self.order.measured or (case, point) not in self._identity:
            return point
        return self._first.get((case, self._identity[case, point]), point)

    def worth_offering(self) -> list[Choice]:
        """Points that are faster than the file as it is by more than the races may be off, the best first."""
        return [choice for choice in self.choices() if self.sure(choice) > WORTH_IT]

    def sure(self, choice: Choice) -> float:
        """What a choice gains at least, as far as the races tell; of several cases the weighted mean."""
        errors = [share * self.error(case, choice.point) for case, share in self.shares.items()]
        return choice.value - math.hypot(*errors)

    def champion(self, case: str) -> Choice:
        """The best of a case so far; the file as it is, where nothing is better."""
        its = [(value, point) for (of, point), value in self.order.measured.items() if of == case]
        best = max(its, key=lambda one: one[0], default=None)
        if best is None or best[0] <= 0:
            return Choice(self.space.present, 0.0)
        return Choice(best[1], best[0])

    def champion_value(self, case: str, point: Point | None) -> float:
        """What a champion was measured at; 0 for the file as it is."""
        return 0.0 if point is None else self.value(case, point) or 0.0

    def choices(self, *, expected: bool = False) -> list[Choice]:
        """Points for all cases, the best first: those measured in each; with `expected` also others, as expected."""
        found: list[Choice] = []
        model = self.order.model() if expected and len(self.shares) > 1 else None
        number = {case: place for place, case in enumerate(self.shares)}
        for point in dict.fromkeys(point for _, point in self.order.measured):
            total = 0.0
            for case, share in self.shares.items():
                value = self.value(case, point)
                if (case, point) in self.failures or point in self.pruned:
                    break
                if value is None:
                    if model is None:
                        break
                    parts = self.order.parts.get((case, point))
                    value = (
                        -math.inf
                        if parts is None
                        else model.expected(self.order.place(point), parts, number[case]).mean
                    )
                total += share * value
            else:
                found.append(Choice(point, total))
        return sorted(found, key=lambda one: -one.value)

    def same_code(self) -> int:
        """Compiled points whose code another has in all cases."""
        return sum(
            all(self._first[case, self._identity[case, point]] != point for case in facts)
            for point, facts in self._facts.items()
        )

    @property
    def compiled_count(self) -> int:
        return len(self._facts)

    @property
    def left_count(self) -> int:
        """Points that were not even compiled."""
        return len(self._left)

    def measured_points(self) -> Iterator[tuple[Point, dict[str, float]]]:
        """All points measured, with what was measured, by case."""
        for point in dict.fromkeys(point for _, point in self.order.measured):
            values = {case: self.order.measured.get((case, point)) for case in self.shares}
            yield point, {case: value for case, value in values.items() if value is not None}
