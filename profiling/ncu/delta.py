"""What changed from one profile to another, the most telling first. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from ...sandbox.wire import Wire
from .model import LaunchProfile, Stall

TRIVIAL: Final = 0.02
"""Relative changes under this are left out: counters repeat within about 1 % from one profile of the same kernel to
the next (three kernels on an H200, ncu 2025.3.1)."""
TRIVIAL_POINTS: Final = 1.0
"""Shares have to move by so many percentage points too: 0.02 % that doubles is nothing."""
CHANGES_LIMIT: Final = 12


class Change(Wire):
    """One quantity that both profiles have and that differs."""

    field: str
    """Of the profile; a stall reason as `stalls.barrier_cycles` (an issued instruction) or `stalls.barrier_pct`."""
    before: float | str | None
    """None for a stall reason that was under 1 %."""
    after: float | str | None
    relative: float | None
    """-0.25: a quarter less. None where there is no number to divide by."""
    good: bool | None
    """None where neither more nor less is better by itself."""


class LaunchDelta(Wire):
    """The changes of one launch."""

    kernel: str
    before: int
    """Index of the launch in the report before."""
    after: int
    changes: list[Change]


class ReportDelta(Wire):
    """The changes of all launches that have a counterpart: the same kernel name, the same turn of it."""

    launches: list[LaunchDelta]
    only_before: list[str]
    """Kernels of launches without a counterpart in the report after."""
    only_after: list[str]


class _Field(NamedTuple):
    better: Literal["lower", "higher"] | None
    weight: float


_COST: Final = 3.0
_CAUSE: Final = 2.0
_STATE: Final = 1.0

FIELDS: Final = {
    "duration_us": _Field("lower", 1000.0),
    "cycles": _Field("lower", _COST),
    "dram_bytes": _Field("lower", _COST),
    "flops": _Field("lower", _COST),
    "local_requests": _Field("lower", _COST),
    "tensor_pct": _Field("higher", _CAUSE),
    "load_bytes_per_sector": _Field("higher", _CAUSE),
    "store_bytes_per_sector": _Field("higher", _CAUSE),
    "needed_sectors_pct": _Field("higher", _CAUSE),
    "bank_conflict_pct": _Field("lower", _CAUSE),
    "sm_imbalance": _Field("lower", _CAUSE),
    "l1_hit_pct": _Field("higher", _CAUSE),
    "l2_hit_pct": _Field("higher", _CAUSE),
    "flops_per_dram_byte": _Field("higher", _STATE),
    "tensor_flops": _Field(None, _CAUSE),
    "half_flops": _Field(None, _STATE),
    "memory_pct": _Field(None, _STATE),
    "compute_pct": _Field(None, _STATE),
    "dram_pct": _Field(None, _STATE),
    "l1_pct": _Field(None, _STATE),
    "l2_pct": _Field(None, _STATE),
    "issue_slot_pct": _Field(None, _STATE),
    "eligible_warps": _Field(None, _STATE),
    "load_sectors_per_request": _Field(None, _STATE),
    "store_sectors_per_request": _Field(None, _STATE),
    "achieved_occupancy_pct": _Field(None, _STATE),
    "theoretical_occupancy_pct": _Field(None, _STATE),
    "registers": _Field(None, _STATE),
    "shared_bytes": _Field(None, _STATE),
    "waves_per_sm": _Field(None, _STATE),
    "sm_clock_hz": _Field(None, _STATE),
}
"""Quantity -> which way is better, and its weight. More use of a unit, or more occupancy, is better only where it
goes with a shorter time, so these have no way of their own; nor has the clock, which the kernel doesn't choose."""
WORDS: Final = ("mma", "occupancy_limiter", "grid", "block")
"""What is compared as text."""
HARMLESS: Final = frozenset({"not_selected"})
"""Stalls that are no loss: other warps issued meanwhile."""


class _Ranked(NamedTuple):
    score: float
    change: Change


def compare(before: LaunchProfile, after: LaunchProfile) -> list[Change]:
    """What differs between two launches, the duration first; what either lacks is left out."""
    found = [*_numbers(before, after), *_words(before, after), *_stalls(before, after)]
    found.sort(key=lambda ranked: -ranked.score)
    return [ranked.change for ranked in found[:CHANGES_LIMIT]]


def compare_reports(before: Sequence[LaunchProfile], after: Sequence[LaunchProfile]) -> ReportDelta:
    """Launches are matched by kernel name, and then by order."""
    waiting: defaultdict[str, list[int]] = defaultdict(list)
    for index, profile in enumerate(after):
        waiting[profile.kernel].append(index)
    launches: list[LaunchDelta] = []
    only_before: list[str] = []
    for index, profile in enumerate(before):
        if not waiting[profile.kernel]:
            only_before.append(profile.kernel)
            continue
        other = waiting[profile.kernel].pop(0)
        changes = compare(profile, after[other])
        launches.append(LaunchDelta(kernel=profile.kernel, before=index, after=other, changes=changes))
    left = sorted(index for indices in waiting.values() for index in indices)
    return ReportDelta(launches=launches, only_before=only_before, only_after=[after[index].kernel for index in left])


def _numbers(before: LaunchProfile, after: LaunchProfile) -> Iterator[_Ranked]:
    for name, field in FIELDS.items():
        old, new = getattr(before, name), getattr(after, name)
        if old is None or new is None or old == new:
            continue
        relative = (new - old) / old if old else None
        # What was zero has grown beyond all measure.
        size = 1.0 if relative is None else abs(relative)
        if size < TRIVIAL or (name.endswith("_pct") and abs(new - old) < TRIVIAL_POINTS):
            continue
        good = None if field.better is None else (new < old) == (field.better == "lower")
        # Growth without bound would crowd everything else out.
        score = field.weight * min(size, 1.0)
        yield _Ranked(score, Change(field=name, before=old, after=new, relative=relative, good=good))


def _words(before: LaunchProfile, after: LaunchProfile) -> Iterator[_Ranked]:
    for name in WORDS:
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and new is not None and old != new:
            change = Change(field=name, before=_shown(old), after=_shown(new), relative=None, good=None)
            yield _Ranked(_CAUSE, change)


def _stalls(before: LaunchProfile, after: LaunchProfile) -> Iterator[_Ranked]:
    """By what they take of the time between two instructions; counted and sampled shares don't compare."""
    if before.stalls_from is None or before.stalls_from != after.stalls_from:
        return
    unit = "cycles" if before.stalls_from == "counted" else "pct"
    old, new = ({stall.reason: stall for stall in profile.stalls} for profile in (before, after))
    whole = max((_whole(stall) for stall in (*before.stalls, *after.stalls)), default=0.0)
    for reason in {**old, **new}:
        was, now = _waited(old.get(reason)), _waited(new.get(reason))
        moved = (now or 0.0) - (was or 0.0)
        if not whole or abs(moved) / whole < TRIVIAL:
            continue
        change = Change(
            field=f"stalls.{reason}_{unit}",
            before=was,
            after=now,
            relative=None if not was or now is None else moved / was,
            good=None if reason in HARMLESS else moved < 0,
        )
        yield _Ranked(_CAUSE * min(abs(moved) / whole, 1.0), change)


def _waited(stall: Stall | None) -> float | None:
    if stall is None:
        return None
    return stall.pct if stall.cycles is None else stall.cycles


def _whole(stall: Stall) -> float:
    """The time between two instructions, in the unit of the stall."""
    return 100.0 if stall.cycles is None else 100.0 * stall.cycles / stall.pct


def _shown(value: str | tuple[int, int, int]) -> str:
    return value if isinstance(value, str) else " x ".join(str(extent) for extent in value)
