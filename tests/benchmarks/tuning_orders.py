"""Orders of search compared on made-up landscapes: `python tests/benchmarks/tuning_orders.py [--seeds N] [--optuna]`.

For each: how far the best point found lies behind the best of all, after 15 % of the points have been measured. Optuna
is compared where it is installed. With `--cases`: searches for one point that is best over two cases.
"""

import argparse
import importlib
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.diagnosis.made_up import H200
from tests.profiling.tuning.facts import launch
from tests.profiling.tuning.landscapes import Landscape, matmul, rough, rows
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.tuning.order import LOSS, Next, Order
from tritonforge.profiling.tuning.search import Search
from tritonforge.profiling.tuning.space import Point

SHARE = 0.15
NOISE = 0.005
Strategy = Callable[[Landscape, int, int], list[Point]]
"""Takes a landscape, how many points may be measured, and a seed; the points, in order."""


def noisy(land: Landscape, point: Point, drawn: random.Random, scale: float = NOISE) -> float:
    return land.log_time[point] + drawn.gauss(0, scale)


def at_random(land: Landscape, count: int, seed: int) -> list[Point]:
    return random.Random(seed).sample(list(land.log_time), count)


def halving(land: Landscape, count: int, seed: int) -> list[Point]:
    """Points at random by short measurements (five times the noise at a third of the cost), the best half again."""
    drawn = random.Random(seed)
    points = drawn.sample(list(land.log_time), min(len(land.log_time), int(count * 1.5)))
    return sorted(points, key=lambda point: noisy(land, point, drawn, 5 * NOISE))[: count // 2]


def additive(land: Landscape, count: int, seed: int) -> list[Point]:
    """A third at random; then the best by a sum of what each value of each knob has cost so far."""
    drawn = random.Random(seed)
    done = {point: noisy(land, point, drawn) for point in at_random(land, max(2, count // 3), seed)}
    while len(done) < count:
        middle = statistics.fmean(done.values())
        effects: dict[tuple[int, object], float] = {}
        for place in range(len(land.space.knobs)):
            for value in land.space.knobs[place].values:
                its = [cost - middle for point, cost in done.items() if point[place] == value]
                effects[place, value] = sum(its) / (len(its) + 1)
        left = [point for point in land.log_time if point not in done]
        best = min(left, key=lambda point: sum(effects[each] for each in enumerate(point)) + drawn.random() * 1e-6)
        done[best] = noisy(land, best, drawn)
    return list(done)


def descent(land: Landscape, count: int, seed: int) -> list[Point]:
    """From the file's point to better neighbours; from a random point where there is none."""
    drawn = random.Random(seed)
    done: dict[Point, float] = {}
    at = land.space.present if land.space.present in land.log_time else next(iter(land.log_time))
    while len(done) < count:
        done.setdefault(at, noisy(land, at, drawn))
        around = [point for point in land.space.near(at) if point in land.log_time and point not in done]
        drawn.shuffle(around)
        for point in around[: count - len(done)]:
            done[point] = noisy(land, point, drawn)
            if done[point] < done[at]:
                at = point
                break
        else:
            left = [point for point in land.log_time if point not in done]
            at = drawn.choice(left)
    return list(done)[:count]


def process(land: Landscape, count: int, seed: int) -> list[Point]:
    """The order that is used, without what a compiler tells."""
    drawn = random.Random(seed)
    order = Order(land.space, {"case": 1.0}, seed)
    base = land.space.present if land.space.present in land.log_time else next(iter(land.log_time))
    start = land.log_time[base]
    order.measured["case", base] = 0.0
    done: list[Point] = []
    left = dict.fromkeys(point for point in land.log_time if point != base)
    while len(done) < count:
        found = order.choose({"case": list(left)})
        assert found is not None
        order.measured["case", found.point] = start - noisy(land, found.point, drawn)
        del left[found.point]
        done.append(found.point)
    return [base, *done]


def tpe(land: Landscape, count: int, seed: int) -> list[Point]:
    """Optuna's default for many parameters, told which points don't fit."""
    # Not a dependency.
    optuna: Any = importlib.import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    drawn = random.Random(seed)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=max(3, count // 4))
    study = optuna.create_study(sampler=sampler)
    done: dict[Point, float] = {}
    tries = 0
    while len(done) < count and tries < 20 * count:
        tries += 1
        trial = study.ask()
        steps: list[int] = [trial.suggest_int(knob.name, 0, len(knob.values) - 1) for knob in land.space.knobs]
        point: Point = tuple(knob.values[step] for knob, step in zip(land.space.knobs, steps, strict=True))
        if point not in land.log_time:
            study.tell(trial, max(land.log_time.values()) + 1)  # known not to fit without a run
        else:
            # What was measured before costs nothing again.
            cost = done[point] if point in done else noisy(land, point, drawn)
            done[point] = cost
            study.tell(trial, cost)
    return list(done)


STRATEGIES: dict[str, Strategy] = {
    "random": at_random, "halving": halving, "additive": additive, "descent": descent, "process": process,
}  # fmt: skip
LANDSCAPES: dict[str, Callable[[int], Landscape]] = {
    "matmul": matmul, "matmul, large": lambda seed: matmul(seed, small=False), "rows": rows, "rough": rough,
}  # fmt: skip


def behind(land: Landscape, points: list[Point], seed: int) -> float:
    """Percent that the point chosen by its noisy measurement lies behind the best."""
    drawn = random.Random(seed + 1)
    chosen = min(points, key=lambda point: noisy(land, point, drawn))
    return 100 * math.expm1(land.log_time[chosen] - land.best)


CASES: Final = ("large", "medium")
AHEAD: Final = 3
"""Points underway at a time."""
FILL_SHARE: Final = 0.8
"""Of the measurements: after that, what is known of the best is completed."""
ENOUGH: Final = math.log(1.05)


class ByCase(Order):
    """An order that looks for the best of each case."""

    def choose_for_all(
        self,
        candidates: Mapping[str, Sequence[Point]],
        known: Callable[[str, Point], float | None],
        pending: Sequence[tuple[str, Point]] = (),
    ) -> Next | None:
        return self.choose(candidates, pending)


class Both(NamedTuple):
    """One kernel in two cases, from one of its points on."""

    lands: Mapping[str, Landscape]
    base: Point
    points: Sequence[Point]

    def gain(self, case: str, point: Point) -> float:
        return self.lands[case].log_time[self.base] - self.lands[case].log_time[point]

    def total(self, point: Point) -> float:
        """log(base time / time) over both; nothing where it loses in one."""
        gains = [self.gain(case, point) for case in self.lands]
        return statistics.fmean(gains) if min(gains) >= -LOSS else 0.0


def both(made: Callable[[int], Landscape], seed: int) -> Both:
    lands: dict[str, Landscape] = {CASES[0]: made(seed), CASES[1]: made(seed + 500)}
    points = [point for point in lands[CASES[0]].log_time if point in lands[CASES[1]].log_time]
    return Both(lands, random.Random(seed).choice(points), points)


def searched(kernel: Both, order: type[Order], count: int, seed: int) -> tuple[float, float]:
    """What the best point gains that a search with so many measurements found, and what it and a file that chooses
    between the best of each case do."""
    drawn = random.Random(seed)
    space = kernel.lands[CASES[0]].space
    space = replace(
        space, knobs=tuple(replace(knob, present=its) for knob, its in zip(space.knobs, kernel.base, strict=True))
    )
    search = Search(space, dict.fromkeys(CASES, 0.5), H200, seed=seed)
    search.order = order(space, search.shares, seed)
    search.baseline(compiled(kernel.base))
    for point in kernel.points:
        search.compiled(point, compiled(point))
    underway: list[Next] = []
    while search.evaluations < count:
        search.filling = search.evaluations >= FILL_SHARE * count
        while len(underway) < min(AHEAD, count - search.evaluations) and (found := search.next()) is not None:
            underway.append(found)
        if not underway:
            break
        point, case, _ = underway.pop(0)
        search.measured(case, point, kernel.gain(case, point) + drawn.gauss(0, NOISE))
    single = max((kernel.total(choice.point) for choice in search.choices()), default=0.0)
    parts = [kernel.gain(case, search.champion(case).point) for case in CASES]
    return single, max(single, statistics.fmean(parts))


def compiled(point: Point) -> Mapping[str, Sequence[LaunchFacts]]:
    return {case: [launch(code_hash=str(point))] for case in CASES}


def compare_cases(names: Sequence[str], seeds: int) -> None:
    print(
        "| landscape | measured | kernels | for each case: 5 % found; share of the gain | for both | for both, or a "
        "file of two |\n|" + " --- |" * 6
    )
    for name in names:
        kernels = [both(LANDSCAPES[name], seed) for seed in range(seeds)]
        tops = [max(map(kernel.total, kernel.points)) for kernel in kernels]
        kept = [(seed, kernels[seed], top) for seed, top in enumerate(tops) if top >= ENOUGH]
        for count in (8, 12, 16):
            each, joint = (
                [searched(kernel, order, count, seed) for seed, kernel, _ in kept] for order in (ByCase, Order)
            )
            cells: list[str] = []
            for gains in ([one for one, _ in each], [one for one, _ in joint], [either for _, either in joint]):
                enough = sum(gain >= ENOUGH for gain in gains) / len(gains)
                share = statistics.fmean(gain / top for gain, (_, _, top) in zip(gains, kept, strict=True))
                cells.append(f"{100 * enough:.0f} %; {share:.2f}")
            print(f"| {name} | {count} | {len(kept)} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--optuna", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(LANDSCAPES))
    parser.add_argument("--cases", action="store_true")
    chosen = parser.parse_args()
    if chosen.cases:
        compare_cases(chosen.only, chosen.seeds)
        return
    strategies = STRATEGIES | ({"optuna TPE": tpe} if chosen.optuna else {})
    print("| landscape | points | measured | " + " | ".join(strategies) + " |")
    print("| --- |" + " --- |" * (2 + len(strategies)))
    for name in chosen.only:
        lands = [LANDSCAPES[name](seed) for seed in range(chosen.seeds)]
        cells: list[str] = []
        counts = [min(60, max(3, int(SHARE * len(land.log_time)))) for land in lands]
        for strategy in strategies.values():
            found = [
                behind(land, strategy(land, count, seed), seed)
                for seed, (land, count) in enumerate(zip(lands, counts, strict=True))
            ]
            within = sum(each <= 3 for each in found) / len(found)
            cells.append(f"{statistics.median(found):.1f} ({100 * within:.0f} %)")
        points = statistics.median(len(land.log_time) for land in lands)
        print(f"| {name} | {points:.0f} | {statistics.median(counts):.0f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
