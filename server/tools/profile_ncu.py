"""profile_ncu: hardware counters of the entry's launches, down to source lines."""

import contextlib
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
from mcp_types import ToolAnnotations

from ...profiling.ncu import hotspots as hot
from ...profiling.ncu.causes import causes
from ...profiling.ncu.delta import compare_reports
from ...profiling.ncu.levels import LEVELS, Level, LevelName, custom
from ...profiling.roofline import Work
from ...sandbox.errors import rejected
from ...sandbox.facts import Environment
from ...sandbox.outcome import Kind
from ...sandbox.source import Source, read_source
from ...sandbox.task import Task
from ...sandbox.workers import task_worker
from ..nsight_compute import Profiler, chip_metrics, find_profiler
from ..services import Services
from .parameters import Progress
from .profile_case import Asked, CaseProfile, count_case, profile_case, profile_file
from .profile_report import (
    CHANGES_SHOWN,
    LAUNCHES_SHOWN,
    ProfileChange,
    ProfiledLaunch,
    ProfileResult,
    case_of,
    launch_of,
    next_step,
    summary,
)

NAME: Final = "profile_ncu"
TITLE: Final = "Profile a kernel with hardware counters"
DESCRIPTION: Final = """\
Counts what the GPU does in one call of the entry, inside the NVTX range BIG_OP: two calls to warm up (compile, \
autotune) come before it; caches are emptied, clocks left alone. level 'quick' (about 1 s) tells the memory roof, \
tensor cores, occupancy and a small grid apart; 'standard' (about 3 s) adds the hottest source lines with what their \
warps wait for, stalls, coalescing, bank conflicts, operations and Nsight Compute's own rules; 'full' (about 6 s) \
counts everything for the report file. The first call of a level takes about 8 s more. Or metrics=[...]: ncu's names. \
Without a task the kernel file is run as it stands. Needs a GPU, ncu and access to its counters.
Returns launches[], the longest first: duration_us, memory_pct, compute_pct, dram_pct, achieved_pct, occupancy with \
its limiter, causes[] (what limits it and what to try), hotspots[] (line, share of samples, stall, the line waited \
for), stalls[], rules[]; cases[] with traffic_ratio (bytes moved over bytes needed). With compare also changes[] \
against another kernel file. The .ncu-rep report and all numbers are artifacts. Use it to choose the next idea, not to \
compare speeds: benchmark does that."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=False,
    destructive_hint=False,
    open_world_hint=True,
)

LAUNCHES: Final = 10
LAUNCHES_LIMIT: Final = 50
NAMES_LIMIT: Final = 60
KEPT_BYTES_LIMIT: Final = 8 << 20
"""Of a report that is kept in memory."""
FILES_LIMIT: Final = 2000
"""Beside a kernel file; with more, nothing is taken from memory."""


async def profile_ncu(
    services: Services,
    progress: Progress,
    *,
    kernel: str,
    task: str | None = None,
    cases: list[str] | None = None,
    level: LevelName = "standard",
    metrics: list[str] | None = None,
    kernel_names: list[str] | None = None,
    launches: int = LAUNCHES,
    compare: str | None = None,
    detail: bool = False,
) -> ProfileResult:
    """Profile one call of the entry for each chosen case; without a task, what the file itself launches.

    Raises:
        Stopped: any failing outcome; ``unavailable`` without GPU, ncu or counters, each with its remedy.
    """
    kernel_source = read_source(kernel, "kernel")
    other_source = None if compare is None else read_source(compare, "compare")
    task_source = None if task is None else read_source(task, "task")
    if task_source is None and (cases is not None or compare is not None):
        raise rejected("task", "cases and compare need a task", fix="Give the task too, or leave them out.")
    _check(metrics, kernel_names, launches)
    environment = await services.require_gpu("profile")
    # The quick level of a task is counted without Nsight Compute: faster by a second, and from a worker that is there.
    by_cupti = level == "quick" and metrics is None and task_source is not None
    profiler = None if by_cupti else await find_profiler()
    asked = await _asked(environment, profiler, level, metrics, kernel_names, launches)
    await services.artifacts.prepare()
    run = Profiles(services, profiler, asked, environment)
    if task_source is None:
        await progress(0, 1, f"profiling {kernel_source.shown_as}")
        found, others = [await run.file(kernel_source)], list[CaseProfile]()
    else:
        spec, chosen = await _chosen(services, task_source, cases)
        found, others = list[CaseProfile](), list[CaseProfile]()
        for number, case in enumerate(chosen):
            await progress(number, len(chosen), f"profiling case {case}")
            found.append(await run.case(kernel_source, task_source, spec, case))
            if other_source is not None:
                others.append(await run.case(other_source, task_source, spec, case))
    return await _result(run, found, others, detail=detail)


async def _asked(
    environment: Environment,
    profiler: Profiler | None,
    level: LevelName,
    names: list[str] | None,
    kernel_names: list[str] | None,
    launches: int,
) -> Asked:
    chosen: Level = LEVELS[level]
    if names is not None:
        assert profiler is not None
        assert environment.gpu is not None
        wrong = (await chip_metrics(profiler, environment.gpu.capability)).check(names)
        if wrong:
            raise rejected("profile", " ".join(wrong[:5]), fix="Mend or leave out these names; nothing was run.")
        chosen = custom(tuple(dict.fromkeys(names)))
    ahead = names is None and kernel_names is None and launches == LAUNCHES
    return Asked(chosen, tuple(names or ()), tuple(kernel_names or ()), launches, ahead)


def _check(names: list[str] | None, kernel_names: list[str] | None, launches: int) -> None:
    """What can be wrong on any machine.

    Raises:
        Stopped: ``rejected``, with what is allowed.
    """
    if not 1 <= launches <= LAUNCHES_LIMIT:
        message = f"launches is {launches}; 1 to {LAUNCHES_LIMIT} are allowed"
        raise rejected("profile", message, fix="Leave it out for the first 10 launches.")
    if names is not None and not 1 <= len(names) <= NAMES_LIMIT:
        message = f"metrics has {len(names)} names; 1 to {NAMES_LIMIT} are allowed"
        raise rejected("profile", message, fix="Name some of ncu's metrics, or leave it out and choose a level.")
    for name in kernel_names or []:
        if not name.isidentifier() or not name.isascii():
            message = f"{name[:100]!r} in kernel_names is no name of a function"
            raise rejected("profile", message, fix="Give names of @triton.jit functions, such as ['softmax_kernel'].")


async def _chosen(services: Services, task: Source, cases: list[str] | None) -> tuple[Task, list[str]]:
    async with task_worker(services.executor, on_gpu=False) as tasks:
        spec = await tasks.load(task)
    return spec, spec.select(cases) if cases is not None else [heaviest(spec)]


def heaviest(spec: Task) -> str:
    """The case with the largest weight that is not marked small; the first of equals."""
    names = [name for name, case in spec.cases.items() if not case.small] or list(spec.cases)
    return max(names, key=lambda name: spec.cases[name].weight)


class Profiles:
    """Profiles on the same terms: taken, or found in memory."""

    def __init__(self, services: Services, profiler: Profiler | None, asked: Asked, environment: Environment) -> None:
        self.services, self.profiler, self.asked, self.environment = services, profiler, asked, environment

    async def case(self, kernel: Source, task: Source, spec: Task, case: str) -> CaseProfile:
        profiler = self.profiler

        def profile() -> Awaitable[CaseProfile]:
            if profiler is None:
                return count_case(self.services, self.asked, kernel, task, spec, case)
            return profile_case(self.services, profiler, self.asked, kernel, task, spec, case)

        of = (kernel.text, kernel.origin, task.text, task.origin, case)
        return await self._kept(of, [kernel.origin, task.origin], profile)

    async def file(self, kernel: Source) -> CaseProfile:
        profiler = self.profiler
        assert profiler is not None
        return await self._kept(
            (kernel.text, kernel.origin),
            [kernel.origin],
            lambda: profile_file(self.services, profiler, self.asked, kernel),
        )

    async def _kept(
        self, of: tuple[object, ...], origins: list[str | None], profile: Callable[[], Awaitable[CaseProfile]]
    ) -> CaseProfile:
        beside = await anyio.to_thread.run_sync(_state_of, origins)
        key = self.services.profiles.key(of, beside, self.asked, self.profiler, self.environment)
        kept = self.services.profiles.get(key)
        if kept is not None and beside is not None:
            return replace(kept, cached=True)
        found = await profile()
        # What was disturbed, or is large, is measured again when it is asked for again.
        if found.launches and not found.notes and len(found.data or b"") <= KEPT_BYTES_LIMIT:
            self.services.profiles.put(key, found)
        return found


def _state_of(origins: list[str | None]) -> tuple[object, ...] | None:
    """The Python files that kernel and task may import from their folders; None where there are too many to tell."""
    found: list[tuple[str, int, int]] = []
    for origin in origins:
        for path in itertools.islice(Path(origin).rglob("*.py") if origin is not None else (), FILES_LIMIT + 1):
            with contextlib.suppress(OSError):
                seen = path.stat()
                found.append((str(path), seen.st_mtime_ns, seen.st_size))
            if len(found) > FILES_LIMIT:
                return None
    return tuple(sorted(found))


async def _result(run: Profiles, found: list[CaseProfile], others: list[CaseProfile], *, detail: bool) -> ProfileResult:
    ranked = sorted(
        ((launch, each) for each in found for launch in each.launches),
        key=lambda pair: -(pair[0].profile.duration_us or 0.0),
    )
    if not ranked:
        raise rejected(
            "profile",
            "nothing was launched on the GPU inside the profiled range, or kernel_names matched no launch",
            fix="Check that the entry launches a kernel for this case, and kernel_names if given.",
        )
    shown: list[ProfiledLaunch] = []
    lines: dict[int, str] = {}
    for number, (launch, case) in enumerate(ranked[:LAUNCHES_SHOWN]):
        alone = len(case.launches) == 1 and not case.left_out
        reasons = causes(
            launch.profile,
            launch.lines.hotspots if launch.lines is not None else None,
            case.ceilings,
            Work(case.compulsory_bytes, case.useful_flops) if alone else None,
        )
        shown.append(launch_of(launch, case, reasons, longest=number == 0, detail=detail))
        if launch.lines is not None and number == 0:
            lines[number] = hot.text(launch.lines)
    changes, unmatched = _changes(others, found)
    assert run.environment.gpu is not None
    result = ProfileResult(
        kind=Kind.OK,
        summary="",
        gpu=run.environment.gpu.name,
        level=run.asked.level.name,
        by="CUPTI in the worker" if run.profiler is None else f"ncu {run.profiler.version}",
        cached=all(each.cached for each in (*found, *others)),
        cases=[case_of(each) for each in found],
        launches=shown,
        launches_omitted=len(ranked) - len(shown) + sum(each.left_out for each in found),
        changes=changes[:CHANGES_SHOWN],
        notes=list(dict.fromkeys([note for each in (*found, *others) for note in each.notes] + unmatched)),
        artifacts=await _artifacts(run.services, found),
    )
    told = result.model_copy(update={"summary": summary(result, lines)})
    return told.model_copy(update={"next_step": next_step(told)})


def _changes(others: list[CaseProfile], found: list[CaseProfile]) -> tuple[list[ProfileChange], list[str]]:
    """What differs from the other kernel file, the launches that matter most first; and launches of one file alone."""
    changes: list[ProfileChange] = []
    notes: list[str] = []
    for before, after in zip(others, found, strict=False):
        old, new = ([launch.profile for launch in each.launches] for each in (before, after))
        delta = compare_reports(old, new)
        matched = sorted(delta.launches, key=lambda one: -(old[one.before].duration_us or 0.0))
        changes += [
            ProfileChange(**change.model_dump(), kernel=one.kernel, case=after.case)
            for one in matched
            for change in one.changes
        ]
        if delta.only_before:
            notes.append(f"{after.case}: only the other file launches {', '.join(delta.only_before[:5])}")
        if delta.only_after:
            notes.append(f"{after.case}: only this file launches {', '.join(delta.only_after[:5])}")
    return changes, notes


async def _artifacts(services: Services, found: list[CaseProfile]) -> list[str]:
    uris: list[str] = []
    for each in found:
        if each.data is not None:
            uris.append((await services.artifacts.put(f"{each.case}.ncu-rep", each.data)).uri)
        everything = {
            "case": each.case,
            "launches": [
                {
                    "profile": launch.profile.model_dump(mode="json"),
                    "lines": None if launch.lines is None else launch.lines.model_dump(mode="json"),
                    "rules": [rule.model_dump(mode="json") for rule in launch.rules],
                }
                for launch in each.launches
            ],
        }
        text = json.dumps(everything, indent=1).encode()
        uris.append((await services.artifacts.put(f"{each.case}-profile.json", text)).uri)
    return uris
