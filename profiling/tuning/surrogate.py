"""A Gaussian process over knobs: what is expected of a point that was not measured, and how sure that is.

Points are close where few knobs differ by few steps. Beside that smooth part a linear one learns how much of what the
compiler's output lets one expect (`predict`) is true of this kernel. Cases of one task share what they have in common.
For some dozens of measurements the plain algorithm does, in the standard library: the server's process has no more.
Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, chapters 2 and 5.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import Final, NamedTuple

SPREADS: Final = (0.1, 0.3, 0.8)
"""Of log(time) over the space, standard deviation: one of them is chosen by likelihood, as are the lengths."""
LENGTHS: Final = (1.0, 2.0, 4.0)
"""Over how many steps of all knobs together points are alike."""
OWN_LENGTH: Final = 2.0
"""Over how many steps the effect is alike that a knob has whatever the others are."""
JOINT: Final = 1.0
"""Variance of what knobs do together, over that of what one does by itself."""
PART_SPREAD: Final = 0.5
"""Of the weight of each part of the prior around 1."""
CASE_CORRELATION: Final = 0.8
NOISE: Final = 0.02
"""Of a point, log(time): what differs between neighbours by chance, and two or three short blocks."""
UNFIT: Final = 4
"""With fewer measurements the likelihood says nothing, and the middle of each list is taken."""


class Observed(NamedTuple):
    """A measured point."""

    place: tuple[float, ...]
    """The knobs' values as coordinates, a step being about 1."""
    parts: tuple[float, ...]
    case: int
    value: float
    """log(baseline time / time)."""


class Expected(NamedTuple):
    """What is expected of a point."""

    mean: float
    deviation: float


class _Pair(NamedTuple):
    """What the covariance of two points is made of, whatever the spread and the length."""

    distance: float
    """Euclidean, times the square root of 3."""
    alone: float
    linear: float
    factor: float

    def covariance(self, spread: float, length: float) -> float:
        apart = self.distance / length
        # Matern 3/2: cliffs are common, so nothing smoother is assumed. 1 lets the baseline be anywhere.
        smooth = spread * spread * (JOINT * (1 + apart) * math.exp(-apart) + self.alone + 1)
        return (smooth + self.linear) * self.factor


def _pair(one: Observed, other: Observed) -> _Pair:
    squares, alone = 0.0, 0.0
    for mine, its in zip(one.place, other.place, strict=True):
        step = abs(mine - its)
        squares += step * step
        alone += math.exp(-step / OWN_LENGTH)
    linear = PART_SPREAD**2 * sum(map(mul, one.parts, other.parts))
    return _Pair(math.sqrt(3 * squares), alone, linear, 1.0 if one.case == other.case else CASE_CORRELATION)


@dataclass(frozen=True, slots=True)
class _Fit:
    spread: float
    length: float
    lower: list[list[float]]
    """Cholesky factor of the covariance of what was measured."""
    weights: list[float]
    likelihood: float


class Surrogate:
    """Fitted to what has been measured."""

    def __init__(self, observed: Sequence[Observed], *, like: "Surrogate | None" = None) -> None:
        """
        Args:
            observed: what was measured.
            like: another whose spread and length are taken, as choosing them costs most of the time.
        """
        self._observed = list(observed)
        targets = [one.value + sum(one.parts) for one in observed]
        pairs = [[_pair(one, other) for other in observed[: row + 1]] for row, one in enumerate(observed)]
        grid = [(SPREADS[1], LENGTHS[1])]
        if like is not None:
            grid = [(like._fit.spread, like._fit.length)]
        elif len(observed) >= UNFIT:
            grid = [(spread, length) for spread in SPREADS for length in LENGTHS]
        self._fit: _Fit = max((self._fitted(pairs, targets, *each) for each in grid), key=lambda fit: fit.likelihood)

    def expected(self, place: tuple[float, ...], parts: tuple[float, ...], case: int) -> Expected:
        """What is to be expected of a point in a case."""
        fit = self._fit
        asked = Observed(place, parts, case, 0.0)
        row = [_pair(asked, other).covariance(fit.spread, fit.length) for other in self._observed]
        mean = sum(map(mul, row, fit.weights)) - sum(parts)
        solved: list[float] = []
        for line, value in zip(fit.lower, row, strict=True):
            solved.append((value - sum(map(mul, line, solved))) / line[-1])
        variance = _pair(asked, asked).covariance(fit.spread, fit.length) - sum(map(mul, solved, solved))
        return Expected(mean, math.sqrt(max(variance, 1e-10)))

    def _fitted(self, pairs: list[list[_Pair]], targets: Sequence[float], spread: float, length: float) -> _Fit:
        lower: list[list[float]] = []
        for row in pairs:
            line: list[float] = []
            for pair, other in zip(row, lower, strict=False):
                line.append((pair.covariance(spread, length) - sum(map(mul, line, other))) / other[-1])
            own = row[-1].covariance(spread, length) + NOISE**2 + 1e-8
            lower.append([*line, math.sqrt(max(own - sum(map(mul, line, line)), 1e-10))])
        halfway: list[float] = []
        for line, target in zip(lower, targets, strict=True):
            halfway.append((target - sum(map(mul, line, halfway))) / line[-1])
        weights = [0.0] * len(halfway)
        for row in range(len(halfway) - 1, -1, -1):
            rest = sum(lower[later][row] * weights[later] for later in range(row + 1, len(halfway)))
            weights[row] = (halfway[row] - rest) / lower[row][row]
        determinant = sum(math.log(line[-1]) for line in lower)
        return _Fit(spread, length, lower, weights, -0.5 * sum(map(mul, halfway, halfway)) - determinant)


def expected_gain(expected: Expected, best: float) -> float:
    """Expected improvement over `best`. Source: Jones, Schonlau and Welch, Efficient Global Optimization of Expensive
    Black-Box Functions, Journal of Global Optimization 13 (1998)."""
    ahead = expected.mean - best
    scaled = ahead / expected.deviation
    density = math.exp(-0.5 * scaled * scaled) / math.sqrt(2 * math.pi)
    below = 0.5 * math.erfc(-scaled / math.sqrt(2))
    return max(0.0, ahead * below + expected.deviation * density)
