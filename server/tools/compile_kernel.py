"""compile_kernel: what the compiler made of each launch, for any target, with no GPU."""

import hashlib
from typing import Final, NamedTuple

import anyio
from mcp_types import ToolAnnotations

from ...profiling.compiler import remarks, sass_facts
from ...profiling.compiler.backends import backend_of
from ...profiling.compiler.details import LaunchDetails
from ...profiling.compiler.launch import LaunchFacts
from ...profiling.hardware.model import Target
from ...sandbox.errors import Stopped, rejected
from ...sandbox.facts import Capture, CapturedLaunch, Explanation
from ...sandbox.outcome import Kind
from ...sandbox.source import Source, read_source
from ...sandbox.workers import KernelWorker, capture_worker, task_worker
from ..results import ended
from ..services import Services, target_facts
from .compile_report import (
    EXPLAINED,
    LAUNCHES_SHOWN,
    PLACES_NAMED,
    REMARKS_SHOWN,
    CompileResult,
    ExplainedCode,
    Launch,
    LaunchObservation,
    distinct,
    ended_early,
    launch_of,
    next_step,
    summary,
    unexplained,
)
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
evidence and a suggestion. Assembly (TTGIR, PTX) and facts of all lines are linked under artifacts. With \
explain=true also explained[], one a distinct machine code (at most 3): its instructions by kind, how many are in \
loops and of which lines, local memory and spills by line, and remarks, what the compiler's passes said of their \
decisions; SASS, cubin, LLIR and TTIR join the artifacts. kind is ok, \
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
KERNEL_FILE: Final = "kernel.py"
"""What a worker calls the kernel file."""
ARTIFACTS_OF_ONE: Final = 7
"""Of a launch that was explained: TTIR, TTGIR, LLIR, PTX, SASS, cubin and facts of all lines."""
NOT_READ: Final = "only NVIDIA's machine code is read, and there is none of this launch"


async def compile_kernel(
    services: Services,
    progress: Progress,
    *,
    kernel: str,
    task: str | None = None,
    target: str | None = None,
    cases: list[str] | None = None,
    explain: bool = False,
) -> CompileResult:
    """Compile every launch of the entry for the target; without a task, every launch that the file itself makes.

    With `explain`, look into the machine code and ask the compiler's passes as well.

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
        return await _compile_file(found, progress, kernel_source, explain=explain)
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
            found.add(capture, case, observed=counts)
        if explain:
            await progress(len(chosen), len(chosen), "reading the machine code")
            await found.explain(kernels)
    await found.store()
    return found.result(entry=spec.entry)


async def _compile_file(found: "_Findings", progress: Progress, source: Source, *, explain: bool) -> CompileResult:
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
        found.add(capture, FILE, observed=True)
        if explain and capture.launches:
            await found.explain(kernels)
    if not capture.launches:
        raise failure or rejected(
            "capture",
            f"{source.shown_as} launches no Triton kernel when it is run",
            file=source.shown_as,
            fix="Give a task (ENTRY, CASES, make_inputs) that says how to call it, or call the kernel at the end of "
            "the file, at module level or below if __name__ == '__main__'.",
        )
    await found.store()
    return found.result(failure=failure)


class _Kept(NamedTuple):
    """A launch in which a fault counts, with what is known of its lines."""

    captured: CapturedLaunch
    capture: Capture
    case: str
    facts: LaunchFacts
    lines: LaunchDetails

    @property
    def binary(self) -> bytes | None:
        """NVIDIA's machine code."""
        blob = self.captured.assembly.get("cubin")
        return None if blob is None else self.capture.blobs[blob]


class _Findings:
    """Launches and observations, case by case."""

    def __init__(self, services: Services, goal: Target) -> None:
        self.services, self.goal = services, goal
        self._backend = backend_of(goal)
        self._launches: list[Launch] = []
        self._observations: list[LaunchObservation] = []
        self._kept: list[_Kept] = []
        self._explained: dict[str, ExplainedCode] = {}
        self._sass: dict[str, str] = {}
        self._notes: list[str] = []
        self._artifacts: dict[str, str] = {}

    def add(self, capture: Capture, case: str, *, observed: bool) -> None:
        """Take the launches of a case; `observed` are those in which a fault counts."""
        for captured in capture.launches:
            facts = self._backend.facts(capture, captured, self.goal)
            lines = self._backend.details(capture, captured)
            self._launches.append(launch_of(facts, captured, case, lines.places))
            if captured.tuning or not observed:
                continue
            self._observations += [
                LaunchObservation(**found.model_dump(), kernel=captured.kernel, case=case)
                for found in self._backend.observations(facts, self.goal)
            ]
            self._kept.append(_Kept(captured, capture, case, facts, lines))

    async def explain(self, kernels: KernelWorker) -> None:
        """Look into the machine codes of the launches, in the worker that compiled them."""
        codes: dict[str, _Kept] = {}
        for kept in self._kept:
            if len(codes) < EXPLAINED:
                codes.setdefault(kept.facts.code_hash, kept)
        wanted = {name: _sha256(kept.binary) for name, kept in codes.items() if kept.binary is not None}
        try:
            found = await kernels.explain(list(wanted.values())) if wanted else {}
        except Stopped as stopped:
            self._notes.append(unexplained(stopped))
            return
        for name, kept in codes.items():
            explanation = found.get(wanted.get(name, ""), Explanation([], None, NOT_READ))
            self._explained[name], lines = await anyio.to_thread.run_sync(_read, kept, explanation)
            if explanation.sass is not None:
                self._sass[name] = explanation.sass
            if kept.binary is None:
                continue
            # Equal code of another function has lines of its own.
            self._kept = [each._replace(lines=lines) if each.binary == kept.binary else each for each in self._kept]

    async def store(self) -> None:
        """Keep what a result links to: all assembly of what was explained, and two texts of others."""
        for kept in self._kept:
            explained = kept.facts.code_hash in self._explained
            stages = kept.captured.assembly if explained else self._backend.stages
            files = {stage: kept.capture.blobs[kept.captured.assembly[stage]] for stage in stages}
            if kept.facts.code_hash in self._sass:
                files["sass"] = self._sass[kept.facts.code_hash].encode()
            files["lines.json"] = kept.lines.model_dump_json().encode()
            for suffix, data in files.items():
                stored = await self.services.artifacts.put(f"{kept.captured.kernel}.{suffix}", data)
                self._artifacts.setdefault(stored.uri, stored.name)

    def result(self, *, entry: str | None = None, failure: Stopped | None = None) -> CompileResult:
        """Everything together; `failure` is how the file ended after its last launch."""
        shown = sorted(self._launches, key=lambda launch: launch.tuning)[:LAUNCHES_SHOWN]
        omitted = len(self._launches) - len(shown)
        observations = distinct(self._observations)
        at_fault = failure is not None and failure.kind in BY_FAULT_OF_A_KERNEL
        notes = ([] if failure is None else [ended_early(failure)]) + self._notes
        explained = list(self._explained.values())
        if explained:
            # For room: the artifact of all lines has the others.
            shown = [launch.model_copy(update={"places": launch.places[:PLACES_NAMED]}) for launch in shown]
        told = summary(self.goal, shown, omitted, observations, explained, self._backend.unobserved)
        outcome = CompileResult(kind=Kind.OK, summary="", next_step=next_step(observations))
        if failure is not None and at_fault:
            outcome = ended(CompileResult, failure.kind, failure.problem)
        kinds = len(self._backend.stages) + 1 if not explained else ARTIFACTS_OF_ONE
        return outcome.model_copy(
            update={
                "summary": "\n".join(filter(None, [outcome.summary, *notes, told])),
                "target": self.goal.name,
                "entry": entry,
                "launches": shown,
                "launches_omitted": omitted,
                "observations": observations,
                "explained": explained,
                "notes": notes,
                "artifacts": list(self._artifacts)[: kinds * LAUNCHES_SHOWN],
            }
        )


def _sha256(binary: bytes) -> str:
    return hashlib.sha256(binary).hexdigest()


def _read(kept: _Kept, explanation: Explanation) -> tuple[ExplainedCode, LaunchDetails]:
    """What an explanation says, for the result and for the artifact of all lines."""
    sass = None
    if explanation.sass is not None:
        sass = sass_facts.read(explanation.sass, kept.capture.text(kept.captured, "ptx"), kept.facts.spill_bytes)
    said = remarks.parse(explanation.said, KERNEL_FILE)
    lines = kept.lines.model_copy(update={"sass": sass.sites if sass else [], "remarks": said})
    code = ExplainedCode(
        kernel=kept.captured.kernel,
        case=kept.case,
        code_hash=kept.facts.code_hash,
        sass=sass.facts if sass else None,
        absent=None if sass else explanation.reason or NOT_READ,
        remarks=said[:REMARKS_SHOWN],
    )
    return code, lines
