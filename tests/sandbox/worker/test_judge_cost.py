# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""What agrees is judged with few operations and one look at the device, and told as precisely as what does not."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

EXACTLY = {"rtol": 0.0, "atol": 0.0}
TASK = """
import torch

ENTRY = "f"
CASES = {"small": {"n": 64}}
IN_PLACE = ()


def make_inputs(n, device):
    return {"x": torch.randn(n, n, device=device), "w": torch.randn(n, device=device), "eps": 1e-5}


def reference(x, w, eps):
    y = torch.nn.functional.layer_norm(x, (x.shape[1],), w, None, eps)
    return y, y.mean(1).half(), y.argmax(1)
"""


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


@pytest.fixture
def looks(monkeypatch):
    """Every time that numbers come from the device to the host."""
    found = []
    for name in ("tolist", "item", "__bool__", "__float__", "__int__"):
        known = getattr(torch.Tensor, name)

        def look(self, known=known, name=name):
            found.append(name)
            return known(self)

        monkeypatch.setattr(torch.Tensor, name, look)
    return found


@pytest.fixture
def exact_rules(judge):
    names = ("float16", "float32", "float64", "int64")
    tolerances = {name: {"rtol": 0.0, "atol": 1e-3} for name in names} | {"int64": EXACTLY}
    return judge.Rules(tolerances, own=frozenset(names))


@pytest.fixture
def made(task, load, failures, tmp_path, monkeypatch):
    """A task with inputs, outputs, and exact ones."""
    monkeypatch.chdir(tmp_path)
    module = load.load_module(
        TASK, name="task", shown_as="task.py", stage="task", origin=None, sources=failures.Sources()
    )
    made = task.Task(module, "cpu")
    made.make_inputs("small", 1)
    made.expect()
    made.expect_exact()
    return made


def test_a_whole_judgement_of_three_outputs_and_inputs_takes_few_operations_and_three_looks(made, values, looks):
    got, inputs = values.copy(made.expected), values.copy(made.inputs)
    # What is known of the expected outputs is found out once.
    made.judge(got)
    looks.clear()
    with Operations() as operations:
        found = [made.judge(got), made.accuracy(got), made.changed(inputs)]
    assert not any(record["wrong_elements"] for record in found[0])
    assert [len(records) for records in found] == [3, 2, 0]
    assert looks == ["tolist"] * 3
    assert operations.count < 90


def test_expected_outputs_are_measured_in_one_look(judge, looks):
    outputs = [torch.ones(5), torch.ones(3, dtype=torch.float16), torch.arange(3)]
    with Operations() as operations:
        judge.finiteness(outputs)
    assert looks == ["tolist"]
    assert operations.count <= 6


def test_margins_that_hold_are_seen_with_one_look(canary, looks):
    margins = torch.empty(2, 2, canary.MARGIN, dtype=torch.uint8)
    canary.fill(margins.view(-1), bytes(range(8)))
    with Operations() as operations:
        assert canary.broken(margins, bytes(range(8))) == []
    assert looks == ["__bool__"]
    assert operations.count <= 3


def test_margins_that_do_not_lie_side_by_side_are_read_too(canary):
    key = bytes(range(8))
    margins = torch.empty(1, 2, canary.MARGIN, dtype=torch.uint8)
    canary.fill(margins.view(-1), key)
    apart = torch.stack([margins, margins], -1)[..., 0]
    assert canary.broken(apart, key) == []
    apart[0, 1, 5] += 1
    assert canary.broken(apart, key) == [{"index": 0, "side": "after", "bytes": 1, "distance": 5}]


def test_large_integers_that_agree_are_told_as_they_are(judge, exact_rules):
    expected = torch.tensor([2**53 + 1, 7])
    (record,) = judge.compare(expected, expected.clone(), exact_rules)
    assert (record["worst_expected"], record["worst_got"]) == (str(2**53 + 1), str(2**53 + 1))
    (record,) = judge.compare(expected[1:], expected[1:].clone(), exact_rules)
    assert (record["worst_expected"], record["wrong_elements"], record["finite_elements"]) == (7.0, 0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_have_no_relative_error(judge, exact_rules, dtype):
    expected, got = torch.tensor([0.0, 0.0, 2.0], dtype=dtype), torch.tensor([0.0, 2**-11, 2 + 2**-11], dtype=dtype)
    (record,) = judge.compare(expected, got, exact_rules)
    assert (record["wrong_elements"], record["max_abs_error"], record["max_rel_error"]) == (0, 2**-11, 2**-12)


def test_a_relative_error_beyond_all_doubles_is_the_largest(judge):
    rules = judge.Rules({"float64": {"rtol": 0.0, "atol": 1e300}}, own=frozenset(["float64"]))
    expected, got = (torch.tensor([number], dtype=torch.float64) for number in (1e-310, 1e299))
    (record,) = judge.compare(expected, got, rules)
    assert record["wrong_elements"] == 0
    assert math.isfinite(record["max_rel_error"])
    assert record["max_rel_error"] > 1e308


@pytest.mark.parametrize("place", [0, 3, 4, 9])
def test_the_element_that_comes_closest_is_found_in_any_piece(judge, differences, exact_rules, monkeypatch, place):
    monkeypatch.setattr(differences, "CHUNK", 4)
    expected = torch.arange(10.0)
    got = expected + 1e-5
    got[place] += 4e-4
    (record,) = judge.compare(expected, got, exact_rules)
    assert (record["worst_index"], record["wrong_elements"], record["finite_elements"]) == ([place], 0, 10)
    assert record["worst_expected"] == place
    assert record["max_abs_error"] == pytest.approx(4.1e-4, rel=1e-2)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_uncommon_sizes_are_measured_all_the_same(judge, size):
    exact = torch.tensor([size, -size], dtype=torch.float64)
    assert judge.finiteness(exact)[0]["rms"] == pytest.approx(size, rel=1e-12, abs=0.0)
    (record,) = judge.accuracy(exact, exact.clone(), exact * 1.001, factor=None)
    assert record["error"] == pytest.approx(1e-3)
    assert record["reference_error"] == 0.0


def test_what_is_known_of_outputs_holds_for_these_alone(made):
    def atol(records):
        return records[0]["atol"]

    first = atol(made.judge(made.expected))
    made.inputs["w"] *= 1000
    made.expect()
    assert atol(made.judge(made.expected)) > 100 * first
    made.exact = [tensor / 1000 for tensor in made.exact]
    # Compared with others, these have a tolerance of their own.
    assert atol(made.disagreement()) < atol(made.judge(made.expected)) / 100


def test_an_argument_of_another_type_is_told_where_it_may_change_too(made, values):
    made.description["in_place"] = ["x"]
    after = values.copy(made.inputs)
    after["x"] = after["x"].double()
    (record,) = made.changed(after)
    assert record["mismatch"].startswith("memory between the elements of input x is torch.float32 at first")
