# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""A task at work: its inputs made and varied, its reference run, outputs judged against it."""

import math
import types
from typing import NamedTuple

import pytest
import torch


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


def make_inputs(rows, device):
    return (torch.randn(rows, device=device),)


SOUND = {"ENTRY": "softmax", "CASES": {"train": {"rows": 4}}, "make_inputs": make_inputs}


def module(**parts):
    return types.SimpleNamespace(__doc__=None, **{**SOUND, **parts})


@pytest.fixture
def loaded(task):
    return lambda **changed: task.Task(module(**changed), "cpu")


@pytest.fixture
def refused(worker):
    """The refusal that a call ends in."""

    def run(call, stage):
        with pytest.raises(worker.failures.Refused) as caught:
            call()
        assert (caught.value.kind, caught.value.stage) == ("rejected", stage)
        return str(caught.value)

    return run


def test_inputs_of_a_seed_are_the_same_each_time_and_others_with_another_seed(loaded):
    task = loaded()
    (first,), (again,), (other,) = (task.make_inputs("train", seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_meta_fields_of_a_case_are_not_passed_to_make_inputs(loaded):
    (x,) = loaded(CASES={"train": {"rows": 3, "weight": 2.0, "small": True}}).make_inputs("train", 0)
    assert x.shape == (3,)


def test_hidden_cases_make_inputs_too(loaded):
    (x,) = loaded(HIDDEN_CASES={"ragged": {"rows": 9}}).make_inputs("ragged", 0)
    assert x.shape == (9,)


@pytest.mark.parametrize(("returned", "name"), [(torch.ones(2), "Tensor"), ([1], "list"), (None, "NoneType")])
def test_inputs_of_another_form_are_refused(loaded, refused, returned, name):
    task = loaded(make_inputs=lambda rows, device: returned)
    message = refused(lambda: task.make_inputs("train", 0), "inputs")
    assert message.startswith(f"make_inputs returned a {name}; it must return a tuple")


def test_the_reference_works_on_copies_of_its_own(loaded):
    def reference(x):
        return x.zero_()

    task = loaded(reference=reference)
    (x,) = task.make_inputs("train", 1)
    kept = x.clone()
    task.expect()
    assert torch.equal(task.expected, torch.zeros(4))
    assert torch.equal(x, kept)


def test_inputs_that_are_a_named_tuple_reach_the_reference(loaded):
    task = loaded(make_inputs=lambda rows, device: Pair(torch.ones(2), torch.ones(2)), reference=lambda x, y: x + y)
    task.make_inputs("train", 0)
    task.expect()
    assert torch.equal(task.expected, torch.full((2,), 2.0))


def test_inputs_in_a_dict_are_passed_by_name(loaded):
    inputs = {"y": torch.zeros(2), "x": torch.ones(2)}
    task = loaded(make_inputs=lambda rows, device: inputs, reference=lambda x, y: x - y)
    task.make_inputs("train", 0)
    task.expect()
    assert torch.equal(task.expected, torch.ones(2))


def test_outputs_in_place_are_the_mutated_arguments(loaded):
    def reference(x, out):
        out.copy_(x + 1)

    task = loaded(
        IN_PLACE=("out",), make_inputs=lambda rows, device: (torch.ones(2), torch.zeros(2)), reference=reference
    )
    task.make_inputs("train", 0)
    facts = task.expect()
    assert (facts["in_place"], facts["aliased"]) == (["out"], [True])
    assert list(task.expected) == ["out"]
    assert torch.equal(task.expected["out"], torch.full((2,), 2.0))
    assert task.judge({"out": torch.full((2,), 2.0)})[0]["wrong_elements"] == 0


def test_an_argument_in_place_that_does_not_exist_is_refused(loaded, refused):
    task = loaded(IN_PLACE=("output",), reference=lambda x: x)
    task.make_inputs("train", 0)
    assert refused(task.expect, "task") == "IN_PLACE names ['output']; the arguments are ['x']"


def test_outputs_in_place_that_nothing_names_are_refused(loaded, refused):
    task = loaded(IN_PLACE=("x",))
    (x,) = task.make_inputs("train", 0)
    message = refused(lambda: task.changed((x + 1,)), "task")
    assert message.endswith("or add PARAMETERS = ('x', 'out'), the entry's in order")
    named = loaded(make_inputs=lambda rows, device: {"x": torch.zeros(2)}, IN_PLACE=("x",))
    made = named.make_inputs("train", 0)
    assert named.changed({"x": made["x"] + 1}) == []


def test_the_outputs_of_another_program_may_be_the_expected_ones(loaded):
    task = loaded()
    task.expect_from((torch.ones(2),))
    assert task.judge((torch.zeros(2),))[0]["wrong_elements"] == 2


def test_tolerances_of_the_task_decide(loaded):
    task = loaded(TOLERANCE={"float32": {"atol": 0.5}})
    task.expect_from(torch.zeros(2))
    (record,) = task.judge(torch.tensor([0.25, 0.75]))
    assert (record["rtol"], record["atol"], record["wrong_elements"]) == (0.0, 0.5, 1)


def test_work_that_is_not_said_is_unknown(loaded):
    assert loaded().work("train") is None


def test_work_of_a_case_is_a_pair_of_numbers(loaded):
    assert loaded(work=lambda rows: {"bytes": 2 * rows, "flops": 5}).work("train") == {"bytes": 8.0, "flops": 5.0}


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (5, "work() returned 5; it must return {'bytes': ..., 'flops': ...}"),
        (None, "work() returned None"),
        ({"byte": 1}, "work() returned {'byte': 1}"),
        ({"bytes": -1}, "work() gives bytes = -1; it must be a number of 0 or more"),
        ({"flops": math.nan}, "work() gives flops = nan"),
        ({"flops": math.inf}, "work() gives flops = inf"),
        ({"flops": "many"}, "work() gives flops = 'many'"),
    ],
)
def test_work_of_another_form_is_refused(loaded, refused, returned, message):
    assert refused(lambda: loaded(work=lambda rows: returned).work("train"), "task").startswith(message)


def test_a_variant_of_inputs_is_made_of_those_of_the_seed(loaded):
    task = loaded()
    (plain,) = task.make_inputs("train", 1)
    (large,) = task.make_inputs("train", 1, variant="large", scale=8.0)
    (strided,) = task.make_inputs("train", 1, layout="strided")
    assert torch.equal(large, 8 * plain)
    assert torch.equal(strided, plain)
    assert strided.stride() == (2,)


def test_an_argument_in_place_is_not_broadcast(loaded):
    task = loaded(
        IN_PLACE=("out",),
        make_inputs=lambda rows, device: (torch.rand(3, 4), torch.rand(3, 4)),
        reference=lambda x, out: out.copy_(x),
    )
    x, out = task.make_inputs("train", 0, layout="broadcast")
    assert (x.stride(), out.stride()) == ((0, 1), (4, 1))


def test_new_inputs_forget_the_outputs_of_the_last(loaded):
    task = loaded(reference=lambda x: x + 1)
    task.make_inputs("train", 0)
    task.expect()
    task.expect_exact()
    task.judge(task.expected)
    task.make_inputs("train", 1)
    assert (task.expected, task.exact, task.got) == (None, None, None)
    assert task.accuracy(torch.zeros(4)) == []


def test_facts_of_the_expected_outputs(loaded):
    def reference(x):
        return x.view(2, 2), torch.tensor([3.0, 4.0, math.nan, math.inf]), torch.tensor([1]), x[:0], 5

    task = loaded(reference=reference)
    task.make_inputs("train", 0)
    facts = task.expect()
    assert facts["aliased"] == [True, False, False, False]
    assert [record["where"] for record in facts["outputs"]] == ["output[0]", "output[1]", "output[3]"]
    record = facts["outputs"][1]
    assert (record["elements"], record["nan"], record["inf"]) == (4, 1, 1)
    assert record["rms"] == pytest.approx(math.sqrt(12.5))
    assert task.expect_from(task.expected) == {**facts, "aliased": [False] * 4}


def test_an_output_that_shares_nothing_with_the_inputs_is_not_aliased(loaded):
    task = loaded(reference=lambda x: x + 0)
    task.make_inputs("train", 0)
    assert task.expect()["aliased"] == [False]


@pytest.mark.parametrize(("parts", "wrong"), [({"reduction": lambda rows: 1e6}, 0), ({}, 1)])
def test_sums_may_err_more_the_longer_they_are(loaded, parts, wrong):
    task = loaded(reference=lambda x: x, **parts)
    task.make_inputs("train", 0)
    task.expect_from(torch.tensor([1.0, -1.0, 0.0, 1.0]))
    # 4 sqrt(1e6) 2^-24 is 2.4e-4.
    assert task.judge(torch.tensor([1.0, -1.0, 1e-4, 1.0]))[0]["wrong_elements"] == wrong


def test_a_tolerance_of_the_tasks_own_does_not_grow_with_the_sum(loaded):
    task = loaded(TOLERANCE={"float32": {"atol": 1e-6}}, reduction=lambda rows: 1e6)
    task.make_inputs("train", 0)
    task.expect_from(torch.ones(4))
    assert task.judge(torch.ones(4))[0]["atol"] == 1e-6


def test_strides_count_where_the_task_says_so(loaded):
    expected = torch.rand(3, 4)
    for strides in (True, False):
        task = loaded(STRIDES=strides)
        task.make_inputs("train", 0)
        task.expect_from(expected)
        (record,) = task.judge(expected.t().contiguous().t())
        assert (record["mismatch"] is not None) == strides


@pytest.fixture
def atol(loaded):
    """The absolute tolerance by which outputs for a variant are judged, after random inputs."""

    def run(reference, variant, scale=None, seed=3):
        task = loaded(
            reference=reference, TOLERANCE={"float32": {"atol": 0.5}}, make_inputs=lambda rows, device: (torch.rand(8),)
        )
        if seed is not None:
            task.make_inputs("train", seed)
            task.expect()
        task.make_inputs("train", 3, variant, scale)
        task.expect()
        return [record["atol"] for record in task.judge(task.expected)]

    return run


def test_the_absolute_tolerance_follows_the_size_of_a_variants_outputs(atol):
    assert atol(lambda x: x, "large", 16.0) == [pytest.approx(8.0)]
    assert atol(lambda x: x, "tiny", 2.0**-4) == [pytest.approx(0.5 / 16)]
    # One place each: integers keep theirs.
    assert atol(lambda x: (x.to(torch.int32), x * x, 0 * x), "large", 16.0) == [0.0, pytest.approx(128.0), 0.5]


def test_the_absolute_tolerance_follows_within_limits(atol):
    assert atol(lambda x: x, "large", 2.0**30) == [pytest.approx(0.5 * 2**30)]
    assert atol(lambda x: x, "large", 2.0**60) == [pytest.approx(0.5e12)]
    assert atol(lambda x: x, "tiny", 2.0**-40) == [pytest.approx(0.5e-6)]


@pytest.mark.parametrize(
    ("reference", "variant", "seed"),
    [
        (lambda x: x, "random", 4),
        (lambda x: x, "zeros", 3),
        (lambda x: x, "ones", None),
        (lambda x: x.floor(), "ones", 3),
        (lambda x: x / (1 - x.floor()) - torch.inf, "ones", 3),
    ],
    ids=["random", "no size", "no random inputs before", "no random size", "not finite"],
)
def test_the_absolute_tolerance_stays_where_there_is_nothing_to_follow(atol, reference, variant, seed):
    assert atol(reference, variant, seed=seed) == [0.5]
