"""profile_ncu: hardware counters of the entry's launches, through Nsight Compute."""

from pathlib import Path
from typing import Final

import anyio
from mcp_types import ToolAnnotations

from ...profiling.ncu.command import Page, command, export_command, find_ncu
from ...profiling.ncu.failure import NcuFailure, explain
from ...profiling.ncu.model import LaunchProfile, Rule
from ...profiling.ncu.report import parse_raw, parse_rules, summarize
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind, Problem
from ...sandbox.scratch import scratch_folder
from ...sandbox.source import Source, read_source
from ...sandbox.task import Task
from ...sandbox.workers import TaskWorker, gpu_worker, task_worker
from ..results import Result
from ..services import Services
from .parameters import Progress

NAME: Final = "profile_ncu"
TITLE: Final = "Profile a kernel with Nsight Compute"
DESCRIPTION: Final = """\
Runs the entry under Nsight Compute (ncu): two calls to warm up, then one inside the NVTX range BIG_OP, whose \
launches are measured with caches flushed and clocks left alone. Needs a GPU, ncu and access to its counters; \
about 10 s a case.
Returns launches[], the longest first: duration_us, memory_pct and compute_pct (busiest part, as a share of its \
peak), achieved_occupancy_pct with occupancy_limiter, stalls[] (why warps wait, worst first, with what to suspect) \
and rules[] (Nsight Compute's own findings with estimated speed-ups). Both memory_pct and compute_pct below 60: \
latency-bound. The .ncu-rep file is linked under artifacts. Use it to choose the next idea, not to compare speeds: \
benchmark does that."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=False,
    destructive_hint=False,
    open_world_hint=True,
)

LAUNCHES_PROFILED: Final = 10
LAUNCHES_SHOWN: Final = 5
RULES_SHOWN: Final = 4
RULE_TEXT_LIMIT: Final = 400
RULE_TYPES: Final = frozenset({"OPT", "WRN"})
ENDINGS: Final = frozenset({Kind.RUNTIME_ERROR, Kind.UNAVAILABLE, Kind.OUT_OF_MEMORY})
"""How a worker's sudden end is reported."""
TARGET_CODES: Final = frozenset({"target_failed", "nothing_profiled", "killed", "other"})
"""What ncu says where the program that it runs is at fault."""
FINISH_S: Final = 120.0
EXPORT_S: Final = 60.0


class ProfiledLaunch(LaunchProfile):
    """One launch of one case under the profiler."""

    case: str
    rules: list[Rule]
    """Nsight Compute's own findings, the largest estimated speed-up first."""


class ProfileResult(Result):
    """What `profile_ncu` returns."""

    gpu: str | None = None
    ncu: str | None = None
    """Path of the ncu that was used."""
    launches: list[ProfiledLaunch] = []
    launches_omitted: int = 0


async def profile_ncu(
    services: Services,
    progress: Progress,
    *,
    kernel: str,
    task: str,
    cases: list[str] | None = None,
) -> ProfileResult:
    """Profile one call of the entry for each chosen case.

    Raises:
        Stopped: any failing outcome; ``unavailable`` without GPU, ncu or counters, each with its remedy.
    """
    kernel_source, task_source = read_source(kernel, "kernel"), read_source(task, "task")
    environment = await services.require_gpu("profile")
    assert environment.gpu is not None
    ncu = find_ncu()
    if ncu is None:
        raise Stopped(
            Kind.UNAVAILABLE,
            Problem(
                stage="profile",
                message="Nsight Compute (ncu) was not found on PATH or in its usual places",
                likely_fix="Install it (it comes with the CUDA toolkit, or alone from NVIDIA), or set "
                "TRITONFORGE_NCU to its path.",
            ),
        )
    await services.artifacts.prepare()
    launches: list[ProfiledLaunch] = []
    artifacts: list[str] = []
    async with (
        services.gpu_turn(),
        task_worker(services.executor, on_gpu=True) as tasks,
    ):
        spec = await tasks.load(task_source)
        chosen = spec.select(cases) if cases is not None else [_heaviest(spec)]
        for number, case in enumerate(chosen):
            await progress(number, len(chosen), f"profiling case {case}")
            report = await _profile(services, str(ncu), case, spec, tasks, kernel_source)
            artifacts.append((await services.artifacts.put(f"{spec.entry}-{case}.ncu-rep", report.data)).uri)
            launches += report.launches
    launches.sort(key=lambda launch: -(launch.duration_us or 0.0))
    shown = launches[:LAUNCHES_SHOWN]
    return ProfileResult(
        kind=Kind.OK,
        summary=_summary(environment.gpu.name, shown, len(launches) - len(shown)),
        next_step=_next_step(shown[0]),
        gpu=environment.gpu.name,
        ncu=str(ncu),
        launches=shown,
        launches_omitted=len(launches) - len(shown),
        artifacts=artifacts,
    )


class CaseReport:
    """The report of one case: the file's bytes and the launches in it."""

    def __init__(self, data: bytes, launches: list[ProfiledLaunch]) -> None:
        self.data = data
        self.launches = launches


def _heaviest(spec: Task) -> str:
    """The case with the largest weight that is not marked small; the first of equals."""
    names = [name for name, case in spec.cases.items() if not case.small] or list(spec.cases)
    return max(names, key=lambda name: spec.cases[name].weight)


async def _profile(
    services: Services, ncu: str, case: str, spec: Task, tasks: TaskWorker, kernel_source: Source
) -> CaseReport:
    async with scratch_folder() as folder:
        path = folder / "report.ncu-rep"
        await _collect(services, ncu, path, case, spec, tasks, kernel_source)
        try:
            rows = parse_raw(await _export(ncu, path, "raw"))
            rules = parse_rules(await _export(ncu, path, "details"))
        except ValueError as error:
            message = f"ncu's report can't be read: {error}"
            raise Stopped(Kind.UNAVAILABLE, Problem(stage="profile", message=message)) from error
        data = await anyio.Path(path).read_bytes()
    launches = [
        ProfiledLaunch(**dict(summarize(row)), case=case, rules=_ranked(rules, index)) for index, row in enumerate(rows)
    ]
    return CaseReport(data, launches)


async def _collect(
    services: Services, ncu: str, path: Path, case: str, spec: Task, tasks: TaskWorker, kernel_source: Source
) -> None:
    """Run the kernel's worker under ncu until the report is written."""
    # The command without its target: the worker's command line follows it.
    wrapper = command(ncu, path, ["{target}"], launch_count=LAUNCHES_PROFILED, import_source=True)[:-1]
    try:
        async with gpu_worker(services.executor, wrapper=wrapper, writable=str(path.parent)) as worker:
            await worker.load(kernel_source, spec)
            await worker.set_inputs(await tasks.make_inputs(case, seed=0))
            await worker.profile()
            code = await worker.process.finish(FINISH_S)
            log = worker.process.output()
    except Stopped as stopped:
        # Where ncu itself gave up, the worker's end is only what followed from it.
        failure = explain(stopped.problem.output or "", 1)
        if stopped.kind in ENDINGS and failure is not None and failure.code not in TARGET_CODES:
            raise _stopped(failure) from stopped
        raise
    if code is None:
        message = f"ncu did not write its report within {FINISH_S:g} s"
        raise Stopped(Kind.TIMEOUT, Problem(stage="profile", message=message, output=log[-1500:]))
    if code != 0 or not await anyio.Path(path).exists():
        failure = explain(log, code)
        if failure is not None:
            raise _stopped(failure)
        message = f"ncu wrote no report (exit code {code})"
        raise Stopped(Kind.UNAVAILABLE, Problem(stage="profile", message=message, output=log[-1500:] or None))


def _stopped(failure: NcuFailure) -> Stopped:
    kind = Kind.REJECTED if failure.code == "nothing_profiled" else Kind.UNAVAILABLE
    problem = Problem(
        stage="profile", message=failure.message, likely_fix=failure.remedy, output=failure.evidence or None
    )
    return Stopped(kind, problem)


async def _export(ncu: str, report: Path, page: Page) -> str:
    try:
        with anyio.fail_after(EXPORT_S):
            done = await anyio.run_process(export_command(ncu, report, page), check=False)
    except TimeoutError:
        message = f"ncu did not print the {page} page of its report within {EXPORT_S:g} s"
        raise Stopped(Kind.TIMEOUT, Problem(stage="profile", message=message)) from None
    return done.stdout.decode("utf-8", errors="replace")


def _ranked(rules: list[Rule], index: int) -> list[Rule]:
    # A rule that only asks for more counters says nothing about the kernel.
    mine = [
        rule
        for rule in rules
        if rule.launch in (index, None) and rule.type in RULE_TYPES and "optional metric" not in rule.description
    ]
    mine.sort(key=lambda rule: -(rule.speedup_pct or 0.0))
    return [rule.model_copy(update={"description": rule.description[:RULE_TEXT_LIMIT]}) for rule in mine[:RULES_SHOWN]]


def _summary(gpu: str, shown: list[ProfiledLaunch], omitted: int) -> str:
    lines = [f"Profiled on {gpu} with Nsight Compute: {len(shown) + omitted} launch(es) inside BIG_OP, longest first."]
    for launch in shown:
        lines.append(
            f"- {launch.kernel} [{launch.case}] {_number(launch.duration_us, ' us', 2)}: memory "
            f"{_number(launch.memory_pct, ' %')}, compute {_number(launch.compute_pct, ' %')} of peak; occupancy "
            f"{_number(launch.achieved_occupancy_pct, ' %')} achieved of "
            f"{_number(launch.theoretical_occupancy_pct, ' %')} possible (limit: {launch.occupancy_limiter}); "
            f"DRAM {_number(launch.dram_pct, ' %')}; "
            f"{launch.registers} registers"
        )
        lines += [f"  stall {stall.reason} {stall.pct:.0f} %: {stall.meaning}" for stall in launch.stalls[:3]]
        for rule in launch.rules:
            gain = f" (estimated {rule.speedup_type} gain {rule.speedup_pct:.0f} %)" if rule.speedup_pct else ""
            lines.append(f"  rule {rule.name}{gain}: {rule.description[:200]}")
    if omitted:
        lines.append(f"- {omitted} shorter launch(es) not shown")
    return "\n".join(lines)


def _number(value: float | None, unit: str, digits: int = 0) -> str:
    return "unknown" if value is None else f"{value:.{digits}f}{unit}"


def _next_step(longest: ProfiledLaunch) -> str:
    memory, compute = longest.memory_pct, longest.compute_pct
    if memory is None or compute is None:
        return "Throughput is unknown here; compile_kernel's observations still apply."
    if max(memory, compute) < 60:
        worst = longest.stalls[0].reason if longest.stalls else "unknown"
        return f"Latency-bound: raise the work in flight against the stall {worst}. One idea, then benchmark."
    if memory >= compute:
        return "Bound by memory: move fewer bytes (fuse, one pass, narrower types) or none will help. Then benchmark."
    return "Bound by compute: use the tensor cores fully, or do fewer operations. Then benchmark."
