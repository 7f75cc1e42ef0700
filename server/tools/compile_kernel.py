"""compile_kernel: what the compiler made of each launch, for any target, with no GPU."""

from typing import Final, NamedTuple

from mcp_types import ToolAnnotations

from ...sandbox.errors import Stopped, rejected
from ...sandbox.source import Source, read_source
from ...sandbox.workers import capture_worker, task_worker
from ..services import Services, target_facts
from .compile_findings import Findings
from .compile_report import CompileResult, uncompared
from .parameters import Progress

NAME: Final = "compile_kernel"
TITLE: Final = "Compile a kernel and explain what the compiler did"
DESCRIPTION: Final = """\
Runs the entry on the task's cases with a capturing driver: every Triton launch is specialized and compiled \
exactly as for a real launch on the target, and nothing is launched; large random inputs hold a block of values over \
and over. Without a task the kernel file is run as it \
stands, and what it launches itself is compiled (its tests at the end, or its `__main__` block if nothing else \
launches); notes say where it failed after that. Works without a GPU, in seconds. Start here: it finds most \
inefficiencies before anything is timed.
Returns per launch: registers, spill_bytes, shared_bytes, theoretical_occupancy_pct with occupancy_limiter, mma \
(wgmma, mma, tcgen05, mfma or none), async_copies, access_widths_bytes (16 is best), waves, code_hash (equal hashes: \
the same machine code), places (lines to look at); and observations[], ranked, each with an id of the catalogue, the \
evidence and a suggestion. Assembly (TTGIR, PTX) and facts of all lines are linked under artifacts. With \
explain=true also explained[], one a distinct machine code (at most 3): its instructions by kind, how many are in \
loops and of which lines, local memory and spills by line, and remarks, what the compiler's passes said of their \
decisions; SASS, cubin, LLIR and TTIR join the artifacts. With compare also changes[], what differs from another \
kernel file, launch by launch: facts, operations, instructions, and the diff of the TTGIR as an artifact. kind is ok, \
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


class _Asked(NamedTuple):
    """What is to be compiled, whichever the kernel file."""

    task: Source | None
    cases: list[str] | None
    explain: bool


async def compile_kernel(
    services: Services,
    progress: Progress,
    *,
    kernel: str,
    task: str | None = None,
    target: str | None = None,
    cases: list[str] | None = None,
    explain: bool = False,
    compare: str | None = None,
) -> CompileResult:
    """Compile every launch of the entry for the target; without a task, every launch that the file itself makes.

    With `explain`, look into the machine code and ask the compiler's passes as well. With `compare`, compile that
    kernel file too and tell what differs; where it can't be compiled, a note says why.

    Raises:
        Stopped: any failing outcome.
    """
    kernel_source = read_source(kernel, "kernel")
    other_source = None if compare is None else read_source(compare, "compare")
    task_source = None if task is None else read_source(task, "task")
    if task_source is None and cases is not None:
        raise rejected(
            "task", "cases are those of a task, and no task is given", fix="Give the task too, or leave out cases."
        )
    goal = await services.target(target)
    await services.artifacts.prepare()
    asked = _Asked(task_source, cases, explain)
    found = Findings(services, goal)
    await _compile(found, progress, kernel_source, asked)
    if other_source is not None:
        other = Findings(services, goal)
        try:
            await _compile(other, progress, other_source, asked._replace(explain=False))
        except Stopped as stopped:
            found.note(uncompared(stopped, other_source.shown_as))
        else:
            await found.compare_with(other, other_source.shown_as)
    await found.store()
    return found.result()


async def _compile(found: Findings, progress: Progress, source: Source, asked: _Asked) -> None:
    if asked.task is None:
        await _compile_file(found, progress, source, explain=asked.explain)
    else:
        await _compile_cases(found, progress, source, asked.task, asked)


async def _compile_cases(found: Findings, progress: Progress, source: Source, task: Source, asked: _Asked) -> None:
    async with (
        task_worker(found.services.executor, on_gpu=False) as tasks,
        capture_worker(found.services.executor, target=target_facts(found.goal)) as kernels,
    ):
        spec = await tasks.load(task)
        found.entry = spec.entry
        chosen = spec.select(asked.cases)
        # Small cases are there for the interpreter: a tiny grid in them is no fault of the kernel.
        only_small = all(spec.cases[case].small for case in chosen)
        await kernels.load(source, spec)
        for number, case in enumerate(chosen):
            await progress(number, len(chosen), f"compiling case {case} of {source.shown_as} for {found.goal.name}")
            await kernels.set_inputs(await tasks.make_inputs(case, seed=0, contents="repeated"))
            capture = await kernels.capture()
            if not capture.launches:
                raise rejected(
                    "capture",
                    f"the entry {spec.entry!r} ran case {case!r} and launched no Triton kernel",
                    file=source.shown_as,
                    fix="The entry must launch at least one @triton.jit kernel: kernel[grid](...).",
                )
            counts = asked.cases is not None or not spec.cases[case].small or only_small
            await found.add(capture, case, observed=counts)
        if asked.explain:
            await progress(len(chosen), len(chosen), "reading the machine code")
            await found.explain(kernels)


async def _compile_file(found: Findings, progress: Progress, source: Source, *, explain: bool) -> None:
    """Run the file as it stands; where it fails after its first launch, those made until then count."""
    await progress(0, 1, f"running {source.shown_as} and compiling its launches for {found.goal.name}")
    async with capture_worker(found.services.executor, target=target_facts(found.goal)) as kernels:
        try:
            await kernels.run_file(source, limit_s=FILE_SHARE * found.services.settings.limits.request_s)
        except Stopped as stopped:
            found.failure = stopped
        try:
            capture = await kernels.captured()
        except Stopped as stopped:
            # A worker that was killed has nothing to hand over; why it was is what counts.
            raise found.failure or stopped from stopped
        await found.add(capture, FILE, observed=True)
        if explain and capture.launches:
            await found.explain(kernels)
    if not capture.launches:
        raise found.failure or rejected(
            "capture",
            f"{source.shown_as} launches no Triton kernel when it is run",
            file=source.shown_as,
            fix="Give a task (ENTRY, CASES, make_inputs) that says how to call it, or call the kernel at the end of "
            "the file, at module level or below if __name__ == '__main__'.",
        )
