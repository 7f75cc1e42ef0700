"""Spares of one kind, ready before they are asked for; each is given away once."""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from .errors import Stopped
from .process import WorkerProcess

LOW: Final = 1 / 3
"""Of a pool's size: as long as so many are ready, measurements that follow each other come first. Then all that are
missing are made side by side, which takes little longer than one."""
Starter = Callable[[], Awaitable[WorkerProcess]]
Finisher = Callable[[WorkerProcess], Awaitable[None]]


def _no() -> bool:
    return False


class Gate:
    """Spares are made ready side by side; while something is measured on their device, only those that it waits for."""

    def __init__(self, rest_s: float = 0.0) -> None:
        """
        Args:
            rest_s: for so long after a measurement nothing is made that can wait: the next one, which often follows at
                once, would have to wait for it.
        """
        self._rest_s = rest_s
        self._rested_at = 0.0
        self._making = 0
        self._quiet = 0
        self._changed = anyio.Condition()

    @asynccontextmanager
    async def making(self, wanted: Callable[[], bool] = _no, urgent: Callable[[], bool] = _no) -> AsyncGenerator[None]:
        """While a spare is being made.

        Args:
            wanted: whether someone waits for this one; asked again after `hurry`.
            urgent: whether it can't wait for a rest between measurements; likewise.
        """
        async with self._changed:
            while not wanted():
                if self._quiet:
                    await self._changed.wait()
                    continue
                left_s = self._rested_at - anyio.current_time()
                if left_s <= 0 or urgent():
                    break
                with anyio.move_on_after(left_s):
                    await self._changed.wait()
            self._making += 1
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._changed:
                    self._making -= 1
                    self._changed.notify_all()

    async def hurry(self) -> None:
        """Someone waits for a spare: it is made even now, as whoever measures is who waits. Or few are left."""
        async with self._changed:
            self._changed.notify_all()

    @asynccontextmanager
    async def quiet(self) -> AsyncGenerator[None]:
        """While something is measured: waits for spares that are being made."""
        self._quiet += 1
        try:
            async with self._changed:
                while self._making:
                    await self._changed.wait()
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._changed:
                    self._quiet -= 1
                    self._rested_at = anyio.current_time() + self._rest_s
                    self._changed.notify_all()


class Pool:
    """Keeps `size` spares ready while it is in use, and none when it has been idle for long."""

    def __init__(
        self, start: Starter, *, size: int, gate: Gate | None, tasks: TaskGroup, finish: Finisher | None = None
    ) -> None:
        """
        Args:
            start: makes a spare.
            size: how many wait.
            gate: of the device that making a spare disturbs.
            tasks: what spares are made in.
            finish: what is left to do when a spare was started; then that alone waits for the gate.
        """
        self._start = start
        self._finish = finish
        self._size = size
        self._gate = gate
        self._tasks = tasks
        self._ready: deque[WorkerProcess] = deque()
        self._making = self._underway = 0
        self._refilling = False
        self._waiting: deque[object] = deque()
        self._failure: Stopped | None = None
        self._failures = 0
        self._closed: Stopped | None = None
        self._changed = anyio.Event()
        self._facts: dict[str, Any] | None = None
        self.used_at = anyio.current_time()

    @property
    def ready(self) -> int:
        """Spares that wait."""
        return len(self._ready)

    @property
    def pids(self) -> list[int]:
        """Of the spares that wait."""
        return [spare.handle.pid for spare in self._ready]

    @property
    def busy(self) -> bool:
        """Whether someone waits for a spare or one is being made."""
        return bool(self._making or self._waiting)

    async def take(self) -> WorkerProcess:
        """A spare that nobody has had; the pool is filled up behind it.

        Raises:
            Stopped: ``unavailable``, where none can be made.
        """
        self.used_at = anyio.current_time()
        place, failures = object(), self._failures
        self._waiting.append(place)
        try:
            self.fill()
            while True:
                if self._closed is not None:
                    raise Stopped(self._closed.kind, self._closed.problem)
                if self._ready and self._waiting[0] is place:
                    spare = self._ready.popleft()
                    if not spare.handle.ended():
                        return spare
                    # Something outside killed it, the out-of-memory killer for example.
                    await spare.discard()
                    self.fill()
                    continue
                if not (self._ready or self._making):
                    if self._failure is not None and self._failures > failures:
                        # For all who waited when it failed; whoever comes later has it tried again.
                        raise Stopped(self._failure.kind, self._failure.problem) from self._failure
                    self.fill()
                changed = self._changed
                if self._gate is not None:
                    await self._gate.hurry()
                await changed.wait()
        finally:
            self._waiting.remove(place)
            self._notify()
            if self._gate is not None and self._making and self._is_low():
                self._tasks.start_soon(self._gate.hurry)
            if len(self._ready) > max(self._size, 1):
                self._tasks.start_soon(self._trim)

    async def facts(self) -> dict[str, Any]:
        """What a spare said when it was ready; one is made where none waits.

        Raises:
            Stopped: ``unavailable``, where none can be made.
        """
        if self._facts is None:
            spare = await self.take()
            try:
                self._facts = await spare.hello()
            except BaseException:
                await spare.discard()
                raise
            self.give_back(spare)
        return self._facts

    def fill(self) -> None:
        """Have as many made as are missing."""
        if self._closed is not None:
            return
        for _ in range(self._size + len(self._waiting) - len(self._ready) - self._making):
            self._making += 1
            self._tasks.start_soon(self._make)

    async def filled(self) -> None:
        """Until as many wait as should, and nothing is being made.

        Raises:
            Stopped: ``unavailable``, where none can be made.
        """
        self.fill()
        while self.busy or len(self._ready) < self._size:
            if self._closed is not None:
                raise Stopped(self._closed.kind, self._closed.problem)
            if self._failure is not None and not self._making:
                raise Stopped(self._failure.kind, self._failure.problem) from self._failure
            if not self._making:
                self.fill()
            await self._changed.wait()

    def give_back(self, spare: WorkerProcess) -> None:
        """Put a spare back that has run nothing foreign."""
        self._ready.appendleft(spare)
        self._notify()

    async def _trim(self) -> None:
        """Kill what there is too much of, as where those that it was made for gave up waiting; one may stay."""
        while len(self._ready) > max(self._size, 1) and not self._waiting:
            await self._ready.popleft().discard()

    async def drain(self) -> None:
        """Kill all that wait."""
        while self._ready:
            await self._ready.popleft().discard()

    async def close(self, reason: Stopped) -> None:
        """Kill all that wait and make no more; whoever asks is told the reason."""
        self._closed = reason
        self._notify()
        await self.drain()

    async def _make(self) -> None:
        try:
            await self._made()
            self._failure = None
        except Stopped as stopped:
            self._failure = stopped
            self._failures += 1
        finally:
            self._making -= 1
            self._notify()
        await self._trim()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _made(self) -> None:
        if self._gate is None:
            self._ready.append(await self._start())
            return
        started = None if self._finish is None else await self._start()
        try:
            # Who asks for a spare of several steps has no turn on the device yet: others' measurements come first.
            async with self._gate.making(self._is_waited_for if self._finish is None else _no, self._is_low):
                self._underway += 1
                try:
                    spare = started or await self._start()
                    if self._finish is not None:
                        await self._finish(spare)
                    # In one step from underway to ready: in between, the gate would let another through.
                    self._ready.append(spare)
                finally:
                    self._underway -= 1
        except BaseException:
            if started is not None:
                await started.discard()
            raise

    def _is_low(self) -> bool:
        """Whether few are ready; once they were, until all that are missing are underway."""
        if len(self._ready) < self._size * LOW:
            self._refilling = True
        elif len(self._ready) + self._underway >= self._size:
            self._refilling = False
        return self._refilling

    def _is_waited_for(self) -> bool:
        """Whether more wait than spares are ready or underway."""
        return len(self._waiting) > len(self._ready) + self._underway
