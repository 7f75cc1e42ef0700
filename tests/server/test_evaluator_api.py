"""Candidates scored for search frameworks, with an evaluator that measures what a candidate's text says."""

import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tritonforge.profiling.optimization.model import Confirmation
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.server import evaluate_cli, evaluator_api
from tritonforge.server.cli import FAILED, MISUSE, OK, run
from tritonforge.server.evaluator_api import Evaluation, Evaluator, evaluate
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings

SEARCH = Path(__file__).parents[2] / "examples" / "search"
BASELINE = candidate(1, findings=["V1"])
FAST = candidate(2, ratio=1.5, cases={"ragged": 1.2}, findings=["V6"])
HIDDEN = "HIDDEN_CASES = {'secret name': {'n': 12345}}\n"


@pytest.fixture
def fake() -> FakeEvaluator:
    return FakeEvaluator()


@pytest.fixture
def evaluator(settings: Settings, fake: FakeEvaluator) -> Iterator[Evaluator]:
    with Evaluator(BASELINE, task(), hidden_cases=HIDDEN, settings=settings, evaluator=lambda _: fake) as warm:
        yield warm


def test_a_faster_candidate_scores_its_ratio(evaluator: Evaluator) -> None:
    found = evaluator(FAST)
    assert (found.kind, found.side["comparison"]) == (Kind.OK, "faster")
    assert found.score == pytest.approx((1.5**3 * 1.2) ** 0.25)
    assert {case["case"]: case["ratio"] for case in found.side["cases"]} == {"large": 1.5, "ragged": 1.2}
    assert found.side["second_look"]["kind"] == "ok"
    for part in ("Score 1.419", "large: 66.67 us, 1.5x", "Finding V6", "when timed again"):
        assert part in found.feedback


def test_the_baseline_itself_scores_1(evaluator: Evaluator) -> None:
    assert evaluator(BASELINE).score == pytest.approx(1.0)


def test_a_slower_candidate_scores_below_1_and_is_told_why(evaluator: Evaluator, fake: FakeEvaluator) -> None:
    found = evaluator(candidate(3, ratio=0.5))
    assert (found.kind, found.score) == (Kind.OK, pytest.approx(0.5))
    assert "slower" in found.feedback
    assert found.side["reasons"]
    # Only what is faster is worth a second look.
    assert fake.confirmed == 0


def test_the_smaller_of_two_measurements_counts(
    evaluator: Evaluator, fake: FakeEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm = fake.confirm

    async def less(*given: Any) -> Confirmation:
        found = await confirm(*given)
        assert found.timing is not None
        return found.model_copy(update={"timing": found.timing.model_copy(update={"ratio": 1.25})})

    monkeypatch.setattr(fake, "confirm", less)
    assert evaluator(candidate(7, ratio=1.5)).score == 1.25


@pytest.mark.parametrize("kind", ["wrong", "compile_error", "launch_error", "timeout", "cheating"])
def test_a_candidate_that_fails_scores_0_with_what_to_mend(evaluator: Evaluator, kind: str) -> None:
    found = evaluator(candidate(4, kind=kind, message="line 3 is at fault"))
    assert (found.kind, found.score) == (kind, 0.0)
    assert f"Score 0: it failed, {kind}" in found.feedback
    assert "line 3 is at fault" in found.feedback
    assert "Mend what the script says." in found.feedback
    assert found.side["problem"]["line"] == 3
    assert found.for_openevolve()[0] == {"combined_score": 0.0, "correct": 0.0}


def test_a_candidate_that_fails_on_hidden_cases_scores_0_and_learns_nothing_of_them(evaluator: Evaluator) -> None:
    found = evaluator(candidate(5, ratio=9.0, confirm="wrong"))
    assert (found.kind, found.score) == (Kind.WRONG, 0.0)
    told = found.model_dump_json()
    assert "secret name" not in told
    assert "12345" not in told
    assert "12345" not in evaluator(FAST).model_dump_json()


def test_without_a_gpu_there_is_no_score_and_none_is_made_up(settings: Settings, fake: FakeEvaluator) -> None:
    found = evaluate(
        FAST, baseline=BASELINE, task=task(timed=False), settings=settings, evaluator=lambda _: fake
    )  # fmt: skip
    assert (found.kind, found.score) == (Kind.UNAVAILABLE, None)
    assert found.feedback.startswith("Right in all cases that were checked; no score: ")
    assert "no GPU" in found.feedback
    for shape in (found.for_openevolve, found.for_gepa):
        with pytest.raises(Stopped, match="no GPU"):
            shape()


def test_calls_from_several_threads_are_answered(evaluator: Evaluator) -> None:
    texts = [candidate(10 + number, ratio=1 + number) for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(evaluator, texts))
    assert [each.score for each in found] == pytest.approx([1, 2, 3, 4, 5, 6])


def test_a_baseline_that_fails_stops_everything(settings: Settings, fake: FakeEvaluator) -> None:
    with pytest.raises(Stopped) as stopped:
        Evaluator(candidate(1, kind="wrong"), task(), settings=settings, evaluator=lambda _: fake)
    assert stopped.value.kind is Kind.WRONG


def test_what_says_nothing_of_a_candidate_is_raised_and_the_next_one_is_scored(evaluator: Evaluator) -> None:
    with pytest.raises(Stopped):
        evaluator(candidate(6, kind="unavailable"))
    assert evaluator(FAST).kind is Kind.OK


def test_closing_twice_is_no_fault(settings: Settings, fake: FakeEvaluator) -> None:
    warm = Evaluator(BASELINE, task(), settings=settings, evaluator=lambda _: fake)
    warm.close()
    warm.close()


def test_a_text_of_one_line_is_never_read_as_a_path(
    evaluator: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("root:a secret:0\n")
    monkeypatch.chdir(tmp_path)
    for text in (str(tmp_path / "password"), "password", "~/password"):
        assert "a secret" not in evaluator(text).model_dump_json()
    # No exception: judged as any other text.
    assert evaluator("Sorry, I can't help with that.").score is not None


def test_a_path_object_is_read(evaluator: Evaluator, files: dict[str, str]) -> None:
    assert evaluator(Path(files["candidate"])).score == evaluator(FAST).score
    with pytest.raises(Stopped, match="there is no kernel file nowhere"):
        evaluator(Path("nowhere.py"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("x = '\0'\n", "NUL byte on line 1"),
        ("x = '\udc80'", "lone surrogate"),
        ("#" * 1_000_001, "1,000,000 are allowed"),
    ],
)
def test_a_text_that_is_no_file_scores_0_with_what_is_wrong(evaluator: Evaluator, text: str, what: str) -> None:
    found = evaluator(text)
    assert (found.kind, found.score) == (Kind.REJECTED, 0.0)
    assert what in found.feedback
    assert found.for_openevolve()[0]["combined_score"] == 0.0


def test_other_types_are_told_what_is_taken(evaluator: Evaluator, settings: Settings) -> None:
    with pytest.raises(TypeError, match=r"its text \(str\) or the path of its file \(Path\), not bytes"):
        evaluator(b"x = 1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="baseline is a path"):
        Evaluator(None, task(), settings=settings)  # pyright: ignore[reportArgumentType]


def test_a_closed_evaluator_says_so(settings: Settings, fake: FakeEvaluator) -> None:
    warm = Evaluator(BASELINE, task(), settings=settings, evaluator=lambda _: fake)
    warm.close()
    with pytest.raises(RuntimeError, match="is closed"):
        warm(FAST)


# Shapes


def test_openevolve_gets_numbers_as_metrics_and_text_as_artifacts(evaluator: Evaluator) -> None:
    metrics, artifacts = evaluator(FAST).for_openevolve()
    assert metrics == {
        "combined_score": pytest.approx(1.4186, abs=1e-3), "correct": 1.0, "ratio_large": 1.5, "ratio_ragged": 1.2,
    }  # fmt: skip
    assert artifacts["kind"] == "ok"
    assert "large: 66.67 us" in str(artifacts["feedback"])


def test_gepa_gets_a_score_and_json_to_reflect_on(evaluator: Evaluator) -> None:
    score, side = evaluator(FAST).for_gepa()
    assert score == pytest.approx(1.4186, abs=1e-3)
    assert side["scores"] == {"large": 1.5, "ragged": 1.2}
    assert json.loads(json.dumps(side))["Feedback"].startswith("Score")
    # What GEPA captures itself goes under these names.
    assert not side.keys() & {"log", "stdout", "stderr"}


def example(name: str, monkeypatch: pytest.MonkeyPatch, **frameworks: ModuleType | SimpleNamespace) -> Any:
    """An example's module, imported beside stubs of what it is for."""
    for module, stub in frameworks.items():
        monkeypatch.setitem(sys.modules, module.replace("__", "."), stub)  # pyright: ignore[reportArgumentType]
    spec = importlib.util.spec_from_file_location(name, SEARCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class EvaluationResult:
    """As OpenEvolve's own."""

    metrics: dict[str, float]
    artifacts: dict[str, str | bytes] = field(default_factory=dict[str, str | bytes])


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, settings: Settings, fake: FakeEvaluator) -> None:
    """Whoever asks for an evaluator gets one that measures nothing."""

    def create(baseline: str, task: str) -> Evaluator:
        return Evaluator(baseline, task, settings=settings, evaluator=lambda _: fake)

    monkeypatch.setattr("tritonforge.server.evaluator_api.Evaluator", create)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"baseline": BASELINE, "task": task(), "candidate": FAST}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    return {name: str(tmp_path / f"{name}.py") for name in texts}


@pytest.mark.usefixtures("made_up")
def test_the_openevolve_example_evaluates_a_program_by_its_path(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
) -> None:
    monkeypatch.setenv("BASELINE", files["baseline"])
    monkeypatch.setenv("TASK", files["task"])
    stub = SimpleNamespace(EvaluationResult=EvaluationResult)
    module = example(
        "openevolve_evaluator", monkeypatch, openevolve=SimpleNamespace(), openevolve__evaluation_result=stub
    )
    result = module.evaluate(files["candidate"])
    assert result.metrics["combined_score"] == pytest.approx(1.4186, abs=1e-3)
    assert "feedback" in result.artifacts
    module._evaluator().close()


@pytest.mark.usefixtures("made_up")
def test_the_gepa_example_hands_its_evaluator_to_the_search(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
) -> None:
    tried: list[tuple[float, dict[str, Any]]] = []

    def optimize_anything(*, seed_candidate: str, evaluator: Any, objective: str, config: Any) -> Any:
        tried.extend(evaluator(text) for text in (seed_candidate, FAST))
        assert "same entry" in objective
        assert config.engine.max_metric_calls == 2
        return SimpleNamespace(best_candidate=FAST)

    stub = SimpleNamespace(
        optimize_anything=optimize_anything, EngineConfig=SimpleNamespace, GEPAConfig=SimpleNamespace,
        ReflectionConfig=SimpleNamespace,
    )  # fmt: skip
    module = example("gepa_evaluator", monkeypatch, gepa=SimpleNamespace(), gepa__optimize_anything=stub)
    assert module.search(files["baseline"], files["task"], "a model", calls=2) == FAST
    assert [score for score, _ in tried] == pytest.approx([1.0, 1.4186], abs=1e-3)


def test_the_examples_fit_on_a_page() -> None:
    for name in ("openevolve_evaluator", "gepa_evaluator"):
        assert len((SEARCH / f"{name}.py").read_text().splitlines()) < 40


# The command


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, fake: FakeEvaluator) -> None:
    def with_fake(*given: Any, **more: Any) -> Evaluation:
        return evaluator_api.evaluate(*given, **more, evaluator=lambda _: fake)  # pyright: ignore[reportUnknownLambdaType]

    monkeypatch.setattr(evaluate_cli, "evaluate", with_fake)
    monkeypatch.setattr("tritonforge.server.cli._own_signals", lambda: None)


@pytest.mark.usefixtures("shell")
def test_the_command_prints_feedback_or_exactly_the_evaluation(
    settings: Settings, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--task", files["task"], "--baseline", files["baseline"], "--state-dir", str(settings.state_dir)]
    assert run(["evaluate", files["candidate"], *words]) == OK
    assert capsys.readouterr().out.startswith("Score 1.419: right in all cases")
    assert run(["evaluate", files["candidate"], *words, "--json"]) == OK
    assert Evaluation.model_validate_json(capsys.readouterr().out).kind is Kind.OK
    Path(files["candidate"]).write_text(candidate(8, kind="wrong"))
    assert run(["evaluate", files["candidate"], *words]) == FAILED
    assert run(["evaluate", "nowhere.py", *words]) == MISUSE
    assert "there is no kernel file nowhere.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"x = '\xff'\n", "not valid UTF-8"), (b"", "is empty"), (b"#" * 1_500_000, "are allowed"), (b"\0\n", "NUL byte")],
)
@pytest.mark.usefixtures("shell")
def test_what_is_wrong_with_a_text_on_standard_input_is_the_candidates_fault(
    settings: Settings, files: dict[str, str], data: bytes, what: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    words = ["--task", files["task"], "--baseline", files["baseline"], "--state-dir", str(settings.state_dir)]
    assert run(["evaluate", "-", *words, "--json"]) == FAILED
    found = Evaluation.model_validate_json(capsys.readouterr().out)
    assert found.score == 0.0
    assert what in found.feedback
    Path(files["candidate"]).write_bytes(data)
    assert run(["evaluate", files["candidate"], *words]) == FAILED


@pytest.mark.usefixtures("shell")
def test_misuse_has_a_result_in_json_too(
    settings: Settings, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--task", files["task"], "--baseline", files["baseline"], "--state-dir", str(settings.state_dir)]
    assert run(["evaluate", "nowhere.py", *words, "--json"]) == MISUSE
    shown = capsys.readouterr()
    found = Evaluation.model_validate_json(shown.out)
    assert (found.kind, found.score, found.side["stage"]) == (Kind.REJECTED, None, "source")
    assert "there is no kernel file nowhere.py" in found.feedback
    assert "there is no kernel file nowhere.py" in shown.err


def test_services_are_not_started_before_the_files_are_read(settings: Settings) -> None:
    def never(_: Services) -> FakeEvaluator:
        raise AssertionError("was started")

    with pytest.raises(Stopped, match="there is no task file"):
        Evaluator(BASELINE, "no_such_task.py", settings=settings, evaluator=never)
