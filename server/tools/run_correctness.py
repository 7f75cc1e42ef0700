"""run_correctness: every element of every output against the reference, on fresh random inputs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from mcp_types import ToolAnnotations

from ...profiling.correctness import CaseResult, check_case
from ...sandbox.errors import rejected
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import Source, read_source
from ...sandbox.task import Task
from ...sandbox.workers import (
    KernelWorker,
    gpu_worker,
    interpreter_worker,
    task_worker,
)
from ..results import Result
from ..services import Services, target_facts
from .parameters import Progress

NAME: Final = "run_correctness"
TITLE: Final = "Check a kernel's results"
DESCRIPTION: Final = """\
Compares every output element of the entry with the task's reference (or, without one, with the baseline kernel) \
on fresh random inputs, several seeds a case. The reference runs in another process; seeds are drawn after the \
candidate is loaded. On a GPU it runs there; without one it uses Triton's interpreter on the cases marked small, \
and device says which (`cuda:0` or `interpreter`). Outputs are judged: stores past a tensor's end that change no \
output are not seen. The interpreter checks the arithmetic, not races or the compiler.
Returns cases[]: kind (ok or wrong), max_abs_error, max_rel_error, wrong_elements, worst_index with expected and \
got. kind is ok, wrong, or the failure: compile_error, launch_error, runtime_error, timeout, unsupported, \
rejected, ... with problem (line, excerpt, likely cause and fix)."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=False,
    destructive_hint=False,
    open_world_hint=True,
)

DEFAULT_SEEDS: Final = 3
SEEDS_LIMIT: Final = 20
CASES_SHOWN: Final = 12
INTERPRETER: Final = "interpreter"


class CorrectnessResult(Result):
    """What `run_correctness` returns."""

    device: str | None = None
    """`cuda:0`, or `interpreter` for Triton's interpreter on the CPU."""
    reference: str | None = None
    """Where expected outputs came from: `task` or `baseline`."""
    cases: list[CaseResult] = []
    """The wrong ones first."""
    cases_omitted: int = 0
    """Further cases, all right, that are not listed."""


async def run_correctness(
    services: Services,
    progress: Progress,
    *,
    kernel: str,
    task: str,
    baseline: str | None = None,
    cases: list[str] | None = None,
    seeds: int = DEFAULT_SEEDS,
) -> CorrectnessResult:
    """Check the entry on the chosen cases.

    Raises:
        Stopped: any outcome but ``ok`` and ``wrong``.
    """
    kernel_source, task_source = read_source(kernel, "kernel"), read_source(task, "task")
    baseline_source = None if baseline is None else read_source(baseline, "baseline")
    on_gpu = await services.has_gpu()
    results: list[CaseResult] = []
    async with (
        services.gpu_turn() if on_gpu else nullcontext(),
        task_worker(services.executor, on_gpu=on_gpu) as tasks,
        _kernel_worker(services, on_gpu) as candidate,
    ):
        spec = await tasks.load(task_source)
        chosen = _choose(spec, cases, on_gpu)
        if not spec.has_reference and baseline_source is None:
            raise rejected(
                "task",
                "the task has no reference and no baseline was given: there is nothing to compare with",
                file=task_source.shown_as,
                fix="Add `def reference(*inputs): ...` to the task, or pass the baseline kernel file.",
            )
        async with _baseline_worker(services, on_gpu, None if spec.has_reference else baseline_source) as reference:
            if reference is not None and baseline_source is not None:
                await reference.load(baseline_source, spec)
            await candidate.load(kernel_source, spec)
            for number, case in enumerate(chosen):
                await progress(number, len(chosen), f"checking case {case}")
                results.append(await check_case(case, seeds, tasks, candidate, reference))
    wrong = [result for result in results if result.kind is Kind.WRONG]
    shown = sorted(results, key=lambda result: result.kind is Kind.OK)[:CASES_SHOWN]
    ran_on = "cuda:0" if on_gpu else INTERPRETER
    return CorrectnessResult(
        kind=Kind.WRONG if wrong else Kind.OK,
        summary=_summary(results, shown, ran_on, seeds),
        next_step=_next_step(wrong, on_gpu),
        problem=_problem(wrong[0], kernel_source) if wrong else None,
        device=ran_on,
        reference="task" if spec.has_reference else "baseline",
        cases=shown,
        cases_omitted=len(results) - len(shown),
    )


@asynccontextmanager
async def _kernel_worker(services: Services, on_gpu: bool) -> AsyncGenerator[KernelWorker]:
    if on_gpu:
        async with gpu_worker(services.executor) as worker:
            yield worker
    else:
        facts = target_facts(await services.target(None))
        async with interpreter_worker(services.executor, target=facts) as worker:
            yield worker


@asynccontextmanager
async def _baseline_worker(
    services: Services, on_gpu: bool, baseline: Source | None
) -> AsyncGenerator[KernelWorker | None]:
    if baseline is None:
        yield None
        return
    async with _kernel_worker(services, on_gpu) as worker:
        yield worker


def _choose(spec: Task, cases: list[str] | None, on_gpu: bool) -> list[str]:
    chosen = spec.select(cases)
    if on_gpu or cases is not None:
        return chosen
    small = [name for name in chosen if spec.cases[name].small]
    if not small:
        raise rejected(
            "task",
            "there is no GPU here, and no case is marked as small enough for Triton's interpreter",
            fix="Add 'small': True to a case of at most a few thousand programs (about 1 ms each), or name cases "
            "to run all the same.",
        )
    return small


def _summary(results: list[CaseResult], shown: list[CaseResult], device: str, seeds: int) -> str:
    right = sum(result.kind is Kind.OK for result in results)
    where = "on the GPU" if device != INTERPRETER else "in Triton's interpreter on the CPU (not on a GPU)"
    lines = [f"{right} of {len(results)} cases right, {seeds} seed(s) each, checked {where}."]
    for result in shown:
        if result.message is not None:
            lines.append(f"- {result.case}: WRONG with seed {result.seeds[-1]}: {result.message}")
        else:
            lines.append(
                f"- {result.case}: ok, {result.elements:,} elements, max abs error {result.max_abs_error:.3g}, "
                f"max rel error {result.max_rel_error:.3g}"
            )
    return "\n".join(lines)


def _next_step(wrong: list[CaseResult], on_gpu: bool) -> str:
    if wrong and wrong[0].max_abs_error is None:
        return "Return what the reference returns: number of outputs, shape, dtype and device."
    if wrong:
        return "Mend the kernel where the worst element lies, then run_correctness again. Do not loosen the tolerance."
    if on_gpu:
        return "Time it against the baseline with benchmark."
    return "Compare compile facts with the baseline's; check on a GPU before you rely on it."


def _problem(wrong: CaseResult, kernel: Source) -> Problem:
    assert wrong.message is not None
    shape_differs = wrong.max_abs_error is None
    return Problem(
        stage="compare",
        message=wrong.message,
        file=kernel.shown_as,
        likely_cause="The output's form differs from the reference's."
        if shape_differs
        else "A mask, an offset, a missing accumulation, or a lower precision than the task asks for.",
        likely_fix="Return what the reference returns: number of outputs, shape, dtype and device."
        if shape_differs
        else f"Work out by hand what the program that writes {wrong.worst_output}{wrong.worst_index} reads.",
    )
