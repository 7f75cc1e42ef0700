"""Both sides of an evaluation at work: large tensors pass through here without being read, and arrive unchanged."""

import mmap
import os
import tracemalloc
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.conftest import H100, KERNEL_HEAD, describe_task
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.executors.base import Executor
from tritonforge.sandbox.outcome import Kind
from tritonforge.sandbox.protocol import SharedBlob
from tritonforge.sandbox.replies import Values
from tritonforge.sandbox.source import Source, read_source
from tritonforge.sandbox.workers import KernelWorker, TaskWorker, capture_worker, interpreter_worker, task_worker

pytestmark = pytest.mark.anyio
TASK = """\
import torch

ENTRY = "entry"
CASES = {"large": {"n": 8 << 20}, "many": {"n": 64 << 10, "count": 300}, "small": {"n": 64}}


def make_inputs(n, device, count=1):
    return tuple(torch.randn(n, device=device) for _ in range(count))


def reference(*tensors):
    return tensors
"""
LARGE_BYTES = 32 << 20
KEY = bytes(range(8))
SAME = KERNEL_HEAD + "def entry(*tensors):\n    launch(tensors[0][:64], torch.empty(64))\n    return tensors\n"


@pytest.fixture
async def task(executor: Executor) -> AsyncGenerator[TaskWorker]:
    async with task_worker(executor, on_gpu=False) as worker:
        await worker.load(Source(TASK, "task.py", None))
        yield worker


@pytest.fixture
async def kernels(executor: Executor) -> AsyncGenerator[KernelWorker]:
    async with interpreter_worker(executor, target=H100) as worker:
        yield worker


async def returned(task: TaskWorker, kernels: KernelWorker, case: str) -> Values:
    """What an entry returns that gives back its inputs, after the judge found every element equal."""
    await kernels.load(Source(SAME, "kernel.py", None), describe_task())
    inputs, _ = await task.make_and_expect(case, 1)
    await kernels.set_inputs(inputs)
    values = (await kernels.call()).values
    found = await task.judge(values, KEY)
    assert sum(record.elements for record in found.outputs) > 0
    assert all(record.mismatch is None and record.wrong_elements == 0 for record in found.outputs)
    assert [record.max_abs_error for record in found.outputs] == [0.0] * len(found.outputs)
    assert (found.changed, found.broken) == ([], [])
    outputs = Values(part(values, "outputs"), values.blobs[: len(inputs.blobs)])
    assert outputs.tree == inputs.tree
    assert [content(blob) for blob in outputs.blobs] == [content(blob) for blob in inputs.blobs]
    return outputs


def part(values: Values, name: str) -> Any:
    """What a call gave under this name, as a tree of its own."""
    return dict(values.tree["dict"])[name]


def content(blob: bytes | SharedBlob) -> bytes:
    if isinstance(blob, bytes):
        return blob
    with mmap.mmap(blob.descriptor, blob.size_bytes, access=mmap.ACCESS_READ) as mapping:
        return mapping[:]


def memory_files() -> int:
    """How many this process has open."""
    return sum(os.readlink(link).startswith("/memfd:") for link in Path("/proc/self/fd").iterdir() if link.is_symlink())


async def test_a_large_tensor_comes_back_unchanged_as_a_memory_file(task: TaskWorker, kernels: KernelWorker) -> None:
    (blob,) = (await returned(task, kernels, "large")).blobs
    assert isinstance(blob, SharedBlob)
    assert (blob.kind, blob.size_bytes) == ("memory", LARGE_BYTES)


async def test_a_small_tensor_travels_inside_the_frame(task: TaskWorker, kernels: KernelWorker) -> None:
    assert [len(blob) for blob in (await returned(task, kernels, "small")).blobs if isinstance(blob, bytes)] == [256]


async def test_more_tensors_than_a_frame_takes_descriptors_for_come_back_unchanged(
    task: TaskWorker, kernels: KernelWorker
) -> None:
    blobs = (await returned(task, kernels, "many")).blobs
    assert len(blobs) == 300
    assert {type(blob) for blob in blobs} == {bytes, SharedBlob}


async def test_bulk_data_passes_through_without_being_held(task: TaskWorker, kernels: KernelWorker) -> None:
    await kernels.load(Source(SAME, "kernel.py", None), describe_task())
    before = memory_files()
    tracemalloc.start()
    try:
        inputs, _ = await task.make_and_expect("large", 1)
        await kernels.set_inputs(inputs)
        outputs = (await kernels.call()).values
        await task.judge(outputs, KEY)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < LARGE_BYTES // 16
    # What was made, what came back, and the arguments as they were afterwards.
    assert memory_files() == before + 3
    del inputs, outputs
    assert memory_files() == before


async def test_what_one_worker_gave_survives_its_end(executor: Executor, kernels: KernelWorker) -> None:
    async with task_worker(executor, on_gpu=False) as worker:
        await worker.load(Source(TASK, "task.py", None))
        inputs = await worker.make_inputs("large", 1)
    await kernels.load(Source(SAME, "kernel.py", None), describe_task())
    await kernels.set_inputs(inputs)
    assert content((await kernels.call()).values.blobs[0]) == content(inputs.blobs[0])


async def test_what_a_kernel_does_to_its_inputs_reaches_nobody_else(task: TaskWorker, kernels: KernelWorker) -> None:
    spoil = KERNEL_HEAD + "def entry(x):\n    launch(x[:64], torch.empty(64))\n    x.zero_()\n    return (x,)\n"
    await kernels.load(Source(spoil, "kernel.py", None), describe_task())
    inputs, _ = await task.make_and_expect("large", 1)
    await kernels.set_inputs(inputs)
    (record,) = (await task.judge((await kernels.call()).values, KEY)).outputs
    assert record.wrong_elements > 0
    await kernels.load(Source(SAME, "kernel.py", None), describe_task())
    (record,) = (await task.judge((await kernels.call()).values, KEY)).outputs
    assert record.wrong_elements == 0


def repeats(blob: Any) -> bool:
    """Whether random floats hold a block over and over: 512 bytes of the first are somewhere behind it."""
    data = content(blob)
    return data.find(data[:512], 512) >= 0


async def test_inputs_are_real_unless_repeated_ones_are_asked_for(task: TaskWorker) -> None:
    async def made(**more: Any) -> Values:
        return await task.make_inputs("large", 1, **more)

    real, repeated, expecting = await made(), await made(contents="repeated"), await task.make_and_expect("large", 1)
    assert [repeats(each.blobs[0]) for each in (real, repeated, expecting[0])] == [False, True, False]
    assert repeated.tree == real.tree
    assert content(repeated.blobs[0])[:4096] == content((await made(contents="repeated")).blobs[0])[:4096]
    assert content(expecting[0].blobs[0]) == content(real.blobs[0])
    assert content((await task.make_inputs("small", 1)).blobs[0]) == content(
        (await task.make_inputs("small", 1, contents="repeated")).blobs[0]
    )


async def test_a_worker_keeps_no_descriptor_of_what_it_was_given(task: TaskWorker, kernels: KernelWorker) -> None:
    count = "import os\ndef entry(*x):\n    launch(x[0], x[0])\n    return len(os.listdir('/proc/self/fd'))\n"
    await kernels.load(Source(KERNEL_HEAD + count, "kernel.py", None), describe_task())
    await kernels.set_inputs(await task.make_inputs("many", 1))
    # Standard input, output, error, the socket, and the one that lists them.
    assert part((await kernels.call()).values, "outputs") == {"value": 5}


NEIGHBOUR = "import torch\n\nimport neighbour\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that nobody opened for workers, with a kernel or task in it."""
    (tmp_path / "neighbour.py").write_text("VALUE = 7\n")
    (tmp_path / "file.py").write_text(NEIGHBOUR)
    return tmp_path


async def test_a_kernel_that_imports_from_its_hidden_folder_is_told_how_to_open_it(
    executor: Executor, project: Path
) -> None:
    await sealed(executor)
    async with capture_worker(executor, target=H100) as worker:
        with pytest.raises(Stopped) as caught:
            await worker.load(read_source(str(project / "file.py"), "kernel"), describe_task())
    check_hidden(caught.value, project, "load")


async def test_a_task_that_imports_from_its_hidden_folder_is_told_how_to_open_it(
    executor: Executor, project: Path
) -> None:
    await sealed(executor)
    async with task_worker(executor, on_gpu=False) as worker:
        with pytest.raises(Stopped) as caught:
            await worker.load(read_source(str(project / "file.py"), "task"))
    check_hidden(caught.value, project, "task")


async def sealed(executor: Executor) -> None:
    seal = await executor.seal()
    if not seal.sealed:
        pytest.skip(f"this machine allows no sandbox: {seal.reason}")


def check_hidden(stopped: Stopped, project: Path, stage: str) -> None:
    problem = stopped.problem
    assert (stopped.kind, problem.stage) == (Kind.REJECTED, stage)
    assert "'neighbour'" in problem.message
    assert f"{project} is not readable in the sandbox" in problem.message
    assert f"start the server with --allow-read {project}" in problem.message
    assert (problem.file, problem.line) == (str(project / "file.py"), 3)
    assert ">    3 | import neighbour" in (problem.excerpt or "")
