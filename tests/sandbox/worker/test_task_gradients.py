# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Tasks whose kernels are judged by their gradients too."""

import types

import pytest
import torch


def module(**parts):
    sound = {
        "ENTRY": "scale", "CASES": {"train": {"rows": 4}}, "GRAD": True,
        "make_inputs": lambda rows, device: (torch.randn(rows), torch.randn(rows), torch.arange(rows)),
        "reference": lambda x, weight, index: (x * weight)[index],
    }  # fmt: skip
    return types.SimpleNamespace(__doc__=None, **{**sound, **parts})


@pytest.fixture
def loaded(task):
    def run(**parts):
        made = task.Task(module(**parts), "cpu")
        made.make_inputs("train", 5)
        return made

    return run


def test_outputs_and_gradients_are_expected(loaded):
    task = loaded()
    facts = task.expect()
    x, weight, _ = task.inputs
    (upstream,) = task.upstream()
    assert torch.equal(task.expected["outputs"], x * weight)
    assert list(task.expected["gradients"]) == ["0", "1"]
    assert torch.equal(task.expected["gradients"]["0"], upstream * weight)
    assert torch.equal(task.expected["gradients"]["1"], upstream * x)
    assert [record["where"] for record in facts["outputs"]] == ["output", "gradient of x", "gradient of weight"]
    assert facts["aliased"] == [False, False, False]
    assert not task.expected["outputs"].requires_grad
    assert not x.requires_grad


def test_upstream_gradients_are_drawn_from_the_seed_after_the_inputs(loaded):
    task = loaded()
    task.expect()
    (first,) = task.upstream()
    torch.rand(3)
    task.expect()
    assert torch.equal(task.upstream()[0], first)
    assert torch.equal(first, torch.randn(4, generator=torch.Generator().manual_seed(6)))
    assert not first.requires_grad


def test_outputs_without_a_gradient_get_none(loaded):
    task = loaded(reference=lambda x, weight, index: {"y": x * 2, "size": x.detach(), "at": index})
    task.expect()
    assert [gradient is None for gradient in task.upstream()] == [False, True, True]
    # The weight has no part in it.
    assert task.expected["gradients"]["1"] is None


def test_a_reference_without_any_gradient_is_refused(loaded, worker):
    task = loaded(reference=lambda x, weight, index: x.detach())
    with pytest.raises(worker.failures.Refused, match="no output of the reference carries a gradient"):
        task.expect()


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({}, []),
        ({"0": torch.full((4,), 7.0)}, ["gradient of x"]),
        ({"1": torch.full((4,), 7.0)}, ["gradient of weight"]),
        ({"0": None}, ["gradient of x"]),
        ({"0": torch.zeros(3)}, ["gradient of x"]),
    ],
)
def test_each_gradient_is_judged(loaded, given, wrong):
    task = loaded()
    task.expect()
    got = {"outputs": task.expected["outputs"], "gradients": {**task.expected["gradients"], **given}}
    records = task.judge(got)
    assert [record["where"] for record in records] == ["output", "gradient of x", "gradient of weight"]
    assert [record["where"] for record in records if record["mismatch"] or record["wrong_elements"]] == wrong


@pytest.mark.parametrize(("gradient", "right"), [(torch.zeros(4), True), (None, True), (torch.ones(4), False)])
def test_zeros_are_as_good_as_no_gradient_where_none_is_expected(loaded, gradient, right):
    task = loaded(reference=lambda x, weight, index: x * 2)
    task.expect()
    records = task.judge({**task.expected, "gradients": {**task.expected["gradients"], "1": gradient}})
    assert all(record["wrong_elements"] == 0 for record in records) == right


@pytest.mark.parametrize("got", [torch.zeros(4), None, {}, {"outputs": torch.zeros(4)}])
def test_a_result_without_gradients_is_a_mismatch_of_each_part(loaded, got):
    task = loaded()
    task.expect()
    assert all(record["mismatch"] for record in task.judge(got))
    assert len(task.judge(got)) == 3


def test_strides_of_gradients_do_not_count(loaded):
    inputs = (torch.rand(3, 4), torch.rand(3, 4), None)
    task = loaded(STRIDES=True, make_inputs=lambda rows, device: inputs, reference=lambda x, weight, index: x * weight)
    task.expect()
    turned = {place: tensor.t().contiguous().t() for place, tensor in task.expected["gradients"].items()}
    assert not any(record["mismatch"] for record in task.judge({**task.expected, "gradients": turned}))


def test_gradients_in_float64_measure_the_accuracy_of_each(loaded):
    task = loaded()
    task.expect()
    assert task.expect_exact() == {"reason": None}
    assert task.exact["gradients"]["0"].dtype == torch.float64
    off = {"outputs": task.expected["outputs"], "gradients": {**task.expected["gradients"]}}
    off["gradients"]["1"] = off["gradients"]["1"] * 1.5
    records = {record["where"]: record["error"] for record in task.accuracy(off)}
    assert list(records) == ["output", "gradient of x", "gradient of weight"]
    assert records["gradient of weight"] == pytest.approx(0.5, rel=1e-3)
    assert max(records["output"], records["gradient of x"]) < 1e-6


def test_the_absolute_tolerance_of_a_gradient_follows_its_own_size(loaded):
    task = loaded(
        reference=lambda x, weight, index: x * x, TOLERANCE={"float32": {"atol": 1.0}},
        make_inputs=lambda rows, device: (torch.ones(4), torch.ones(4), None),
    )  # fmt: skip
    task.expect()
    task.make_inputs("train", 5, "large", 16.0)
    task.expect()
    output, of_x, _ = (record.get("atol") for record in task.judge({
        **task.expected, "gradients": {**task.expected["gradients"], "1": torch.zeros(4)},
    }))  # fmt: skip
    assert (output, of_x) == (pytest.approx(256.0), pytest.approx(16.0))


def test_a_case_with_gradients_can_be_looked_into(task):
    found = task.Task(module(), "cpu").audit("train", 5)
    assert found["exact"] is None
    assert found["nondeterministic"] == []
    assert {"ones", "shifted", "large", "tiny"} <= {variant["name"] for variant in found["variants"]}


def test_gradients_of_nested_and_unnamed_arguments_are_named_by_position(loaded):
    inputs = [torch.randn(4), torch.randn(4)], torch.randn(4)
    task = loaded(make_inputs=lambda rows, device: inputs, reference=lambda pair, *rest: pair[0] * pair[1] * rest[0])
    facts = task.expect()
    assert [record["where"] for record in facts["outputs"]] == [
        "output", "gradient of pair[0]", "gradient of pair[1]", "gradient of input[1]",
    ]  # fmt: skip


def test_gradients_of_keyword_arguments_have_their_names(loaded):
    inputs = {"weight": torch.randn(4), "x": torch.randn(4)}
    task = loaded(make_inputs=lambda rows, device: inputs, reference=lambda x, weight: x * weight)
    facts = task.expect()
    assert [record["where"] for record in facts["outputs"]] == ["output", "gradient of weight", "gradient of x"]
    assert not any(record["wrong_elements"] for record in task.judge(task.expected))


def test_where_no_gradient_is_expected_none_is_compared_that_no_input_can_have(loaded):
    task = loaded(reference=lambda x, weight, index: x * 2)
    task.expect()
    assert task.expected["gradients"]["1"] is None
    zeros = {**task.expected["gradients"], "1": torch.zeros(4)}
    assert not any(record["mismatch"] for record in task.judge({**task.expected, "gradients": zeros}))
    # One element, expanded: zeros of this size would be terabytes.
    forged = {**task.expected["gradients"], "1": torch.zeros(1).expand(1 << 40)}
    assert any(record["mismatch"] for record in task.judge({**task.expected, "gradients": forged}))


def test_a_gradient_of_no_input_is_a_mismatch(loaded):
    task = loaded()
    task.expect()
    more = {**task.expected["gradients"], "7": torch.zeros(1)}
    records = task.judge({**task.expected, "gradients": more})
    assert [record["mismatch"] for record in records if record["mismatch"]] == [
        "gradient of input[7]: there is no such input"
    ]


def test_of_a_timed_call_only_what_it_returns_is_expected(loaded, task):
    whole = loaded()
    twin = whole.twin()
    twin.take_made(whole.inputs, whole)
    facts = twin.expect()
    x, weight, _ = whole.inputs
    assert [record["where"] for record in facts["outputs"]] == ["output"]
    assert facts["bytes"] == 16
    assert [record["wrong_elements"] for record in twin.judge(x * weight)] == [0]
    assert [record["wrong_elements"] for record in twin.judge(x * weight + 1)] == [4]
