# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""The judge's rules: tolerances that grow with outputs and sums, strides, and where errors lie."""

import json
import math

import pytest
import torch

NAN, INF = math.nan, math.inf


@pytest.fixture
def compare(judge, worker):
    def run(expected, got, tolerances=None, **rules):
        records = judge.compare(
            expected, got, judge.Rules({**worker.contract.DEFAULT_TOLERANCES, **(tolerances or {})}, **rules)
        )
        return json.loads(json.dumps(records, allow_nan=False))

    return run


@pytest.fixture
def one(compare):
    def run(*args, **rules):
        (record,) = compare(*args, **rules)
        return record

    return run


@pytest.fixture
def atol(one):
    def run(expected, *args, **rules):
        return one(expected, expected.clone(), *args, **rules)["atol"]

    return run


# Root mean square 5.
FIVES = torch.tensor([1.0, 7.0, -1.0, -7.0])


def own(*names):
    """Rules under which the tolerances of these types are the task's own: nothing is added to them."""
    return {"own": frozenset(names)}


DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64", "complex64", "complex128")


def fives(name, factor=1.0):
    """`FIVES`, times a factor, in a type by its name."""
    wide = factor * FIVES.double()
    return (torch.view_as_complex(wide.reshape(2, 2)) if "complex" in name else wide).to(getattr(torch, name))


@pytest.mark.parametrize(
    ("name", "base", "steps"),
    [
        ("float16", 1e-5, 2 * 2**-10), ("bfloat16", 1e-5, 2 * 2**-7), ("float32", 1e-5, 64 * 2**-23),
        ("float64", 1e-7, 64 * 2**-52), ("complex64", 1e-5, 64 * 2**-23), ("complex128", 1e-7, 64 * 2**-52),
        ("float8_e4m3fn", 2**-9, 0.0), ("float8_e5m2", 2**-16, 0.0),
    ],
)  # fmt: skip
def test_outputs_may_be_off_by_some_steps_at_their_size(atol, name, base, steps):
    for factor in (1.0, 8.0):
        assert atol(fives(name, factor)) - base == pytest.approx(steps * factor * 5, rel=1e-6)
    # No more than a quarter of what most of the elements exceed.
    assert atol(torch.cat((1e-9 * fives("float32"), FIVES))) == pytest.approx(1e-5 + 1e-9 / 4)


@pytest.mark.parametrize("name", DTYPES)
def test_what_the_task_chose_itself_stays(atol, name):
    chosen = {name: {"rtol": 0.0, "atol": 2.0**-3}}
    for more in ({}, {"reduction": 10**6}):
        assert atol(fives(name), chosen, **own(name), **more) == 2.0**-3
    assert atol(fives(name), chosen, **own("int8"), reduction=10**6) > 2.0**-3


@pytest.mark.parametrize(
    ("name", "base", "roundoff", "terms"),
    [
        ("float16", 1e-5, 2**-24, (2.0**28, 2.0**30)), ("bfloat16", 1e-5, 2**-24, (2.0**34,)),
        ("float8_e5m2", 2**-16, 2**-24, (1, 100, 4096.0)), ("float32", 1e-5, 2**-24, (4096.0, 2.0**20)),
        ("float64", 1e-7, 2**-53, (4096.0, 2.0**20)), ("complex64", 1e-5, 2**-24, (4096.0, 2.0**20)),
        ("complex128", 1e-7, 2**-53, (4096.0, 2.0**20)),
    ],
)  # fmt: skip
def test_the_tolerance_of_a_sum_grows_with_the_root_of_its_length(atol, name, base, roundoff, terms):
    for count in terms:
        expected = 4 * math.sqrt(count) * roundoff * 5
        assert atol(fives(name), reduction=count) - base == pytest.approx(min(expected, 0.25), rel=1e-6)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_a_short_sum_has_no_less_than_the_steps(atol, name):
    assert atol(fives(name), reduction=1) == atol(fives(name))


def product(factors=torch.float32):
    """A product of two matrices, K = 4096: the exact one in float32, and one summed in float32 by blocks of 32.

    The latter's factors have been rounded to a type.
    """
    random = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=random).double() for shape in ((64, 4096), (4096, 64)))
    expected = (a @ b).float()
    a, b = (side.to(factors).double() for side in (a, b))
    total = torch.zeros(64, 64)
    for block in range(0, 4096, 32):
        total += (a[:, block : block + 32] @ b[block : block + 32]).float()
    return expected, total


def test_a_sum_in_another_order_is_right_without_its_length(one):
    expected, got = product()
    assert one(expected, got)["wrong_elements"] == 0
    # Elements near zero are too far off for a tolerance that doesn't know the others.
    assert one(expected, got, **own("float32"))["wrong_elements"] > 0


def test_factors_of_less_precision_are_wrong_without_the_length(one):
    # As many bits as TF32 has.
    assert one(*product(torch.float16))["wrong_elements"] > 2000


def test_the_relative_tolerance_of_a_sum_stays(one):
    assert one(FIVES, FIVES, reduction=4096)["rtol"] == 1.3e-6


def test_the_greater_tolerance_is_the_one_that_decides(one):
    expected = 1000 * FIVES
    allowed = 1e-5 + 4 * math.sqrt(4096) * 2**-24 * 5000
    for error, wrong in ((allowed * 0.9, 0), (allowed * 1.2, 4)):
        got = (expected.double() + error).float()
        rules = {"reduction": 4096, "tolerances": {"float32": {"rtol": 0.0, "atol": 1e-5}}}
        assert one(expected, got, **rules)["wrong_elements"] == wrong
        assert one(expected, got, {"float32": {"rtol": 0.0, "atol": 1e-5}})["wrong_elements"] == 4


def test_only_finite_elements_count_for_the_size(atol):
    x = torch.cat((FIVES, torch.tensor([NAN, INF, -INF])))
    assert atol(x, reduction=4096) == pytest.approx(1e-5 + 256 * 2**-24 * 5, rel=1e-6)
    assert atol(torch.tensor([NAN, INF]), reduction=100) == 1e-5


def test_integers_are_no_sums_with_rounding(atol):
    assert atol(torch.tensor([100, 200]), reduction=10**9, atol_scales=[1e6]) == 0.0
    assert atol(torch.tensor([100, 200]), {"int64": {"rtol": 0.0, "atol": 1.0}}, atol_scales=[1e-6]) == 1.0


def test_an_empty_or_zero_sum_has_the_plain_tolerance(atol):
    assert atol(torch.empty(0), reduction=100) == 1e-5
    assert atol(torch.zeros(5), reduction=100) == 1e-5


def test_huge_doubles_have_a_size(atol):
    x = torch.full((4,), 1e300, dtype=torch.float64)
    assert atol(x) == pytest.approx(64 * 2**-52 * 1e300)
    assert atol(x, reduction=10**4) == pytest.approx(400 * 2**-53 * 1e300)


@pytest.mark.parametrize("mask", [-1e9, torch.finfo(torch.float32).min])
def test_masks_that_dwarf_the_rest_do_not_excuse_it(one, mask):
    expected = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).abs() + 0.5
    expected = expected.masked_fill(torch.ones(64, 64).triu(1).bool(), mask)
    got = torch.where(expected == mask, expected, torch.full_like(expected, 5.0))
    for rules in ({"reduction": 64}, {}):
        record = one(expected, got, **rules)
        assert record["atol"] < 2
        assert record["wrong_elements"] > 1000


def test_the_smaller_magnitudes_are_those_of_all_of_a_large_tensor(accuracy, monkeypatch):
    monkeypatch.setattr(accuracy, "SAMPLE", 100)
    x = torch.arange(10_000.0).reshape(100, 100).t()
    x[0, 0] = NAN
    assert accuracy.smaller(x) == pytest.approx(1000, rel=0.1)
    # Every column has a share: none of the first one alone.
    assert accuracy.smaller((torch.arange(8192) % 64 + 1.0).reshape(-1, 64)) < 10


def test_zeros_and_infinities_are_no_magnitudes(accuracy):
    numbers = torch.arange(1.0, 11.0)
    for other in (0.0, INF, -INF, NAN):
        assert accuracy.smaller(torch.cat((numbers, torch.full((90,), other)))) == 2.0
        assert accuracy.smaller(torch.full((9,), other)) == 0.0


def test_each_output_has_the_scale_of_its_place(compare):
    expected = {"a": FIVES, "n": 3, "b": (FIVES.double(), torch.tensor([1, 2])), "c": FIVES}
    got = {"c": FIVES, "b": [FIVES.double(), torch.tensor([1, 2])], "n": 3, "a": FIVES}
    records = compare(expected, got, atol_scales=[100.0, 0.5], **own("float32", "float64"))
    assert [record["atol"] for record in records] == pytest.approx([1e-3, 1e-7, 0.5e-7, 0.0, 1e-5])


def test_a_mismatch_takes_the_scale_of_its_place_with_it(compare):
    records = compare(((FIVES, FIVES), FIVES), (None, FIVES), atol_scales=[1.0, 10.0, 100.0], **own("float32"))
    assert records[0]["mismatch"] == "output[0]: expected 2 outputs, got nothing"
    assert records[1]["atol"] == pytest.approx(1e-3)


def test_the_scale_is_not_counted_twice_in_a_sum(atol):
    # The size of the outputs is in the sum's part already.
    assert atol(FIVES, reduction=4096, atol_scales=[10.0]) == pytest.approx(1e-4 + 256 * 2**-24 * 5, rel=1e-6)
    assert atol(FIVES, atol_scales=[10.0]) == pytest.approx(1e-4 + 64 * 2**-23 * 5, rel=1e-6)


@pytest.mark.parametrize(("dtype", "least"), [(torch.float16, 2**-24), (torch.float8_e4m3fn, 2**-9)], ids=str)
def test_a_small_scale_does_not_ask_for_steps_that_a_format_lacks(one, dtype, least):
    name = str(dtype)[6:]
    smallest, other = (torch.tensor(steps).mul(least).to(dtype) for steps in ([1.0, 2.0], [2.0, 1.0]))
    record = one(smallest, other, atol_scales=[1e-6], **own(name))
    assert record["atol"] == least
    assert record["wrong_elements"] == 0
    assert one(smallest, other, {name: {"rtol": 0.0, "atol": 0.0}}, **own(name))["wrong_elements"] == 2


def test_strides_matter_only_where_the_task_says_so(one):
    expected = torch.ones(2, 3)
    got = torch.ones(3, 2).t()
    assert one(expected, got)["wrong_elements"] == 0
    assert one(expected, got, strides=True) == {
        "where": "output", "mismatch": "output: expected strides (3, 1), got (1, 2)",
    }  # fmt: skip
    assert one(got, got.clone(), strides=True)["mismatch"] is None
    complex_one = torch.ones(2, 3, dtype=torch.complex64)
    assert one(complex_one, complex_one.t().contiguous().t(), strides=True)["mismatch"].endswith("got (1, 2)")


def test_strides_of_dimensions_without_a_second_place_are_nothing(one):
    expected, got = torch.ones(1, 3, 1), torch.ones(3).as_strided((1, 3, 1), (77, 1, 5))
    assert one(expected, got, strides=True)["mismatch"] is None
    assert one(torch.empty(2, 0, 3), torch.empty(3, 0, 2).permute(2, 1, 0), strides=True)["mismatch"] is None


def test_shape_and_dtype_are_named_before_strides(one):
    assert "expected shape" in one(torch.ones(2, 3), torch.ones(3, 2), strides=True)["mismatch"]
    assert "expected torch.float32" in one(torch.ones(2, 3), torch.ones(3, 2).t().half(), strides=True)["mismatch"]


def spans(record):
    return [(c["wrong"], c["first"], c["last"], c["step"]) for c in record["clusters"]]


def test_wrong_elements_are_placed_along_each_dimension(one):
    expected = torch.zeros(4, 10, 6)
    got = expected.clone()
    got[2, 1::3, 4:] = 1.0
    record = one(expected, got)
    assert [(c["dim"], c["size"]) for c in record["clusters"]] == [(0, 4), (1, 10), (2, 6)]
    assert spans(record) == [(1, 2, 2, None), (3, 1, 7, 3), (2, 4, 5, None)]


@pytest.mark.parametrize(
    ("wrong", "step"),
    [
        ([0, 2, 4], 2), ([1, 3, 5, 7], 2), ([3, 9, 15], 6), ([0, 12, 18], 6), ([0, 6, 15], 3), ([4, 6, 9], None),
        ([0, 1, 2], None), ([5, 10], None), ([7], None), ([0, 4, 8, 13], None), ([0, 12, 20, 30, 42], 2),
        (range(50), None), ([2, 12, 30, 48, 49], None),
    ],
)  # fmt: skip
def test_the_step_divides_every_distance(one, wrong, step):
    got = torch.zeros(50)
    got[list(wrong)] = NAN
    assert spans(one(torch.zeros(50), got)) == [(len(wrong), wrong[0], wrong[-1], step)]


@pytest.mark.parametrize("chunk", [1, 4, 7, 100])
def test_places_do_not_depend_on_the_chunk_or_the_layout(one, differences, monkeypatch, chunk):
    monkeypatch.setattr(differences, "CHUNK", chunk)
    expected = torch.zeros(6, 5).t()
    got = expected.clone(memory_format=torch.contiguous_format)
    got[1::2, 3:] = 1.0
    assert spans(one(expected, got)) == [(2, 1, 3, None), (3, 3, 5, None)]


def test_places_within_a_complex_number_are_a_dimension(one):
    z = torch.tensor([1 + 1j, 2 + 2j, 3 + 3j])
    assert spans(one(z, z.conj())) == [(3, 0, 2, None), (1, 1, 1, None)]


def test_nothing_wrong_has_no_places_and_neither_has_a_single_number(compare, one):
    assert one(torch.ones(3), torch.ones(3))["clusters"] == []
    assert one(torch.tensor(1.0), torch.tensor(2.0))["clusters"] == []
    assert compare([1.0], [2.0])[0]["clusters"] == []


def test_integers_too_long_for_a_double_are_numbers(one):
    assert one(1.0, 10**400)["wrong_elements"] == 1
    assert one(10**400, -(10**400))["wrong_elements"] == 1


def test_what_inputs_magnify_is_allowed_by_place(one, compare):
    got = FIVES + 0.5
    assert one(FIVES, got, slacks={"output": 0.6})["wrong_elements"] == 0
    assert one(FIVES, got, slacks={"output[1]": 0.6})["wrong_elements"] == 4
    wrong = [record["wrong_elements"] for record in compare((FIVES, FIVES), (got, got), slacks={"output[1]": 0.6})]
    assert wrong == [4, 0]
    # There are no roundings in integers.
    assert one(torch.tensor([1, 2]), torch.tensor([1, 3]), slacks={"output": 5.0})["wrong_elements"] == 1
