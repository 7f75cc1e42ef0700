"""What profile_ncu finds out about one kernel file on one case."""

import ast
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import anyio

from ...profiling.compiler.join import CompiledCode
from ...profiling.hardware.ceilings import Ceilings
from ...profiling.ncu import metrics
from ...profiling.ncu.counted import reported
from ...profiling.ncu.hotspots import HotspotReport, hotspots
from ...profiling.ncu.levels import Level
from ...profiling.ncu.model import LaunchProfile
from ...profiling.ncu.report import summarize
from ...sandbox.errors import Stopped, rejected
from ...sandbox.facts import Capture
from ...sandbox.outcome import Kind, Problem
from ...sandbox.profile_facts import COUNTED_LIMIT, ReportedLaunch, ReportedMetric, ReportedRule
from ...sandbox.profilers import count
from ...sandbox.source import Source
from ...sandbox.task import Task
from ...sandbox.workers import KernelWorker, capture_worker, gpu_worker, task_worker
from ..nsight_compute import Collected, Profiler
from ..services import Services, target_facts
from .compile_findings import KERNEL_FILE

RULES_KEPT: Final = 6
RULE_TYPES: Final = frozenset({"OPT", "WRN"})
CODES_JOINED: Final = 4
"""Distinct machine codes whose lines are asked of the compiler: each takes about half a second of a core."""
BESIDE_S: Final = 3.0
"""How long the answer waits for the compiler when the profile is there."""
FILE: Final = "file"
"""Stands for the case of launches that a file makes without a task."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be profiled, whichever the kernel file and the case."""

    level: Level
    names: tuple[str, ...]
    """Metrics asked for by name."""
    kernels: tuple[str, ...]
    launches: int
    ahead: bool

    @property
    def wanted(self) -> list[str]:
        """Names of the metrics that are read."""
        return list(dict.fromkeys((*metrics.WANTED, *self.names)))


@dataclass(frozen=True, slots=True)
class Profiled:
    """One launch."""

    profile: LaunchProfile
    lines: HotspotReport | None
    rules: list[ReportedRule]
    metrics: dict[str, ReportedMetric]
    """Those that were asked for by name."""


@dataclass(frozen=True, slots=True)
class CaseProfile:
    """All launches of one call of the entry."""

    case: str
    launches: list[Profiled]
    """In the order of their starts."""
    left_out: int
    """Further launches that are not among them; where Nsight Compute counts, 1 says that there are more."""
    data: bytes | None
    """Nsight Compute's report."""
    compulsory_bytes: float | None = None
    useful_flops: float | None = None
    ceilings: Ceilings | None = None
    notes: list[str] = field(default_factory=list[str])
    cached: bool = False


async def profile_case(
    services: Services, profiler: Profiler, asked: Asked, kernel: Source, task: Source, spec: Task, case: str
) -> CaseProfile:
    """Profile one call of the entry on one case.

    Raises:
        Stopped: any failing outcome.
    """
    found = CaseProfile(case, [], 0, None)
    compiled = Compiled()

    @asynccontextmanager
    async def job(worker: KernelWorker) -> AsyncGenerator[None]:
        nonlocal found
        environment = await services.environment()
        async with (
            services.gpu_turn() as device,
            services.measuring(device) as shared,
            task_worker(services.executor, on_gpu=True) as tasks,
        ):
            await tasks.load(task)
            work = await tasks.work(case) or {}
            ceilings = await services.ceilings(device, tasks, environment.torch)
            await worker.load(kernel, spec)
            await worker.set_inputs(await tasks.make_inputs(case, seed=0))
            await worker.profile()
            yield
            await services.look_again(device, shared)
            found = replace(
                found,
                compulsory_bytes=work.get("bytes"),
                useful_flops=work.get("flops"),
                ceilings=ceilings,
                notes=[shared.note] if shared.note is not None else [],
            )

    outcome: Collected | Stopped | None = None
    async with anyio.create_task_group() as beside:
        if "--import-source" in asked.level.collect:
            beside.start_soon(_compile, services, compiled, kernel, task, spec, case)
        try:
            outcome = await profiler.collect(
                services,
                asked.level,
                job,
                wanted=asked.wanted,
                launches=asked.launches,
                kernels=asked.kernels,
                ahead=asked.ahead,
                # Where the compiler's are at hand, lines and offsets tell whether they are the measured ones.
                texts=lambda: not compiled.codes,
            )
        except Stopped as stopped:
            # Raised behind the group, which would wrap it.
            outcome = stopped
            beside.cancel_scope.cancel()
        else:
            # What the compiler has not said by now, the report says less well.
            beside.cancel_scope.deadline = anyio.current_time() + BESIDE_S
    if isinstance(outcome, Stopped):
        raise outcome
    assert outcome is not None
    collected = outcome
    launches = await anyio.to_thread.run_sync(
        read_launches, collected.report.launches, kernel.text, compiled, asked.names
    )
    return replace(found, launches=launches, left_out=collected.report.left_out, data=collected.data)


async def count_case(
    services: Services, asked: Asked, kernel: Source, task: Source, spec: Task, case: str
) -> CaseProfile:
    """Count what one call of the entry does through CUPTI, in an ordinary worker: the quick level.

    Raises:
        Stopped: any failing outcome.
    """
    environment = await services.environment()
    goal = await services.target(None)
    assert environment.gpu is not None
    async with (
        services.gpu_turn() as device,
        services.measuring(device) as shared,
        task_worker(services.executor, on_gpu=True) as tasks,
        gpu_worker(services.executor) as worker,
    ):
        await tasks.load(task)
        work = await tasks.work(case) or {}
        ceilings = await services.ceilings(device, tasks, environment.torch)
        await worker.load(kernel, spec)
        await worker.set_inputs(await tasks.make_inputs(case, seed=0))
        counted = await count(worker, (*metrics.FIRST_LOOK, *metrics.SECOND_LOOK), COUNTED_LIMIT)
        await services.look_again(device, shared)
    chosen = [launch for launch in counted.launches if not asked.kernels or launch.kernel in asked.kernels]
    launches = [reported(launch, goal.limits, environment.gpu.sm_count) for launch in chosen[: asked.launches]]
    return CaseProfile(
        case,
        read_launches(launches, kernel.text, Compiled(), ()),
        len(chosen) - len(launches) + (0 if asked.kernels else counted.left_out),
        None,
        compulsory_bytes=work.get("bytes"),
        useful_flops=work.get("flops"),
        ceilings=ceilings,
        notes=[shared.note] if shared.note is not None else [],
    )


async def profile_file(services: Services, profiler: Profiler, asked: Asked, kernel: Source) -> CaseProfile:
    """Profile the launches that a file makes when it is run as it stands.

    Raises:
        Stopped: any failing outcome.
    """
    notes: list[str] = []

    @asynccontextmanager
    async def job(worker: KernelWorker) -> AsyncGenerator[None]:
        async with services.gpu_turn() as device, services.measuring(device) as shared:
            try:
                await worker.profile_file(kernel, limit_s=0.75 * services.settings.limits.request_s)
            except Stopped as stopped:
                # What was launched until then is in the report.
                notes.append(f"The file ended early ({stopped.kind}: {stopped.problem.message[:200]})")
                if worker.process.handle.ended():
                    raise
            yield
            await services.look_again(device, shared)
            if shared.note is not None:
                notes.append(shared.note)

    names = asked.kernels or triton_functions(kernel)
    collected = await profiler.collect(
        services,
        asked.level,
        job,
        wanted=asked.wanted,
        launches=asked.launches,
        kernels=names,
        ahead=False,
        texts=lambda: True,
    )
    launches = await anyio.to_thread.run_sync(
        read_launches, collected.report.launches, kernel.text, Compiled(), asked.names
    )
    return CaseProfile(FILE, launches, collected.report.left_out, collected.data, notes=notes)


def triton_functions(kernel: Source) -> tuple[str, ...]:
    """Names of the file's functions with a decorator called `jit`; the file is parsed and not run.

    Raises:
        Stopped: ``rejected``, where it has none.
    """
    try:
        tree = ast.parse(kernel.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise rejected("source", f"{kernel.shown_as} is not valid Python: {error}", file=kernel.shown_as) from error
    found = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name.isascii()
        and any(_is_jit(decorator) for decorator in node.decorator_list)
    ]
    if not found:
        raise rejected(
            "source",
            f"{kernel.shown_as} has no @triton.jit function with a name of ASCII letters",
            file=kernel.shown_as,
            fix="Give the kernel file, or the task that calls it, or the names of the functions as kernel_names.",
        )
    return tuple(dict.fromkeys(found))


def _is_jit(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (isinstance(called, ast.Attribute) and called.attr == "jit") or (
        isinstance(called, ast.Name) and called.id == "jit"
    )


@dataclass(slots=True)
class Compiled:
    """What the compiler says of the launches' lines, by kernel name; a name may have several codes."""

    codes: dict[str, list[CompiledCode]] = field(default_factory=dict[str, list[CompiledCode]])


async def _compile(services: Services, into: Compiled, kernel: Source, task: Source, spec: Task, case: str) -> None:
    """Capture the same launches and disassemble them, beside the profile; where it fails, the report's lines remain."""
    try:
        goal = await services.target(None)
        async with (
            task_worker(services.executor, on_gpu=False) as tasks,
            capture_worker(services.executor, target=target_facts(goal)) as kernels,
        ):
            await tasks.load(task)
            await kernels.load(kernel, spec)
            await kernels.set_inputs(await tasks.make_inputs(case, seed=0, contents="repeated"))
            capture = await kernels.capture()
            codes = _codes(capture)
            explained = await kernels.explain(list(codes))
    except Stopped:
        return
    for code, (name, ptx, ttgir) in codes.items():
        explanation = explained.get(code)
        if explanation is not None and explanation.sass is not None:
            into.codes.setdefault(name, []).append(CompiledCode(explanation.sass, ptx, ttgir))


def _codes(capture: Capture) -> dict[str, tuple[str, str, str]]:
    """Machine codes by SHA-256, each with its kernel's name, PTX and TTGIR."""
    found: dict[str, tuple[str, str, str]] = {}
    for launch in capture.launches:
        texts = {stage: capture.blobs[blob] for stage, blob in launch.assembly.items()}
        if "cubin" in texts and len(found) < CODES_JOINED:
            ptx, ttgir = (texts.get(stage, b"").decode("utf-8", errors="replace") for stage in ("ptx", "ttgir"))
            found[hashlib.sha256(texts["cubin"]).hexdigest()] = (launch.kernel, ptx, ttgir)
    return found


def read_launches(
    launches: Sequence[ReportedLaunch], source: str, compiled: Compiled, names: Sequence[str]
) -> list[Profiled]:
    found: list[Profiled] = []
    for launch in launches:
        lines = None if launch.instructions is None else _lines(launch, source, compiled)
        rules = [rule for rule in launch.rules if rule.type in RULE_TYPES and "optional metric" not in rule.message]
        rules.sort(key=lambda rule: -(rule.speedup_pct or 0.0))
        asked_for = {name: launch.metrics[name] for name in names if name in launch.metrics}
        try:
            profile = summarize(launch)
        except ValueError as error:
            message = f"the report holds what no GPU counts: {error}"
            raise Stopped(Kind.CHEATING, Problem(stage="profile", message=message[:500])) from error
        found.append(Profiled(profile, lines, rules[:RULES_KEPT], asked_for))
    return found


def _lines(launch: ReportedLaunch, source: str, compiled: Compiled) -> HotspotReport | None:
    """By the compiled code that is the measured one, else by the report's own lines."""
    try:
        for code in compiled.codes.get(launch.kernel, []):
            report = hotspots(launch, source, {KERNEL_FILE}, code)
            if report.lines_from == "compiler":
                return report
        return hotspots(launch, source, {KERNEL_FILE}, None)
    except ValueError:
        # The report was written beside a kernel, and says what no report can.
        return None
