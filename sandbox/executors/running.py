"""What goes on in an executor, so that closing it ends all of that."""

import contextlib
from collections.abc import Generator

import anyio

from ..errors import Stopped
from ..outcome import Kind, Problem
from ..process import WorkerProcess


def closed() -> Stopped:
    """What a closed executor answers."""
    return Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message="the executor is closed"))


class Running:
    """Everything that was asked of an executor and is not done yet, with the workers that it has."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._workers: set[WorkerProcess] = set()
        self._closed = False

    def __bool__(self) -> bool:
        return bool(self._scopes)

    @property
    def closed(self) -> bool:
        """Whether nothing more may begin."""
        return self._closed

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.handle.pid for worker in self._workers]

    @contextlib.contextmanager
    def entered(self) -> Generator[None]:
        """While something is done.

        Raises:
            Stopped: ``unavailable``: the executor is closed, or was closed meanwhile and what was done is cancelled.
        """
        if self._closed:
            raise closed()
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise closed()

    @contextlib.contextmanager
    def working(self, worker: WorkerProcess) -> Generator[None]:
        """While this worker has its job."""
        self._workers.add(worker)
        try:
            yield
        finally:
            self._workers.discard(worker)

    def close(self) -> None:
        """End all of it, and let nothing more begin."""
        self._closed = True
        for worker in self._workers:
            worker.handle.kill()
        for scope in self._scopes:
            scope.cancel()
