"""Work that outlives the call that asked for it: whoever waits can stop waiting, and others can wait for it too."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import anyio
from anyio.abc import TaskGroup

from ...sandbox.errors import Stopped
from ...sandbox.executors.running import closed
from ...sandbox.outcome import Kind, Problem
from ..tools.parameters import Progress

_log = logging.getLogger(__name__)

TOLD_EVERY_S: Final = 2.0
"""People watch the progress, and some clients drop calls that are silent."""


class JobKey(NamedTuple):
    """One evaluation."""

    run_id: str
    number: int


class Job:
    """One piece of work, while it goes on and after that."""

    def __init__(self) -> None:
        self.done, self.total, self.message = 0.0, 1.0, "waiting for its turn"
        self.finished = anyio.Event()
        self.failure: Exception | None = None
        """What it ended with, where it is nobody's kernel's doing."""
        self.cancelled = False
        """Whether its user wanted it to end."""
        self._scope = anyio.CancelScope()

    async def progress(self, done: float, total: float, message: str) -> None:
        """How far it is, for whoever waits."""
        self.done, self.total, self.message = done, total, message

    def cancel(self) -> None:
        """End it, because its user wants so."""
        self.cancelled = True
        self._scope.cancel()

    async def run(self, work: Callable[["Job"], Awaitable[None]]) -> None:
        """Do the work; what it raises is kept for those who wait."""
        try:
            with self._scope:
                await work(self)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            self.failure = error
            if not isinstance(error, Stopped):
                _log.error("an evaluation failed", exc_info=error)
        finally:
            self.finished.set()


class Jobs:
    """The jobs of one server. Use it as an asynchronous context manager: leaving it ends what still goes on."""

    def __init__(self) -> None:
        self._tasks: TaskGroup | None = None
        self._jobs: dict[JobKey, Job] = {}

    async def __aenter__(self) -> "Jobs":
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)

    def start(self, key: JobKey, work: Callable[[Job], Awaitable[None]]) -> Job:
        """Begin a job.

        Raises:
            Stopped: ``unavailable``, where the server is being closed.
        """
        if self._tasks is None:
            raise closed()
        job = self._jobs[key] = Job()

        async def run() -> None:
            try:
                await job.run(work)
            finally:
                # One that failed is remembered, so that it is not begun again and again.
                if job.failure is None and self._jobs.get(key) is job:
                    del self._jobs[key]

        self._tasks.start_soon(run)
        return job

    def get(self, key: JobKey) -> Job | None:
        """The job of that name, while it goes on, or if it failed."""
        return self._jobs.get(key)

    def running(self, run_id: str) -> list[tuple[int, Job]]:
        """Those of a run that go on, by number."""
        return sorted(
            (
                (key.number, job)
                for key, job in self._jobs.items()
                if key.run_id == run_id and not job.finished.is_set()
            ),
            key=lambda found: found[0],
        )


async def wait(job: Job, wait_s: float, progress: Progress) -> bool:
    """Wait until a job has ended, and tell how far it is meanwhile.

    Returns:
        Whether it has ended.

    Raises:
        Stopped: what the job ended with, if it failed; ``unavailable`` behind a fault of the server.
    """
    with anyio.move_on_after(wait_s):
        while not job.finished.is_set():
            await progress(job.done, job.total, job.message)
            with anyio.move_on_after(TOLD_EVERY_S):
                await job.finished.wait()
    if isinstance(job.failure, Stopped):
        raise job.failure
    if job.failure is not None:
        raise Stopped(Kind.UNAVAILABLE, _fault(job.failure)) from job.failure
    return job.finished.is_set()


def _fault(error: Exception) -> Problem:
    """What may be told of it; the log has the rest."""
    return Problem(
        stage="run",
        message=f"the evaluation failed by a fault of the server: {type(error).__name__}: {error}",
        likely_fix="Ask for the same once more. If it fails again, report it with the server's log.",
    )
