# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Large random tensors of a capture: of the same form and distribution, from a block of values."""

import importlib

import pytest
import torch

ROWS, COLUMNS = 520, 1024
"""Two blocks and a piece."""


@pytest.fixture(scope="module")
def repeated(worker):
    return importlib.import_module("tritonforge_worker.repeated")


@pytest.fixture
def made(repeated):
    """What a function makes under a seed, repeated and real."""

    def run(make, seed=3):
        torch.manual_seed(seed)
        with repeated.Repeated():
            got = make()
        torch.manual_seed(seed)
        return got, make()

    return run


def generator():
    return torch.Generator().manual_seed(5)


def empty(dtype=torch.float32):
    return torch.empty(ROWS, COLUMNS, dtype=dtype)


LARGE = {
    "randn": lambda: torch.randn(ROWS, COLUMNS),
    "randn half": lambda: torch.randn((ROWS, COLUMNS), dtype=torch.float16, requires_grad=True),
    "randn by generator": lambda: torch.randn(ROWS, COLUMNS, generator=generator()),
    "randn complex": lambda: torch.randn(ROWS, COLUMNS, dtype=torch.complex64),
    "randn in an output": lambda: torch.randn(ROWS, COLUMNS, out=empty(torch.float64)),
    "rand": lambda: torch.rand(ROWS, COLUMNS, dtype=torch.bfloat16),
    "rand by generator": lambda: torch.rand(ROWS, COLUMNS, generator=generator()),
    "randint": lambda: torch.randint(9, (ROWS, COLUMNS)),
    "randint from": lambda: torch.randint(-4, 5, (ROWS, COLUMNS), dtype=torch.int8),
    "randint by generator": lambda: torch.randint(-4, 5, (ROWS, COLUMNS), generator=generator()),
    "normal": lambda: torch.normal(5.0, 0.5, (ROWS, COLUMNS)),
    "randn_like": lambda: torch.randn_like(empty(torch.float16)),
    "rand_like other type": lambda: torch.rand_like(empty(torch.int32), dtype=torch.float64),
    "rand_like transposed": lambda: torch.rand_like(empty().t()),
    "randint_like": lambda: torch.randint_like(empty(torch.int32), 9),
    "randint_like from": lambda: torch.randint_like(empty(torch.int64), 3, 9, memory_format=torch.contiguous_format),
    "normal_": lambda: empty().normal_(2.0, 3.0),
    "normal_ of a part": lambda: torch.zeros(2, ROWS, COLUMNS)[1].normal_(),
    "uniform_": lambda: empty(torch.float16).uniform_(-2, 2),
    "random_": lambda: empty(torch.uint8).random_(),
    "random_ to": lambda: empty(torch.int16).random_(7),
    "random_ from": lambda: empty(torch.int32).random_(-3, 3),
    "bernoulli_": lambda: empty().bernoulli_(0.25),
    "exponential_": lambda: empty().exponential_(),
    "init": lambda: torch.nn.init.xavier_uniform_(torch.nn.Parameter(empty())),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(ROWS, COLUMNS)),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_random_tensor_is_of_the_form_and_the_distribution_of_the_real_one(made, name):
    got, real = made(LARGE[name])
    for of in ("shape", "dtype", "requires_grad", "device"):
        assert getattr(got, of) == getattr(real, of)
    assert (got.stride(), type(got)) == (real.stride(), type(real))
    found, expected = (torch.view_as_real(each) if each.is_complex() else each.double() for each in (got, real))
    # 262,143 values each: their means are off by a 512th of the deviation or so.
    for one, other in ((found.mean(), expected.mean()), (found.std(), expected.std())):
        assert one.item() == pytest.approx(other.item(), abs=0.02 * expected.std().item())
    if not got.is_floating_point() and not got.is_complex():
        assert set(got.unique().tolist()) == set(real.unique().tolist())


@pytest.mark.parametrize("name", [name for name in LARGE if name not in {"rand_like transposed", "normal_ of a part"}])
def test_its_values_vary_within_a_block_which_repeats(made, repeated, name):
    got = made(LARGE[name])[0].detach()
    flat = (got.real if got.is_complex() else got).reshape(-1)
    size = repeated.BLOCK_ELEMENTS
    assert torch.equal(flat[:size], flat[size : 2 * size])
    assert torch.equal(flat[2 * size :], flat[: len(flat) - 2 * size])
    assert len(flat[:size].unique()) > 1
    assert not torch.equal(flat[:1024], flat[1024:2048])


def test_rows_differ_where_their_length_divides_the_sizes_of_tensors(made):
    got, _ = made(lambda: torch.randn(1024, 1024))
    assert len(got.unique(dim=0)) == 1024


@pytest.mark.parametrize("name", LARGE)
def test_a_seed_gives_the_same_each_time_and_another_seed_others(made, name):
    first, again, other = (made(LARGE[name], seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == ("generator" in name)


def test_tensors_that_are_drawn_one_after_the_other_differ(made):
    (first, second), _ = made(lambda: (torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)))
    assert not torch.equal(first, second)


def test_only_what_was_filled_is_written_to(made):
    def fill():
        whole = torch.zeros(2, ROWS, COLUMNS)
        whole[1].normal_()
        return whole

    got, _ = made(fill)
    assert not got[0].any()
    assert got[1].count_nonzero() > 0.99 * got[1].numel()


SMALL = {
    "randn": lambda: torch.randn(512, 511),
    "rand": lambda: torch.rand(3, 5, dtype=torch.float16),
    "randint": lambda: torch.randint(2, 9, (100,)),
    "randn_like": lambda: torch.randn_like(torch.empty(7, 9).t()),
    "normal_": lambda: torch.empty(512, 511).normal_(),
    "empty": lambda: torch.randn(0, 1 << 40),
    "scalar": lambda: torch.randn(()),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_small_tensor_is_the_real_one(made, name):
    got, real = made(SMALL[name])
    assert torch.equal(got, real)
    assert got.stride() == real.stride()


OTHERS = {
    "permutation": lambda: torch.randperm(ROWS * COLUMNS),
    "by element": lambda: torch.bernoulli(torch.linspace(0, 1, ROWS * COLUMNS)),
    "normal by element": lambda: torch.normal(torch.zeros(ROWS, COLUMNS), 1.0),
    "drawn": lambda: torch.multinomial(torch.ones(100), ROWS * COLUMNS, replacement=True),
    "strided": lambda: torch.zeros(COLUMNS, ROWS).t().normal_(),
    "range": lambda: torch.arange(ROWS * COLUMNS) * 2,
}


@pytest.mark.parametrize("name", OTHERS)
def test_all_else_is_what_it_would_be(made, name):
    got, real = made(OTHERS[name])
    assert torch.equal(got, real)
    assert (got.stride(), got.dtype) == (real.stride(), real.dtype)


def test_an_impossible_range_is_told_as_torch_tells_it(repeated):
    with repeated.Repeated(), pytest.raises(RuntimeError, match="from"):
        torch.randint(5, 5, (ROWS, COLUMNS))


def test_afterwards_all_is_real_again(made, repeated):
    size = repeated.BLOCK_ELEMENTS
    _, real = made(LARGE["randn"])
    assert not torch.equal(real.view(-1)[:size], real.view(-1)[size : 2 * size])
