"""The kernels of a campaign, as far as one process gets them: whichever no other process has."""

import os
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ...sandbox.errors import Stopped
from .events import Event, Finished, Prepared, Preparing, Staged, Started
from .folder import Adaptation, CampaignFolder, Frozen, is_through
from .kernel import Bench, worked
from .model import Entry, KernelRecord

PREPARING: Final = max(4, min(8, (os.cpu_count() or 1) // 2))
"""Kernels whose tasks are made at a time: mostly that waits for compilers, each of which has a core busy."""
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
        self._entries = frozen.entries
        self._failure: Stopped | None = None

    async def run(self) -> None:
        """Work until there is no kernel left that nobody has.

        Raises:
            Stopped: ``unavailable`` or ``cancelled``: the next kernel would fare no better.
        """
        # Making tasks keeps the host busy, which whole calls that are timed meanwhile would feel: first of all, then.
        await self._all(self._prepare, PREPARING)
        if self.bench is not None:
            await self._all(self._work, self.plan.at_once)

    async def _all(self, do: Callable[[Entry], Awaitable[None]], lanes: int) -> None:
        """Do something with each kernel that nobody else has, several at a time.

        Raises:
            Stopped: see `run`.
        """
        left = iter(self._entries)
        if any(self.folder.begun(entry.name).deaths for entry in self._entries if self._is_open(entry.name)):
            # A process has died: one at a time, it shows whose doing that was.
            lanes = 1

        async def lane(scope: anyio.CancelScope) -> None:
            try:
                for entry in left:
                    if not self._is_open(entry.name):
                        continue
                    with self.folder.claimed(entry.name) as ours:
                        # Another process may have finished it in between.
                        if ours and self._is_open(entry.name):
                            await do(entry)
            except Stopped as stopped:
                self._failure = self._failure or stopped
                scope.cancel()

        async with anyio.create_task_group() as group:
            for _ in range(lanes):
                group.start_soon(lane, group.cancel_scope)
        if self._failure is not None:
            raise self._failure

    async def _prepare(self, entry: Entry) -> None:
        self.tell(Preparing(name=entry.name))
        made = await self.adapt(entry)
        if isinstance(made, KernelRecord):
            self._finish(made)
        else:
            self.tell(Prepared(name=entry.name, cases=made.cases))

    async def _work(self, entry: Entry) -> None:
        assert self.bench is not None
        # It is there, unless the artefact has changed since.
        made = await self.adapt(entry)
        if isinstance(made, KernelRecord):
            self._finish(made)
            return
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
