"""The tool `benchmark` on fake workers: its order of steps, what stops it, and what its result is made of."""

import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sandbox.fake_timed import FakeTimed, stopped
from tests.server.fake_timing import CASE, FakeExecutor, FakeTask, World
from tests.server.made_up_times import COOL, timed_case, times
from tritonforge.profiling.correctness import CaseResult
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.rounds import AGAIN, ONCE, Plan
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Device
from tritonforge.sandbox.facts import Environment, GpuFacts
from tritonforge.sandbox.lease import Sharing
from tritonforge.sandbox.nvml import GpuProcess
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.artifacts import ArtifactStore
from tritonforge.server.audits import Audits
from tritonforge.server.services import Services, Shared
from tritonforge.server.timed_result import TimedCase
from tritonforge.server.tools import benchmark as tool
from tritonforge.server.tools.benchmark_report import BenchmarkResult

pytestmark = pytest.mark.anyio
H200 = GpuFacts(
    name="NVIDIA H200", capability=90, sm_count=132, memory_bytes=141 << 30, l2_bytes=50 << 20, cuda="12.8",
    device_count=1,
)  # fmt: skip
ALONE = Sharing(foreign=[], checked=True, reason=None)


class FakeServices:
    """What the tool takes from the server."""

    def __init__(self, folder: Path, world: World) -> None:
        self.executor = FakeExecutor(world)
        self.artifacts = ArtifactStore(folder)
        self.audits = Audits()
        self.sharing = ALONE
        self.ceilings_asked = 0

    async def require_gpu(self, stage: str) -> Environment:
        return Environment(executable="python", gpu=H200, torch="2.8")

    async def gpu(self) -> Any:
        return resolve_target("h200").gpu

    @asynccontextmanager
    async def gpu_turn(self) -> AsyncGenerator[Device]:
        yield Device(index=0, uuid="GPU-1", name="NVIDIA H200", memory_bytes=1)

    @asynccontextmanager
    async def measuring(self, device: Device) -> AsyncGenerator[Shared]:
        yield Shared(self.sharing)

    async def look_again(self, device: Device, shared: Shared) -> None:
        shared.after = self.sharing

    async def answered(self, evaluate: Callable[[Callable[[Any], None]], Awaitable[None]]) -> Any:
        found: list[Any] = []
        await evaluate(found.append)
        (result,) = found
        return result

    async def ceilings(self, *_: Any) -> None:
        self.ceilings_asked += 1


class Judged:
    """Stands in for the check of results; a plan is found wrong where the test says so."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.wrong: Plan | None = None

    async def __call__(self, case: str, plan: Plan, *_: Any, **__: Any) -> CaseResult:
        self.plans.append(plan)
        kind = Kind.WRONG if plan is self.wrong else Kind.OK
        return CaseResult.model_construct(kind=kind, message="10 of 10 elements are wrong", likely_cause="a mask")


class Bench:
    """The tool with everything around it made up."""

    def __init__(self, services: FakeServices, judged: Judged, world: World) -> None:
        self.services, self.judged, self.world = services, judged, world
        self.told: list[str] = []

    async def run(self, **more: Any) -> BenchmarkResult:
        async def progress(done: float, total: float, message: str) -> None:
            self.told.append(f"{done:g}/{total:g} {message}")

        arguments: dict[str, Any] = {"kernel": "#\n", "task": "#\n", "baseline": "#\n", **more}
        return await tool.benchmark(cast(Services, self.services), progress, **arguments)

    def kept(self, result: BenchmarkResult) -> dict[str, Any]:
        (uri,) = result.artifacts
        path = self.services.artifacts.find(*uri.rsplit("/", 2)[1:])
        assert path is not None
        return json.loads(path.read_text())


@pytest.fixture
def world() -> World:
    return World(sources=["candidate", "baseline"])


@pytest.fixture
def bench(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> Bench:
    random.seed(1)
    judged = Judged()

    async def audited(*_: Any, **__: Any) -> None: ...

    async def cool(uuid: str) -> Any:
        assert uuid == "GPU-1"
        return COOL

    monkeypatch.setattr(tool, "check_case", judged)
    monkeypatch.setattr(tool, "sound_audit", audited)
    monkeypatch.setattr(tool, "_conditions", cool)
    return Bench(FakeServices(tmp_path, world), judged, world)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the timer find what the test made up, case by case."""

    def measured(*cases: TimedCase) -> None:
        left = iter(cases)

        async def start(case: str) -> str:
            return case

        async def time(started: str) -> TimedCase:
            return next(left)

        def timer(*_: Any, **__: Any) -> SimpleNamespace:
            return SimpleNamespace(start=start, time=time, end=lambda: None)

        monkeypatch.setattr(tool, "CaseTimer", timer)

    return measured


def cases_of(world: World, *names: str, **changed: Any) -> None:
    world.description["cases"] = {name: {**CASE, **changed} for name in names}


# From workers to a result


async def test_a_faster_kernel_is_told_with_everything_behind_it(bench: Bench) -> None:
    bench.world.us["candidate"] = 80.0
    result = await bench.run()
    assert result.kind is Kind.OK
    (case,) = result.cases
    assert (case.case, case.timing, case.comparison) == ("train", "replayed", "faster")
    assert case.ratio == pytest.approx(1.25, rel=0.002)
    assert case.conditions is not None
    assert case.conditions.temperature_c is not None
    assert result.score is not None
    assert result.score.faster_cases == ["train"]
    assert (result.gpu, result.cache) == ("NVIDIA H200", "cold")
    kept = bench.kept(result)
    assert len(kept["train"]["sides"]["candidate"]["device_us"]) >= 6
    assert bench.told == ["0/1 timing case train"]
    assert bench.services.executor.alive == 0


async def test_results_are_judged_before_and_after_the_clock_runs(bench: Bench) -> None:
    cases_of(bench.world, "train", "decode")
    await bench.run()
    assert bench.judged.plans == [ONCE, AGAIN] * 2


@pytest.mark.parametrize(
    ("plan", "words", "timed"),
    [
        (ONCE, "the results are wrong, so nothing was timed", False),
        (AGAIN, "after it was timed, so the times are worth", True),
    ],
)
async def test_wrong_results_before_or_after_end_it(bench: Bench, plan: Plan, words: str, timed: bool) -> None:
    bench.judged.wrong = plan
    with pytest.raises(Stopped) as caught:
        await bench.run()
    assert caught.value.kind is Kind.WRONG
    message = caught.value.problem.message
    assert message.startswith("case train: ")
    assert words in message
    assert message.endswith("10 of 10 elements are wrong")
    assert caught.value.problem.likely_cause == "a mask"
    assert "run_correctness" in (caught.value.problem.likely_fix or "")
    assert any(process.count("visit") for process in bench.services.executor.of("cuda")) == timed
    assert bench.services.executor.alive == 0


async def test_the_kernel_compiles_before_its_results_are_judged(bench: Bench) -> None:
    """What it then keeps for timed calls is in what is judged."""
    bench.judged.wrong = ONCE
    with pytest.raises(Stopped):
        await bench.run()
    assert [process.count("first_call") for process in bench.services.executor.of("cuda")] == [1, 1]


async def test_without_reference_and_baseline_nothing_is_judged(bench: Bench) -> None:
    bench.world.description["has_reference"] = False
    result = await bench.run(baseline=None)
    assert bench.judged.plans == []
    assert result.score is None
    assert result.cases[0].outputs_checked == 0


async def test_a_warm_cache_is_not_flushed(bench: Bench) -> None:
    result = await bench.run(cache="warm")
    assert result.cache == "warm"
    assert "L2 warm" in result.summary
    workers = [*bench.services.executor.of("cuda"), *bench.services.executor.of("replay")]
    assert {fields["flush_bytes"] for process in workers for fields in process.fields("prepare")} == {0}


async def test_a_cold_cache_is_flushed_by_half_a_gibibyte(bench: Bench) -> None:
    await bench.run()
    workers = [*bench.services.executor.of("cuda"), *bench.services.executor.of("replay")]
    assert {fields["flush_bytes"] for process in workers for fields in process.fields("prepare")} == {512 << 20}


async def test_the_reference_is_timed_where_it_is_asked_for(bench: Bench) -> None:
    result = await bench.run(against=["eager", "torch.compile"])
    assert [entry.name for entry in result.cases[0].against] == ["eager", "torch.compile"]
    for entry in result.cases[0].against:
        assert entry.comparison == "faster"
        assert f"{entry.name}: {entry.device_us:.2f} us on the device" in result.summary


async def test_small_cases_are_timed_only_where_they_are_named(bench: Bench) -> None:
    cases_of(bench.world, "train")
    bench.world.description["cases"]["tiny"] = {**CASE, "small": True}
    assert [case.case for case in (await bench.run()).cases] == ["train"]
    assert [case.case for case in (await bench.run(cases=["tiny"])).cases] == ["tiny"]


async def test_a_task_of_small_cases_alone_is_rejected(bench: Bench) -> None:
    cases_of(bench.world, "tiny", small=True)
    with pytest.raises(Stopped, match="every case is marked small") as caught:
        await bench.run()
    assert caught.value.kind is Kind.REJECTED


async def test_a_baseline_that_does_not_load_is_blamed_and_not_the_candidate(bench: Bench) -> None:
    def change(process: FakeTimed) -> None:
        if len(bench.services.executor.of("cuda")) == 1 and not isinstance(process, FakeTask):
            process.faults["load_kernel"] = stopped(Kind.REJECTED, "no entry")

    bench.world.started = change
    with pytest.raises(Stopped) as caught:
        await bench.run()
    assert "baseline" in caught.value.problem.message


async def test_other_processes_on_the_gpu_are_told_with_every_case(bench: Bench) -> None:
    cases_of(bench.world, "train", "decode")
    foreign = GpuProcess.model_construct(pid=7, name="game", used_bytes=None)
    bench.services.sharing = ALONE.model_copy(update={"foreign": [foreign]})
    result = await bench.run()
    assert all("game (pid 7)" in case.notes[-1] for case in result.cases)


# What no honest kernel does


@pytest.mark.parametrize("visits", [10, 40])
async def test_work_between_timed_calls_is_cheating(bench: Bench, measured: Callable[..., None], visits: int) -> None:
    mine = times(50.0)
    mine.strays = {"late_kernel": visits, "memset": 1}
    measured(timed_case(candidate=mine))
    with pytest.raises(Stopped) as caught:
        await bench.run()
    assert (caught.value.kind, caught.value.problem.stage) == (Kind.CHEATING, "benchmark")
    assert caught.value.problem.message.startswith("case train: between the timed calls the device runs work")
    assert caught.value.problem.message.endswith(": late_kernel")


async def test_one_accident_between_timed_calls_is_no_cheating(bench: Bench, measured: Callable[..., None]) -> None:
    mine = times(100.0)
    mine.strays = {"late_kernel": 1}
    measured(timed_case(candidate=mine))
    assert (await bench.run()).kind is Kind.OK


def working(world: World, **work: float) -> None:
    """The task says what work there is."""
    world.description["has_work"] = True

    def change(process: FakeTimed) -> None:
        if isinstance(process, FakeTask):
            process.forged["work"] = {"work": work}

    world.started = change


LARGE: dict[str, Any] = {"input_bytes": 300_000_000, "results_bytes": 300_000_000}


async def test_a_time_that_is_faster_than_light_is_cheating_with_the_arithmetic(
    bench: Bench, measured: Callable[..., None]
) -> None:
    working(bench.world, bytes=600_000_000.0)
    measured(timed_case(candidate=20.0, **LARGE))
    with pytest.raises(Stopped) as caught:
        await bench.run()
    assert (caught.value.kind, caught.value.problem.stage) == (Kind.CHEATING, "benchmark")
    message = caught.value.problem.message
    assert message.startswith("case train: faster than this GPU can be: 600,000,000 bytes")
    # All but what L2 holds, at 4.8 TB/s.
    assert "at 4.80 TB/s take 11" in message
    assert "measured 20.0 us" in message
    assert "work()" in (caught.value.problem.likely_cause or "")


async def test_a_time_that_is_possible_is_told_as_a_share_of_light(bench: Bench, measured: Callable[..., None]) -> None:
    working(bench.world, bytes=600_000_000.0)
    measured(timed_case(candidate=250.0, baseline=250.0, **LARGE))
    (case,) = (await bench.run()).cases
    assert case.speed_of_light_pct == pytest.approx(50, abs=1)
    assert (case.bound, case.floor_from, case.work_suspect) == ("memory", "data_sheet", False)
    assert bench.services.ceilings_asked == 1


async def test_more_flops_than_sixteen_bits_allow_are_suspect_and_not_cheating(
    bench: Bench, measured: Callable[..., None]
) -> None:
    # 1.5 PFLOP/s of bf16: above its peak, below that of fp8.
    working(bench.world, bytes=1e6, flops=1.5e15 * 100e-6)
    measured(timed_case(dtypes={"bfloat16"}))
    result = await bench.run()
    (case,) = result.cases
    assert result.kind is Kind.OK
    assert case.work_suspect
    assert case.notes[0].startswith("work_suspect: 150,000,000,000 flops")


async def test_without_work_nothing_is_said_of_light_and_no_ceilings_are_measured(
    bench: Bench, measured: Callable[..., None]
) -> None:
    measured(timed_case(candidate=0.001, baseline=0.001, **LARGE))
    (case,) = (await bench.run()).cases
    assert (case.speed_of_light_pct, case.floor_us, case.work_suspect) == (None, None, False)
    assert bench.services.ceilings_asked == 0


async def test_cases_weigh_in_the_score_as_the_task_says(bench: Bench, measured: Callable[..., None]) -> None:
    cases_of(bench.world, "train", "decode")
    bench.world.description["cases"]["train"]["weight"] = 3.0
    measured(timed_case("train", 50.0), timed_case("decode", 100.0))
    result = await bench.run()
    assert result.score is not None
    assert result.score.ratio == pytest.approx(2 ** (3 / 4), rel=0.002)
    assert list(bench.kept(result)) == ["train", "decode"]
    assert bench.told == ["0/2 timing case train", "1/2 timing case decode"]
