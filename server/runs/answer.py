"""Where an attempt and its run stand."""

from collections.abc import Sequence
from typing import NamedTuple

from ...profiling.optimization.model import Attempt, Memory
from .memory import memory_of
from .record import Run


class Answer(NamedTuple):
    """Where an attempt and its run stand."""

    run: Run
    attempt: Attempt
    memory: Memory
    """All finished attempts, this one too."""
    counting: int
    """Attempts that are being evaluated and, as far as is known, cost one of the budget."""


def answer_of(run: Run, attempt: Attempt, attempts: Sequence[Attempt]) -> Answer:
    """Where an attempt and its run stand.

    Args:
        run: the run.
        attempt: one of its attempts.
        attempts: all of them.
    """
    counting = sum(each.counted for each in attempts if each.state == "running")
    return Answer(run, attempt, memory_of(run, attempts), counting)
