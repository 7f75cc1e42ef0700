"""Which cases of a task prove something, with workers that answer from a script."""

from typing import Any, cast

import pytest

from tests.profiling.made_up import FINITE, audit, spec
from tritonforge.profiling.audit import audit_case, require_sound
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.facts import Audit, CallFacts, Difference, Expected
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.workers import Call, KernelWorker, TaskWorker

pytestmark = pytest.mark.anyio


def refused(found: Audit, **said: Any) -> Problem:
    with pytest.raises(Stopped) as stopped:
        require_sound("train", found, spec(**said))
    problem = stopped.value.problem
    assert (stopped.value.kind, problem.stage) == (Kind.REJECTED, "audit")
    assert problem.message.startswith("case train")
    assert problem.likely_fix
    return problem


# What is refused


@pytest.mark.parametrize(
    "found",
    [
        audit(),
        audit(outputs=[]),
        audit(exact="it returns float32"),
    ],
    ids=["sound", "integers", "no float64 reference"],
)
def test_a_sound_case_passes(found: Audit):
    require_sound("train", found, spec())


def test_a_reference_that_is_not_deterministic_is_refused_unless_meant():
    found = audit(
        nondeterministic=[Difference(where="output[0]", elements=1), Difference(where="output[1]", elements=7)]
    )
    assert "the reference is not deterministic: output[1] differs in 7 elements between two runs" in (
        refused(found).message
    )
    require_sound("train", found, spec(nondeterministic=True))


def test_a_reference_whose_results_change_their_form_is_refused():
    found = audit(nondeterministic=[Difference(where="output", mismatch="output: expected shape (4,), got (5,)")])
    assert "output: expected shape (4,), got (5,) between two runs" in refused(found).message


def test_a_reference_without_a_finite_number_is_refused_also_where_it_is_meant():
    found = audit(outputs=[FINITE.model_copy(update={"nan": 600, "inf": 400})])
    assert "no finite number (1,000 elements)" in refused(found, special_values=["nan", "inf"]).message


def test_a_reference_without_an_element_is_refused():
    found = audit(outputs=[FINITE.model_copy(update={"elements": 0, "rms": None})])
    assert "no finite number (0 elements)" in refused(found).message


@pytest.mark.parametrize(("value", "word"), [("nan", "NaN"), ("inf", "infinite")])
def test_some_values_that_are_no_numbers_are_refused_unless_meant(value: str, word: str):
    found = audit(outputs=[FINITE, FINITE.model_copy(update={value: 2})])
    problem = refused(found)
    assert f"the reference returned 2 {word} elements" in problem.message
    assert f"SPECIAL_VALUES = ('{value}',)" in (problem.likely_fix or "")
    require_sound("train", found, spec(special_values=[value]))
    refused(found, special_values=["inf" if value == "nan" else "nan"])


def test_a_case_that_impostors_pass_is_degenerate_and_names_them():
    problem = refused(audit(impostors=["zeros", "input copy"]))
    assert "these wrong results pass its tolerance as well: zeros, input copy" in problem.message
    assert "TOLERANCE" in (problem.likely_fix or "")


def test_what_to_do_about_a_copy_or_a_mean_is_told():
    copied = refused(audit(impostors=["input copy"])).likely_fix or ""
    assert "one row" in copied
    assert "mean" not in copied
    assert "a mean over everything" in (refused(audit(impostors=["input mean"])).likely_fix or "")
    every = refused(audit(impostors=["zeros", "ones", "input copy", "shuffled reference"])).likely_fix or ""
    assert every.count("Tighten TOLERANCE") == every.count("one row") == 1


# Where the audit comes from


class FakeTask:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def audit(self, case: str, seed: int) -> Audit:
        self.asked.append(("audit", case, seed))
        return audit(impostors=["ones"])

    async def make_inputs(self, case: str, seed: int) -> Values:
        self.asked.append(("make_inputs", case, seed))
        return Values({"value": "inputs"}, [])

    async def expect_from(self, values: Values) -> Expected:
        self.asked.append(("expect_from", values.tree["value"]))
        return Expected(outputs=[FINITE], aliased=[False], in_place=[])

    async def impostors(self) -> list[str]:
        self.asked.append("impostors")
        return ["zeros"]

    def as_worker(self) -> TaskWorker:
        return cast(TaskWorker, self)


class FakeBaseline:
    def __init__(self) -> None:
        self.inputs: Any = None

    async def set_inputs(self, values: Values) -> None:
        self.inputs = values.tree["value"]

    async def call(self) -> Call:
        facts = CallFacts(
            labels=[], outputs_at=[], inputs_at=[], launched=[], activities=None, operations={}, touched=[]
        )
        return Call(Values({"value": f"doubled {self.inputs}"}, []), facts)

    def as_worker(self) -> KernelWorker:
        return cast(KernelWorker, self)


async def test_a_reference_of_the_task_is_audited_where_it_runs():
    task = FakeTask()
    assert (await audit_case("train", 7, spec(), task.as_worker(), None)).impostors == ["ones"]
    assert task.asked == [("audit", "train", 7)]


async def test_a_baseline_as_reference_is_audited_by_its_results():
    task = FakeTask()
    said = spec(has_reference=False, special_values=["inf"])
    found = await audit_case("train", 7, said, task.as_worker(), FakeBaseline().as_worker())
    assert task.asked == [("make_inputs", "train", 7), ("expect_from", "doubled inputs"), "impostors"]
    assert (found.impostors, found.outputs, found.nondeterministic) == (["zeros"], [FINITE], [])
    assert found.exact == "the reference is the baseline kernel"
    names = [variant.name for variant in found.variants]
    assert names == ["zeros", "ones", "ramp", "shifted", "negative_zero", "inf"]
    assert [skipped.name for skipped in found.skipped] == ["large", "tiny", "denormals"]
