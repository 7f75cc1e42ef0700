"""Evaluates the baseline and the candidates of a run with the tools: compile, check, time, diagnose, and confirm."""

from typing import Final

from ...profiling.hardware.model import Target
from ...profiling.optimization.model import BASELINE, Confirmation, Evidence
from ...sandbox.errors import Stopped
from ...sandbox.outcome import Kind, Problem
from ...sandbox.source import Source
from ...sandbox.task import Task
from ...sandbox.workers import task_worker
from ..memo import Memo
from ..services import Services
from ..tools.benchmark import benchmark
from ..tools.benchmark_report import BenchmarkResult
from ..tools.parameters import Progress
from .evaluation_check import check, hidden_kinds, hidden_problem, passed
from .evaluation_compile import Judged, compiled
from .evaluation_diagnosis import diagnosis
from .evaluation_facts import case_time, timing, timing_notes, typed, wrong
from .evaluation_look import look
from .evaluation_report import Report, Steps, failing
from .evaluator import Asked, Identified, Measured, Other, Sources
from .record import Frozen

UNTIMED: Final = "the run was begun where there is no GPU: nothing can be timed, and nothing accepted"


class ToolEvaluator:
    """Implements `Evaluator`: each step is a call of the tool that an agent would call."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._specs: Memo[Task] = Memo()

    async def look(self, kernel: Source, task: Source, hidden: Source | None, target: str | None) -> Asked:
        with typed():
            return await look(self._services, kernel, task, hidden, target)

    async def baseline(self, frozen: Frozen, sources: Sources, progress: Progress) -> Measured:
        judged, goal, timed = await self._begin(frozen, sources)
        steps, report = Steps(progress, 5), Report()
        with report.stage("compile"):
            await steps.next("compiling the baseline")(0, 1, "")
            known = await self._compiled(goal, judged, sources.baseline)
        with report.stage("correctness"):
            checked = await check(self._services, judged, sources.baseline, sources.baseline, steps.next())
        if checked.kind is not Kind.OK:
            problem = wrong(checked)
            told = problem.model_copy(update={"message": f"the baseline is wrong: {problem.message}"})
            raise Stopped(checked.kind, told)
        with report.stage("hidden"):
            kept, dropped = await passed(
                self._services, frozen, judged, sources.baseline, steps.next("checking the baseline further")
            )
        if len(kept) < len(judged.hidden):
            judged = judged._replace(hidden=kept)
            known = await self._compiled(goal, judged, sources.baseline)
        report.found(known, checked)
        if timed:
            with report.stage("benchmark"):
                alone = await self._time(judged, sources.baseline, None, steps.next())
            report.add(own=[case_time(times, judged.spec) for times in alone.cases])
            report.note(timing_notes(alone), alone.artifacts)
        else:
            report.add(untimed=UNTIMED)
        await self._diagnose(goal, judged, sources.baseline, report, steps.next("diagnosing the baseline"))
        return Measured(report.evidence(Kind.OK, "done"), kept, dropped)

    async def identify(self, frozen: Frozen, sources: Sources, candidate: Source) -> Identified:
        judged, goal, _ = await self._begin(frozen, sources)
        return await self._compiled(goal, judged, candidate)

    async def evaluate(
        self, frozen: Frozen, sources: Sources, candidate: Source, known: Identified, incumbent: Other,
        parent: Other, progress: Progress,
    ) -> Evidence:  # fmt: skip
        judged, goal, timed = await self._begin(frozen, sources)
        steps, report = Steps(progress, 4), Report()
        report.found(known, None)
        try:
            with report.stage("correctness"):
                checked = await check(self._services, judged, sources.baseline, candidate, steps.next())
            report.found(known, checked)
            if checked.kind is not Kind.OK:
                return report.evidence(checked.kind, "correctness", wrong(checked))
            if timed:
                with report.stage("benchmark"):
                    await self._compare(judged, sources, candidate, incumbent, report, steps)
            else:
                report.add(untimed=UNTIMED)
        except Stopped as stopped:
            stage = "benchmark" if report.reached("benchmark") else "correctness"
            return report.evidence(*failing(stopped, stage))
        await self._diagnose(goal, judged, candidate, report, steps.next("diagnosing"))
        return report.evidence(Kind.OK, "done")

    async def confirm(
        self, frozen: Frozen, sources: Sources, candidate: Source, incumbent: Other, progress: Progress
    ) -> Confirmation:
        judged, _, timed = await self._begin(frozen, sources)
        steps = Steps(progress, 2)
        compared = 0
        try:
            if judged.hidden:
                shown = steps.next("checking again, on hidden cases too")
                kinds = await hidden_kinds(self._services, judged, sources.baseline, candidate, shown, together=timed)
                failed = [kind for kind in kinds if kind is not Kind.OK]
                compared = sum(kind in (Kind.OK, Kind.WRONG) for kind in kinds)
                if failed:
                    problem = hidden_problem(failed, len(judged.hidden), on_gpu=timed)
                    return Confirmation(kind=failed[0], problem=problem, hidden_checked=compared)
            else:
                checked = await check(self._services, judged, sources.baseline, candidate, steps.next("checking again"))
                if checked.kind is not Kind.OK:
                    return Confirmation(kind=checked.kind, problem=wrong(checked), hidden_checked=0)
            again = None
            if timed:
                result = await self._time(judged, candidate, incumbent.source, steps.next("timing again"))
                again = timing(result, judged.spec, incumbent.number)
        except Stopped as stopped:
            kind, _, problem = failing(stopped, "benchmark")
            return Confirmation(kind=kind, problem=problem, hidden_checked=compared)
        return Confirmation(kind=Kind.OK, hidden_checked=compared, timing=again)

    # Steps

    async def _begin(self, frozen: Frozen, sources: Sources) -> tuple[Judged, Target, bool]:
        """What candidates are judged by, the target, and whether anything can be timed.

        Raises:
            Stopped: ``unavailable``: the GPU that the run was begun on is not here.
        """
        services = self._services
        if frozen.gpu is not None:
            here = (await services.require_gpu("benchmark")).gpu
            if here is None or here.name != frozen.gpu:
                name = None if here is None else here.name
                message = f"the run was begun on {frozen.gpu}, and this machine has {name}: times would not compare"
                fix = "Go on where it was begun, or start another run here with the best attempt as its kernel."
                raise Stopped(Kind.UNAVAILABLE, Problem(stage="benchmark", message=message, likely_fix=fix))
        key = Memo.key(sources.task.text, sources.task.origin)
        spec = self._specs.get(key)
        if spec is None:
            async with task_worker(services.executor, on_gpu=False) as tasks:
                spec = await tasks.load(sources.task)
            self._specs.put(key, spec)
        judged = Judged(sources.task, spec, sources.hidden, own=frozen.hidden_from == "task")
        return judged, await services.target(frozen.target), frozen.gpu is not None

    async def _compiled(self, goal: Target, judged: Judged, candidate: Source) -> Identified:
        with typed():
            return await compiled(self._services, goal, judged, candidate)

    async def _time(self, judged: Judged, kernel: Source, other: Source | None, progress: Progress) -> BenchmarkResult:
        with typed():
            return await benchmark(self._services, progress, kernel=kernel, task=judged.task, baseline=other)

    async def _compare(
        self, judged: Judged, sources: Sources, candidate: Source, incumbent: Other, report: Report, steps: Steps
    ) -> None:
        """Times beside the baseline's and, unless it is slower than that already, the incumbent's."""
        result = await self._time(judged, candidate, sources.baseline, steps.next("against the baseline:"))
        first = timing(result, judged.spec, BASELINE)
        report.add(own=[case_time(times, judged.spec) for times in result.cases], timings=[first])
        report.note(timing_notes(result), result.artifacts)
        shown = steps.next(f"against attempt {incumbent.number}:")
        if incumbent.number == BASELINE:
            return
        if first.comparison == "slower":
            report.note([f"slower than the baseline, so not compared with attempt {incumbent.number}"], [])
            return
        result = await self._time(judged, candidate, incumbent.source, shown)
        report.add(timings=[first, timing(result, judged.spec, incumbent.number)])
        report.note(timing_notes(result), result.artifacts)

    async def _diagnose(self, goal: Target, judged: Judged, kernel: Source, report: Report, progress: Progress) -> None:
        await progress(0, 1, "")
        with report.stage("diagnosis"):
            told = await diagnosis(self._services, goal, judged, kernel)
        report.add(diagnosed=told.diagnosed)
        report.note(told.notes, told.artifacts)
