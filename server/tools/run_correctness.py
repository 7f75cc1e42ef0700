"""run_correctness: every element of every output against the reference, on random and structured inputs."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final

from mcp_types import ToolAnnotations

from ...profiling.audit import blaming_baseline
from ...profiling.correctness import CaseResult, check_case
from ...profiling.rounds import Plan
from ...profiling.sanitizer.report import sentence
from ...sandbox.errors import Stopped, rejected
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import Source, read_source
from ...sandbox.task import Task
from ...sandbox.workers import KernelWorker, TaskWorker, gpu_worker, interpreter_worker, task_worker
from ..audits import sound_audit
from ..results import Result
from ..sanitizing import SanitizerReport, sanitize
from ..services import Services, target_facts
from .correctness_report import INTERPRETER, SANITIZER_CAUSES, next_step, problem, sanitizer_lines, summary
from .parameters import Progress

NAME: Final = "run_correctness"
TITLE: Final = "Check a kernel's results"
DESCRIPTION: Final = """\
Compares every output element of the entry with the task's reference (or, without one, with the baseline kernel) on \
fresh random inputs under several seeds, and on structured ones (zeros, ramps, extreme magnitudes, -0, denormals; \
layouts that the task allows). The reference runs in another process; seeds are drawn after the candidate is loaded. \
Also seen: stores outside of tensors, changed inputs, outputs that alias, uninitialised reads, results that differ \
between two calls, a precision below the type's (against float64), work that is not done by the file's Triton kernels. \
The task itself is audited first: if zeros, ones, an input or shuffled results pass its tolerance it is rejected.
On a GPU it runs there; without one in Triton's interpreter, on the cases marked small or on smaller ones; device says \
which (`cuda:0` or `interpreter`). The interpreter checks the arithmetic, not races or the compiler. sanitize=true \
runs compute-sanitizer as well (about 15 s, needs a GPU).
Returns cases[]: kind (ok or wrong), check, max_abs_error, max_rel_error, wrong_elements, worst_index with expected \
and got, message with where the wrong elements lie. kind is ok, wrong, cheating, or the failure: compile_error, \
launch_error, runtime_error, timeout, unsupported, rejected, ... with problem (line, excerpt, likely cause and fix)."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=False,
    destructive_hint=False,
    open_world_hint=True,
)

DEFAULT_SEEDS: Final = 3
SEEDS_LIMIT: Final = 64
CASES_SHOWN: Final = 12
INTERPRETED_ELEMENTS: Final = 1 << 15
"""Of a case's inputs together, where a case is made smaller for the interpreter: some seconds at most."""
SANITIZED_ELEMENTS: Final = 1 << 20
"""The same for compute-sanitizer, which is ten to a hundred times as slow as the GPU alone."""
SANITIZED_KINDS: Final = frozenset({Kind.RUNTIME_ERROR, Kind.CHEATING})
"""Failures of a call that the sanitizer may explain."""


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
    made_smaller: dict[str, dict[str, Any]] = {}
    """Cases whose parameters were made smaller for the interpreter, with those that were used."""
    not_checked: dict[str, str] = {}
    """Cases after a wrong one that were not checked, as a later call failed; with the reason where it is their own."""
    sanitizer: SanitizerReport | None = None
    """What compute-sanitizer found, where it was asked for."""


async def run_correctness(
    services: Services,
    progress: Progress,
    *,
    kernel: str | Source,
    task: str | Source,
    baseline: str | Source | None = None,
    cases: list[str] | None = None,
    seeds: int = DEFAULT_SEEDS,
    sanitized: bool = False,
) -> CorrectnessResult:
    """Check the entry on the chosen cases.

    Raises:
        Stopped: any outcome but ``ok`` and ``wrong``.
    """
    sources = _Sources(read_source(kernel, "kernel"), read_source(task, "task"))
    if baseline is not None:
        sources.baseline = read_source(baseline, "baseline")
    if sanitized:
        await services.require_gpu("sanitize")
    on_gpu = await services.has_gpu()

    async def evaluate(answer: Callable[[CorrectnessResult], None], alone: bool) -> None:
        async with (
            services.gpu_turn(alone=alone) if on_gpu else nullcontext(),
            task_worker(services.executor, on_gpu=on_gpu) as tasks,
        ):
            spec = await tasks.load(sources.task)
            if not spec.has_reference and sources.baseline is None:
                raise rejected(
                    "task",
                    "the task has no reference and no baseline was given: there is nothing to compare with",
                    file=sources.task.shown_as,
                    fix="Add `def reference(*inputs): ...` to the task, or pass the baseline kernel file.",
                )
            if spec.grad and not spec.has_reference:
                raise rejected(
                    "task",
                    "GRAD = True needs a reference to take the gradients of",
                    file=sources.task.shown_as,
                    fix="Add `def reference(*inputs): ...` to the task.",
                )
            chosen, smaller = await choose(spec, tasks, cases, on_gpu)
            told = None if sanitized else answer
            result: CorrectnessResult | None = None
            failure: Stopped | None = None
            try:
                result = await _check(services, progress, sources, spec, tasks, chosen, smaller, seeds, on_gpu, told)
            except Stopped as stopped:
                if not sanitized or stopped.kind not in SANITIZED_KINDS:
                    raise
                failure = stopped
            if not sanitized:
                return
            await progress(len(chosen), len(chosen) + 1, "running compute-sanitizer")
            report = await _sanitized(services, sources.kernel, spec, tasks, chosen[0])
        if failure is not None:
            summary_of_both = f"{failure.problem.message}\n{sanitizer_lines(report)}"
            answer(
                CorrectnessResult(kind=failure.kind, summary=summary_of_both, problem=failure.problem, sanitizer=report)
            )
        else:
            assert result is not None
            answer(_with_sanitizer(result, report))

    return await services.answered(lambda answer: services.beside_others(partial(evaluate, answer)))


class _Sources:
    """The files of a call."""

    def __init__(self, kernel: Source, task: Source) -> None:
        self.kernel = kernel
        self.task = task
        self.baseline: Source | None = None


async def _check(
    services: Services,
    progress: Progress,
    sources: _Sources,
    spec: Task,
    tasks: TaskWorker,
    chosen: list[str],
    smaller: dict[str, dict[str, Any]],
    seeds: int,
    on_gpu: bool,
    answer: Callable[[CorrectnessResult], None] | None,
) -> CorrectnessResult:
    """Check the cases; where it is the last that is done, the answer is told before the workers are ended."""
    results: list[CaseResult] = []
    not_checked: dict[str, str] = {}
    expected_from = None if spec.has_reference else sources.baseline
    async with (
        _baseline_worker(services, on_gpu, expected_from) as reference,
        _kernel_worker(services, on_gpu) as candidate,
    ):
        if reference is not None and expected_from is not None:
            with blaming_baseline():
                await reference.load(expected_from, spec)
        await candidate.load(sources.kernel, spec)
        # First of all: where a case proves nothing, no time is spent on the others.
        audits = {
            case: await sound_audit(
                services.audits,
                case,
                spec,
                tasks,
                sources.task,
                reference,
                expected_from,
                on_gpu=on_gpu,
                parameters=smaller.get(case),
            )
            for case in chosen
        }
        for number, case in enumerate(chosen):
            await progress(number, len(chosen), f"checking case {case}")
            plan, audit = Plan(seeds=seeds), audits[case]
            try:
                results.append(await check_case(case, plan, spec, tasks, candidate, reference=reference, audit=audit))
            except Stopped as stopped:
                if all(result.kind is Kind.OK for result in results):
                    raise
                # What is known to be wrong stays so, whatever the kernel did to its worker after that.
                not_checked = {left: stopped.problem.message if left == case else "" for left in chosen[number:]}
                break
        candidate.end()
        if reference is not None:
            reference.end()
        result = _result(results, not_checked, sources, spec, seeds, on_gpu, smaller)
        if answer is not None:
            tasks.end()
            answer(result)
    return result


def _result(
    results: list[CaseResult],
    not_checked: dict[str, str],
    sources: _Sources,
    spec: Task,
    seeds: int,
    on_gpu: bool,
    smaller: dict[str, dict[str, Any]],
) -> CorrectnessResult:
    wrong = [result for result in results if result.kind is Kind.WRONG]
    shown = sorted(results, key=lambda result: result.kind is Kind.OK)[:CASES_SHOWN]
    ran_on = "cuda:0" if on_gpu else INTERPRETER
    return CorrectnessResult(
        kind=Kind.WRONG if wrong else Kind.OK,
        summary=summary(results, shown, ran_on, seeds, smaller, not_checked),
        next_step=next_step(wrong, on_gpu),
        problem=problem(wrong[0], sources.kernel) if wrong else None,
        device=ran_on,
        reference="task" if spec.has_reference else "baseline",
        cases=shown,
        cases_omitted=len(results) - len(shown),
        made_smaller=smaller,
        not_checked=not_checked,
    )


async def _sanitized(services: Services, kernel: Source, spec: Task, tasks: TaskWorker, case: str) -> SanitizerReport:
    small = [name for name, one in spec.cases.items() if one.small]
    if small:
        case = small[0]
    else:
        await tasks.shrink(case, SANITIZED_ELEMENTS)
    return await sanitize(services, kernel, spec, tasks, case, seed=0)


def _with_sanitizer(result: CorrectnessResult, report: SanitizerReport) -> CorrectnessResult:
    """The result with the sanitizer's findings, which make right results wrong."""
    fields: dict[str, Any] = {"sanitizer": report, "summary": f"{result.summary}\n{sanitizer_lines(report)}"}
    if report.findings and result.kind is Kind.OK:
        first = report.findings[0]
        fields["kind"] = Kind.WRONG
        fields["next_step"] = "Mend what compute-sanitizer found: the outputs were right by luck."
        fields["problem"] = Problem(
            stage="sanitize",
            message=f"compute-sanitizer: {sentence(first)}",
            file=first.file,
            line=first.line,
            likely_cause=SANITIZER_CAUSES.get(first.tool),
            likely_fix="Look at the addresses and masks of this line for the programs at the edges.",
        )
    return result.model_copy(update=fields)


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


async def choose(
    spec: Task, tasks: TaskWorker, cases: list[str] | None, on_gpu: bool
) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """The cases to run, and the parameters of those that were made smaller for the interpreter."""
    chosen = spec.select(cases)
    if on_gpu or cases is not None:
        return chosen, {}
    small = [name for name in chosen if spec.cases[name].small]
    if small:
        return small, {}
    case = chosen[0]
    try:
        return [case], {case: await tasks.shrink(case, INTERPRETED_ELEMENTS)}
    except Stopped as stopped:
        raise rejected(
            "task",
            "there is no GPU here, no case is marked as small enough for Triton's interpreter, and case "
            f"{case} can't be made smaller: {stopped.problem.message}",
            fix="Add 'small': True to a case of at most a few thousand programs (about 1 ms each), or name cases "
            "to run all the same.",
        ) from stopped
