# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Trees compared bit by bit."""

import json
import math
import sys

import pytest
import torch

NAN, INF = math.nan, math.inf
DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex64, torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip


@pytest.fixture
def differing(judge):
    def run(first, second, **where):
        return json.loads(json.dumps(judge.differing(first, second, **where), allow_nan=False))

    return run


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_is_compared(differing, dtype):
    first = torch.tensor([[0, 1, 1], [0, 1, 0]]).to(dtype)
    second = torch.tensor([[0, 1, 0], [1, 1, 0]]).to(dtype)
    assert differing(first, first.clone()) == []
    assert differing(first, second) == [{"where": "output", "elements": 2, "max_abs_difference": 1.0}]


def bits(*numbers):
    return torch.tensor(numbers, dtype=torch.int32).view(torch.float32)


def test_bits_decide_and_not_values(differing):
    quiet, other = 0x7FC00000, 0x7FC00001
    assert differing(bits(quiet, other), bits(quiet, other)) == []
    assert differing(bits(quiet), bits(other)) == [{"where": "output", "elements": 1, "max_abs_difference": None}]
    assert differing(torch.tensor([0.0]), torch.tensor([-0.0]))[0]["max_abs_difference"] == 0.0


@pytest.mark.parametrize(
    ("first", "second", "elements", "difference"),
    [
        ([1.0, 2.0, 3.0], [1.0, NAN, 5.0], 2, 2.0),
        ([1.0, INF], [1.0, -INF], 1, None),
        ([NAN, 1.0], [1.0, NAN], 2, None),
        ([NAN, 1.0], [NAN, 1.5], 1, 0.5),
        ([1.0, 1e30, 7.0], [1.0, 1e30, 6.5], 1, 0.5),
    ],
)
def test_the_largest_difference_is_one_of_finite_elements(differing, first, second, elements, difference):
    records = differing(torch.tensor(first), torch.tensor(second))
    assert records == [{"where": "output", "elements": elements, "max_abs_difference": difference}]


def test_large_differences_are_numbers(differing):
    largest = sys.float_info.max
    doubles = [torch.tensor([sign * largest], dtype=torch.float64) for sign in (1, -1)]
    assert differing(*doubles)[0]["max_abs_difference"] == largest
    assert differing(10**400, -(10**400))[0]["max_abs_difference"] == largest
    assert differing(torch.tensor([2**53 + 1]), torch.tensor([2**53]))[0]["max_abs_difference"] == 1.0


def test_a_complex_number_is_one_element(differing):
    first = torch.tensor([1 + 2j, 3 + 4j, 5 + 6j])
    second = torch.tensor([2 + 9j, 3 + 4j, 5 + 6j])
    assert differing(first, second) == [{"where": "output", "elements": 1, "max_abs_difference": 7.0}]
    # A conjugation that torch has put off.
    assert differing(first.conj(), first.conj().resolve_conj()) == []
    assert differing(first.conj(), first)[0]["elements"] == 3


def test_layouts_do_not_matter(differing):
    first = torch.arange(12.0).reshape(3, 4)
    second = first.t().contiguous().t()
    assert differing(first, second) == []
    assert differing(torch.ones(1).expand(3), torch.ones(6)[::2].requires_grad_()) == []
    second[2, 1] += 1
    assert differing(first, second) == [{"where": "output", "elements": 1, "max_abs_difference": 1.0}]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_every_element_is_compared_whatever_the_chunk(differing, differences, monkeypatch, chunk, dtype):
    monkeypatch.setattr(differences, "CHUNK", chunk)
    first = torch.arange(7).to(dtype)
    second = first.clone()
    second[2] += 3
    second[6] += 2
    assert differing(first, second) == [{"where": "output", "elements": 2, "max_abs_difference": 3.0}]


def test_nothing_differs_in_empty_tensors(differing):
    assert differing(torch.empty(0, 3), torch.empty(0, 3)) == []
    assert differing((), []) == []


def test_each_tensor_that_differs_is_named(differing):
    first = {"a": torch.ones(2), "b": (torch.ones(2), [torch.ones(()), 4, 2.0]), "c": None, "d": "text", "e": NAN}
    second = {**first, "b": [torch.zeros(2), (torch.zeros(()), 7, 2.5)]}
    records = differing(first, second, where="input")
    assert [(record["where"], record["elements"], record["max_abs_difference"]) for record in records] == [
        ("input['b'][0]", 2, 1.0), ("input['b'][1][0]", 1, 1.0), ("input['b'][1][1]", 1, 3.0),
        ("input['b'][1][2]", 1, 0.5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (torch.ones(2), torch.ones(3), r"output has shape \(2,\) at first and \(3,\) then"),
        (torch.ones(0), torch.ones(0, 1), r"output has shape \(0,\) at first and \(0, 1\) then"),
        (torch.ones(2), torch.ones(2).half(), "output is torch.float32 at first and torch.float16 then"),
        ([torch.ones(2)], [None], r"output\[0\] is a Tensor at first and a NoneType then"),
        ((torch.ones(2),), (torch.ones(2), 1), r"output\[1\] is there only in the second"),
        ({"a": 1, "b": 2}, {"a": 1}, r"output\['b'\] is there only in the first"),
        (1, 1.0, "output is a int at first and a float then"),
        ("x", "y", "output is 'x' at first and 'y' then"),
        (True, False, "output is True at first and False then"),
    ],
)
def test_another_form_is_an_error_in_words(differing, first, second, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        differing(first, second)


def test_a_long_value_is_cut(differing):
    with pytest.raises(ValueError, match=r"^output is 'xxx") as caught:
        differing("x" * 10_000, "y")
    assert len(str(caught.value)) == 300


def test_what_is_compared_stays_as_it_was(differing):
    first, second = torch.ones(3), torch.zeros(3)
    differing(first, second)
    assert torch.equal(first, torch.ones(3))
    assert torch.equal(second, torch.zeros(3))
