# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""The task contract: every part that is missing or malformed is named, with the form that it should have."""

import json
import math
import types
from typing import NamedTuple

import pytest
import torch

FORM = "A task file defines ENTRY = 'function_name', CASES = {"


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


def make_inputs(rows, device):
    return (torch.randn(rows, device=device),)


SOUND = {"ENTRY": "softmax", "CASES": {"train": {"rows": 4}}, "make_inputs": make_inputs}


def module(**changed):
    """A task module; a part that is given as `...` is missing."""
    made = types.ModuleType("task", changed.pop("doc", None))
    for name, value in {**SOUND, **changed}.items():
        if value is not ...:
            setattr(made, name, value)
    return made


@pytest.fixture
def refusal(task, worker):
    def run(**changed):
        with pytest.raises(worker.failures.Refused) as caught:
            task.describe(module(**changed))
        assert (caught.value.kind, caught.value.stage) == ("rejected", "task")
        message = str(caught.value)
        assert FORM in message
        return message.partition(f". {FORM}")[0]

    return run


def test_a_minimal_task_is_described(task):
    described = task.describe(module())
    assert described.pop("tolerances")["float16"] == {"rtol": 1e-3, "atol": 1e-5}
    assert described == {
        "entry": "softmax", "title": None, "hidden_cases": {}, "has_reference": False, "has_work": False,
        "cases": {"train": {"parameters": {"rows": 4}, "weight": 1.0, "small": False}}, "in_place": [],
    }  # fmt: skip


def test_a_full_task_is_described(task):
    described = task.describe(
        module(
            doc="\n  Row-wise softmax.\n\nMore.\n",
            CASES={"train": {"rows": 4, "weight": 3, "small": True}},
            HIDDEN_CASES={"ragged": {"rows": 7}},
            reference=lambda x: x,
            work=lambda rows: {"bytes": rows},
            IN_PLACE=("out",),
            TOLERANCE={"float32": {"rtol": 0.5}},
        )
    )
    assert described["title"] == "Row-wise softmax."
    assert described["cases"]["train"] == {"parameters": {"rows": 4}, "weight": 3.0, "small": True}
    assert described["hidden_cases"]["ragged"] == {"parameters": {"rows": 7}, "weight": 1.0, "small": False}
    assert (described["has_reference"], described["has_work"], described["in_place"]) == (True, True, ["out"])
    assert described["tolerances"]["float32"] == {"rtol": 0.5, "atol": 0.0}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"ENTRY": ...},
            "ENTRY must be the name of the kernel file's host function, e.g. ENTRY = 'softmax'; it is None",
        ),
        ({"ENTRY": "soft max"}, "ENTRY must be the name of"),
        ({"ENTRY": print}, "ENTRY must be the name of"),
        ({"make_inputs": ...}, "make_inputs is missing: def make_inputs(<the case's parameters>, device)"),
        ({"make_inputs": 5}, "make_inputs is missing"),
        (
            {"CASES": ...},
            "CASES must be a dict of named cases, e.g. CASES = {'train': {'rows': 4096, 'cols': 1024}}; it is NoneType",
        ),
        ({"CASES": [{"rows": 4}]}, "CASES must be a dict of named cases"),
        ({"CASES": {}}, "CASES is empty; give at least one, e.g. CASES = {'train':"),
        ({"CASES": {"train": 5}}, "CASES['train'] must be a dict of parameters, e.g. {'rows': 4096}; it is 5"),
        ({"CASES": {7: {"rows": 4}}}, "CASES[7] must be a dict of parameters"),
        ({"CASES": {"train": {3: 4}}}, "CASES['train'] must be a dict of parameters"),
        ({"CASES": {"train": {"rows": 4, "weight": 0}}}, "CASES['train']['weight'] must be a positive number; it is 0"),
        ({"CASES": {"train": {"rows": 4, "weight": math.nan}}}, "CASES['train']['weight'] must be a positive number"),
        ({"CASES": {"train": {"rows": 4, "weight": math.inf}}}, "CASES['train']['weight'] must be a positive number"),
        ({"CASES": {"train": {"rows": 4, "weight": True}}}, "CASES['train']['weight'] must be a positive number"),
        ({"CASES": {"train": {"rows": 4, "weight": "3"}}}, "CASES['train']['weight'] must be a positive number"),
        (
            {"CASES": {"train": {}}},
            "make_inputs can't take case 'train': missing a required argument: 'rows'. It is called as",
        ),
        (
            {"CASES": {"train": {"rows": 4, "cols": 5}}},
            "make_inputs can't take case 'train': got an unexpected keyword argument 'cols'",
        ),
        (
            {"make_inputs": lambda rows: ()},
            "make_inputs can't take case 'train': got an unexpected keyword argument 'device'",
        ),
        ({"CASES": {"train": {"rows": 4, "device": "cpu"}}}, "make_inputs can't take case 'train'"),
        ({"HIDDEN_CASES": None}, "HIDDEN_CASES must be a dict of named cases"),
        ({"HIDDEN_CASES": {"x": 1}}, "HIDDEN_CASES['x'] must be a dict of parameters"),
        ({"HIDDEN_CASES": {"train": {"rows": 4}}}, "['train'] stand both in CASES and in HIDDEN_CASES"),
        ({"IN_PLACE": "out"}, "IN_PLACE must be a tuple of argument names, e.g. IN_PLACE = ('out',); it is 'out'"),
        ({"IN_PLACE": (1,)}, "IN_PLACE must be a tuple of argument names"),
        ({"IN_PLACE": 5}, "IN_PLACE must be a tuple of argument names"),
        ({"IN_PLACE": None}, "IN_PLACE must be a tuple of argument names"),
        ({"reference": None}, "reference must be a function; it is a NoneType"),
        ({"work": {"bytes": 1}}, "work must be a function; it is a dict"),
        ({"reduction": 5}, "reduction must be a function; it is a int"),
        ({"setup": "x"}, "setup must be a function; it is a str"),
        ({"TOLERANCE": 1e-3}, "TOLERANCE must be a dict by dtype name, e.g. TOLERANCE = {'float16':"),
        ({"TOLERANCE": {"flot16": {}}}, "TOLERANCE has the key 'flot16', which is no dtype name"),
        ({"TOLERANCE": {"load": {}}}, "TOLERANCE has the key 'load', which is no dtype name"),
        ({"TOLERANCE": {torch.float16: {}}}, "TOLERANCE has the key torch.float16, which is no dtype name"),
        ({"TOLERANCE": {"float16": 1e-3}}, "TOLERANCE['float16'] must be {'rtol': ..., 'atol': ...}; it is 0.001"),
        ({"TOLERANCE": {"float16": {"rel": 1}}}, "TOLERANCE['float16'] must be {'rtol': ..., 'atol': ...}"),
        (
            {"TOLERANCE": {"float16": {"rtol": -1}}},
            "TOLERANCE['float16']['rtol'] must be a number of 0 or more; it is -1",
        ),
        ({"TOLERANCE": {"float16": {"atol": math.nan}}}, "TOLERANCE['float16']['atol'] must be a number"),
        ({"TOLERANCE": {"float16": {"atol": math.inf}}}, "TOLERANCE['float16']['atol'] must be a number"),
        ({"TOLERANCE": {"float16": {"atol": True}}}, "TOLERANCE['float16']['atol'] must be a number"),
    ],
    # The same in every process: functions show where they lie in memory.
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_malformed_part_is_named_with_its_form(refusal, changed, message):
    assert refusal(**changed).startswith(message)


@pytest.mark.parametrize(("alias", "name"), [("half", "float16"), ("float", "float32"), ("long", "int64")])
def test_a_tolerance_under_another_name_of_the_dtype_counts(task, alias, name):
    described = task.describe(module(TOLERANCE={alias: {"rtol": 0.25, "atol": 0.5}}))
    assert described["tolerances"][name] == {"rtol": 0.25, "atol": 0.5}
    assert alias not in described["tolerances"]


def test_parameters_that_json_cannot_carry_are_described_all_the_same(task):
    cases = {"train": {"rows": (1, [torch.float16]), "scale": math.inf, "nested": {1: {2}}}}
    described = task.describe(module(CASES=cases, make_inputs=lambda rows, scale, nested, device: ()))
    assert json.loads(json.dumps(described["cases"]["train"]["parameters"], allow_nan=False)) == {
        "rows": [1, ["torch.float16"]], "scale": "inf", "nested": {"1": "{2}"},
    }  # fmt: skip


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
    assert torch.equal(task.expect(), torch.zeros(4))
    assert torch.equal(x, kept)


def test_inputs_that_are_a_named_tuple_reach_the_reference(loaded):
    task = loaded(make_inputs=lambda rows, device: Pair(torch.ones(2), torch.ones(2)), reference=lambda x, y: x + y)
    task.make_inputs("train", 0)
    assert torch.equal(task.expect(), torch.full((2,), 2.0))


def test_inputs_in_a_dict_are_passed_by_name(loaded):
    inputs = {"y": torch.zeros(2), "x": torch.ones(2)}
    task = loaded(make_inputs=lambda rows, device: inputs, reference=lambda x, y: x - y)
    task.make_inputs("train", 0)
    assert torch.equal(task.expect(), torch.ones(2))


def test_outputs_in_place_are_the_mutated_arguments(loaded):
    def reference(x, out):
        out.copy_(x + 1)

    task = loaded(
        IN_PLACE=("out",), make_inputs=lambda rows, device: (torch.ones(2), torch.zeros(2)), reference=reference
    )
    task.make_inputs("train", 0)
    expected = task.expect()
    assert list(expected) == ["out"]
    assert torch.equal(expected["out"], torch.full((2,), 2.0))
    assert task.judge({"out": torch.full((2,), 2.0)})[0]["wrong_elements"] == 0


def test_an_argument_in_place_that_does_not_exist_is_refused(loaded, refused):
    task = loaded(IN_PLACE=("output",), reference=lambda x: x)
    task.make_inputs("train", 0)
    assert refused(task.expect, "task") == "IN_PLACE names ['output']; the arguments are ['x']"


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
