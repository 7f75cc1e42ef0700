"""One kernel of a campaign, from its task to its record."""

import contextlib
import hashlib
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
from pydantic import JsonValue

from ...profiling.optimization.model import BASELINE, Attempt, Timing, Verdict
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind
from ...sandbox.source import Source, read_source
from ..adapters.settle import NOT_ITS_DOING
from ..optimize.model import NONE, Ablation, OptimizeResult
from ..optimize.model import Plan as Headless
from ..runs.memory import elapsed_s, source_of, sources_of
from ..runs.record import Run
from ..runs.store import Store
from .adapting import failed_within, record
from .alone import Alone, timed_alone
from .folder import TASK_FILES, WINNER, Adaptation, CampaignFolder, write
from .model import CaseTime, Entry, Gain, KernelRecord, Plan, Unseen
from .reasons import line

UNSEEN_S: Final = 60.0
"""For trying a winner on other shapes."""
TIME_LEFT: Final = 0.5
"""A run of an earlier sitting is gone on with where so much of its time is left: it ends by the clock."""
OURS: Final = frozenset({"agent", "export"})
"""Stages whose failures say nothing of a kernel."""
TIMES_ALONE: Final[frozenset[Ablation]] = frozenset({Ablation.NO_PROFILE, Ablation.NO_DIAGNOSIS})
"""Without these, times are all that is asked of a baseline."""
Says = Callable[[str], None]


class Won(NamedTuple):
    """A winner, to be tried on shapes that it was not optimized for."""

    kernel: Source
    baseline: Source
    task: Source
    seed: str
    """Decides the shapes."""
    checked: list[dict[str, JsonValue]]
    """Parameters of the hidden cases that it was accepted on."""


class Bench(NamedTuple):
    """What a campaign's kernels are worked on with."""

    store: Store
    optimize: Callable[[Headless, Says, Says], Awaitable[OptimizeResult]]
    """Takes what takes progress and what takes the run's id, too."""
    alone: Alone
    """Times a kernel beside nothing and with nothing checked."""
    unseen: Callable[[Won], Awaitable[tuple[list[Unseen], list[str]]]] | None
    """A winner on other shapes, and why some were left out; None: there is nothing to time it with."""
    gpu: str | None
    """Name of the device, as torch gives it; None: there is none."""
    gpu_uuid: str | None
    device: Mapping[str, Any]
    """Its facts, stored beside each kernel."""


async def worked(
    bench: Bench, folder: CampaignFolder, plan: Plan, entry: Entry, made: Adaptation, stage: Says
) -> KernelRecord:
    """Have an agent optimize a kernel whose task is there, and say what became of it.

    Args:
        bench: what it is worked on with.
        folder: of the campaign.
        plan: of the campaign.
        entry: the artefact.
        made: its task.
        stage: takes what is done at the moment.

    Raises:
        Stopped: ``unavailable`` or ``cancelled``: the next kernel would fare no better.
    """
    begun = time.monotonic()
    seconds = {"adapt": made.seconds}
    known = {"gpu": bench.gpu, "gpu_uuid": bench.gpu_uuid}
    first = record(entry, plan, made).model_copy(update=known)
    place = folder.kernel(entry.name)
    await anyio.to_thread.run_sync(folder.clear, entry.name)
    await anyio.to_thread.run_sync(write, place / "device.json", json.dumps(bench.device, indent=2, default=str))

    def finished(**update: Any) -> KernelRecord:
        seconds["total"] = round(made.seconds + time.monotonic() - begun, 2)
        return first.model_copy(update={**update, "seconds": dict(seconds)})

    def said(line: str) -> None:
        stage(line.strip())

    def begins(run_id: str) -> None:
        # A sitting that ends in the middle is gone on with.
        folder.begin(entry.name, folder.begun(entry.name).model_copy(update={"run_id": run_id}))

    async def ended_early(stopped: Stopped) -> KernelRecord:
        """What an end that left nothing to judge says of the kernel."""
        why, kind = line(stopped.problem.message), stopped.kind
        measured = await anyio.to_thread.run_sync(_measured, bench.store, folder.begun(entry.name).run_id)
        if measured or stopped.problem.stage in OURS:
            return finished(**measured, outcome="failed", why=why, failure_kind=kind.value)
        if kind in (Kind.WRONG, Kind.REJECTED) and bench.gpu is not None:
            try:
                # It ran, at least.
                unjudged = {"outcome": "unjudged", "why": why, "failure_kind": kind}
                return finished(**unjudged | await _alone(bench, place, stage, why))
            except Stopped as other:
                if other.kind in NOT_ITS_DOING:
                    raise
        if bench.gpu is None:
            # What the interpreter says of a baseline is no verdict on it.
            return finished(outcome="untimed", why=f"this machine has no GPU; in the interpreter: {why}")
        return finished(outcome="baseline_failed", why=why, failure_kind=kind.value)

    try:
        try:
            if made.why_not is not None:
                unjudged = {"outcome": "unjudged", "why": line(made.why_not), "failure_kind": made.kind}
                return finished(**unjudged | await _alone(bench, place, stage, unjudged["why"]))
            if plan.agent == NONE and plan.ablations >= TIMES_ALONE and bench.gpu is not None and made.agrees:
                # There is nobody to go on with a run, and nothing that it would find out.
                return finished(outcome="measured", **await _alone(bench, place, stage))
            run_id = await anyio.to_thread.run_sync(_open_run, bench.store, folder, entry.name)
            # What is told of a failure is of this run alone.
            folder.begin(entry.name, folder.begun(entry.name).model_copy(update={"run_id": run_id}))
            result = await bench.optimize(_headless(plan, place, run_id), said, begins)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            return await ended_early(stopped)
        seconds |= {name: round(took, 2) for name, took in result.seconds_by_stage.items()}
        assert result.run_id is not None
        run, attempts = await anyio.to_thread.run_sync(_read, bench.store, result.run_id)
        await anyio.to_thread.run_sync(_enrich, place, attempts)
        found = {**_facts(run, attempts), "chosen": result.chosen}
        if not result.gained:
            outcome = "untimed" if run.frozen.gpu is None else "measured" if plan.agent == NONE else "no_gain"
            why = "this machine has no GPU" if outcome == "untimed" else line(result.why_not or "")
            return finished(**found, outcome=outcome, why=None if outcome == "measured" else why)
        if not plan.unseen:
            return finished(**found, outcome="gained", unseen_absent="not asked for")
        stage("trying the winner on other shapes")
        at = time.monotonic()
        tried = await _unseen(bench, run)
        seconds["unseen"] = round(time.monotonic() - at, 2)
        return finished(**found, outcome="gained", **tried)
    except Stopped as stopped:
        if stopped.kind in NOT_ITS_DOING:
            raise
        return finished(outcome="failed", why=line(stopped.problem.message), failure_kind=stopped.kind.value)
    except Exception as error:  # noqa: BLE001
        # A fault of ours with one kernel must not cost the others.
        why = line(await failed_within(place, error))
        return finished(outcome="failed", why=why, failure_kind="internal_error")


async def _alone(bench: Bench, place: Path, stage: Says, why: str | None = None) -> dict[str, Any]:
    """Fields of a kernel that is timed beside nothing.

    Args:
        bench: what it is timed with.
        place: its folder.
        stage: takes what is done at the moment.
        why: what is said of it already; what is said of cases in which it does not run comes after that.

    Raises:
        Stopped: it does not run.
    """
    if bench.gpu is None:
        return {}
    stage("timing the baseline")
    kernel = await anyio.to_thread.run_sync(read_source, str(place / "kernel.py"), "kernel")
    task = await anyio.to_thread.run_sync(read_source, str(place / "task.py"), "task")
    times, left_out = await timed_alone(bench.alone, kernel, task)
    return {"baseline": times, **({"why": "; ".join([*([why] if why else []), *left_out])} if left_out else {})}


def _open_run(store: Store, folder: CampaignFolder, name: str) -> str | None:
    """A run of an earlier sitting, of these files, that takes candidates."""
    before = folder.record(name)
    kernel, task = (hashlib.sha256((folder.kernel(name) / file).read_bytes()).hexdigest() for file in TASK_FILES)
    for run_id in (folder.begun(name).run_id, None if before is None else before.run_id):
        if run_id is not None:
            with contextlib.suppress(Stopped):
                run = store.run(run_id)
                wall_s, frozen = run.frozen.budget.wall_s, run.frozen
                timely = wall_s is None or elapsed_s(frozen) <= (1 - TIME_LEFT) * wall_s
                same = (frozen.kernel_sha256, frozen.task_sha256) == (kernel, task)
                if run.state in ("open", "measuring") and timely and same:
                    return run_id
    return None


def _measured(store: Store, run_id: str | None) -> dict[str, Any]:
    """Fields that a run tells whose baseline was measured; empty: there is none."""
    if run_id is None:
        return {}
    try:
        run, attempts = _read(store, run_id)
    except Stopped:
        return {}
    is_right = any(
        attempt.number == BASELINE and attempt.evidence is not None and attempt.evidence.kind is Kind.OK
        for attempt in attempts
    )
    return _facts(run, attempts) if is_right else {}


def _headless(plan: Plan, place: Path, run_id: str | None) -> Headless:
    return Headless(
        kernel=str(place / "kernel.py"),
        task=str(place / "task.py"),
        agent=plan.agent,
        agent_words=plan.agent_words,
        rounds=plan.rounds,
        wall_s=plan.wall_s,
        search_s=plan.search_s,
        export_to=place / WINNER,
        force=True,
        workspace=place / "workspace",
        ablations=plan.ablations,
        run_id=run_id,
    )


def _read(store: Store, run_id: str) -> tuple[Run, list[Attempt]]:
    return store.run(run_id), store.attempts(run_id)


def _facts(run: Run, attempts: list[Attempt]) -> dict[str, Any]:
    """Fields of the record that a run tells."""
    baseline = next(attempt for attempt in attempts if attempt.number == BASELINE)
    own = baseline.evidence.own if baseline.evidence is not None else []
    candidates = [attempt for attempt in attempts if attempt.number != BASELINE]
    kinds = Counter(attempt.evidence.kind.value for attempt in candidates if attempt.evidence is not None)
    kinds += Counter(attempt.state for attempt in candidates if attempt.evidence is None)
    winner = next((attempt for attempt in candidates if attempt.number == run.incumbent), None)
    beside = winner.evidence.timing(BASELINE) if winner is not None and winner.evidence is not None else None
    verified = run.verified
    best = max(candidates, key=_device_ratio, default=None)
    refused = None if best is None or best.accepted else line(_objection(best.verdict))
    has_gain = best is not None and _device_ratio(best) > 0
    return {
        "device_gain": _gain(_beside_baseline(best)) if best is not None and has_gain else None,
        "device_gain_refused": refused if has_gain else None,
        "run_id": run.frozen.run_id,
        "baseline": [
            CaseTime(case=each.case, device_us=each.device_us, speed_of_light_pct=each.speed_of_light_pct)
            for each in own
        ],
        "gain": _gain(beside),
        "verified": None if verified is None else _gain(verified.timing),
        "hidden_checked": 0 if verified is None else verified.hidden_checked,
        "attempts": len(candidates),
        "attempt_kinds": dict(sorted(kinds.items())),
    }


def _objection(verdict: Verdict | None) -> str:
    """Why a candidate was not accepted: where the run ends with it, that is said first."""
    if verdict is None:
        return "no verdict was given on it"
    return verdict.reasons[1 if verdict.ended_by is not None and len(verdict.reasons) > 1 else 0]


def _beside_baseline(attempt: Attempt) -> Timing | None:
    return None if attempt.evidence is None else attempt.evidence.timing(BASELINE)


def _device_ratio(attempt: Attempt) -> float:
    """The baseline's time on the device over a right candidate's; 0 of one that is wrong, or was not timed."""
    timing = _beside_baseline(attempt)
    is_right = attempt.evidence is not None and attempt.evidence.kind is Kind.OK
    return timing.ratio if timing is not None and is_right else 0.0


def _gain(timing: Timing | None) -> Gain | None:
    if timing is None:
        return None
    return Gain(
        ratio=timing.ratio, ratio_low=timing.ratio_low, ratio_high=timing.ratio_high, comparison=timing.comparison
    )


def _enrich(place: Path, attempts: list[Attempt]) -> None:
    """What was found of the baseline, stored beside its task: times and launches, findings, profile."""
    evidence = next(attempt.evidence for attempt in attempts if attempt.number == BASELINE)
    if evidence is None:
        return
    told = evidence.model_dump(mode="json", exclude={"diagnosed", "artifacts", "notes"})
    write(place / "baseline.json", json.dumps(told, indent=2))
    diagnosed = evidence.diagnosed
    if diagnosed is None:
        return
    write(place / "diagnosis.json", diagnosed.model_dump_json(indent=2, exclude={"profiles", "unmeasured"}))
    if diagnosed.profiles:
        profiles = [profile.model_dump(mode="json") for profile in diagnosed.profiles]
        write(place / "profile.json", json.dumps({"case": diagnosed.case, "launches": profiles}, indent=2))


async def _unseen(bench: Bench, run: Run) -> dict[str, Any]:
    """Fields of a winner on other shapes: what became of it there, or why there are no figures."""
    if bench.unseen is None:
        return {"unseen_absent": "this machine has no GPU"}
    try:
        found, notes = await bench.unseen(await anyio.to_thread.run_sync(_won, bench.store, run))
    except Stopped as stopped:
        return {"unseen_absent": line(f"{stopped.kind}: {stopped.problem.message}")}
    notes = [line(note) for note in notes]
    if not found:
        return {"unseen_absent": line("; ".join(notes)) or "no other shape is known"}
    return {"unseen": found, "unseen_left_out": notes}


def _won(store: Store, run: Run) -> Won:
    baseline, task, hidden = sources_of(store, run.frozen)
    kernel = source_of(store, store.attempt(run.frozen.run_id, run.incumbent))
    return Won(kernel, baseline, task, run.frozen.run_id, list(hidden.values()))
