"""benchmark: paired, interleaved timing of a kernel against its baseline."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Final, Literal

import anyio
from mcp_types import ToolAnnotations

from ...profiling.audit import blaming_baseline
from ...profiling.comparison import WeightedCase, combine, log_ratios
from ...profiling.correctness import check_case
from ...profiling.hardware.ceilings import Ceilings
from ...profiling.hardware.model import Gpu
from ...profiling.roofline import SpeedOfLight, Work, speed_of_light
from ...profiling.rounds import AGAIN, ONCE, Plan
from ...profiling.statistics import interquartile_mean
from ...profiling.timing import FULL
from ...profiling.witness import stray_work
from ...sandbox.conditions import Conditions, conditions
from ...sandbox.errors import Stopped, rejected
from ...sandbox.facts import Audit
from ...sandbox.nvml import NvmlUnavailable
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import Source, read_source
from ...sandbox.task import Task
from ...sandbox.workers import KernelWorker, TaskWorker, gpu_worker, task_worker
from ..audits import sound_audit
from ..services import Services
from ..timed_case import CaseTimer
from ..timed_result import Reference, TimedCase
from .benchmark_report import BenchmarkResult, CaseTimes, case_times, result
from .benchmark_samples import samples
from .parameters import Progress

NAME: Final = "benchmark"
TITLE: Final = "Time a kernel against its baseline"
DESCRIPTION: Final = """\
Times the entry on the GPU, and the baseline's beside it: separate processes, interleaved ABBA blocks in random \
order, L2 flushed before every call, contents new in every call, buffers rotated, device times from CUPTI, results of \
timed calls checked. Where an entry only launches Triton kernels, its binaries are replayed by a process that never \
loads the file (timing: replayed). Stops as soon as the interval decides. Needs a GPU.
Returns cases[]: device_us (first kernel start to last kernel end), kernel_us (sum of kernels), call_us (host call \
to completion), ratio = baseline time / candidate time (above 1 is faster) with its 95 % interval \
ratio_low..ratio_high, comparison (faster, slower, same, ambiguous; at most 1 % false alarms), min_detectable_pct, \
speed_of_light_pct and headroom where the task gives work(); and score, the weighted geometric mean. Without a \
baseline ratios are null. against=["eager", "torch.compile"] times the reference too. Believe comparison, not ratio \
alone."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=False,
    destructive_hint=False,
    open_world_hint=True,
)


async def benchmark(
    services: Services,
    progress: Progress,
    *,
    kernel: str | Source,
    task: str | Source,
    baseline: str | Source | None = None,
    cases: list[str] | None = None,
    against: list[Reference] | None = None,
    cache: Literal["cold", "warm"] = "cold",
) -> BenchmarkResult:
    """Time the chosen cases.

    Raises:
        Stopped: any failing outcome; ``unavailable`` without a GPU.
    """
    kernel_source, task_source = read_source(kernel, "kernel"), read_source(task, "task")
    baseline_source = None if baseline is None else read_source(baseline, "baseline")

    async def evaluate(answer: Callable[[BenchmarkResult], None]) -> None:
        environment = await services.require_gpu("benchmark")
        assert environment.gpu is not None
        await services.artifacts.prepare()
        gpu = await services.gpu()
        plan = FULL if cache == "cold" else replace(FULL, flush_bytes=0)
        timed: list[TimedCase] = []
        results: list[CaseTimes] = []
        weighted: list[WeightedCase] = []
        async with services.gpu_turn() as device, services.measuring(device) as shared, AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(task_worker(services.executor, on_gpu=True))
            candidate = await stack.enter_async_context(gpu_worker(services.executor))
            other = None if baseline_source is None else await stack.enter_async_context(gpu_worker(services.executor))
            spec = await tasks.load(task_source)
            chosen = [case for case in spec.select(cases) if cases is not None or not spec.cases[case].small]
            if not chosen:
                raise rejected("task", "every case is marked small, for the CPU interpreter", fix="Add a case to time.")
            await candidate.load(kernel_source, spec)
            kernels = [(kernel_source, candidate)]
            if other is not None and baseline_source is not None:
                with blaming_baseline():
                    await other.load(baseline_source, spec)
                kernels.append((baseline_source, other))
            ceilings = await services.ceilings(device, tasks, environment.torch) if spec.has_work else None
            timer = CaseTimer(
                services.executor,
                stack,
                spec,
                task_source,
                tasks,
                kernels,
                plan=plan,
                against=against or [],
                watch=partial(_conditions, device.uuid),
            )
            for number, case in enumerate(chosen):
                await progress(number, len(chosen), f"timing case {case}")
                started = await timer.start(case)
                judge = _Judge(case, spec, tasks, candidate, other)
                if judge.can:
                    reference, expected_from = (None, None) if spec.has_reference else (other, baseline_source)
                    audit = await sound_audit(
                        services.audits, case, spec, tasks, task_source, reference, expected_from, on_gpu=True
                    )
                    await judge.look(ONCE, audit)
                found = await timer.time(started)
                if judge.can:
                    # What was honest until the clock stopped must still be.
                    await judge.look(AGAIN, None)
                _require_no_strays(found)
                light = None
                if spec.has_work:
                    work, l2_bytes = await tasks.work(case), environment.gpu.l2_bytes
                    light = _light(found, work, gpu, l2_bytes, ceilings, warm=cache == "warm")
                    _require_possible(found, light)
                times, comparison = case_times(found, light)
                timed.append(found)
                results.append(times)
                if comparison is not None:
                    ratios = [log_ratios(group) for group in found.groups]
                    weighted.append(WeightedCase(case, spec.cases[case].weight, comparison, ratios))
            await services.look_again(device, shared)
            if shared.note is not None:
                results = [times.model_copy(update={"notes": [*times.notes, shared.note]}) for times in results]
            artifact = await services.artifacts.put("benchmark-samples.json", samples(timed))
            score = combine(weighted) if weighted else None
            for worker in (tasks, candidate, other):
                if worker is not None:
                    worker.end()
            timer.end()
            answer(result(environment.gpu.name, cache, results, score, [artifact.uri]))

    return await services.answered(evaluate)


class _Judge:
    """Whether results of one case are right, before and after it is timed: a wrong kernel's time is worth nothing."""

    def __init__(
        self, case: str, spec: Task, tasks: TaskWorker, candidate: KernelWorker, other: KernelWorker | None
    ) -> None:
        self._case, self._spec, self._tasks, self._candidate, self._other = case, spec, tasks, candidate, other
        self.can = spec.has_reference or other is not None
        """Whether anything says what is right."""

    async def look(self, plan: Plan, audit: Audit | None) -> None:
        """Check the case.

        Raises:
            Stopped: the results are wrong.
        """
        reference = None if self._spec.has_reference else self._other
        found = await check_case(
            self._case, plan, self._spec, self._tasks, self._candidate, reference=reference, audit=audit
        )
        if found.kind is not Kind.OK:
            when = "so nothing was timed" if plan is ONCE else "after it was timed, so the times are worth nothing"
            raise Stopped(
                found.kind,
                Problem(
                    stage="compare",
                    message=f"case {self._case}: the results are wrong, {when}: {found.message}",
                    likely_cause=found.likely_cause,
                    likely_fix="Run run_correctness for the place and size of the worst error.",
                ),
            )


async def _conditions(uuid: str) -> Conditions | None:
    try:
        return await anyio.to_thread.run_sync(conditions, uuid)
    except NvmlUnavailable:
        return None


def _require_no_strays(found: TimedCase) -> None:
    """Work that is put off until nobody looks is no faster.

    Raises:
        Stopped: ``cheating``.
    """
    strays = [name for times in (found.candidate, *(pair[0] for pair in found.further)) for name in stray_work(times)]
    if strays:
        raise Stopped(
            Kind.CHEATING,
            Problem(
                stage="benchmark",
                message=f"case {found.case}: between the timed calls the device runs work that is part of none of "
                f"them: {', '.join(strays[:3])}",
                likely_cause="A thread that launches after the entry has returned.",
                likely_fix="Launch everything before the entry returns.",
            ),
        )


def _light(
    found: TimedCase,
    work: dict[str, float] | None,
    gpu: Gpu | None,
    l2_bytes: int,
    ceilings: Ceilings | None,
    *,
    warm: bool,
) -> SpeedOfLight | None:
    """How the candidate's time compares with the least that its work can take."""
    if work is None:
        return None
    return speed_of_light(
        Work(
            bytes=work.get("bytes"),
            flops=work.get("flops"),
            dtypes=found.dtypes,
            input_bytes=found.input_bytes,
            output_bytes=found.results_bytes,
            l2_warm=warm,
        ),
        duration_us=interquartile_mean(found.candidate.device_us()),
        gpu=gpu,
        l2_bytes=l2_bytes,
        ceilings=ceilings,
    )


def _require_possible(found: TimedCase, light: SpeedOfLight | None) -> None:
    """Nothing is faster than light.

    Raises:
        Stopped: ``cheating``, with the arithmetic.
    """
    if light is not None and light.verdict == "impossible":
        raise Stopped(
            Kind.CHEATING,
            Problem(
                stage="benchmark",
                message=f"case {found.case}: faster than this GPU can be: {light.explanation}",
                likely_cause="Part of the work is not done in each call, or the task's work() counts too much.",
                likely_fix="Do all of it in each call; else the task's author corrects work().",
            ),
        )
