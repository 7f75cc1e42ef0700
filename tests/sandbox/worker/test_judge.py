# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""The judge: which element is wrong, by how much, and never a wrong one passed or a right one blamed."""

import json
import math
import sys

import pytest
import torch

NAN, INF = math.nan, math.inf
AS_GIVEN = {"own": frozenset({"float32"})}
"""The tolerance of float32 is the task's own: nothing is added to it."""


@pytest.fixture
def compare(judge, worker):
    def run(expected, got, rules=None, **tolerances):
        rules = judge.Rules({**worker.contract.DEFAULT_TOLERANCES, **tolerances}, **(rules or {}))
        records = judge.compare(expected, got, rules)
        # As they cross the wire: JSON without NaN and infinities.
        return json.loads(json.dumps(records, allow_nan=False))

    return run


@pytest.fixture
def one(compare):
    def run(*args, **tolerances):
        (record,) = compare(*args, **tolerances)
        return record

    return run


def test_equal_tensors_make_a_full_record(one):
    x = torch.tensor([[1.0, -2.0], [0.0, 4.0]])
    assert one(x, x.clone(), AS_GIVEN) == {
        "where": "output", "mismatch": None, "dtype": "float32", "elements": 4, "rtol": 1.3e-6, "atol": 1e-5,
        "wrong_elements": 0, "max_abs_error": 0.0, "max_rel_error": 0.0, "worst_index": [1, 0],
        "worst_expected": 0.0, "worst_got": 0.0, "not_finite_mismatches": 0,
        "finite_elements": 4, "clusters": [],
    }  # fmt: skip


def test_one_wrong_element_is_found_with_its_size_and_place(one):
    expected = torch.ones(3, 4, 5)
    got = expected.clone()
    got[2, 1, 3] = 1.5
    record = one(expected, got)
    assert record["wrong_elements"] == 1
    assert record["worst_index"] == [2, 1, 3]
    assert (record["worst_expected"], record["worst_got"]) == (1.0, 1.5)
    assert (record["max_abs_error"], record["max_rel_error"]) == (0.5, 0.5)


def test_the_place_is_that_of_the_logical_element_in_a_view(one):
    expected = torch.arange(12.0).reshape(3, 4).t()
    got = expected.clone()
    got[3, 1] += 1
    assert one(expected, got)["worst_index"] == [3, 1]


def test_the_worst_element_is_the_one_furthest_beyond_its_own_tolerance(one):
    expected = torch.tensor([1e6, 1.0])
    got = torch.tensor([1e6 + 1.0, 1.5])
    record = one(expected, got, AS_GIVEN, float32={"rtol": 1e-5, "atol": 0.0})
    assert record["wrong_elements"] == 1
    assert record["worst_index"] == [1]
    assert record["max_abs_error"] == 1.0


@pytest.mark.parametrize(("error", "wrong"), [(0.5, 0), (0.5 + 2**-20, 1)])
def test_an_error_of_exactly_the_tolerance_is_allowed(one, error, wrong):
    tolerance = {"rtol": 0.125, "atol": 0.25}
    record = one(torch.tensor([2.0]), torch.tensor([2.0 + error]), AS_GIVEN, float32=tolerance)
    assert record["wrong_elements"] == wrong


@pytest.mark.parametrize(
    ("expected", "got", "odd"),
    [
        (NAN, NAN, 0), (INF, INF, 0), (-INF, -INF, 0),
        (INF, -INF, 1), (NAN, 1.0, 1), (1.0, NAN, 1), (1.0, INF, 1), (INF, 1.0, 1), (INF, NAN, 1), (NAN, -INF, 1),
    ],
)  # fmt: skip
def test_nan_and_infinities_must_agree(one, expected, got, odd):
    record = one(torch.tensor([5.0, expected]), torch.tensor([5.0, got]))
    assert record["wrong_elements"] == record["not_finite_mismatches"] == odd
    assert record["max_abs_error"] == 0.0
    if odd:
        assert record["worst_index"] == [1]
        assert record["worst_got"] == (got if math.isfinite(got) else repr(got))
        assert record["worst_expected"] == (expected if math.isfinite(expected) else repr(expected))


@pytest.mark.parametrize("tolerance", [{"rtol": 1e30, "atol": 1e30}])
def test_no_tolerance_lets_a_nan_pass(one, tolerance):
    assert one(torch.tensor([1.0]), torch.tensor([NAN]), float32=tolerance)["wrong_elements"] == 1


def test_a_wrong_nan_outranks_any_finite_error(one):
    record = one(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1e30, NAN, 2.0]))
    assert (record["wrong_elements"], record["not_finite_mismatches"]) == (3, 1)
    assert record["worst_index"] == [1]


def test_a_matching_nan_is_never_the_worst_element(one):
    record = one(torch.tensor([NAN, 1.0]), torch.tensor([NAN, 2.0]))
    assert (record["wrong_elements"], record["worst_index"]) == (1, [1])
    # Nor where everything is right.
    assert one(torch.tensor([NAN, 1000.0]), torch.tensor([NAN, 1000.0]))["worst_index"] == [1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_an_overflow_of_a_narrow_type_is_wrong_and_not_lost(one, dtype):
    expected = torch.tensor([1.0, 2.0]).to(dtype)
    got = torch.tensor([1.0, NAN]).to(dtype)
    assert one(expected, got)["worst_index"] == [1]
    assert one(expected, expected)["wrong_elements"] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_errors_of_narrow_types_may_be_larger_than_their_numbers(one, dtype):
    largest = torch.finfo(dtype).max
    expected = torch.tensor([1.0, 1.0, -largest / 2]).to(dtype)
    got = torch.tensor([1.0, 1.25, largest]).to(dtype)
    tolerance = {str(dtype)[6:]: {"rtol": 0.0, "atol": 0.25}}
    record = one(expected, got, {"own": frozenset(tolerance)}, **tolerance)
    assert record["max_abs_error"] == float(got[2]) - float(expected[2])
    assert (record["wrong_elements"], record["worst_index"], record["max_rel_error"]) == (1, [2], 3.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_smallest_step_of_a_narrow_type_counts(one, dtype):
    limits = torch.finfo(dtype)
    expected = torch.tensor([0.0, 1.0, 0.0]).to(dtype)
    got = torch.tensor([0.0, 1.0 + limits.eps, limits.smallest_normal * limits.eps]).to(dtype)
    exact = {str(dtype)[6:]: {"rtol": 0.0, "atol": 0.0}}
    assert one(expected, got, {"own": frozenset(exact)}, **exact)["wrong_elements"] == 2


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers_have_no_tolerance(one, dtype):
    record = one(torch.tensor([7, 7, 7], dtype=dtype), torch.tensor([7, 7, 8], dtype=dtype))
    assert (record["wrong_elements"], record["worst_index"], record["max_abs_error"]) == (1, [2], 1.0)


def test_booleans_have_no_tolerance(one):
    record = one(torch.tensor([True, False]), torch.tensor([True, True]))
    assert (record["wrong_elements"], record["worst_index"]) == (1, [1])


def test_integers_beyond_double_precision_are_compared_exactly(one):
    big = 2**53
    record = one(torch.tensor([0, 1, big + 1, 3]), torch.tensor([0, 1, big, 3]))
    assert record["wrong_elements"] == 1
    assert record["worst_index"] == [2]
    assert record["worst_expected"] == str(big + 1)
    assert record["worst_got"] == float(big)
    assert record["max_abs_error"] == 1.0


def test_the_ends_of_64_bits_are_told_apart(one):
    top = torch.iinfo(torch.int64).max
    record = one(torch.tensor([top, -top - 1]), torch.tensor([top - 1, -top - 1]))
    assert (record["wrong_elements"], record["worst_index"]) == (1, [0])
    assert (record["worst_expected"], record["worst_got"]) == (str(top), str(top - 1))


def test_integers_may_have_a_tolerance(one):
    tolerance = {"rtol": 0.0, "atol": 1.0}
    record = one(torch.tensor([5, 5]), torch.tensor([6, 7]), int64=tolerance)
    assert (record["wrong_elements"], record["worst_index"]) == (1, [1])


def test_a_wrong_phase_of_the_right_magnitude_is_wrong(one):
    record = one(torch.tensor([3 + 4j, 1 + 0j]), torch.tensor([3 + 4j, 0 + 1j]))
    assert record["dtype"] == "complex64"
    assert record["wrong_elements"] > 0
    assert record["worst_index"][0] == 1
    assert record["max_abs_error"] == 1.0


def test_a_missing_conjugation_is_wrong_in_the_imaginary_part(one):
    z = torch.tensor([1 + 0j, 2 + 3j])
    record = one(z.conj(), z)
    assert record["wrong_elements"] == 1
    # The last index counts real part and imaginary part.
    assert record["worst_index"] == [1, 1]
    assert (record["worst_expected"], record["worst_got"]) == (-3.0, 3.0)
    assert one(z.conj(), z.conj().resolve_conj())["wrong_elements"] == 0


def test_nan_in_one_part_of_a_complex_number_is_wrong(one):
    expected = torch.complex(torch.tensor([1.0]), torch.tensor([2.0]))
    got = torch.complex(torch.tensor([1.0]), torch.tensor([NAN]))
    assert one(expected, got)["not_finite_mismatches"] == 1


def test_errors_beyond_the_largest_double_are_still_numbers(one):
    largest = sys.float_info.max
    record = one(torch.tensor([largest], dtype=torch.float64), torch.tensor([-largest], dtype=torch.float64))
    assert record["wrong_elements"] == 1
    assert record["max_abs_error"] == largest
    record = one(torch.tensor([5e-324], dtype=torch.float64), torch.tensor([1e-10], dtype=torch.float64))
    assert record["wrong_elements"] == 0
    assert record["max_rel_error"] == largest


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 7, 100])
@pytest.mark.parametrize("wrong", range(6))
def test_every_element_is_compared_whatever_the_chunk(one, differences, monkeypatch, chunk, wrong):
    monkeypatch.setattr(differences, "CHUNK", chunk)
    expected = torch.arange(6.0).reshape(2, 3)
    got = expected.clone()
    got.view(-1)[wrong] += 10
    got.view(-1)[(wrong + 1) % 6] += 5
    record = one(expected, got)
    assert record["elements"] == 6
    assert record["wrong_elements"] == 2
    assert record["worst_index"] == [wrong // 3, wrong % 3]
    assert record["worst_got"] == float(wrong + 10)
    assert record["max_abs_error"] == 10.0


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_an_early_nan_stays_the_worst_over_later_chunks(one, differences, monkeypatch, chunk):
    monkeypatch.setattr(differences, "CHUNK", chunk)
    record = one(torch.zeros(5), torch.tensor([0.0, NAN, 0.0, 1e30, INF]))
    assert (record["wrong_elements"], record["worst_index"]) == (3, [1])
    assert (record["not_finite_mismatches"], record["finite_elements"]) == (2, 5)


def test_nothing_in_an_empty_tensor_is_wrong(one):
    record = one(torch.empty(0, 3), torch.empty(0, 3))
    assert (record["elements"], record["wrong_elements"], record["worst_index"]) == (0, 0, None)


def test_a_tensor_without_dimensions_has_an_empty_index(one):
    record = one(torch.tensor(1.0), torch.tensor(2.0))
    assert (record["wrong_elements"], record["worst_index"]) == (1, [])


def test_layout_and_gradients_do_not_matter(one):
    expected = torch.arange(6.0).reshape(2, 3)
    got = expected.t().contiguous().t().requires_grad_()
    assert one(expected, got)["wrong_elements"] == 0


@pytest.mark.parametrize(
    ("expected", "got", "message"),
    [
        (torch.ones(2, 3), torch.ones(3, 2), "output: expected shape (2, 3), got (3, 2)"),
        (torch.ones(1), torch.ones(()), "output: expected shape (1,), got ()"),
        (torch.ones(2), torch.ones(2).half(), "output: expected torch.float32, got torch.float16"),
        (torch.ones(2), torch.ones(2).to(torch.complex64), "output: expected torch.float32, got torch.complex64"),
        (torch.ones(2), None, "output: expected a tensor, got NoneType"),
        (torch.ones(2), [1.0, 1.0], "output: expected a tensor, got list"),
        ((torch.ones(2), torch.ones(2)), (torch.ones(2),), "output: expected 2 outputs, got 1 outputs"),
        ((torch.ones(2), torch.ones(2)), torch.ones(2), "output: expected 2 outputs, got a Tensor"),
        ((torch.ones(2),), (torch.ones(2), torch.ones(2)), "output: expected 1 outputs, got 2 outputs"),
        ((torch.ones(2),), None, "output: expected 1 outputs, got nothing"),
        ({"a": 1}, {"b": 1}, "output: expected a dict with keys ['a'], got a dict with keys ['b']"),
        ({"a": torch.ones(2)}, [1], "output: expected a dict with keys ['a'], got 1 outputs"),
        (None, torch.ones(1), "output: expected None, got"),
        ("x", "y", "output: expected 'x', got 'y'"),
        (3, "3", "output: expected a number, got str"),
        (None, torch.ones(2), "output: expected None, got a Tensor"),
        (True, torch.ones(2), "output: expected True, got a Tensor"),
        (True, [torch.ones(2)], "output: expected True, got 1 outputs"),
        ("x", "y" * 10_000, "output: expected 'x', got 'yyy"),
        (torch.float32, torch.float32, "output: outputs of type dtype can't be compared"),
        (torch.ones(2).to(torch.uint16), torch.ones(2).to(torch.uint16), "output: no tolerance is known for uint16"),
    ],
)  # fmt: skip
def test_another_form_is_a_mismatch_in_words(one, expected, got, message):
    record = one(expected, got)
    assert record["mismatch"].startswith(message)
    assert len(record["mismatch"]) < 500
    assert set(record) == {"where", "mismatch"}


def test_every_output_has_a_record_with_its_place(compare):
    expected = {"y": (torch.ones(2), 3.0), "z": torch.ones(1)}
    got = {"z": torch.ones(1), "y": [torch.ones(2), 4.0]}
    records = compare(expected, got)
    assert [record["where"] for record in records] == ["output['y'][0]", "output['y'][1]", "output['z']"]
    assert [record["wrong_elements"] for record in records] == [0, 1, 0]


def test_a_mismatch_of_one_output_does_not_hide_the_others(compare):
    records = compare((torch.ones(2), torch.ones(2)), (torch.ones(3), torch.zeros(2)))
    assert records[0]["mismatch"] == "output[0]: expected shape (2,), got (3,)"
    assert records[1]["wrong_elements"] == 2


@pytest.mark.parametrize("value", [None, True, "text"])
def test_a_plain_value_that_agrees_is_no_output_to_count(compare, value):
    assert compare(value, value) == []


def test_inputs_of_the_comparison_stay_as_they_were(one):
    expected, got = torch.ones(3), torch.zeros(3)
    one(expected, got)
    assert torch.equal(expected, torch.ones(3))
    assert torch.equal(got, torch.zeros(3))
