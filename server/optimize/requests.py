"""What a program that takes part in a run is asked, and what it may answer."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from ...profiling.optimization.lessons import Lesson, recall
from ...profiling.optimization.model import BASELINE, Attempt
from ...profiling.optimization.population import suggest_parent
from ...sandbox.errors import Stopped
from ...sandbox.wire import Wire
from ..results import readable
from ..runs.answer import Answer
from ..runs.memory import source_of, spent_s
from ..runs.visible import visible, visible_kernel
from ..tools.lesson_report import lesson_shown
from ..tools.run_lineage_report import Standing, about_run
from ..tools.run_report import submission, tell
from .model import Site, TaskAsked
from .texts import CANDIDATE_RULES, TASK_RULES, task_text_prompt

VERSION: Final = 1
LESSONS: Final = 6
SHOWN_CHARACTERS: Final = 200
ERRORS: Final = 3
NAMED_FIELDS: Final = 40
"""Characters of a field's name in a message: it may be anything."""


class CandidateAnswer(Wire):
    """A candidate as a program gives it."""

    kernel: str = Field(min_length=1)
    """The whole kernel file."""
    strategy: str = Field(pattern=r"\S")
    """What was changed, and why it should help."""
    parent: int | None = Field(default=None, ge=0)
    """Number of the attempt that it was made from."""


class TaskAnswer(Wire):
    """A task as a program gives it."""

    task: str = Field(min_length=1)
    """The whole task file."""


A = TypeVar("A", CandidateAnswer, TaskAnswer)


class Malformed(NamedTuple):
    """An answer that can't be read."""

    why: str


def parse(output: bytes, model: type[A]) -> A | Malformed:
    """An answer as a program has written it."""
    expected = f"Write one JSON object with {', '.join(model.model_fields)} on standard output, and nothing else."
    text = _unfenced(output.decode("utf-8-sig", errors="replace").strip())
    if not text:
        return Malformed(f"nothing was written on standard output. {expected}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        start = readable(text[:SHOWN_CHARACTERS], SHOWN_CHARACTERS)
        return Malformed(
            f"what was written is no JSON ({str(error)[:SHOWN_CHARACTERS]}); it begins {start!r}. {expected}"
        )
    try:
        return model.model_validate(found)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(str(part)[:NAMED_FIELDS] for part in each['loc']) or 'it'}: {each['msg']}"
            for each in error.errors()
        ]
        return Malformed(f"the answer does not fit: {'; '.join(wrong[:ERRORS])}. {expected}")


def _unfenced(text: str) -> str:
    """A text without the Markdown fence around all of it, which models like to put there."""
    found = re.fullmatch(r"```[A-Za-z0-9]*[ \t]*\r?\n(.*?)\s*```", text, re.DOTALL)
    return text if found is None else found[1].strip()


def task_request(asked: TaskAsked) -> dict[str, Any]:
    """What a program is asked that writes the task."""
    return {
        "version": VERSION,
        "kind": "task",
        "instructions": TASK_RULES,
        "prompt": task_text_prompt(asked),
        "kernel": asked.kernel.text,
        "last": None if asked.wrong is None else {"problem": asked.wrong},
    }


class Round(NamedTuple):
    """One call of a program."""

    number: int
    of: int
    seconds_left: float
    last: dict[str, Any] | None
    """What became of its answer before."""


def candidate_request(site: Site, answer: Answer, round_: Round) -> dict[str, Any]:
    """What a program is asked that makes a candidate. Of the server's own hidden cases nothing is in it but how many
    there are.

    Args:
        site: the run.
        answer: the baseline, with the run as it stands.
        round_: which call it is.
    """
    run, memory, store = answer.run, answer.memory, site.machine.store
    attempts = store.attempts(site.run_id)
    standing = about_run(Standing(answer, attempts, {}, [], []), detail=True)
    suggested = suggest_parent(memory)
    parent = next(each for each in memory.attempts if each.number == suggested.number)
    told = tell(answer._replace(attempt=parent), detail=True)
    shown = told.shown.model_dump(mode="json")
    budget = run.frozen.budget
    return {
        "version": VERSION,
        "kind": "candidate",
        "instructions": CANDIDATE_RULES,
        "run_id": site.run_id,
        "round": round_.number,
        "rounds": round_.of,
        "entry": run.frozen.entry,
        "target": run.frozen.target,
        "gpu": run.frozen.gpu,
        "task": visible(store.file(run.frozen.task_sha256)),
        "hidden_cases": run.frozen.hidden_count,
        "parent": {
            "number": parent.number,
            "why": suggested.why,
            "kernel": visible_kernel(source_of(store, parent).text),
            "cases": shown["cases"],
        },
        "findings": shown["findings"],
        "hints": shown["hints"],
        "incumbent": shown["incumbent"],
        "attempts": [each.model_dump(mode="json") for each in standing.attempts if each.number != BASELINE],
        "lessons": [
            *(each.model_dump(mode="json") for each in standing.lessons),
            *_recalled(store.lessons(), parent, run.frozen.gpu, run.frozen.triton),
        ][:LESSONS],
        "remaining": {
            "rounds": round_.of - round_.number + 1,
            "attempts": standing.attempts_left,
            "seconds": round(max(0.0, round_.seconds_left)),
            "target_pct": budget.target_pct,
            "elapsed_s": round(spent_s(run)),
        },
        "last": round_.last,
    }


def outcome(answer: Answer, failure: Stopped | None) -> dict[str, Any]:
    """What became of a candidate, for the next request.

    Args:
        answer: the attempt.
        failure: what its evaluation ended with, where that says nothing of it.
    """
    return submission(tell(answer, failure=failure)).model_dump(mode="json")


def _recalled(known: Sequence[Lesson], parent: Attempt, gpu: str | None, triton: str | None) -> list[dict[str, Any]]:
    """What earlier runs taught of the parent's findings."""
    diagnosed = None if parent.evidence is None else parent.evidence.diagnosed
    names = [] if diagnosed is None else list(dict.fromkeys(note.id for note in diagnosed.findings))
    return [
        lesson_shown(each).model_dump(mode="json")
        for name in names
        for each in recall(known, finding=name, device=gpu, triton=triton)[:1]
    ]
