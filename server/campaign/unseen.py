"""A winner on shapes that it was not optimized for: whether it is right there, and whether it is still faster."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import anyio
from pydantic import JsonValue

from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind
from ...sandbox.source import Source
from ...sandbox.task import Case, Task
from ...sandbox.workers import task_worker
from ..adapters.further import has_sizes, with_sizes
from ..runs.evaluation_check import INTERPRETED_SEEDS
from ..runs.evaluation_compile import NOT_ITS_DOING
from ..runs.evaluation_facts import bounded, typed
from ..runs.evaluation_report import BASELINES, Steps
from ..runs.hidden import judged
from ..runs.record import HiddenCases
from ..services import Services
from ..tools.benchmark import benchmark
from ..tools.benchmark_report import CaseTimes
from ..tools.parameters import Progress
from ..tools.run_correctness import DEFAULT_SEEDS, run_correctness
from .model import Gain, Unseen
from .reasons import line
from .unseen_cases import Chosen, hidden_of, unseen_cases, with_fitting

LIMIT: Final = 4
STEPS: Final = 4


class Ended(NamedTuple):
    """How a kernel ended on a case."""

    kind: Kind
    problem: str | None = None
    parameters: dict[str, JsonValue] | None = None
    """Those that the case was made smaller to for the interpreter; None: it was run as it is."""


async def unseen(
    services: Services,
    progress: Progress,
    *,
    kernel: Source,
    baseline: Source,
    task: Source,
    limit: int = LIMIT,
    seed: str,
    budget_s: float,
    checked: Iterable[Mapping[str, JsonValue]] = (),
    tell: Callable[[str], None] | None = None,
) -> list[Unseen]:
    """Compare a winner's results on other shapes and, on a GPU, time it beside the baseline there.

    Which shapes: `unseen_cases`. A case that the baseline itself fails on says nothing of the winner and is left out,
    and so is one that the time did not suffice for; a winner that fails is a result. Without a GPU results are compared
    in Triton's interpreter, and nothing is timed.

    Args:
        services: workers of this machine.
        progress: told how far it is.
        kernel: the winner.
        baseline: what it is compared with.
        task: theirs.
        limit: so many cases at most.
        seed: decides what shapes are derived.
        budget_s: seconds after which it ends with what is known.
        checked: parameters of the hidden cases that the winner was accepted on, where these are no part of the task.
        tell: takes why cases were left out, in sentences.

    Returns:
        The cases that there are results of. One that is right and has no gain was not timed: `problem` says why, or
        there is no GPU.

    Raises:
        Stopped: ``unavailable`` or ``cancelled``.
    """
    trial = _Trial(services, Steps(progress, STEPS), kernel, baseline, task, tell or _nobody)
    with anyio.move_on_after(budget_s) as scope:
        try:
            with typed():
                await trial.run(limit, seed, checked)
        except Stopped as stopped:
            if stopped.kind in NOT_ITS_DOING:
                raise
            trial.tell(f"no other shapes could be looked for: {stopped.kind}: {line(stopped.problem.message)}")
    if scope.cancelled_caught:
        trial.tell(f"not all was tried within {budget_s:g} s")
    return trial.found()


class _Trial:
    """A winner that is tried."""

    def __init__(
        self,
        services: Services,
        steps: Steps,
        kernel: Source,
        baseline: Source,
        task: Source,
        tell: Callable[[str], None],
    ) -> None:
        self._services, self._steps = services, steps
        self._kernel, self._baseline, self._task = kernel, baseline, task
        self.tell = tell
        self._chosen = Chosen({})
        self._has_reference = False
        self._on_gpu = False
        self._ended: dict[str, Ended] = {}
        """Of the winner, by case."""
        self._gains: dict[str, Gain] = {}

    def found(self) -> list[Unseen]:
        """What is known by now."""
        told: list[Unseen] = []
        for name, ended in self._ended.items():
            right, gain = ended.kind is Kind.OK, self._gains.get(name)
            parameters = ended.parameters or {
                key: value for key, value in self._chosen.cases[name].items() if key not in ("small", "weight")
            }
            untimed = (
                "right, and not timed: there was no time left" if self._on_gpu and right and gain is None else None
            )
            told.append(
                Unseen(
                    case=f"{name} (hidden case)" if self._chosen.own else name,
                    parameters=parameters,
                    kind=ended.kind.value,
                    gain=gain,
                    problem=ended.problem or untimed,
                )
            )
        return told

    async def run(self, limit: int, seed: str, checked: Iterable[Mapping[str, JsonValue]]) -> None:
        """Choose cases, and try the winner on those that the baseline is right on."""
        self._on_gpu = await self._services.has_gpu()
        spec, further = await self._known()
        self._has_reference = spec.has_reference
        self._chosen = unseen_cases(spec, further, limit=limit, seed=seed, on_gpu=self._on_gpu, checked=[*checked])
        if not further and not self._chosen.own and self._chosen.cases:
            fitting = await self._load(with_fitting(self._task, self._chosen.cases))
            self._chosen = Chosen({name: self._chosen.cases[name] for name in fitting.hidden_cases})
        kept = await self._sound(limit)
        if not kept and not self._chosen.own and spec.hidden_cases:
            self._chosen = hidden_of(spec, limit)
            kept = await self._sound(limit)
        if not kept:
            if not self._chosen.cases:
                self.tell("there are no sizes to derive other shapes from, and none in the artefact but those timed")
            return
        right = [name for name, ended in (await self._compared(self._kernel, kept)).items() if ended.kind is Kind.OK]
        if self._on_gpu and right:
            await self._time(right)

    async def _load(self, task: Source) -> Task:
        async with task_worker(self._services.executor, on_gpu=False) as tasks:
            return await tasks.load(task)

    async def _known(self) -> tuple[Task, dict[str, Case]]:
        """The task, and further sizes that its artefact has."""
        if not has_sizes(self._task):
            return await self._load(self._task), {}
        spec, further = await self._load(self._task), await self._load(with_sizes(self._task))
        return spec, further.hidden_cases

    async def _sound(self, limit: int) -> list[str]:
        """The first cases on which the baseline is right; spares take the place of others."""
        told = self._steps.next("trying the baseline on other shapes:")
        waiting = list(self._chosen.cases)
        kept: list[str] = []
        while waiting and len(kept) < limit:
            wanted = limit - len(kept)
            group, waiting = waiting[:wanted], waiting[wanted:]
            for name, ended in (await self._outcomes(self._baseline, group, told)).items():
                if ended.kind is Kind.OK:
                    kept.append(name)
                else:
                    self._drop(name, ended)
        return kept

    def _drop(self, name: str, ended: Ended) -> None:
        self._ended.pop(name, None)
        self.tell(f"{name} was left out: the baseline itself ends in {ended.kind} there: {ended.problem}")

    async def _compared(self, kernel: Source, names: list[str]) -> dict[str, Ended]:
        found = await self._outcomes(kernel, names, self._steps.next("trying the winner on other shapes:"))
        for name, ended in list(found.items()):
            if ended.problem is not None and ended.problem.startswith(BASELINES):
                self._drop(name, ended)
                del found[name]
        self._ended |= found
        return found

    async def _outcomes(self, kernel: Source, names: list[str], progress: Progress) -> dict[str, Ended]:
        """How a kernel ends on each case: all in one call of the tool and, where that tells not all, one by one."""
        found: dict[str, Ended] = {}
        if len(names) > 1 and all(self._runs_as_it_is(name) for name in names):
            try:
                found = await self._correctness(kernel, names, progress)
            except Stopped as stopped:
                if stopped.kind in NOT_ITS_DOING:
                    raise
        for name in names:
            if name not in found:
                try:
                    found |= await self._correctness(kernel, [name], progress)
                except Stopped as stopped:
                    found[name] = _ended(stopped)
        return {name: found[name] for name in names}

    def _runs_as_it_is(self, name: str) -> bool:
        """Whether a case is not to be made smaller for the interpreter."""
        case = self._chosen.cases[name]
        return self._on_gpu or bool(case.get("small")) or not any(isinstance(size, int) for size in case.values())

    async def _correctness(self, kernel: Source, names: list[str], progress: Progress) -> dict[str, Ended]:
        result = await run_correctness(
            self._services,
            progress,
            kernel=kernel,
            task=self._judged(names),
            baseline=None if self._has_reference else self._baseline,
            cases=names if all(self._runs_as_it_is(name) for name in names) else None,
            seeds=DEFAULT_SEEDS if self._on_gpu else INTERPRETED_SEEDS,
        )
        listed = {
            case.case: Ended(case.kind, None if case.message is None else line(case.message), parameters)
            for case in result.cases
            for parameters in [result.made_smaller.get(case.case)]
        }
        # Those that are not listed are right.
        return {name: listed.get(name, Ended(Kind.OK)) for name in names if name not in result.not_checked}

    def _judged(self, names: Iterable[str]) -> Source:
        cases: HiddenCases = {name: self._chosen.cases[name] for name in names}
        return judged(self._task, cases, own=self._chosen.own)

    async def _time(self, names: list[str]) -> None:
        """Time cases beside the baseline: all in one call of the tool and, where one of them fails, one by one."""
        told = self._steps.next("timing other shapes:")
        if len(names) > 1:
            try:
                self._gains |= await self._timed(names, told)
            except Stopped as stopped:
                if stopped.kind in NOT_ITS_DOING:
                    raise
            else:
                return
        for name in names:
            try:
                self._gains |= await self._timed([name], told)
            except Stopped as stopped:
                ended = _ended(stopped)
                if stopped.problem.message.startswith(BASELINES):
                    self._drop(name, ended)
                else:
                    self._ended[name] = ended

    async def _timed(self, names: list[str], progress: Progress) -> dict[str, Gain]:
        result = await benchmark(
            self._services,
            progress,
            kernel=self._kernel,
            task=self._judged(names),
            baseline=self._baseline,
            cases=names,
        )
        return {times.case: _gain(times) for times in result.cases}


def _ended(stopped: Stopped) -> Ended:
    """
    Raises:
        Stopped: ``unavailable`` or ``cancelled``: it was not the kernel's doing.
    """
    if stopped.kind in NOT_ITS_DOING:
        raise stopped
    return Ended(stopped.kind, line(bounded(stopped.problem).message))


def _gain(times: CaseTimes) -> Gain:
    assert times.ratio is not None
    assert times.ratio_low is not None
    assert times.ratio_high is not None
    assert times.comparison is not None
    return Gain(ratio=times.ratio, ratio_low=times.ratio_low, ratio_high=times.ratio_high, comparison=times.comparison)


def _nobody(words: str) -> None:
    """Nobody wants to know."""
