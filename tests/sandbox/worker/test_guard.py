# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Margins around inputs and allocations: where they lie, what they hold, and that host code works as without them."""

import contextlib
import subprocess
import sys

import pytest
import torch

from tritonforge.sandbox.isolation import WORKER_FOLDER

KEY = bytes([7, 201, 33, 94, 150, 61, 240, 18])
DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64, torch.complex128,
]  # fmt: skip
FLOATS = [dtype for dtype in DTYPES if dtype.is_floating_point or dtype.is_complex]


@pytest.fixture
def guards(guard):
    return guard.Guards("cpu", KEY)


@pytest.fixture
def broken(canary, guards):
    """What has changed in the margins, as (label, side, distance, bytes)."""

    def look():
        labels = guards.labels()
        found = canary.broken(guards.margins(), KEY)
        return [(labels[each["index"]], each["side"], each["distance"], each["bytes"]) for each in found]

    return look


def beside(tensor, first, count=1):
    """Elements of the storage that lie ``first`` elements from where ``tensor`` starts."""
    return tensor.detach().as_strided((count,), (1,), tensor.storage_offset() + first)


def numbers(dtype, *shape):
    return torch.randint(0, 2, shape).to(dtype)


# Inputs.


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_inputs_are_equal_copies_between_margins(guards, broken, dtype):
    inputs = (numbers(dtype, 3, 5), 7, [numbers(dtype, 4), None], {"k": numbers(dtype)})
    x, seven, (y, none), third = guards.place(inputs)
    assert (seven, none) == (7, None)
    for got, given in ((x, inputs[0]), (y, inputs[2][0]), (third["k"], inputs[3]["k"])):
        assert (got.dtype, got.shape, got.stride()) == (given.dtype, given.shape, given.stride())
        assert torch.equal(got, given)
        assert got.data_ptr() != given.data_ptr()
    assert guards.labels() == ["input[0]", "input[2][0]", "input[3]['k']"]
    assert guards.margins().shape == (3, 2, 16384)
    assert broken() == []
    beside(y, 4).view(torch.uint8).fill_(77)
    beside(x, -1).view(torch.uint8).fill_(77)
    size = dtype.itemsize
    assert broken() == [("input[0]", "before", 0, size), ("input[2][0]", "after", 0, size)]


@pytest.mark.parametrize(
    ("inputs", "names", "labels"),
    [
        ({"x": torch.ones(1), "n": 3, "y": [torch.ones(1)]}, (), ["input x", "input y[0]"]),
        ((torch.ones(1), torch.ones(1), (torch.ones(1),)), ("x", "y"), ["input x", "input y", "input[2][0]"]),
    ],
    ids=["by name", "by position"],
)
def test_inputs_are_labelled(guards, inputs, names, labels):
    guards.place(inputs, names=names)
    assert guards.labels() == labels


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[3:, 5:],
        lambda x: x[0].expand(6, 10),
        lambda x: x[2, 2],
        lambda x: x[5:5],
        lambda x: x.as_strided((3, 4), (1, 1)),
    ],
    ids=["transposed", "strided", "cut", "broadcast", "element", "empty", "overlapping"],
)
def test_strides_and_broadcasts_are_kept_and_the_margins_begin_at_the_outermost_elements(guards, broken, view):
    given = view(torch.arange(80.0).reshape(8, 10))
    (got,) = guards.place((given,))
    assert (got.shape, got.stride()) == (given.shape, given.stride())
    assert torch.equal(got, given)
    if got.numel():
        span = 1 + sum((size - 1) * stride for size, stride in zip(got.shape, got.stride(), strict=True))
        beside(got, 0, span).zero_()
        assert broken() == []
        beside(got, span).zero_()
        assert broken() == [("input[0]", "after", 0, 4)]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32, torch.complex128], ids=str)
@pytest.mark.parametrize("elements", [0, 1, 3])
def test_inputs_start_as_many_elements_later_as_asked_for(guards, broken, dtype, elements):
    (got,) = guards.place((numbers(dtype, 33),), elements)
    # torch aligns what it allocates on the CPU to 64 bytes.
    assert got.data_ptr() % 64 == elements * dtype.itemsize
    beside(got, -1).view(torch.uint8).fill_(77)
    beside(got, 33).view(torch.uint8).fill_(77)
    assert broken() == [("input[0]", "before", 0, dtype.itemsize), ("input[0]", "after", 0, dtype.itemsize)]


def test_inputs_that_want_gradients_are_leaves_and_no_views(guards):
    x, y = guards.place((torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(2))))
    (x.sum() + y.sum()).backward()
    assert x.is_leaf
    assert x._base is None
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    assert y.grad.tolist() == [1.0, 1.0]
    (z,) = guards.place((torch.ones(3),))
    assert not z.requires_grad


def test_new_contents_come_to_the_same_addresses_when_asked_for(guards, broken):
    first = guards.place((torch.ones(3, 4), torch.ones(5), torch.ones(2, 2), torch.ones(6)))
    beside(first[0], 12).zero_()
    given = (torch.full((3, 4), 2.0), torch.ones(6), torch.ones(2, 2).t(), torch.ones(6, dtype=torch.int32))
    again = guards.place(given, reuse=True)
    assert again[0].data_ptr() == first[0].data_ptr()
    # Another shape, other strides, another dtype.
    addresses = {tensor.data_ptr() for tensor in first}
    assert not {tensor.data_ptr() for tensor in again[1:]} & addresses
    assert all(torch.equal(got, want) for got, want in zip(again, given, strict=True))
    # What was stored beside the last contents says nothing about the call with these.
    assert broken() == []
    fresh = guards.place(given)
    assert fresh[0].data_ptr() != first[0].data_ptr()


def test_contents_at_another_offset_do_not_come_to_the_same_address(guards):
    (first,) = guards.place((torch.ones(3),))
    (again,) = guards.place((torch.ones(3),), 1, reuse=True)
    assert again.data_ptr() % 64 == 4
    assert first.data_ptr() != again.data_ptr()


# Allocations.

UNINITIALISED = {
    "torch.empty": lambda x: torch.empty(x.shape, dtype=x.dtype, device=x.device),
    "torch.empty_like": torch.empty_like,
    "torch.empty_strided": lambda x: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype),
    "torch.empty_permuted": lambda x: torch.empty_permuted(x.shape, (1, 0), dtype=x.dtype),
    "Tensor.new_empty": lambda x: x.new_empty(x.shape),
    "Tensor.new_empty_strided": lambda x: x.new_empty_strided(x.shape, x.stride()),
}
FILLED = {
    "torch.zeros": (lambda x: torch.zeros(x.shape, dtype=x.dtype), 0),
    "torch.zeros_like": (torch.zeros_like, 0),
    "Tensor.new_zeros": (lambda x: x.new_zeros(x.shape), 0),
    "torch.ones": (lambda x: torch.ones(x.shape, dtype=x.dtype), 1),
    "torch.ones_like": (torch.ones_like, 1),
    "Tensor.new_ones": (lambda x: x.new_ones(x.shape), 1),
    "torch.full": (lambda x: torch.full(x.shape, 1, dtype=x.dtype), 1),
    "torch.full_like": (lambda x: torch.full_like(x, 1), 1),
    "Tensor.new_full": (lambda x: x.new_full(x.shape, 1), 1),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", UNINITIALISED)
def test_uninitialised_allocations_are_poisoned_and_guarded(guards, broken, name, dtype):
    (x,) = guards.place((numbers(dtype, 3, 7),))
    with guards.watching():
        made = UNINITIALISED[name](x)
    assert (made.dtype, made.shape) == (x.dtype, x.shape)
    assert guards.labels() == ["input[0]", f"{str(dtype).removeprefix('torch.')} (3, 7) from {name}"]
    if dtype == torch.bool:
        assert set(made.flatten().tolist()) == {False, True}
    elif dtype in FLOATS:
        assert made.to(torch.complex128).isnan().all()
    else:
        assert set(made.flatten().tolist()) == {255 if dtype == torch.uint8 else -1}
    assert broken() == []
    beside(made, 21).view(torch.uint8).fill_(77)
    beside(made, -1).view(torch.uint8).fill_(77)
    assert [found[1:] for found in broken()] == [("before", 0, dtype.itemsize), ("after", 0, dtype.itemsize)]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz], ids=str)
def test_formats_with_a_single_nan_are_poisoned_with_it(guards, dtype):
    with guards.watching():
        made = torch.empty(5, dtype=dtype)
    assert made.float().isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", FILLED)
def test_filled_allocations_hold_their_values_between_margins(guards, broken, name, dtype):
    make, value = FILLED[name]
    x = numbers(dtype, 3, 7)
    with guards.watching():
        made = make(x)
    assert torch.equal(made, torch.full((3, 7), value, dtype=dtype))
    assert guards.labels() == [f"{str(dtype).removeprefix('torch.')} (3, 7) from {name}"]
    beside(made, 21).view(torch.uint8).fill_(77)
    assert [found[1:] for found in broken()] == [("after", 0, dtype.itemsize)]


@pytest.mark.parametrize(
    "clone",
    [
        torch.clone,
        lambda x: x.t().contiguous().t(),
        lambda x: x[:, :1].expand(4, 6).clone(),
        lambda x: x.conj().clone(),
    ],
    ids=["clone", "contiguous", "of a broadcast", "of a conjugate"],
)
def test_clones_hold_the_same_values(guards, clone):
    x = torch.randn(4, 6, dtype=torch.complex64)
    expected = clone(x)
    with guards.watching():
        made = clone(x)
    assert len(guards.labels()) == 1
    assert guards.labels()[0].startswith("complex64 (")
    assert guards.labels()[0].endswith(") from torch.clone")
    assert torch.equal(made, expected)
    assert (made.stride(), made.is_contiguous()) == (expected.stride(), expected.is_contiguous())


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.empty_like(x.t()),
        lambda x: torch.empty_like(x[:, ::2]),
        lambda x: torch.empty_like(x.expand(5, 4, 6)),
        lambda x: torch.empty_like(x, memory_format=torch.contiguous_format, dtype=torch.float16),
        lambda x: torch.empty((2, 3, 4, 5), memory_format=torch.channels_last),
        lambda x: torch.empty(3, device="cpu", pin_memory=False, requires_grad=True),
        lambda x: torch.zeros((), dtype=torch.int32),
        lambda x: torch.empty(0),
        lambda x: torch.empty((3, 0, 2), device=x.device),
        lambda x: torch.empty(5, device="meta"),
    ],
    ids=[
        "transposed", "strided", "broadcast", "memory format", "channels last", "gradient", "scalar", "none", "empty",
        "meta",
    ],
)  # fmt: skip
def test_allocations_have_the_geometry_that_they_have_without_guards(guards, broken, make):
    (x,) = guards.place((torch.randn(4, 6),))
    expected = make(x)
    with guards.watching():
        made = make(x)
    for attribute in ("shape", "dtype", "device", "requires_grad", "is_leaf"):
        assert getattr(made, attribute) == getattr(expected, attribute)
    assert made.stride() == expected.stride()
    assert made._base is None
    assert broken() == []


def test_the_line_that_allocated_is_named(guard, failures, tmp_path):
    file = tmp_path / "kernel.py"
    text = "import torch\n\ndef helper(x):\n    return torch.empty_like(x)\n\ndef entry(x):\n    return helper(x)\n"
    sources = failures.Sources()
    sources.add(str(file), "my_kernel.py", text)
    space = {}
    exec(compile(text, str(file), "exec"), space)
    guards = guard.Guards("cpu", KEY, sources)
    x = torch.ones(48, 781, dtype=torch.float16)
    with guards.watching():
        space["entry"](x)
        torch.empty(1)
    assert guards.labels() == [
        "float16 (48, 781) from torch.empty_like, my_kernel.py line 4",
        "float32 (1,) from torch.empty",
    ]


def test_what_a_call_allocated_is_held_until_the_next_begins(guards):
    with guards.watching():
        first = torch.empty(3).data_ptr()
        second = torch.empty(3).data_ptr()
    assert first != second
    assert len(guards.labels()) == len(guards.margins()) == 2
    with guards.watching():
        assert guards.labels() == []
    assert guards.margins().shape == (0, 2, 16384)


def test_memory_is_let_go_on_request(guards):
    guards.place((torch.ones(3),))
    with guards.watching():
        torch.empty(3)
    assert len(guards.labels()) == 2
    guards.release()
    assert guards.labels() == []
    assert guards.margins().shape == (0, 2, 16384)


def test_beyond_the_limits_allocations_are_poisoned_but_not_guarded(guard, guards, monkeypatch):
    monkeypatch.setattr(guard, "TENSORS_LIMIT", 2)
    with guards.watching():
        made = [torch.empty(3) for _ in range(5)]
    assert (len(guards.labels()), guards.unguarded) == (2, 3)
    assert all(tensor.isnan().all() for tensor in made)
    monkeypatch.setattr(guard, "HELD_LIMIT", 100_000)
    with guards.watching():
        torch.empty(20_000)
        torch.zeros(60_000 // 4)
        torch.zeros(60_000 // 4)
    assert (len(guards.labels()), guards.unguarded) == (1, 2)


def test_outside_of_the_context_nothing_is_changed(guards):
    with guards.watching():
        pass
    torch.empty(3).zero_()
    assert (guards.labels(), guards.operations) == ([], {})


def test_switched_off_nothing_is_guarded_or_recorded(guard, guards):
    with guards.watching():
        with guard.switched(False):
            torch.empty(3)
            torch.exp(torch.ones(3))
            with guard.switched(True):
                torch.zeros(2)
            torch.empty(3)
        with contextlib.suppress(KeyError), guard.switched(False):
            raise KeyError
        torch.ones(1)
    assert guards.labels() == ["float32 (2,) from torch.zeros", "float32 (1,) from torch.ones"]
    assert guards.operations == {}


@pytest.mark.parametrize(
    "make", [lambda: torch.empty(0), lambda: torch.zeros(3, 0), lambda: torch.empty(2, device="meta")]
)
def test_what_has_no_memory_needs_no_margins(guards, make):
    with guards.watching():
        make()
    assert (guards.labels(), guards.unguarded) == ([], 0)


def test_a_factory_that_fills_what_is_there_fills_it_in_its_place(guards, broken):
    with guards.watching():
        out = torch.empty(8)
        torch.ones(3, out=out[2:5])
    assert out[2:5].tolist() == [1.0, 1.0, 1.0]
    assert len(guards.labels()) == 1
    assert broken() == []


# Growth.


@pytest.mark.parametrize(
    "grow",
    [
        lambda out: out.resize_(8),
        lambda out: out.resize_(100_000),
        lambda out: out.resize_as_(torch.ones(8)),
        lambda out: out.untyped_storage().resize_(0),
        lambda out: torch.topk(torch.arange(9.0), 8, out=(out, torch.empty(0, dtype=torch.int64))),
    ],
    ids=["into the margin", "elsewhere", "as another", "to nothing", "out"],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_tensor_that_outgrows_its_memory_is_no_broken_margin(guards, broken, grow):
    with guards.watching():
        out = torch.empty(4)
        kept = torch.empty(3)
        grow(out)
        if out.untyped_storage().nbytes():
            out.fill_(1.0)
    beside(kept, 3).fill_(1.0)
    assert broken() == [("float32 (3,) from torch.empty", "after", 0, 4)]


def test_a_tensor_that_shrinks_or_is_written_by_an_operation_keeps_its_margins(guards, broken):
    with guards.watching():
        out = torch.empty(8)
        torch.add(torch.ones(4), 1, out=out[2:6])
        out.resize_(4)
    assert broken() == []
    beside(out, 8).fill_(1.0)
    assert broken() == [("float32 (8,) from torch.empty", "after", 0, 4)]


# Host code.


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        torch.mul(x, x, out=out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        out.copy_(grad * 2 * x)
        return out


def squared_gradient(x):
    leaf = x.clone().detach().requires_grad_()
    Square.apply(leaf).sum().backward()
    return leaf.grad


HOST_CODE = {
    "in place": lambda x: x.clone().add_(1).mul_(x).clamp_(-1, 1),
    "view": lambda x: x.view(24).reshape(6, 4).t().flatten(),
    "slices": lambda x: x[1:3, ::2] + x[:2, 1::2],
    "item assignment": lambda x: torch.zeros_like(x).index_put_((torch.tensor([1, 2]),), x[:2]),
    "cat": lambda x: torch.cat([x, torch.zeros_like(x), x.t().reshape(4, 6)], dim=0),
    "stack and split": lambda x: torch.stack(torch.split(x, 2)),
    "matmul": lambda x: x @ x.t().contiguous(),
    "out": lambda x: torch.matmul(x, x.t(), out=torch.empty(4, 4)),
    "out that grows": lambda x: torch.exp(x, out=torch.empty(0)),
    "dtypes": lambda x: x.half().to(torch.bfloat16).float(),
    "bits": lambda x: x.clone().view(torch.int32).view(torch.float32),
    "numpy": lambda x: torch.from_numpy(torch.full_like(x, 3).numpy() + x.numpy()),
    "numpy writes": lambda x: torch.from_numpy(x.clone().numpy().__iadd__(1)),
    "list": lambda x: torch.tensor(x.clone().tolist()),
    "deepcopy": lambda x: __import__("copy").deepcopy(x),
    "sort": lambda x: torch.sort(x, dim=1)[0],
    "masked": lambda x: torch.where(x > 0, x, torch.zeros((), dtype=x.dtype)),
    "complex": lambda x: torch.view_as_real(torch.complex(x, x.clone()).conj().resolve_conj()),
    "narrow strides": lambda x: x.as_strided((3, 2), (6, 1)).clone(),
    "data": lambda x: setattr(y := torch.ones(2, 2), "data", x.clone()) or y,
    "linear": lambda x: torch.nn.functional.linear(x, torch.ones(3, 6), torch.full((3,), 0.5)),
    "norm": lambda x: torch.nn.functional.layer_norm(x, (6,), torch.ones(6), torch.zeros(6)),
    "gradient": squared_gradient,
    "autograd": lambda x: torch.autograd.grad((y := x.clone().requires_grad_()).exp().sum(), y)[0],
}


@pytest.mark.parametrize("name", HOST_CODE)
def test_host_code_computes_what_it_computes_without_guards(guards, broken, name):
    x = torch.randn(4, 6)
    expected = HOST_CODE[name](x)
    (placed,) = guards.place((x,))
    with guards.watching():
        got = HOST_CODE[name](placed)
    assert got.shape == expected.shape
    assert torch.equal(got, expected)
    assert torch.equal(placed, x)
    assert broken() == []


def test_leaves_among_the_inputs_get_their_gradients(guards, broken):
    (x,) = guards.place((torch.arange(4.0).requires_grad_(),))
    with guards.watching():
        out = Square.apply(x)
        out.backward(torch.full((4,), 2.0))
    assert x.grad.tolist() == [0.0, 4.0, 8.0, 12.0]
    assert out.grad_fn is not None
    assert broken() == []
    assert {label.split(" from ")[1] for label in guards.labels()[1:]} >= {"torch.empty_like", "torch.empty"}


def test_code_for_cuda_served_from_the_cpu_is_guarded(guards, broken, worker):
    (x,) = guards.place((torch.ones(5),))
    with worker.remap.cuda_on_cpu(90, 132, "h100"), guards.watching():
        out = torch.empty(5, device="cuda", pin_memory=True)
        assert out.is_cuda
        same = torch.empty_like(x, device=x.device)
        out.copy_(x).add_(1)
    assert len(guards.labels()) == 3
    assert set(guards.operations) == {"aten.copy_", "aten.add_"}
    beside(same, -1).zero_()
    assert [found[:2] for found in broken()] == [("float32 (5,) from torch.empty_like", "before")]


# Operations.


def test_operations_that_compute_are_counted_and_others_are_not(guards):
    x = torch.randn(4, 4)
    with guards.watching():
        y = torch.empty_like(x)
        torch.mm(x, x.t(), out=y)
        y = torch.mm(y, x) @ x
        y[0].add_(1)
        y.view(2, 8).unsqueeze(0).transpose(1, 2).detach().squeeze_().as_strided((1,), (1,)).item()
        torch.empty(3, device="meta").zero_()
    assert guards.operations == {"aten.mm": 3, "aten.add_": 1}


def test_the_names_of_operations_are_bounded(guard, guards, monkeypatch):
    monkeypatch.setattr(guard, "OPERATIONS_LIMIT", 2)
    x = torch.ones(3)
    with guards.watching():
        for operation in (torch.exp, torch.log, torch.sin, torch.exp):
            operation(x)
    assert guards.operations == {"aten.exp": 2, "aten.log": 1}


def test_custom_operators_are_guarded_and_recorded_inside(guards):
    @torch.library.custom_op("tritonforge_test::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape, dtype=x.dtype)
        return torch.add(x, x, out=out)

    with guards.watching():
        got = doubled(torch.ones(3))
    assert got.tolist() == [2.0, 2.0, 2.0]
    assert "float32 (3,) from torch.empty" in guards.labels()
    assert guards.operations == {"tritonforge_test.doubled": 1, "aten.add": 1}


# Helpers.


def test_the_extent_of_a_view_is_where_its_elements_lie(guard):
    x = torch.zeros(8, 10)
    start = x.data_ptr()
    assert guard.extent(x) == (start, start + 320)
    assert guard.extent(x[2:, 1:].t()) == (start + 84, start + 320)
    assert guard.extent(x[:1].expand(5, 10)) == (start, start + 40)
    assert guard.extent(x[1, ::3].half()[0:0])[0] == guard.extent(x[0:0])[1]


def test_watching_imports_nothing_slow():
    script = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("worker_main", {str(WORKER_FOLDER / "__main__.py")!r})
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
main._load_package()
import torch
known = set(sys.modules)
from tritonforge_worker import canary, guard
guards = guard.Guards("cpu", b"12345678")
(x,) = guards.place((torch.ones(3, requires_grad=True),))
with guards.watching():
    y = torch.empty_like(x)
    (x + torch.cat([y.fill_(1)])).sum().backward()
    torch.empty(2, device="meta")
assert canary.broken(guards.margins(), b"12345678") == []
print(sorted(name for name in set(sys.modules) - known if not name.startswith("tritonforge_worker")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
