"""What the tools return, as runs keep it."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from pydantic import ValidationError

from ...profiling.correctness import CaseResult
from ...profiling.optimization.model import CaseTime, CaseTiming, Diagnosed, FindingNote, Timing
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind, Problem
from ...sandbox.task import Task
from ..results import Result, ended
from ..tools.benchmark_report import BenchmarkResult, CaseTimes
from ..tools.diagnose_case import Ladder
from ..tools.run_correctness import CorrectnessResult

NOTES_KEPT: Final = 12


@contextmanager
def typed() -> Generator[None]:
    """What is not of the expected form is some worker's doing.

    Raises:
        Stopped: ``cheating``, where a worker's reply is malformed.
    """
    try:
        yield
    except ValidationError as error:
        message = f"a worker's reply is malformed: {error.error_count()} errors"
        raise Stopped(Kind.CHEATING, Problem(stage="worker", message=message)) from error


def bounded(problem: Problem) -> Problem:
    """A problem as a result would have it: printable, and no longer than a reader needs."""
    kept = ended(Result, Kind.REJECTED, problem).problem
    assert kept is not None
    return kept


def wrong(result: CorrectnessResult) -> Problem:
    """Why results are wrong: in which case, and where its worst element is."""
    problem = result.problem
    assert problem is not None
    worst = next((case for case in result.cases if case.kind is Kind.WRONG), None)
    if worst is None:
        return bounded(problem)
    message = f"case {worst.case}, on {worst.inputs} inputs: {problem.message}"
    return bounded(problem.model_copy(update={"message": f"{message}{_place(worst)}"}))


def _place(worst: CaseResult) -> str:
    if worst.worst_index is None or worst.message is None or str(worst.worst_index) in worst.message:
        return ""
    return f"; worst at {worst.worst_index}: expected {worst.worst_expected}, got {worst.worst_got}"


def case_time(times: CaseTimes, spec: Task) -> CaseTime:
    """A case by itself."""
    return CaseTime(
        case=times.case,
        weight=spec.cases[times.case].weight,
        device_us=times.device_us,
        call_us=times.call_us,
        speed_of_light_pct=times.speed_of_light_pct,
        headroom=times.headroom,
        first_call_s=times.first_call_s,
    )


def timing(result: BenchmarkResult, spec: Task, against: int) -> Timing:
    """A comparison with another attempt."""
    score = result.score
    assert score is not None, "the benchmark had a baseline"
    return Timing(
        against=against,
        ratio=score.ratio,
        ratio_low=score.ratio_low,
        ratio_high=score.ratio_high,
        comparison=score.comparison,
        cases=[_case_timing(times, spec) for times in result.cases],
    )


def _case_timing(times: CaseTimes, spec: Task) -> CaseTiming:
    assert times.ratio is not None
    assert times.ratio_low is not None
    assert times.ratio_high is not None
    assert times.comparison is not None
    assert times.baseline_device_us is not None
    return CaseTiming(
        case=times.case,
        weight=spec.cases[times.case].weight,
        device_us=times.device_us,
        call_us=times.call_us,
        other_device_us=times.baseline_device_us,
        ratio=times.ratio,
        ratio_low=times.ratio_low,
        ratio_high=times.ratio_high,
        comparison=times.comparison,
        min_detectable_pct=times.min_detectable_pct,
        call_ratio=times.call_ratio,
        call_ratio_low=times.call_ratio_low,
        call_ratio_high=times.call_ratio_high,
        launch_bound=times.launch_bound,
        speed_of_light_pct=times.speed_of_light_pct,
        headroom=times.headroom,
        first_call_s=times.first_call_s,
    )


def timing_notes(result: BenchmarkResult) -> list[str]:
    """What a reader of the times must know, each once."""
    notes = [f"{times.case}: {note}" for times in result.cases for note in times.notes]
    return list(dict.fromkeys(notes))[:NOTES_KEPT]


def diagnosed(ladder: Ladder, unmeasured: str | None) -> Diagnosed:
    """What was found out of the launches of one call; a finding counts by its launch's share of the time."""
    spent_us = [None if each.profile is None else each.profile.duration_us for each in ladder.launches]
    whole_us = sum(us for us in spent_us if us is not None)
    ranked: list[tuple[float, FindingNote]] = []
    for us, launch in zip(spent_us, ladder.launches, strict=True):
        share = us / whole_us if us is not None and whole_us else 1.0
        for found in launch.told.findings:
            note = FindingNote(
                id=found.id,
                title=found.title,
                kernel=found.kernel,
                line=found.line,
                recipe=found.rewrite.recipe,
                expected_pct=found.gain.expected_pct,
                at_most_pct=found.gain.at_most_pct,
            )
            ranked.append((-(found.gain.expected_pct or 0.0) * share, note))
    ranked.sort(key=lambda pair: pair[0])
    profiles = [launch.profile for launch in ladder.launches if launch.profile is not None]
    return Diagnosed(
        case=ladder.case,
        findings=[note for _, note in ranked],
        done=_done([launch.told.done for launch in ladder.launches]),
        profiles=profiles,
        unmeasured=None if profiles else unmeasured,
    )


def _done(reasons: Sequence[str | None]) -> str | None:
    """Nothing is left where nothing is left in any launch."""
    return reasons[0] if reasons and all(reason is not None for reason in reasons) else None
