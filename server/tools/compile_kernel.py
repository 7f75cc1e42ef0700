"""compile_kernel: what the compiler made of each launch, for any target, with no GPU."""

from typing import Final

from mcp_types import ToolAnnotations

from ...profiling.compiler.launch import LaunchFacts, RawLaunch, build
from ...profiling.compiler.observations import Observation, observe
from ...profiling.hardware.model import Target
from ...sandbox.errors import rejected
from ...sandbox.facts import Capture, CapturedLaunch
from ...sandbox.outcome import Kind
from ...sandbox.source import read_source
from ...sandbox.workers import capture_worker, task_worker
from ..results import Result
from ..services import Services, target_facts
from .parameters import Progress

NAME: Final = "compile_kernel"
TITLE: Final = "Compile a kernel and explain what the compiler did"
DESCRIPTION: Final = """\
Runs the entry on the task's cases with a capturing driver: every Triton launch is specialized and compiled \
exactly as for a real launch on the target, and nothing is launched. Works without a GPU, in seconds. Start here: \
it finds most inefficiencies before anything is timed.
Returns per launch: registers, spill_bytes, shared_bytes, theoretical_occupancy_pct with occupancy_limiter, mma \
(wgmma, mma or none), async_copies, access_widths_bytes (16 is best), waves, code_hash (equal hashes: the same \
machine code); and observations[], ranked, each with an id of the catalogue, the evidence and a suggestion. \
Assembly (TTGIR, PTX) is linked under artifacts. kind is ok, compile_error, launch_error (e.g. too much shared \
memory), rejected, unsupported, runtime_error, timeout or unavailable; anything but ok carries problem with line, \
excerpt, likely cause and fix."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=True,
    destructive_hint=False,
    open_world_hint=True,
)

LAUNCHES_SHOWN: Final = 4
OBSERVATIONS_SHOWN: Final = 8
ARGUMENTS_SHOWN: Final = 12
"""Constants, and arguments without known divisibility, that a launch lists."""
ARTIFACT_STAGES: Final = ("ttgir", "ptx")


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


class LaunchObservation(Observation):
    """An observation and the launch that it is about."""

    kernel: str
    case: str


class CompileResult(Result):
    """What `compile_kernel` returns."""

    target: str | None = None
    entry: str | None = None
    launches: list[Launch] = []
    launches_omitted: int = 0
    """Further distinct launches that are not listed."""
    observations: list[LaunchObservation] = []


async def compile_kernel(
    services: Services,
    progress: Progress,
    *,
    kernel: str,
    task: str,
    target: str | None = None,
    cases: list[str] | None = None,
) -> CompileResult:
    """Compile every launch of the entry for the target.

    Raises:
        Stopped: any failing outcome.
    """
    kernel_source, task_source = read_source(kernel, "kernel"), read_source(task, "task")
    goal = await services.target(target)
    await services.artifacts.prepare()
    launches: list[Launch] = []
    observations: list[LaunchObservation] = []
    artifacts: dict[str, str] = {}
    async with (
        task_worker(services.executor, on_gpu=False) as tasks,
        capture_worker(services.executor, target=target_facts(goal)) as kernels,
    ):
        spec = await tasks.load(task_source)
        chosen = spec.select(cases)
        # Small cases are there for the interpreter: a tiny grid in them is no fault of the kernel.
        only_small = all(spec.cases[case].small for case in chosen)
        await kernels.load(kernel_source, spec)
        for number, case in enumerate(chosen):
            await progress(number, len(chosen), f"compiling case {case} for {goal.name}")
            await kernels.set_inputs(await tasks.make_inputs(case, seed=0))
            capture = await kernels.capture()
            if not capture.launches:
                raise rejected(
                    "capture",
                    f"the entry {spec.entry!r} ran case {case!r} and launched no Triton kernel",
                    file=kernel_source.shown_as,
                    fix="The entry must launch at least one @triton.jit kernel: kernel[grid](...).",
                )
            for captured in capture.launches:
                facts = _facts(captured, capture, goal)
                launches.append(_launch(facts, captured, case))
                if not captured.tuning and (cases is not None or not spec.cases[case].small or only_small):
                    sm_count = goal.gpu.sm_count if goal.gpu is not None else None
                    observations += [
                        LaunchObservation(**found.model_dump(), kernel=captured.kernel, case=case)
                        for found in observe(facts, goal.limits, sm_count)
                    ]
                    for stage in ARTIFACT_STAGES:
                        data = capture.blobs[captured.assembly[stage]]
                        stored = await services.artifacts.put(f"{captured.kernel}.{stage}", data)
                        artifacts.setdefault(stored.uri, stored.name)
    shown = sorted(launches, key=lambda launch: launch.tuning)[:LAUNCHES_SHOWN]
    observations = _distinct(observations)
    return CompileResult(
        kind=Kind.OK,
        summary=_summary(goal, shown, len(launches) - len(shown), observations),
        next_step=_next_step(observations),
        target=goal.name,
        entry=spec.entry,
        launches=shown,
        launches_omitted=len(launches) - len(shown),
        observations=observations,
        artifacts=list(artifacts)[: 2 * LAUNCHES_SHOWN],
    )


def _facts(captured: CapturedLaunch, capture: Capture, goal: Target) -> LaunchFacts:
    return build(
        RawLaunch(
            kernel=captured.symbol,
            grid=captured.grid,
            num_warps=captured.num_warps,
            num_stages=captured.num_stages,
            num_ctas=captured.num_ctas,
            shared_bytes=captured.shared_bytes,
            ptx=capture.text(captured, "ptx"),
            ttgir=capture.text(captured, "ttgir"),
            ptxas_log=captured.ptxas_log,
        ),
        goal,
    )


def _launch(facts: LaunchFacts, captured: CapturedLaunch, case: str) -> Launch:
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
                name: str(value)[:80] for name, value in list(captured.constexprs.items())[:ARGUMENTS_SHOWN]
            },
            "not_divisible_by_16": [
                name
                for name, kind in captured.signature.items()
                if (kind.startswith("*") or kind in {"i32", "i64"}) and name not in divisible
            ][:ARGUMENTS_SHOWN],
            "access_widths_bytes": sorted(widths, reverse=True),
        }
    )


def _distinct(observations: list[LaunchObservation]) -> list[LaunchObservation]:
    """One of each kind a kernel, the first case that shows it; cases mostly repeat one another."""
    seen: dict[tuple[str, str], LaunchObservation] = {}
    for observation in observations:
        seen.setdefault((observation.id, observation.kernel), observation)
    return list(seen.values())[:OBSERVATIONS_SHOWN]


def _summary(goal: Target, shown: list[Launch], omitted: int, observations: list[LaunchObservation]) -> str:
    lines = [f"Compiled for {goal.name}: {len(shown) + omitted} distinct launch(es)."]
    for launch in shown:
        occupancy = (
            "unknown occupancy"
            if launch.theoretical_occupancy_pct is None
            else f"occupancy {launch.theoretical_occupancy_pct:.0f} % (limit: {launch.occupancy_limiter})"
        )
        lines.append(
            f"- {launch.kernel} [{launch.case}] grid {'x'.join(map(str, launch.grid))}, {launch.num_warps} warps, "
            f"{launch.num_stages} stages: {_or_unknown(launch.registers)} registers, "
            f"{_or_unknown(launch.spill_bytes)} B spilled, {launch.shared_bytes:,} B shared, {occupancy}, "
            f"mma {launch.mma}, {launch.async_copies} async copies, loads {_widths(launch.load_widths_bytes)}, "
            f"stores {_widths(launch.store_widths_bytes)}, code {launch.code_hash}"
            + (" (autotuner's trial)" if launch.tuning else "")
        )
    if omitted:
        lines.append(f"- {omitted} more, not shown; cases=[...] chooses")
    lines += [
        f"! {found.id} {found.title} [{found.case}]: {found.detail} -> {found.suggestion}" for found in observations
    ]
    if not observations:
        lines.append("Nothing that the compiler's output alone shows to be wrong.")
    return "\n".join(lines)


def _next_step(observations: list[LaunchObservation]) -> str:
    if observations:
        return f"Address {observations[0].id} first, compile again to see that it went, then run_correctness."
    return "Check it with run_correctness, then time it with benchmark."


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)


def _widths(widths: list[int]) -> str:
    return "/".join(map(str, widths)) + " B wide" if widths else "none"
