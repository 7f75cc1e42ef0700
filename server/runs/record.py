"""What is kept of a run beside its attempts."""

from typing import Literal

from pydantic import JsonValue

from ...profiling.optimization.model import Budget, Confirmation, Limits, RunState
from ...sandbox.wire import Wire

HiddenFrom = Literal["task", "file", "derived", "none"]
"""Where hidden cases come from: the task, a file that only the server was given, or neighbours of the visible ones."""


class Frozen(Wire):
    """What a run is about: fixed when it is started, and hashed."""

    run_id: str
    created_at: str
    """ISO 8601, UTC."""
    title: str
    """The task's, or the kernel file's name."""
    kernel_sha256: str
    """Of the baseline's text, which is kept."""
    task_sha256: str
    """Of the task's text, which is kept."""
    kernel_shown_as: str
    task_shown_as: str
    kernel_origin: str | None
    """Folder that the baseline's own imports come from; what they import is not frozen."""
    task_origin: str | None
    entry: str
    cases: list[str]
    """Visible cases that are optimized for."""
    hidden_sha256: str | None
    """Of the hidden cases, JSON by name, which are kept and never shown; None: there are none."""
    hidden_from: HiddenFrom
    hidden_count: int
    hidden_dropped: dict[str, str] = {}
    """Derived cases that the baseline itself does not pass, with the reason."""
    target: str
    gpu: str | None
    """None: nothing can be timed here, so nothing can be accepted."""
    torch: str | None
    triton: str | None
    budget: Budget
    limits: Limits


class Run(Wire):
    """One run and where it stands."""

    frozen: Frozen
    state: RunState
    incumbent: int = 0
    ended_by: str | None = None
    """Of the verdict that ended it, or `user`."""
    problem: str | None = None
    """Why it is `failed`."""
    verified: Confirmation | None = None
    """The winner against the baseline, looked at once more when the run had ended: fresh processes, fresh seeds, hidden
    cases. None: not yet, or nothing was accepted."""
    updated_at: str


HiddenCases = dict[str, dict[str, JsonValue]]
"""Parameters of `make_inputs` by name, as a task's HIDDEN_CASES has them."""
