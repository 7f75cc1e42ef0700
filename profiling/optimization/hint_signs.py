"""What an edit did to a launch: signs, each told from the facts of two compiles or from two profiles.

To add a sign of the compiled code, declare a `Sign` in `COMPILED`; one of a profile, a `Counter` in
`hint_counters.COUNTERS`. A sign has two sides: what got worse comes with advice, what got better is to be kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..compiler.launch import LaunchFacts
from . import hint_advice as advice
from .hint_advice import Advice
from .hint_context import Pair, blocks, counted, kib, share

WEAK: Final = frozenset({"occupancy", "achieved_occupancy_pct", "barriers"})
"""Signs that say little of time by themselves: they matter where it did not get faster."""
TAIL_POINTS: Final = 5.0
"""Of the launch's time: what the last wave may lose more before it is told."""
_MMA: Final = {"none": 0, "mma": 1, "mfma": 1, "wgmma": 2, "tcgen05": 2}


class Move(NamedTuple):
    """A fact that moved."""

    better: bool
    values: dict[str, str]
    """For the sign's texts."""


class Mark(NamedTuple):
    """A sign that was found."""

    id: str
    weight: int
    better: bool
    clause: str
    because: tuple[str, ...]
    """The numbers before and after."""
    advice: Advice | None
    """What to do about what got worse."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One fact of compiled code that an edit may move."""

    id: str
    weight: int
    """Order among signs: what costs most first."""
    look: Callable[[LaunchFacts, LaunchFacts], Move | None]
    worse: str
    """A clause, filled with the move's values."""
    better: str
    because: tuple[str, ...]
    advise: Callable[[LaunchFacts, LaunchFacts], Advice]
    symptom_of: frozenset[str] = frozenset()
    """Findings that advice for other signs belongs to: where one of them got worse, this one vanishes with it."""


def compiled_marks(pairs: Sequence[Pair]) -> list[Mark]:
    """Signs of the compiled code, each from the first launch that shows it; the weightiest first, roots only."""
    found: list[Mark] = []
    several = len({(pair.case, pair.after.kernel) for pair in pairs}) > 1
    for sign in COMPILED:
        for pair in pairs:
            move = None if pair.same else sign.look(pair.before, pair.after)
            if move is None:
                continue
            place = (f"case {pair.case}, kernel {pair.after.kernel}",) if several else ()
            because = tuple(each.format_map(move.values) for each in sign.because) + place
            clause = (sign.better if move.better else sign.worse).format_map(move.values)
            todo = None if move.better else sign.advise(pair.before, pair.after)
            found.append(Mark(sign.id, sign.weight, move.better, clause, because, todo))
            break
    symptoms = {sign.id: sign.symptom_of for sign in COMPILED}
    roots = {mark.id: mark.advice.finding for mark in found if mark.advice is not None}
    kept = [
        mark
        for mark in found
        if mark.better or not any(finding in symptoms[mark.id] for id, finding in roots.items() if id != mark.id)
    ]
    return sorted(kept, key=lambda mark: -mark.weight)


def _spills(before: LaunchFacts, after: LaunchFacts) -> Move | None:
    was, now = before.spill_bytes, after.spill_bytes
    if was is None or now is None or was == now:
        return None
    known = before.registers is not None and after.registers is not None
    registers = f", registers {before.registers} -> {after.registers}" if known else ""
    change = f"spills rose to {now} bytes a thread" if was else f"registers spill, {now} bytes a thread"
    return Move(
        now < was,
        {
            "was": str(was), "now": str(now), "registers": registers, "change": change,
            "less": "spills are gone" if now == 0 else f"spills fell to {now} bytes a thread",
        },
    )  # fmt: skip


def _occupancy(before: LaunchFacts, after: LaunchFacts) -> Move | None:
    was, now = before.theoretical_occupancy_pct, after.theoretical_occupancy_pct
    held, holds = before.blocks_per_sm, after.blocks_per_sm
    if was is None or now is None or held is None or holds is None or abs(was - now) < 1:
        return None
    if before.registers is None or after.registers is None:
        return None
    better = now > was
    if not better and _MMA[after.mma] > max(_MMA[before.mma], 1):
        return None  # warp-group products want one or two large blocks on an SM
    fewer = held - holds
    # Fewer blocks of more warps are no loss by themselves.
    alike = before.num_warps == after.num_warps and fewer > 0
    lost = f"cost {counted(fewer, 'block')} per SM" if alike else f"leave {share(now)} of an SM's warps"
    limiter = before.occupancy_limiter if better else after.occupancy_limiter
    rose = after.registers > before.registers
    resource = {
        "registers": f"registers {'rose to' if rose else 'are at'} {after.registers}",
        "shared_memory": f"shared memory rose to {kib(after.shared_bytes)}"
        if after.shared_bytes > before.shared_bytes
        else f"{kib(after.shared_bytes)} of shared memory a block",
        "warps": f"{after.num_warps} warps a block",
        "blocks": f"blocks of {after.num_warps} warps",
    }.get(after.occupancy_limiter or "", "resources of a block")
    return Move(
        better,
        {
            "was": share(was), "now": share(now), "held": str(held), "holds": str(holds), "lost": lost,
            "resource": resource, "limiter": (limiter or "unknown").replace("_", " "),
            "room": f"registers {before.registers} -> {after.registers}, "
            f"shared memory {kib(before.shared_bytes)} -> {kib(after.shared_bytes)}",
        },
    )  # fmt: skip


def _mma(before: LaunchFacts, after: LaunchFacts) -> Move | None:
    if before.mma == after.mma or not before.dots or not after.dots:
        return None
    was, now = _MMA[before.mma], _MMA[after.mma]
    return None if was == now else Move(now > was, {"was": before.mma, "now": after.mma})


def _width(kind: str) -> Callable[[LaunchFacts, LaunchFacts], Move | None]:
    def look(before: LaunchFacts, after: LaunchFacts) -> Move | None:
        old, new = (getattr(facts, f"{kind}_widths_bytes") for facts in (before, after))
        if not old or not new or max(old) == max(new):
            return None
        return Move(max(new) > max(old), {"was": str(max(old)), "now": str(max(new))})

    return look


def _pipeline(before: LaunchFacts, after: LaunchFacts) -> Move | None:
    was, now = before.pipeline_buffers, after.pipeline_buffers
    # Without a loop there is nothing to be pipelined.
    if bool(was) == bool(now) or not (now or after.loops):
        return None
    stages = f"num_stages {before.num_stages} -> {after.num_stages}"
    return Move(bool(now), {"was": str(was), "now": str(now), "stages": stages})


def _falls(field: str) -> Callable[[LaunchFacts, LaunchFacts], Move | None]:
    """A count of which fewer are better."""

    def look(before: LaunchFacts, after: LaunchFacts) -> Move | None:
        was, now = getattr(before, field), getattr(after, field)
        if was is None or now is None or was == now:
            return None
        return Move(now < was, {"was": str(was), "now": str(now)})

    return look


def _barriers(before: LaunchFacts, after: LaunchFacts) -> Move | None:
    was, now = before.barriers, after.barriers
    # Few of them, and small changes, come with any edit.
    if max(was, now) < 4 or max(was, now) < 2 * min(was, now):
        return None
    return Move(now < was, {"was": str(was), "now": str(now)})


def _grid(before: LaunchFacts, after: LaunchFacts) -> Move | None:
    was, now = _for_each_sm(before), _for_each_sm(after)
    if was is None or now is None or (was >= 1) == (now >= 1):
        return None
    grids = f"blocks {blocks(before)} -> {blocks(after)}"
    return Move(now >= 1, {"was": f"{was:.3g}", "now": f"{now:.3g}", "blocks": grids})


def _for_each_sm(facts: LaunchFacts) -> float | None:
    """Blocks of the grid over SMs."""
    return None if facts.waves is None or facts.blocks_per_sm is None else facts.waves * facts.blocks_per_sm


def _tail(before: LaunchFacts, after: LaunchFacts) -> Move | None:
    was, now = before.tail_lost_pct_at_most, after.tail_lost_pct_at_most
    if was is None or now is None or abs(was - now) < TAIL_POINTS or min(before.waves or 0, after.waves or 0) < 1:
        return None
    waves = f"waves {before.waves:.3g} -> {after.waves:.3g}"
    return Move(now < was, {"was": share(was), "now": share(now), "waves": waves})


COMPILED: Final[tuple[Sign, ...]] = (
    Sign(
        id="spills",
        weight=100,
        look=_spills,
        worse="{change}",
        better="{less}",
        because=("spill_bytes {was} -> {now}{registers}",),
        advise=advice.against_spills,
        symptom_of=frozenset({"V2"}),
    ),
    Sign(
        id="tensor_cores",
        weight=95,
        look=_mma,
        worse="products fell from {was} to {now}",
        better="products became {now}",
        because=("mma {was} -> {now}",),
        advise=advice.for_tensor_cores,
    ),
    Sign(
        id="sync_loads",
        weight=90,
        look=_falls("sync_loads_beside_dots"),
        worse="tile loads that wait beside the dot rose from {was} to {now}",
        better="tile loads that wait beside the dot fell from {was} to {now}",
        because=("sync_loads_beside_dots {was} -> {now}",),
        advise=advice.for_a_pipeline,
        symptom_of=frozenset({"V2"}),
    ),
    Sign(
        id="load_width",
        weight=85,
        look=_width("load"),
        worse="loads narrowed from {was} to {now} bytes a thread",
        better="loads widened from {was} to {now} bytes a thread",
        because=("widest load {was} -> {now} bytes",),
        advise=advice.for_wide_accesses,
    ),
    Sign(
        id="pipeline",
        weight=82,
        look=_pipeline,
        worse="the software pipeline is gone",
        better="the loop is pipelined in {now} buffers",
        because=("pipeline_buffers {was} -> {now}, {stages}",),
        advise=advice.for_a_pipeline,
        symptom_of=frozenset({"V2", "P1", "P3", "P8"}),
    ),
    Sign(
        id="small_grid",
        weight=80,
        look=_grid,
        worse="the grid has only {now} blocks for each SM",
        better="the grid has a block for every SM now",
        because=("blocks for each SM {was} -> {now}, {blocks}",),
        advise=advice.for_a_full_grid,
    ),
    Sign(
        id="occupancy",
        weight=75,
        look=_occupancy,
        worse="{resource} and {lost}",
        better="occupancy rose to {now}",
        because=("blocks per SM {held} -> {holds} ({was} -> {now} of its warps), limit: {limiter}", "{room}"),
        advise=advice.for_room,
    ),
    Sign(
        id="layout_conversions",
        weight=70,
        look=_falls("layout_conversions_in_loops"),
        worse="layout changes in loops rose from {was} to {now}",
        better="layout changes in loops fell from {was} to {now}",
        because=("layout_conversions_in_loops {was} -> {now}",),
        advise=advice.against_conversions,
    ),
    Sign(
        id="store_width",
        weight=60,
        look=_width("store"),
        worse="stores narrowed from {was} to {now} bytes a thread",
        better="stores widened from {was} to {now} bytes a thread",
        because=("widest store {was} -> {now} bytes",),
        advise=advice.for_wide_accesses,
    ),
    Sign(
        id="ordered_atomics",
        weight=58,
        look=_falls("acq_rel_atomics"),
        worse="atomics that order memory rose from {was} to {now}",
        better="atomics that order memory fell from {was} to {now}",
        because=("acq_rel_atomics {was} -> {now}",),
        advise=advice.against_ordered_atomics,
    ),
    Sign(
        id="atomics",
        weight=55,
        look=_falls("atomics"),
        worse="atomics rose from {was} to {now}",
        better="atomics fell from {was} to {now}",
        because=("atomics {was} -> {now}",),
        advise=advice.against_atomics,
    ),
    Sign(
        id="tail",
        weight=50,
        look=_tail,
        worse="the last wave may leave {now} of the time idle",
        better="the last wave's loss fell to at most {now}",
        because=("tail lost at most {was} -> {now}, {waves}",),
        advise=advice.against_a_tail,
    ),
    Sign(
        id="barriers",
        weight=25,
        look=_barriers,
        worse="barriers rose from {was} to {now}",
        better="barriers fell from {was} to {now}",
        because=("barriers {was} -> {now}",),
        advise=advice.against_barriers,
    ),
)  # fmt: skip
