"""Orders of search compared on made-up landscapes: `python tests/benchmarks/tuning_orders.py [--seeds N] [--optuna]`.

For each: how far the best point found lies behind the best of all, after 15 % of the points have been measured. Optuna
is compared where it is installed.
"""

import argparse
import importlib
import math
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.profiling.tuning.landscapes import Landscape, matmul, rough, rows
from tritonforge.profiling.tuning.order import Order
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--optuna", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(LANDSCAPES))
    chosen = parser.parse_args()
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
