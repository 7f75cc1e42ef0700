"""The end of a search's races: its best is held against the file as it is once more, where it is not far ahead.

The best of many noisy measurements looks better than it is, and what was measured against one champion after another
adds up their errors.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ...profiling.tuning.search import FINALISTS, WORTH_IT, Choice, Search
from ...profiling.tuning.space import Point
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind
from .variants import Bench, Variant

FAR_AHEAD: Final = 0.05
"""log(ratio): who is ahead by more, for sure, need not be raced again."""
RACES: Final = 3
"""In a case, at most."""


@dataclass
class Finals:
    """The last races of a search that has ended."""

    search: Search
    bench: Bench
    champions: Mapping[str, Variant]
    started: Mapping[str, Variant]
    """The file as it is, by case."""
    raced: set[Point] = field(default_factory=set[Point])

    async def run(self) -> None:
        """Until the best has been raced again, or is far ahead; what the races tell replaces what was measured.

        Raises:
            Stopped: ``cancelled`` or ``unavailable``.
        """
        while len(self.raced) < FINALISTS and (choice := self.unsure) is not None:
            self.raced.add(choice.point)
            for case in self.search.shares:
                try:
                    await self._again(case, choice.point)
                except Stopped as stopped:
                    if stopped.kind in (Kind.CANCELLED, Kind.UNAVAILABLE):
                        raise
                    if not await self.bench.is_alive(self.started[case]):
                        return
                    self.search.failed(case, choice.point, stopped.kind)
                    break

    @property
    def unsure(self) -> Choice | None:
        """The best, if it may be worth offering and is not known to be; of equals the one that is ready."""
        search = self.search
        best = next(iter(search.choices()), None)
        if best is None or best.point in self.raced or best.point == search.space.present:
            return None
        sure = search.sure(best)
        ready = {champion.point for champion in self.champions.values()}
        for choice in search.choices():
            if choice.value > sure and choice.point in ready - self.raced and choice.point != search.space.present:
                best = choice
                break
        most = 2 * best.value - search.sure(best)
        return best if sure <= FAR_AHEAD and most > WORTH_IT else None

    async def _again(self, case: str, point: Point) -> None:
        champion = self.champions[case]
        if champion.point == point:
            await self._raced(case, point, champion)
            return
        async with self.bench.prepared(case, point) as variant:
            await self._raced(case, point, variant)

    async def _raced(self, case: str, point: Point, variant: Variant) -> None:
        centers, errors = list[float](), list[float]()
        for _ in range(RACES):
            found = await self.bench.race(variant, self.started[case])
            centers.append(found.center)
            errors.append(found.error)
            center, error = math.fsum(centers) / len(centers), math.hypot(*errors) / len(errors)
            self.search.measured(case, point, center, error)
            if not center - error <= WORTH_IT <= center + error:
                return
