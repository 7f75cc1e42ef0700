"""benchmark: paired, interleaved timing of a kernel against its baseline."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp_types import ToolAnnotations

from ...profiling.audit import blaming_baseline
from ...profiling.comparison import Comparison, Outcome, WeightedCase, combine, compare, log_ratios
from ...profiling.correctness import check_case
from ...profiling.hardware.model import Gpu
from ...profiling.roofline import speed_of_light
from ...profiling.rounds import AGAIN, ONCE, Plan
from ...profiling.statistics import median, spread
from ...profiling.timing import Times, Timing, launch_bound, longest, time_entry
from ...sandbox.errors import Stopped, rejected
from ...sandbox.facts import Audit
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import Source, read_source
from ...sandbox.task import Task
from ...sandbox.wire import Wire
from ...sandbox.workers import KernelWorker, TaskWorker, Values, gpu_worker, task_worker
from ..audits import sound_audit
from ..results import Result
from ..services import Services
from .parameters import Progress

NAME: Final = "benchmark"
TITLE: Final = "Time a kernel against its baseline"
DESCRIPTION: Final = """\
Times the entry on the GPU, and the baseline's beside it: separate processes, interleaved ABBA blocks in random \
order, L2 flushed before every call, input buffers rotated, device times from CUPTI. Each case is checked \
against the reference before and after. Needs a GPU.
Returns cases[]: device_us (first kernel start to last kernel end), kernel_us (sum of kernels), call_us (host call \
to completion), ratio = baseline time / candidate time (above 1 is faster) with its 95 % interval \
ratio_low..ratio_high, comparison (faster, slower, same, ambiguous), min_detectable_pct, speed_of_light_pct where \
the task gives work(); and score, the weighted geometric mean. Without a baseline ratios are null. Believe \
comparison, not ratio alone."""
ANNOTATIONS: Final = ToolAnnotations(
    # It runs the code that it is given, in a sandbox where the machine allows one.
    title=TITLE,
    read_only_hint=False,
    idempotent_hint=False,
    destructive_hint=False,
    open_world_hint=True,
)

KERNELS_SHOWN: Final = 5


class KernelTime(Wire):
    """One kernel or copy of the entry."""

    name: str
    us: float
    """Mean time a call."""


class CaseTimes(Wire):
    """One case's times and, where there is a baseline, the comparison."""

    case: str
    kernel_us: float
    """Time that the device spends in the entry's kernels and copies, median over all samples."""
    device_us: float
    """First start to last end on the device, median; the ratio compares these."""
    device_us_mad: float
    """Median absolute deviation of `device_us`."""
    call_us: float
    """Host call to completion, launch overhead included, median."""
    kernels: list[KernelTime]
    """What the time goes to, longest first."""
    sm_clock_hz: float | None
    """SM clock under this load, at the end of each block, median."""
    baseline_kernel_us: float | None = None
    baseline_device_us: float | None = None
    baseline_call_us: float | None = None
    baseline_sm_clock_hz: float | None = None
    ratio: float | None = None
    """Baseline time over candidate time: above 1 is faster."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    comparison: Outcome | None = None
    min_detectable_pct: float | None = None
    """Smallest change of time that this measurement would have seen."""
    call_ratio: float | None = None
    """The same ratio for `call_us`, without an interval: what reaches a caller who waits for each call."""
    speed_of_light_pct: float | None = None
    """Floor time (from the task's work and data-sheet peaks) over `device_us`."""
    bound: str | None = None
    """`memory` or `compute`: which floor is the higher."""
    samples: int
    """Timed calls, of both sides."""
    notes: list[str] = []


class BenchmarkResult(Result):
    """What `benchmark` returns."""

    gpu: str | None = None
    cases: list[CaseTimes] = []
    score: Comparison | None = None
    """Weighted geometric mean of the cases' ratios; null without a baseline."""


async def benchmark(
    services: Services,
    progress: Progress,
    *,
    kernel: str,
    task: str,
    baseline: str | None = None,
    cases: list[str] | None = None,
) -> BenchmarkResult:
    """Time the chosen cases.

    Raises:
        Stopped: any failing outcome; ``unavailable`` without a GPU.
    """
    kernel_source, task_source = read_source(kernel, "kernel"), read_source(task, "task")
    baseline_source = None if baseline is None else read_source(baseline, "baseline")
    environment = await services.require_gpu("benchmark")
    assert environment.gpu is not None
    gpu = await services.gpu()
    results: list[CaseTimes] = []
    weighted: list[WeightedCase] = []
    async with (
        services.gpu_turn() as device,
        task_worker(services.executor, on_gpu=True) as tasks,
        gpu_worker(services.executor) as candidate,
        _optional_worker(services, baseline_source) as other,
    ):
        spec = await tasks.load(task_source)
        chosen = [case for case in spec.select(cases) if cases is not None or not spec.cases[case].small]
        if not chosen:
            raise rejected("task", "every case is marked small, for the CPU interpreter", fix="Add a case to time.")
        await candidate.load(kernel_source, spec)
        if other is not None and baseline_source is not None:
            with blaming_baseline():
                await other.load(baseline_source, spec)
        for number, case in enumerate(chosen):
            await progress(number, len(chosen), f"timing case {case}")
            audit = None
            if spec.has_reference or other is not None:
                reference, expected_from = (None, None) if spec.has_reference else (other, baseline_source)
                audit = await sound_audit(
                    services.audits, case, spec, tasks, task_source, reference, expected_from, on_gpu=True
                )
            async with services.measuring(device) as shared:
                times, comparison = await _measure(case, spec, tasks, candidate, other, gpu, audit)
            if shared.note is not None:
                times = times.model_copy(update={"notes": [*times.notes, shared.note]})
            results.append(times)
            if comparison is not None:
                weighted.append(WeightedCase(spec.cases[case].weight, comparison[0], comparison[1]))
    score = combine(weighted) if weighted else None
    return BenchmarkResult(
        kind=Kind.OK,
        summary=_summary(environment.gpu.name, results, score),
        next_step=_next_step(score),
        gpu=environment.gpu.name,
        cases=results,
        score=score,
    )


@asynccontextmanager
async def _optional_worker(services: Services, source: Source | None) -> AsyncGenerator[KernelWorker | None]:
    if source is None:
        yield None
        return
    async with gpu_worker(services.executor) as worker:
        yield worker


async def _measure(
    case: str,
    spec: Task,
    tasks: TaskWorker,
    candidate: KernelWorker,
    other: KernelWorker | None,
    gpu: Gpu | None,
    audit: Audit | None,
) -> tuple[CaseTimes, tuple[Comparison, list[float]] | None]:
    checked = spec.has_reference or other is not None
    if checked:
        await _check(case, ONCE, spec, tasks, candidate, other, audit)
    inputs = await tasks.make_inputs(case, secrets.randbelow(1 << 31))
    if other is not None:
        # First, and copied by it before the candidate gets the same memory, to which it could write.
        await other.set_inputs(inputs)
    await candidate.set_inputs(inputs)
    timing = await time_entry(candidate, other)
    if checked:
        # What was honest until the clock stopped must still be.
        await _check(case, AGAIN, spec, tasks, candidate, other, None)
    comparison = (compare(timing.pairs), log_ratios(timing.pairs)) if timing.pairs else None
    work = await tasks.work(case) if spec.has_work else None
    return _case_times(case, timing, comparison, work, gpu, inputs), comparison


async def _check(
    case: str,
    plan: Plan,
    spec: Task,
    tasks: TaskWorker,
    candidate: KernelWorker,
    other: KernelWorker | None,
    audit: Audit | None,
) -> None:
    """A wrong kernel's time is worth nothing."""
    reference = None if spec.has_reference else other
    result = await check_case(case, plan, spec, tasks, candidate, reference=reference, audit=audit)
    if result.kind is not Kind.OK:
        when = "so nothing was timed" if plan is ONCE else "after it was timed, so the times are worth nothing"
        raise Stopped(
            result.kind,
            Problem(
                stage="compare",
                message=f"case {case}: the results are wrong, {when}: {result.message}",
                likely_cause=result.likely_cause,
                likely_fix="Run run_correctness for the place and size of the worst error.",
            ),
        )


def _case_times(
    case: str,
    timing: Timing,
    comparison: tuple[Comparison, list[float]] | None,
    work: dict[str, float] | None,
    gpu: Gpu | None,
    inputs: Values,
) -> CaseTimes:
    times, baseline = timing.candidate, timing.baseline
    device = spread(times.device_us)
    call_us = median(times.call_us)
    notes: list[str] = []
    light = None
    if work is not None and gpu is not None:
        light = speed_of_light(
            work.get("bytes"),
            work.get("flops"),
            duration_us=device.median,
            memory_bytes_per_s=gpu.memory_bytes_per_s,
            flops_per_s=_peak(gpu, inputs.tree),
        )
        if light.faster_than_light:
            notes.append(
                "faster than the data sheet allows for the task's work(): the work was not done, work() is too high, "
                "or part of the traffic stayed in L2"
            )
    if launch_bound(times):
        notes.append(
            f"launch-bound: a call takes {call_us:.1f} us and the device works {device.median:.1f} us of it; fusing "
            "launches or a CUDA graph gains more than a faster kernel"
        )
    fields: dict[str, Any] = {}
    if comparison is not None and baseline is not None:
        found = comparison[0]
        fields = {
            "baseline_kernel_us": median(baseline.kernel_us),
            "baseline_device_us": median(baseline.device_us),
            "baseline_call_us": median(baseline.call_us),
            "baseline_sm_clock_hz": _clock_hz(baseline),
            "ratio": found.ratio,
            "ratio_low": found.ratio_low,
            "ratio_high": found.ratio_high,
            "comparison": found.comparison,
            "min_detectable_pct": found.min_detectable_pct,
            "call_ratio": median(baseline.call_us) / call_us,
        }
    return CaseTimes(
        case=case,
        kernel_us=median(times.kernel_us),
        device_us=device.median,
        device_us_mad=device.mad,
        call_us=call_us,
        kernels=[KernelTime(name=name, us=us) for name, us in longest(times, KERNELS_SHOWN)],
        sm_clock_hz=_clock_hz(times),
        speed_of_light_pct=light.pct if light is not None else None,
        bound=light.bound if light is not None else None,
        samples=len(times.device_us) + (len(baseline.device_us) if baseline is not None else 0),
        notes=notes,
        **fields,
    )


def _clock_hz(times: Times) -> float | None:
    return median(times.sm_clock_hz) if times.sm_clock_hz else None


def _peak(gpu: Gpu, tree: Any) -> float | None:
    """The highest rate that the inputs' types allow, so that the floor is a true lower bound."""
    names = _dtypes(tree)
    if any(name.startswith("float8") for name in names):
        return gpu.peak_fp8_dense_flops_per_s
    if names & {"float16", "bfloat16"}:
        return gpu.peak_bf16_dense_flops_per_s
    return gpu.peak_tf32_dense_flops_per_s if "float32" in names else None


def _dtypes(tree: Any) -> set[str]:
    """Data types of the tensors in an encoded tree of the task's worker."""
    if "tensor" in tree:
        return {str(tree["tensor"]["dtype"])}
    children = tree.get("list") or tree.get("tuple") or [item for _, item in tree.get("dict", ())]
    return {name for child in children for name in _dtypes(child)}


def _summary(gpu: str, results: list[CaseTimes], score: Comparison | None) -> str:
    lines: list[str] = []
    if score is not None:
        lines.append(
            f"{score.comparison.upper()}: {score.ratio:.3f}x of the baseline's speed over all cases (95 % interval "
            f"{score.ratio_low:.3f} to {score.ratio_high:.3f}) on {gpu}."
        )
    else:
        lines.append(f"Timed on {gpu}; no baseline was given, so nothing is compared.")
    for times in results:
        line = (
            f"- {times.case}: {times.device_us:.2f} us on the device (kernels {times.kernel_us:.2f}, whole call "
            f"{times.call_us:.1f})"
        )
        if times.ratio is not None and times.baseline_device_us is not None:
            line += (
                f", baseline {times.baseline_device_us:.2f} us: {times.comparison}, {times.ratio:.3f}x "
                f"[{times.ratio_low:.3f}, {times.ratio_high:.3f}]"
            )
            if times.min_detectable_pct is not None:
                line += f", smallest visible change {times.min_detectable_pct:.2f} %"
        if times.speed_of_light_pct is not None:
            line += f"; {times.speed_of_light_pct:.0f} % of the speed of light ({times.bound}-bound)"
        lines.append(line)
        lines += [f"  ! {note}" for note in times.notes]
    return "\n".join(lines)


def _next_step(score: Comparison | None) -> str:
    match score.comparison if score is not None else None:
        case None:
            return "Pass a baseline to compare with."
        case "faster":
            return "Keep it as the one to beat; profile_ncu shows what limits it now."
        case "slower":
            return "Drop this idea; compare compile facts and profiles to see what it cost."
        case "same":
            return "No gain worth having: profile_ncu shows what really limits the kernel."
        case "ambiguous":
            return "Time it again, or on larger cases; do not act on this ratio."
