"""Times a kernel beside variants of it that leave out one kind of work, to place the time of a call.

A variant's results are wrong by design: nobody looks at them, and no variant is kept. Original and variant are timed by
their own calls in processes of their own, in the same blocks and with the same inputs, L2 flushed before each call.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final, NamedTuple, get_args

import anyio

from ..profiling.comparison import LOOKS, compare, decide
from ..profiling.diagnosis.placed import PlacedProbe, placed, told, unplaced
from ..profiling.diagnosis.probes import DEFAULT, ProbeName, ProbeVariant, Unmade, variant
from ..profiling.statistics import median, spread
from ..profiling.times import Side, pairs
from ..profiling.timing import FULL, Interleaving, Plan, first_calls, lay_out, until
from ..sandbox.errors import Stopped, rejected
from ..sandbox.executors.base import Executor
from ..sandbox.outcome import Kind, Problem
from ..sandbox.replies import Values
from ..sandbox.source import Source
from ..sandbox.task import Task
from ..sandbox.timing_facts import FirstCall, Sample, Tuned
from ..sandbox.wire import Wire
from ..sandbox.workers import KernelWorker, gpu_worker, task_worker
from .services import Services

PLAN: Final[Plan] = replace(FULL, settling_blocks=4, time_limit_s=1.0)
"""Of a variant beside the original; what is asked is where the time goes, not whether half a percent is gained."""
BLOCKS: Final = 15
"""At most: from so many on a difference can also be told to be none."""
LEAST_BLOCKS: Final = LOOKS[0]
SEED: Final = 20
"""Of the inputs, which are the same in all calls."""
REASON_CHARACTERS: Final = 400
NOT_RESULTS: Final = "Results of variants are wrong by design: no variant is a candidate."


class ProbeResult(Wire):
    """Where the time of a call goes."""

    case: str
    original_us: float | None = None
    """A call of the original on the device, median over all that it was timed beside; null where nothing was timed."""
    original_low_us: float | None = None
    """Lower end of the 95 % interval of `original_us`."""
    original_high_us: float | None = None
    probes: list[PlacedProbe] = []
    """Those asked for, in the order of `ProbeName`."""
    says: list[str] = []
    """What follows, a sentence each."""
    notes: list[str] = []


class _Original(NamedTuple):
    """The kernel as it is, ready to be timed."""

    worker: KernelWorker
    first: FirstCall
    calls: int
    """Of a visit."""
    layouts: int
    tuned: list[Tuned]
    blocks: list[list[Sample]]
    """All that it was timed in."""


def names_of(wanted: Sequence[str]) -> list[ProbeName]:
    """The probes asked for; those that tell most, if none is named.

    Raises:
        Stopped: ``rejected``, for a name that is no probe.
    """
    known: tuple[ProbeName, ...] = get_args(ProbeName)
    for name in wanted:
        if name not in known:
            raise rejected("probe", f"there is no probe {name[:40]!r}", fix=f"Choose from {', '.join(known)}.")
    return [name for name in known if name in wanted] if wanted else list(DEFAULT)


async def probe(
    services: Services,
    kernel: Source,
    task: Source,
    spec: Task,
    case: str,
    wanted: Sequence[str],
    *,
    launched: Mapping[str, int] | None = None,
) -> ProbeResult:
    """Time the original and the variants, on this machine's GPU. Takes a turn on it: not to be asked within one.

    Args:
        services: the server's.
        kernel: the kernel file.
        task: the task file.
        spec: what the task says.
        case: of the task.
        wanted: names of probes; empty: those that tell most.
        launched: names of the kernels that a call launches, each with its num_stages, where that is known.

    Raises:
        Stopped: ``rejected`` for an unknown probe; ``unavailable`` without a GPU; or the original can't be timed.
    """
    names = names_of(wanted)
    made = [await anyio.to_thread.run_sync(variant, kernel.text, name, launched) for name in names]
    if all(isinstance(one, Unmade) for one in made):
        return ProbeResult(case=case, probes=[unplaced(one) for one in made])
    await services.require_gpu("probe")
    async with services.gpu_turn() as device, services.measuring(device) as shared, AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(task_worker(services.executor, on_gpu=True))
        await tasks.load(task)
        inputs = await tasks.make_inputs(case, SEED)
        worker = await stack.enter_async_context(gpu_worker(services.executor))
        original = await _started(worker, kernel, spec, inputs)
        probes: list[PlacedProbe] = []
        for one in made:
            match one:
                case Unmade():
                    probes.append(unplaced(one))
                case ProbeVariant():
                    probes.append(await _timed(services.executor, original, one, kernel, spec, inputs))
        await services.look_again(device, shared)
        notes = [NOT_RESULTS, *([shared.note] if shared.note is not None else [])]
    times = spread([sample.device_us for block in original.blocks for sample in block]) if original.blocks else None
    return ProbeResult(
        case=case,
        original_us=times.median if times is not None else None,
        original_low_us=times.low if times is not None else None,
        original_high_us=times.high if times is not None else None,
        probes=probes,
        says=told(probes),
        notes=notes,
    )


async def _started(worker: KernelWorker, source: Source, spec: Task, inputs: Values) -> _Original:
    """A kernel file that has compiled, tuned itself and made room.

    Raises:
        Stopped: it doesn't load, compile or run.
    """
    await worker.load(source, spec)
    await worker.set_inputs(inputs)
    side = Side("probed", worker)
    firsts = await first_calls([side], PLAN, None)
    tuned = await worker.tuned()
    calls = await lay_out([side], PLAN, firsts)
    return _Original(worker, firsts[0], calls, side.layouts, tuned, [])


async def _timed(
    executor: Executor, original: _Original, made: ProbeVariant, kernel: Source, spec: Task, inputs: Values
) -> PlacedProbe:
    """A variant beside the original, or why it has no time.

    Raises:
        Stopped: the original can no longer be timed.
    """
    async with gpu_worker(executor) as worker:
        try:
            its = await _started(worker, Source(made.text, kernel.shown_as, kernel.origin), spec, inputs)
            if (other := _other_choice(original.tuned, its.tuned)) is not None:
                return unplaced(made, other)
            sides = [Side(made.name, worker, its.layouts), Side("original", original.worker, original.layouts)]
            timing = Interleaving(sides, min(its.calls, original.calls), PLAN)
            await _until_told(timing)
        except Stopped as stopped:
            if stopped.kind is Kind.CANCELLED:
                raise
            # Whoever it was: if the original still runs, it was the variant.
            await original.worker.visit(0, [0] * original.calls)
            return unplaced(made, _reason(stopped.problem))
    mine, its_original = (side.times for side in timing.sides)
    original.blocks.extend(its_original.blocks)
    clocks = [median(times.sm_clock_hz) if times.sm_clock_hz else None for times in (mine, its_original)]
    ratio = clocks[0] / clocks[1] if clocks[0] is not None and clocks[1] is not None else None
    return placed(made, compare([pairs(mine, its_original)]), median(mine.device_us()), ratio)


async def _until_told(timing: Interleaving) -> None:
    """Time blocks until a difference is told, or there are enough, or time is up.

    Raises:
        Stopped: a call failed.
    """
    deadline = anyio.current_time() + PLAN.time_limit_s
    await timing.settle()

    def is_told() -> bool:
        mine, original = (side.times for side in timing.sides)
        return timing.blocks >= BLOCKS or (timing.blocks in LOOKS and decide([pairs(mine, original)]) != "ambiguous")

    await until(timing, lambda: timing.blocks >= LEAST_BLOCKS, float("inf"))
    await until(timing, is_told, deadline)


def _other_choice(original: Sequence[Tuned], its: Sequence[Tuned]) -> str | None:
    """Why the two can't be compared: the autotuner made another program of the variant."""
    before = {(one.kernel, one.configuration) for one in original}
    changed = [one for one in its if (one.kernel, one.configuration) not in before]
    if not changed:
        return None
    return _printable(
        f"the autotuner chose {changed[0].configuration} for it, which is not the original's choice; probe a file with "
        "that one configuration"
    )


def _reason(problem: Problem) -> str:
    where = f" (line {problem.line})" if problem.line is not None else ""
    return _printable(f"{problem.stage}: {problem.message}{where}")


def _printable(text: str) -> str:
    """One line, in bounds, whatever a kernel put into it."""
    words = " ".join(text[: 4 * REASON_CHARACTERS].split())
    return "".join(each if each.isprintable() else "?" for each in words)[:REASON_CHARACTERS]
