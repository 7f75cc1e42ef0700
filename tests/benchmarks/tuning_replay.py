"""Searches replayed on what a GPU measured: `python tests/benchmarks/tuning_replay.py TUNE_JSON [--seeds N]`.

TUNE_JSON is what ``tune_on_gpu.py --only tune`` wrote: the time of every variant. They are compiled anew, which takes
some minutes and no GPU. Seconds are made up, and pass on a clock that jumps.
"""

import argparse
import asyncio
import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.tune_on_gpu import SHARE, STATED, Stated, file_of
from tests.server.virtual_clock import VirtualLoop
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.tuning.race import Standing, standing
from tritonforge.profiling.tuning.search import Search
from tritonforge.profiling.tuning.space import Point
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tuning.find import Ground, prepare
from tritonforge.server.tuning.loop import Tuning, Variant

NOISE: Final = 0.003
"""Of a block, log(ratio)."""
JITTER: Final = 0.3
"""Of seconds, log."""
Facts = Mapping[str, Sequence[LaunchFacts]]


class Machine(NamedTuple):
    """How long things take, in seconds."""

    name: str
    compile_s: float
    ready_s: float
    block_s: float
    check_s: float
    compilers: int


MACHINES: Final = [Machine("idle", 0.7, 1.2, 0.03, 0.8, 8), Machine("busy", 4.0, 4.0, 0.1, 2.0, 2)]


class Replayed:
    """A bench that knows everything already."""

    def __init__(
        self, ground: Ground, facts: Mapping[Point | None, Facts | Stopped], times: Mapping[str, float]
    ) -> None:
        """
        Args:
            ground: what is searched, in one case.
            facts: what compiling each variant gave.
            times: log(baseline time / time) by the knobs' names and values.
        """
        self.ground, self.facts = ground, facts
        (self.case,) = ground.cases
        space = ground.space
        self.values = {
            self._code(point): times[name]
            for point in space.points()
            if (name := json.dumps(space.named(point))) in times and not isinstance(facts[point], Stopped)
        }
        self.values[self._code(None)] = 0.0

    def on(self, machine: Machine, seed: int) -> "Replay":
        return Replay(self, machine, random.Random(seed))

    def value(self, point: Point | None) -> float | None:
        """What was measured of a variant, or of another of the same code; None where it failed."""
        return self.values.get(self._code(point))

    def _code(self, point: Point | None) -> object:
        found = self.facts[point]
        return None if isinstance(found, Stopped) else tuple((one.code_hash, one.grid) for one in found[self.case])


class Replay:
    """Implements `Bench` on a machine that is made up."""

    def __init__(self, known: Replayed, machine: Machine, drawn: random.Random) -> None:
        self._known, self._machine, self._drawn = known, machine, drawn

    async def compile(self, point: Point | None) -> Facts:
        if point is not None:
            await self._take(self._machine.compile_s)
        found = self._known.facts[point]
        if isinstance(found, Stopped):
            raise Stopped(found.kind, found.problem)
        return found

    @asynccontextmanager
    async def prepared(self, case: str, point: Point | None) -> AsyncGenerator[Variant]:
        await self._take(self._machine.ready_s)
        value = self._known.value(point)
        if value is None:
            raise Stopped(Kind.LAUNCH_ERROR, Problem(stage="run", message="it was not measured"))
        yield Variant(case, point, 100 * math.exp(-value))

    async def race(self, challenger: Variant, champion: Variant) -> Standing:
        ahead = (self._known.value(challenger.point) or 0.0) - (self._known.value(champion.point) or 0.0)
        blocks: list[float] = []
        await anyio.sleep(self._machine.block_s)
        while not blocks or standing(blocks).verdict == "open":
            await anyio.sleep(self._machine.block_s)
            blocks.append(ahead + self._drawn.gauss(0, NOISE))
        return standing(blocks)

    async def is_alive(self, variant: Variant) -> bool:
        return True

    async def check(self, variant: Variant) -> None:
        await anyio.sleep(self._machine.check_s)

    async def _take(self, seconds: float) -> None:
        await anyio.sleep(seconds * math.exp(self._drawn.gauss(0, JITTER)))


async def compiled(stated: Stated) -> tuple[Ground, dict[Point | None, Facts | Stopped]]:
    """All variants of a stated space, compiled for the GPU that they were timed on."""
    found: dict[Point | None, Facts | Stopped] = {}
    with tempfile.TemporaryDirectory() as state:
        async with Services(Settings(state_dir=Path(state))) as services:
            kernel, task = file_of(stated.name, stated.file), file_of(stated.name, "task")
            target = resolve_target("h200")
            ground = await prepare(services, kernel, task, target, space=stated.space, cases=[stated.case])
            for point in [None, *ground.space.points()]:
                try:
                    found[point] = await ground.compiler.compile(point)
                except Stopped as stopped:
                    found[point] = stopped
    return ground, found


def replay(known: Replayed, machine: Machine, most: int | None, budget_s: float, seed: int) -> tuple[float, int]:
    """How many percent a search's best lies behind the best of all, and how much was measured."""

    async def searched() -> Search:
        compiler = known.ground.compiler
        search = Search(known.ground.space, {known.case: 1.0}, compiler.target, most, compiler.input_bytes, seed)
        tuning = Tuning(search, known.on(machine, seed), machine.compilers)
        await tuning.run(budget_s, 20.0)
        return search

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        search = runner.run(searched())
    found = search.champion(known.case)
    value = 0.0 if found.value <= 0 else known.value(found.point) or 0.0
    return 100 * math.expm1(max(known.values.values()) - value), search.evaluations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--kernels", nargs="+", default=[stated.name for stated in STATED])
    given = parser.parse_args()
    measured = json.loads(given.measured.read_text())
    print("| kernel | machine | limit | measured | behind by %, median | at most | within 3 % |\n|" + " --- |" * 7)
    for stated in STATED:
        if stated.name not in given.kernels or stated.name not in measured:
            continue
        times: dict[str, float] = measured[stated.name]["exhaustive"]
        known = Replayed(*anyio.run(compiled, stated), times)
        few = max(1, int(SHARE * len(times)))
        for machine, most, budget_s in (
            (MACHINES[0], few, 46.0), (MACHINES[0], None, 8.0), (MACHINES[1], None, 8.0), (MACHINES[1], None, 20.0),
        ):  # fmt: skip
            found = [replay(known, machine, most, budget_s, seed) for seed in range(given.seeds)]
            behind = [each for each, _ in found]
            limit = f"{budget_s:.0f} s" if most is None else f"{most} evaluations"
            within = 100 * sum(each <= 3 for each in behind) / len(behind)
            print(
                f"| {stated.name} | {machine.name} | {limit} | {statistics.mean(each for _, each in found):.1f} "
                f"| {statistics.median(behind):.1f} | {max(behind):.1f} | {within:.0f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
