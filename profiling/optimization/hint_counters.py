"""What an edit did to a launch as it ran: signs told from two profiles. To add one, declare a `Counter`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..ncu.delta import HARMLESS, Change, compare
from ..ncu.metrics import STALL_REASONS
from ..ncu.waits import STALL_SUGGESTIONS
from .hint_advice import Advice
from .hint_context import Profiles, lowered, share, times
from .hint_signs import Mark

STALL_PCT: Final = 10.0
"""Of the time between two instructions: what a stall has to take, before or after, to be told."""
STALLS_TOLD: Final = 2
_STALL_WEIGHT: Final = 78


@dataclass(frozen=True, slots=True)
class Counter:
    """One quantity of a profile that an edit may move."""

    field: str
    """Of the profile."""
    weight: int
    """Order among signs: what costs most first."""
    name: str
    """As a clause begins."""
    less_is_better: bool
    advice: Advice
    """What to do where it got worse."""
    least: float = 0.1
    """Relative change from which it is told."""


COUNTERS: Final[tuple[Counter, ...]] = (
    Counter("dram_bytes", 88, "DRAM traffic", True, Advice("read and write each element once", None, "M1")),
    Counter("local_requests", 72, "local memory traffic", True, Advice("keep fewer values alive", None, "R1")),
    Counter(
        "load_bytes_per_sector", 68, "bytes used of each loaded sector", False,
        Advice("let neighbouring threads load neighbouring addresses", None, "M4"),
    ),
    Counter(
        "store_bytes_per_sector", 66, "bytes used of each stored sector", False,
        Advice("let neighbouring threads store to neighbouring addresses", None, "M5"),
    ),
    Counter(
        "tensor_pct", 64, "tensor pipe use", False,
        Advice("feed the products: larger tiles, or loads further ahead"),
    ),
    Counter(
        "bank_conflict_pct", 62, "bank conflicts", True,
        Advice("change the order or shape of the tile in shared memory", None, "L2"),
    ),
    Counter(
        "achieved_occupancy_pct", 45, "achieved occupancy", False,
        Advice("check the grid's tail and the blocks per SM"), least=0.15,
    ),
    Counter("sm_imbalance", 42, "the busiest SM's share of work", True, Advice("spread work evenly", None, "G3")),
    Counter(
        "l2_hit_pct", 40, "L2 hits", False,
        Advice("let programs that share tiles run together (grouped order)", None, "G5"), least=0.15,
    ),
)  # fmt: skip
"""More use of memory or of the SM is better only where the time is shorter, so these have no side of their own."""

_STALLS: Final = {
    "long_scoreboard": "stalls on global loads",
    "short_scoreboard": "stalls on shared memory and special functions",
    "barrier": "stalls at barriers",
    "gmma": "stalls on matrix products",
    "mio_throttle": "stalls on the shared-memory queue",
    "lg_throttle": "stalls on the global-memory queue",
    "math_pipe_throttle": "stalls on a busy arithmetic pipe",
    "wait": "stalls of fixed latency",
    "no_instruction": "stalls on instruction fetch",
    "membar": "stalls at memory fences",
    "branch_resolving": "stalls on branches",
    "drain": "stalls on stores at exit",
}


def measured_marks(profiles: Sequence[Profiles]) -> list[Mark]:
    """Signs of the profiles, each from the longest launch that shows it; the weightiest first."""
    found: dict[str, Mark] = {}
    for pair in profiles:
        changes = compare(pair.before, pair.after)
        took = next((_took(change) for change in changes if change.field == "duration_us"), None)
        for mark in (*_counters(changes), *_stalls(pair, changes)):
            because = mark.because if took is None else (*mark.because, took)
            found.setdefault(mark.id, mark._replace(because=because))
    return sorted(found.values(), key=lambda mark: -mark.weight)


def limiting_stall(profiles: Sequence[Profiles]) -> str | None:
    """What warps wait for most, in the longest launch."""
    if not profiles:
        return None
    stalls = [one for one in profiles[0].after.stalls if one.reason not in HARMLESS and one.pct >= STALL_PCT]
    return f"{_words(stalls[0].reason)} take {share(stalls[0].pct)}" if stalls else None


def _counters(changes: Sequence[Change]) -> list[Mark]:
    moved = {change.field: change for change in changes}
    marks: list[Mark] = []
    for counter in COUNTERS:
        change = moved.get(counter.field)
        if change is None or change.relative is None or abs(change.relative) < counter.least:
            continue
        better = (change.relative < 0) == counter.less_is_better
        clause = f"{counter.name} {_by(change.relative)}"
        because = (f"{counter.field} {_value(change, change.before)} -> {_value(change, change.after)}",)
        advice = None if better else counter.advice
        marks.append(Mark(counter.field, counter.weight, better, clause, because, advice))
    return marks


def _stalls(pair: Profiles, changes: Sequence[Change]) -> list[Mark]:
    took = {stall.reason: 0.0 for profile in pair for stall in profile.stalls}
    for stall in (*pair.before.stalls, *pair.after.stalls):
        took[stall.reason] = max(took[stall.reason], stall.pct)
    marks: list[Mark] = []
    for change in changes:
        group, _, rest = change.field.partition(".")
        reason, _, unit = rest.rpartition("_")
        if group != "stalls" or change.good is None or took.get(reason, 0) < STALL_PCT:
            continue
        unit = "cycles an instruction" if unit == "cycles" else "% of the time"
        clause = f"{_words(reason)} {'appeared' if change.relative is None else _by(change.relative)}"
        if change.after is None:
            clause = f"{_words(reason)} are gone"
        because = (f"{reason} {_value(change, change.before)} -> {_value(change, change.after)} {unit}",)
        told = STALL_SUGGESTIONS.get(reason)
        advice = None if change.good else Advice("look at what warps wait for" if told is None else lowered(told))
        weight = _STALL_WEIGHT - len(marks)
        marks.append(Mark(f"stall_{reason}", weight, change.good, clause, because, advice))
    best = [mark for mark in marks if mark.better][:STALLS_TOLD]
    return best + [mark for mark in marks if not mark.better][:STALLS_TOLD]


def _words(reason: str) -> str:
    return _STALLS.get(reason) or f"{reason} stalls ({STALL_REASONS.get(reason, 'unknown')})"


def _by(relative: float) -> str:
    """How much more or less: a share, or times where it is more than double."""
    if relative >= 1:
        return f"rose {1 + relative:.3g} times"
    return f"{'rose' if relative > 0 else 'fell'} {share(100 * abs(relative))}"


def _took(change: Change) -> str:
    return f"kernel {_value(change, change.before)} -> {_value(change, change.after)}"


def _value(change: Change, value: float | str | None) -> str:
    if value is None:
        return "under 1 %"
    if isinstance(value, str):
        return value
    if change.field == "duration_us":
        return times(value)
    if change.field.endswith("_bytes"):
        return f"{value / 1e6:.4g} MB"
    return f"{value:.4g}"
