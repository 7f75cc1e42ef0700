"""An agent that needs no model: it searches as `tune_kernel` does, and submits the finalists to the run."""

import math
from typing import Final

import anyio

from ...profiling.optimization.model import BASELINE
from ...profiling.tuning.importance import named
from ...profiling.tuning.search import FINALISTS, Search
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind
from ...sandbox.source import INLINE, Source
from ..runs.answer import Answer
from ..runs.memory import sources_of
from ..runs.record import Run
from ..services import Services
from ..tuning.find import Offer, prepare, race
from ..tuning.report import in_words
from .model import AgentEnd, HowEnded, Plan, Says, Site, TaskAsked

WAIT_S: Final = 600.0
"""Of one look at an evaluation; it is looked at again until it is over."""
SEARCH_SHARE: Final = 0.6
"""Of the time that is left, at most: what was found has to be evaluated, too."""
BEGIN_S: Final = 20.0
"""Until the file as it is can be timed, at most, before the time of the search counts."""
NOT_ITS_DOING: Final = frozenset({Kind.CANCELLED, Kind.UNAVAILABLE})


class TuneAgent:
    """Implements `Agent` with a search over the knobs that the baseline's file exposes."""

    def __init__(self, plan: Plan, services: Services, say: Says) -> None:
        """
        Raises:
            Stopped: ``rejected``: several were asked for.
        """
        if plan.parallel > 1:
            raise rejected("agent", "tune searches once: --parallel is for other agents", fix="Leave --parallel out.")
        self._plan, self._services, self._say = plan, services, say
        self._chosen: dict[str, int | bool | str | None] | None = None
        self.ends: list[AgentEnd] = []

    async def write_task(self, asked: TaskAsked) -> str | None:
        """
        Raises:
            Stopped: ``rejected``: it writes none.
        """
        raise rejected(
            "task", "tune needs --task", fix="Write the task file, or have another agent or `adapt` write it."
        )

    async def work(self, site: Site) -> None:
        """Search, and submit the finalists, the best first, until one is accepted."""
        ended: HowEnded = "wall_time"
        why: str | None = None
        try:
            why = await self._work(site)
            ended = "exited"
        finally:
            self.ends.append(AgentEnd(ended=ended, no_idea=why, chosen=self._chosen))
        if why is not None:
            self._say(f"tune: {why}")

    async def _work(self, site: Site) -> str | None:
        """Why it has nothing more to offer; None: what it offered was accepted."""
        store = site.machine.store
        run = await anyio.to_thread.run_sync(store.run, site.run_id)
        if run.frozen.gpu is None:
            return "this machine has no GPU, so no variant can be timed"
        baseline, task, _ = await anyio.to_thread.run_sync(sources_of, store, run.frozen)
        try:
            async with self._services.evaluations:
                found = await self._searched(run, baseline, task, site.deadline)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            return f"the search ended as {stopped.kind}: {stopped.problem.message}"
        if isinstance(found, str):
            return found
        found, finalists = found
        if not finalists:
            return f"the search found nothing faster ({measured(found)})"
        tried = 0
        for offer in finalists:
            try:
                answer = await self._submitted(site, found, offer, baseline)
            except Stopped as stopped:
                if stopped.kind is not Kind.REJECTED:
                    raise
                return f"the run took no more: {stopped.problem.message}"
            if answer.attempt.accepted:
                self._chosen = chosen(found, offer)
                return None
            # What is another attempt over again costs nothing.
            tried += answer.attempt.duplicate_of is None
            if tried >= min(self._plan.rounds, FINALISTS) or answer.run.state != "open":
                break
        return f"none of the search's best was accepted ({measured(found)})"

    async def _searched(
        self, run: Run, baseline: Source, task: Source, deadline: float
    ) -> tuple[Search, list[Offer]] | str:
        """The search when it has ended, with what it offers, or why there is none."""
        services = self._services
        await services.require_gpu("tune")
        ground = await prepare(services, baseline, task, await services.target(run.frozen.target))
        if ground.nothing is not None:
            return f"there is nothing to search: {ground.nothing}"
        search = ground.search()
        left_s = SEARCH_SHARE * (deadline - anyio.current_time())
        budget_s = min(self._plan.search_s, left_s)
        self._say(f"tune: searching {ground.space.size} points for up to {budget_s:.0f} s")
        tuning = await race(services, ground, search, budget_s, begin_s=min(BEGIN_S, left_s - budget_s))
        self._say(f"tune: {measured(search)}; stopped: {tuning.stopped_because}")
        return search, ground.offers(search)

    async def _submitted(self, site: Site, search: Search, offer: Offer, baseline: Source) -> Answer:
        """What became of a finalist.

        Raises:
            Stopped: it could not be evaluated, or the run takes no more.
        """
        machine, run_id = site.machine, site.run_id
        self._say(f"tune: about {math.exp(offer.value):.3f}x by the search's short races")
        source = Source(offer.text, INLINE, baseline.origin)
        attempt = await machine.submit(run_id, source, strategy(search, offer), BASELINE)
        while not await machine.wait(run_id, attempt.number, WAIT_S, _silent):
            pass
        return await machine.answer(run_id, attempt.number)


def strategy(search: Search, offer: Offer) -> str:
    """What a variant changes, in a line."""
    space = search.space
    if space.listings:
        changes = f"autotune list with {in_words(space.named(offer.point))}"
    elif offer.split is not None:
        changes = "; ".join(f"{name}={value}" for name, value in chosen(search, offer, changed=True).items())
    else:
        changes = ", ".join(
            f"{knob.name} {named(knob.shown(knob.present))} -> {named(knob.shown(value))}"
            for knob, value in zip(space.knobs, offer.point, strict=True)
            if value != knob.present
        )
    return f"tune: {changes} (search: {measured(search)})"


def chosen(search: Search, offer: Offer, *, changed: bool = False) -> dict[str, int | bool | str | None]:
    """The values of the knobs; of those that depend on the inputs' size, in words.

    Args:
        search: that made the offer.
        offer: what it offers.
        changed: leave out knobs that are as they were.
    """
    split, space = offer.split, search.space
    found: dict[str, int | bool | str | None] = {}
    below = offer.point if split is None else split.below
    for knob, high, low in zip(space.knobs, offer.point, below, strict=True):
        if changed and high == low == knob.present:
            continue
        found[knob.name] = knob.shown(high)
        if split is not None and high != low:
            above, under = named(knob.shown(high)), named(knob.shown(low))
            found[knob.name] = f"{above} where {split.condition.expression}, else {under}"
    return found


def measured(search: Search) -> str:
    """How much of the space was measured."""
    # The file as it is was not searched for, unless an autotuner's list is what it is.
    own = None if search.space.listings else search.space.present
    count = sum(point != own for point, _ in search.measured_points())
    return f"{count} of {search.space.size} points measured"


async def _silent(done: float, total: float, message: str) -> None:
    """What happens to candidates is told by whoever watches the run."""
