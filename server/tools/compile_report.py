"""What compile_kernel returns: its models, and the same in words."""

from collections.abc import Iterable
from typing import Final

from ...profiling.compiler.compare import LaunchChange, in_words
from ...profiling.compiler.details import Place
from ...profiling.compiler.launch import LaunchFacts
from ...profiling.compiler.observations import Observation
from ...profiling.compiler.remarks import Remark
from ...profiling.compiler.sass import SassKind
from ...profiling.compiler.sass_facts import LiveLine, LocalLine, LoopLine, SassFacts
from ...profiling.hardware.model import Target
from ...sandbox.errors import Stopped
from ...sandbox.facts import CapturedLaunch, line
from ...sandbox.wire import Wire
from ..results import Result

LAUNCHES_SHOWN: Final = 4
EXPLAINED: Final = 3
"""Distinct machine codes that are looked into: each takes about a second of one core."""
PLACES_SHOWN: Final = 6
PLACES_NAMED: Final = 3
"""In the text."""
REMARKS_SHOWN: Final = 5
REMARKS_NAMED: Final = 3
KINDS_NAMED: Final = 5
OBSERVATIONS_SHOWN: Final = 8
CHANGES_SHOWN: Final = 4
MESSAGE_SHOWN: Final = 180
"""Characters of an exception in a note."""
ARGUMENTS_SHOWN: Final = 12
"""Constants, and arguments without known divisibility, that a launch lists."""


class Launch(LaunchFacts):
    """One distinct launch of one case."""

    case: str
    count: int
    """How often the entry made this launch in one call."""
    tuning: bool
    """Made by the autotuner while it tried configurations; without a GPU the first one is kept."""
    line: int | None
    """Line of the kernel function in the kernel file."""
    constexprs: dict[str, str]
    not_divisible_by_16: list[str]
    """Pointer and integer arguments that Triton could not specialize as divisible by 16: the usual cause of narrow
    accesses."""
    access_widths_bytes: list[int]
    """Distinct widths of global loads and stores, widest first."""
    places: list[Place] = []
    """Lines of the kernel file that cost most by the compiler's output, the worst first; all lines are an artifact."""


class LaunchObservation(Observation):
    """An observation and the launch that it is about."""

    kernel: str
    case: str


class ExplainedCode(Wire):
    """One kernel's machine code, and what the compiler said while it made it."""

    kernel: str
    case: str
    """The first one that launches it."""
    code_hash: str
    """Which of the launches it belongs to."""
    sass: SassFacts | None
    absent: str | None
    """Why `sass` is null."""
    remarks: list[Remark]
    """At most 5, what costs most first; more are an artifact."""


class CompileResult(Result):
    """What `compile_kernel` returns."""

    target: str | None = None
    entry: str | None = None
    launches: list[Launch] = []
    launches_omitted: int = 0
    """Further distinct launches that are not listed."""
    observations: list[LaunchObservation] = []
    explained: list[ExplainedCode] = []
    """With explain=true: the first three distinct machine codes, the autotuner's trials and small cases apart."""
    compared_with: str | None = None
    """The other kernel file, where one was given and compiled."""
    changes: list[LaunchChange] = []
    """What differs from it, launch by launch; the autotuner's trials and small cases apart."""
    changes_omitted: int = 0
    """Further launches that were compared and are not listed."""
    notes: list[str] = []
    """What a reader of the launches must know, such as the line at which the file failed after them."""


def launch_of(facts: LaunchFacts, captured: CapturedLaunch, case: str, places: list[Place]) -> Launch:
    """A launch with its arguments."""
    divisible = set(captured.divisible_by_16)
    widths = {*facts.load_widths_bytes, *facts.store_widths_bytes}
    return Launch.model_validate(
        {
            **facts.model_dump(),
            "kernel": captured.kernel,
            "case": case,
            "count": captured.count,
            "tuning": captured.tuning,
            "line": captured.line,
            "constexprs": {
                name: line(str(value)[:80]) for name, value in list(captured.constexprs.items())[:ARGUMENTS_SHOWN]
            },
            "not_divisible_by_16": [
                name
                for name, kind in captured.signature.items()
                if (kind.startswith("*") or kind in {"i32", "i64"}) and name not in divisible
            ][:ARGUMENTS_SHOWN],
            "access_widths_bytes": sorted(widths, reverse=True),
            "places": [place.model_dump() for place in places[:PLACES_SHOWN]],
        }
    )


def distinct(observations: list[LaunchObservation]) -> list[LaunchObservation]:
    """One of each kind a kernel, the first case that shows it; cases mostly repeat one another."""
    seen: dict[tuple[str, str], LaunchObservation] = {}
    for observation in observations:
        seen.setdefault((observation.id, observation.kernel), observation)
    return list(seen.values())[:OBSERVATIONS_SHOWN]


def ended_early(failure: Stopped) -> str:
    """How a file ended after its last launch, as a note."""
    problem = failure.problem
    where = "" if problem.line is None else f" at line {problem.line}"
    return line(
        f"The file ended early{where} ({failure.kind}: {_message(failure)}); these are the launches made until then. "
        "Outputs hold no results here: checks of values fail, and what depends on them is not run."
    )


def unexplained(failure: Stopped) -> str:
    """Why there is no explanation, as a note."""
    return line(f"explain: nothing beyond the launches was found out ({failure.kind}: {_message(failure)}).")


def uncompared(failure: Stopped, name: str) -> str:
    """Why there is nothing to compare with, as a note."""
    where = "" if failure.problem.line is None else f" at line {failure.problem.line}"
    return line(f"compare: {name} could not be compiled{where} ({failure.kind}: {_message(failure)}).")


def comparison(name: str, changes: list[LaunchChange], total: int) -> list[str]:
    """What differs from another file, in a few lines."""
    lines = [f"Compared with {name} (before -> after):"]
    lines += [f"~ {text}" if not text.startswith(" ") else text for change in changes for text in in_words(change)]
    if total > len(changes):
        lines.append(f"~ {total - len(changes)} more, not shown; cases=[...] chooses")
    return lines


def summary(
    goal: Target,
    shown: list[Launch],
    omitted: int,
    observations: list[LaunchObservation],
    explained: Iterable[ExplainedCode],
    unobserved: str | None,
) -> str:
    """The essentials, a few lines a launch."""
    lines = [f"Compiled for {goal.name}: {len(shown) + omitted} distinct launch(es)."]
    for launch in shown:
        lines.append(_launch_line(launch))
        if launch.places:
            named = (f"line {place.line} {place.what} ({place.detail})" for place in launch.places[:PLACES_NAMED])
            lines.append(f"  lines to look at: {'; '.join(named)}")
    if omitted:
        lines.append(f"- {omitted} more, not shown; cases=[...] chooses")
    for code in explained:
        lines += _explanation_lines(code)
    lines += [
        f"! {found.id} {found.title} [{found.case}]: {found.detail} -> {found.suggestion}" for found in observations
    ]
    if not observations:
        lines.append(unobserved or "Nothing that the compiler's output alone shows to be wrong.")
    return "\n".join(lines)


def next_step(observations: list[LaunchObservation], *, unchanged: bool = False) -> str:
    """What to do with the result; `unchanged`: all machine code is that of the file that it was compared with."""
    if unchanged:
        return "The machine code is the same: this edit changed nothing. Try another one before you time it."
    if observations:
        return f"Address {observations[0].id} first, compile again to see that it went, then run_correctness."
    return "Check it with run_correctness, then time it with benchmark."


def _message(failure: Stopped) -> str:
    return " ".join(failure.problem.message.split())[:MESSAGE_SHOWN]


def _launch_line(launch: Launch) -> str:
    occupancy = (
        "unknown occupancy"
        if launch.theoretical_occupancy_pct is None
        else f"occupancy {launch.theoretical_occupancy_pct:.0f} % (limit: {launch.occupancy_limiter})"
    )
    copies = "" if launch.async_copies is None else f"{launch.async_copies} async copies, "
    return (
        f"- {launch.kernel} [{launch.case}] grid {'x'.join(map(str, launch.grid))}, {launch.num_warps} warps, "
        f"{launch.num_stages} stages: {_or_unknown(launch.registers)} registers, "
        f"{_or_unknown(launch.spill_bytes)} B spilled, {launch.shared_bytes:,} B shared, {occupancy}, "
        f"mma {launch.mma}, {copies}loads {_widths(launch.load_widths_bytes)}, "
        f"stores {_widths(launch.store_widths_bytes)}, code {launch.code_hash}"
        + (" (autotuner's trial)" if launch.tuning else "")
    )


def _explanation_lines(code: ExplainedCode) -> list[str]:
    named = f"* {code.kernel} [{code.case}]"
    sass = code.sass
    if sass is None:
        lines = [f"{named} machine code: unknown, {code.absent}"]
    else:
        lines = [f"{named} machine code: {sass.instructions} instructions, {_loops(sass)}"]
        if sass.local_lines:
            lines.append(f"  local memory{_cause(sass)}: {'; '.join(map(_local, sass.local_lines[:PLACES_NAMED]))}")
    if sass is not None and sass.live_lines:
        lines.append(
            f"  live registers: {', '.join(f'{found.live_registers} at {_at(found)}' for found in sass.live_lines)}"
        )
    for remark in code.remarks[:REMARKS_NAMED]:
        where = "" if remark.line is None else f" line {remark.line}"
        lines.append(
            f"  compiler{where}: {remark.id}: {remark.message}" + (f" -> {remark.meaning}" * bool(remark.meaning))
        )
    return lines


def _loops(sass: SassFacts) -> str:
    if not sass.in_loops:
        return f"none in loops ({_mix(sass.mix)})"
    lines = ", ".join(f"{_at(found)} ({found.instructions})" for found in sass.loop_lines[:PLACES_NAMED])
    return f"{sass.in_loops} in loops ({_mix(sass.mix_in_loops)}), most of them: {lines}"


def _mix(mix: dict[SassKind, int]) -> str:
    # Tensor cores are what a reader looks for, however few instructions drive them.
    ranked = sorted(mix.items(), key=lambda item: (item[0] != "tensor", -item[1]))
    return ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in ranked[:KINDS_NAMED])


def _cause(sass: SassFacts) -> str:
    if sass.spills is None:
        return ""
    return " (spilled registers)" if sass.spills else " (no spills: an array's, as sin and cos have)"


def _local(found: LocalLine) -> str:
    return f"{_at(found)} {found.loads} loads, {found.stores} stores" + (" in a loop" if found.in_loop else "")


def _at(found: LoopLine | LocalLine | LiveLine) -> str:
    if found.line is None:
        return f"library {found.library}" if found.library else "an unknown line"
    return f"line {found.line}" + (f" through {found.library}" if found.library else "")


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)


def _widths(widths: list[int]) -> str:
    return "/".join(map(str, widths)) + " B wide" if widths else "none"
