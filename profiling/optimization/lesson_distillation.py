"""Lessons as a finished run gives them: what each kind of strategy did for which finding on its device.

Deterministic and pure.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...sandbox.outcome import Kind
from .hint_context import Beside, cropped, launches_beside, settings
from .hint_signs import compiled_marks
from .lesson import WHY_LIMIT, Lesson, merge, told
from .lesson_gains import Gain, Pooled, gain_beside, saved_pct
from .lesson_kinds import finding_of, kernel_kind, kind_of
from .model import BASELINE, Attempt, CaseLaunch, Evidence

NO_GPU: Final = "no GPU"
"""Device of a run in which nothing could be timed."""
NOBODYS: Final = frozenset({Kind.CANCELLED, Kind.UNAVAILABLE, Kind.RUNNING})
"""How an evaluation may end without having said anything of its candidate."""
_KEY_LENGTH: Final = 24


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What lessons keep of a run."""

    run_id: str
    title: str
    device: str | None
    """Name of the GPU; None: there was none."""
    triton: str | None
    torch: str | None
    ended_at: str
    """ISO 8601: for attempts that don't say when they ended."""


def distill(run: RunFacts, attempts: Sequence[Attempt]) -> list[Lesson]:
    """What a run taught: one lesson for each finding and kind of strategy, from all attempts that ended and were no
    duplicates. Deterministic: the same attempts give the same lessons.

    Args:
        run: what it was about.
        attempts: all of it, the baseline among them.
    """
    known = {attempt.number: attempt for attempt in attempts}
    baseline = known.get(BASELINE)
    kind = kernel_kind(baseline.evidence.launches if baseline is not None and baseline.evidence is not None else ())
    lessons: dict[str, Lesson] = {}
    for attempt in sorted(attempts, key=lambda one: one.number):
        if attempt.number == BASELINE or attempt.state != "finished" or attempt.duplicate_of is not None:
            continue
        if attempt.evidence is None or attempt.evidence.kind in NOBODYS:
            continue
        parent = known.get(BASELINE if attempt.parent is None else attempt.parent)
        lesson = _of_attempt(run, attempt, attempt.evidence, parent, kind)
        before = lessons.get(lesson.key)
        lessons[lesson.key] = lesson if before is None else merge(before, lesson)
    return list(lessons.values())


def lesson_key(finding: str | None, strategy: str, device: str, kind: str) -> str:
    """The same for what belongs together, in whatever run it is seen."""
    text = "\x1f".join((finding or "", strategy, device, kind))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]


def _of_attempt(run: RunFacts, attempt: Attempt, evidence: Evidence, parent: Attempt | None, kind: str) -> Lesson:
    its = None if parent is None else parent.evidence
    launches: Sequence[CaseLaunch] = () if its is None else its.launches
    beside = launches_beside(launches, evidence.launches)
    strategy = kind_of(attempt.strategy, beside)
    finding = finding_of(attempt.strategy, None if its is None else its.diagnosed, evidence.diagnosed)
    device = run.device or NO_GPU
    failure = _failure(evidence)
    gain = None if failure is not None else gain_beside(evidence, its, None if parent is None else parent.number)
    timed = None if gain is None else Pooled(gain.saved_pct, saved_pct(gain.low), saved_pct(gain.high))
    return Lesson(
        key=lesson_key(finding, strategy, device, kind),
        finding=finding,
        strategy=strategy,
        device=device,
        triton=run.triton,
        torch=run.torch,
        tried=1,
        helped=int(gain is not None and gain.comparison == "faster"),
        **told(timed),
        failed={} if failure is None else {failure: 1},
        why=_why(run, attempt, evidence, beside, gain),
        kernels=[run.title],
        runs=[run.run_id],
        updated_at=attempt.finished_at or run.ended_at,
        kernel_kind=kind,
    )


def _failure(evidence: Evidence) -> str | None:
    """The kind of outcome that ended it, in the second look too."""
    if evidence.kind is not Kind.OK:
        return evidence.kind.value
    confirmation = evidence.confirmation
    if confirmation is None or confirmation.kind is Kind.OK or confirmation.kind in NOBODYS:
        return None
    return confirmation.kind.value


def _why(run: RunFacts, attempt: Attempt, evidence: Evidence, beside: Beside, gain: Gain | None) -> str:
    """What the attempt showed, in one sentence: what was set, what came of it, what the compiler made of it."""
    changed = list(dict.fromkeys(text for pair in beside.pairs for text in settings(pair.before, pair.after).values()))[
        :2
    ]
    what = ", ".join(changed) or cropped(attempt.strategy, 80) or "an edit"
    failure = _failure(evidence)
    if failure is not None:
        problem = evidence.problem
        if problem is None and evidence.confirmation is not None:
            problem = evidence.confirmation.problem
        said = "" if problem is None or not problem.message.strip() else f": {problem.message.strip().splitlines()[0]}"
        return cropped(f"{run.title}: {what} ended in {failure}{said}", WHY_LIMIT)
    if gain is None:
        came = f"was right and not timed{f' ({evidence.untimed})' if evidence.untimed else ''}"
    elif gain.comparison in ("faster", "slower"):
        low, high = sorted((abs(saved_pct(gain.low)), abs(saved_pct(gain.high))))
        verb = "saved" if gain.comparison == "faster" else "lost"
        came = f"{verb} {abs(gain.saved_pct):.1f} % ({low:.1f} to {high:.1f})"
    else:
        came = "made no difference" if gain.comparison == "same" else "made no difference that could be told"
    marks = compiled_marks(beside.pairs)
    helpful = gain is not None and gain.comparison == "faster"
    marks.sort(key=lambda mark: mark.better is not helpful)
    clauses = [mark.clause for mark in marks][:2]
    code = f": {', '.join(clauses)}" if clauses else ""
    return cropped(f"{run.title}: {what} {came}{code}", WHY_LIMIT)
