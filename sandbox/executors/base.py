"""The contract of an executor: clean, single-use workers for jobs, on devices that it looks after."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal

from ..isolation import Seal
from ..process import WorkerProcess
from ..wire import Wire

Role = Literal["task", "capture", "interpret", "cuda", "replay", "report"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is wanted for."""

    role: Role
    """``task`` runs a task file, ``replay`` what was recorded of a kernel file, ``report`` reads a profiler's report,
    in a process without torch and Triton: Nsight Compute's reader crashes beside them (2025.3.1). The others run a
    kernel file: under the capturing driver, in Triton's interpreter, on a GPU."""
    on_gpu: bool = False
    """Its tensors live on a GPU."""
    target: dict[str, Any] | None = None
    """Architecture facts, for ``capture`` and ``interpret``."""
    wrapper: Sequence[str] = ()
    """A command to start the worker with, such as a profiler's: never a warm worker."""
    writable: str | None = None
    """A folder that the wrapper writes to."""
    profiler: tuple[str, ...] = ()
    """A profiler's command to start the worker with, `{folder}` in it for the worker's own folder (see
    `WorkerProcess.folder`): made ready as far as it can be before its device is asked for."""
    ahead: bool = False
    """Keep a worker under that profiler's command ready for the next job."""
    environment: dict[str, str] | None = None
    """Variables that the worker gets beside its own, over those that it inherits: never a warm worker."""

    @property
    def cold(self) -> bool:
        """Whether only a process from nothing can do it."""
        return bool(self.wrapper or self.environment or (self.profiler and not self.ahead) or self.role == "report")


class Device(Wire):
    """A GPU that evaluations can use."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    quarantined: str | None = None
    """Why it is not used any more, until the server is started anew."""


class Executor(ABC):
    """Gives each job a worker that no other job has touched or can touch.

    Use it as an asynchronous context manager: what it started is gone when it is left.
    """

    python: str
    """The interpreter that workers were asked to use."""

    @abstractmethod
    def submit(self, job: Job) -> AbstractAsyncContextManager[WorkerProcess]:
        """A worker for this job alone; on leaving, it and all that it started are gone.

        Raises:
            Stopped: ``unavailable``, where there is none to be had; the reason and the remedy are in the problem.
        """

    @abstractmethod
    async def environment(self) -> dict[str, Any]:
        """What the workers' interpreter has (see `worker/environment.py`); ``problem`` says why it can't be used."""

    @abstractmethod
    async def seal(self) -> Seal:
        """How workers are isolated."""

    @abstractmethod
    async def devices(self) -> list[Device]:
        """The GPUs of this machine that workers may use; empty where there is none."""

    @abstractmethod
    def quiet(self, device: Device) -> AbstractAsyncContextManager[None]:
        """While entered, no worker is being made ready on this device: for measurements."""

    @abstractmethod
    async def close(self) -> None:
        """End everything, at once; submitting is over."""

    @abstractmethod
    async def __aenter__(self) -> "Executor": ...

    @abstractmethod
    async def __aexit__(self, *error: object) -> None: ...
