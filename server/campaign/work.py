"""The kernels of a campaign, as far as one process gets them: whichever no other process has."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ...sandbox.errors import Stopped
from .events import Event, Finished, Prepared, Preparing, Staged, Started
from .folder import Adaptation, CampaignFolder, Frozen, is_through
from .kernel import Bench, worked
from .model import Entry, KernelRecord

AHEAD: Final = 2
"""So many kernels more than are measured have their tasks made, which hardly needs the GPU."""
Tells = Callable[[Event], None]
Adapts = Callable[[Entry], Awaitable[Adaptation | KernelRecord]]


class Work:
    """One process's share of a campaign."""

    def __init__(self, folder: CampaignFolder, frozen: Frozen, bench: Bench | None, adapt: Adapts, tell: Tells) -> None:
        """
        Args:
            folder: of the campaign.
            frozen: what it was begun with.
            bench: what kernels are worked on with; None: only their tasks are made.
            adapt: makes the task of an artefact, or its record where there is none.
            tell: takes events.
        """
        self.folder, self.plan, self.bench, self.adapt, self.tell = folder, frozen.plan, bench, adapt, tell
        self._left = iter(frozen.entries)
        self._turns = anyio.Semaphore(frozen.plan.at_once)
        self._failure: Stopped | None = None

    async def run(self) -> None:
        """Work until there is no kernel left that nobody has.

        Raises:
            Stopped: ``unavailable`` or ``cancelled``: the next kernel would fare no better.
        """
        async with anyio.create_task_group() as group:
            for _ in range(self.plan.at_once + AHEAD):
                group.start_soon(self._lane, group.cancel_scope)
        if self._failure is not None:
            raise self._failure

    async def _lane(self, scope: anyio.CancelScope) -> None:
        try:
            for entry in self._left:
                if not self._is_open(entry.name):
                    continue
                with self.folder.claimed(entry.name) as ours:
                    # Another process may have finished it in between.
                    if ours and self._is_open(entry.name):
                        await self._one(entry)
        except Stopped as stopped:
            self._failure = self._failure or stopped
            scope.cancel()

    async def _one(self, entry: Entry) -> None:
        self.tell(Preparing(name=entry.name))
        made = await self.adapt(entry)
        if isinstance(made, KernelRecord):
            self._finish(made)
            return
        self.tell(Prepared(name=entry.name, cases=made.cases))
        if self.bench is None:
            return
        async with self._turns:
            self.tell(Started(name=entry.name))

            def stage(words: str) -> None:
                self.tell(Staged(name=entry.name, stage=words))

            self._finish(await worked(self.bench, self.folder, self.plan, entry, made, stage))

    def _is_open(self, name: str) -> bool:
        before = self.folder.record(name)
        return before is None or not is_through(before, self.plan)

    def _finish(self, record: KernelRecord) -> None:
        self.folder.put(record)
        self.tell(Finished(record=record))
