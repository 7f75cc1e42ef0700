"""Lessons of earlier runs, as the tools show them."""

from collections.abc import Sequence
from typing import Final

from ...profiling.optimization.lessons import Lesson, Recalled
from ...sandbox.wire import Wire
from ..results import Result
from .run_shown import words

WHY_CHARACTERS: Final = 90
KERNELS: Final = 1
FAILURES: Final = 2
"""Kinds that are told apart."""


class LessonShown(Wire):
    """What a kind of strategy did for a finding."""

    finding: str | None
    """Id of the catalogue; null: no finding was behind it."""
    strategy: str
    tried: int
    helped: int
    gain_pct: float | None
    """Of the time that it saved, pooled; negative where it lost. Null: never timed."""
    gain_low_pct: float | None
    gain_high_pct: float | None
    failed: dict[str, int]
    """How often it failed, by kind."""
    why: str
    kernels: list[str]
    device: str
    stale: str | None
    """Why it may not hold here."""

    @property
    def missed(self) -> bool:
        """Whether it failed, or was timed, each time without a gain."""
        return not self.helped and (self.gain_pct is not None or sum(self.failed.values()) >= self.tried)


class LessonsResult(Result):
    """What `recall_lessons` returns."""

    lessons: list[LessonShown] = []
    """Most useful first; stale ones come last."""
    lessons_omitted: int = 0
    about_others: int = 0
    """Lessons that are kept, where none is about what was asked for."""

    def in_words(self) -> str:
        return "\n".join([self.summary, *map(lesson_line, self.lessons)])


def lesson_shown(recalled: Recalled) -> LessonShown:
    """A lesson, in bounds."""
    lesson = recalled.lesson
    return LessonShown(
        finding=None if lesson.finding is None else words(lesson.finding, 16),
        strategy=words(lesson.strategy, 32),
        tried=lesson.tried,
        helped=lesson.helped,
        gain_pct=_rounded(lesson.gain_pct),
        gain_low_pct=_rounded(lesson.gain_low_pct),
        gain_high_pct=_rounded(lesson.gain_high_pct),
        failed=_failed(lesson),
        why=words(lesson.why, WHY_CHARACTERS),
        kernels=[words(kernel, 32) for kernel in lesson.kernels[:KERNELS]],
        device=words(lesson.device, 32),
        stale=None if recalled.stale is None else words(recalled.stale, 60),
    )


def so_far(lessons: Sequence[Lesson]) -> list[LessonShown]:
    """Lessons of the run at hand: nothing of it is stale."""
    return [lesson_shown(Recalled(lesson, None)) for lesson in lessons]


def lesson_line(lesson: LessonShown) -> str:
    """The same in words."""
    aimed = "" if lesson.finding is None else f" against {lesson.finding}"
    right = lesson.tried - sum(lesson.failed.values())
    came = f"right {right} of {lesson.tried} time(s), not timed"
    if lesson.gain_pct is not None and lesson.gain_low_pct is not None and lesson.gain_high_pct is not None:
        gain = f"saved {lesson.gain_pct:g} % of the time ({lesson.gain_low_pct:g} to {lesson.gain_high_pct:g})"
        came = f"helped {lesson.helped} of {lesson.tried}, {gain}"
    failed = ", ".join(f"{count} {kind}" for kind, count in lesson.failed.items())
    told = f"- {lesson.strategy}{aimed}: {came}"
    told += f"; failed: {failed}" if failed else ""
    told += f". {lesson.why} [{lesson.device}; {', '.join(lesson.kernels)}]"
    return told + ("" if lesson.stale is None else f" STALE: {lesson.stale}")


def _failed(lesson: Lesson) -> dict[str, int]:
    """The first kinds, and the others together."""
    shown = dict(list(lesson.failed.items())[:FAILURES])
    others = sum(lesson.failed.values()) - sum(shown.values())
    return {**shown, **({"others": others} if others else {})}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
