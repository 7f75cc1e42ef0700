# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""What a task finds out beside the comparison: outputs that don't repeat, changed arguments, accuracy."""

import math
import types

import pytest
import torch


def module(**parts):
    sound = {
        "ENTRY": "softmax", "CASES": {"train": {"rows": 4}},
        "make_inputs": lambda rows, device: (torch.randn(rows, device=device),),
    }  # fmt: skip
    return types.SimpleNamespace(__doc__=None, **{**sound, **parts})


@pytest.fixture
def loaded(task):
    return lambda **parts: task.Task(module(**parts), "cpu")


def test_outputs_that_repeat_are_those_judged_last(loaded):
    task = loaded()
    task.expect_from(torch.zeros(3))
    task.judge(torch.zeros(3))
    task.judge(torch.tensor([1.0, math.nan, -0.0]))
    assert task.repeat(torch.tensor([1.0, math.nan, -0.0])) == []
    assert task.repeat(torch.tensor([1.5, math.nan, 0.0])) == [
        {"where": "output", "elements": 2, "max_abs_difference": 0.5}
    ]
    # Which stays: a third run is compared with it, too.
    assert task.repeat(torch.tensor([1.0, math.nan, -0.0])) == []


def test_outputs_of_another_form_do_not_repeat(loaded):
    task = loaded()
    task.expect_from(torch.zeros(3))
    task.judge(torch.zeros(3))
    (record,) = task.repeat((torch.zeros(3),))
    assert record["where"] == "output"
    assert record["mismatch"]


def test_outputs_of_another_form_are_not_kept_for_others_to_be_compared_with(loaded):
    task = loaded()
    task.expect_from(torch.zeros(3))
    task.judge(torch.zeros(3))
    # One element, expanded: a comparison with its like would never end.
    forged = torch.zeros(1).expand(1 << 40)
    assert task.judge(forged)[0]["mismatch"]
    (record,) = task.repeat(forged)
    assert record["mismatch"]


@pytest.mark.parametrize(("part", "stage"), [("make_inputs", "inputs"), ("reference", "reference")])
def test_what_is_no_tensor_is_refused_by_name(loaded, failures, part, stage):
    def arrays(*arguments, **named):
        return ({"a": torch.ones(1).numpy()},)

    task = loaded(**{part: arrays})

    def prepare():
        task.make_inputs("train", 0)
        task.expect()

    with pytest.raises(failures.Refused, match=r"is a numpy\.ndarray") as caught:
        prepare()
    assert (caught.value.kind, caught.value.stage) == ("rejected", stage)


def test_memory_between_outputs_need_not_repeat(loaded):
    task = loaded()
    first, second = torch.zeros(8), torch.arange(8.0)
    second[::2] = 0
    task.expect_from(first[::2])
    task.judge(first[::2])
    assert task.repeat(second[::2]) == []


@pytest.fixture
def arguments(loaded):
    """A task with named, unnamed and nested arguments, and copies of its inputs."""

    def run(layout="plain", in_place=(), reference=lambda x, scale, *rest: x):
        def make_inputs(rows, device):
            return torch.rand(4, 3), 2.0, torch.arange(4), [torch.rand(2), torch.rand(2)]

        task = loaded(make_inputs=make_inputs, reference=reference, IN_PLACE=in_place)
        made = task.make_inputs("train", 0, layout=layout)
        return task, made

    return run


def test_arguments_that_are_unchanged_are_not_named(arguments, values):
    for layout in ("plain", "strided", "broadcast"):
        task, made = arguments(layout)
        assert task.changed(values.copy(made)) == []


def test_a_changed_argument_is_named(arguments, values):
    task, made = arguments()
    after = values.copy(made)
    after[0][1, 1] += 8
    after[2][0] = 9
    after[3][1][0] = -1.0
    assert [(record["where"], record["elements"]) for record in task.changed(after)] == [
        ("input x", 1), ("input[2]", 1), ("input[3][1]", 1),
    ]  # fmt: skip
    assert [record["where"] for record in task.changed((*made[:1], 3.0, *made[2:]))] == ["input scale"]


def test_a_changed_keyword_argument_is_named(loaded):
    task = loaded(make_inputs=lambda rows, device: {"y": torch.zeros(2), "x": torch.ones(2)})
    task.make_inputs("train", 0)
    assert [record["where"] for record in task.changed({"y": torch.zeros(2), "x": torch.zeros(2)})] == ["input x"]


def test_arguments_of_a_builtin_reference_go_by_position(loaded):
    task = loaded(reference=torch.sin)
    (x,) = task.make_inputs("train", 0)
    assert [record["where"] for record in task.changed((x + 1,))] == ["input[0]"]


def test_where_there_is_no_reference_the_task_names_its_arguments(loaded):
    made = (torch.zeros(2), torch.zeros(2))
    task = loaded(make_inputs=lambda rows, device: made, PARAMETERS=("x", "out"), IN_PLACE=("out",))
    x, out = task.make_inputs("train", 0)
    assert task.changed((x, out + 1)) == []
    assert [record["where"] for record in task.changed((x + 1, out))] == ["input x"]


def test_a_reference_knows_the_names_better(loaded):
    task = loaded(reference=lambda x: x, PARAMETERS=("other",))
    (x,) = task.make_inputs("train", 0)
    assert [record["where"] for record in task.changed((x + 1,))] == ["input x"]


def test_an_argument_in_place_may_change_but_not_the_memory_between_its_elements(arguments, values):
    task, made = arguments("strided", in_place=("x",))
    after = values.copy(made)
    after[0].zero_()
    assert task.changed(after) == []
    after[0].as_strided((1,), (1,), 1).zero_()
    assert [(record["where"], record["elements"]) for record in task.changed(after)] == [
        ("memory between the elements of input x", 1)
    ]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (None, "inputs: a NoneType came back"),
        ({"x": torch.zeros(4)}, "inputs: a dict came back"),
        ((torch.zeros(4), 1), "inputs: 1 went and 2 others came back"),
    ],
)
def test_arguments_that_come_back_in_another_form_are_a_mismatch(loaded, after, message):
    task = loaded()
    task.make_inputs("train", 0)
    assert task.changed(after) == [{"where": "inputs", "mismatch": message}]


def test_an_argument_of_another_shape_is_a_mismatch(loaded):
    task = loaded(reference=lambda x: x)
    task.make_inputs("train", 0)
    (record,) = task.changed((torch.zeros(5),))
    assert record["where"] == "input x"
    assert "(4,)" in record["mismatch"]


def test_the_accuracy_of_outputs_is_measured_against_float64(loaded):
    task = loaded(
        make_inputs=lambda rows, device: (torch.rand(4096),),
        reference=lambda x: (x / 3).to(torch.float16).to(torch.float32),
        ERROR_FACTOR=2,
    )
    (x,) = task.make_inputs("train", 0)
    task.expect()
    assert task.accuracy(x / 3) == []
    assert task.expect_exact() == {"reason": None}
    (record,) = task.accuracy(x / 3)
    assert (record["where"], record["factor"]) == ("output", 2.0)
    assert record["error"] < 1e-7 < 1e-5 < record["reference_error"]
    assert task.accuracy((x / 3) * 1.01)[0]["error"] == pytest.approx(0.01, rel=0.01)


def test_accuracy_of_a_long_sum_allows_for_its_length(loaded):
    (plain,), (summed,) = (accuracy_of_copy(loaded(reference=lambda x: x, **parts)) for parts in (
        {}, {"reduction": lambda rows: 100},
    ))  # fmt: skip
    assert summed["allowed"] == pytest.approx(10 * plain["allowed"])


def accuracy_of_copy(task):
    (x,) = task.make_inputs("train", 0)
    task.expect()
    task.expect_exact()
    return task.accuracy(x)


def test_a_reference_without_a_float64_result_has_no_accuracy(loaded):
    task = loaded(reference=lambda x: x * torch.ones(4).view(torch.float32))
    (x,) = task.make_inputs("train", 0)
    task.expect()
    assert "view(dtype)" in task.expect_exact()["reason"]
    assert task.accuracy(x) == []


def test_a_reference_disagrees_with_its_float64_result_where_it_cancels(loaded):
    task = loaded(reference=lambda x: (x.float() + 1e8) - 1e8)
    task.make_inputs("train", 0)
    task.expect()
    task.expect_exact()
    assert task.disagreement()[0]["wrong_elements"] > 0
    accurate = loaded(reference=lambda x: (x / 3, x > 0))
    accurate.make_inputs("train", 0)
    accurate.expect()
    accurate.expect_exact()
    assert [record["wrong_elements"] for record in accurate.disagreement()] == [0, 0]


def test_a_task_makes_products_on_a_gpu_as_accurate_as_they_look(loaded):
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        matmul.allow_fp16_reduced_precision_reduction = matmul.allow_bf16_reduced_precision_reduction = True
        loaded()
        assert not matmul.allow_tf32
        assert not torch.backends.cudnn.allow_tf32
        assert not matmul.allow_fp16_reduced_precision_reduction
        assert not matmul.allow_bf16_reduced_precision_reduction
    finally:
        matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
