# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Contents that differ from call to call, and that two processes make alike."""

import importlib

import pytest
import torch

SEED = 5


@pytest.fixture(scope="module")
def contents(worker):
    return importlib.import_module("tritonforge_worker.contents")


@pytest.fixture
def make(contents):
    """Contents of some tensors."""

    def make(*tensors, seed=SEED):
        return contents.Contents(tuple(tensors), seed)

    return make


def ramp(count, dtype=torch.float32):
    return torch.linspace(1, 2, count).to(dtype)


DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex64, torch.complex128,
]  # fmt: skip
NARROW = {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float8_e4m3fn: 0.07, torch.float8_e5m2: 0.13}


def wide(tensor):
    """In a type that has arithmetic and comparisons."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_seed_makes_the_same_contents_in_two_objects(contents, dtype):
    inputs = (ramp(1000, dtype), {"x": ramp(64, dtype)})
    mine, other = contents.Contents(inputs, SEED), contents.Contents(inputs, SEED)
    for number in (0, 1, 4095, contents.COUNT - 1):
        one, two = mine.make(number), other.make(number)
        assert torch.equal(wide(one[0]), wide(two[0]))
        assert torch.equal(wide(one[1]["x"]), wide(two[1]["x"]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_contents_are_the_inputs_times_three_quarters_to_one(make, dtype):
    base = ramp(5000, dtype)
    (found,) = make(base).make(7)
    assert found.dtype == dtype
    factors = (wide(found) / wide(base)).abs()
    slack = NARROW.get(dtype, 1e-6)
    assert factors.min() >= 0.75 * (1 - slack)
    assert factors.max() <= 1 + slack
    # All over that range, not at one end of it.
    assert factors.min() < 0.78
    assert factors.max() > 0.97


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_other_numbers_and_other_seeds_make_other_contents(make, dtype):
    base = ramp(1000, dtype)
    made = make(base)
    found = [wide(made.make(number)[0]) for number in (0, 1, 2)] + [wide(make(base, seed=SEED + 1).make(0)[0])]
    for index, one in enumerate(found):
        for two in found[:index]:
            assert (one != two).double().mean() > 0.5


def test_the_upper_part_of_a_content_is_a_seed_of_its_own(contents, make):
    made, other = make(ramp(100)), make(ramp(100))
    one, two = made.make(3)[0], made.make(7 * contents.COUNT + 3)[0]
    assert not torch.equal(one, two)
    # Whatever was asked for in between.
    assert torch.equal(other.make(7 * contents.COUNT + 3)[0], two)
    assert torch.equal(made.make(3)[0], one)
    other.get_ready(9 * contents.COUNT)
    assert torch.equal(other.make(7 * contents.COUNT + 3)[0], two)


def test_seeds_as_large_as_they_come_are_taken(contents, make):
    large = ((1 << 31) - 1) * contents.COUNT + 5
    assert torch.equal(make(ramp(100)).make(large)[0], make(ramp(100)).make(large)[0])


def test_tensors_that_never_differ_are_counted(contents):
    made = contents.Contents((ramp(10), torch.arange(3), torch.tensor([True])), SEED)
    assert (made.varies, made.constant) == (True, 2)


def test_the_inputs_themselves_stay_as_they_are(make):
    base = ramp(100)
    before = base.clone()
    made = make(base)
    made.make(1)[0].zero_()
    assert torch.equal(base, before)
    assert not torch.equal(made.make(1)[0], torch.zeros(100))


def test_signs_zeros_and_infinities_stay(make):
    base = torch.tensor([0.0, -2.0, 3.0, float("inf"), float("-inf"), float("nan")])
    (found,) = make(base).make(3)
    assert found[0] == 0
    assert -2 <= found[1] <= -1.5
    assert found[3] == float("inf")
    assert found[4] == float("-inf")
    assert torch.isnan(found[5])


def test_integers_and_booleans_are_never_touched(contents):
    inputs = {"index": torch.arange(10), "mask": torch.tensor([True, False]), "x": ramp(10), "n": 3}
    made = contents.Contents(inputs, SEED)
    assert made.varies
    found = made.make(2)
    assert torch.equal(found["index"], inputs["index"])
    assert torch.equal(found["mask"], inputs["mask"])
    assert not torch.equal(found["x"], inputs["x"])
    assert found["n"] == 3


def test_only_integers_do_not_vary(make):
    assert not make(torch.arange(10)).varies
    assert not make().varies


def test_without_a_seed_every_content_is_the_inputs(make):
    base = ramp(100)
    made = make(base, seed=None)
    assert not made.varies
    assert torch.equal(made.make(1)[0], base)
    assert torch.equal(made.make(2)[0], base)


def test_seed_zero_varies_too(make):
    made = make(ramp(100), seed=0)
    assert made.varies
    assert not torch.equal(made.make(1)[0], made.make(2)[0])


def test_writing_leaves_what_does_not_vary_unless_it_is_to_be_restored(contents):
    inputs = (ramp(10), torch.arange(10))
    made = contents.Contents(inputs, SEED)
    target = (torch.zeros(10), torch.zeros(10, dtype=torch.int64))
    made.write(target, 4)
    assert torch.equal(target[0], made.make(4)[0])
    assert torch.equal(target[1], torch.zeros(10, dtype=torch.int64))
    made.write(target, 4, restore=True)
    assert torch.equal(target[1], torch.arange(10))


def test_without_a_seed_what_was_written_to_is_restored(make):
    base = ramp(10)
    made = make(base, seed=None)
    target = (torch.zeros(10),)
    made.write(target, 0)
    assert torch.equal(target[0], torch.zeros(10))
    made.write(target, 0, restore=True)
    assert torch.equal(target[0], base)


def test_writing_goes_to_the_tensor_that_is_given_and_nowhere_else(make):
    base = ramp(10)
    made = make(base)
    target = (torch.zeros(10),)
    place = target[0].data_ptr()
    made.write(target, 4)
    assert target[0].data_ptr() == place
    assert torch.equal(target[0], made.make(4)[0])


@pytest.mark.parametrize(
    "view",
    [
        lambda: ramp(64).view(8, 8).t(),
        lambda: ramp(64)[3:40:3],
        lambda: ramp(64).view(8, 8)[2:, 1:5],
        lambda: ramp(8).expand(5, 8),
        lambda: ramp(8).view(8, 1).expand(8, 3),
        lambda: torch.tensor(1.5),
        lambda: torch.complex(ramp(16), ramp(16)).conj(),
        lambda: torch.empty(0),
    ],
    ids=["transposed", "stepped", "block", "expanded", "broadcast", "scalar", "conjugated", "empty"],
)
def test_views_keep_their_form_and_get_contents_of_their_own(make, view):
    base = view()
    found, again, other = make(base).make(3)[0], make(base).make(3)[0], make(base).make(4)[0]
    assert (found.shape, found.dtype) == (base.shape, base.dtype)
    if base.numel() > 1 and 0 not in base.stride():
        assert found.stride() == base.stride()
    assert torch.equal(found.resolve_conj(), again.resolve_conj())
    if base.numel() == 0:
        return
    factors = (found / base).abs()
    assert factors.min() >= 0.7499
    assert factors.max() <= 1.0001
    assert not torch.equal(found, other)


def test_what_an_expanded_tensor_repeats_is_still_the_same_memory(make):
    (found,) = make(ramp(8).expand(5, 8)).make(3)
    assert found.stride() == (0, 1)
    assert torch.equal(found[0], found[4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e4m3fn, torch.complex64], ids=str)
def test_tensors_beyond_a_chunk_are_written_part_by_part_and_whole(contents, make, monkeypatch, dtype):
    monkeypatch.setattr(contents, "CHUNK", 64)
    base = ramp(1000, dtype)
    made = make(base)
    (found,) = made.make(9)
    assert torch.equal(wide(found), wide(make(base).make(9)[0]))
    factors = (wide(found) / wide(base)).abs()
    slack = NARROW.get(dtype, 1e-6)
    assert factors.min() >= 0.75 * (1 - slack)
    assert factors.max() <= 1 + slack
    assert not torch.equal(wide(found), wide(made.make(10)[0]))
    # No noise longer than a chunk is kept, whatever the tensor's size.
    (noise,) = made._noise.values()
    assert noise.numel() == 64 + contents.COUNT * contents.STEP


def test_tensors_of_one_type_share_the_noise_of_the_longest(contents, make):
    made = make(ramp(10), ramp(1000), ramp(100))
    assert [noise.numel() for noise in made._noise.values()] == [1000 + contents.COUNT * contents.STEP]
    made.make(contents.COUNT - 1)


def test_types_without_arithmetic_stay_as_they_are(contents):
    scales = torch.full((10,), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    made = contents.Contents((scales,), SEED)
    assert not made.varies
    assert torch.equal(made.make(1)[0].view(torch.uint8), scales.view(torch.uint8))


def test_contents_of_parameters_are_written_without_a_gradient(make):
    base = ramp(10).requires_grad_()
    (found,) = make(base).make(2)
    assert found.grad_fn is None
    assert found.requires_grad


# Integers and booleans


def test_alternatives_take_turns_with_the_inputs_own_integers(contents):
    own, first, second = torch.tensor([1, 2]), torch.tensor([3, 4]), torch.tensor([5, 6])
    made = contents.Contents({"x": ramp(8), "i": own}, SEED, contents.Alternatives(False, [[first], [second]]))
    assert (made.varies, made.constant) == (True, 0)
    target = made.make(0)
    for content, expected in [(0, own), (1, first), (2, second), (3, own), (4, first), (1, first), (0, own)]:
        made.write(target, content)
        assert torch.equal(target["i"], expected)
        assert torch.equal(made.make(content)["i"], expected)
    assert not torch.equal(made.make(0)["x"], made.make(3)["x"])


def test_without_a_seed_there_are_no_alternatives(contents):
    own = torch.tensor([1, 2])
    made = contents.Contents((own,), None, contents.Alternatives(False, [[torch.tensor([3, 4])]]))
    assert (made.varies, made.constant) == (False, 1)
    assert torch.equal(made.make(1)[0], own)


def test_every_integer_tensor_gets_its_own_alternative_whatever_lies_between(contents):
    inputs = (torch.tensor([1]), ramp(4), torch.tensor([True, False]), torch.tensor([7]))
    others = [torch.tensor([2]), torch.tensor([False, True]), torch.tensor([8])]
    found = contents.Contents(inputs, SEED, contents.Alternatives(False, [others])).make(1)
    assert [found[index].tolist() for index in (0, 2, 3)] == [[2], [False, True], [8]]


def test_only_inputs_that_are_alike_but_for_their_elements_give_an_alternative(contents):
    inputs = {"x": ramp(4), "i": torch.tensor([1, 2]), "n": 2}
    like = {"x": ramp(4), "i": torch.tensor([8, 9]), "n": 2}
    (found,) = contents.alternative(inputs, like, whole=False)
    assert torch.equal(found, like["i"])
    for changed in ({"n": 3}, {"i": torch.tensor([1, 2, 3])}, {"i": torch.tensor([1.0, 2.0])}, {"x": ramp(5)}):
        assert contents.alternative(inputs, {**like, **changed}, whole=False) is None


def test_constants_are_what_noise_does_not_change(contents):
    inputs = (ramp(3), torch.arange(2), {"m": torch.tensor([True])}, 4)
    assert [tensor.dtype for tensor in contents.constants(inputs, whole=False)] == [torch.int64, torch.bool]


def test_where_noise_would_make_ties_all_tensors_take_turns_with_those_of_other_seeds(contents):
    inputs, other = (ramp(4), torch.arange(4)), (ramp(4) + 7, torch.arange(4) + 7)
    others = contents.alternative(inputs, other, whole=True)
    made = contents.Contents(inputs, SEED, contents.Alternatives(True, [others]))
    assert (made.varies, made.constant) == (True, 0)
    for content, expected in ((0, inputs), (1, other), (2, inputs)):
        assert all(torch.equal(one, two) for one, two in zip(made.make(content), expected, strict=True))
