"""The interpreter: kernels run on the CPU, and what it would get wrong is refused."""

import json
import struct
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.sandbox.conftest import H100, KERNEL_HEAD, Floats, Load, vector
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.protocol import Blob
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.workers import Call, KernelWorker, interpreter_worker

pytestmark = pytest.mark.anyio

DOUBLED = [2.0 * number for number in range(100)]


@pytest.fixture(scope="module")
async def kernels(executor: Executor) -> AsyncGenerator[KernelWorker]:
    """One worker for all files here: none of them does harm."""
    async with interpreter_worker(executor, target=H100) as worker:
        yield worker


@pytest.fixture
def call(kernels: KernelWorker, load: Load, floats: Floats):
    """Loads `KERNEL_HEAD` and an entry, and calls it on a vector of 100."""

    async def run(entry: str, inputs: Values | None = None, **task: Any) -> Values:
        await load(kernels, KERNEL_HEAD + entry, **task)
        await kernels.set_inputs(inputs if inputs is not None else floats(100))
        return outputs(await kernels.call())

    return run


@pytest.fixture
def refused(call: Any):
    """The outcome of an entry that can't be run."""

    async def run(entry: str) -> tuple[Kind, Problem]:
        with pytest.raises(Stopped) as caught:
            await call(entry)
        return caught.value.kind, caught.value.problem

    return run


def outputs(called: Call) -> Values:
    """What the entry returned, without its inputs; the first blobs are its own."""
    tree = dict(called.values.tree["dict"])["outputs"]
    return Values(tree, called.values.blobs[: json.dumps(tree).count('"blob"')])


def numbers(blob: Blob) -> list[float]:
    assert isinstance(blob, bytes)
    return list(struct.unpack(f"={len(blob) // 4}f", blob))


async def test_results_are_those_of_the_kernel(call: Any) -> None:
    values = await call("def entry(x):\n    return launch(x, torch.empty_like(x))\n")
    assert values.tree == vector(100, 0)
    assert numbers(values.blobs[0]) == DOUBLED


async def test_triton_s_language_is_looked_through_for_the_first_launch_only(call: Any) -> None:
    entry = """
def entry(x):
    out = launch(x, torch.empty_like(x))
    import inspect
    look, inspect.getmembers = inspect.getmembers, None
    try:
        return launch(x, out)
    finally:
        inspect.getmembers = look
"""
    assert numbers((await call(entry)).blobs[0]) == DOUBLED


@pytest.mark.parametrize(
    "host",
    [
        "assert x.is_cuda and x.device == torch.device('cuda', 0)",
        "x = x.cuda()",
        "assert torch.empty(4, device='cuda').is_cuda",
        "assert torch.cuda.get_device_properties(x.device).multi_processor_count == 132",
        "with torch.cuda.device(0):\n        torch.cuda.synchronize()",
        "assert triton.runtime.driver.active.get_active_torch_device().type == 'cuda'",
    ],
)
async def test_host_code_written_for_cuda_runs(call: Any, host: str) -> None:
    values = await call(f"def entry(x):\n    {host}\n    return launch(x, torch.empty_like(x, device='cuda'))\n")
    # Outside of the entry the tensor is what it is, on the CPU.
    assert values.tree == vector(100, 0)
    assert numbers(values.blobs[0]) == DOUBLED


async def test_outputs_in_place_are_the_mutated_arguments_by_name(call: Any, floats: Floats) -> None:
    entry = "def entry(x, out):\n    launch(x, out)\n    return 'ignored'\n"
    values = await call(entry, floats(100, 100), in_place=["out"])
    assert values.tree == {"dict": [["out", vector(100, 0)]]}
    assert numbers(values.blobs[0]) == DOUBLED


async def test_a_call_leaves_the_inputs_of_the_next_one_alone(kernels: KernelWorker, call: Any) -> None:
    first = await call("def entry(x):\n    launch(x, x)\n    return x\n")
    again = outputs(await kernels.call())
    assert numbers(first.blobs[0]) == numbers(again.blobs[0]) == DOUBLED


async def test_an_argument_in_place_that_the_entry_lacks_is_rejected(call: Any) -> None:
    with pytest.raises(Stopped) as caught:
        await call("def entry(x):\n    pass\n", in_place=["out"])
    assert caught.value.kind is Kind.REJECTED
    assert caught.value.problem.message == "IN_PLACE names ['out']; the arguments are ['x']"


async def test_inputs_by_name_and_outputs_by_name(call: Any, floats: Floats) -> None:
    inputs = Values({"dict": [["b", vector(2, 1)], ["a", vector(3, 0)]]}, floats(3, 2).blobs)
    values = await call(
        "def entry(*, a, b):\n    return {'sum': a.sum(), 'twice': launch(b, torch.empty_like(b))}\n", inputs
    )
    assert [key for key, _ in values.tree["dict"]] == ["sum", "twice"]
    assert [numbers(blob) for blob in values.blobs] == [[3.0], [0.0, 2.0]]


async def test_several_outputs_and_none_tensors_keep_their_order(call: Any) -> None:
    values = await call("def entry(x):\n    return launch(x, torch.empty_like(x)), [3, None], x[:2]\n")
    first, second, third = values.tree["tuple"]
    assert (first["blob"], third["blob"]) == (0, 1)
    assert second == {"list": [{"value": 3}, {"value": None}]}
    assert numbers(values.blobs[1]) == [0.0, 1.0]


async def test_loops_with_bounds_known_only_at_run_time_work(call: Any) -> None:
    entry = """\
@triton.jit
def total(x_ptr, out_ptr, n):
    acc = 0.0
    for i in range(n):
        acc += tl.load(x_ptr + i)
    tl.store(out_ptr, acc)

def entry(x):
    out = torch.zeros(1)
    total[(1,)](x, out, x.numel())
    return out
"""
    assert numbers((await call(entry)).blobs[0]) == [4950.0]


async def test_an_autotuned_kernel_runs_its_first_configuration(call: Any) -> None:
    entry = """\
tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"])(double)

def entry(x):
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    assert tuned.best_config.kwargs == {"BLOCK": 32}
    return out
"""
    assert numbers((await call(entry)).blobs[0]) == DOUBLED


async def test_heuristics_choose_as_on_a_gpu(call: Any) -> None:
    entry = """\
guided = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(double)

def entry(x):
    out = torch.empty_like(x)
    guided[(1,)](x, out, x.numel())
    return out
"""
    assert numbers((await call(entry)).blobs[0]) == DOUBLED


DOT = """\
@triton.jit
def product(x_ptr, out_ptr, KIND: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    ones = tl.full((16, 16), 1.0, tl.float32).to(KIND)
    tl.store(out_ptr + at, tl.dot(ones, ones))

def entry(x):
    out = torch.empty(16, 16)
    product[(1,)](x, out, KIND=tl.{kind})
    return out
"""


@pytest.mark.parametrize("kind", ["float16", "float32", "bfloat16"])
async def test_a_dot_is_computed(call: Any, kind: str) -> None:
    values = await call(DOT.format(kind=kind))
    assert numbers(values.blobs[0]) == [16.0] * 256


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("torch.cuda.CUDAGraph()", "records a CUDA graph"),
        ("torch.Generator(device='cuda')", "ATen_cuda"),
        ("triton.runtime.driver.active.utils", "asks Triton's driver for 'utils'"),
    ],
)
async def test_what_only_a_gpu_can_answer_is_unsupported(refused: Any, host: str, words: str) -> None:
    kind, problem = await refused(f"def entry(x):\n    {host}\n")
    assert kind is Kind.UNSUPPORTED
    assert words in problem.message


@pytest.mark.parametrize(
    ("body", "words", "line"),
    [
        ("    y = tl.load(x_ptr) * UNKNOWN", "NameError: name 'UNKNOWN' is not defined", 4),
        ("    y = tl.arange(0, 48)", "arange's range must be a power of 2", 4),
        ("    y = tl.arange(0, 16) + tl.arange(0, 32)", "Cannot make_shape_compatible", 4),
    ],
)
async def test_an_exception_in_a_kernel_is_placed_in_it(refused: Any, body: str, words: str, line: int) -> None:
    entry = f"@triton.jit\ndef odd(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n    # A comment.\n{body}\n\n"
    kind, problem = await refused(entry + "def entry(x):\n    launch(x, x, odd)\n")
    assert kind is Kind.RUNTIME_ERROR
    assert words in problem.message
    assert (problem.file, problem.line) == ("kernel.py", KERNEL_HEAD.count("\n") + line)
    assert problem.likely_fix


@pytest.mark.parametrize("returned", ["object()", "{1, 2}", "torch.device('cpu')"])
async def test_a_result_that_is_no_data_is_rejected(refused: Any, returned: str) -> None:
    kind, problem = await refused(f"def entry(x):\n    return [{returned}]\n")
    assert (kind, problem.stage) == (Kind.REJECTED, "run")
    assert problem.message.startswith("the entry's result[0] is a ")
