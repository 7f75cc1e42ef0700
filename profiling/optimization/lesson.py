"""A lesson as it is kept, and two as one: without the rules that lessons are distilled by. Pure."""

from typing import Final

from pydantic import Field

from ...sandbox.wire import Wire
from .lesson_gains import Pooled, pooled

KERNELS_KEPT: Final = 8
RUNS_KEPT: Final = 20
WHY_LIMIT: Final = 400
MOST_PCT: Final = 99.999
"""Of time saved: no kernel takes none, and the logarithm of what is left has to exist."""


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
            **told(gain),
            "failed": {
                kind: old.failed.get(kind, 0) + new.failed.get(kind, 0) for kind in sorted({*old.failed, *new.failed})
            },
            "kernels": list(dict.fromkeys([*new.kernels, *old.kernels]))[:KERNELS_KEPT],
            "runs": list(dict.fromkeys([*new.runs, *old.runs]))[:RUNS_KEPT],
            "updated_at": max(old.updated_at, new.updated_at),
        }
    )


def told(gain: Pooled | None) -> dict[str, float | None]:
    """A gain as the fields of a lesson."""
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
