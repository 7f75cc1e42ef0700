"""Lessons: what a kind of strategy did for which finding on which device.

They are distilled from a finished run, pooled over runs, and recalled by the next. Pure.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pydantic import Field

from ...sandbox.outcome import Kind
from ...sandbox.wire import Wire
from .hint_context import Beside, cropped, launches_beside, settings
from .hint_signs import compiled_marks
from .lesson_gains import Gain, Pooled, gain_beside, pooled, saved_pct
from .lesson_kinds import finding_of, kernel_kind, kind_of
from .model import BASELINE, Attempt, CaseLaunch, Evidence

KERNELS_KEPT: Final = 8
RUNS_KEPT: Final = 20
WHY_LIMIT: Final = 400
NO_GPU: Final = "no GPU"
"""Device of a run in which nothing could be timed."""
MOST_PCT: Final = 99.999
"""Of time saved: no kernel takes none, and the logarithm of what is left has to exist."""
NOBODYS: Final = frozenset({Kind.CANCELLED, Kind.UNAVAILABLE, Kind.RUNNING})
"""How an evaluation may end without having said anything of its candidate."""
_GENERIC: Final = frozenset(("kernel", "kernels", "triton", "the", "and", "for", "with", "py"))
_KEY_LENGTH: Final = 24


class Lesson(Wire):
    """What is known of one kind of strategy against one finding on one device."""

    key: str = Field(min_length=1, max_length=64)
    """Same for the same finding, kind of strategy, device and kind of kernel: a hash."""
    finding: str | None
    """Id of the catalogue that the strategy was aimed at; null where no finding was."""
    strategy: str = Field(min_length=1, max_length=40)
    """Kind of strategy: tiling, warps, stages, vectorization, masks, …"""
    device: str
    """Name of the GPU, as its driver says it, or `no GPU`."""
    triton: str | None
    """Version with which it was seen last."""
    torch: str | None
    """Version with which it was seen last."""
    tried: int = Field(ge=1)
    """Attempts that it rests on."""
    helped: int = Field(ge=0)
    """Of these, the ones that were faster beyond the noise."""
    gain_pct: float | None
    """Time saved by the attempts that were timed, pooled; negative where they lost. Null: none was timed."""
    gain_low_pct: float | None
    gain_high_pct: float | None
    """95 % interval of `gain_pct`."""
    failed: dict[str, int] = {}
    """How often it failed, by kind of outcome."""
    why: str = Field(max_length=WHY_LIMIT)
    """One sentence: what the newest attempt showed."""
    kernels: list[str] = Field(default=[], max_length=KERNELS_KEPT)
    """Titles of the kernels where it was seen, newest first."""
    runs: list[str] = Field(default=[], max_length=RUNS_KEPT)
    """Runs that it rests on, newest first."""
    updated_at: str
    """When it was last added to, in ISO 8601."""
    kernel_kind: str = "unknown"
    """What kind of work the kernels do, by their compiled code: `products`, `atomics`, `loops`, `rows` or
    `elementwise`."""


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


class Recalled(NamedTuple):
    """A lesson that may matter now."""

    lesson: Lesson
    stale: str | None
    """Why it may not hold here: seen on another device or with another version of Triton."""


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


def merge(old: Lesson, new: Lesson) -> Lesson:
    """Two lessons of one key as one: counts add up, gains are pooled (see `lesson_gains.pooled`), and what the newer
    one says stands first.

    Raises:
        ValueError: their keys differ.
    """
    if old.key != new.key:
        raise ValueError(f"lessons {old.key} and {new.key} are about different things: only equal keys are merged")
    gain = pooled(_gain_of(old), _timed(old), _gain_of(new), _timed(new))
    return new.model_copy(
        update={
            "triton": new.triton or old.triton,
            "torch": new.torch or old.torch,
            "tried": old.tried + new.tried,
            "helped": old.helped + new.helped,
            **_told(gain),
            "failed": {
                kind: old.failed.get(kind, 0) + new.failed.get(kind, 0) for kind in sorted({*old.failed, *new.failed})
            },
            "kernels": list(dict.fromkeys([*new.kernels, *old.kernels]))[:KERNELS_KEPT],
            "runs": list(dict.fromkeys([*new.runs, *old.runs]))[:RUNS_KEPT],
            "updated_at": max(old.updated_at, new.updated_at),
        }
    )


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
        **_told(timed),
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


def _told(gain: Pooled | None) -> dict[str, float | None]:
    if gain is None:
        return dict.fromkeys(("gain_pct", "gain_low_pct", "gain_high_pct"))
    fields = (("gain_pct", gain.pct), ("gain_low_pct", gain.low_pct), ("gain_high_pct", gain.high_pct))
    return {name: min(round(pct, 3), MOST_PCT) for name, pct in fields}


def _gain_of(lesson: Lesson) -> Pooled | None:
    if lesson.gain_pct is None or lesson.gain_low_pct is None or lesson.gain_high_pct is None:
        return None
    return Pooled(lesson.gain_pct, lesson.gain_low_pct, lesson.gain_high_pct)


def _timed(lesson: Lesson) -> int:
    """Attempts that its gain stands for: all that did not fail."""
    return max(lesson.tried - sum(lesson.failed.values()), 1)


def _success(lesson: Lesson) -> float:
    """How often it helped, by Laplace's rule: one success of one says less than nine of ten."""
    return (lesson.helped + 1) / (lesson.tried + 2)


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
