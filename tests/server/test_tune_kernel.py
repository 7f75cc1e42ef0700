"""tune_kernel over MCP without a GPU; and whole, on workers, compilers and a final benchmark that are made up."""

import ast
import json
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import pytest
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

from tests.profiling.tuning.facts import launch
from tests.server.conftest import EXAMPLES, RESULT_LIMIT, content_of, fits, text_of, tools_of, without_gpu
from tests.server.fake_timing import CASE, FakeExecutor, World
from tests.server.test_benchmark_tool import FakeServices
from tritonforge.profiling.comparison import Score
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.correctness import CaseResult
from tritonforge.profiling.hardware.catalog import resolve_target
from tritonforge.profiling.hardware.model import Target
from tritonforge.profiling.tuning.importance import KnobEffect
from tritonforge.profiling.tuning.space import Point
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Job
from tritonforge.sandbox.facts import CapturedLaunch
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.process import WorkerProcess
from tritonforge.sandbox.source import Source, read_source
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools import tune_kernel as tool
from tritonforge.server.tools.benchmark_report import BenchmarkResult, CaseTimes
from tritonforge.server.tools.run_correctness import CorrectnessResult
from tritonforge.server.tune_tools import register
from tritonforge.server.tuning import bench, finish
from tritonforge.server.tuning.parametrize import check_parametrized
from tritonforge.server.tuning.report import KnobValues, TunedCase, TuneResult, bounded

pytestmark = pytest.mark.anyio
MATMUL, SIN = EXAMPLES / "matmul", EXAMPLES / "sin"
TOKENS_LIMIT = 1500
CHARACTERS_PER_TOKEN = 3.5


@pytest.fixture(scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory, warm: None) -> AsyncGenerator[Services]:
    async with Services(Settings(state_dir=tmp_path_factory.mktemp("tune") / "state")) as services:
        yield services


@pytest.fixture(scope="module")
async def client(services: Services) -> AsyncGenerator[Client]:
    server: MCPServer[Any] = MCPServer("tune")
    register(server, services)
    async with Client(server) as client:
        yield client


async def call(client: Client, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool("tune_kernel", arguments)
    content = content_of(result)
    fits(content, (await tools_of(client))["tune_kernel"])
    assert len(text_of(result)) <= RESULT_LIMIT
    assert len(json.dumps(content)) - len(json.dumps(content["summary"])) <= TOKENS_LIMIT * CHARACTERS_PER_TOKEN
    return content


@without_gpu
async def test_without_a_gpu_the_space_and_what_compiling_rules_out_are_told(client: Client) -> None:
    space = {"BLOCK_K": [64, 256], "num_warps": [2, 4], "num_stages": [4]}
    found = await call(
        client,
        kernel=str(MATMUL / "baseline.py"),
        task=str(MATMUL / "task.py"),
        cases=["square"],
        space={**space, "BLOCK_M": [], "BLOCK_N": []},
        target="h200",
        budget_s=60,
    )
    assert found["kind"] == "unavailable"
    assert {knob["name"]: knob["values"] for knob in found["knobs"]} == space
    assert {knob["name"]: knob["present"] for knob in found["knobs"]}["num_warps"] == 2
    # Four stages of a length of 256 don't fit, and two warps can't use wgmma.
    assert found["points"] == 4
    assert found["pruned"] == {"tensor cores lost": 2, "shared memory": 1}
    assert found["compiled"] == 1 + 3
    assert "BLOCK_K (tile, now 32): 64, 256" in found["summary"]
    assert "4 compiled for h200, 0 of them to the same code as others" in found["summary"]
    assert "Looks promising, not measured: BLOCK_K=64, num_warps=4" in found["summary"]
    assert "GPU" in found["problem"]["likely_fix"]
    assert found["evaluations"] == 0
    assert found["ratio"] is None


@without_gpu
@pytest.mark.parametrize(
    ("changed", "message", "fix"),
    [
        ({"space": {"BLOCKS": [64]}}, "no knob 'BLOCKS'", "Leave space out"),
        ({"space": {"BLOCK": [], "num_warps": []}}, "exposes no knob", "parametrize"),
        ({"kernel": "/none.py"}, "no kernel file", "absolute path"),
        ({"cases": ["huge"]}, "no case 'huge'", "large"),
    ],
)
async def test_what_can_not_be_searched_is_rejected(
    client: Client, changed: dict[str, Any], message: str, fix: str
) -> None:
    found = await call(client, **{"kernel": str(SIN / "baseline.py"), "task": str(SIN / "task.py"), **changed})
    assert found["kind"] == "rejected"
    assert message in found["problem"]["message"]
    assert fix in found["problem"]["likely_fix"]


async def test_a_file_whose_knobs_were_exposed_has_the_same_code(services: Services) -> None:
    text = (SIN / "baseline.py").read_text()
    hidden = text.replace(", BLOCK: tl.constexpr", "").replace(", BLOCK=block", "").replace("BLOCK", "4")
    task, target = read_source(str(SIN / "task.py"), "task"), resolve_target("h200")

    async def check(after: str) -> Any:
        before, new = (Source(each, "kernel.py", None) for each in (hidden, after))
        return await check_parametrized(services, before, new, task, target, ["large"])

    same = await check(text)
    assert (same.ok, same.same_code, same.problem) == (True, True, None)
    assert "BLOCK" in same.exposed
    other = await check(text.replace("block = 4", "block = 8"))
    assert (other.ok, other.same_code) == (False, False)
    assert "code" in other.differing[0]
    unchanged = await check(hidden)
    assert (unchanged.ok, unchanged.same_code) == (False, True)
    assert unchanged.problem is not None


# From here on, all is made up.

H200 = resolve_target("h200")
BEST = (2048, 8)


class MadeExecutor(FakeExecutor):
    """Also has workers of the task on the CPU."""

    def submit(self, job: Job) -> AbstractAsyncContextManager[WorkerProcess]:
        return super().submit(Job(job.role, on_gpu=True))


class MadeServices(FakeServices):
    """A server on a machine with a GPU."""

    def __init__(self, folder: Path, world: World) -> None:
        super().__init__(folder, world)
        self.executor = MadeExecutor(world)

    async def has_gpu(self) -> bool:
        return True

    async def target(self, name: str | None) -> Target:
        return resolve_target(name or "h200")


async def compiled(self: bench.Compiler, point: Point | None) -> Mapping[str, Sequence[LaunchFacts]]:
    """Stands in for the compiler: each variant has a code of its own."""
    if point is None:
        self.captured = {"train": [_captured()], "wide": [_captured(n=2)]}
    return {case: [launch(code_hash=str(point))] for case in ("train", "wide")}


def _captured(n: int = 1) -> CapturedLaunch:
    return CapturedLaunch.model_validate(
        {
            "kernel": "sin_kernel", "symbol": "sin_kernel", "grid": (1, 1, 1), "count": 1, "tuning": False,
            "num_warps": 4, "num_stages": 3, "num_ctas": 1, "shared_bytes": 0, "constexprs": {}, "signature": {},
            "divisible_by_16": [], "integers": {"n": n}, "line": None, "ptxas_log": None, "assembly": {},
        }
    )  # fmt: skip


class Times(dict[str, float]):
    """What a variant takes, by the text of its file; the fewer steps from the best, the less."""

    def __missing__(self, shown_as: str) -> float:
        block, warps = map(int, shown_as.split("-"))
        return 100.0 * math.exp(0.2 * abs(math.log2(block / BEST[0])) + 0.1 * abs(math.log2(warps / BEST[1])))


def named(text: str) -> str:
    block = text.partition("block = ")[2].partition("\n")[0]
    return f"{block}-{text.partition('num_warps=')[2].partition(')')[0]}"


class Final:
    """Stands in for run_correctness and benchmark."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.timed: list[tuple[str, str]] = []
        self.wrong: set[str] = set()
        self.fails: Stopped | None = None

    async def correct(self, *_: Any, kernel: Source, **__: Any) -> CorrectnessResult:
        self.checked.append(named(kernel.text))
        if self.checked[-1] in self.wrong:
            problem = Problem(stage="compare", message="3 of 10 elements are wrong")
            return CorrectnessResult(kind=Kind.WRONG, summary="wrong", problem=problem)
        return CorrectnessResult(kind=Kind.OK, summary="right")

    async def benchmark(
        self, *_: Any, kernel: Source, baseline: Source, cases: list[str], **__: Any
    ) -> BenchmarkResult:
        self.timed.append((named(kernel.text), named(baseline.text)))
        if self.fails is not None:
            raise self.fails
        mine, its = (Times()[named(each.text)] for each in (kernel, baseline))
        ratio = its / mine
        told: dict[str, Any] = {
            "ratio": ratio, "ratio_low": ratio * 0.99, "ratio_high": ratio * 1.01, "comparison": "faster",
        }  # fmt: skip
        times = [CaseTimes.model_construct(case=case, device_us=mine, baseline_device_us=its, **told) for case in cases]
        score = Score.model_construct(**told)
        return BenchmarkResult.model_construct(
            kind=Kind.OK, summary="", cases=times, score=score, artifacts=["tritonforge://artifacts/0/samples.json"]
        )


class Whole:
    """The tool with everything around it made up."""

    def __init__(self, services: MadeServices, final: Final, world: World) -> None:
        self.services, self.final, self.world = services, final, world

    async def run(self, **more: Any) -> TuneResult:
        async def progress(done: float, total: float, message: str) -> None:
            assert 0 <= done < total
            assert message

        given: dict[str, Any] = {
            "kernel": (SIN / "candidate.py").read_text(), "task": "#\n", "budget_s": 60.0, "cases": ["train"], **more,
        }  # fmt: skip
        found = await tool.tune_kernel(cast(Services, self.services), progress, **given)
        assert self.services.executor.alive == 0
        assert len(found.model_dump_json(exclude={"summary"})) <= TOKENS_LIMIT * CHARACTERS_PER_TOKEN
        return found

    def tuned_text(self, found: TuneResult) -> str:
        path = self.services.artifacts.find(*found.artifacts[0].rsplit("/", 2)[1:])
        assert path is not None
        return path.read_text()


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Whole:
    return made_up(tmp_path, monkeypatch)


def made_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Whole:
    world, final = World(us=Times()), Final()
    world.description["cases"] = {"train": CASE, "wide": CASE}
    original = bench.Compiler.source

    def source(self: bench.Compiler, point: Point | None) -> Source:
        found = original(self, point)
        return found._replace(shown_as=named(found.text))

    async def check(*_: Any, **__: Any) -> CaseResult:
        return CaseResult.model_construct(kind=Kind.OK)

    monkeypatch.setattr(bench.Compiler, "compile", compiled)
    monkeypatch.setattr(bench.Compiler, "source", source)
    monkeypatch.setattr(bench, "check_case", check)
    monkeypatch.setattr(finish, "run_correctness", final.correct)
    monkeypatch.setattr(finish, "benchmark", final.benchmark)
    return Whole(MadeServices(folder, world), final, world)


async def test_the_best_point_is_checked_timed_and_handed_out(whole: Whole) -> None:
    found = await whole.run()
    assert found.kind is Kind.OK
    assert found.chosen == {"BLOCK": 2048, "num_warps": 8}
    assert whole.final.checked == ["2048-8"]
    assert whole.final.timed == [("2048-8", "1024-4")]
    assert found.ratio == pytest.approx(math.exp(0.3))
    (case,) = found.cases
    assert (case.tuned_us, case.comparison) == (100.0, "faster")
    assert case.best_ratio == pytest.approx(math.exp(0.3), rel=0.01)
    assert named(whole.tuned_text(found)) == "2048-8"
    assert found.diff is not None
    assert "+    block = 2048" in found.diff
    assert found.autotune is not None
    assert ast.parse(f"import triton\n{found.autotune}\ndef kernel(): ...")
    assert {effect.knob: effect.matters for effect in found.effects} == {"BLOCK": True, "num_warps": True}
    assert 0 < found.evaluations < found.points == 45
    assert "BLOCK=2048" in found.summary
    assert "ratio 1.350" in found.summary


async def test_a_finalist_found_wrong_gives_way_to_the_next(whole: Whole) -> None:
    whole.final.wrong = {"2048-8"}
    found = await whole.run()
    assert len(whole.final.checked) >= 2
    assert found.chosen is not None
    assert found.chosen != {"BLOCK": 2048, "num_warps": 8}
    assert found.failed == {"wrong": 1}
    assert "is wrong: 3 of 10 elements are wrong" in found.notes[0]


async def test_where_nothing_is_faster_the_file_stays(whole: Whole) -> None:
    text = (
        (SIN / "candidate.py").read_text().replace("block = 1024", "block = 2048").replace("num_warps=4", "num_warps=8")
    )
    found = await whole.run(kernel=text)
    assert (found.kind, found.chosen, found.ratio, found.diff) == (Kind.OK, None, None, None)
    assert whole.final.timed == []
    assert "Nothing faster" in found.summary
    assert found.cases[0].baseline_us == pytest.approx(100.0, rel=0.01)
    assert found.cases[0].tuned_us is None
    assert found.next_step is not None
    assert "diagnose_kernel" in found.next_step


async def test_evaluations_are_a_limit(whole: Whole) -> None:
    found = await whole.run(evaluations=4)
    assert found.evaluations == 4
    assert found.stopped_because == "all evaluations are used"


async def test_a_final_benchmark_that_ends_early_leaves_no_ratio(whole: Whole) -> None:
    whole.final.fails = Stopped(Kind.CHEATING, Problem(stage="benchmark", message="faster than light"))
    found = await whole.run()
    assert (found.ratio, found.chosen) == (None, {"BLOCK": 2048, "num_warps": 8})
    assert "faster than light" in found.notes[0]


async def test_several_cases_have_one_choice_and_stay_within_bounds(whole: Whole) -> None:
    found = await whole.run(cases=None)
    assert [case.case for case in found.cases] == ["train", "wide"]
    assert found.chosen == {"BLOCK": 2048, "num_warps": 8}
    assert found.autotune is not None
    assert "key=['n']" in found.autotune


def test_a_result_of_many_cases_and_knobs_fits_a_small_context() -> None:
    names = {f"BLOCK_NUMBER_{number}": 128 for number in range(10)}
    result = TuneResult(
        kind=Kind.OK,
        summary="",
        knobs=[
            KnobValues(name=name, kernel="a_kernel_with_a_long_name", role="tile", present=64, values=[16, 32, 64, 128])
            for name in names
        ],
        left_alone={f"IS_{name}": "its name says what is computed" for name in names},
        chosen={**names},
        cases=[TunedCase(case=f"case {number}", best={**names}, best_ratio=1.25) for number in range(8)],
        effects=[
            KnobEffect(knob=name, best=128, lost_pct={"16": 140.5, "32": 70.25, "64": 12.5}, matters=True)
            for name in names
        ],
        diff="+ a line\n" * 150,
        autotune="triton.Config({})\n" * 50,
        notes=["a note"],
    )
    found = bounded(result)
    assert len(found.model_dump_json(exclude={"summary"})) <= TOKENS_LIMIT * CHARACTERS_PER_TOKEN
    assert found.chosen == names
    assert found.notes[0] == "a note"
    assert found.notes[1].startswith("Left out for length: the knobs' values")
    small = result.model_copy(update={"knobs": [], "cases": [], "effects": [], "diff": None})
    assert bounded(small) == small


async def test_another_target_than_this_gpu_is_only_compiled_for(whole: Whole) -> None:
    found = await whole.run(target="a100-sxm", budget_s=5.0)
    assert found.kind is Kind.UNAVAILABLE
    assert found.problem is not None
    assert found.problem.likely_fix == "Leave target out."
    assert found.evaluations == 0
