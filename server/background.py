"""Evaluations that are answered as soon as their result is known, and end behind that."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from ..sandbox.errors import Stopped
from ..sandbox.executors.running import closed

_log = logging.getLogger(__name__)

R = TypeVar("R")


class Background:
    """Tasks that outlive the call that started them: the driver takes 0.1 to 0.2 s to end a process that has used a
    GPU, and who asked need not wait for it.

    Use it as an asynchronous context manager: leaving it ends what is left.
    """

    def __init__(self) -> None:
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> "Background":
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)

    async def answered(self, evaluate: Callable[[Callable[[R], None]], Awaitable[None]]) -> R:
        """The result of an evaluation, when it says it; what the evaluation does after that goes on by itself.

        Args:
            evaluate: takes what to call with the result, once. It keeps whatever it holds until it has ended: the next
                one that wants the GPU waits for that.

        Raises:
            Stopped: ``unavailable``, where the server is being closed.
            Exception: whatever the evaluation raises before its result.
        """
        if self._tasks is None:
            raise closed()
        results: list[R] = []
        failures: list[Exception] = []
        known, ended, scope = anyio.Event(), anyio.Event(), anyio.CancelScope()

        def answer(result: R) -> None:
            results.append(result)
            known.set()

        async def run() -> None:
            try:
                with scope:
                    await evaluate(answer)
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                if not results:
                    failures.append(error)
                elif not isinstance(error, Stopped):
                    _log.error("the end of an evaluation failed", exc_info=error)
            finally:
                ended.set()
                known.set()

        self._tasks.start_soon(run)
        try:
            await known.wait()
        finally:
            if not known.is_set():
                # Whoever asked does not want it any more, and may go on when nothing of it is left.
                scope.cancel()
                with anyio.CancelScope(shield=True):
                    await ended.wait()
        if results:
            return results[0]
        if failures:
            raise failures[0]
        assert self._tasks is None, "the evaluation ended without a result"
        raise closed()
