"""The bench of a search on fake workers: what each variant's worker is asked for, and what a race tells."""

import math
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.diagnosis.made_up import H200
from tests.profiling.tuning.facts import launch
from tests.sandbox.fake_timed import FakeTimed, stopped
from tests.server.conftest import EXAMPLES
from tests.server.fake_timing import FakeExecutor, World
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.correctness import CaseResult
from tritonforge.profiling.rounds import ONCE, Plan
from tritonforge.profiling.tuning.search import Search
from tritonforge.profiling.tuning.space import Point, infer
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source
from tritonforge.sandbox.workers import task_worker
from tritonforge.server.tuning import bench as module
from tritonforge.server.tuning.bench import Compiler, GpuBench, device_us
from tritonforge.server.tuning.loop import Tuning, Variant

pytestmark = pytest.mark.anyio
TEXT = (EXAMPLES / "sin" / "candidate.py").read_text()
SLOW, FAST = (256, 4), (4096, 4)


class Made(Compiler):
    """Compiles nothing: each variant has a code of its own, and a name that tells fakes what it takes."""

    async def compile(self, point: Point | None) -> Mapping[str, Sequence[LaunchFacts]]:
        return {"train": [launch(code_hash=str(point))]}

    def source(self, point: Point | None) -> Source:
        return super().source(point)._replace(shown_as=f"{point}.py")


class Bench:
    """A bench with its executor; a variant takes longer the smaller its block is."""

    def __init__(self, world: World, executor: FakeExecutor, made: Compiler, bench: GpuBench) -> None:
        self.world, self.executor, self.compiler, self.bench = world, executor, made, bench

    def worker(self, point: Point | None) -> FakeTimed:
        (found,) = self.executor.named(str(point))
        return found


@pytest.fixture
async def made(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Bench]:
    random.seed(2)
    world = World(us={"None": 100.0, str(SLOW): 130.0, str(FAST): 80.0})
    executor = FakeExecutor(world)
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(task_worker(executor, on_gpu=True))
        spec = await tasks.load(Source("task", "task.py", None))
        compiler = Made(executor, Source(TEXT, "kernel.py", None), spec, H200)
        compiler.space = infer(TEXT)
        inputs = {"train": await tasks.make_inputs("train", 0)}
        yield Bench(world, executor, compiler, GpuBench(compiler, tasks, None, inputs))
    assert executor.alive == 0


@asynccontextmanager
async def both(made: Bench, point: Point) -> AsyncGenerator[tuple[Variant, Variant]]:
    async with made.bench.prepared("train", point) as challenger, made.bench.prepared("train", None) as champion:
        yield challenger, champion


async def test_a_variant_is_loaded_called_and_laid_out_in_a_worker_of_its_own(made: Bench) -> None:
    async with made.bench.prepared("train", FAST) as variant:
        asked = [name for name, _ in made.worker(FAST).asked]
        assert asked == ["load_kernel", "set_inputs", "prepare", "first_call", "lay_out"]
        assert (variant.case, variant.point, variant.call_us) == ("train", FAST, 120.0)
        assert made.executor.alive == 2
    assert made.executor.alive == 1


async def test_a_clear_winner_takes_few_blocks(made: Bench) -> None:
    async with both(made, FAST) as (challenger, champion):
        found = await made.bench.race(challenger, champion)
        assert found.verdict == "faster"
        assert found.center == pytest.approx(math.log(100 / 80), abs=0.005)
        assert made.worker(FAST).count("visit") <= 12
        assert device_us(champion) == pytest.approx(100, rel=0.01)


async def test_a_clear_loser_takes_fewer(made: Bench) -> None:
    async with both(made, SLOW) as (challenger, champion):
        found = await made.bench.race(challenger, champion)
        assert found.verdict == "not faster"
        assert made.worker(SLOW).count("visit") <= 10
        assert device_us(champion) is not None


async def test_equal_variants_leave_the_champion_where_it_is(made: Bench) -> None:
    made.world.us[str(FAST)] = 100.0
    async with both(made, FAST) as (challenger, champion):
        assert (await made.bench.race(challenger, champion)).verdict == "not faster"


class Judged:
    """Stands in for the check of results."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.plans: list[Plan] = []

    async def __call__(self, case: str, plan: Plan, *_: Any, **__: Any) -> CaseResult:
        self.plans.append(plan)
        return CaseResult.model_construct(kind=self.kind, message="10 of 10 elements are wrong")


async def test_a_variant_found_right_is_ready_to_be_timed_again(made: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged(Kind.OK)
    monkeypatch.setattr(module, "check_case", judged)
    async with made.bench.prepared("train", FAST) as variant:
        await made.bench.check(variant)
        assert [name for name, _ in made.worker(FAST).asked][-2:] == ["set_inputs", "lay_out"]
    assert judged.plans == [ONCE]


async def test_a_variant_found_wrong_is_stopped(made: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "check_case", Judged(Kind.WRONG))
    async with made.bench.prepared("train", FAST) as variant:
        with pytest.raises(Stopped) as caught:
            await made.bench.check(variant)
    assert caught.value.kind is Kind.WRONG
    assert "10 of 10" in caught.value.problem.message


async def test_a_whole_search_leaves_no_worker_behind(made: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "check_case", Judged(Kind.OK))
    space = made.compiler.space
    assert space is not None
    for point in space.points():
        block, warps = (int(value or 1) for value in point)
        made.world.us[str(point)] = 100 * math.exp(
            0.1 * abs(math.log2(block / 4096)) + 0.05 * abs(math.log2(warps / 8))
        )
    made.world.us["None"] = made.world.us["(1024, 4)"]
    search = Search(space, {"train": 1.0}, H200)
    await Tuning(search, made.bench, compilers=2).run(60.0)
    assert search.champion("train").point == (4096, 8)
    assert made.executor.alive == 1
    assert search.evaluations < space.size


async def test_a_failure_of_a_variant_in_a_race_is_its_own(made: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "check_case", Judged(Kind.OK))
    made.compiler.space = space = infer(TEXT, given={"BLOCK": [1024, 4096], "num_warps": []})
    made.world.us |= {"(4096,)": 80.0, "(1024,)": 100.0}

    def fail(process: FakeTimed) -> None:
        if process.name == "(4096,)":
            process.faults["visit"] = stopped(Kind.RUNTIME_ERROR, "an illegal memory access")

    made.world.changed = fail
    search = Search(space, {"train": 1.0}, H200)
    await Tuning(search, made.bench, compilers=1).run(60.0)
    assert search.failures == {("train", (4096,)): "runtime_error"}
