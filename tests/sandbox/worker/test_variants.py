# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Inputs with other contents, or lying in memory in another way."""

import math

import pytest
import torch

DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
X = torch.tensor([[0.5, -1.0, 2.0], [0.25, 4.0, -8.0]])


def varied(variants, tensor, variant, scale=None):
    (changed,) = variants.vary((tensor,), variant, scale)
    return changed


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("variant", "scale", "expected"),
    [
        ("zeros", None, [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        ("ones", None, [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        ("shifted", None, [[4.5, 3.0, 6.0], [4.25, 8.0, -4.0]]),
        ("large", 8.0, [[4.0, -8.0, 16.0], [2.0, 32.0, -64.0]]),
        ("tiny", 0.25, [[0.125, -0.25, 0.5], [0.0625, 1.0, -2.0]]),
        ("negative_zero", None, [[-0.0, -1.0, -0.0], [0.25, -0.0, -8.0]]),
        ("nan", None, [[0.5, -1.0, math.nan], [math.nan, 4.0, math.nan]]),
    ],
)
def test_contents_of_a_variant(variants, dtype, variant, scale, expected):
    got = varied(variants, X.to(dtype), variant, scale)
    assert got.dtype == dtype
    wanted = torch.tensor(expected).to(dtype).float()
    assert torch.allclose(got.float(), wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(got.float()), torch.signbit(wanted)) or variant == "nan"


def test_a_ramp_goes_from_minus_one_to_one_in_the_order_of_memory(variants):
    assert varied(variants, torch.rand(5, dtype=torch.float16), "ramp").tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]
    turned = varied(variants, torch.rand(3, 3).t(), "ramp")
    assert torch.equal(turned.t(), torch.linspace(-1, 1, 9).view(3, 3))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_denormals_lie_below_the_smallest_normal_number(variants, dtype):
    got = varied(variants, torch.ones(64).to(dtype), "denormals").double()
    smallest = torch.finfo(dtype).smallest_normal
    assert got.abs().max() == smallest / 2
    assert (got[0], got[-1]) == (-smallest / 2, smallest / 2)
    assert (got != 0).sum() > 32


def test_infinities_have_both_signs(variants):
    got = varied(variants, torch.zeros(12), "inf")
    assert got.nonzero().flatten().tolist() == [4, 6, 11]
    assert got[[4, 6, 11]].tolist() == [math.inf, -math.inf, math.inf]


def test_special_values_stay_out_of_small_tensors_where_there_are_larger_ones(variants):
    scale, x = variants.vary((torch.ones(1), torch.ones(8)), "nan")
    assert (scale.isnan().sum(), x.isnan().sum()) == (0, 3)
    (alone,) = variants.vary((torch.ones(1),), "nan")
    assert alone.isnan().all()


@pytest.mark.parametrize("variant", ["zeros", "ones", "ramp", "negative_zero", "nan"])
def test_indices_and_masks_are_never_changed(variants, variant):
    inputs = {"index": torch.tensor([3, 1]), "mask": torch.tensor([True, False]), "n": 5, "x": torch.rand(2)}
    got = variants.vary(inputs, variant)
    assert torch.equal(got["index"], inputs["index"])
    assert torch.equal(got["mask"], inputs["mask"])
    assert got["n"] == 5
    assert not torch.equal(got["x"], inputs["x"])


def test_both_parts_of_complex_numbers_change(variants):
    assert varied(variants, torch.zeros(2, dtype=torch.complex64), "ones").tolist() == [1 + 1j, 1 + 1j]
    assert varied(variants, torch.tensor([1 + 2j]).conj(), "large", 4.0).tolist() == [4 - 8j]


def test_strides_and_the_wish_for_a_gradient_stay(variants):
    transposed = torch.rand(3, 4).t().requires_grad_()
    repeated = torch.rand(1, 4).expand(3, 4)
    for tensor in (transposed, repeated, torch.rand(4, 6)[:, ::2]):
        got = varied(variants, tensor, "shifted")
        assert (got.stride(), got.requires_grad) == (tensor.stride(), tensor.requires_grad)
        assert torch.equal(got, tensor + 4)


def test_the_inputs_stay_as_they_are(variants):
    x = torch.rand(4)
    kept = x.clone()
    for variant in variants.STRUCTURED:
        assert varied(variants, x, variant, 2.0).data_ptr() != x.data_ptr()
    assert torch.equal(x, kept)
    assert varied(variants, x, "random") is x


def test_types_of_scales_and_packed_values_stay(variants):
    scales = torch.ones(4).to(torch.float8_e8m0fnu)
    assert torch.equal(varied(variants, scales, "zeros").view(torch.uint8), scales.view(torch.uint8))
    assert not variants.is_changed(scales)


def test_empty_tensors_have_no_contents(variants):
    for variant in variants.STRUCTURED:
        assert varied(variants, torch.empty(0, 3), variant, 2.0).shape == (0, 3)


def test_scales_keep_to_what_the_inputs_can_hold(variants):
    wide, narrow = (torch.rand(2),), (torch.rand(2), torch.rand(2).half(), torch.ones(2).to(torch.float8_e8m0fnu))
    assert variants.scales(wide, "large") == (256.0, 16.0)
    assert variants.scales(wide, "tiny") == (2.0**-40, 2.0**-20, 1 / 256, 1 / 16)
    assert variants.scales(narrow, "large") == (64.0, 8.0)
    assert variants.scales(narrow, "tiny") == (1 / 1024, 1 / 64, 1 / 8)
    assert variants.scales((torch.rand(2).bfloat16(), torch.arange(2)), "tiny")[0] == 2.0**-40
    assert variants.scales(narrow, "ones") == (None,)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.int64, torch.bool, torch.float8_e8m0fnu], ids=str)
def test_strided_elements_lie_twice_as_far_apart(variants, dtype):
    x = (torch.rand(3, 4) > 0.5).to(dtype)
    for tensor in (x, x.t(), x[:1].expand(3, 4)):
        (got,) = variants.lay_out((tensor,), "strided", (), ("x",))
        assert got.stride() == tuple(2 * stride for stride in tensor.stride())
        assert torch.equal(got.contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8))
        between = variants.between(got)
        if dtype in DTYPES or dtype.is_complex:
            assert between.isnan().all() if dtype.itemsize > 1 else between.float().isnan().all()
        assert between.numel() == variants.memory(tensor).numel() - 1


def test_indices_between_indices_are_of_the_tensor_too(variants):
    ((got),) = variants.lay_out((torch.tensor([7, 8, 9]),), "strided", (), ())
    assert torch.equal(got, torch.tensor([7, 8, 9]))
    assert variants.between(got).tolist() == [9, 8]


def test_broadcast_tensors_repeat_their_first_row_in_one_place(variants, values):
    x, bias = torch.rand(3, 2, 4), torch.rand(4)
    got, same = variants.lay_out((x, bias), "broadcast", (), ("x", "bias"))
    assert got.stride() == (0, 4, 1)
    assert torch.equal(got, x[:1].expand(3, 2, 4))
    assert same is bias
    assert values.size_bytes(got) == 8 * 4


def test_arguments_in_place_are_spread_but_not_broadcast(variants):
    inputs = {"x": torch.rand(3, 4), "out": torch.rand(3, 4)}
    got = variants.lay_out(inputs, "broadcast", ("out",), ())
    assert (got["x"].stride(), got["out"].stride()) == ((0, 1), (4, 1))
    got = variants.lay_out(inputs, "strided", ("out",), ())
    assert got["out"].stride() == (8, 2)
    x, out = variants.lay_out((inputs["x"], inputs["out"]), "broadcast", ("out",), ("x", "out"))
    assert (x.stride(), out.stride()) == ((0, 1), (4, 1))


@pytest.mark.parametrize("layout", ["plain", "offset"])
def test_the_plain_layout_is_that_of_the_inputs(variants, layout):
    inputs = (torch.rand(3, 4),)
    assert variants.lay_out(inputs, layout, (), ()) is inputs


@pytest.mark.parametrize("layout", ["strided", "broadcast"])
def test_layouts_leave_small_things_alone_and_keep_the_wish_for_a_gradient(variants, layout):
    inputs = (torch.tensor(3.0), torch.empty(0, 2), 5, [torch.rand(2, 2, requires_grad=True)])
    scalar, empty, number, (x,) = variants.lay_out(inputs, layout, (), ())
    assert (scalar.item(), empty.shape, number, x.requires_grad) == (3.0, (0, 2), 5, True)


def test_memory_between_elements_leaves_repeated_elements_out(variants):
    base = torch.arange(24.0)
    assert variants.between(base.as_strided((2, 3), (0, 4))).tolist() == [1, 2, 3, 5, 6, 7]
    assert variants.between(base.as_strided((9, 2), (0, 1))).tolist() == []
    assert variants.between(base.view(4, 6)[:2, :4]).tolist() == [4, 5]
    assert variants.between(base.view(4, 6).t()).tolist() == []
    assert variants.between(torch.tensor(1.0)).tolist() == []
    assert variants.between(torch.empty(0, 3)).tolist() == []


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64], ids=str)
@pytest.mark.parametrize("value", [0.0, 1.0, 100.0])
def test_a_nudge_tells_equal_elements_apart_and_stays_small(variants, dtype, value):
    whole = torch.full((8, 32), value).to(dtype)
    made = (whole.t(), torch.arange(3))
    moved, kept = variants.nudged(made, 5)
    assert (moved.dtype, moved.stride(), kept.tolist()) == (dtype, (1, 32), [0, 1, 2])
    wide = (torch.view_as_real(moved)[..., 0] if dtype.is_complex else moved).double()
    assert wide.unique().numel() > 2
    assert (wide - value).abs().max() <= 8 * torch.finfo(dtype).eps * max(value, 1.0)
    assert (whole.to(torch.complex64) == value).all() or dtype.itemsize == 1


def test_a_nudge_leaves_numbers_finite(variants):
    most = torch.finfo(torch.float16).max
    (moved,) = variants.nudged((torch.tensor([most, -most, float("inf")], dtype=torch.float16),), 0)
    assert moved[:2].isfinite().all()
