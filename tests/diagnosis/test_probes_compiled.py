"""Probes' variants compiled for an H100 and run by the interpreter: what was removed is gone, what was not is there."""

import json
import struct
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.sandbox.conftest import H100, describe_task, vector
from tritonforge.profiling.diagnosis.probes import ProbeName, ProbeVariant, variant
from tritonforge.sandbox.executors.host import Host
from tritonforge.sandbox.executors.local import LocalExecutor
from tritonforge.sandbox.limits import Limits
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.source import Source, read_source
from tritonforge.sandbox.task import Task
from tritonforge.sandbox.workers import KernelWorker, TaskWorker, capture_worker, interpreter_worker, task_worker

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"
PROBED = Path(__file__).parent / "kernels" / "probed.py"
ENTRY = describe_task()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def executor() -> AsyncGenerator[LocalExecutor]:
    async with LocalExecutor(Host(sys.executable, Limits()), spares=1) as executor:
        yield executor


@pytest.fixture(scope="module")
async def compiling(executor: LocalExecutor) -> AsyncGenerator[KernelWorker]:
    async with capture_worker(executor, target=H100) as worker:
        yield worker


@pytest.fixture(scope="module")
async def interpreting(executor: LocalExecutor) -> AsyncGenerator[KernelWorker]:
    async with interpreter_worker(executor, target=H100) as worker:
        yield worker


@pytest.fixture(scope="module")
async def tasks(executor: LocalExecutor) -> AsyncGenerator[TaskWorker]:
    async with task_worker(executor, on_gpu=False) as worker:
        yield worker


def made(text: str, name: ProbeName, launched: dict[str, int] | None = None) -> str:
    found = variant(text, name, launched)
    assert isinstance(found, ProbeVariant), found
    return found.text


async def compiled(worker: KernelWorker, text: str, spec: Task, inputs: Values) -> dict[str, str]:
    """PTX by kernel."""
    await worker.load(Source(text, "kernel.py", None), spec)
    await worker.set_inputs(inputs)
    captured = await worker.capture()
    return {launch.kernel: captured.text(launch, "ptx") for launch in captured.launches}


def on_a_branch(ptx: str, instruction: str) -> bool:
    """Whether each of these instructions stands in a block that is only entered on a condition."""
    lines = [line.partition("//")[0].strip() for line in ptx.splitlines()]
    lines = [line for line in lines if line and not line.startswith(".loc")]
    jumps = [line for line in lines if " bra" in f" {line}"]
    targets = {jump.split()[-1].rstrip(";") for jump in jumps}
    lines = [line for line in lines if not line.endswith(":") or line[:-1] in targets]  # others are for debuggers
    blocks = [number for number, line in enumerate(lines) if line in jumps or line.endswith(":")]
    for number, line in enumerate(lines):
        if not line.startswith(instruction):
            continue
        start = max(each for each in blocks if each < number)
        falls_in = lines[start] if lines[start] in jumps else lines[start - 1]
        label = lines[start].removesuffix(":")
        ways = [jump for jump in jumps if jump.split()[-1].rstrip(";") == label]
        if not falls_in.startswith(("@", "bra.uni")) or not all(way.startswith("@") for way in ways):
            return False
    return True


# What is gone


@pytest.mark.parametrize(
    "file",
    [
        "softmax/baseline", "sin/candidate", "matmul/baseline",
        "cases/tiny_block/slow", "cases/register_transpose/fast", "cases/streamed_reduction/slow",
    ],
)  # fmt: skip
async def test_variants_of_the_examples_compile_without_what_they_take_away(
    compiling: KernelWorker, tasks: TaskWorker, file: str
) -> None:
    text = (EXAMPLES / f"{file}.py").read_text()
    spec = await tasks.load(read_source(str((EXAMPLES / file).parent / "task.py"), "task"))
    inputs = await tasks.make_inputs("small", 1)

    async def code(name: ProbeName | None) -> str:
        ptx = await compiled(compiling, text if name is None else made(text, name), spec, inputs)
        (only,) = ptx.values()
        return only.replace("ld.global.nc", "a sine's table")

    original, idle = await code(None), await code("idle_loads")
    loads, stores = original.count("ld.global"), original.count("st.global")
    assert loads
    assert stores
    assert "ld.global" not in await code("no_loads")
    assert idle.count("ld.global") == loads
    assert idle != original
    for line in idle.splitlines():
        assert "ld.global" not in line or line.strip().startswith("@"), line
    dark = await code("no_stores")
    assert dark.count("st.global") == stores
    assert all(line.strip().startswith("@") for line in dark.splitlines() if "st.global" in line)
    if any(each in original for each in ("mma.sync", "ex2.approx")):
        quiet = await code("no_math")
        assert on_a_branch(quiet, "mma.sync")
        assert "ex2.approx" not in quiet
        assert "ld.global" in quiet


async def test_a_pipelined_product_keeps_its_copies_ahead_where_the_stages_are_known(
    compiling: KernelWorker, tasks: TaskWorker
) -> None:
    text = (EXAMPLES / "matmul" / "candidate.py").read_text()
    text = text.replace("128, 256, 64\n", "64, 64, 64\n").replace("num_warps=8", "num_warps=4")
    spec = await tasks.load(read_source(str(EXAMPLES / "matmul" / "task.py"), "task"))
    inputs = await tasks.make_inputs("small", 1)

    async def code(text: str) -> str:
        (only,) = (await compiled(compiling, text, spec, inputs)).values()
        return only

    known = {"matmul_kernel": 3}
    original = await code(text)
    copies = original.count("cp.async.ca") + original.count("cp.async.cg")
    assert "wgmma" in original
    assert copies
    idle = await code(made(text, "idle_loads", known))
    assert "wgmma" in idle
    assert idle.count("cp.async.ca") + idle.count("cp.async.cg") == copies
    quiet = await code(made(text, "no_math", known))
    assert on_a_branch(quiet, "wgmma.mma_async")
    assert quiet.count("cp.async.ca") + quiet.count("cp.async.cg") == copies
    assert "cp.async" not in await code(made(text, "no_math"))
    neither = await code(made(text, "neither", known))
    assert on_a_branch(neither, "wgmma.mma_async")
    assert "cp.async" in neither


async def test_every_kind_of_access_is_taken_away_but_integers(compiling: KernelWorker) -> None:
    text, inputs = PROBED.read_text(), Values({"tuple": [vector(4, 0)]}, [struct.pack("=4f", *range(4))])
    original = await compiled(compiling, text, ENTRY, inputs)
    assert original["every_type"].count("ld.global") > 1
    bare = await compiled(compiling, made(text, "no_loads"), ENTRY, inputs)
    (kept,) = [line for line in bare["every_type"].splitlines() if "ld.global" in line]
    assert "b32" in kept or "u32" in kept
    idle = await compiled(compiling, made(text, "idle_loads"), ENTRY, inputs)
    assert all("@" in line for line in idle["every_type"].splitlines() if "ld.global" in line)
    dark = await compiled(compiling, made(text, "no_stores"), ENTRY, inputs)
    written = [line for line in dark["every_type"].splitlines() if "st.global" in line or "atom.global" in line]
    assert len(written) == 5
    assert all(line.strip().startswith("@") for line in written)
    quiet = await compiled(compiling, made(text, "no_math"), ENTRY, inputs)
    assert "mma.sync" in original["by_descriptor"]
    assert on_a_branch(quiet["by_descriptor"], "mma.sync")
    assert "ex2.approx" not in quiet["every_type"]
    assert set(await compiled(compiling, made(text, "half_trips"), ENTRY, inputs)) == set(original)


# What it computes

RUN = """\
import torch
import triton
import triton.language as tl


@triton.jit
def added(x_ptr, out_ptr, index_ptr, n, B: tl.constexpr):
    at = tl.arange(0, B)
    index = tl.load(index_ptr + at)
    x = tl.load(x_ptr + index, mask=at < n, other=-1.0)
    tl.store(out_ptr + at, tl.exp(x), mask=at < 16)
    tl.atomic_add(out_ptr + at, 1.0, mask=at < 16)


@triton.jit
def counted(x_ptr, out_ptr, n, B: tl.constexpr):
    total = 0.0
    for _ in range(n):
        total += 1 + 0 * tl.load(x_ptr)
    tl.store(out_ptr, total)
    total = 0.0
    for _ in range(2, n):
        total += 1 + 0 * tl.load(x_ptr)
    tl.store(out_ptr + 1, total)
    total = 0.0
    for _ in tl.range(1, n + 1, 3):
        for _ in range(2):
            total += 0.5 + 0 * tl.load(x_ptr)
    tl.store(out_ptr + 2, total)
    total = 0.0
    for _ in tl.static_range(0, B, 2):
        total += 1 + 0 * tl.load(x_ptr)
    tl.store(out_ptr + 3, total)


@triton.jit
def product(x_ptr, out_ptr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tile = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.dot(tile, tile, tl.full((16, 16), 5.0, tl.float32)))


@triton.jit
def moved(x_ptr, out_ptr, BLOCKS: tl.constexpr):
    if BLOCKS:
        source = tl.make_block_ptr(x_ptr, (16, 16), (16, 1), (0, 0), (16, 16), (1, 0))
        target = tl.make_block_ptr(out_ptr, (16, 16), (16, 1), (0, 0), (16, 16), (1, 0))
        tl.store(target, tl.load(source) + 1)
    else:
        source = tl.make_tensor_descriptor(x_ptr, [16, 16], [16, 1], [16, 16])
        target = tl.make_tensor_descriptor(out_ptr, [16, 16], [16, 1], [16, 16])
        target.store([0, 0], source.load([0, 0]) + 1)


def entry(x):
    n = int(x[1])
    first, second, third = torch.full((16,), 7.0), torch.full((4,), 7.0), torch.full((256,), 7.0)
    added[(1,)](x, first, torch.arange(16), 12, B=16)
    counted[(1,)](x, second, n, B=8)
    product[(1,)](torch.ones(256), third)
    fourth, fifth = torch.full((256,), 7.0), torch.full((256,), 7.0)
    moved[(1,)](torch.full((256,), 3.0), fourth, BLOCKS=True)
    moved[(1,)](torch.full((256,), 3.0), fifth, BLOCKS=False)
    return first, second, third, fourth, fifth
"""


async def results(worker: KernelWorker, text: str, n: int = 7) -> list[list[float]]:
    """What the entry returns, for 16 numbers, the second of which is a number of iterations."""
    await worker.load(Source(text, "kernel.py", None), ENTRY)
    numbers = [0.0, float(n), *[0.5] * 14]
    await worker.set_inputs(Values({"tuple": [vector(16, 0)]}, [struct.pack("=16f", *numbers)]))
    values = (await worker.call()).values
    own = json.dumps(dict(values.tree["dict"])["outputs"]).count('"blob"')
    return [list(struct.unpack(f"={len(blob) // 4}f", blob)) for blob in values.blobs[:own] if isinstance(blob, bytes)]


async def test_the_interpreter_runs_variants_whose_loads_are_gone(interpreting: KernelWorker) -> None:
    first, _, third, fourth, fifth = await results(interpreting, made(RUN, "no_loads"))
    inside, outside = first[:12], first[12:]
    assert all(2.718 <= each - 1 < 7.39 for each in inside)
    assert len(set(inside)) == 12
    assert outside == pytest.approx([1 + 0.36788] * 4, rel=1e-4)
    assert third[0] not in (16 + 5, 5.0)
    assert fourth == fifth == [1.0] * 256


async def test_idle_loads_give_what_stands_in_for_masked_elements(interpreting: KernelWorker) -> None:
    first, second, third, fourth, fifth = await results(interpreting, made(RUN, "idle_loads"))
    assert first == pytest.approx([1 + 0.36788] * 16, rel=1e-4)
    assert second == [7, 5, 3, 4]
    assert third == [5.0] * 256
    assert fourth == fifth == [1.0] * 256


async def test_no_store_writes(interpreting: KernelWorker) -> None:
    assert await results(interpreting, made(RUN, "no_stores")) == [[7.0] * 16, [7.0] * 4, *[[7.0] * 256] * 3]


async def test_products_add_nothing_and_functions_become_their_argument(interpreting: KernelWorker) -> None:
    first, _, third, fourth, fifth = await results(interpreting, made(RUN, "no_math"))
    assert first == [1.0, 8.0, *[1.5] * 10, *[0.0] * 4]
    assert third == [5.0] * 256
    assert fourth == fifth == [4.0] * 256


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8])
async def test_half_of_the_iterations_of_outermost_loops_are_left_out(interpreting: KernelWorker, n: int) -> None:
    _, second, *_ = await results(interpreting, made(RUN, "half_trips"), n)
    whole = [len(range(n)), len(range(2, n)), len(range(1, n + 1, 3)), 4]
    assert second == [each - each // 2 for each in whole]
