"""Verifying an export: what holds here, what does not, and what this machine can't tell."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.profiling.optimization.made_up import evidence, launch
from tests.server.conftest import EXAMPLES
from tests.server.runs.kept import GPU, RUN_ID, Kept, measured, store_in
from tritonforge.profiling.comparison import Score
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.correctness import CaseResult
from tritonforge.profiling.optimization.model import CaseLaunch
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.facts import Environment, GpuFacts
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.server.results import Result
from tritonforge.server.runs import verify as module
from tritonforge.server.runs.claims import Here, judge_ratio, same_code, text
from tritonforge.server.runs.export import RECORD, export
from tritonforge.server.runs.store import Store
from tritonforge.server.runs.verification import VerificationRecord
from tritonforge.server.runs.verify import read_record, verify
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.benchmark_report import BenchmarkResult
from tritonforge.server.tools.compile_kernel import compile_kernel
from tritonforge.server.tools.compile_report import CompileResult, Launch
from tritonforge.server.tools.run_correctness import CorrectnessResult

FASTER = "# one pass\ndef entry(x):\n    return +x\n"


async def ignore(done: float, total: float, message: str) -> None:
    """Nobody watches."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    kept = store_in(tmp_path / "state")
    yield kept
    kept.close()


@pytest.fixture
def exported(store: Store, tmp_path: Path) -> Path:
    """The export of a kernel that was measured to be 1.3 times as fast as its baseline."""
    Kept(store).attempt(FASTER, measured(1.3), accepted=True)
    return export(store, RUN_ID, tmp_path / "out").folder


def score(ratio: float, comparison: str = "faster", width: float = 0.004) -> Score:
    return Score.model_validate(
        {
            "ratio": ratio, "ratio_low": ratio - width, "ratio_high": ratio + width, "comparison": comparison,
            "min_detectable_pct": 1.0, "resolution_pct": 0.1, "margin_pct": 0.5, "false_positive_pct": 1.0,
            "blocks": 20, "samples": 80, "faster_cases": [], "slower_cases": [], "ambiguous_cases": [],
        }
    )  # fmt: skip


def compiled(code_hash: str = "0" * 16) -> CompileResult:
    fields: dict[str, Any] = {
        **launch(code_hash=code_hash).facts.model_dump(), "case": "a", "count": 1, "tuning": False, "line": 1,
        "constexprs": {}, "not_divisible_by_16": [], "access_widths_bytes": [16],
    }  # fmt: skip
    return CompileResult(kind=Kind.OK, summary="", target="h200", launches=[Launch.model_validate(fields)])


def stopped(kind: Kind) -> Stopped:
    return Stopped(kind, Problem(stage="run", message="as the test says"))


class Machine:
    """A machine made up for a test: what its tools say, and which of them were asked."""

    def __init__(self, patch: pytest.MonkeyPatch, *, gpu: str | None = GPU, triton: str = "3.6.0") -> None:
        self.answers: dict[str, Result | Stopped] = {
            "compile_kernel": compiled(),
            "run_correctness": CorrectnessResult(kind=Kind.OK, summary="all right\nmore", device="cuda:0"),
            "benchmark": BenchmarkResult(kind=Kind.OK, summary="", score=score(1.3)),
        }
        self.asked: dict[str, dict[str, Any]] = {}
        for tool in self.answers:
            patch.setattr(module, tool, self._tool(tool))
        facts = gpu and GpuFacts(
            name=gpu, capability=90, sm_count=132, memory_bytes=1, l2_bytes=1, device_count=1, cuda=None
        )
        known = Environment(executable="python", torch="2.11.0", triton=triton, gpu=facts or None)

        async def environment(services: Services) -> Environment:
            return known

        async def has_gpu(services: Services) -> bool:
            return gpu is not None

        patch.setattr(Services, "environment", environment)
        patch.setattr(Services, "has_gpu", has_gpu)

    def _tool(self, name: str) -> Any:
        async def tool(services: Services, progress: Any, **arguments: Any) -> Any:
            self.asked[name] = arguments
            answer = self.answers[name]
            if isinstance(answer, Stopped):
                raise answer
            return answer

        return tool


@pytest.mark.anyio
async def test_a_kernel_that_is_what_it_was_holds(
    exported: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch)
    result = await verify(Services(settings), exported, ignore)
    assert result.outcome == "holds"
    assert [(claim.claim, claim.holds) for claim in result.claims] == [
        ("files", True), ("compiles", True), ("same_code", True), ("correct", True), ("faster", True), ("ratio", True),
    ]  # fmt: skip
    assert (result.ratio, result.ratio_low, result.ratio_high, result.overlaps) == (1.3, 1.296, 1.304, True)
    assert machine.asked["compile_kernel"]["target"] == "h200"
    assert machine.asked["benchmark"]["cases"] == ["a"]
    for asked in machine.asked.values():
        assert (asked["kernel"], asked["task"]) == (str(exported / "entry.py"), str(exported / "task.py"))
    assert machine.asked["benchmark"]["baseline"] == str(exported / "baseline.py")
    assert any("hidden case(s) were not run again" in note for note in result.not_checked)


WRONG = CorrectnessResult(kind=Kind.WRONG, summary="case a is wrong", device="cuda:0")


@pytest.mark.parametrize(
    ("tool", "answer", "claim", "outcome"),
    [
        ("compile_kernel", stopped(Kind.COMPILE_ERROR), "compiles", "fails"),
        ("compile_kernel", stopped(Kind.UNSUPPORTED), "compiles", "undecided"),
        ("compile_kernel", compiled("1" * 16), "same_code", "fails"),
        ("run_correctness", WRONG, "correct", "fails"),
        ("run_correctness", stopped(Kind.CHEATING), "correct", "fails"),
        ("run_correctness", stopped(Kind.REJECTED), "correct", "undecided"),
        ("run_correctness", stopped(Kind.TIMEOUT), "correct", "fails"),
        ("benchmark", stopped(Kind.CHEATING), "faster", "fails"),
        ("benchmark", stopped(Kind.UNAVAILABLE), "faster", "undecided"),
        ("benchmark", BenchmarkResult(kind=Kind.OK, summary="", score=score(1.0, "same")), "faster", "fails"),
        ("benchmark", BenchmarkResult(kind=Kind.OK, summary="", score=score(1.1)), "ratio", "fails"),
    ],
)
@pytest.mark.anyio
async def test_what_does_not_hold_or_can_not_be_told_is_named(
    exported: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    answer: Any,
    claim: str,
    outcome: str,
) -> None:
    Machine(monkeypatch).answers[tool] = answer
    result = await verify(Services(settings), exported, ignore)
    assert result.outcome == outcome
    holds = {found.claim: found.holds for found in result.claims}
    assert holds.pop(claim) is (False if outcome == "fails" else None)
    assert all(holds.values())


@pytest.mark.anyio
async def test_a_kernel_that_is_wrong_is_not_timed(
    exported: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch)
    machine.answers["run_correctness"] = WRONG
    assert (await verify(Services(settings), exported, ignore)).ratio is None
    assert "benchmark" not in machine.asked


@pytest.mark.parametrize(("kind", "holds"), [(Kind.OK, True), (Kind.WRONG, False)])
@pytest.mark.anyio
async def test_hidden_cases_that_stand_in_the_task_are_run_in_the_place_of_the_visible_ones(
    store: Store, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, holds: bool
) -> None:
    task = "CASES = {'a': {}}\nHIDDEN_CASES = {'b': {}}"
    Kept(store, task=task, hidden_from="task").attempt(FASTER, measured(1.3), accepted=True)
    folder = export(store, RUN_ID, tmp_path / "out").folder
    Machine(monkeypatch)
    tasks: list[dict[str, Any]] = []

    async def run_correctness(services: Services, progress: Any, **arguments: Any) -> CorrectnessResult:
        names: dict[str, Any] = {}
        given = arguments["task"]
        exec(task if given == str(folder / "task.py") else given, names)
        tasks.append({name: names[name] for name in ("CASES", "HIDDEN_CASES")})
        return CorrectnessResult(kind=Kind.OK if len(tasks) == 1 else kind, summary="as it is", device="cuda:0")

    monkeypatch.setattr(module, "run_correctness", run_correctness)
    result = await verify(Services(settings), folder, ignore)
    assert tasks == [{"CASES": {"a": {}}, "HIDDEN_CASES": {"b": {}}}, {"CASES": {"b": {}}, "HIDDEN_CASES": {}}]
    assert {claim.claim: claim.holds for claim in result.claims}["hidden"] is holds
    assert not any("hidden" in note for note in result.not_checked)


@pytest.mark.anyio
async def test_nothing_of_hidden_cases_is_told_but_how_many_fail_and_how(
    store: Store, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = "CASES = {'a': {}}\nHIDDEN_CASES = {'ragged-1823': {}}"
    Kept(store, task=task, hidden_from="task").attempt(FASTER, measured(1.3), accepted=True)
    folder = export(store, RUN_ID, tmp_path / "out").folder
    Machine(monkeypatch)
    heard: list[str] = []
    ends: list[Result | Stopped] = []

    async def run_correctness(services: Services, progress: Any, **arguments: Any) -> CorrectnessResult:
        if arguments["task"] == str(folder / "task.py"):
            return CorrectnessResult(kind=Kind.OK, summary="all right", device="cuda:0")
        await progress(0, 1, "checking case ragged-1823")
        if isinstance(ends[0], Stopped):
            raise ends[0]
        return CorrectnessResult.model_validate(ends[0].model_dump())

    async def hear(done: float, total: float, message: str) -> None:
        heard.append(message)

    monkeypatch.setattr(module, "run_correctness", run_correctness)
    said = "case ragged-1823: expected 1.25 at [1822], got 0"
    listed: dict[str, Any] = dict.fromkeys(CaseResult.model_fields) | {
        "case": "ragged-1823", "kind": Kind.WRONG, "seeds": [0], "elements": 1, "wrong_elements": 1, "structured": [],
        "skipped": [], "launches": [], "outside_triton": [], "message": said,
    }  # fmt: skip
    one = CaseResult.model_validate(listed)
    wrong = CorrectnessResult(kind=Kind.WRONG, summary=said, device="cuda:0", cases=[one])
    raised = Stopped(Kind.RUNTIME_ERROR, Problem(stage="run", message=said))
    for end, detail in ((wrong, "1 of 1 hidden cases are wrong"), (raised, "runtime_error: on a hidden case")):
        ends[:] = [end]
        result = await verify(Services(settings), folder, hear)
        (claim,) = [claim for claim in result.claims if claim.claim == "hidden"]
        assert claim.holds is False
        assert detail in claim.detail
        for told in (result.model_dump_json(), text(result), " ".join(heard)):
            assert "1823" not in told
            assert "1.25" not in told


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.OUT_OF_MEMORY])
@pytest.mark.anyio
async def test_what_the_interpreter_does_not_get_done_says_nothing_of_the_kernel(
    exported: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    Machine(monkeypatch, gpu=None).answers["run_correctness"] = stopped(kind)
    assert (await verify(Services(settings), exported, ignore)).outcome == "undecided"


@pytest.mark.anyio
async def test_a_machine_that_can_do_nothing_gives_no_verdict(
    exported: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine(monkeypatch).answers["compile_kernel"] = stopped(Kind.UNAVAILABLE)
    with pytest.raises(Stopped, match="unavailable"):
        await verify(Services(settings), exported, ignore)


@pytest.mark.anyio
async def test_another_gpu_has_to_show_a_gain_but_not_the_recorded_one(
    exported: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, gpu="NVIDIA H100", triton="3.7.0")
    machine.answers["benchmark"] = BenchmarkResult(kind=Kind.OK, summary="", score=score(1.1))
    result = await verify(Services(settings), exported, ignore)
    assert result.outcome == "holds"
    assert "ratio" not in {claim.claim for claim in result.claims}
    assert result.overlaps is False
    told = " ".join(result.not_checked)
    assert "GPU NVIDIA H100, recorded with NVIDIA H200; Triton 3.7.0, recorded with 3.6.0" in told
    assert "Machine code was not compared" in told


@pytest.mark.parametrize("name", ["entry.py", "baseline.py", "task.py", "entry.patch"])
@pytest.mark.parametrize("harm", ["changed", "gone"])
@pytest.mark.anyio
async def test_files_that_are_not_those_of_the_record_fail_and_are_not_run(
    exported: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, harm: str
) -> None:
    machine = Machine(monkeypatch)
    if harm == "changed":
        (exported / name).write_bytes((exported / name).read_bytes() + b"\n")
    else:
        (exported / name).unlink()
    result = await verify(Services(settings), exported, ignore)
    assert (result.outcome, machine.asked) == ("fails", {})
    assert name in result.claims[0].detail
    assert "does NOT hold" in text(result)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can't be read"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is no tritonforge-verification record"),
        ('{"format": "tritonforge-verification", "version": 2, "tool_version": "9.1"}', "has version 2"),
        ('{"format": "tritonforge-verification", "version": 1}', "is damaged"),
    ],
)
def test_a_folder_without_a_record_that_can_be_read_is_misuse(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / RECORD).write_text(content)
    with pytest.raises(Stopped) as found:
        read_record(tmp_path)
    assert found.value.kind is Kind.REJECTED
    assert said in found.value.problem.message


@pytest.mark.parametrize(
    ("ratio", "comparison", "differs", "claims"),
    [
        (1.3, "faster", [], [("faster", True), ("ratio", True)]),
        (1.5, "faster", [], [("faster", True), ("ratio", True)]),
        # The same within half a percent beyond the intervals.
        (1.287, "faster", [], [("faster", True), ("ratio", True)]),
        (1.28, "faster", [], [("faster", True), ("ratio", False)]),
        (1.28, "faster", ["GPU a, recorded with b"], [("faster", True)]),
        (1.0, "same", [], [("faster", False)]),
        (0.9, "slower", [], [("faster", False)]),
        (1.3, "ambiguous", [], [("faster", None)]),
    ],
)
def test_a_gain_is_held_against_the_recorded_one(
    exported: Path, ratio: float, comparison: str, differs: list[str], claims: list[tuple[str, bool | None]]
) -> None:
    found, left = judge_ratio(read_record(exported), score(ratio, comparison), differs)
    assert [(claim.claim, claim.holds) for claim in found] == claims
    assert bool(left) == (len(found) == 1)


def test_where_no_gain_was_recorded_none_is_claimed(store: Store, tmp_path: Path) -> None:
    Kept(store).attempt(FASTER, evidence())
    record = export(store, RUN_ID, tmp_path / "out", 1).record
    found, left = judge_ratio(record, score(1.2), [])
    assert found == []
    assert left == [
        "The record claims no gain over the baseline; it is faster: 1.2x now (95 % interval 1.196 to 1.204)."
    ]


def test_code_is_the_same_launch_by_launch(exported: Path) -> None:
    record = read_record(exported)
    assert same_code(record, compiled()).holds
    other = same_code(record, compiled("1" * 16))
    assert (other.holds, other.detail) == (False, "other code than recorded: kernel in case a")


@pytest.mark.usefixtures("warm")
@pytest.mark.anyio
async def test_an_export_of_softmax_is_verified_without_a_gpu(
    store: Store, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonforge.server.services.GPU_DEVICE_FILES", ())
    texts = {name: (EXAMPLES / "softmax" / f"{name}.py").read_text() for name in ("baseline", "task", "candidate")}
    async with Services(settings) as services:
        made = await compile_kernel(
            services, ignore, kernel=texts["candidate"], task=texts["task"], target="h200", cases=["small"]
        )
        facts = [launch.model_dump(include=set(LaunchFacts.model_fields)) for launch in made.launches]
        launches = [CaseLaunch(case="small", facts=LaunchFacts.model_validate(fields)) for fields in facts]
        Kept(
            store, baseline=texts["baseline"], task=texts["task"], entry="softmax", cases=["small"], gpu=None,
            triton=(await services.environment()).triton, hidden_from="task",
        ).attempt(texts["candidate"], evidence(launches=launches))  # fmt: skip
        folder = export(store, RUN_ID, tmp_path / "out", 1).folder
        result = await verify(services, folder, ignore)
    assert result.outcome == "holds", text(result)
    assert [claim.claim for claim in result.claims] == ["files", "compiles", "same_code", "correct"]
    assert isinstance(result.here, Here)
    assert (result.here.gpu, result.here.device) == (None, "interpreter")
    told = text(result)
    assert "Results were compared in Triton's interpreter, on small" in told
    assert "hidden case(s) were not run again: that takes a GPU." in told
    assert "Times were not checked: this machine has no GPU that can be used." in told
    assert VerificationRecord.model_validate(json.loads((folder / RECORD).read_bytes())) == read_record(folder)
