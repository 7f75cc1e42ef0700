"""Evaluation with a GPU, its tools made up: what is measured against what, and what of it becomes evidence."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.profiling.made_up import spec
from tests.server.made_up_times import timed_case
from tests.server.runs.evaluations import Watched, frozen
from tritonforge.profiling.audit import blaming_baseline
from tritonforge.profiling.comparison import WeightedCase, combine, log_ratios
from tritonforge.profiling.correctness import CaseResult
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.optimization.model import Confirmation, Evidence
from tritonforge.profiling.roofline import SpeedOfLight
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.source import Source
from tritonforge.server.runs import evaluation, evaluation_check
from tritonforge.server.runs.evaluation import ToolEvaluator
from tritonforge.server.runs.evaluation_diagnosis import Told
from tritonforge.server.runs.evaluator import Identified, Measured, Other, Sources
from tritonforge.server.runs.record import HiddenCases
from tritonforge.server.services import Services
from tritonforge.server.tools.benchmark_report import BenchmarkResult, case_times, result
from tritonforge.server.tools.run_correctness import CorrectnessResult

pytestmark = pytest.mark.anyio

GPU = "NVIDIA H200"
CASE: dict[str, Any] = {"parameters": {"n": 1024}, "weight": 3.0, "small": False}
SPEC = spec(cases={"train": CASE, "tiny": {**CASE, "small": True}})
BASELINE, TASK, CANDIDATE, BEST = (
    Source(name, f"{name}.py", None) for name in ("baseline", "task", "candidate", "best")
)
NOTHING = Evidence(kind=Kind.OK, stage="done")
FIRST, SECOND = Other(0, BASELINE, NOTHING), Other(4, BEST, NOTHING)


@dataclass
class Lab:
    """Tools that answer as the test says."""

    us: dict[str, float] = field(default_factory=lambda: {"baseline": 100.0, "candidate": 50.0, "best": 60.0})
    timed: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    checked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Kernel, and the task's text."""
    faults: dict[str, Stopped] = field(default_factory=dict[str, Stopped])
    """By what it is: `correctness`, `hidden`, or whom a candidate is timed against."""
    wrong: list[str] = field(default_factory=list[str])
    """Hidden cases with wrong results."""
    told: Told = field(default_factory=lambda: Told(None, ["a note of the diagnosis"], ["uri:diagnosis"]))
    here: str = GPU

    async def benchmark(
        self, _: Any, progress: Any, *, kernel: Source, task: Source, baseline: Source | None
    ) -> BenchmarkResult:
        assert task == TASK
        other = None if baseline is None else baseline.text
        self.timed.append((kernel.text, other))
        await progress(0, 1, "timing case train")
        if (fault := self.faults.get(other or "alone")) is not None:
            raise fault
        found = timed_case("train", self.us[kernel.text], None if other is None else self.us[other])
        light = SpeedOfLight.model_construct(
            pct=40.0, floor_us=20.0, headroom=2.5, bound="memory", against="measured", verdict="ok", explanation=None,
            notes=[],
        )  # fmt: skip
        times, comparison = case_times(found, light)
        score = None
        if comparison is not None:
            score = combine([WeightedCase("train", 3.0, comparison, [log_ratios(group) for group in found.groups])])
        return result(GPU, "cold", [times.model_copy(update={"notes": ["warm"]})], score, [f"uri:{other}"])

    async def run_correctness(
        self, _: Any, progress: Any, *, kernel: Source, task: Source, baseline: Source | None, seeds: int
    ) -> CorrectnessResult:
        self.checked.append((kernel.text, task.text))
        hidden = task != TASK
        await progress(0, 1, "checking case secret_shape" if hidden else "checking case train")
        if (fault := self.faults.get("hidden" if hidden else "correctness")) is not None:
            raise fault
        names = [name for name in HIDDEN if name in task.text] if hidden else ["train"]
        kinds = {name: Kind.WRONG if name in self.wrong else Kind.OK for name in names}
        cases = [CaseResult.model_construct(case=name, kind=kind) for name, kind in kinds.items()]
        return CorrectnessResult.model_construct(
            kind=Kind.WRONG if Kind.WRONG in kinds.values() else Kind.OK, device="cuda:0", cases=cases,
            cases_omitted=0, made_smaller={}, artifacts=[], problem=None,
        )  # fmt: skip

    async def diagnosis(self, *_: Any) -> Told:
        return self.told

    async def compiled(self, *_: Any) -> Identified:
        return Identified("known", [])


HIDDEN: HiddenCases = {"secret_shape": {"n": 10007}, "secret_other": {"n": 10009}}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab = Lab()

    @asynccontextmanager
    async def task_worker(*_: Any, **__: Any) -> AsyncGenerator[SimpleNamespace]:
        async def load(_: Source) -> Any:
            return SPEC

        yield SimpleNamespace(load=load)

    for name in ("benchmark", "diagnosis", "compiled"):
        monkeypatch.setattr(evaluation, name, getattr(lab, name))
    monkeypatch.setattr(evaluation, "task_worker", task_worker)
    monkeypatch.setattr(evaluation_check, "run_correctness", lab.run_correctness)
    return lab


@pytest.fixture
def evaluator(lab: Lab) -> ToolEvaluator:
    async def require_gpu(_: str) -> Any:
        return SimpleNamespace(gpu=SimpleNamespace(name=lab.here))

    async def target(name: str) -> Any:
        return resolve_target(name)

    async def has_gpu() -> bool:
        return True

    services = SimpleNamespace(require_gpu=require_gpu, target=target, has_gpu=has_gpu, executor=None)
    return ToolEvaluator(cast(Services, services))


RUN = frozen(gpu=GPU, target="h200", hidden_from="file")
FILES = Sources(BASELINE, TASK, HIDDEN)


async def evaluated(evaluator: ToolEvaluator, incumbent: Other, watched: Watched | None = None) -> Evidence:
    known = Identified("known", [])
    return await evaluator.evaluate(RUN, FILES, CANDIDATE, known, incumbent, FIRST, watched or Watched())


async def confirmed(evaluator: ToolEvaluator, watched: Watched | None = None) -> Confirmation:
    return await evaluator.confirm(RUN, FILES, CANDIDATE, SECOND, watched or Watched())


async def measured(evaluator: ToolEvaluator, **run: Any) -> Measured:
    return await evaluator.baseline(RUN.model_copy(update=run), FILES, Watched())


# The baseline


async def test_the_baseline_is_timed_alone(evaluator: ToolEvaluator, lab: Lab) -> None:
    found = await measured(evaluator)
    evidence = found.evidence
    assert lab.timed == [("baseline", None)]
    (own,) = evidence.own
    assert (own.case, own.weight, own.speed_of_light_pct, own.headroom) == ("train", 3.0, 40.0, 2.5)
    assert own.device_us == pytest.approx(100, rel=0.01)
    assert (evidence.timings, evidence.untimed) == ([], None)
    assert evidence.artifacts == ["uri:None", "uri:diagnosis"]
    assert evidence.notes == ["train: warm", "a note of the diagnosis"]
    assert evidence.seconds.keys() == {"compile", "correctness", "hidden", "benchmark", "diagnosis"}
    assert found.hidden == HIDDEN


async def test_where_hidden_cases_fail_each_is_judged_by_itself(evaluator: ToolEvaluator, lab: Lab) -> None:
    lab.wrong = ["secret_other"]
    found = await measured(evaluator, hidden_from="derived")
    assert found.hidden == {"secret_shape": {"n": 10007}}
    assert found.dropped == {"secret_other": "the baseline itself ends in wrong there"}
    assert [task.count("secret_") for _, task in lab.checked] == [0, 2, 1, 1]


async def test_hidden_cases_that_the_baseline_passes_are_judged_once(evaluator: ToolEvaluator, lab: Lab) -> None:
    found = await measured(evaluator, hidden_from="derived")
    assert found.dropped == {}
    assert [task.count("secret_") for _, task in lab.checked] == [0, 2]


# Candidates


async def test_a_candidate_is_timed_against_the_baseline(evaluator: ToolEvaluator, lab: Lab) -> None:
    watched = Watched()
    found = await evaluated(evaluator, FIRST, watched)
    assert (found.kind, found.stage, found.identity, found.device) == (Kind.OK, "done", "known", "cuda:0")
    assert lab.timed == [("candidate", "baseline")]
    timing = found.timing(0)
    assert timing is not None
    assert timing.comparison == "faster"
    assert timing.ratio == pytest.approx(2, rel=0.01)
    assert timing.ratio_low <= timing.ratio <= timing.ratio_high
    (case,) = timing.cases
    assert (case.case, case.weight, case.comparison, case.hidden) == ("train", 3.0, "faster", False)
    assert case.device_us == pytest.approx(50, rel=0.01)
    assert case.other_device_us == pytest.approx(100, rel=0.01)
    assert case.call_ratio is not None
    assert case.speed_of_light_pct == 40
    assert [own.device_us for own in found.own] == [case.device_us]
    assert found.artifacts == ["uri:baseline", "uri:diagnosis"]
    done = [done for done, _, _ in watched.told]
    assert done == sorted(done)
    assert watched.told[1][2] == "against the baseline: timing case train"


async def test_a_candidate_is_timed_against_the_incumbent_too(evaluator: ToolEvaluator, lab: Lab) -> None:
    found = await evaluated(evaluator, SECOND)
    assert lab.timed == [("candidate", "baseline"), ("candidate", "best")]
    assert [timing.against for timing in found.timings] == [0, 4]
    assert found.timings[1].ratio == pytest.approx(1.2, rel=0.01)
    assert found.own[0].device_us == found.timings[0].cases[0].device_us


async def test_one_that_is_slower_than_the_baseline_is_not_timed_against_the_incumbent(
    evaluator: ToolEvaluator, lab: Lab
) -> None:
    lab.us["candidate"] = 130.0
    found = await evaluated(evaluator, SECOND)
    assert lab.timed == [("candidate", "baseline")]
    assert (found.kind, found.timings[0].comparison) == (Kind.OK, "slower")
    assert "not compared with attempt 4" in " ".join(found.notes)


def stopped(kind: Kind, message: str = "it ended") -> Stopped:
    return Stopped(kind, Problem(stage="run", message=message))


def of_the_baseline() -> Stopped:
    with pytest.raises(Stopped) as caught, blaming_baseline():
        raise stopped(Kind.OUT_OF_MEMORY)
    return caught.value


@pytest.mark.parametrize(
    ("where", "stage"), [("correctness", "correctness"), ("baseline", "benchmark"), ("best", "benchmark")]
)
async def test_where_a_candidate_failed_is_told(evaluator: ToolEvaluator, lab: Lab, where: str, stage: str) -> None:
    lab.faults[where] = stopped(Kind.TIMEOUT)
    found = await evaluated(evaluator, SECOND)
    assert (found.kind, found.stage) == (Kind.TIMEOUT, stage)
    assert found.problem is not None
    assert found.problem.message == "it ended"
    assert found.diagnosed is None
    assert [timing.against for timing in found.timings] == ([0] if where == "best" else [])


@pytest.mark.parametrize("where", ["correctness", "baseline", "best"])
@pytest.mark.parametrize("kind", [Kind.CANCELLED, Kind.UNAVAILABLE])
async def test_what_is_not_a_candidates_doing_is_raised(
    evaluator: ToolEvaluator, lab: Lab, where: str, kind: Kind
) -> None:
    lab.faults[where] = stopped(kind)
    with pytest.raises(Stopped) as caught:
        await evaluated(evaluator, SECOND)
    assert caught.value.kind is kind


@pytest.mark.parametrize("where", ["correctness", "baseline", "best"])
async def test_the_failure_of_what_it_is_compared_with_is_not_a_candidates(
    evaluator: ToolEvaluator, lab: Lab, where: str
) -> None:
    lab.faults[where] = of_the_baseline()
    with pytest.raises(Stopped, match="what the candidate is compared with failed: it ended") as caught:
        await evaluated(evaluator, SECOND)
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_another_gpu_than_the_runs_is_no_place_to_go_on(evaluator: ToolEvaluator, lab: Lab) -> None:
    lab.here = "NVIDIA H100 PCIe"
    with pytest.raises(Stopped, match="begun on NVIDIA H200, and this machine has NVIDIA H100 PCIe") as caught:
        await evaluated(evaluator, FIRST)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert lab.checked == []


# The second look


async def test_the_second_look_judges_hidden_cases_together_and_times_once_more(
    evaluator: ToolEvaluator, lab: Lab
) -> None:
    watched = Watched()
    found = await confirmed(evaluator, watched)
    assert (found.kind, found.hidden_checked, found.problem) == (Kind.OK, 2, None)
    assert [task.count("secret_") for _, task in lab.checked] == [2]
    assert lab.timed == [("candidate", "best")]
    assert found.timing is not None
    assert (found.timing.against, found.timing.comparison) == (4, "faster")
    assert "secret" not in repr(watched.told)


@pytest.mark.parametrize(
    ("wrong", "fault", "kind", "message"),
    [
        (["secret_shape"], None, Kind.WRONG, "1 of 2 hidden cases are wrong; the visible ones are right"),
        (list(HIDDEN), None, Kind.WRONG, "2 of 2 hidden cases are wrong; the visible ones are right"),
        (
            [], Kind.TIMEOUT, Kind.TIMEOUT,
            "at least one of 2 hidden cases ended in timeout; the visible ones are right",
        ),
    ],
)  # fmt: skip
async def test_a_failing_hidden_case_ends_the_second_look_and_stays_hidden(
    evaluator: ToolEvaluator, lab: Lab, wrong: list[str], fault: Kind | None, kind: Kind, message: str
) -> None:
    lab.wrong = wrong
    if fault is not None:
        lab.faults["hidden"] = stopped(fault, "secret_shape: n=10007")
    found = await confirmed(evaluator)
    assert found.kind is kind
    assert found.problem is not None
    assert found.problem.message == message
    assert lab.timed == []
    assert "secret" not in found.model_dump_json()
    assert "10007" not in found.model_dump_json()


async def test_the_baselines_failure_on_a_hidden_case_is_not_a_candidates(evaluator: ToolEvaluator, lab: Lab) -> None:
    lab.faults["hidden"] = of_the_baseline()
    with pytest.raises(Stopped, match="failed on a hidden case that it passed before") as caught:
        await confirmed(evaluator)
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_second_measurement_that_fails_is_told(evaluator: ToolEvaluator, lab: Lab) -> None:
    lab.faults["best"] = stopped(Kind.CHEATING, "faster than light")
    found = await confirmed(evaluator)
    assert (found.kind, found.hidden_checked, found.timing) == (Kind.CHEATING, 2, None)
    assert found.problem is not None
    assert found.problem.message == "faster than light"
