# pyright: basic
# The worker's modules have no name that a type checker could resolve, and torch ships incomplete types.
"""Cases made small enough: which parameters change, by how much, and what can't be made smaller."""

import importlib
import types

import pytest
import torch

LARGE = {"rows": 4096, "cols": 1000}


@pytest.fixture(scope="session")
def scaling(worker):
    return importlib.import_module("tritonforge_worker.scaling")


@pytest.fixture
def loaded(worker):
    def run(make_inputs=None, **parameters):
        module = types.SimpleNamespace(
            __doc__=None,
            ENTRY="entry",
            CASES={"train": dict(parameters) or dict(LARGE), "other": dict(parameters) or dict(LARGE)},
            make_inputs=make_inputs or (lambda rows, cols, device: (torch.rand(rows, cols), torch.rand(cols))),
        )
        return worker.task.Task(module, "cpu")

    return run


@pytest.fixture
def refused(worker, scaling):
    def run(task, elements):
        with pytest.raises(worker.failures.Refused) as caught:
            scaling.shrink(task, "train", elements)
        assert (caught.value.kind, caught.value.stage) == ("rejected", "inputs")
        return str(caught.value)

    return run


def sizes(task, case="train"):
    return [tuple(tensor.shape) for tensor in task.make_inputs(case, 0)]


@pytest.mark.parametrize(
    ("elements", "parameters"),
    [
        # Elements are rows * cols + cols.
        (5_000_000, {"rows": 4096, "cols": 1000}),
        (4096 * 1000 + 999, {"rows": 2048, "cols": 500}),
        (2048 * 500 + 500, {"rows": 2048, "cols": 500}),
        (20_000, {"rows": 256, "cols": 62}),
        # Never below 16.
        (600, {"rows": 32, "cols": 16}),
        (272, {"rows": 16, "cols": 16}),
    ],
)
def test_integers_are_halved_together_until_the_inputs_are_small_enough(scaling, loaded, elements, parameters):
    task = loaded()
    assert scaling.shrink(task, "train", elements) == parameters
    assert task.parameters("train") == parameters
    assert sizes(task) == [(parameters["rows"], parameters["cols"]), (parameters["cols"],)]


def test_other_cases_stay_as_they_are(scaling, loaded):
    task = loaded()
    scaling.shrink(task, "train", 1000)
    assert task.parameters("other") == LARGE


def test_only_large_integers_change(scaling, loaded):
    task = loaded(
        lambda n, heads, causal, scale, name, shape, device: (torch.rand(n),),
        n=1 << 20, heads=16, causal=True, scale=4096.0, name="4096", shape=(4096, 17),
    )  # fmt: skip
    assert scaling.shrink(task, "train", 1 << 10) == {
        "n": 1 << 10, "heads": 16, "causal": True, "scale": 4096.0, "name": "4096", "shape": [4096, 17],
    }  # fmt: skip
    assert task.parameters("train")["shape"] == (4096, 17)


def test_inputs_that_are_too_large_are_never_made(scaling, loaded):
    made = []

    def make_inputs(n, device):
        made.append(n)
        assert n <= 4096
        return (torch.empty(n),)

    task = loaded(make_inputs, n=1 << 24)
    assert scaling.shrink(task, "train", 2048) == {"n": 2048}
    assert made == [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]


def test_weight_and_mark_of_the_case_stay(scaling, loaded):
    task = loaded(weight=3.0, small=False, **LARGE)
    assert scaling.shrink(task, "train", 1000) == {"rows": 32, "cols": 16}
    assert task._module.CASES["train"]["weight"] == 3.0


def test_a_case_that_nothing_can_be_made_smaller_in_is_refused_and_stays(scaling, loaded, refused):
    task = loaded(lambda rows, cols, device: (torch.rand(1000),), **LARGE)
    assert refused(task, 999) == "its inputs have more than 999 elements however small it is made"
    assert task.parameters("train") == LARGE


@pytest.mark.parametrize("error", [RuntimeError, ValueError, TypeError, AssertionError, ZeroDivisionError, IndexError])
def test_parameters_that_make_inputs_cannot_take_are_refused_with_its_words(scaling, loaded, refused, error):
    def make_inputs(rows, cols, device):
        if rows < 4096:
            raise error("rows must be 4096")
        return (torch.rand(rows, cols),)

    task = loaded(make_inputs)
    message = refused(task, 1000)
    assert message.startswith("make_inputs can't take {'rows': 16, 'cols': 16}: ")
    assert message.endswith(f"{error.__name__}: rows must be 4096")
    assert task.parameters("train") == LARGE
