# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Recorded calls carried out on the GPU: outputs are those of the entry, bit by bit, and what can't be is told."""

import importlib
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.sandbox.worker import replayed
from tests.sandbox.worker.replayed import EXAMPLES, SIZE, Example
from tritonforge.sandbox.isolation import WORKER_FOLDER
from tritonforge.sandbox.replay_plan import Recorded, settled

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
FOLDER = Path(__file__).resolve().parents[2] / "examples"


class Worker:
    """The modules of the worker that record and replay."""

    def __init__(self) -> None:
        if "tritonforge_worker" not in sys.modules:
            _load(WORKER_FOLDER / "__main__.py", "worker_main")._load_package()
        self.recording, self.replay, self.reference, self.values = (
            importlib.import_module(f"tritonforge_worker.{name}")
            for name in ("recording", "replay", "reference", "values")
        )

    def record(self, entry: Callable[..., Any], inputs: Any, in_place: tuple[str, ...] = ()) -> Recorded:
        fields, blobs = self.recording.record(entry, self.values.copy(inputs), list(in_place), DEVICE)
        return Recorded(**fields, blobs=blobs)

    def replayer(self, recorded: Recorded) -> Any:
        assert recorded.reason is None, recorded.reason
        return self.replay.Replayer(recorded.fields(), recorded.blobs, DEVICE)

    def run(self, entry: Callable[..., Any], inputs: Any, in_place: tuple[str, ...] = ()) -> Any:
        """Outputs on copies of the inputs."""
        return self.reference.run(entry, self.values.copy(inputs), list(in_place))


@pytest.fixture(scope="module")
def worker() -> Worker:
    return Worker()


def _load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def from_example(name: str, part: str) -> Example:
    """A kernel file of the examples, on the first of its task's cases."""
    task = _load(FOLDER / name / "task.py", f"{name}_task")
    kernel = _load(FOLDER / name / f"{part}.py", f"{name}_{part}")
    parameters = {
        key: value for key, value in next(iter(task.CASES.values())).items() if key not in {"small", "weight"}
    }
    return Example(getattr(kernel, task.ENTRY), lambda device: task.make_inputs(**parameters, device=device))


def check_same(worker: Worker, found: Any, expected: Any) -> None:
    """The same tree with tensors of the same form and bits."""
    differ = [
        (one.dtype, one.shape, one.stride()) != (other.dtype, other.shape, other.stride())
        or not torch.equal(_bytes(one), _bytes(other))
        for one, other in zip(worker.values.tensors(found), worker.values.tensors(expected), strict=True)
    ]
    assert not any(differ)
    assert _shape_of(found) == _shape_of(expected)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _shape_of(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return "tensor"
    if isinstance(tree, dict):
        return {key: _shape_of(item) for key, item in tree.items()}
    return type(tree)(map(_shape_of, tree)) if isinstance(tree, list | tuple) else tree


def check_replayed(worker: Worker, example: Example) -> None:
    """Recorded twice, and replayed several times on contents that were not there at recording."""
    first, second = (worker.record(example.entry, example.make(DEVICE), example.in_place) for _ in range(2))
    replayer = worker.replayer(settled(first, second))
    for _ in range(3):
        inputs = example.make(DEVICE)
        assert replayer.differs(inputs) is None
        expected = worker.run(example.entry, inputs, example.in_place)
        held = [worker.run(replayer.entry, inputs, example.in_place) for _ in range(2)]
        torch.cuda.synchronize()
        for found in held:
            check_same(worker, found, expected)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.entry.__name__)
def test_outputs_are_bit_for_bit_those_of_the_entry(worker: Worker, example: Example) -> None:
    check_replayed(worker, example)


@pytest.mark.parametrize("part", ["baseline", "candidate"])
@pytest.mark.parametrize("name", ["softmax", "matmul", "sin"])
def test_the_examples_are_replayed(worker: Worker, name: str, part: str) -> None:
    check_replayed(worker, from_example(name, part))


def test_a_replay_is_on_the_current_stream(worker: Worker) -> None:
    inputs = (torch.randn(1 << 20, device=DEVICE),)
    replayer = worker.replayer(worker.record(replayed.doubled, inputs))
    expected = inputs[0] * 2
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        inputs[0].add_(1)
        found = replayer.entry(*inputs)
    stream.synchronize()
    assert torch.equal(found, expected + 2)


def test_a_replay_goes_into_a_cuda_graph(worker: Worker) -> None:
    inputs = (torch.randn(SIZE, device=DEVICE),)
    replayer = worker.replayer(worker.record(replayed.chained, inputs))
    replayer.entry(*inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = replayer.entry(*inputs)
    inputs[0].fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found, torch.full((SIZE,), 12.0, device=DEVICE))


def test_memory_between_kernels_may_be_given_out_again(worker: Worker) -> None:
    def entry(x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            out = torch.empty_like(x)
            replayed.launch(x, out)
            x = out
        return x

    check_replayed(worker, Example(entry, lambda device: (torch.randn(1 << 16, device=device),)))


HELD: list[torch.Tensor] = []


def _cached(x: torch.Tensor) -> torch.Tensor:
    if not HELD:
        HELD.append(replayed.doubled(x))
    return HELD[0]


def _elsewhere(x: torch.Tensor) -> torch.Tensor:
    with torch.cuda.stream(torch.cuda.Stream()):
        return replayed.doubled(x)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (lambda x: torch.mm(x.view(10, 100), x.view(100, 10)), "aten.mm computes outside of Triton"),
        (lambda x: x[0].item(), "aten._local_scalar_dense reads an element on the host"),
        (lambda x: x.cpu(), "aten._to_copy copies outside of Triton"),
        # torch copies it to the device unseen.
        (
            lambda x: torch.tensor([1.0, 2.0], device=x.device),
            "the result lies in memory that was not allocated in this call",
        ),
        (lambda x: x.new_empty(SIZE).copy_(x), "aten.copy_ copies outside of Triton"),
        (_elsewhere, "double is launched on another stream than the current one"),
    ],
)
def test_what_does_not_qualify_is_told(worker: Worker, entry: Any, expected: str) -> None:
    assert worker.record(entry, (torch.randn(SIZE, device=DEVICE),)).reason == expected


def test_a_result_that_was_kept_is_no_plan(worker: Worker) -> None:
    inputs = (torch.randn(SIZE, device=DEVICE),)
    first, second = worker.record(_cached, inputs), worker.record(_cached, inputs)
    assert settled(first, second).reason == "the result lies in memory that was not allocated in this call"


def test_what_the_host_pays_for_a_replay_is_told(worker: Worker, record_property: Any) -> None:
    inputs = (torch.randn(SIZE, device=DEVICE),)
    replayer = worker.replayer(worker.record(replayed.doubled, inputs))
    for name, entry in (("entry", replayed.doubled), ("replay", replayer.entry)):
        times = []
        for _ in range(300):
            started = time.perf_counter_ns()
            entry(*inputs)
            times.append((time.perf_counter_ns() - started) / 1e3)
            torch.cuda.synchronize()
        record_property(f"{name}_us", round(statistics.median(times), 2))
