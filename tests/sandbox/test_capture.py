"""Capture: the launches of an entry, compiled for a target that this machine need not have."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.sandbox.conftest import H100, INNER_AT_FAULT, KERNEL_HEAD, Floats, Load, vector
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.facts import Capture, TargetFacts
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.workers import KernelWorker, capture_worker

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def kernels(executor: Executor) -> AsyncGenerator[KernelWorker]:
    """One worker for all files here: none of them does harm."""
    async with capture_worker(executor, target=H100) as worker:
        yield worker


@pytest.fixture
def capture(kernels: KernelWorker, load: Load, floats: Floats):
    """Loads `KERNEL_HEAD` and an entry, and captures one call of it on a vector of 1,000."""

    async def run(entry: str, inputs: Values | None = None, **task: Any) -> Capture:
        await load(kernels, KERNEL_HEAD + entry, **task)
        await kernels.set_inputs(inputs if inputs is not None else floats(1000))
        return await kernels.capture()

    return run


@pytest.fixture
def refused(capture: Any):
    """The outcome of an entry that can't be captured."""

    async def run(entry: str, inputs: Values | None = None) -> tuple[Kind, Problem]:
        with pytest.raises(Stopped) as caught:
            await capture(entry, inputs)
        return caught.value.kind, caught.value.problem

    return run


async def test_a_launch_is_recorded_with_its_parameters_and_compiled(capture: Any) -> None:
    captured = await capture(
        "def entry(x):\n    out = torch.empty_like(x)\n    launch(x, out, num_warps=2)\n    return out\n"
    )
    (launch,) = captured.launches
    assert (launch.kernel, launch.grid, launch.count, launch.tuning) == ("double", (16, 1, 1), 1, False)
    assert (launch.num_warps, launch.num_ctas, launch.shared_bytes) == (2, 1, 0)
    assert launch.constexprs == {"BLOCK": 64}
    assert launch.signature == {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    assert launch.integers == {"n": 1000}
    assert launch.line == 6
    assert ".target sm_90a" in captured.text(launch, "ptx")
    assert "tt.func public @double" in captured.text(launch, "ttgir")
    assert "registers" in (launch.ptxas_log or "")


async def test_divisibility_by_16_is_specialized_as_for_a_real_launch(capture: Any, floats: Floats) -> None:
    entry = "def entry(x):\n    launch(x, torch.empty_like(x))\n"
    (ragged,) = (await capture(entry, floats(1000))).launches
    (even,) = (await capture(entry, floats(1024))).launches
    assert ragged.divisible_by_16 == ["x_ptr", "out_ptr"]
    assert even.divisible_by_16 == ["x_ptr", "out_ptr", "n"]


async def test_equal_launches_are_counted_and_others_kept_apart(capture: Any) -> None:
    entry = """\
def entry(x):
    out = torch.empty_like(x)
    for _ in range(3):
        launch(x, out)
    launch(x, out, num_warps=1)
    launch(x[:64], out)
"""
    launches = (await capture(entry)).launches
    assert [(launch.grid[0], launch.num_warps, launch.count) for launch in launches] == [
        (16, 4, 3),
        (16, 1, 1),
        (1, 4, 1),
    ]


async def test_several_kernels_of_an_entry_are_captured_in_order(capture: Any) -> None:
    entry = """\
@triton.jit
def add(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)

def entry(x):
    middle = torch.empty_like(x)
    launch(x, middle)
    out = torch.empty_like(x)
    launch(middle, out, add)
    return out
"""
    launches = (await capture(entry)).launches
    assert [launch.kernel for launch in launches] == ["double", "add"]
    assert [launch.line for launch in launches] == [6, KERNEL_HEAD.count("\n") + 1]


async def test_an_entry_without_a_launch_has_none(capture: Any) -> None:
    assert (await capture("def entry(x):\n    return x + 1\n")).launches == []


async def test_each_capture_starts_anew(kernels: KernelWorker, load: Load, floats: Floats) -> None:
    await load(kernels, KERNEL_HEAD + "def entry(x):\n    launch(x, torch.empty_like(x), num_warps=8)\n")
    for size in (64, 128):
        await kernels.set_inputs(floats(size))
        (launch,) = (await kernels.capture()).launches
        assert launch.grid == (size // 64, 1, 1)
        assert "registers" in (launch.ptxas_log or "")


@pytest.mark.parametrize(
    "host",
    [
        "assert x.is_cuda",
        "assert x.device.type == 'cuda' and x.device.index == 0 and x.get_device() == 0",
        "assert x.device == torch.device('cuda:0') and torch.device('cuda').type == 'cuda'",
        "assert torch.empty(4, device='cuda').is_cuda",
        "assert torch.empty(4, device='cuda:0').device == x.device",
        "assert torch.empty(4, device=torch.device('cuda')).is_cuda",
        "assert torch.zeros(4, device=x.device).is_cuda and torch.zeros_like(x, device='cuda').is_cuda",
        "assert torch.empty(4, device=torch.cuda.current_device()).is_cuda",
        "assert torch.empty(4).cuda().is_cuda and torch.empty(4).to('cuda').is_cuda",
        "assert torch.empty(4).to(device='cuda', dtype=torch.float16, non_blocking=True).dtype is torch.float16",
        "with torch.device('cuda'):\n        assert torch.empty(4).is_cuda",
        "with torch.cuda.device(x.device):\n        torch.cuda.synchronize()",
        "torch.empty(4, pin_memory=True).cuda(non_blocking=True)",
        "assert torch.cuda.is_available() and torch.cuda.device_count() == 1",
        "assert torch.cuda.get_device_properties(0).multi_processor_count == 132",
        "assert torch.cuda.get_device_capability() == (9, 0) and torch.cuda.get_device_name() == 'h100-sxm'",
        "assert triton.runtime.driver.active.get_active_torch_device() == torch.device('cuda', 0)",
        "assert triton.runtime.driver.active.utils.get_device_properties(0)['multiprocessor_count'] == 132",
        "assert triton.runtime.driver.active.get_current_target().arch == 90",
        "with torch.cuda.stream(torch.cuda.Stream()):\n        torch.cuda.current_stream().synchronize()",
        "event = torch.cuda.Event(enable_timing=True)\n    event.record()",
    ],
)  # fmt: skip
async def test_host_code_written_for_cuda_runs(capture: Any, host: str) -> None:
    captured = await capture(f"def entry(x):\n    {host}\n    launch(x, torch.empty_like(x))\n")
    assert [launch.kernel for launch in captured.launches] == ["double"]


async def test_module_level_code_written_for_cuda_runs(capture: Any) -> None:
    entry = """\
DEVICE = triton.runtime.driver.active.get_active_torch_device()
TABLE = torch.arange(64, device="cuda")
SMS = torch.cuda.get_device_properties("cuda").multi_processor_count
def entry(x):
    out = torch.empty(1000, device=DEVICE)
    double[(SMS,)](x, out, 1000, BLOCK=64)
"""
    assert (await capture(entry)).launches[0].grid == (132, 1, 1)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("torch.cuda.Event().elapsed_time(torch.cuda.Event())", "measures time with CUDA events"),
        ("torch.cuda.CUDAGraph()", "records a CUDA graph"),
        ("torch.cuda.memory_allocated()", "how much GPU memory is in use"),
        ("torch.Generator(device='cuda')", "ATen_cuda"),
        ("for _ in range(10_001):\n        launch(x, x)", "more than 10000 launches"),
    ],
)
async def test_what_only_a_gpu_can_answer_is_unsupported(refused: Any, host: str, words: str) -> None:
    kind, problem = await refused(f"def entry(x):\n    {host}\n")
    assert kind is Kind.UNSUPPORTED
    assert words in problem.message
    assert problem.likely_fix
    assert problem.line is not None


async def test_device_properties_of_a_bare_architecture_are_unsupported(
    executor: Executor, load: Load, floats: Floats
) -> None:
    bare = TargetFacts.model_validate({**H100.model_dump(), "name": "sm_80", "capability": 80, "sm_count": None})
    async with capture_worker(executor, target=bare) as kernels:
        text = (
            KERNEL_HEAD
            + "def entry(x):\n    if {ask}:\n        torch.cuda.get_device_properties(0)\n    launch(x, x)\n"
        )
        await load(kernels, text.format(ask=False))
        await kernels.set_inputs(floats(64))
        captured = await kernels.capture()
        assert ".target sm_80" in captured.text(captured.launches[0], "ptx")
        await load(kernels, text.format(ask=True))
        with pytest.raises(Stopped) as caught:
            await kernels.capture()
    assert caught.value.kind is Kind.UNSUPPORTED
    assert "which target sm_80 does not define" in caught.value.problem.message


async def test_an_autotuned_kernel_keeps_its_first_configuration_and_marks_the_trials(capture: Any) -> None:
    entry = """\
tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (128, 256, 512)], key=["n"])(double)

def entry(x):
    tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, torch.empty_like(x), 1000)
"""
    launches = (await capture(entry)).launches
    trials = {launch.constexprs["BLOCK"] for launch in launches if launch.tuning}
    assert trials == {128, 256, 512}
    assert [(launch.constexprs["BLOCK"], launch.grid[0]) for launch in launches if not launch.tuning] == [(128, 8)]


async def test_heuristics_choose_as_for_a_real_launch(capture: Any) -> None:
    entry = """\
guided = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(double)

def entry(x):
    guided[(1,)](x, torch.empty_like(x), 1000)
"""
    (launch,) = (await capture(entry)).launches
    assert launch.constexprs == {"BLOCK": 1024}


async def test_constants_that_json_lacks_are_told_in_words(capture: Any) -> None:
    entry = """\
@triton.jit
def fill(out_ptr, LOW: tl.constexpr, KIND: tl.constexpr):
    tl.store(out_ptr, tl.full((), LOW, KIND))

def entry(x):
    fill[(1,)](x, LOW=float("-inf"), KIND=tl.float32)
"""
    (launch,) = (await capture(entry)).launches
    assert launch.constexprs == {"LOW": "-inf", "KIND": "fp32"}


async def test_inputs_by_name_reach_the_entry(capture: Any, floats: Floats) -> None:
    inputs = Values({"dict": [["out", vector(64, 1)], ["x", vector(64, 0)]]}, floats(64, 64).blobs)
    captured = await capture("def entry(*, x, out):\n    launch(x, out)\n", inputs)
    assert captured.launches[0].grid == (1, 1, 1)


async def test_a_compile_error_is_placed_in_the_function_at_fault(refused: Any) -> None:
    entry = """\
def factory():
    @triton.jit
    def outer(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        # A comment between.
        tl.store(out_ptr, inner(tl.load(x_ptr)))

    return outer


def entry(x):
    launch(x, torch.empty_like(x), factory())
"""
    kind, problem = await refused(INNER_AT_FAULT + entry)
    assert (kind, problem.stage, problem.file) == (Kind.COMPILE_ERROR, "compile", "kernel.py")
    assert "UNKNOWN is not defined" in problem.message
    assert problem.line == KERNEL_HEAD.count("\n") + 4
    assert f"> {problem.line:4d} |     return y * UNKNOWN" in problem.excerpt


async def test_a_block_that_is_no_power_of_two_does_not_compile(refused: Any) -> None:
    kind, problem = await refused("def entry(x):\n    double[(1,)](x, x, 64, BLOCK=48)\n")
    assert (kind, problem.stage) == (Kind.COMPILE_ERROR, "compile")
    assert problem.line == 8
    assert "next_power_of_2" in problem.likely_fix


async def test_a_failed_static_assertion_is_a_compile_error(refused: Any) -> None:
    entry = """\
@triton.jit
def picky(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK > 100, "the block is too small")

def entry(x):
    launch(x, x, picky)
"""
    kind, problem = await refused(entry)
    assert kind is Kind.COMPILE_ERROR
    assert "the block is too small" in problem.message
    assert problem.line == KERNEL_HEAD.count("\n") + 3


async def test_too_many_threads_are_a_launch_error(refused: Any) -> None:
    kind, problem = await refused("def entry(x):\n    launch(x, torch.empty_like(x), num_warps=64)\n")
    assert (kind, problem.stage) == (Kind.LAUNCH_ERROR, "launch")
    assert problem.likely_fix == "Lower num_warps."


async def test_an_argument_too_few_is_explained(refused: Any) -> None:
    kind, problem = await refused("def entry(x):\n    double[(1,)](x, x)\n")
    assert kind is Kind.RUNTIME_ERROR
    assert "Compare the launch's arguments" in problem.likely_fix
