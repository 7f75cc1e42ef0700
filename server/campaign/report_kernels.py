"""The report's parts that name kernels: the table of all, the failures, the winners on unseen shapes."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from .model import KernelRecord
from .report_numbers import counted
from .report_summary import FAILURES, NO_KIND, NO_REASON, TOTAL, Summary, Winner
from .report_text import code, extent, mean, number, prose, section, span, table

KNOB_CHARACTERS: Final = 160
KERNELS: Final = (
    "kernel", "lines", "outcome", "speed-up", "95 % interval", "when accepted", "baseline, us", "speed of light, %",
    "candidates", "chosen", "seconds", "best on the device", "remark",
)  # fmt: skip
KERNELS_SAY: Final = """\
Speed-up: the baseline's time over the winner's, weighted over the cases, as measured once more at the end with fresh
inputs; 1 where the baseline stays. "When accepted" is what the same winner showed when it was chosen. Microseconds and
% of the speed of light are the baseline's; with several cases, the least and the most. "Best on the device": the most
that a candidate, right on the visible cases, gained there, and whether it was accepted; if it was not, the remark says
why."""
FAILURES_SAY: Final = """\
`not_loaded`: no task could be made of the artefact. `baseline_failed`: the original does not run.
`unjudged`: it was timed, but it disagrees with itself or its results prove nothing, so no candidate can be judged.
`failed`: the campaign could not go on, through no fault of the kernel's."""
UNSEEN: Final = "Shapes that were not optimized for"
WINNERS: Final = (
    "winner", "shapes", "right", "faster", "same", "ambiguous", "slower", "right, untimed", "wrong", "ended otherwise",
    "geometric mean", "worst", "worst case",
)  # fmt: skip


def kernels(records: Sequence[KernelRecord]) -> str:
    """Every kernel, the largest speed-up first, those without one last."""
    ordered = sorted(records, key=lambda record: (-(record.speedup or 0.0), record.outcome, record.name))
    return section("Every kernel", KERNELS_SAY, table(KERNELS, [_row(record) for record in ordered]))


def failures(found: Summary, records: Sequence[KernelRecord]) -> str:
    """What failed, by kind and by name, and what was not timed, apart."""
    failed = [record for record in records if record.outcome in FAILURES]
    untimed = [record for record in records if record.outcome == "untimed"]
    failed.sort(key=lambda record: (FAILURES.index(record.outcome), record.failure_kind or NO_KIND, record.name))
    kinds = [(code(each.outcome), code(each.kind), str(each.count)) for each in found.failures]
    named = [
        f"- {code(each.name)}, {code(each.outcome)}, {code(each.failure_kind or NO_KIND)}: {_why(each)}"
        for each in failed
    ]
    return section(
        "Failures",
        *([FAILURES_SAY, table(("outcome", "kind", "artefacts"), kinds), "\n".join(named)] if failed else ["None."]),
        f"Not timed, which is no failure: {len(untimed)}." if untimed else "",
        "\n".join(f"- {code(each.name)}: {_why(each)}" for each in untimed),
    )


def unseen(found: Summary) -> str:
    """The winners on shapes that they were not optimized for."""
    total = found.unseen
    absent = "\n".join(f"- {count} not tried: {prose(why)}" for why, count in total.absent.items())
    if not total.tried:
        why = "There is no winner." if not total.winners else f"None of {total.winners} winners was tried on others."
        return section(UNSEEN, why, absent)
    speed = (
        "none of them was timed there"
        if total.geometric_mean is None
        else f"the geometric mean of the winners' geometric means is {mean(total.geometric_mean)}"
    )
    return section(
        UNSEEN,
        f"Of {total.winners} winners {total.tried} were run on {total.shapes} other shapes, right on {total.right}. "
        f"**{total.keep} of {total.tried} keep at least 1.05** (in the geometric mean there, and right on all), "
        f"{total.regress} are slower than the baseline somewhere, {total.wrong} are wrong somewhere, {total.fail} end "
        f"otherwise somewhere; {speed}.",
        absent,
        table(WINNERS, [_winner(winner) for winner in sorted(found.winners, key=_least_first)]),
    )


def knobs(chosen: Mapping[str, JsonValue] | None) -> str:
    """Values of knobs in one line of text."""
    return ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in (chosen or {}).items()
    )


def _row(record: KernelRecord) -> tuple[str, ...]:
    gain, accepted = counted(record), record.gain if record.outcome == "gained" else None
    times = [case.device_us for case in record.baseline]
    light = [pct for case in record.baseline if (pct := case.speed_of_light_pct) is not None]
    chosen = knobs(record.chosen)
    return (
        code(record.name),
        str(record.lines),
        code(record.outcome if record.failure_kind is None else f"{record.outcome}: {record.failure_kind}"),
        number(record.speedup),
        "" if gain is None else span(gain.ratio_low, gain.ratio_high),
        "" if accepted is None else number(accepted.ratio),
        extent(min(times), max(times), 2) + _cases(times) if times else "",
        extent(min(light), max(light), 0) if light else "",
        str(record.attempts),
        code(chosen, KNOB_CHARACTERS) if chosen else "",
        number(record.seconds.get(TOTAL), 0),
        _on_device(record),
        _remark(record),
    )


def _cases(times: Sequence[float]) -> str:
    return f" ({len(times)} cases)" if len(times) > 1 else ""


def _on_device(record: KernelRecord) -> str:
    if record.device_gain is None:
        return ""
    return f"{number(record.device_gain.ratio)}, {'refused' if record.device_gain_refused else 'accepted'}"


def _remark(record: KernelRecord) -> str:
    """Why something of the row is blank, or differs from what its column says."""
    said = _said(record)
    if record.device_gain is not None and record.device_gain_refused:
        # More than that nothing was gained.
        said = "" if record.outcome == "no_gain" else said
        said = "; ".join(filter(None, [said, f"refused: {prose(record.device_gain_refused)}"]))
    return said


def _said(record: KernelRecord) -> str:
    if record.outcome == "gained":
        if record.verified is None:
            return "gain unknown" if record.gain is None else "not measured once more at the end"
        return "" if record.verified.comparison == "faster" else f"at the end {record.verified.comparison}"
    return "see failures" if record.outcome in FAILURES else _why(record)


def _why(record: KernelRecord) -> str:
    return prose(record.why) if record.why else NO_REASON


def _least_first(winner: Winner) -> tuple[float, str]:
    return (0.0 if winner.geometric_mean is None else winner.geometric_mean, winner.name)


def _winner(winner: Winner) -> tuple[str, ...]:
    return (
        code(winner.name),
        str(winner.shapes),
        str(winner.right),
        str(winner.faster),
        str(winner.same),
        str(winner.ambiguous),
        str(winner.slower),
        str(winner.untimed),
        str(winner.wrong),
        ", ".join(f"{code(kind)} {count}" for kind, count in winner.failed.items()),
        number(winner.geometric_mean),
        number(winner.worst_ratio),
        "" if winner.worst_case is None else code(winner.worst_case),
    )
