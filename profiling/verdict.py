"""What is wrong with the results of one call: judgements from facts, in words that say where to look.

Nothing here runs anything. Facts about values come from the task's worker, which never ran candidate code; facts about
the call come from the kernel's worker.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from ..sandbox.errors import Stopped
from ..sandbox.facts import (
    BrokenMargin,
    CallFacts,
    Cluster,
    Difference,
    OutputAccuracy,
    OutputComparison,
    Verification,
)
from ..sandbox.outcome import Kind, Problem

Check = Literal[
    "form", "values", "accuracy", "inputs_changed", "out_of_bounds", "aliased", "reused_memory", "nondeterministic"
]
"""What found a result wrong."""

DECOY_PCT: Final = 90.0
"""Share of the device's time outside the entry's Triton kernels from which these are taken for a decoy."""
DECOY_US: Final = 50.0
"""Work outside them that takes less than this is not held against an entry whose kernels were given its results: next
to a small kernel a check of its arguments takes most of the time."""
NEAR: Final = 16.0
"""Tolerances by which the worst element may be off and still look like rounding."""
_NEAR: Final = (
    "Rounding, as even the worst element is close: a sum in another order, an intermediate of 16 bits, cancellation "
    "as in E[x^2] - E[x]^2; or a small term that is missing.",
    "Keep intermediates in float32 and do the operations as the reference does. Where the kernel is as accurate as its "
    "arithmetic allows, the task's author gives reduction(**case), the length of the sum, or TOLERANCE.",
)
_OFF_BY_ONE: Final = (
    "Integers that are off by one: rounding to the nearest done otherwise (ties to even, a reciprocal in place of a "
    "division), indices of elements that are equal, or a count or an index that misses one.",
    "Divide and round as the reference does. Where one off is right too, the task's author gives TOLERANCE = "
    "{'int8': {'atol': 1}}, or inputs without ties.",
)
RECORDED_CHARACTERS: Final = 200
"""Of a name, in what a worker tells of the device's work."""
NAMES_SHOWN: Final = 5
MARGINS_SHOWN: Final = 3


class Fault(NamedTuple):
    """One thing that is wrong."""

    check: Check
    message: str
    cause: str
    fix: str


def value_faults(found: Verification) -> list[Fault]:
    """What the comparison with the expected outputs says, the most telling first."""
    faults: list[Fault] = []
    worst = worst_output(found.outputs)
    if worst is not None and worst.mismatch is not None:
        form = "Return what the reference returns: number of outputs, shape, dtype, device and, where asked, strides."
        faults.append(Fault("form", worst.mismatch, "The output's form differs from the reference's.", form))
    elif worst is not None and worst.wrong_elements:
        faults.append(_wrong_values(worst, found.accuracy))
    if found.broken:
        faults.append(_out_of_bounds(found.broken, ()))
    if found.changed:
        faults.append(_changed(found.changed))
    imprecise = [one for one in found.accuracy if one.error > one.allowed]
    if imprecise and not faults:
        faults.append(_imprecise(max(imprecise, key=lambda one: one.error / max(one.allowed, 1e-300))))
    return faults


def call_faults(facts: CallFacts, before: CallFacts | None, aliased: Sequence[bool], in_place: bool) -> list[Fault]:
    """What the places of the outputs say.

    Args:
        facts: of the call.
        before: of the call before, whose outputs still live.
        aliased: per output tensor, whether the reference's shares memory with an input.
        in_place: the outputs are arguments.
    """
    if in_place:
        return []
    faults: list[Fault] = []
    inputs = _Occupied(facts.inputs_at)
    for number, place in enumerate(facts.outputs_at):
        allowed = number < len(aliased) and aliased[number]
        if not allowed and inputs.overlaps(place):
            fix = "Allocate the output in the entry (torch.empty_like), or name the argument in the task's IN_PLACE."
            message = f"output {number} shares memory with an input, and the reference's does not"
            faults.append(Fault("aliased", message, "An input, or a view of one, is returned.", fix))
            break
    if before is not None:
        earlier = _Occupied(before.outputs_at)
        for number, place in enumerate(facts.outputs_at):
            # A view of an input lies where the input lies, which may be where it was before.
            allowed = number < len(aliased) and aliased[number]
            if not allowed and earlier.overlaps(place):
                message = f"output {number} lies in the memory of an output that an earlier call returned"
                cause = "The entry keeps a buffer between calls and returns it again, which overwrites earlier results."
                faults.append(Fault("reused_memory", message, cause, "Allocate the outputs anew in every call."))
                break
    return faults


def aliased_of(facts: CallFacts) -> list[bool]:
    """Per output tensor of a call, whether it shares memory with an input."""
    inputs = _Occupied(facts.inputs_at)
    return [inputs.overlaps(place) for place in facts.outputs_at]


def named(fault: Fault, broken: Sequence[BrokenMargin], labels: Sequence[str]) -> Fault:
    """The same with the names of the tensors, which only the kernel's worker knows."""
    return _out_of_bounds(broken, labels) if fault.check == "out_of_bounds" else fault


def repeat_fault(differing: Sequence[Difference]) -> Fault | None:
    """What a second call on the same inputs says."""
    if not differing:
        return None
    worst = max(differing, key=lambda one: (one.mismatch is not None, one.elements))
    what = worst.mismatch or f"{worst.where}, {worst.elements:,} elements"
    size = f", by at most {worst.max_abs_difference:.3g}" if worst.max_abs_difference is not None else ""
    return Fault(
        "nondeterministic",
        f"two calls on the same inputs differ: {what}{size}",
        "A race between programs, floating-point atomics in changing order, or memory read before it was written.",
        "Let each output element be written by one program in a fixed order. Where order does not matter on purpose, "
        "the task says NONDETERMINISTIC = True.",
    )


def worst_output(outputs: Sequence[OutputComparison]) -> OutputComparison | None:
    """The output that is furthest from right."""
    return max(outputs, key=lambda one: (one.mismatch is not None, one.wrong_elements, one.max_abs_error), default=None)


class Outside(NamedTuple):
    """What a call did beside its own Triton kernels."""

    pct: float | None
    """Share of the device's time; None where it was not recorded."""
    us: float
    names: list[str]
    """Other kernels and copies, longest first; without a recording: torch operations that computed something."""
    gave_results: bool
    """A launch of the entry's own was given the memory of one of its results."""


def outside(facts: CallFacts) -> Outside:
    """How much of a call's work was not done by the kernel file's Triton kernels."""
    if facts.activities is None:
        untouched = [number for number, touched in enumerate(facts.touched) if not touched]
        made = [f"output {number}, which no launch was given" for number in untouched]
        names = sorted(facts.operations, key=lambda name: -facts.operations[name])
        return Outside(None, 0.0, [*made, *names][:NAMES_SHOWN], any(facts.touched))
    own = _own_symbols(facts)
    others = sorted((work for work in facts.activities if work.name not in own), key=lambda work: -work.us)
    total = sum(work.us for work in facts.activities)
    us = sum(work.us for work in others)
    names = [work.name for work in others[:NAMES_SHOWN]]
    return Outside(100 * us / total if total > 0 else None, us, names, any(facts.touched))


def is_decoy(beside: Outside) -> bool:
    """Whether an entry's Triton kernels only stand beside the work."""
    return beside.pct is not None and beside.pct >= DECOY_PCT and (beside.us >= DECOY_US or not beside.gave_results)


def require_no_decoy(beside: Outside) -> None:
    """
    Raises:
        Stopped: ``cheating``: something else than the kernel file's Triton kernels does the work.
    """
    if not is_decoy(beside):
        return
    raise Stopped(
        Kind.CHEATING,
        Problem(
            stage="run",
            message=f"{beside.pct:.1f} % of the device's time goes to other work than the kernel file's Triton "
            f"kernels: {', '.join(beside.names)}",
            likely_cause="A library does the work and a Triton kernel stands beside it.",
            likely_fix="Do the work in the Triton kernels.",
        ),
    )


def missing_kernel(facts: CallFacts) -> str | None:
    """Why a call is no call of a Triton kernel; None where it is, or where only a recording could tell.

    A CUDA graph that was captured earlier launches nothing by itself; its kernels stand in the device's records.
    """
    launched = [launch for launch in facts.launched if launch.own]
    if facts.activities is not None:
        own, seen = _own_symbols(facts), {work.name for work in facts.activities}
        if own & seen:
            return None
        if own:
            names = ", ".join(sorted(own)[:NAMES_SHOWN])
            return f"none of the entry's kernels ({names}) ran on the device, as its activity records show"
    elif launched or (facts.on_gpu and facts.own_symbols):
        return None
    if facts.launched:
        names = ", ".join(launch.kernel for launch in facts.launched[:NAMES_SHOWN])
        return f"the entry launched only kernels of installed packages ({names}): it must launch one of its own file"
    return "the entry launched no Triton kernel: it must launch at least one, kernel[grid](...)"


def _own_symbols(facts: CallFacts) -> set[str]:
    """As they stand in the device's records, where long names are cut."""
    own = {launch.symbol for launch in facts.launched if launch.own} | set(facts.own_symbols)
    return {symbol[:RECORDED_CHARACTERS] for symbol in own}


class _Occupied:
    """Stretches of memory, asked in logarithmic time: a hostile worker may name thousands, of outputs as of inputs."""

    def __init__(self, places: Sequence[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in sorted(place for place in places if place[0] < place[1]):
            if self._stops and start <= self._stops[-1]:
                self._stops[-1] = max(stop, self._stops[-1])
            else:
                self._starts.append(start)
                self._stops.append(stop)

    def overlaps(self, place: tuple[int, int]) -> bool:
        """Whether a byte of ``place`` lies in one of them."""
        first = bisect_right(self._stops, place[0])
        return first < len(self._stops) and max(self._starts[first], place[0]) < min(self._stops[first], place[1])


def _wrong_values(worst: OutputComparison, accuracy: Sequence[OutputAccuracy]) -> Fault:
    share = 100 * worst.wrong_elements / max(worst.elements, 1)
    odd = f", {worst.not_finite_mismatches} of them NaN or Inf on one side" if worst.not_finite_mismatches else ""
    place = where_wrong(worst.clusters)
    cause = "A mask, an offset, a missing accumulation, or a lower precision than the task asks for."
    fix = f"Work out by hand what the program that writes {worst.where}{worst.worst_index} reads."
    if worst.dtype in ("int32", "int64"):
        cause += " Or they are indices of equal elements, which may come in any order."
        fix += " For indices the task needs inputs without ties, such as a random permutation."
    as_whole = ""
    integral = (worst.dtype or "").lstrip("u").startswith("int")
    if _is_near(worst, integral=integral):
        cause, fix = _OFF_BY_ONE if integral else _NEAR
        good = [one for one in accuracy if one.where == worst.where and one.error <= one.allowed]
        if good and not integral:
            as_whole = (
                f"; as a whole it is accurate enough (error against float64 {good[0].error:.3g}, the reference's "
                f"{good[0].reference_error:.3g})"
            )
    return Fault(
        "values",
        f"{worst.where}: {worst.wrong_elements:,} of {worst.elements:,} elements wrong ({share:.3g} %){odd}; the "
        f"worst at {worst.worst_index}: expected {worst.worst_expected}, got {worst.worst_got} "
        f"(allowed {worst.atol:.3g} + {worst.rtol:g} * |expected|){f'; {place}' if place else ''}{as_whole}",
        cause,
        fix,
    )


def _is_near(worst: OutputComparison, *, integral: bool) -> bool:
    """Whether even the worst element is off by no more than rounding may do, not by what a wrong element would be."""
    expected, got = worst.worst_expected, worst.worst_got
    if worst.not_finite_mismatches or isinstance(expected, str) or isinstance(got, str):
        return False
    if expected is None or got is None or worst.dtype == "bool":
        return False
    # Where atol is large beside the outputs, zeros would be within a few of it.
    near = 1.0 if integral else min(NEAR * (worst.atol + worst.rtol * abs(expected)), abs(expected) / 4)
    return abs(got - expected) <= near


def where_wrong(clusters: Sequence[Cluster]) -> str:
    """Where wrong elements cluster, dimension by dimension; empty where they are everywhere."""
    parts = [part for part in map(_along, clusters) if part]
    return f"they lie in {', '.join(parts)}" if parts else ""


def _along(cluster: Cluster) -> str:
    if cluster.wrong == cluster.size:
        return ""
    name = f"dimension {cluster.dim}"
    if cluster.wrong == 1:
        return f"{name} only at {cluster.first} of 0..{cluster.size - 1}{_edge(cluster)}"
    if cluster.step is not None:
        return f"{name} at steps of {cluster.step} from {cluster.first} to {cluster.last}"
    if cluster.wrong == cluster.last - cluster.first + 1:
        return f"{name} only at {cluster.first}..{cluster.last} of 0..{cluster.size - 1}{_edge(cluster)}"
    return f"{name} at {cluster.wrong:,} of {cluster.size:,} places from {cluster.first} to {cluster.last}"


def _edge(cluster: Cluster) -> str:
    """A last tile that is not full begins at a multiple of a power of two and goes to the end.

    What begins in the first half is more than an edge: a first row is often right by itself (softmax of one element).
    """
    if cluster.last != cluster.size - 1 or cluster.first < cluster.size // 2:
        return ""
    tile = cluster.first & -cluster.first
    if tile >= 8 and cluster.size % tile:
        return f" (the last tile of {tile}, which is not full: look at its mask)"
    return " (the end: look at the mask and the grid)"


def _out_of_bounds(broken: Sequence[BrokenMargin], labels: Sequence[str]) -> Fault:
    parts = [
        f"{one.bytes:,} bytes {one.side} {labels[one.index] if one.index < len(labels) else f'tensor {one.index}'}, "
        f"the nearest {'right beside it' if one.distance == 0 else f'{one.distance:,} bytes away'}"
        for one in broken[:MARGINS_SHOWN]
    ]
    more = f" and {len(broken) - MARGINS_SHOWN} more" if len(broken) > MARGINS_SHOWN else ""
    return Fault(
        "out_of_bounds",
        f"stores outside of tensors: {'; '.join(parts)}{more}",
        "A store without a mask, or one whose mask uses the wrong bound.",
        "Mask every store with the tensor's true extent in each dimension.",
    )


def _changed(changed: Sequence[Difference]) -> Fault:
    parts = [one.mismatch or f"{one.where} ({one.elements:,} elements)" for one in changed[:MARGINS_SHOWN]]
    return Fault(
        "inputs_changed",
        f"the call changed its inputs: {', '.join(parts)}",
        "A store goes to an input's pointer.",
        "Write to new tensors only. Where an argument is meant to be changed, the task names it in IN_PLACE.",
    )


def _imprecise(worst: OutputAccuracy) -> Fault:
    return Fault(
        "accuracy",
        f"{worst.where} is less accurate than its type allows: its error against float64 is {worst.error:.3g} (root "
        f"mean square, relative), the reference's {worst.reference_error:.3g}, allowed {worst.allowed:.3g} "
        f"({worst.factor:g} times)",
        "Part of the work is done in a lower precision: tl.dot on fp32 uses TF32 by default, an accumulator or an "
        "intermediate is 16 bits wide.",
        'Accumulate in float32 and pass input_precision="ieee" to tl.dot on fp32. Where less is enough, the task says '
        "so with ERROR_FACTOR.",
    )
