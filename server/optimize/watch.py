"""Live progress of a run, read from where it is kept: whichever process evaluates, everything is seen."""

from dataclasses import dataclass, field
from typing import Final

import anyio

from ...profiling.optimization.model import BASELINE, Attempt
from ..runs.record import Run
from ..runs.store import Store
from ..runs_shown import attempt_line
from ..tools.run_shown import named, words
from .model import Says

POLL_S: Final = 0.5
STRATEGY_CHARACTERS: Final = 120


@dataclass(slots=True)
class Watch:
    """Tells each thing once that happens to the candidates of a run."""

    store: Store
    run_id: str
    say: Says
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set when the run takes no more candidates and none is being evaluated."""
    _begun: set[int] = field(default_factory=set[int])
    _told: set[int] = field(default_factory=set[int])

    async def run(self) -> None:
        """Look until the run is over."""
        while not self.over.is_set():
            await self.look()
            await anyio.sleep(POLL_S)

    async def look(self) -> None:
        """Tell what is new."""
        run, attempts = await anyio.to_thread.run_sync(self._read)
        for attempt in attempts:
            if attempt.number == BASELINE:
                continue
            if attempt.number not in self._begun:
                self._begun.add(attempt.number)
                origin = "" if attempt.parent is None else f", made from {named(attempt.parent)}"
                self.say(f"{named(attempt.number)}{origin}: {words(attempt.strategy, STRATEGY_CHARACTERS)}")
            if attempt.state != "running" and attempt.number not in self._told:
                self._told.add(attempt.number)
                self.say(f"  {attempt_line(attempt)}")
        if run.state in ("finished", "failed") and not any(each.state == "running" for each in attempts):
            self.over.set()

    def _read(self) -> tuple[Run, list[Attempt]]:
        return self.store.run(self.run_id), self.store.attempts(self.run_id)
