# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""The task contract: every part that is missing or malformed is named, with the form that it should have."""

import json
import math
import types

import pytest
import torch

FORM = "A task file defines ENTRY = 'function_name', CASES = {"


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
def refusal(contract, worker):
    def run(**changed):
        with pytest.raises(worker.failures.Refused) as caught:
            contract.describe(module(**changed))
        assert (caught.value.kind, caught.value.stage) == ("rejected", "task")
        message = str(caught.value)
        assert FORM in message
        return message.partition(f". {FORM}")[0]

    return run


def test_a_minimal_task_is_described(contract):
    described = contract.describe(module())
    assert described.pop("tolerances")["float16"] == {"rtol": 1e-3, "atol": 1e-5}
    assert described == {
        "entry": "softmax", "title": None, "hidden_cases": {}, "has_reference": False, "has_work": False,
        "has_reduction": False, "cases": {"train": {"parameters": {"rows": 4}, "weight": 1.0, "small": False}},
        "in_place": [], "own_tolerances": [], "error_factor": None, "special_values": [], "views": [],
        "strides": False, "nondeterministic": False, "grad": False,
    }  # fmt: skip


def test_a_full_task_is_described(contract):
    described = contract.describe(
        module(
            doc="\n  Row-wise softmax.\n\nMore.\n",
            CASES={"train": {"rows": 4, "weight": 3, "small": True}},
            HIDDEN_CASES={"ragged": {"rows": 7}},
            reference=lambda x: x,
            work=lambda rows: {"bytes": rows},
            IN_PLACE=("out",),
            TOLERANCE={"float32": {"rtol": 0.5}, "half": {"rtol": 0.25}, "float16": {"rtol": 0.5}},
            reduction=lambda rows: rows,
            ERROR_FACTOR=8,
            SPECIAL_VALUES=["inf", "nan", "inf"],
            VIEWS={"broadcast", "offset"},
            STRIDES=True,
            NONDETERMINISTIC=True,
            GRAD=True,
        )
    )
    assert described["title"] == "Row-wise softmax."
    assert described["cases"]["train"] == {"parameters": {"rows": 4}, "weight": 3.0, "small": True}
    assert described["hidden_cases"]["ragged"] == {"parameters": {"rows": 7}, "weight": 1.0, "small": False}
    assert (described["has_reference"], described["has_work"], described["in_place"]) == (True, True, ["out"])
    assert described["tolerances"]["float32"] == {"rtol": 0.5, "atol": 0.0}
    assert described["own_tolerances"] == ["float16", "float32"]
    assert (described["special_values"], described["views"]) == (["nan", "inf"], ["offset", "broadcast"])
    assert (described["has_reduction"], described["error_factor"]) == (True, 8.0)
    assert all(described[name] is True for name in ("strides", "nondeterministic", "grad"))


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
        ({"PARAMETERS": "x"}, "PARAMETERS must be the names of the entry's parameters in order; it is 'x'"),
        ({"PARAMETERS": (1,)}, "PARAMETERS must be the names of the entry's parameters in order; it is (1,)"),
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
        (
            {"SPECIAL_VALUES": "nan"},
            "SPECIAL_VALUES must be a tuple of names out of nan, inf, e.g. SPECIAL_VALUES = ('nan', 'inf')",
        ),
        ({"SPECIAL_VALUES": (math.nan,)}, "SPECIAL_VALUES must be a tuple of names out of nan, inf"),
        ({"SPECIAL_VALUES": True}, "SPECIAL_VALUES must be a tuple of names out of nan, inf"),
        ({"SPECIAL_VALUES": ("nan", "NaN")}, "SPECIAL_VALUES names ['NaN']; allowed are nan, inf, e.g."),
        (
            {"VIEWS": ("transposed",)},
            "VIEWS names ['transposed']; allowed are offset, strided, broadcast, e.g. VIEWS = ('offset', 'strided')",
        ),
        ({"VIEWS": None}, "VIEWS must be a tuple of names out of offset, strided, broadcast"),
        ({"STRIDES": 1}, "STRIDES must be True or False, e.g. STRIDES = True; it is 1"),
        ({"NONDETERMINISTIC": "yes"}, "NONDETERMINISTIC must be True or False"),
        ({"GRAD": None}, "GRAD must be True or False"),
        ({"GRAD": True}, "GRAD = True needs a reference whose gradients are the expected ones"),
        ({"ERROR_FACTOR": 0.5}, "ERROR_FACTOR must be a number of 1 or more: how many times"),
        ({"ERROR_FACTOR": True}, "ERROR_FACTOR must be a number of 1 or more"),
        ({"ERROR_FACTOR": math.inf}, "ERROR_FACTOR must be a number of 1 or more"),
        ({"ERROR_FACTOR": math.nan}, "ERROR_FACTOR must be a number of 1 or more"),
        ({"ERROR_FACTOR": "8"}, "ERROR_FACTOR must be a number of 1 or more"),
        (
            {"reduction": lambda cols: 5},
            "reduction can't take case 'train': missing a required argument: 'cols'. It is called as reduction(rows=4)",
        ),
        (
            {"reduction": lambda rows: 0},
            "reduction(rows=4) returned 0; it must return the length of the sum behind each output element, a number",
        ),
        ({"reduction": lambda rows: None}, "reduction(rows=4) returned None; it must return the length"),
        ({"reduction": lambda rows: True}, "reduction(rows=4) returned True; it must return the length"),
        ({"reduction": lambda rows: math.inf}, "reduction(rows=4) returned inf; it must return the length"),
        ({"reduction": lambda rows: math.nan}, "reduction(rows=4) returned nan; it must return the length"),
        (
            {"reduction": lambda rows: 5 - rows, "HIDDEN_CASES": {"ragged": {"rows": 7}}},
            "reduction(rows=7) returned -2; it must return the length",
        ),
    ],
    # The same in every process: functions show where they lie in memory.
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_malformed_part_is_named_with_its_form(refusal, changed, message):
    assert refusal(**changed).startswith(message)


@pytest.mark.parametrize(("alias", "name"), [("half", "float16"), ("float", "float32"), ("long", "int64")])
def test_a_tolerance_under_another_name_of_the_dtype_counts(contract, alias, name):
    described = contract.describe(module(TOLERANCE={alias: {"rtol": 0.25, "atol": 0.5}}))
    assert described["tolerances"][name] == {"rtol": 0.25, "atol": 0.5}
    assert alias not in described["tolerances"]


def test_parameters_that_json_cannot_carry_are_described_all_the_same(contract):
    cases = {"train": {"rows": (1, [torch.float16]), "scale": math.inf, "nested": {1: {2}}}}
    described = contract.describe(module(CASES=cases, make_inputs=lambda rows, scale, nested, device: ()))
    assert json.loads(json.dumps(described["cases"]["train"]["parameters"], allow_nan=False)) == {
        "rows": [1, ["torch.float16"]], "scale": "inf", "nested": {"1": "{2}"},
    }  # fmt: skip


@pytest.mark.parametrize(("case", "length"), [("train", 4.0), ("ragged", 7.0)])
def test_a_reduction_is_that_of_the_case_without_its_meta_fields(contract, case, length):
    cases = {"CASES": {"train": {"rows": 4, "weight": 2.0}}, "HIDDEN_CASES": {"ragged": {"rows": 7, "small": True}}}
    assert contract.reduction(module(**cases, reduction=lambda rows: rows), case) == length
    assert contract.reduction(module(**cases), case) is None
