"""What a run's stored rows come to, for those who judge and those who evaluate."""

import json
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from ...profiling.optimization.lesson import Lesson
from ...profiling.optimization.model import BASELINE, Attempt, Confirmation, Memory, RunState
from ...sandbox.source import Source
from .evaluator import Sources
from .record import Frozen, HiddenCases, Run
from .store import Store

SALT: Final = "salt"
CASES: Final = "cases"


def now(after: str = "") -> str:
    """The time as it is stored.

    Args:
        after: a stored time that it is not before: a clock may be set back.
    """
    return max(datetime.now(UTC).isoformat(timespec="milliseconds"), after)


def elapsed_s(frozen: Frozen) -> float:
    """Seconds since a run was started: by the clock until this process first looked, and from then on by one that
    nobody sets."""
    looked_at, age = _first_look(frozen.run_id, frozen.created_at)
    return age + time.monotonic() - looked_at


def spent_s(run: Run) -> float:
    """Seconds that a run has taken: until now, or, of one that has ended, until it was last changed."""
    if run.state not in ("finished", "failed"):
        return elapsed_s(run.frozen)
    ended, began = (datetime.fromisoformat(at) for at in (run.updated_at, run.frozen.created_at))
    return max(0.0, (ended - began).total_seconds())


@lru_cache(maxsize=4096)
def _first_look(run_id: str, created_at: str) -> tuple[float, float]:
    """When this process first looked at a run, and its age then, which is not below 0 whatever the clock says."""
    age = (datetime.now(UTC) - datetime.fromisoformat(created_at)).total_seconds()
    return time.monotonic(), max(0.0, age)


def memory_of(run: Run, attempts: Sequence[Attempt]) -> Memory:
    """A run as the arbiter sees it: finished attempts that are no duplicates' echoes stay among them."""
    return Memory(
        attempts=[attempt for attempt in attempts if attempt.state == "finished"],
        incumbent=run.incumbent,
        budget=run.frozen.budget,
        limits=run.frozen.limits,
        elapsed_s=spent_s(run),
    )


def changed(
    run: Run, *, state: RunState | None = None, incumbent: int | None = None, ended_by: str | None = None,
    problem: str | None = None, frozen: Frozen | None = None,
) -> Run:  # fmt: skip
    """A run with some of its fields replaced; one that has ended stays so."""
    over = run.state in ("finished", "failed")
    return run.model_copy(
        update={
            "state": run.state if state is None or over else state,
            "ended_by": run.ended_by if over else ended_by,
            "incumbent": run.incumbent if incumbent is None else incumbent,
            "verified": run.verified if incumbent is None else None,
            "problem": run.problem if problem is None else problem,
            "frozen": run.frozen if frozen is None else frozen,
            "updated_at": now(run.updated_at),
        }
    )


def is_to_be_verified(run: Run) -> bool:
    """Whether its winner is to be looked at once more."""
    return run.state == "finished" and run.incumbent != BASELINE and run.verified is None


def verified(run: Run, winner: Attempt, found: Confirmation) -> Run:
    """A run with that look kept; not where another attempt that was under way has won meanwhile."""
    if not is_to_be_verified(run) or run.incumbent != winner.number:
        return run
    return run.model_copy(update={"verified": found, "updated_at": now(run.updated_at)})


def hidden_text(cases: HiddenCases) -> str:
    """Hidden cases as they are kept. Their hash is told to who exports a kernel: without the salt, whoever guesses
    their few sizes could tell by it that he is right."""
    return json.dumps({SALT: secrets.token_hex(16), CASES: cases}, sort_keys=True)


def hidden_cases(text: str) -> HiddenCases:
    """Hidden cases that were kept; those of older runs have no salt."""
    kept = json.loads(text)
    return kept[CASES] if isinstance(kept.get(SALT), str) else kept


def sources_of(store: Store, frozen: Frozen) -> Sources:
    """The frozen files.

    Raises:
        Stopped: ``unavailable``: one is gone or damaged.
    """
    hidden = {} if frozen.hidden_sha256 is None else hidden_cases(store.file(frozen.hidden_sha256))
    return Sources(
        Source(store.file(frozen.kernel_sha256), frozen.kernel_shown_as, frozen.kernel_origin),
        Source(store.file(frozen.task_sha256), frozen.task_shown_as, frozen.task_origin),
        hidden,
    )


def source_of(store: Store, attempt: Attempt) -> Source:
    """An attempt's file.

    Raises:
        Stopped: ``unavailable``: it is gone or damaged.
    """
    return Source(store.file(attempt.kernel_sha256), attempt.kernel_shown_as, attempt.kernel_origin)


def taught(before: Run, after: Run, attempts: Sequence[Attempt], number: int | None = None) -> list[Lesson]:
    """What a change of a run teaches: all of its attempts when it ends, and each that is finished behind its end.

    Args:
        before: the run before it.
        after: the run after it.
        attempts: all of it.
        number: of the attempt that was finished with it.
    """
    if after.state != "finished":
        return []
    if before.state != "finished":
        return lessons_of(after, attempts)
    # The others are its parents, and have been learnt from.
    known = [each if each.number == number else each.model_copy(update={"state": "interrupted"}) for each in attempts]
    return lessons_of(after, known)


def lessons_of(run: Run, attempts: Sequence[Attempt]) -> list[Lesson]:
    """What the finished ones of a run's attempts taught."""
    # The rules that it needs take a while to be loaded, and runs end seldom.
    from ...profiling.optimization.lesson_distillation import RunFacts, distill

    frozen = run.frozen
    facts = RunFacts(frozen.run_id, frozen.title, frozen.gpu, frozen.triton, frozen.torch, run.updated_at)
    return distill(facts, attempts)
