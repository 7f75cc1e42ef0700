"""Baseline and candidates evaluated by the tools themselves, without a GPU: what is found, and what is never told."""

import re
from collections.abc import AsyncGenerator

import pytest

from tests.faults.evaluations import KERNEL, TASK, replaced
from tests.server.conftest import EXAMPLES
from tests.server.runs.evaluations import Watched, frozen
from tritonforge.profiling.optimization.model import Evidence
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.source import Source, read_source
from tritonforge.server.runs.evaluation import ToolEvaluator
from tritonforge.server.runs.evaluator import Identified, Other, Sources
from tritonforge.server.runs.record import HiddenCases
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

SHOWN = replaced(
    replaced(TASK, "(n, device)", "(n, device, salt=0)"),
    '{"train": {"n": 1000, "small": True}}',
    '{"large": {"n": 1 << 20}, "train": {"n": 1024, "small": True}}',
)
"""Sizes that are multiples of the block."""
WITHOUT_TAIL = replaced(KERNEL, "offsets < n", "offsets < n // 64 * 64")
"""Right only for these."""
SECRET: HiddenCases = {"secret_shape": {"n": 997, "salt": 10007, "small": True}}


def source(text: str, name: str = "kernel.py") -> Source:
    return Source(text, name, None)


def files(kernel: str = KERNEL, task: str = SHOWN, hidden: HiddenCases | None = None) -> Sources:
    return Sources(source(kernel, "baseline.py"), source(task, "task.py"), hidden or {})


BEFORE = Other(0, source(KERNEL), Evidence(kind=Kind.OK, stage="done"))


@pytest.fixture(scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Services]:
    async with Services(Settings(state_dir=tmp_path_factory.mktemp("evaluation") / "state")) as services:
        yield services


@pytest.fixture
def evaluator(services: Services, monkeypatch: pytest.MonkeyPatch) -> ToolEvaluator:
    """Everything here is about the interpreter, whatever the machine has."""
    monkeypatch.setattr("tritonforge.server.services.GPU_DEVICE_FILES", ())
    return ToolEvaluator(services)


# A new run


async def test_a_task_is_looked_at_and_gets_neighbours_of_its_shapes(evaluator: ToolEvaluator) -> None:
    asked = await evaluator.look(source(KERNEL), source('"""Twice."""\n' + SHOWN), None, None)
    assert (asked.title, asked.entry, asked.cases) == ("Twice.", "double", ["large"])
    assert (asked.target, asked.gpu, asked.hidden_from) == ("h100-sxm", None, "derived")
    assert len(asked.hidden) == 2
    assert all(case["small"] is True and int(str(case["n"])) < 1024 for case in asked.hidden.values())
    assert asked.torch
    assert asked.triton
    again = await evaluator.look(source(KERNEL), source(SHOWN), None, "h200")
    assert (again.title, again.target) == ("kernel", "h200")


async def test_hidden_cases_come_from_the_task_or_from_a_file_beside_it(evaluator: ToolEvaluator) -> None:
    own = SHOWN + 'HIDDEN_CASES = {"ragged": {"n": 77, "weight": 2.0}}\n'
    asked = await evaluator.look(source(KERNEL), source(own), None, None)
    assert (asked.hidden_from, asked.hidden) == ("task", {"ragged": {"n": 77}})
    given = source(f"HIDDEN_CASES = {SECRET!r}", "hidden.py")
    asked = await evaluator.look(source(KERNEL), source(own), given, None)
    assert (asked.hidden_from, asked.hidden) == ("file", {"ragged": {"n": 77}, **SECRET})


async def test_a_file_of_hidden_cases_that_does_not_fit_is_rejected_without_telling_them(
    evaluator: ToolEvaluator,
) -> None:
    given = source("HIDDEN_CASES = {'secret_shape': {'length': 10007, 'n': 997}}", "hidden.py")
    with pytest.raises(Stopped) as caught:
        await evaluator.look(source(KERNEL), source(SHOWN), given, None)
    problem = caught.value.problem
    assert (caught.value.kind, problem.file) == (Kind.REJECTED, "hidden.py")
    assert_untold(problem.model_dump_json())
    assert "length" not in problem.model_dump_json()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (replaced(SHOWN, "return x * 2", "return x * 0"), "degenerate"),
        (replaced(SHOWN, 'ENTRY = "double"', ""), "ENTRY must be the name"),
    ],
)
async def test_a_task_that_proves_nothing_is_rejected_at_once(evaluator: ToolEvaluator, task: str, words: str) -> None:
    with pytest.raises(Stopped) as caught:
        await evaluator.look(source(KERNEL), source(task), None, None)
    assert caught.value.kind is Kind.REJECTED
    assert words in caught.value.problem.message


# The baseline


def assert_untold(json: str) -> None:
    assert "secret_shape" not in json
    assert "10007" not in json
    assert not re.search(r"(?<![\d.])997(?!\d)", json)


async def test_a_baseline_is_compiled_checked_and_diagnosed(evaluator: ToolEvaluator) -> None:
    watched = Watched()
    measured = await evaluator.baseline(frozen(), files(hidden=SECRET), watched)
    evidence = measured.evidence
    assert (evidence.kind, evidence.stage, evidence.device) == (Kind.OK, "done", "interpreter")
    assert [(launch.case, launch.facts.grid) for launch in evidence.launches] == [("large", (1 << 14, 1, 1))]
    assert (evidence.own, evidence.timings) == ([], [])
    assert "no GPU" in (evidence.untimed or "")
    diagnosed = evidence.diagnosed
    assert diagnosed is not None
    assert diagnosed.case == "large"
    assert "V6" in [finding.id for finding in diagnosed.findings]
    assert "no NVIDIA GPU" in (diagnosed.unmeasured or "")
    assert evidence.seconds.keys() == {"compile", "correctness", "hidden", "diagnosis"}
    assert len(evidence.artifacts) == 1
    assert (measured.hidden, measured.dropped) == (SECRET, {})
    assert_untold(evidence.model_dump_json() + repr(watched.told))
    assert all(done <= total for done, total, _ in watched.told)
    assert [done for done, _, _ in watched.told] == sorted(done for done, _, _ in watched.told)


async def test_a_baseline_that_is_wrong_ends_it(evaluator: ToolEvaluator) -> None:
    with pytest.raises(Stopped) as caught:
        await evaluator.baseline(frozen(), files(replaced(KERNEL, "x * 2", "x * 3")), Watched())
    assert caught.value.kind is Kind.WRONG
    assert caught.value.problem.message.startswith("the baseline is wrong: case train, on random inputs: ")


BOTH: HiddenCases = {"even": {"n": 128, "small": True}, **SECRET}


async def test_given_cases_that_the_baseline_fails_are_rejected_without_telling_them(evaluator: ToolEvaluator) -> None:
    watched = Watched()
    with pytest.raises(Stopped) as caught:
        await evaluator.baseline(frozen(hidden_from="file"), files(WITHOUT_TAIL, hidden=BOTH), watched)
    assert caught.value.kind is Kind.REJECTED
    assert caught.value.problem.message == "the baseline fails on 1 of 2 hidden cases (1 wrong)"
    assert_untold(caught.value.problem.model_dump_json() + repr(watched.told))


async def test_derived_cases_that_the_baseline_fails_are_left_out(evaluator: ToolEvaluator) -> None:
    sources = files(WITHOUT_TAIL, hidden=BOTH)
    measured = await evaluator.baseline(frozen(hidden_from="derived"), sources, Watched())
    assert list(measured.hidden) == ["even"]
    assert measured.dropped == {"secret_shape": "the baseline itself ends in wrong there"}
    assert_untold(measured.evidence.model_dump_json())
    known = await evaluator.identify(frozen(), sources._replace(hidden=measured.hidden), sources.baseline)
    assert measured.evidence.identity == known.identity


async def test_without_a_reference_the_baseline_is_the_reference(evaluator: ToolEvaluator) -> None:
    sources = files(task=SHOWN[: SHOWN.index("def reference")])
    measured = await evaluator.baseline(frozen(), sources, Watched())
    assert measured.evidence.kind is Kind.OK
    found = await evaluated(evaluator, replaced(KERNEL, "x * 2", "x * 3"), sources)
    assert (found.kind, found.stage) == (Kind.WRONG, "correctness")


# Candidates


LAUNCH = "double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)"


async def identified(evaluator: ToolEvaluator, text: str, sources: Sources) -> Identified:
    return await evaluator.identify(frozen(), sources, source(text))


async def evaluated(evaluator: ToolEvaluator, text: str, sources: Sources | None = None) -> Evidence:
    known = Identified("known", [])
    files_ = sources or files()
    return await evaluator.evaluate(frozen(), files_, source(text), known, BEFORE, BEFORE, Watched())


async def test_the_same_code_has_the_same_identity_whatever_its_names(evaluator: ToolEvaluator) -> None:
    first = await identified(evaluator, KERNEL, files())
    renamed = KERNEL.replace("double_kernel", "twice_kernel").replace("offsets", "places") + "# The same.\n"
    assert (await identified(evaluator, renamed, files())).identity == first.identity
    assert [(launch.case, launch.facts.kernel) for launch in first.launches] == [("large", "double_kernel")]


@pytest.mark.parametrize(
    ("old", "new"),
    [("x * 2", "x * 3"), ("    return out", "    return out.clone()"), ("BLOCK=64", "BLOCK=64, num_warps=2")],
)
async def test_other_code_has_another_identity(evaluator: ToolEvaluator, old: str, new: str) -> None:
    first = await identified(evaluator, KERNEL, files())
    assert (await identified(evaluator, replaced(KERNEL, old, new), files())).identity != first.identity


EVEN = replaced(
    replaced(
        replaced(KERNEL, "BLOCK: tl.constexpr):", "BLOCK: tl.constexpr, EVEN: tl.constexpr):"),
        "    tl.store(out_ptr + offsets, x * 2, mask=mask)",
        "    if EVEN:\n        tl.store(out_ptr + offsets, x * 2)\n"
        "    else:\n        tl.store(out_ptr + offsets, x * 2, mask=mask)",
    ),
    "BLOCK=64)",
    "BLOCK=64, EVEN=x.numel() % 64 == 0)",
)


async def test_what_differs_in_hidden_cases_alone_is_another_program(evaluator: ToolEvaluator) -> None:
    mended = replaced(EVEN, "x * 2, mask=mask", "x + x + x, mask=mask")
    hidden = files(hidden=SECRET)
    first, second = [await identified(evaluator, text, hidden) for text in (EVEN, mended)]
    assert first.identity != second.identity
    assert {launch.case for launch in first.launches} == {"large"}
    without = [await identified(evaluator, text, files()) for text in (EVEN, mended)]
    assert without[0].identity == without[1].identity


async def test_a_hidden_case_that_does_not_compile_is_told_by_the_second_look_alone(evaluator: ToolEvaluator) -> None:
    failing = replaced(EVEN, "x * 2, mask=mask", "undefined_10007, mask=mask")
    known = await identified(evaluator, failing, files(hidden=SECRET))
    assert_untold(repr(known.launches))
    otherwise = replaced(failing, "undefined_10007", "undefined_elsewhere")
    assert (await identified(evaluator, otherwise, files(hidden=SECRET))).identity != known.identity
    found = await evaluator.confirm(frozen(), files(hidden=SECRET), source(failing), BEFORE, Watched())
    assert found.kind not in (Kind.OK, Kind.WRONG)
    assert found.problem is not None
    assert found.problem.message.startswith(f"at least one of 1 hidden cases ended in {found.kind}")
    assert_untold(found.model_dump_json())


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (Kind.COMPILE_ERROR, "x * 2", "x * undefined"),
        (Kind.REJECTED, "def double(x)", "def twice(x)"),
        (Kind.RUNTIME_ERROR, "    return out", "    raise ValueError('no')"),
    ],
)
async def test_what_does_not_compile_is_stopped(evaluator: ToolEvaluator, kind: Kind, old: str, new: str) -> None:
    with pytest.raises(Stopped) as caught:
        await identified(evaluator, replaced(KERNEL, old, new), files())
    assert caught.value.kind is kind


async def test_a_right_candidate_is_diagnosed_and_not_timed(evaluator: ToolEvaluator) -> None:
    known = await identified(evaluator, KERNEL, files())
    found = await evaluator.evaluate(frozen(), files(), source(KERNEL), known, BEFORE, BEFORE, Watched())
    assert (found.kind, found.stage, found.identity) == (Kind.OK, "done", known.identity)
    assert found.launches == known.launches
    assert "no GPU" in (found.untimed or "")
    assert found.diagnosed is not None
    assert found.seconds.keys() == {"correctness", "diagnosis"}


@pytest.mark.parametrize(
    ("kind", "old", "new", "words"),
    [
        (Kind.WRONG, "x * 2", "x * 3", "case train, on random inputs: "),
        (Kind.RUNTIME_ERROR, "    return out", "    raise ValueError('no')", "no"),
        (Kind.WRONG, "x * 2, mask=mask", "x * 2", "outside"),
        (Kind.REJECTED, LAUNCH, "torch.mul(x, 2, out=out)", "Triton"),
    ],
)
async def test_a_failing_candidate_is_data(
    evaluator: ToolEvaluator, kind: Kind, old: str, new: str, words: str
) -> None:
    task = SHOWN.replace("1024", "1000")
    found = await evaluated(evaluator, replaced(KERNEL, old, new), files(task=task, hidden=SECRET))
    assert (found.kind, found.stage, found.identity) == (kind, "correctness", "known")
    assert found.problem is not None
    assert words in found.problem.message
    assert (found.timings, found.diagnosed, found.untimed) == ([], None, None)
    assert_untold(found.model_dump_json())


async def test_a_wrong_candidate_is_told_where_and_by_how_much(evaluator: ToolEvaluator) -> None:
    found = await evaluated(evaluator, replaced(KERNEL, "x * 2", "x * 2 + (offsets == 77) * 5"))
    assert found.problem is not None
    assert "77" in found.problem.message
    assert "expected" in found.problem.message
    assert "got" in found.problem.message


@pytest.mark.parametrize("name", ["sin", "softmax"])
async def test_the_examples_candidates_are_right(evaluator: ToolEvaluator, name: str) -> None:
    folder = EXAMPLES / name
    baseline, task, candidate = (
        read_source(str(folder / f"{each}.py"), each) for each in ("baseline", "task", "candidate")
    )
    run, sources = frozen(entry=name), Sources(baseline, task, {})
    before, after = [await evaluator.identify(run, sources, kernel) for kernel in (baseline, candidate)]
    assert before.identity != after.identity
    found = await evaluator.evaluate(run, sources, candidate, after, BEFORE, BEFORE, Watched())
    assert (found.kind, found.stage, found.device) == (Kind.OK, "done", "interpreter")
    assert "small" not in {launch.case for launch in found.launches}


# The second look


async def test_a_candidate_that_is_right_on_hidden_cases_is_confirmed(evaluator: ToolEvaluator) -> None:
    watched = Watched()
    sources = files(hidden=BOTH)
    found = await evaluator.confirm(frozen(), sources, source(KERNEL), BEFORE, watched)
    assert (found.kind, found.hidden_checked, found.problem, found.timing) == (Kind.OK, 2, None, None)
    assert_untold(repr(watched.told))


async def test_a_candidate_that_is_wrong_on_a_hidden_case_learns_how_many_and_no_more(
    evaluator: ToolEvaluator,
) -> None:
    sources, watched = files(hidden=BOTH), Watched()
    assert (await evaluated(evaluator, WITHOUT_TAIL, sources)).kind is Kind.OK
    found = await evaluator.confirm(frozen(), sources, source(WITHOUT_TAIL), BEFORE, watched)
    assert (found.kind, found.hidden_checked, found.timing) == (Kind.WRONG, 2, None)
    assert found.problem is not None
    assert found.problem.message == "1 of 2 hidden cases are wrong; the visible ones are right"
    assert "no multiple of the block" in (found.problem.likely_fix or "")
    assert_untold(found.model_dump_json() + repr(watched.told))


async def test_a_tasks_own_hidden_cases_are_judged_with_its_values(evaluator: ToolEvaluator) -> None:
    own = SHOWN + 'HIDDEN_CASES = {"secret_shape": {"n": 997, "small": True}}\n'
    sources = files(task=own, hidden=SECRET)
    found = await evaluator.confirm(frozen(hidden_from="task"), sources, source(WITHOUT_TAIL), BEFORE, Watched())
    assert (found.kind, found.hidden_checked) == (Kind.WRONG, 1)


async def test_without_hidden_cases_the_visible_ones_are_checked_again(evaluator: ToolEvaluator) -> None:
    found = await evaluator.confirm(frozen(), files(), source(replaced(KERNEL, "x * 2", "x * 3")), BEFORE, Watched())
    assert (found.kind, found.hidden_checked) == (Kind.WRONG, 0)
    assert found.problem is not None
    assert "case train" in found.problem.message
