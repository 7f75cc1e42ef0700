"""What `tune_kernel` tells."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from ...profiling.comparison import Outcome
from ...profiling.tuning.importance import KnobEffect, named
from ...profiling.tuning.knobs import Role, Value
from ...profiling.tuning.prune import counted
from ...profiling.tuning.search import Search
from ...profiling.tuning.space import Knob, Point, Space
from ...sandbox.wire import Wire
from ..results import Result, readable

DIFF_CHARACTERS: Final = 1400
AUTOTUNE_CHARACTERS: Final = 900
KNOBS_SHOWN: Final = 10
CHARACTERS: Final = 5000
"""Of a result's JSON without its summary: about 1,500 tokens."""
EFFECTS_SHOWN: Final = 4
CASES_SHOWN: Final = 8
LEFT_SHOWN: Final = 5
NOTES_SHOWN: Final = 6
PROMISING_SHOWN: Final = 3
LEAST_OUTLOOK: Final = 0.01
"""Of log(time): what a variant must be expected to win beside the file as it is."""
CUT: Final = "Left out for length: "


class KnobValues(Wire):
    """A knob, and what it may be."""

    name: str
    kernel: str
    role: Role
    present: int | bool | None
    """Null where the file computes it; of an autotuner's list, what its first configuration has."""
    values: list[int | bool | None]


class TunedCase(Wire):
    """One case."""

    case: str
    best: dict[str, int | bool | None] | None = None
    """The knobs of the fastest variant of this case; null where nothing is faster than the file as it is."""
    best_ratio: float | None = None
    """Its ratio as the search measured it, in short races: good to about a percent."""
    baseline_us: float | None = None
    """The file as it is, first start to last end on the device, by the final benchmark; where there was none, by the
    races of the search."""
    tuned_us: float | None = None
    """The same for the tuned file, by the final benchmark."""
    ratio: float | None = None
    """Baseline time over the tuned file's, by the final benchmark: above 1 is faster."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    comparison: Outcome | None = None


class TuneResult(Result):
    """What `tune_kernel` returns."""

    device: str | None = None
    """Name of the GPU that it was measured on; null where nothing was measured."""
    target: str | None = None
    knobs: list[KnobValues] = []
    left_alone: dict[str, str] = {}
    """What could be a knob and was not searched, with the reason; name it in `space` to search it."""
    points: int = 0
    """Of the space: the product of the knobs' values."""
    compiled: int = 0
    same_code: int = 0
    """Of the compiled ones: those whose code another has, which need no measurement of their own."""
    pruned: dict[str, int] = {}
    """Variants that were not run, by reason."""
    failed: dict[str, int] = {}
    """Variants that failed when they were run, by kind of outcome; `wrong` ones among them."""
    evaluations: int = 0
    """Variants measured in a case."""
    seconds: float | None = None
    stopped_because: str | None = None
    chosen: dict[str, int | bool | None] | None = None
    """The knobs of the one variant that is best over all cases; null where the file as it is remains the best."""
    ratio: float | None = None
    """Weighted geometric mean over the cases, final benchmark."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    comparison: Outcome | None = None
    cases: list[TunedCase] = []
    effects: list[KnobEffect] = []
    """What mattered and what did not, as far as it was measured."""
    diff: str | None = None
    """From the file as it is to the tuned one."""
    autotune: str | None = None
    """A decorator with the chosen variant and others that are better in single cases."""
    notes: list[str] = []

    def in_words(self) -> str:
        return self.summary if self.autotune is None else f"{self.summary}\nFor autotune:\n{self.autotune}"


def knob_values(space: Space) -> list[KnobValues]:
    """The space in words."""
    return [
        KnobValues(
            name=knob.name,
            kernel=knob.kernel,
            role=knob.role,
            present=knob.shown(knob.present),
            values=[knob.shown(value) for value in knob.values],
        )
        for knob in space.knobs[:KNOBS_SHOWN]
    ]


def searched(search: Search) -> dict[str, object]:
    """Fields that any search has, however it ended."""
    space = search.space
    failures: dict[str, int] = {}
    for kind in search.failures.values():
        failures[kind] = failures.get(kind, 0) + 1
    return {
        "knobs": knob_values(space),
        "left_alone": dict(list(space.left.items())[:LEFT_SHOWN]),
        "points": space.size,
        "compiled": search.compiled_count,
        "same_code": search.same_code(),
        "pruned": counted(list(search.pruned.values())),
        "failed": failures,
        "evaluations": search.evaluations,
    }


def in_words(values: Mapping[str, Value]) -> str:
    """Knobs and values."""
    return ", ".join(f"{name}={named(value)}" for name, value in values.items()) or "nothing"


def outlook(search: Search) -> str:
    """The variants of which the compiler's output lets one expect most, in a line; empty where none looks better."""
    lost: dict[Point, float] = {}
    for case, points in search.candidates().items():
        for point in points:
            parts = search.order.parts.get((case, point), ())
            lost[point] = lost.get(point, 0.0) + search.shares[case] * sum(parts)
    # The file as it is loses nothing to itself.
    better = [point for point, loss in sorted(lost.items(), key=lambda one: one[1]) if loss < -LEAST_OUTLOOK]
    if not better:
        return ""
    return (
        "\nLooks promising, not measured: "
        + "; ".join(in_words(search.space.named(point)) for point in better[:PROMISING_SHOWN])
        + "."
    )


def space_in_words(space: Space) -> str:
    """One line a knob."""
    return "\n".join(f"  {_knob(knob)}" for knob in space.knobs[:KNOBS_SHOWN])


def _knob(knob: Knob) -> str:
    values = ", ".join(named(knob.shown(value)) for value in knob.values)
    return f"{knob.name} ({knob.role}, now {named(knob.shown(knob.present))}): {values}"


def bounded(result: TuneResult) -> TuneResult:
    """The same within `CHARACTERS`: what can be read elsewhere goes first, and a note says what went."""
    steps: list[tuple[str, dict[str, object]]] = [
        ("the knobs' values", {"knobs": []}),
        ("knobs that made little difference", {"effects": result.effects[:EFFECTS_SHOWN]}),
        ("most of the diff (the tuned file is an artifact)", {"diff": result.diff and cut(result.diff, 400)}),
        ("reasons why numbers were left alone", {"left_alone": {}}),
        ("cases after the third", {"cases": result.cases[:3]}),
        ("most of the decorator", {"autotune": result.autotune and cut(result.autotune, 400)}),
    ]
    gone: list[str] = []
    for what, update in steps:
        if len(result.model_dump_json(exclude={"summary"})) <= CHARACTERS:
            break
        gone.append(what)
        notes = [note for note in result.notes if not note.startswith(CUT)]
        result = result.model_copy(update={**update, "notes": [*notes, f"{CUT}{', '.join(gone)}."]})
    return result


def summary(result: TuneResult) -> str:
    """The essentials."""
    lines: list[str] = []
    if result.chosen is None:
        lines.append("Nothing faster than the file as it is was found.")
    else:
        lines.append(f"Best over all cases: {in_words(result.chosen)}.")
        if result.ratio is not None:
            interval = f"{result.ratio_low:.3f} to {result.ratio_high:.3f}"
            lines.append(f"Score {result.ratio:.3f} (95 %: {interval}), {result.comparison}, by the final benchmark.")
    for case in result.cases:
        lines.append(f"  {_case(case)}")
    ruled_out = sum(result.pruned.values())
    lines.append(
        f"{result.evaluations} evaluations of {result.points} points ({result.compiled} compiled, {result.same_code} "
        f"of them to the same code as others, {ruled_out} ruled out unrun{_reasons(result.pruned)}); stopped: "
        f"{result.stopped_because}. Compiled for {result.target}, timed on {result.device}."
    )
    mattered = [_effect(effect) for effect in result.effects if effect.matters]
    idle = [effect.knob for effect in result.effects if effect.matters is False]
    if mattered:
        lines.append(f"Mattered: {'; '.join(mattered[:4])}.")
    if idle:
        lines.append(f"Made no difference above 1 %: {', '.join(idle)}.")
    if result.left_alone:
        left = "; ".join(f"{name} ({why})" for name, why in result.left_alone.items())
        lines.append(f"Left alone: {left}.")
    lines += result.notes
    return "\n".join(lines)


def _case(case: TunedCase) -> str:
    parts = [f"{case.case}:"]
    if case.ratio is None and case.baseline_us is not None:
        parts.append(f"{case.baseline_us:.2f} us as it is;")
    if case.baseline_us is not None and case.tuned_us is not None and case.ratio is not None:
        parts.append(
            f"{case.baseline_us:.2f} -> {case.tuned_us:.2f} us, ratio {case.ratio:.3f} "
            f"[{case.ratio_low:.3f}, {case.ratio_high:.3f}] {case.comparison};"
        )
    if case.best is None:
        parts.append("the file as it is is best")
    else:
        parts.append(f"best {in_words(case.best)} (about {case.best_ratio:.2f}x)")
    return " ".join(parts)


def _reasons(pruned: Mapping[str, int]) -> str:
    return ": " + ", ".join(f"{count} {reason}" for reason, count in pruned.items()) if pruned else ""


def _effect(effect: KnobEffect) -> str:
    losses = [f"{value} +{loss:.0f} %" for value, loss in effect.lost_pct.items() if loss >= 0.5]
    return f"{effect.knob}={named(effect.best)} (other values: {', '.join(losses[:4])} time)"


def cut(text: str, limit: int) -> str:
    """A text in bounds; the whole is an artifact."""
    return readable(text, limit)


def winners(search: Search, chosen: Point | None) -> list[Point]:
    """Variants that are better than the chosen one in single cases, by more than a percent."""
    found: list[Point] = []
    for case in search.shares:
        best = search.champion(case)
        mine = 0.0 if chosen is None else search.value(case, chosen) or 0.0
        if best.value > 0 and best.value - mine > math.log(1.01) and best.point != chosen:
            found.append(best.point)
    return list(dict.fromkeys(found))


def tuned_cases(search: Search, names: Sequence[str]) -> list[TunedCase]:
    """What the search alone says of the cases."""
    found: list[TunedCase] = []
    for case in names[:CASES_SHOWN]:
        best = search.champion(case)
        faster = best.value > search.error(case, best.point)
        found.append(
            TunedCase(
                case=case,
                best=search.space.named(best.point) if faster else None,
                best_ratio=round(math.exp(best.value), 4) if faster else None,
            )
        )
    return found
