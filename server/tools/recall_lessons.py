"""recall_lessons: what strategies did for which findings in earlier runs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import anyio
from mcp_types import ToolAnnotations

from ...profiling.optimization.lessons import recall
from ...sandbox.outcome import Kind
from ..runs.machine import Machine
from .lesson_report import LessonShown, LessonsResult, lesson_shown
from .run_shown import words

NAME: Final = "recall_lessons"
TITLE: Final = "What earlier runs taught"
DESCRIPTION: Final = """\
Tells what kinds of strategies did for which finding, on which device, in the optimization runs that ended here: the \
time that they saved (pooled, with its 95 % interval), how often they helped and were tried, and how they failed. Ask \
before choosing the next idea: by finding (an id of diagnose_kernel's catalogue, such as 'V1'), by kernel (its title, \
or a word of it, or a kind such as 'products'), or for all. Most useful first; what was seen on another device or with \
another Triton is marked stale and comes last. Reads only what is kept in the state folder; under 1 s."""
ANNOTATIONS: Final = ToolAnnotations(
    title=TITLE,
    read_only_hint=True,
    idempotent_hint=True,
    destructive_hint=False,
    open_world_hint=False,
)


class Here(NamedTuple):
    """What lessons are held against."""

    device: str | None
    """None: no GPU."""
    triton: str | None


async def recall_lessons(
    machine: Machine, here: Here, *, finding: str | None, kernel: str | None, limit: int
) -> LessonsResult:
    """Lessons that may matter, most useful first."""
    known = await anyio.to_thread.run_sync(machine.store.lessons)
    wanted = None if finding is None else finding.strip().upper()
    found = recall(known, finding=wanted, kernel=kernel, device=here.device, triton=here.triton)
    shown = [lesson_shown(recalled) for recalled in found[:limit]]
    about = "" if finding is None else f" about {words(finding, 60)}"
    about += "" if kernel is None else f" seen with {words(kernel, 60)}"
    stale = sum(recalled.stale is not None for recalled in found)
    summary = f"{len(found)} lesson(s){about}" + (f", {stale} of them stale" if stale else "") + "."
    if known and not found:
        summary += f" There are {len(known)} about others."
    elif not known:
        summary += " Lessons are kept when a run ends; none has ended here with an attempt to learn from."
    return LessonsResult(
        kind=Kind.OK,
        summary=summary,
        next_step=_next_step(shown),
        lessons=shown,
        lessons_omitted=len(found) - len(shown),
        about_others=0 if found else len(known),
    )


def _next_step(shown: Sequence[LessonShown]) -> str:
    if not shown:
        return "Go by the findings of start_optimization or diagnose_kernel."
    helpful = next((lesson.strategy for lesson in shown if lesson.helped), None)
    if helpful is not None:
        return f"Where its finding applies, try {helpful} early, and say so in submit_candidate's strategy."
    if not all(lesson.missed for lesson in shown):
        return (
            "What was never timed speaks neither for nor against a strategy: go by the findings of start_optimization "
            "or diagnose_kernel, and time it on a GPU."
        )
    return "None of these has helped yet: try something else, or say in strategy what is done otherwise this time."
