"""diagnose_kernel: why a kernel is slow, down to the line and the compiler's pass, and which edit helps."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final, Literal

import anyio
from mcp_types import ToolAnnotations

from ...profiling.diagnosis.engine import diagnose
from ...profiling.diagnosis.facts import Facts, value
from ...profiling.diagnosis.model import Diagnosis, Finding, Level, Scalar
from ...profiling.diagnosis.probes import ProbeName
from ...profiling.hardware.model import Target
from ...profiling.ncu.levels import LEVELS
from ...profiling.optimization.novelty import text_identity
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import Source, read_source
from ...sandbox.task import Task
from ...sandbox.workers import task_worker
from ..mispredictions import Misprediction, record
from ..nsight_compute import find_profiler
from ..probing import probe
from ..services import Services
from .diagnose_case import DEPTHS, Asked, Depth, Diagnosed, Ladder, Measure, climb, compiled
from .diagnose_report import (
    Appeared,
    CheckedPrediction,
    DiagnosisResult,
    Verification,
    appeared,
    launch_of,
    level_of,
    named,
    next_step,
    summary,
)
from .parameters import Progress
from .profile_case import FILE
from .profile_case import Asked as Profiling
from .profile_ncu import LAUNCHES, Profiles, heaviest
from .profile_ncu import NAME as PROFILER

NAME: Final = "diagnose_kernel"
TITLE: Final = "Diagnose why a kernel is slow"
DESCRIPTION: Final = """\
Says why a kernel is slow, down to the source line and the compiler's pass, and which edit helps. Four levels, deeper \
only while the question is open: source (the syntax tree: hypotheses), profile (which resource is short, and whether \
anything is left to win; needs a GPU), code (which line made the costly instructions), compiler (which pass refused, \
in its own words). Without a GPU the other three work and say what they can't know; about 1 s beyond Triton's own \
compilation, with a GPU about 4 s.
Returns per launch findings[], by expected gain: id of the catalogue (docs/diagnosis.md), line, evidence with numbers, \
cause, the edit (a diff where one can be written), predicted change of the code and of the time, what would prove it \
wrong, risks to results, and the symptoms it explains; hypotheses[]; done, where nothing is left to win; unknown[]. \
With verify_with=another kernel file, such as the edited one, also verification: whether its code changed as \
predicted, before any time is spent on the GPU. With probes=[...] also where the time of a call goes, by timing it \
without its loads, stores or mathematics. Use it to choose the next edit; benchmark decides whether it helped."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=True,
    destructive_hint=False,
    open_world_hint=True,
)

HOPPER: Final = 90
CHECKED: Final = 3
"""Findings of a launch whose predictions are checked."""


async def diagnose_kernel(
    services: Services,
    progress: Progress,
    *,
    kernel: str,
    task: str | None = None,
    case: str | None = None,
    target: str | None = None,
    depth: Depth = "auto",
    verify_with: str | None = None,
    probes: Sequence[ProbeName] | None = None,
) -> DiagnosisResult:
    """Diagnose one call of the entry; without a task, the launches that the file itself makes.

    Raises:
        Stopped: any failing outcome, such as ``compile_error``; ``unavailable`` where a profile is asked for by
            depth='profile' and can't be taken.
    """
    kernel_source = read_source(kernel, "kernel")
    other = None if verify_with is None else read_source(verify_with, "verify_with")
    task_source = None if task is None else read_source(task, "task")
    if task_source is None and case is not None:
        raise rejected("task", "case names one of a task's, and no task is given", fix="Give the task, or no case.")
    if task_source is None and probes is not None:
        raise rejected("task", "probes time calls of a task's entry, and no task is given", fix="Give the task too.")
    goal = await services.target(target)
    if not known(goal):
        message = f"the catalogue of causes is that of NVIDIA Hopper (sm_90); the target is {goal.name}"
        fix = "Give target='h100' or 'h200', or use compile_kernel and profile_ncu, which know other GPUs."
        raise Stopped(Kind.UNSUPPORTED, Problem(stage="target", message=message, likely_fix=fix))
    await services.artifacts.prepare()
    spec, chosen = await _chosen(services, task_source, case)
    asked = Asked(goal, task_source, spec, chosen, depth)
    measure, unmeasured = await how_profiled(services, asked, kernel_source, named_target=target)
    await progress(0, 1, f"diagnosing case {chosen}")
    ladder = await climb(services, asked, kernel_source, measure, unmeasured)
    result = DiagnosisResult(
        kind=Kind.OK,
        summary="",
        target=goal.name,
        gpu=await _gpu(services) if any(found.profile is not None for found in ladder.launches) else None,
        case=chosen,
        compile_s=round(ladder.compile_s, 2),
        levels=[level_of(step) for step in ladder.steps],
        launches=[launch_of(found, first=number == 0) for number, found in enumerate(ladder.launches)],
        launches_omitted=ladder.left_out,
        notes=[*ladder.notes, *(ladder.data.notes if ladder.data is not None else [])],
        artifacts=[await artifact(services, ladder)],
    )
    if other is not None:
        await progress(1, 2, f"compiling {other.shown_as}")
        try:
            after = await compiled(services, asked, other)
        except Stopped as stopped:
            where = "" if stopped.problem.line is None else f" at line {stopped.problem.line}"
            message = " ".join(stopped.problem.message.split())[:300]
            result.notes.append(f"verify_with: {other.shown_as} ended in {stopped.kind}{where}: {message}")
        else:
            found = _verify(ladder, after, other.shown_as)
            missed = _missed(found, goal.name, kernel_source, other)
            if missed and not await anyio.to_thread.run_sync(record, services.settings.state_dir, missed):
                result.notes.append("The mispredictions could not be recorded in the state folder.")
            result = result.model_copy(update={"verification": found})
    if probes is not None and task_source is not None and spec is not None:
        await progress(1, 2, "timing the kernel without parts of its work")
        launched = {found.facts.captured.kernel: found.facts.captured.num_stages for found in ladder.launches}
        try:
            placed = await probe(services, kernel_source, task_source, spec, chosen, probes, launched=launched)
        except Stopped as stopped:
            if stopped.kind is Kind.CANCELLED:
                raise
            message = " ".join(stopped.problem.message.split())[:300]
            result.notes.append(f"probes: nothing was timed ({stopped.kind}: {message})")
        else:
            result = result.model_copy(update={"probes": placed})
    told = result.model_copy(update={"next_step": next_step(result)})
    return told.model_copy(update={"summary": summary(told, ladder)})


def known(goal: Target) -> bool:
    """Whether the catalogue of causes is that of a target."""
    return goal.limits.vendor == "nvidia" and goal.capability == HOPPER


async def _chosen(services: Services, task: Source | None, case: str | None) -> tuple[Task | None, str]:
    if task is None:
        return None, FILE
    async with task_worker(services.executor, on_gpu=False) as tasks:
        spec = await tasks.load(task)
    return spec, heaviest(spec) if case is None else spec.select([case])[0]


async def how_profiled(
    services: Services, asked: Asked, kernel: Source, *, named_target: str | None
) -> tuple[Measure | None, str | None]:
    """How the call is profiled, or why it isn't.

    Raises:
        Stopped: ``unavailable``, where nothing but a profile was asked for.
    """
    if DEPTHS[asked.depth] < Level.PROFILE:
        return None, "not asked for"
    if PROFILER in services.settings.without:
        off = f"{PROFILER} is switched off"
        if asked.depth == "profile":
            fix = "Leave depth out: source, code and compiler are looked at all the same."
            raise Stopped(Kind.UNAVAILABLE, Problem(stage="profile", message=off, likely_fix=fix))
        return None, off
    gpu = await services.gpu()
    if named_target is not None and gpu is not None and (await services.target(None)).name != asked.goal.name:
        return None, f"the target is {asked.goal.name}, and this machine has another GPU"
    try:
        environment = await services.require_gpu("profile")
        profiler = await find_profiler()
    except Stopped as stopped:
        if asked.depth == "profile":
            raise
        return None, f"{stopped.problem.message}"
    profiling = Profiling(LEVELS["standard"], (), (), LAUNCHES, ahead=True)
    profiles = Profiles(services, profiler, profiling, environment)
    task, spec = asked.task, asked.spec
    if task is None or spec is None:
        return lambda: profiles.file(kernel), None
    return lambda: profiles.case(kernel, task, spec, asked.case), None


async def _gpu(services: Services) -> str | None:
    facts = (await services.environment()).gpu
    return None if facts is None else facts.name


async def artifact(services: Services, ladder: Ladder) -> str:
    """Keep everything that is known of the launches; its URI."""
    everything = {
        "case": ladder.case,
        "launches": [
            {"diagnosis": found.told.model_dump(mode="json"), "facts": _facts(found.facts)} for found in ladder.launches
        ],
    }
    text = json.dumps(everything, indent=1).encode()
    return (await services.artifacts.put(f"{ladder.case}-diagnosis.json", text)).uri


def _facts(facts: Facts) -> dict[str, object]:
    return {
        "launch": None if facts.launch is None else facts.launch.model_dump(mode="json"),
        "profile": None if facts.profile is None else facts.profile.model_dump(mode="json"),
        "causes": [cause.model_dump(mode="json") for cause in facts.causes],
        "hotspots": [spot.model_dump(mode="json") for spot in facts.hotspots],
        "floor": None if facts.floor is None else facts.floor._asdict(),
        "call": None if facts.call is None else asdict(facts.call),
    }


def _verify(ladder: Ladder, after: Sequence[Facts], file: str) -> Verification:
    """Holds the other file's code against the predictions."""
    checked: list[CheckedPrediction] = []
    before_names = set[str]()
    new: dict[str, Appeared] = {}
    same = True
    for launch, partner in zip(ladder.launches, _partners(ladder.launches, after), strict=True):
        then = None if partner is None else _like(partner, launch.facts)
        same = same and then is not None and _same_code(launch.facts, then)
        for finding in _all(launch.told)[:CHECKED]:
            for each in finding.predicted:
                found: Scalar | None = None if partner is None else value(each.fact, partner)
                checked.append(
                    CheckedPrediction(
                        **each.model_dump(), id=finding.id, kernel=finding.kernel, after=found, holds=each.holds(found)
                    )
                )
        if then is not None:
            # Both without what only the first file's profile tells.
            before_names |= {named(found) for found in _all(diagnose(_static(launch.facts)))}
            told = diagnose(then)
            new |= {named(found): appeared(told, found) for found in _all(told)}
    before_ids, after_ids = ({name.split()[0] for name in each} for each in (before_names, new))
    return Verification(
        file=file,
        verdict="nothing_changed" if same else _verdict(checked),
        predictions=checked,
        gone=sorted(name for name in before_names if name.split()[0] not in after_ids),
        left=sorted(name for name in before_names if name.split()[0] in after_ids),
        appeared=[new[name] for name in sorted(new) if new[name].id not in before_ids],
    )


def _static(facts: Facts) -> Facts:
    return replace(facts, profile=None, floor=None, causes=(), hotspots=(), call=None)


def _like(facts: Facts, other: Facts) -> Facts:
    """The same, as deep as another launch was looked at."""
    return replace(
        _static(facts),
        launch=facts.launch if other.launch is not None else None,
        lines=facts.lines if other.lines is not None else None,
        remarks=facts.remarks if other.remarks is not None else None,
        machine_code=facts.machine_code if other.machine_code is not None else None,
    )


def _same_code(one: Facts, other: Facts) -> bool:
    launches = one.launch, other.launch
    return all(each is not None for each in launches) and len({each.code_hash for each in launches if each}) == 1


def _partners(launches: Sequence[Diagnosed], after: Sequence[Facts]) -> list[Facts | None]:
    """The other file's launch of each: of the same kernel, with the same grid and constants where there is one."""
    left = list(after)
    found: list[Facts | None] = []
    for launch in launches:
        mine = launch.facts.captured
        ranked = sorted(
            (each for each in left if each.captured.kernel == mine.kernel),
            key=lambda each: (each.captured.constexprs != mine.constexprs, each.captured.grid != mine.grid),
        )
        if not ranked and len(launches) == len(after) == 1:
            ranked = left
        found.append(ranked[0] if ranked else None)
        left = [each for each in left if each is not found[-1]]
    return found


def _verdict(
    checked: Sequence[CheckedPrediction],
) -> Literal["as_predicted", "not_as_predicted", "nothing_changed", "unknown"]:
    told = [each for each in checked if each.holds is not None]
    if not told:
        return "unknown"
    if all(each.after == each.now for each in told):
        return "nothing_changed"
    # An edit follows one finding, not all: those whose facts moved count.
    moved = next((each.id, each.kernel) for each in told if each.after != each.now)
    its = [each for each in told if (each.id, each.kernel) == moved and each.after != each.now]
    return "as_predicted" if all(each.holds for each in its) else "not_as_predicted"


def _missed(found: Verification, target: str, before: Source, after: Source) -> list[Misprediction]:
    """Predictions of an edit that changed their fact, and not as they said; where none moved, the edit was none."""
    digests = [text_identity(source.text) for source in (before, after)]
    return [
        Misprediction(
            **each.model_dump(exclude={"holds"}), target=target, before_sha256=digests[0], after_sha256=digests[1]
        )
        for each in found.predictions
        if each.holds is False and each.after != each.now
    ]


def _all(told: Diagnosis) -> list[Finding]:
    return [*told.findings, *told.hypotheses]
