"""How a case's verdict is reached, with workers that answer from a script."""

from typing import cast

import pytest

from tritonforge.profiling.correctness import check_case
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.workers import KernelWorker, OutputComparison, TaskWorker, Values

pytestmark = pytest.mark.anyio

NOTHING = Values({"value": None}, [])
RIGHT = OutputComparison(
    where="output", mismatch=None, dtype="float32", elements=8, finite_elements=8, rtol=1e-6, atol=1e-5
)
WRONG = RIGHT.model_copy(update={"wrong_elements": 2, "max_abs_error": 3.0, "worst_index": [5], "worst_expected": 1.0,
                                 "worst_got": 4.0})  # fmt: skip


class FakeTask:
    def __init__(self, *verdicts: list[OutputComparison]) -> None:
        self.verdicts = list(verdicts)
        self.seeds: list[int] = []
        self.expected = 0
        self.expected_from = 0

    async def make_inputs(self, case: str, seed: int) -> Values:
        self.seeds.append(seed)
        return NOTHING

    async def expect(self) -> None:
        self.expected += 1

    async def expect_from(self, values: Values) -> None:
        self.expected_from += 1

    async def judge(self, values: Values) -> list[OutputComparison]:
        return self.verdicts.pop(0)

    def as_worker(self) -> TaskWorker:
        return cast(TaskWorker, self)


class FakeKernel:
    def __init__(self, failure: Stopped | None = None) -> None:
        self.failure = failure

    async def set_inputs(self, values: Values) -> None:
        return None

    async def call(self) -> Values:
        if self.failure is not None:
            raise self.failure
        return NOTHING

    def as_worker(self) -> KernelWorker:
        return cast(KernelWorker, self)


async def test_a_right_case_ran_every_seed_and_each_is_new():
    task = FakeTask([RIGHT], [RIGHT], [RIGHT])
    result = await check_case("c", 3, task.as_worker(), FakeKernel().as_worker(), None)
    assert result.kind is Kind.OK
    assert result.message is None
    assert result.seeds == task.seeds
    assert len(set(task.seeds)) == 3
    assert task.expected == 3


async def test_the_first_wrong_seed_ends_the_case_and_is_reported():
    task = FakeTask([RIGHT], [WRONG], [RIGHT])
    result = await check_case("c", 3, task.as_worker(), FakeKernel().as_worker(), None)
    assert result.kind is Kind.WRONG
    assert len(result.seeds) == 2
    assert (result.wrong_elements, result.worst_index) == (2, [5])
    assert result.message is not None
    for part in ("2 of 8", "[5]", "expected 1.0", "got 4.0"):
        assert part in result.message


async def test_the_worst_of_several_outputs_is_the_one_reported():
    other = WRONG.model_copy(update={"where": "output[1]", "wrong_elements": 7})
    result = await check_case("c", 1, FakeTask([WRONG, other]).as_worker(), FakeKernel().as_worker(), None)
    assert (result.worst_output, result.wrong_elements, result.elements) == ("output[1]", 7, 16)


async def test_a_mismatch_of_form_has_no_errors_in_numbers():
    shape = OutputComparison(where="output", mismatch="output: expected shape (4,), got (5,)")
    result = await check_case("c", 1, FakeTask([shape]).as_worker(), FakeKernel().as_worker(), None)
    assert result.kind is Kind.WRONG
    assert result.message == "output: expected shape (4,), got (5,)"
    assert result.max_abs_error is None
    assert result.rtol is None


async def test_a_baseline_gives_the_expected_outputs_where_it_is_the_reference():
    task = FakeTask([RIGHT])
    await check_case("c", 1, task.as_worker(), FakeKernel().as_worker(), FakeKernel().as_worker())
    assert (task.expected, task.expected_from) == (0, 1)


async def test_a_failing_baseline_is_named_as_such():
    failure = Stopped(Kind.RUNTIME_ERROR, Problem(stage="run", message="boom"))
    with pytest.raises(Stopped) as stopped:
        await check_case(
            "c", 1, FakeTask([RIGHT]).as_worker(), FakeKernel().as_worker(), FakeKernel(failure).as_worker()
        )
    assert stopped.value.kind is Kind.RUNTIME_ERROR
    assert stopped.value.problem.message == "the baseline failed: boom"


async def test_nothing_to_compare_is_refused():
    with pytest.raises(Stopped) as stopped:
        await check_case("c", 1, FakeTask([]).as_worker(), FakeKernel().as_worker(), None)
    assert stopped.value.kind is Kind.REJECTED
