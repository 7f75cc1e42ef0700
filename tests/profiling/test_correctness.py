"""How a case's verdict is reached, with workers that answer from a script."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.profiling.made_up import audit, spec
from tritonforge.profiling.correctness import CaseResult, check_case
from tritonforge.profiling.rounds import AGAIN, ONCE, Plan
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.facts import (
    Audit,
    BrokenMargin,
    CallFacts,
    Cluster,
    DeviceWork,
    Difference,
    Expected,
    Launched,
    OutputAccuracy,
    OutputComparison,
    OutputFiniteness,
    Skipped,
    Variant,
    Verification,
)
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.workers import Call, KernelWorker, TaskWorker

pytestmark = pytest.mark.anyio

RIGHT = OutputComparison(
    where="output", mismatch=None, dtype="float32", elements=8, finite_elements=8, rtol=1e-6, atol=1e-5
)
WRONG = RIGHT.model_copy(
    update={
        "wrong_elements": 2, "max_abs_error": 3.0, "worst_index": [5], "worst_expected": 1.0, "worst_got": 4.0,
        "clusters": [Cluster(dim=0, size=8, wrong=2, first=5, last=6, step=None)],
    }
)  # fmt: skip
OWN = Launched(kernel="mine", symbol="mine", own=True, count=1)
EXACT = OutputAccuracy(where="output", error=1e-7, reference_error=1e-7, allowed=1e-6, factor=16.0, elements=8)
DIFFERENCE = Difference(where="output", elements=3, max_abs_difference=0.5)
FINITE = OutputFiniteness(where="output", elements=8, nan=0, inf=0, rms=1.0)
TWICE = Plan(seeds=2, repeats=0, structured=False)
"""The same entry on two random inputs, nothing beside."""
SEEDS = Plan(seeds=3, repeats=0, structured=False)
JUST_ONCE = Plan(seeds=1, repeats=0, structured=False)


class FakeTask:
    """Answers from a script; remembers the inputs that it made."""

    def __init__(self, *verdicts: list[OutputComparison]) -> None:
        self.verdicts = list(verdicts)
        """Of each `judge` in its turn; all further ones are right."""
        self.found: dict[str, Any] = {}
        """What `judge` finds beside."""
        self.differing: list[list[Difference]] = []
        """Of each `repeat` in its turn; all further ones are equal."""
        self.made: list[tuple[str, float | None, str]] = []
        self.seeds: list[int] = []
        self.asked: list[str] = []
        self.keys: list[bytes] = []
        self.outputs = [FINITE]
        self.not_finite: dict[str, list[OutputFiniteness]] = {}
        self.aliased = [False]
        self.held: dict[int, int] = {}
        """By slot, which of the inputs made it holds."""

    async def make_inputs(
        self,
        case: str,
        seed: int,
        variant: str = "random",
        scale: float | None = None,
        layout: str = "plain",
        slacks: Mapping[str, float] | None = None,
        *,
        slot: int = 0,
    ) -> Values:
        self.seeds.append(seed)
        self.made.append((variant, scale, layout))
        self.held[slot] = len(self.made)
        return Values({"value": len(self.made)}, [])

    async def make_and_expect(
        self,
        case: str,
        seed: int,
        variant: str = "random",
        scale: float | None = None,
        layout: str = "plain",
        slacks: Mapping[str, float] | None = None,
        *,
        slot: int = 0,
    ) -> tuple[Values, Expected]:
        made = await self.make_inputs(case, seed, variant, scale, layout, slacks, slot=slot)
        self.asked.append("expect")
        outputs = self.not_finite.get(variant, self.outputs)
        return made, Expected(outputs=outputs, aliased=self.aliased, in_place=[])

    async def expect_from(self, values: Values, *, slot: int = 0) -> Expected:
        self.asked.append("expect_from")
        return Expected(outputs=self.outputs, aliased=self.aliased, in_place=[])

    async def expect_exact(self, *, slot: int = 0) -> str | None:
        self.asked.append("expect_exact")
        return None

    async def upstream(self, *, slot: int = 0) -> Values:
        self.asked.append("upstream")
        return Values({"value": "upstream"}, [])

    async def judge(self, values: Values, key: bytes, *, slot: int = 0) -> Verification:
        self.asked.append("judge")
        self.keys.append(key)
        assert values.tree["value"] == self.held[slot], "judged against the expected outputs of other inputs"
        outputs = self.verdicts.pop(0) if self.verdicts else [RIGHT]
        nothing: dict[str, Any] = {"accuracy": [], "changed": [], "broken": []}
        return Verification.model_validate({"outputs": outputs, **nothing, **self.found})

    async def repeat(self, values: Values, *, slot: int = 0) -> list[Difference]:
        self.asked.append("repeat")
        assert values.tree["value"] == self.held[slot]
        return self.differing.pop(0) if self.differing else []

    def as_worker(self) -> TaskWorker:
        return cast(TaskWorker, self)


class FakeKernel:
    """Remembers its calls; each one's outputs lie in a place of their own."""

    def __init__(self, failure: Stopped | None = None) -> None:
        self.failure = failure
        self.inputs: list[tuple[Any, int, bool]] = []
        self.keys: list[bytes | None] = []
        self.upstream: list[Any] = []
        self.change: Callable[[int, CallFacts], CallFacts] = lambda number, facts: facts

    async def set_inputs(self, values: Values, *, offset: int = 0, reuse: bool = False) -> None:
        self.inputs.append((values.tree["value"], offset, reuse))

    async def call(self, key: bytes | None = None, *, upstream: Values | None = None) -> Call:
        if self.failure is not None:
            raise self.failure
        self.keys.append(key)
        self.upstream.append(upstream)
        number = len(self.keys)
        facts = CallFacts(
            labels=["input x"],
            outputs_at=[(number * 1000, number * 1000 + 100)],
            inputs_at=[(10, 20)],
            launched=[OWN],
            activities=None,
            operations={} if key is None else {"aten.mul": 2},
            touched=[True],
        )
        return Call(Values({"value": self.inputs[-1][0]}, []), self.change(number, facts))

    def as_worker(self) -> KernelWorker:
        return cast(KernelWorker, self)


async def check(
    task: FakeTask,
    kernel: FakeKernel | None = None,
    plan: Plan = JUST_ONCE,
    *,
    reference: FakeKernel | None = None,
    audited: Audit | None = None,
    **said: Any,
) -> CaseResult:
    candidate = (kernel or FakeKernel()).as_worker()
    other = reference.as_worker() if reference is not None else None
    return await check_case("c", plan, spec(**said), task.as_worker(), candidate, reference=other, audit=audited)


def changing(**changed: Any) -> Callable[[int, CallFacts], CallFacts]:
    return lambda number, facts: facts.model_copy(update=changed)


# Seeds and what is reported


async def test_a_right_case_ran_every_seed_and_each_is_new():
    task = FakeTask()
    result = await check(task, plan=SEEDS)
    assert (result.kind, result.check, result.inputs) == (Kind.OK, None, None)
    assert (result.message, result.likely_cause, result.likely_fix) == (None, None, None)
    assert result.seeds == task.seeds
    assert len(set(task.seeds)) == 3
    assert sorted(task.asked) == ["expect"] * 3 + ["judge"] * 3
    assert result.elements == 8
    assert result.launches == [OWN]


async def test_the_first_wrong_seed_ends_the_case_and_is_reported():
    task = FakeTask([RIGHT], [WRONG], [RIGHT])
    result = await check(task, plan=SEEDS)
    assert (result.kind, result.check, result.inputs) == (Kind.WRONG, "values", "random")
    # The next inputs may have been made meanwhile.
    assert result.seeds == task.seeds[:2]
    assert (result.wrong_elements, result.worst_index, result.max_abs_error) == (2, [5], 3.0)
    assert result.message is not None
    for part in ("2 of 8", "[5]", "expected 1.0", "got 4.0", "dimension 0 only at 5..6"):
        assert part in result.message
    assert result.likely_cause
    assert result.likely_fix


async def test_the_worst_error_of_all_seeds_is_the_one_reported():
    near = RIGHT.model_copy(update={"max_abs_error": 1e-7})
    far = RIGHT.model_copy(update={"max_abs_error": 1e-6})
    assert (await check(FakeTask([near], [far], [near]), plan=SEEDS)).max_abs_error == 1e-6


def off_by(error: float) -> OutputComparison:
    return RIGHT.model_copy(update={"max_abs_error": error, "max_rel_error": 2 * error})


def varied(*names: str) -> Audit:
    return audit(variants=[Variant(name=name, scale=None) for name in names])


ONE_SEED = Plan(seeds=1, repeats=0)
"""And structured inputs."""


async def test_right_errors_on_structured_inputs_are_not_those_of_the_case():
    task = FakeTask([off_by(1e-7)], [off_by(100.0)], [off_by(0.0)])
    result = await check(task, plan=ONE_SEED, audited=varied("large", "zeros"))
    assert (result.kind, result.structured) == (Kind.OK, ["large", "zeros"])
    assert (result.max_abs_error, result.max_rel_error) == (1e-7, 2e-7)
    # Nor those on other layouts.
    result = await check(FakeTask([off_by(1e-7)], [off_by(1.0)]), plan=ONE_SEED, views=["strided"])
    assert (result.kind, result.structured, result.max_abs_error) == (Kind.OK, ["strided inputs"], 1e-7)


async def test_errors_of_a_wrong_case_are_those_of_the_call_that_failed():
    far = WRONG.model_copy(update={"wrong_elements": 1, "max_abs_error": 0.5, "worst_index": [2]})
    # An error that was right, however large, is none of them.
    task = FakeTask([off_by(0.25)], [off_by(100.0)], [far])
    result = await check(task, plan=ONE_SEED, audited=varied("large", "zeros"))
    assert (result.kind, result.inputs) == (Kind.WRONG, "zeros")
    assert (result.wrong_elements, result.worst_index, result.max_abs_error) == (1, [2], 0.5)
    result = await check(FakeTask([off_by(100.0)], [far]), plan=SEEDS)
    assert (result.inputs, result.max_abs_error) == ("random", 0.5)


async def test_errors_are_those_of_the_failing_call_though_its_values_are_right():
    kernel = FakeKernel()
    kernel.change = lambda number, facts: facts.model_copy(update={"outputs_at": [(15, 25)]}) if number == 2 else facts
    task = FakeTask([off_by(0.25)], [off_by(0.125)])
    result = await check(task, kernel, ONE_SEED, audited=varied("zeros"))
    assert (result.check, result.inputs, result.wrong_elements, result.max_abs_error) == ("aliased", "zeros", 0, 0.125)


async def test_the_worst_of_several_outputs_is_the_one_reported():
    other = WRONG.model_copy(update={"where": "output[1]", "wrong_elements": 7})
    result = await check(FakeTask([WRONG, other]))
    assert (result.worst_output, result.wrong_elements, result.elements) == ("output[1]", 7, 16)


async def test_a_mismatch_of_form_has_no_errors_in_numbers():
    shape = OutputComparison(where="output", mismatch="output: expected shape (4,), got (5,)")
    result = await check(FakeTask([shape]))
    assert (result.kind, result.check) == (Kind.WRONG, "form")
    assert result.message == "output: expected shape (4,), got (5,)"
    assert result.max_abs_error is None
    assert result.rtol is None


async def test_nothing_to_compare_is_refused():
    with pytest.raises(Stopped) as stopped:
        await check(FakeTask([]))
    assert stopped.value.kind is Kind.REJECTED


async def test_everything_that_is_wrong_is_told_the_first_with_its_cause():
    task = FakeTask([WRONG])
    task.found = {"changed": [Difference(where="input x", elements=1)]}
    kernel = FakeKernel()
    kernel.change = changing(outputs_at=[(15, 25)])
    result = await check(task, kernel)
    assert result.check == "values"
    assert result.message is not None
    first, *others = result.message.split("; also: ")
    assert first.startswith("output: 2 of 8")
    assert [other.split(" ")[0:3] for other in others] == [["the", "call", "changed"], ["output", "0", "shares"]]


# The reference


async def test_a_baseline_gives_the_expected_outputs_where_it_is_the_reference():
    task, candidate, baseline = FakeTask(), FakeKernel(), FakeKernel()
    await check(task, candidate, SEEDS, reference=baseline)
    assert sorted(task.asked) == ["expect_from"] * 3 + ["judge"] * 3
    assert [inputs for inputs, _, _ in baseline.inputs] == [inputs for inputs, _, _ in candidate.inputs] == [1, 2, 3]
    assert baseline.keys == [None] * 3


async def test_a_failing_baseline_is_named_as_such():
    failure = Stopped(Kind.RUNTIME_ERROR, Problem(stage="run", message="boom"))
    with pytest.raises(Stopped) as stopped:
        await check(FakeTask(), reference=FakeKernel(failure))
    assert stopped.value.kind is Kind.RUNTIME_ERROR
    assert stopped.value.problem.message == "the baseline failed: boom"


async def test_a_failing_candidate_is_not_called_the_baseline():
    failure = Stopped(Kind.RUNTIME_ERROR, Problem(stage="run", message="boom"))
    with pytest.raises(Stopped) as stopped:
        await check(FakeTask(), FakeKernel(failure), reference=FakeKernel())
    assert stopped.value.problem.message == "boom"


# Margins, places, precision


async def test_margins_are_filled_with_a_key_that_the_candidate_cannot_know_before():
    tasks, kernels = (FakeTask(), FakeTask()), (FakeKernel(), FakeKernel())
    for task, kernel in zip(tasks, kernels, strict=True):
        await check(task, kernel, SEEDS)
        key = task.keys[0]
        assert len(key) == 8
        # The third is called as anybody would call it.
        assert (kernel.keys, task.keys) == ([key, key, None], [key] * 3)
    assert tasks[0].keys[0] != tasks[1].keys[0]


async def test_a_store_outside_is_wrong_and_names_the_tensor():
    task = FakeTask()
    task.found = {"broken": [BrokenMargin(index=0, side="after", bytes=4, distance=0)]}
    result = await check(task)
    assert (result.kind, result.check, result.wrong_elements) == (Kind.WRONG, "out_of_bounds", 0)
    assert result.message is not None
    assert "4 bytes after input x" in result.message


async def test_changed_inputs_are_wrong():
    task = FakeTask()
    task.found = {"changed": [Difference(where="input x", elements=1)]}
    assert (await check(task)).check == "inputs_changed"


async def test_an_output_in_an_input_is_wrong_unless_the_references_is():
    kernel, task = FakeKernel(), FakeTask()
    kernel.change = changing(outputs_at=[(10, 20)])
    assert (await check(task, kernel)).check == "aliased"
    task.aliased = [True]
    # At the same place in every call, as inputs are laid over those before.
    assert (await check(task, kernel, Plan(structured=False))).kind is Kind.OK
    task.aliased = [False]
    assert (await check(task, kernel, in_place=["x"])).kind is Kind.OK


async def test_where_the_baseline_is_the_reference_its_own_call_tells_whether_outputs_lie_in_inputs():
    baseline, kernel, task = FakeKernel(), FakeKernel(), FakeTask()
    kernel.change = changing(outputs_at=[(10, 20)])
    # Its results come as copies, which lie in nothing, whatever the task's worker takes them for.
    task.aliased = [True]
    assert (await check(task, kernel, reference=baseline)).check == "aliased"
    task.aliased = [False]
    baseline.change = changing(outputs_at=[(10, 20)])
    assert (await check(task, kernel, Plan(structured=False), reference=baseline)).kind is Kind.OK


@pytest.mark.parametrize(
    ("changed", "told"), [([], ""), (["input out"], "; the call changed its inputs: input out (1 elements)")]
)
async def test_where_nothing_is_returned_it_tells_what_was_changed(changed: list[str], told: str):
    task = FakeTask([])
    task.found = {"changed": [Difference(where=where, elements=1) for where in changed]}
    with pytest.raises(Stopped) as stopped:
        await check(task)
    assert stopped.value.kind is Kind.REJECTED
    assert stopped.value.problem.message == f"the reference returned nothing to compare{told}"


async def test_an_output_where_an_earlier_one_lives_is_wrong():
    kernel = FakeKernel()
    kernel.change = changing(outputs_at=[(1000, 1100)])
    result = await check(FakeTask(), kernel, TWICE)
    assert (result.check, len(result.seeds)) == ("reused_memory", 2)
    result = await check(FakeTask(), kernel, ONCE)
    assert (result.check, len(result.seeds)) == ("reused_memory", 1)


async def test_values_too_inaccurate_are_wrong_and_the_worst_of_all_seeds_is_told():
    task = FakeTask()
    task.found = {"accuracy": [EXACT, EXACT.model_copy(update={"where": "output[1]", "error": 5e-7})]}
    result = await check(task, audited=audit())
    assert (result.kind, result.accuracy) == (Kind.OK, task.found["accuracy"][1])
    task.found = {"accuracy": [EXACT, EXACT.model_copy(update={"where": "output[1]", "error": 5e-6})]}
    result = await check(task, audited=audit())
    assert (result.kind, result.check, result.wrong_elements) == (Kind.WRONG, "accuracy", 0)


async def test_the_float64_reference_is_made_for_all_random_inputs_and_only_where_there_is_one():
    task = FakeTask()
    await check(task, plan=SEEDS, audited=audit())
    assert task.asked[:3] == ["expect", "expect_exact", "judge"]
    assert sorted(task.asked[3:]) == ["expect"] * 2 + ["expect_exact"] * 2 + ["judge"] * 2
    task = FakeTask()
    result = await check(task, audited=audit(exact="it returns float32"))
    assert "expect_exact" not in task.asked
    assert result.skipped == [Skipped(name="accuracy against float64", reason="it returns float32")]
    task = FakeTask()
    assert (await check(task)).skipped == []
    assert "expect_exact" not in task.asked


# Calls again


async def test_a_plain_call_and_one_with_margins_follow_on_the_first_inputs_only():
    task, kernel = FakeTask(), FakeKernel()
    result = await check(task, kernel, Plan(seeds=2, repeats=2, structured=False))
    assert result.kind is Kind.OK
    key = kernel.keys[0]
    assert kernel.keys == [key, None, key, key]
    assert task.asked == ["expect", "judge", "repeat", "judge", "repeat", "expect", "judge"]
    assert len(kernel.inputs) == 2


@pytest.mark.parametrize(("plan", "calls"), [(ONCE, 2), (AGAIN, 1)])
async def test_before_and_after_timing_one_seed_is_checked(plan: Plan, calls: int):
    task, kernel = FakeTask(), FakeKernel()
    audited = audit(variants=[Variant(name="zeros", scale=None)])
    result = await check(task, kernel, plan, audited=audited, views=["strided"])
    assert (len(kernel.keys), len(task.made), result.structured) == (calls, 1, [])


async def test_results_that_differ_from_call_to_call_are_wrong():
    task = FakeTask()
    task.differing = [[], [DIFFERENCE]]
    result = await check(task, plan=Plan(structured=False))
    assert (result.kind, result.check, len(result.seeds)) == (Kind.WRONG, "nondeterministic", 1)
    assert result.message == "two calls on the same inputs differ: output, 3 elements, by at most 0.5"


async def test_results_may_differ_where_the_task_says_so():
    task = FakeTask()
    task.differing = [[], [DIFFERENCE, DIFFERENCE.model_copy(update={"where": "output[1]", "elements": 4})]]
    result = await check(task, plan=Plan(structured=False), nondeterministic=True)
    assert result.kind is Kind.OK
    assert result.nondeterministic is not None
    assert result.nondeterministic.where == "output[1]"
    assert len(result.seeds) == 3


async def test_a_kernel_that_is_right_only_between_margins_is_wrong():
    task = FakeTask([RIGHT], [WRONG])
    result = await check(task, plan=ONCE)
    assert (result.kind, result.check, result.worst_index) == (Kind.WRONG, "values", [5])


async def test_results_that_may_differ_must_each_be_right():
    for verdicts, kind in (([RIGHT], [RIGHT], [WRONG]), Kind.WRONG), (([RIGHT], [RIGHT], [RIGHT]), Kind.OK):
        task = FakeTask(*verdicts)
        task.differing = [[], [DIFFERENCE]]
        plan = Plan(seeds=1, repeats=2, structured=False)
        assert (await check(task, plan=plan, nondeterministic=True)).kind is kind


@pytest.mark.parametrize(
    ("plan", "keyless"),
    [
        (Plan(seeds=7, repeats=0, structured=False), [False, False, True, False, False, True, False]),
        (Plan(seeds=2, repeats=0, structured=False, ordinary=True), [True, True]),
        (AGAIN, [True]),
    ],
    ids=["every third", "all", "after timing"],
)
async def test_some_inputs_are_new_to_an_ordinary_call(plan: Plan, keyless: list[bool]):
    kernel = FakeKernel()
    assert (await check(FakeTask(), kernel, plan)).kind is Kind.OK
    assert [key is None for key in kernel.keys] == keyless


async def test_a_wrong_call_is_not_repeated():
    task = FakeTask([WRONG])
    await check(task, plan=Plan())
    assert task.asked == ["expect", "judge"]


async def test_every_call_of_a_task_with_gradients_goes_backward():
    task, kernel = FakeTask(), FakeKernel()
    await check(task, kernel, Plan(seeds=1, structured=False), grad=True)
    assert [values.tree for values in kernel.upstream] == [{"value": "upstream"}] * 3
    assert task.asked == ["expect", "upstream", "judge", "repeat", "judge", "repeat"]


# Inputs


async def test_every_second_random_input_lies_where_the_one_before_lay():
    kernel = FakeKernel()
    await check(FakeTask(), kernel, Plan(seeds=4, repeats=0, structured=False))
    assert [reuse for _, _, reuse in kernel.inputs] == [False, True, False, True]


async def test_structured_inputs_and_layouts_follow_the_random_ones():
    task, kernel = FakeTask(), FakeKernel()
    audited = audit(
        variants=[Variant(name="zeros", scale=None), Variant(name="large", scale=256.0)],
        skipped=[Skipped(name="tiny", reason="ill-conditioned")],
    )
    plan = Plan(seeds=1, repeats=0)
    result = await check(task, kernel, plan, audited=audited, views=["offset", "strided"])
    assert task.made == [
        ("random", None, "plain"), ("zeros", None, "plain"), ("large", 256.0, "plain"), ("random", None, "offset"),
        ("random", None, "strided"),
    ]  # fmt: skip
    assert [offset for _, offset, _ in kernel.inputs] == [0, 0, 0, 1, 0]
    assert result.structured == ["zeros", "large", "offset inputs", "strided inputs"]
    assert result.skipped == audited.skipped
    assert len(result.seeds) == 1


async def test_a_kernel_that_is_wrong_on_structured_inputs_only_is_wrong_there():
    task = FakeTask([RIGHT], [RIGHT], [WRONG])
    audited = audit(variants=[Variant(name="zeros", scale=None), Variant(name="ones", scale=None)])
    result = await check(task, plan=Plan(seeds=1, repeats=0), audited=audited)
    assert (result.kind, result.inputs, result.structured) == (Kind.WRONG, "ones", ["zeros", "ones"])


@pytest.mark.parametrize(("allowed", "runs"), [([], False), (["nan"], True)])
async def test_inputs_on_which_the_reference_is_not_finite_prove_nothing_unless_meant(allowed: list[str], runs: bool):
    task = FakeTask([RIGHT], [WRONG])
    task.not_finite = {"nan": [FINITE.model_copy(update={"nan": 8})]}
    audited = audit(variants=[Variant(name="nan", scale=None)])
    result = await check(task, plan=Plan(seeds=1, repeats=0), audited=audited, special_values=allowed)
    if runs:
        assert (result.kind, result.inputs) == (Kind.WRONG, "nan")
    else:
        assert (result.kind, result.structured) == (Kind.OK, [])
        assert result.skipped == [Skipped(name="nan", reason="the reference is not finite there")]


@pytest.mark.parametrize(
    ("allowed", "nan", "inf", "runs"),
    [
        (["nan"], 8, 0, True), (["inf"], 0, 8, True), (["nan", "inf"], 4, 4, True),
        (["nan"], 0, 1, False), (["inf"], 1, 0, False), (["nan"], 4, 4, False), ([], 1, 0, False), ([], 0, 1, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["zeros", "strided inputs"])
async def test_structured_inputs_are_fair_where_outputs_have_only_values_that_the_task_allows(
    allowed: list[str], nan: int, inf: int, runs: bool, name: str
):
    task, odd = FakeTask(), [FINITE, FINITE.model_copy(update={"nan": nan, "inf": inf})]
    said: dict[str, Any] = {"views": ["strided"]} if name != "zeros" else {"audited": varied("zeros")}
    task.not_finite = {"zeros" if name == "zeros" else "random": odd}
    result = await check(task, plan=ONE_SEED, special_values=allowed, **said)
    assert result.structured == ([name] if runs else [])
    assert result.skipped[-1:] == ([] if runs else [Skipped(name=name, reason="the reference is not finite there")])


# Whose work it is


@pytest.mark.parametrize(
    ("launched", "words"),
    [([], "launched no Triton kernel"), ([OWN.model_copy(update={"own": False})], "installed packages (mine)")],
)
async def test_a_call_without_a_kernel_of_its_own_is_rejected(launched: list[Launched], words: str):
    kernel = FakeKernel()
    kernel.change = changing(launched=launched)
    with pytest.raises(Stopped) as stopped:
        await check(FakeTask(), kernel)
    assert (stopped.value.kind, stopped.value.problem.stage) == (Kind.REJECTED, "run")
    assert words in stopped.value.problem.message


async def test_a_kernel_that_is_only_launched_where_it_is_watched_is_rejected():
    kernel = FakeKernel()
    kernel.change = lambda number, facts: facts.model_copy(update={"launched": []}) if number == 2 else facts
    with pytest.raises(Stopped) as stopped:
        await check(FakeTask(), kernel, ONCE)
    assert stopped.value.kind is Kind.REJECTED


def recording(own_us: float, other_us: float) -> Callable[[int, CallFacts], CallFacts]:
    activities = [DeviceWork(name="mine", us=own_us, count=1), DeviceWork(name="gemm", us=other_us, count=1)]

    def change(number: int, facts: CallFacts) -> CallFacts:
        return facts.model_copy(update={"activities": activities, "operations": {}}) if number == 2 else facts

    return change


async def test_a_decoy_beside_a_library_is_cheating():
    kernel = FakeKernel()
    kernel.change = recording(5.0, 95.0)
    with pytest.raises(Stopped) as stopped:
        await check(FakeTask(), kernel, ONCE)
    assert stopped.value.kind is Kind.CHEATING
    assert "95.0 % of the device's time" in stopped.value.problem.message
    assert "gemm" in stopped.value.problem.message
    assert stopped.value.problem.likely_fix


async def test_a_decoy_on_later_inputs_is_cheating():
    kernel = FakeKernel()
    busy = [DeviceWork(name="mine", us=1.0, count=1), DeviceWork(name="gemm", us=99.0, count=1)]
    kernel.change = lambda number, facts: facts.model_copy(update={"activities": busy}) if number == 3 else facts
    with pytest.raises(Stopped) as stopped:
        await check(FakeTask(), kernel, SEEDS)
    assert stopped.value.kind is Kind.CHEATING


async def test_some_work_outside_is_told():
    kernel = FakeKernel()
    kernel.change = recording(15.0, 85.0)
    result = await check(FakeTask(), kernel, ONCE)
    assert (result.outside_triton_pct, result.outside_triton) == (85.0, ["gemm"])


async def test_without_a_recording_the_operations_of_the_call_with_margins_are_told():
    result = await check(FakeTask(), plan=ONCE)
    assert (result.outside_triton_pct, result.outside_triton) == (None, ["aten.mul"])


def test_plans_are_values():
    assert replace(Plan(), seeds=1, repeats=1, structured=False) == ONCE
