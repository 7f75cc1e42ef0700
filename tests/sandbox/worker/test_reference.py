# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""A reference in double precision, and gradients of whatever is called."""

import subprocess
import sys
import types

import pytest
import torch

from tritonforge.sandbox.isolation import WORKER_FOLDER


@pytest.fixture
def exact(reference):
    def run(function, *inputs, **options):
        outputs, reason = reference.exact(function, inputs, (), **options)
        assert reason is None
        return outputs

    return run


HALF = torch.linspace(-2, 2, 12, dtype=torch.float16).view(3, 4)
WIDE = HALF.double()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x.float(), -1).to(x.dtype),
        lambda x: torch.softmax(x, -1, dtype=torch.float32).half(),
        lambda x: torch.softmax(x.to(torch.float32), -1).to(torch.float16),
        lambda x: torch.softmax(x.to(dtype=torch.bfloat16), -1).bfloat16(),
        lambda x: torch.softmax(x.type(torch.float32), -1).type("torch.HalfTensor"),
        lambda x: torch.softmax(x.type(torch.FloatTensor), -1),
        lambda x: torch.nn.functional.softmax(x.float(), -1, dtype=torch.float32),
        lambda x: torch.softmax(x.type_as(torch.ones(1, dtype=torch.float32)), -1),
        lambda x: torch.softmax(torch.zeros(3, 4) + x.to(torch.float8_e4m3fn), -1),
    ],
    ids=["float", "dtype", "to", "bfloat16", "type", "FloatTensor", "functional", "type_as", "factory"],
)
def test_narrower_types_that_a_reference_names_are_double_precision(exact, function):
    assert torch.allclose(exact(function, HALF), torch.softmax(WIDE, -1), rtol=1e-15, atol=0)


def test_complex_types_are_double_precision_too(exact):
    z = torch.tensor([1 + 2j, 0.1 - 1j], dtype=torch.complex64)
    result = exact(lambda z: (z / 3).to(torch.complex64), z)
    assert result.dtype == torch.complex128
    assert torch.equal(result, z.to(torch.complex128) / 3)
    assert exact(lambda x: x.cfloat(), HALF).dtype == torch.complex128


def test_integers_booleans_and_plain_values_stay_what_they_are(exact):
    found = exact(
        lambda x, index, mask, dtype, factor: {"at": index, "mask": mask, "y": x.to(dtype) * factor, "n": 3},
        HALF, torch.arange(3), HALF > 0, torch.float16, 2.0,
    )  # fmt: skip
    assert (found["at"].dtype, found["mask"].dtype, found["n"]) == (torch.int64, torch.bool, 3)
    assert torch.equal(found["y"], WIDE * 2)


def test_inputs_stay_as_they_are_and_keep_their_strides(exact):
    seen = []

    def function(x, y, wide):
        seen.extend([x.stride(), y.stride(), x.dtype])
        x.zero_()
        wide.zero_()

    x, y = HALF.clone().t(), HALF[:1].expand(5, 4)
    wide = torch.ones(2, dtype=torch.float64)
    exact(function, x, y, wide)
    assert seen == [(1, 4), (0, 1), torch.float64]
    assert torch.equal(x, HALF.t())
    assert torch.equal(wide, torch.ones(2, dtype=torch.float64))


def test_outputs_in_place_are_exact_too(reference):
    def function(x, out):
        out.copy_(x.float() / 3)

    outputs, reason = reference.exact(function, (HALF, torch.zeros(3, 4, dtype=torch.float16)), ["out"])
    assert reason is None
    assert torch.equal(outputs["out"], WIDE / 3)


def test_default_types_are_restored(exact, reference):
    assert exact(lambda: torch.ones(2) / 3).dtype == torch.float64
    reference.exact(lambda: 1 / 0, (), ())
    assert torch.get_default_dtype() == torch.float32
    assert torch.ones(1).float().dtype == torch.float32


WEIGHT = torch.ones(4, 4)


class Kernel(Exception):
    """Stands for Triton's base of errors."""


def refuse(error):
    raise error


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x @ WEIGHT, "the reference does not work in float64: RuntimeError: expected"),
        (lambda x: x.view(torch.int16), "NotImplementedError: view(dtype)"),
        (lambda x: x.view(dtype=torch.int16), "NotImplementedError: view(dtype)"),
        (lambda x: refuse(TypeError("no\ndoubles")), "the reference does not work in float64: TypeError: no"),
        (lambda x: refuse(KeyError("float64")), "KeyError: 'float64'"),
        (lambda x: refuse(AssertionError()), "AssertionError: "),
        (lambda x: refuse(torch.OutOfMemoryError("CUDA out of memory")), "OutOfMemoryError: CUDA out of memory"),
        (lambda x: refuse(RuntimeError("long " * 1000)), "RuntimeError: long long"),
        (lambda x: (x, WEIGHT), "the reference returns float32 where its inputs are float64"),
    ],
    ids=["mixed", "view", "view by name", "TypeError", "KeyError", "assertion", "memory", "long", "narrow output"],
)
def test_a_reference_that_has_no_double_precision_says_why(reference, function, message):
    outputs, reason = reference.exact(function, (HALF,), ())
    assert outputs is None
    assert message in reason
    assert len(reason) <= 300
    assert "\n" not in reason


def test_a_kernel_that_is_not_made_for_double_precision_is_a_reason(reference, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton.errors", types.SimpleNamespace(TritonError=Kernel))
    assert reference.exact(lambda x: refuse(Kernel("no fp64")), (HALF,), ()) == (
        None, "the reference does not work in float64: Kernel: no fp64",
    )  # fmt: skip


def test_a_reference_that_is_broken_in_another_way_is_not_excused(reference):
    with pytest.raises(Kernel):
        reference.exact(lambda x: refuse(Kernel("broken")), (HALF,), ())


class Cube(torch.autograd.Function):
    """A function with a backward of its own, as kernels have it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.detach() ** 3

    @staticmethod
    def backward(ctx, upstream):
        return 3 * ctx.saved_tensors[0] ** 2 * upstream


def test_gradients_of_a_function_with_a_backward_of_its_own(reference):
    x, upstream = torch.tensor([1.0, -2.0]), torch.tensor([1.0, 10.0])
    found = reference.gradients(Cube.apply, (x,), (), [upstream])
    assert torch.equal(found["outputs"], torch.tensor([1.0, -8.0]))
    assert torch.equal(found["gradients"]["0"], torch.tensor([3.0, 120.0]))
    assert not found["outputs"].requires_grad
    assert not x.requires_grad
    assert x.grad is None


@pytest.mark.parametrize("several", [False, True])
def test_an_output_that_carries_no_gradient_is_refused_with_the_remedy(reference, worker, several):
    def function(x):
        return (x * 2, x.detach()) if several else x.detach()

    upstream = [torch.ones(2)] * (2 if several else 1)
    with pytest.raises(worker.failures.Refused) as caught:
        reference.gradients(function, (torch.ones(2),), (), upstream)
    assert (caught.value.kind, caught.value.stage) == ("rejected", "run")
    start = "output 1" if several else "the output"
    assert str(caught.value).startswith(f"{start} does not carry a gradient: wrap the launches in a torch.autograd.")


def test_inputs_that_require_a_gradient_are_the_ones_that_get_one(reference):
    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    found = reference.gradients(lambda x, y: x * y, (x, y), (), [torch.ones(2)])
    assert list(found["gradients"]) == ["0"]
    assert x.requires_grad
    assert not y.requires_grad


def test_places_of_gradients_are_the_same_whatever_parameters_are_called(reference):
    inputs = ([torch.ones(2), {"w": torch.ones(2)}], torch.arange(2), torch.ones(2))
    found = reference.gradients(lambda a, i, b: a[0] * a[1]["w"] * b, inputs, (), [torch.ones(2)])
    assert list(found["gradients"]) == ["0[0]", "0[1]['w']", "2"]
    named = reference.gradients(lambda *, y, x: x * y, {"x": torch.ones(2), "y": torch.ones(2)}, (), [torch.ones(2)])
    assert list(named["gradients"]) == ["x", "y"]


def test_an_argument_in_place_is_an_output_with_a_gradient_and_no_input(reference):
    def function(x, out):
        out.copy_(x * 3)

    out = torch.zeros(2)
    found = reference.gradients(function, (torch.ones(2), out), ["out"], [torch.ones(2)])
    assert torch.equal(found["outputs"]["out"], torch.full((2,), 3.0))
    assert list(found["gradients"]) == ["0"]
    assert torch.equal(found["gradients"]["0"], torch.full((2,), 3.0))


@pytest.mark.parametrize(
    "returned", [lambda x: (x[:1] * 2).sum(), lambda x: (x * 2).double(), lambda x: x.long(), lambda x: None]
)
def test_outputs_of_another_form_are_left_to_the_comparison(reference, returned):
    found = reference.gradients(returned, (torch.ones(2),), (), [torch.ones(2)])
    assert found["gradients"] == {"0": None}


def test_a_function_without_floating_inputs_has_no_gradients(reference):
    found = reference.gradients(lambda i: i + 1, (torch.arange(2),), (), [None])
    assert found["gradients"] == {}


def test_gradients_in_double_precision(reference):
    outputs, reason = reference.exact(lambda x: (x.float() ** 3).half(), (HALF,), (), upstream=[torch.ones_like(HALF)])
    assert reason is None
    assert torch.allclose(outputs["gradients"]["0"], 3 * WIDE**2, rtol=1e-15, atol=0)
    outputs, reason = reference.exact(lambda x: x.detach(), (HALF,), (), upstream=[torch.ones_like(HALF)])
    assert (outputs, reason[:39]) == (None, "the reference does not work in float64:")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.complex64, torch.float8_e4m3fn])
def test_upstream_gradients_have_the_outputs_type_and_shape(reference, dtype):
    output = torch.zeros(3, 5).to(dtype).requires_grad_()
    (drawn,) = reference.draw_upstream(output, 7)
    assert (drawn.dtype, drawn.shape) == (dtype, output.shape)
    assert drawn.to(torch.complex128).abs().min() > 0
    (again,), (other,) = (reference.draw_upstream([output], seed) for seed in (7, 8))
    assert torch.equal(again.view(torch.uint8), drawn.view(torch.uint8))
    assert not torch.equal(other.view(torch.uint8), drawn.view(torch.uint8))


def test_double_precision_loads_no_compiler(tmp_path):
    """Imports of torch's compiler, or of what it builds on, take a second."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import importlib, importlib.util, sys, types\n"
        f"spec = importlib.util.spec_from_file_location('worker_main', {str(WORKER_FOLDER / '__main__.py')!r})\n"
        "main = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(main)\n"
        "main._load_package()\n"
        "task = importlib.import_module('tritonforge_worker.task')\n"
        "import torch\n"
        "module = types.SimpleNamespace(ENTRY='f', CASES={'a': {}}, __doc__=None, SPECIAL_VALUES=['nan', 'inf'],\n"
        "    make_inputs=lambda device: (torch.randn(8, 8),), reference=lambda x: torch.softmax(x.float(), -1))\n"
        "found = task.Task(module, 'cpu').audit('a', 1)\n"
        "assert found['exact'] is None and len(found['variants']) == 10, found\n"
        "print([name for name in ('sympy', 'torch._dynamo', 'torch.fx.experimental.symbolic_shapes')\n"
        "       if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[]\n", "")
