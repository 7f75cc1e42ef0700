"""Made-up landscapes: the time of each point of a space, with cliffs, plateaus and chance, by formulas alone.

None is a measurement. They are there to compare orders of search, and to test one, without a GPU.
"""

import math
import random
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from tritonforge.profiling.tuning.space import Knob, Point, Space


class Landscape(NamedTuple):
    """A space and the log(time) of its points, without those that the compiler's output rules out."""

    name: str
    space: Space
    log_time: dict[Point, float]

    @property
    def best(self) -> float:
        return min(self.log_time.values())


def knob(name: str, present: int, *values: int) -> Knob:
    return Knob(name, "kernel", name, "tile", present, values, ())


def space_of(*knobs: Knob) -> Space:
    return Space(knobs, (), {})


def matmul(seed: int, *, small: bool = True) -> Landscape:
    """A matrix product: tensor cores or none, shared memory, registers, waves of tiles, and reuse."""
    drawn = random.Random(seed)
    tiles = (64, 128, 256) if small else (16, 32, 64, 128, 256)
    space = space_of(
        knob("BLOCK_M", 64, *tiles), knob("BLOCK_N", 64, *tiles),
        knob("BLOCK_K", 32, *((32, 64, 128) if small else (16, 32, 64, 128, 256))),
        knob("num_warps", 4, *((4, 8) if small else (1, 2, 4, 8, 16))),
        knob("num_stages", 2, *((2, 3, 4) if small else (1, 2, 3, 4, 5))),
    )  # fmt: skip
    m, n, k = (drawn.choice([512, 1024, 4096, 8192]) for _ in range(3))
    warp_group, weight, hiding = drawn.uniform(0.25, 0.6), drawn.uniform(0.2, 0.6), drawn.uniform(0.2, 0.6)

    def time(point: Point) -> float | None:
        bm, bn, bk, warps, stages = (int(each or 0) for each in point)
        shared = (bm + bn) * bk * 2 * stages
        sums = bm * bn / (32 * warps)
        if shared > 227 << 10 or sums > 190 or (warps % 4 and bm >= 64):
            return None  # left out before it runs: it does not fit, spills, or has lost its tensor cores
        resident = max(1, min((227 << 10) // shared, int(65536 / (32 * warps * min(255, sums + 60))), 64 // warps))
        rate = 1.0 if warps % 4 == 0 and bm >= 64 else warp_group
        rate *= 1 - hiding ** max(1, stages - 1) * (32 / bk) ** 0.3 / resident**0.3
        rate *= min(1.0, (bm * bn / (bm + bn)) / 85) ** weight
        rate *= min(1.0, sums / 16) ** 0.3
        grid = math.ceil(m / bm) * math.ceil(n / bn)
        waves = math.ceil(grid / (132 * resident))
        return waves * resident * bm * bn * k / rate / max(1.0, resident**0.05)

    return _made(f"matmul {m}x{n}x{k}", space, time, drawn)


def rows(seed: int) -> Landscape:
    """A kernel over rows or elements: width of accesses, idle threads, passes over the row, bytes in flight."""
    drawn = random.Random(seed)
    space = space_of(
        knob("BLOCK", 128, *(1 << power for power in range(5, 14))), knob("num_warps", 1, 1, 2, 4, 8, 16)
    )  # fmt: skip
    length, rows, reduces = drawn.choice([781, 4096, 8192]), drawn.choice([64, 4096, 16384]), drawn.random() < 0.6
    barrier = drawn.uniform(0.02, 0.3)

    def time(point: Point) -> float | None:
        block, warps = (int(each or 0) for each in point)
        threads = 32 * warps
        each = block / threads
        width = min(8.0, max(1.0, each))
        programs = rows if reduces else math.ceil(rows * length / block)
        resident = max(1, min(32, 64 // warps, int(65536 / (threads * min(255, 24 + 1.5 * each)))))
        flying = min(1.0, resident * min(block, length) * 2 / (32 << 10)) ** 0.5
        cost = math.ceil(length / block) * block if reduces else length
        steps = math.ceil(length / block) if reduces else 1
        filled = min(1.0, programs / (132 * resident)) ** 0.3
        spill = 1 + max(0.0, each * 1.5 - 200) / 60
        return (
            cost / (width**0.25 * min(1.0, each) * flying * filled) * spill + steps * barrier * 900 * warps**0.3
        ) * (1 + programs / 4e6)

    return _made(f"rows {rows}x{length}", space, time, drawn)


def rough(seed: int) -> Landscape:
    """Five knobs that matter by chance, some in pairs, with cliffs where products are large."""
    drawn = random.Random(seed)
    values = (16, 32, 64, 128, 256)
    space = space_of(*(knob(name, 32, *values[: drawn.choice([3, 4, 5])]) for name in "ABCDE"))
    own = [[drawn.gauss(0, 0.25) * drawn.random() for _ in range(5)] for _ in range(5)]
    pairs = {(a, b): drawn.gauss(0, 0.05) for a in range(5) for b in range(a)}
    cliff, height = drawn.uniform(28, 36), drawn.uniform(0.3, 1.5)

    def time(point: Point) -> float | None:
        steps = [int(math.log2(int(each or 1))) - 4 for each in point]
        total = sum(own[place][step] for place, step in enumerate(steps))
        total += sum(weight * (steps[a] - 2) * (steps[b] - 2) for (a, b), weight in pairs.items())
        return math.exp(total + (height if sum(steps) + 20 > cliff else 0.0))

    return _made("rough", space, time, drawn)


def _made(name: str, space: Space, time: Callable[[Point], float | None], drawn: random.Random) -> Landscape:
    found: dict[Point, float] = {}
    for point in product(*(each.values for each in space.knobs)):
        one = time(point)
        if one is not None:
            found[point] = math.log(one) + drawn.gauss(0, 0.03)
    return Landscape(name, space, found)
