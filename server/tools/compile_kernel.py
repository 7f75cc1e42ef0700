"""compile_kernel: what the compiler made of each launch, for any target, with no GPU."""

from typing import Final

from mcp_types import ToolAnnotations

from ...profiling.compiler.details import Place, details
from ...profiling.compiler.launch import LaunchFacts, RawLaunch, build
from ...profiling.compiler.observations import Observation, observe
from ...profiling.hardware.model import Target
from ...sandbox.errors import Stopped, rejected
from ...sandbox.facts import Capture, CapturedLaunch, line
from ...sandbox.outcome import Kind
from ...sandbox.source import Source, read_source
from ...sandbox.workers import capture_worker, task_worker
from ..results import Result, ended
from ..services import Services, target_facts
from .parameters import Progress

NAME: Final = "compile_kernel"
TITLE: Final = "Compile a kernel and explain what the compiler did"
DESCRIPTION: Final = """\
Runs the entry on the task's cases with a capturing driver: every Triton launch is specialized and compiled \
exactly as for a real launch on the target, and nothing is launched. Without a task the kernel file is run as it \
stands, and what it launches itself is compiled (its tests at the end, or its `__main__` block if nothing else \
launches); notes say where it failed after that. Works without a GPU, in seconds. Start here: it finds most \
inefficiencies before anything is timed.
Returns per launch: registers, spill_bytes, shared_bytes, theoretical_occupancy_pct with occupancy_limiter, mma \
(wgmma, mma or none), async_copies, access_widths_bytes (16 is best), waves, code_hash (equal hashes: the same \
machine code), places (lines to look at); and observations[], ranked, each with an id of the catalogue, the \
evidence and a suggestion. Assembly (TTGIR, PTX) and facts of all lines are linked under artifacts. kind is ok, \
compile_error, launch_error (e.g. too much shared memory), rejected, unsupported, runtime_error, timeout or \
unavailable; anything but ok carries problem with line, excerpt, likely cause and fix."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=True,
    destructive_hint=False,
    open_world_hint=True,
)

FILE: Final = "file"
"""Stands for the case of launches that a file makes without a task."""
FILE_SHARE: Final = 0.75
"""Of a request's time: how long a file runs, so that a slow one still hands over the launches that it made."""
BY_FAULT_OF_A_KERNEL: Final = frozenset({Kind.COMPILE_ERROR, Kind.LAUNCH_ERROR})
"""A file that ends so did not only miss its results: one of its launches can't be made."""
LAUNCHES_SHOWN: Final = 4
PLACES_SHOWN: Final = 6
PLACES_NAMED: Final = 3
"""In the text."""
OBSERVATIONS_SHOWN: Final = 8
MESSAGE_SHOWN: Final = 180
"""Characters of an exception in a note."""
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
    places: list[Place] = []
    """Lines of the kernel file that cost most by the compiler's output, the worst first; all lines are an artifact."""


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
    notes: list[str] = []
    """What a reader of the launches must know, such as the line at which the file failed after them."""


async def compile_kernel(
    services: Services,
    progress: Progress,
    *,
    kernel: str,
    task: str | None = None,
    target: str | None = None,
    cases: list[str] | None = None,
) -> CompileResult:
    """Compile every launch of the entry for the target; without a task, every launch that the file itself makes.

    Raises:
        Stopped: any failing outcome.
    """
    kernel_source = read_source(kernel, "kernel")
    task_source = None if task is None else read_source(task, "task")
    if task_source is None and cases is not None:
        raise rejected(
            "task", "cases are those of a task, and no task is given", fix="Give the task too, or leave out cases."
        )
    goal = await services.target(target)
    await services.artifacts.prepare()
    found = _Findings(services, goal)
    if task_source is None:
        return await _compile_file(found, progress, kernel_source)
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
            counts = cases is not None or not spec.cases[case].small or only_small
            await found.add(capture, case, observed=counts)
    return found.result(entry=spec.entry)


async def _compile_file(found: "_Findings", progress: Progress, source: Source) -> CompileResult:
    """Run the file as it stands; where it fails after its first launch, those made until then count."""
    await progress(0, 1, f"running {source.shown_as} and compiling its launches for {found.goal.name}")
    failure: Stopped | None = None
    async with capture_worker(found.services.executor, target=target_facts(found.goal)) as kernels:
        try:
            await kernels.run_file(source, limit_s=FILE_SHARE * found.services.settings.limits.request_s)
        except Stopped as stopped:
            failure = stopped
        try:
            capture = await kernels.captured()
        except Stopped as stopped:
            # A worker that was killed has nothing to hand over; why it was is what counts.
            raise failure or stopped from stopped
    if not capture.launches:
        raise failure or rejected(
            "capture",
            f"{source.shown_as} launches no Triton kernel when it is run",
            file=source.shown_as,
            fix="Give a task (ENTRY, CASES, make_inputs) that says how to call it, or call the kernel at the end of "
            "the file, at module level or below if __name__ == '__main__'.",
        )
    await found.add(capture, FILE, observed=True)
    return found.result(failure=failure)


class _Findings:
    """Launches and observations, case by case."""

    def __init__(self, services: Services, goal: Target) -> None:
        self.services, self.goal = services, goal
        self._launches: list[Launch] = []
        self._observations: list[LaunchObservation] = []
        self._artifacts: dict[str, str] = {}

    async def add(self, capture: Capture, case: str, *, observed: bool) -> None:
        """Take the launches of a case; `observed` are those in which a fault counts."""
        sm_count = self.goal.gpu.sm_count if self.goal.gpu is not None else None
        for captured in capture.launches:
            facts = _facts(captured, capture, self.goal)
            lines = details(capture.text(captured, "ptx"), capture.text(captured, "ttgir"))
            self._launches.append(_launch(facts, captured, case, lines.places[:PLACES_SHOWN]))
            if captured.tuning or not observed:
                continue
            self._observations += [
                LaunchObservation(**found.model_dump(), kernel=captured.kernel, case=case)
                for found in observe(facts, self.goal.limits, sm_count)
            ]
            for stage in ARTIFACT_STAGES:
                data = capture.blobs[captured.assembly[stage]]
                stored = await self.services.artifacts.put(f"{captured.kernel}.{stage}", data)
                self._artifacts.setdefault(stored.uri, stored.name)
            stored = await self.services.artifacts.put(
                f"{captured.kernel}.lines.json", lines.model_dump_json().encode()
            )
            self._artifacts.setdefault(stored.uri, stored.name)

    def result(self, *, entry: str | None = None, failure: Stopped | None = None) -> CompileResult:
        """Everything together; `failure` is how the file ended after its last launch."""
        shown = sorted(self._launches, key=lambda launch: launch.tuning)[:LAUNCHES_SHOWN]
        omitted = len(self._launches) - len(shown)
        observations = _distinct(self._observations)
        at_fault = failure is not None and failure.kind in BY_FAULT_OF_A_KERNEL
        notes = [] if failure is None else [_note(failure)]
        summary = _summary(self.goal, shown, omitted, observations)
        outcome = CompileResult(kind=Kind.OK, summary="", next_step=_next_step(observations))
        if failure is not None and at_fault:
            outcome = ended(CompileResult, failure.kind, failure.problem)
        return outcome.model_copy(
            update={
                "summary": "\n".join(filter(None, [outcome.summary, *notes, summary])),
                "target": self.goal.name,
                "entry": entry,
                "launches": shown,
                "launches_omitted": omitted,
                "observations": observations,
                "notes": notes,
                "artifacts": list(self._artifacts)[: (len(ARTIFACT_STAGES) + 1) * LAUNCHES_SHOWN],
            }
        )


def _note(failure: Stopped) -> str:
    problem = failure.problem
    where = "" if problem.line is None else f" at line {problem.line}"
    message = " ".join(problem.message.split())[:MESSAGE_SHOWN]
    return line(
        f"The file ended early{where} ({failure.kind}: {message}); these are the launches made until then. "
        "Outputs hold no results here: checks of values fail, and what depends on them is not run."
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


def _launch(facts: LaunchFacts, captured: CapturedLaunch, case: str, places: list[Place]) -> Launch:
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
            "places": [place.model_dump() for place in places],
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
        if launch.places:
            named = (f"line {place.line} {place.what} ({place.detail})" for place in launch.places[:PLACES_NAMED])
            lines.append(f"  lines to look at: {'; '.join(named)}")
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
