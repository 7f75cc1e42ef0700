"""A winner on shapes that it was not optimized for: which, what is found, and what is left out."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.faults.evaluations import KERNEL, TASK, ignore, replaced
from tests.server.adapters.files import SCALE, SPEED, bench_file
from tests.server.made_up_times import timed_case
from tritonforge.profiling.correctness import CaseResult
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.source import Source
from tritonforge.server.adapters.find import choices
from tritonforge.server.campaign import unseen as module
from tritonforge.server.campaign.model import Unseen
from tritonforge.server.campaign.unseen import unseen
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.benchmark_report import BenchmarkResult, case_times, result
from tritonforge.server.tools.run_correctness import CorrectnessResult

CASES = '{"large": {"n": 1 << 20}, "train": {"n": 1024, "small": True}}'
SHOWN = replaced(TASK, '{"train": {"n": 1000, "small": True}}', CASES)
"""Sizes that are multiples of the block."""
WITHOUT_TAIL = replaced(KERNEL, "offsets < n", "offsets < n // 16 * 16")
"""Right only where they are multiples of 16."""
RAISING = replaced(KERNEL, "    out = ", '    assert x.numel() % 16 == 0, "ragged"\n    out = ')
BUDGET_S = 300.0


def source(text: str, name: str = "kernel.py") -> Source:
    return Source(text, name, None)


# In the interpreter


@pytest.fixture(scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Services]:
    async with Services(Settings(state_dir=tmp_path_factory.mktemp("unseen") / "state")) as services:
        yield services


@dataclass
class Found:
    """What was found, and what was said."""

    cases: list[Unseen]
    said: list[str]

    @property
    def kinds(self) -> dict[str, str]:
        return {each.case: each.kind for each in self.cases}


async def tried(services: Services, kernel: str, task: str = SHOWN, baseline: str = KERNEL, **more: Any) -> Found:
    said: list[str] = []
    given: dict[str, Any] = {"kernel": source(kernel), "baseline": source(baseline), "task": source(task, "task.py")}
    given = {**given, "limit": 2, "seed": "a", "budget_s": BUDGET_S, **more}
    return Found(await unseen(services, ignore, **given, tell=said.append), said)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here is about the interpreter, whatever the machine has."""
    monkeypatch.setattr("tritonforge.server.services.GPU_DEVICE_FILES", ())


interpreted = [pytest.mark.anyio, pytest.mark.usefixtures("warm", "no_gpu")]


def marked(function: Any) -> Any:
    for mark in interpreted:
        function = mark(function)
    return function


@marked
async def test_a_winner_that_is_wrong_on_a_ragged_shape_is_told_as_wrong_there(services: Services) -> None:
    found = await tried(services, WITHOUT_TAIL)
    ends = {each.kind: each for each in found.cases}
    assert sorted(each.kind for each in found.cases) == ["ok", "wrong"]
    assert int(str(ends["wrong"].parameters["n"])) % 16
    assert int(str(ends["ok"].parameters["n"])) % 16 == 0
    assert ends["wrong"].problem
    assert [each.gain for each in found.cases] == [None, None]
    assert found.said == []


@marked
async def test_a_winner_that_fails_on_one_shape_is_tried_on_the_others(services: Services) -> None:
    found = await tried(services, RAISING)
    assert sorted(found.kinds.values()) == ["ok", "runtime_error"]
    assert any("ragged" in (each.problem or "") for each in found.cases)


@marked
@pytest.mark.parametrize("task", [SHOWN, SHOWN[: SHOWN.index("def reference")]])
async def test_a_shape_that_the_baseline_fails_on_is_left_out_and_named(services: Services, task: str) -> None:
    found = await tried(services, KERNEL, task, baseline=RAISING)
    assert list(found.kinds.values()) == ["ok"]
    (words,) = found.said
    assert "the baseline itself ends in runtime_error" in words


@marked
async def test_hidden_cases_are_named_so(services: Services) -> None:
    task = replaced(SHOWN, "(n, device)", "(device, word='x')").replace("randn(n,", "randn(len(word) + 64,")
    task = replaced(task, CASES, '{"even": {"word": "x" * 64}}')
    task += 'HIDDEN_CASES = {"odd": {"word": "xyz"}}\n'
    found = await tried(services, WITHOUT_TAIL, task)
    assert found.kinds == {"odd (hidden case)": "wrong"}
    assert found.cases[0].parameters == {"word": "xyz"}


@marked
async def test_small_sizes_of_a_performance_file_are_tried(services: Services, tmp_path: Path) -> None:
    file = tmp_path / "scale_perf.py"
    file.write_text(SPEED)
    adapted = choices(bench_file(tmp_path), performance=file)[0]
    winner = adapted.kernel.replace("at < n)", "at < n // 256 * 256)")
    assert winner != adapted.kernel
    found = await tried(services, winner, adapted.task_text, baseline=adapted.kernel, limit=2)
    assert SCALE in adapted.kernel
    assert [(each.parameters["inputs"], each.kind) for each in found.cases] == [
        ("x 64 float32", "wrong"),
        ("x 32768 float32", "ok"),
    ]


@marked
async def test_nothing_is_told_that_there_was_no_time_for(services: Services) -> None:
    found = await tried(services, KERNEL, budget_s=0.0)
    assert found.cases == []
    assert found.said == ["not all was tried within 0 s"]


@marked
async def test_a_task_without_other_shapes_is_said_to_have_none(services: Services) -> None:
    task = replaced(TASK, '{"n": 1000, "small": True}', '{"n": 8, "small": True}')
    found = await tried(services, KERNEL, task)
    assert found.cases == []
    assert "no sizes" in found.said[0]


# With a GPU, its tools made up


def stopped(kind: Kind, words: str = "it broke") -> Stopped:
    return Stopped(kind, Problem(stage="benchmark", message=words))


@dataclass
class Lab:
    """Tools that answer as the test says."""

    wrong: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """By kernel, the cases that it is wrong on."""
    broken: dict[str, Stopped] = field(default_factory=dict[str, Stopped])
    """By case, how the winner's check ends."""
    unchecked: set[str] = field(default_factory=set[str])
    """Cases that the winner is not checked on beside others."""
    faults: dict[str, Stopped] = field(default_factory=dict[str, Stopped])
    """By case, how timing it ends."""
    hangs: bool = False
    calls: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])

    async def run_correctness(self, *_: Any, kernel: Source, cases: list[str], **__: Any) -> CorrectnessResult:
        self.calls.append((f"check {kernel.shown_as}", cases))
        bad = self.wrong.get(kernel.shown_as, set())
        winner = kernel.shown_as == "winner"
        for name in cases:
            if winner and name in self.broken:
                raise self.broken[name]
        skipped = self.unchecked & {*cases} if winner and len(cases) > 1 else set[str]()
        listed = [
            CaseResult.model_construct(case=name, kind=Kind.WRONG if name in bad else Kind.OK, message=None)
            for name in cases
            if name not in skipped
        ]
        not_checked = dict.fromkeys(skipped, "it broke")
        return CorrectnessResult.model_construct(cases=listed, made_smaller={}, not_checked=not_checked)

    async def benchmark(self, *_: Any, cases: list[str], **__: Any) -> BenchmarkResult:
        self.calls.append(("time", cases))
        if self.hangs:
            await anyio.sleep_forever()
        for name in cases:
            if name in self.faults:
                raise self.faults[name]
        return result("a GPU", "cold", [case_times(timed_case(name, 50.0), None)[0] for name in cases], None, [])


@pytest.fixture
def lab(services: Services, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab()

    async def has_gpu() -> bool:
        return True

    monkeypatch.setattr(services, "has_gpu", has_gpu)
    monkeypatch.setattr(module, "run_correctness", made.run_correctness)
    monkeypatch.setattr(module, "benchmark", made.benchmark)
    return made


async def timed(services: Services, task: str = SHOWN) -> Found:
    said: list[str] = []
    winner, baseline = source(KERNEL, "winner"), source(KERNEL, "baseline")
    cases = await unseen(
        services, ignore, kernel=winner, baseline=baseline, task=source(task), limit=2, seed="a", budget_s=BUDGET_S,
        tell=said.append,
    )  # fmt: skip
    return Found(cases, said)


@marked
async def test_all_cases_take_one_call_of_each_tool(services: Services, lab: Lab) -> None:
    found = await timed(services)
    names = ["unseen-1", "unseen-2"]
    assert lab.calls == [("check baseline", names), ("check winner", names), ("time", names)]
    assert found.kinds == {"unseen-1": "ok", "unseen-2": "ok"}
    for each in found.cases:
        assert each.gain is not None
        assert each.gain.ratio == pytest.approx(2.0, rel=0.01)
        assert (each.gain.comparison, each.problem) == ("faster", None)


@marked
async def test_spares_take_the_place_of_what_the_baseline_fails_on(services: Services, lab: Lab) -> None:
    lab.wrong = {"baseline": {"unseen-1"}, "winner": {"unseen-3"}}
    found = await timed(services)
    assert found.kinds == {"unseen-2": "ok", "unseen-3": "wrong"}
    assert [each.gain is None for each in found.cases] == [False, True]
    assert lab.calls[-1] == ("time", ["unseen-2"])


@marked
async def test_hidden_cases_are_tried_where_the_baseline_does_no_other(services: Services, lab: Lab) -> None:
    lab.wrong = {"baseline": {f"unseen-{number}" for number in range(1, 5)}}
    found = await timed(services, f"{SHOWN}HIDDEN_CASES = {{'ragged': {{'n': 77}}}}\n")
    assert found.kinds == {"ragged (hidden case)": "ok"}
    assert found.cases[0].gain is not None


@marked
async def test_what_was_not_checked_beside_a_wrong_case_is_checked_by_itself(services: Services, lab: Lab) -> None:
    lab.wrong, lab.unchecked = {"winner": {"unseen-1"}}, {"unseen-2"}
    found = await timed(services)
    assert found.kinds == {"unseen-1": "wrong", "unseen-2": "ok"}
    assert ("check winner", ["unseen-2"]) in lab.calls


@marked
async def test_a_baseline_that_fails_beside_the_winner_leaves_the_case_out(services: Services, lab: Lab) -> None:
    lab.broken = {"unseen-2": stopped(Kind.RUNTIME_ERROR, "the baseline failed: it broke")}
    found = await timed(services)
    assert found.kinds == {"unseen-1": "ok"}
    assert "unseen-2 was left out" in found.said[0]


@marked
async def test_a_failure_while_one_is_timed_leaves_the_others_their_times(services: Services, lab: Lab) -> None:
    lab.faults = {"unseen-1": stopped(Kind.CHEATING)}
    found = await timed(services)
    assert found.kinds == {"unseen-1": "cheating", "unseen-2": "ok"}
    assert [each.gain is None for each in found.cases] == [True, False]
    lab.faults = {"unseen-1": stopped(Kind.OUT_OF_MEMORY, "the baseline failed: out of memory")}
    found = await timed(services)
    assert found.kinds == {"unseen-2": "ok"}
    assert "unseen-1 was left out" in found.said[0]


@marked
@pytest.mark.parametrize("kind", [Kind.UNAVAILABLE, Kind.CANCELLED])
async def test_what_is_not_the_winners_doing_is_raised(services: Services, lab: Lab, kind: Kind) -> None:
    for where in (lab.faults, lab.broken):
        where["unseen-2"] = stopped(kind)
        with pytest.raises(Stopped) as caught:
            await timed(services)
        assert caught.value.kind is kind
    # As it may be found when the cases are run one by one.
    lab.broken = {"unseen-1": stopped(Kind.LAUNCH_ERROR), "unseen-2": stopped(kind)}
    with pytest.raises(Stopped) as caught:
        await timed(services)
    assert caught.value.kind is kind


@marked
async def test_what_was_known_when_the_time_was_up_is_told(
    services: Services, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.hangs = True
    scopes: list[anyio.CancelScope] = []
    made = anyio.move_on_after

    def move_on_after(seconds: float) -> anyio.CancelScope:
        scopes.append(made(seconds))
        return scopes[-1]

    async def run() -> None:
        found.append(await timed(services))

    monkeypatch.setattr(module.anyio, "move_on_after", move_on_after)
    found: list[Found] = []
    async with anyio.create_task_group() as group:
        group.start_soon(run)
        while not lab.calls or lab.calls[-1][0] != "time":
            await anyio.lowlevel.checkpoint()
        scopes[0].deadline = -1.0
    assert found[0].kinds == {"unseen-1": "ok", "unseen-2": "ok"}
    assert [(each.gain, each.problem) for each in found[0].cases] == [
        (None, "right, and not timed: there was no time left")
    ] * 2
    assert found[0].said == ["not all was tried within 300 s"]
