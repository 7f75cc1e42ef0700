# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Errors of outputs as a whole against exact ones, and how large and how finite outputs are."""

import json
import math

import pytest
import torch

NAN, INF = math.nan, math.inf
NARROW = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.fixture
def measure(judge):
    def run(exact, expected, got, factor=None, reduction=None):
        records = judge.accuracy(exact, expected, got, factor=factor, reduction=reduction)
        return json.loads(json.dumps(records, allow_nan=False))

    return run


@pytest.fixture
def one(measure):
    def run(*args, **options):
        (record,) = measure(*args, **options)
        return record

    return run


@pytest.fixture
def finiteness(judge):
    def run(tree):
        return json.loads(json.dumps(judge.finiteness(tree), allow_nan=False))

    return run


def doubles(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_errors_are_root_mean_squares_in_units_of_the_output(one):
    record = one(doubles(1, 7, -1, -7), torch.tensor([2.0, 8, 0, -6]), torch.tensor([1.0, 3, -1, -7]), factor=2.0)
    assert record == {
        "where": "output", "error": pytest.approx(0.4), "reference_error": pytest.approx(0.2),
        "allowed": pytest.approx(0.4), "factor": 2.0, "elements": 4,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_rounding_to_the_output_is_allowed_and_a_cruder_one_is_not(one, dtype):
    exact = normal(4096)
    rounded = exact.to(dtype)
    record = one(exact, rounded, rounded)
    assert record["factor"] == 4.0
    assert 0 < record["error"] == record["reference_error"] < record["allowed"]
    # Three bits less than the format has: an error eight times as large.
    mantissa, exponent = torch.frexp(exact)
    step = 4 * torch.finfo(dtype).eps
    crude = torch.ldexp(torch.round(mantissa / step) * step, exponent).to(dtype)
    assert one(exact, rounded, crude)["error"] > record["allowed"]


def test_bfloat16_in_a_float16_output_is_too_crude(one):
    exact = normal(4096)
    record = one(exact, exact.half(), exact.bfloat16().half())
    assert record["error"] > record["allowed"]


def test_a_sum_in_another_order_is_allowed_and_tf32_is_not(one):
    a, b = normal(2, 32, 512)
    exact = a @ b.T
    expected = a.float() @ b.float().T
    backwards = a.float().flip(1) @ b.float().flip(1).T
    # TF32 keeps 10 bits of the mantissa, as float16 does.
    tf32 = a.half().float() @ b.half().float().T
    assert one(exact, expected, backwards)["factor"] == 16.0
    assert one(exact, expected, backwards)["error"] < one(exact, expected, backwards)["allowed"]
    assert one(exact, expected, tf32, reduction=512)["error"] > one(exact, expected, tf32, reduction=512)["allowed"]


@pytest.mark.parametrize(
    ("dtype", "reduction", "least"),
    [
        (torch.float16, None, 2**-12), (torch.float16, 64, 2**-12), (torch.float8_e4m3fn, 64, 2**-5),
        (torch.float32, None, 2**-25), (torch.float32, 64, 2**-22), (torch.float64, 64, 2**-51),
        (torch.complex64, 64, 2**-22), (torch.complex128, None, 2**-54),
    ],
)  # fmt: skip
def test_where_the_reference_is_exact_the_format_allows_something(one, dtype, reduction, least):
    exact = doubles(1, 2, 4).to(torch.complex128 if dtype.is_complex else torch.float64)
    record = one(exact, exact.to(dtype), exact.to(dtype), factor=3.0, reduction=reduction)
    assert (record["error"], record["reference_error"]) == (0.0, 0.0)
    assert record["allowed"] == pytest.approx(3 * least)


def test_only_elements_that_are_finite_everywhere_count(one):
    exact = doubles(3, NAN, 1, 1, 1, 4)
    expected = torch.tensor([3.0, 1, INF, 1, 1, 4])
    got = torch.tensor([3.0, 1, 1, NAN, -INF, 5])
    record = one(exact, expected, got)
    assert record["elements"] == 2
    assert record["error"] == pytest.approx(0.2)
    assert record["reference_error"] == 0.0


def test_complex_elements_count_as_two(one):
    exact = torch.tensor([3 + 4j, 3 - 4j], dtype=torch.complex128)
    record = one(exact, exact.to(torch.complex64).conj().resolve_conj().conj(), exact.to(torch.complex64).conj())
    assert record["elements"] == 4
    assert record["error"] == pytest.approx(1.6)
    assert record["reference_error"] == 0.0


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_every_piece_counts(one, differences, monkeypatch, chunk):
    monkeypatch.setattr(differences, "CHUNK", chunk)
    record = one(doubles(1, 7, -1, -7, 0), torch.tensor([2.0, 8, 0, -6, 0]), torch.tensor([1.0, 3, -1, -7, 0]))
    assert (record["elements"], record["error"], record["reference_error"]) == (
        5, pytest.approx(0.4), pytest.approx(0.2),
    )  # fmt: skip


def test_layouts_do_not_matter(one):
    exact = normal(8, 6)
    got = exact.float().t().contiguous().t()
    got[3, 1] += 1.0
    record = one(exact.t().contiguous().t(), exact.float(), got)
    assert record["error"] == pytest.approx(1 / exact.square().sum().sqrt().item(), rel=1e-3)


def test_a_double_that_is_off_by_one_step_is_measured_as_such(one):
    exact = 1.1 * normal(1000)
    got = torch.nextafter(exact, torch.full_like(exact, INF))
    error = (got - exact).square().sum().sqrt().item() / exact.square().sum().sqrt().item()
    assert one(exact, exact, got)["error"] == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_squares_beyond_doubles_are_no_hindrance(one, size):
    exact = size * doubles(3, 4)
    record = one(exact, exact, size * doubles(3, 5))
    assert record["error"] == pytest.approx(0.2)
    worst = one(exact * 1e-10, exact * 1e-10, doubles(1e308, -1e308))
    assert worst["error"] > 1e5


def test_masks_that_dwarf_the_rest_do_not_hide_its_error(one):
    exact = torch.cat((normal(64), torch.full((64,), -1e9, dtype=torch.float64)))
    expected = exact.bfloat16()
    got = expected.clone()
    got[:64] = (exact[:64] * 1.5).bfloat16()
    record = one(exact, expected, got)
    assert record["error"] == pytest.approx(0.5, rel=0.05)
    assert record["elements"] <= 64
    assert record["error"] > record["allowed"]
    got[:5] = NAN
    assert one(exact, expected, got)["elements"] == record["elements"] - 5
    # Without a difference there is nothing to hide.
    assert one(exact, expected, expected)["elements"] == 128


def test_elements_that_agree_count_where_they_are_like_the_rest(one):
    record = one(doubles(1, 1, 1, 1), torch.ones(4), torch.tensor([1.0, 1, 1, 3]))
    assert (record["elements"], record["error"]) == (4, 1.0)


def test_each_floating_output_has_its_record(measure):
    exact = {"a": (doubles(1), torch.tensor([1])), "b": 3.0, "c": doubles(2), "d": None}
    expected = {"a": (torch.ones(1), torch.tensor([1])), "b": 3.0, "c": torch.full((1,), 2.0), "d": None}
    assert [record["where"] for record in measure(exact, expected, expected)] == ["output['a'][0]", "output['c']"]


@pytest.mark.parametrize(
    ("exact", "expected", "got"),
    [
        (doubles(), torch.empty(0), torch.empty(0)),
        (doubles(0, 0), torch.zeros(2), torch.ones(2)),
        (doubles(1), torch.ones(1), torch.tensor([NAN])),
        (doubles(1), torch.ones(1), torch.ones(2)),
        (doubles(1), torch.ones(1), torch.ones(1).half()),
        (doubles(1), torch.ones(1), None),
        (doubles(1), torch.ones(1), [torch.ones(1)]),
        (doubles(1, 1), torch.ones(1), torch.ones(1)),
        (torch.ones(1), torch.ones(1), torch.ones(1)),
        (None, torch.ones(1), torch.ones(1)),
        (torch.tensor([True]), torch.tensor([True]), torch.tensor([True])),
    ],
)
def test_what_can_not_be_measured_has_no_record(measure, exact, expected, got):
    assert measure(exact, expected, got) == []


def test_finite_outputs_are_counted_and_sized(finiteness):
    tree = {"x": torch.tensor([[3.0, NAN], [INF, -INF], [NAN, 4.0]]), "n": (torch.tensor([1, 2]), 5, None)}
    assert finiteness(tree) == [
        {"where": "output['x']", "elements": 6, "nan": 2, "inf": 2, "rms": pytest.approx(math.sqrt(12.5))}
    ]


@pytest.mark.parametrize("dtype", [*NARROW, torch.float32, torch.float64], ids=str)
def test_every_floating_type_has_a_size(finiteness, dtype):
    x = torch.tensor([1.0, -7, 7, -1]).to(dtype)
    assert finiteness([x]) == [{"where": "output[0]", "elements": 4, "nan": 0, "inf": 0, "rms": pytest.approx(5)}]


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_sizes_of_all_pieces_are_taken_together(finiteness, differences, monkeypatch, chunk):
    monkeypatch.setattr(differences, "CHUNK", chunk)
    for x in (torch.tensor([3.0, NAN, 0, 0, INF, 4]), doubles(3, NAN, 0, 0, INF, 4)):
        assert finiteness(x)[0] == {"where": "output", "elements": 6, "nan": 1, "inf": 1, "rms": 2.5}


@pytest.mark.parametrize(
    ("x", "facts"),
    [
        (torch.empty(0), (0, 0, 0, 0.0)), (torch.tensor([NAN, INF]), (2, 1, 1, 0.0)), (torch.zeros(3), (3, 0, 0, 0.0)),
        (torch.tensor(2.0), (1, 0, 0, 2.0)), (torch.tensor([complex(3, NAN), complex(-3, 3)]), (4, 1, 0, 3.0)),
        (doubles(1e300, -1e300, INF), (3, 0, 1, 1e300)), (doubles(1e-300), (1, 0, 0, 1e-300)),
        (doubles(0, NAN), (2, 1, 0, 0.0)),
        (torch.tensor([[1.0, 5.0], [7.0, 9.0]])[:, 0], (2, 0, 0, 5.0)),
        (torch.tensor([2.0], requires_grad=True), (1, 0, 0, 2.0)),
    ],
)  # fmt: skip
def test_the_size_is_that_of_what_is_finite(finiteness, x, facts):
    (record,) = finiteness(x)
    assert (record["elements"], record["nan"], record["inf"], pytest.approx(record["rms"])) == facts
