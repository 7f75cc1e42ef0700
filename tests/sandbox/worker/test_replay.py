# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Replays of recorded calls: what the driver is asked for, and that outputs are those of the entry.

The driver is a fake one that runs the kernels on the CPU.
"""

import importlib
from collections.abc import Generator

import pytest
import torch
import triton

from tests.sandbox.worker import fake_cuda, replayed
from tests.sandbox.worker.capturing import Record, recording
from tests.sandbox.worker.fake_cuda import FakeCuda
from tests.sandbox.worker.replayed import EXAMPLES, SIZE

pytestmark = pytest.mark.skipif(
    not triton.__version__ >= "3.5", reason="the fake kernels have the parameters of Triton 3.5 and later"
)


@pytest.fixture(scope="module")
def record(worker) -> Generator[Record]:
    with recording() as record:
        yield record


@pytest.fixture(scope="module")
def replay(worker):
    return importlib.import_module("tritonforge_worker.replay")


@pytest.fixture
def library(replay):
    return FakeCuda(replay.Config)


@pytest.fixture
def example(record, replay, library):
    """A replayer of an example, by the name of its entry, and inputs for it."""

    def get(name):
        example = next(example for example in EXAMPLES if example.entry.__name__ == name)
        inputs = example.make("cpu")
        recorded = record(example.entry, inputs, example.in_place)
        replayer = replay.Replayer(recorded.fields(), recorded.blobs, "cpu", replay.Driver(library))
        assert replayer.differs(inputs) is None
        return replayer, inputs

    return get


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("doubled", lambda x: x * 2),
        ("chained", lambda x: x * 4),
        ("clustered", lambda x: x * 2),
        ("counted", lambda x: torch.bincount(x, minlength=16).int()),
        ("roomy", lambda a, b: a @ b),
        ("transposed", lambda x: x + 1),
        ("with_scratch", lambda x: x * 2),
        ("with_descriptors", lambda x: x * 2),
        ("paired", lambda x, y: x + y),
        ("addressed", lambda x: x * 2),
        ("tuned", lambda x: x * 2),
        ("unused", lambda x: x * 2),
    ],
)
def test_outputs_are_those_of_the_entry(example, name, expected) -> None:
    replayer, inputs = example(name)
    for _ in range(3):
        torch.testing.assert_close(replayer.entry(*inputs), expected(*inputs), rtol=0, atol=0)


def test_numbers_arrive_as_they_were_given(example) -> None:
    replayer, inputs = example("numbered")
    bits = torch.tensor(0.1).view(torch.int32).item()
    assert replayer.entry(**inputs).tolist() == [-5, 1 << 40, (1 << 63) + 5 - (1 << 64), bits, 1]


def test_each_call_has_memory_of_its_own(example) -> None:
    replayer, inputs = example("doubled")
    first, second = replayer.entry(*inputs), replayer.entry(*inputs)
    assert first.data_ptr() != second.data_ptr()
    assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()


def test_memory_is_given_back_after_its_last_use(example, monkeypatch) -> None:
    replayer, inputs = example("chained")
    alive = []
    original = replayer._steps[-1]

    def look(places):
        alive.append([place is not None for place in places])
        original(places)

    replayer._steps[-1] = look
    replayer.entry(*inputs)
    # The input, what lies between the kernels, and the output.
    assert alive == [[True, True, True]]
    places = [inputs[0], None, None]
    for step in replayer._steps:
        step(places)
    assert [place is not None for place in places] == [True, False, True]


def test_fills_are_carried_out(example) -> None:
    replayer, inputs = example("filled")
    infinite, ones, threes, flags, zeros, doubled = replayer.entry(*inputs)
    expected = torch.full((3, 5), float("-inf"))
    expected[1] = 7.5
    assert torch.equal(infinite, expected)
    assert torch.equal(ones, torch.ones(4, dtype=torch.bfloat16))
    assert torch.equal(threes, torch.tensor([3, 3], dtype=torch.int32))
    assert flags.tolist() == [False, True] * 3
    assert torch.equal(zeros, torch.zeros(SIZE))
    assert torch.equal(doubled, inputs[0] * 2)


def test_outputs_have_the_structure_and_aliases_of_the_recorded_ones(example) -> None:
    replayer, (x, weights) = example("nested")
    found = replayer.entry(x, weights)
    row, (part, five) = found["rows"]
    assert torch.equal(row, x * 2)
    assert torch.equal(part, weights["w"][0][3:7] * 2)
    assert (five, found["none"], found["empty"].shape) == (5, None, (0, 64))
    assert found["bits"].dtype == torch.int32
    assert found["bits"].untyped_storage().data_ptr() == row.untyped_storage().data_ptr()
    assert found[1] is x


def test_arguments_changed_in_place_are_the_ones_that_were_given(example, worker) -> None:
    replayer, (x, out) = example("into")
    assert replayer.entry(x, out)["out"] is out
    assert torch.equal(out, x * 2)
    found = worker.reference.run(replayer.entry, (x, out), ["out"])
    assert found["out"] is out


def test_a_launch_is_made_as_triton_makes_it(example, library) -> None:
    replayer, inputs = example("doubled")
    replayer.entry(*inputs)
    (launched,) = library.launched
    assert launched[:5] == ("double", (4, 1, 1), (128, 1, 1), 0, [])


def test_clusters_multiply_the_grid_and_are_spread(example, library) -> None:
    replayer, inputs = example("clustered")
    replayer.entry(*inputs)
    (launched,) = library.launched
    assert launched.grid == (8, 1, 1)
    assert launched.attributes == [(4, [2, 1, 1]), (5, [1, 0, 0])]


def test_large_shared_memory_is_asked_for_once(example, library) -> None:
    replayer, inputs = example("roomy")
    for _ in range(2):
        replayer.entry(*inputs)
    assert library.asked == [("cache", "product", 1), ("attribute", "product", 8, 232_448 - 16)]
    assert library.launched[0].shared_bytes > 48 << 10


def test_cooperative_and_dependent_launches_and_large_clusters(record, replay, library) -> None:
    recorded = record(replayed.doubled, (torch.randn(SIZE),))
    fields = recorded.fields()
    fields["kernels"][0].update(cooperative=True, pdl=True, cluster=[16, 1, 1])
    replayer = replay.Replayer(fields, recorded.blobs, "cpu", replay.Driver(library))
    replayer.entry(torch.randn(SIZE))
    assert [number for number, _ in library.launched[0].attributes] == [6, 2, 4, 5]
    assert library.asked == [("attribute", "double", 14, 1)]


def test_tensor_maps_are_encoded_innermost_first_and_anew_where_memory_moved(example, library) -> None:
    replayer, (x,) = example("with_descriptors")
    replayer.entry(x)
    kind, address, shape, strides, box, interleave, swizzle, promotion, padding = library.encoded[0]
    assert (kind, address, shape, strides, box) == (7, x.data_ptr(), [64, 64], [256], [32, 32])
    assert (interleave, swizzle, promotion, padding) == (0, 3, 2, 0)
    # The bit that small tensors must not have.
    assert library.launched[0].parameters[0][8:16] == bytes(8)
    held = replayer.entry(x)
    assert [encoded[1] for encoded in library.encoded].count(x.data_ptr()) == 1
    assert library.encoded[-1][1] == held.data_ptr() or len(library.encoded) == 2


def test_machine_code_is_loaded_as_it_was_recorded(record, replay, library) -> None:
    recorded = record(replayed.doubled, (torch.randn(SIZE),))
    replay.Replayer(recorded.fields(), recorded.blobs, "cpu", replay.Driver(library))
    assert recorded.blobs[0].startswith(library.modules[0])
    assert library.functions == ["double"]


def test_a_launch_with_other_parameters_than_the_kernels_is_refused(record, replay, worker) -> None:
    recorded = record(replayed.doubled, (torch.randn(SIZE),))
    for sizes in ([8, 8, 4, 8], [8, 8, 8, 8, 8], [8, 8, 4, 8, 8, 8]):
        library = FakeCuda(replay.Config, {"double": sizes})
        with pytest.raises(worker.failures.Refused, match="the recorded launch of double passes parameters"):
            replay.Replayer(recorded.fields(), recorded.blobs, "cpu", replay.Driver(library))


def test_a_driver_that_cannot_tell_parameters_is_refused(record, replay, library, worker, monkeypatch) -> None:
    recorded = record(replayed.doubled, (torch.randn(SIZE),))
    monkeypatch.delattr(FakeCuda, "cuFuncGetParamInfo")
    with pytest.raises(worker.failures.Refused, match=r"CUDA 12\.4"):
        replay.Replayer(recorded.fields(), recorded.blobs, "cpu", replay.Driver(library))


def test_a_failed_launch_is_told_by_its_name(example, library) -> None:
    replayer, inputs = example("doubled")
    library.code = fake_cuda.OUT_OF_RESOURCES
    with pytest.raises(RuntimeError, match="launch of double failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        replayer.entry(*inputs)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ((torch.randn(SIZE + 1),), "inputs[0] has dtype"),
        ((torch.randn(SIZE).double(),), "inputs[0] has dtype"),
        ((torch.randn(2 * SIZE)[::2],), "inputs[0] has dtype"),
        ((torch.randn(SIZE + 1)[1:],), "alignment"),
        ((torch.randn(SIZE), torch.randn(SIZE)), "a tuple of 1"),
        ({"x": torch.randn(SIZE)}, "a tuple of 1"),
        ((5,), "inputs[0] is no tensor"),
    ],
)
def test_inputs_of_another_form_are_told(example, inputs, expected) -> None:
    replayer, _ = example("doubled")
    assert expected in replayer.differs(inputs)


@pytest.mark.parametrize("change", [{"small": -6}, {"real": 0.2}, {"flag": 1}, {"large": float(1 << 40)}])
def test_other_numbers_than_the_recorded_ones_are_told(example, change) -> None:
    replayer, inputs = example("numbered")
    assert f"the inputs[{next(iter(change))!r}] is" in replayer.differs({**inputs, **change})
    assert "other keys" in replayer.differs({"other": 1})


def test_a_replayers_side_answers_as_a_kernels(record, worker, replay, library, monkeypatch) -> None:
    side_module = importlib.import_module("tritonforge_worker.replay_side")
    values, refused = worker.values, worker.failures.Refused
    monkeypatch.setattr(replay, "Driver", lambda: replay.cuda_driver.Driver(library))
    x = torch.randn(SIZE)
    recorded = record(replayed.doubled, (x,))
    side = side_module.ReplaySide("cpu", worker.failures.Sources())
    side.do_load_plan(recorded.blobs, plan=recorded.fields(), in_place=[])
    blobs: list = []
    side.do_set_inputs(blobs, tree=values.encode((x,), blobs, stage="inputs", where="inputs"))
    assert torch.equal(side._entry(*side._inputs), x * 2)
    blobs = []
    with pytest.raises(refused, match="recorded with"):
        side.do_set_inputs(blobs, tree=values.encode((x[:9],), blobs, stage="inputs", where="inputs"))
