"""Lessons as they are recalled: what may matter now, and what may not hold any more. Pure."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from .lesson import Lesson

_GENERIC: Final = frozenset(("kernel", "kernels", "triton", "the", "and", "for", "with", "py"))


class Recalled(NamedTuple):
    """A lesson that may matter now."""

    lesson: Lesson
    stale: str | None
    """Why it may not hold here: seen on another device or with another version of Triton."""


def recall(
    lessons: Iterable[Lesson],
    *,
    finding: str | None = None,
    kernel: str | None = None,
    device: str | None,
    triton: str | None,
) -> list[Recalled]:
    """Lessons that may matter, most useful first. Stale ones are marked and come later; none is hidden for that.

    Args:
        lessons: all that are known.
        finding: only those about this finding of the catalogue.
        kernel: only those of such kernels: words of a title, or a kind of kernel such as `products`.
        device: the GPU at hand; None: there is none, and nothing is stale for its device.
        triton: the version at hand; None: unknown.
    """
    wanted = _words(kernel or "")
    ranked: list[tuple[tuple[float, ...], str, Recalled]] = []
    for lesson in lessons:
        alike = _likeness(lesson, wanted)
        if (finding is not None and lesson.finding != finding) or (wanted and not alike):
            continue
        stale = stale_reason(lesson, device, triton)
        rank = (stale is not None, -alike, -_success(lesson), -(lesson.gain_pct or 0.0), -lesson.tried)
        ranked.append((rank, lesson.key, Recalled(lesson, stale)))
    return [recalled for _, _, recalled in sorted(ranked, key=lambda each: each[:2])]


def stale_reason(lesson: Lesson, device: str | None, triton: str | None) -> str | None:
    """Why a lesson may not hold here; None where nothing speaks against it."""
    reasons: list[str] = []
    if device is not None and lesson.device != device:
        reasons.append(f"seen on {lesson.device}, this is {device}")
    if triton is not None and lesson.triton is None:
        reasons.append("nobody knows with which Triton it was seen")
    elif triton is not None and lesson.triton is not None and _minor(lesson.triton) != _minor(triton):
        reasons.append(f"seen with Triton {lesson.triton}, this is {triton}")
    return "; ".join(reasons) or None


def _success(lesson: Lesson) -> float:
    """How often it helped, by Laplace's rule: one success of one says less than nine of ten."""
    # What was never timed is no miss, unless it failed.
    tried = lesson.tried if lesson.gain_pct is not None else sum(lesson.failed.values())
    return (lesson.helped + 1) / (tried + 2)


def _likeness(lesson: Lesson, wanted: frozenset[str]) -> float:
    """Share of the words that a lesson's kernels, or their kind, have."""
    if not wanted:
        return 0.0
    titles = [_words(title) for title in lesson.kernels]
    best = max((len(wanted & title) for title in titles), default=0) / len(wanted)
    return max(best, float(lesson.kernel_kind in wanted))


def _words(text: str) -> frozenset[str]:
    found = re.findall(r"[a-z0-9]+", text.lower())
    return frozenset(word for word in found if word not in _GENERIC)


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split("+")[0].split(".")[:2])
