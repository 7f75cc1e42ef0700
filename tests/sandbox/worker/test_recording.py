# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Recordings of entries under the capturing driver: what becomes a plan, and why others don't."""

import importlib
from collections.abc import Generator

import pytest
import torch
import triton

from tests.sandbox.worker import replayed
from tests.sandbox.worker.capturing import Record, recording
from tests.sandbox.worker.replayed import EXAMPLES, SIZE, Example
from tritonforge.sandbox.replay_plan import Launch, settled


@pytest.fixture(scope="module")
def record(worker) -> Generator[Record]:
    with recording() as record:
        yield record


@pytest.fixture
def plan(record):
    """The plan of an example, by the name of its entry."""

    def get(name):
        example = next(example for example in EXAMPLES if example.entry.__name__ == name)
        recorded = record(example.entry, example.make("cpu"), example.in_place)
        assert recorded.reason is None, recorded.reason
        return recorded.plan.model_dump(mode="json", exclude_none=True)

    return get


@pytest.fixture
def reason(record):
    """Why an entry does not qualify."""

    def get(entry, *inputs):
        recorded = record(entry, inputs or (torch.randn(SIZE),))
        assert recorded.plan is None
        return recorded.reason

    return get


def launches(plan):
    return [operation for operation in plan["operations"] if operation["op"] == "launch"]


def done(plan):
    return [operation["op"] for operation in plan["operations"]]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.entry.__name__)
def test_two_recordings_on_other_contents_give_the_same_plan(record, example: Example) -> None:
    first, second = (record(example.entry, example.make("cpu"), example.in_place) for _ in range(2))
    assert settled(first, second).reason is None
    assert settled(first, second).plan == first.plan


def test_pointers_are_named_and_numbers_packed(plan) -> None:
    (launch,) = launches(plan("doubled"))
    assert launch["arguments"] == [
        {"input": 0, "offset": 0}, {"storage": 0, "offset": 0}, {"type": "i32", "bits": SIZE}, {"null": True},
        *([{"null": True}] if triton.__version__ >= "3.5" else []),
    ]  # fmt: skip


def test_numbers_of_every_type_keep_their_bits(plan) -> None:
    (launch,) = launches(plan("numbered"))
    assert [(one["type"], one["bits"]) for one in launch["arguments"] if "bits" in one] == [
        ("i32", 2**32 - 5), ("i64", 1 << 40), ("u64", (1 << 63) + 5), ("fp32", 0x3DCCCCCD), ("u1", 1),
    ]  # fmt: skip


def test_memory_of_a_call_is_allocated_and_filled_in_order(plan) -> None:
    counted = plan("counted")
    assert done(counted) == ["allocate", "zero", "launch"]
    filled = plan("filled")
    fills = [operation for operation in filled["operations"] if operation["op"] in ("fill", "zero")]
    values = [operation.get("value") for operation in fills]
    assert values == [{"number": "-inf"}, {"value": 7.5}, {"value": 1}, {"value": 3}, {"value": True}, None, None]
    assert fills[1]["view"] == {"storage": 0, "offset": 20, "dtype": "float32", "shape": [5], "stride": [1]}
    assert fills[5]["view"] == {"storage": 3, "offset": 0, "dtype": "bool", "shape": [3], "stride": [2]}


def test_one_kernel_reads_what_another_wrote(plan) -> None:
    first, second = launches(plan("chained"))
    assert first["arguments"][1] == second["arguments"][0] == {"storage": 0, "offset": 0}
    assert (first["kernel"], second["kernel"]) == (0, 1)


def test_clusters_and_shared_memory_are_told(plan) -> None:
    (kernel,) = plan("clustered")["kernels"]
    assert kernel["cluster"] == [2, 1, 1]
    (kernel,) = plan("roomy")["kernels"]
    assert kernel["shared_bytes"] > 48 << 10


def test_scratch_memory_is_allocated_for_each_launch(plan) -> None:
    recorded = plan("with_scratch")
    assert done(recorded) == ["allocate", "allocate", "launch"]
    assert recorded["storages"][1] == 4 * 256
    assert {"storage": 1, "offset": 0} in launches(recorded)[0]["arguments"]


def test_a_host_side_descriptor_is_described_and_followed_by_its_shape(plan) -> None:
    source = launches(plan("with_descriptors"))[0]["arguments"][:5]
    assert source[0]["map"] == {
        "input": 0, "offset": 0, "swizzle": 3, "element_bytes": 4, "element_type": 7, "box": [32, 32],
        "shape": [64, 64], "strides": [64, 1], "padding": 0,
    }  # fmt: skip
    assert [(one["type"], one["bits"]) for one in source[1:]] == [("i32", 64), ("i32", 64), ("i64", 64), ("i64", 1)]


def test_outputs_are_views_of_what_was_allocated_or_given(plan) -> None:
    nodes = dict(plan("nested")["outputs"]["dict"])
    assert nodes["rows"]["list"][1]["tuple"][0]["view"]["offset"] == (64 + 3) * 4
    assert nodes["rows"]["list"][1]["tuple"][1] == {"value": 5}
    assert nodes["bits"]["view"]["dtype"] == "int32"
    assert nodes[1]["view"]["input"] == 0
    ((name, node),) = plan("into")["outputs"]["dict"]
    assert (name, node["view"]["input"]) == ("out", 1)


def test_a_tuple_of_pointers_is_flattened(plan) -> None:
    arguments = launches(plan("paired"))[0]["arguments"]
    assert [argument.get("input", argument.get("storage")) for argument in arguments[:3]] == [0, 1, 0]


def test_an_address_passed_as_a_number_is_a_pointer(plan) -> None:
    assert launches(plan("addressed"))[0]["arguments"][0] == {"input": 0, "offset": 0}


def test_what_an_autotuner_tries_out_is_not_recorded(plan) -> None:
    tuned = plan("tuned")
    assert done(tuned) == ["allocate", "launch"]


def test_what_nothing_uses_is_left_out(plan) -> None:
    assert done(plan("unused")) == ["allocate", "launch"]


def test_inputs_are_told_with_their_forms(plan) -> None:
    recorded = plan("numbered")
    form = {"dtype": "float32", "shape": [4], "stride": [1], "residue": 0}
    assert recorded["inputs"]["dict"][:2] == [["x", {"tensor": form}], ["small", {"value": -5}]]
    assert recorded["parameters"] == []
    assert plan("into")["parameters"] == ["x", "out"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (lambda x: torch.mm(x.view(10, 100), x.view(100, 10)), "aten.mm computes outside of Triton"),
        (lambda x: x.view(10, 100).t().contiguous(), "aten.clone copies outside of Triton"),
        (lambda x: x.half(), "aten._to_copy copies outside of Triton"),
        (lambda x: x.new_empty(SIZE).copy_(x), "aten.copy_ copies outside of Triton"),
        (lambda x: x[0].item(), "aten._local_scalar_dense reads an element on the host"),
        (lambda x: torch.arange(4, device=x.device), "aten.arange computes outside of Triton"),
        (lambda x: replayed.doubled(x + 1), "aten.add computes outside of Triton"),
        (lambda x: torch.zeros(4, out=torch.empty(4)), "aten.zeros computes outside of Triton"),
        (lambda x: x.fill_(x[0]), "aten.fill_ computes outside of Triton"),
        (lambda x: torch.rand(4, device=x.device), "aten.rand computes outside of Triton"),
        (lambda x: object(), "the result is a object"),
        (lambda x: {"a": [torch.view_as_complex(x.view(500, 2)).conj()]}, "the result['a'][0] is no plain tensor"),
        (lambda x: HELD, "the result lies in memory that was not allocated in this call"),
        (lambda x: replayed.launch(x, HELD), "double is given memory that was not allocated in this call"),
    ],
)
def test_what_does_not_qualify_is_told(reason, entry, expected) -> None:
    assert reason(entry) == expected


HELD = torch.empty(SIZE)


def test_only_the_first_reason_is_told(reason) -> None:
    assert reason(lambda x: (x + 1) * 2) == "aten.add computes outside of Triton"


def test_an_entry_that_goes_another_way_with_other_contents_does_not_qualify(record) -> None:
    def entry(x):
        # Under the capturing driver tensors lie on the host, and can be read unseen.
        scale = x.numpy()[0]
        out = torch.empty_like(x)
        replayed.numbers[(1,)](out, 2, 1 << 40, (1 << 63), float(scale), True)
        return out

    first, second = (record(entry, (torch.full((SIZE,), value),)) for value in (1.0, 2.0))
    assert "depend on the contents" in (settled(first, second).reason or "")


def test_an_operator_written_in_python_is_looked_into(record) -> None:
    # Custom operators need it, and it does not import where torch.cuda is replaced.
    importlib.import_module("torch._dynamo")

    @torch.library.custom_op("tritonforge_replay::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return replayed.doubled(x)

    @torch.library.custom_op("tritonforge_replay::added", mutates_args=())
    def added(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @torch.library.custom_op("tritonforge_replay::zeroed", mutates_args=("x",))
    def zeroed(x: torch.Tensor) -> None:
        x.numpy()[:] = 0

    good = record(lambda x: torch.ops.tritonforge_replay.doubled(x), (torch.randn(SIZE),))
    assert [type(operation).__name__ for operation in good.plan.operations] == ["Allocate", "Launch"]
    bad = record(lambda x: torch.ops.tritonforge_replay.added(x), (torch.randn(SIZE),))
    assert bad.reason == "aten.add computes outside of Triton"
    unseen = record(lambda x: torch.ops.tritonforge_replay.zeroed(x), (torch.randn(SIZE),))
    assert unseen.reason == "tritonforge_replay.zeroed computes outside of Triton"


def test_a_launch_on_another_stream_does_not_qualify(reason) -> None:
    def entry(x):
        out = torch.empty_like(x)
        compiled = replayed.double.warmup(x, out, x.numel(), BLOCK=256, grid=(4,))
        compiled[(4, 1, 1)](x, out, x.numel(), 256, stream=7)
        return out

    assert reason(entry) == "double is launched on another stream than the current one"


def test_memory_beside_an_input_is_not_the_inputs(record) -> None:
    x = torch.randn(2 * SIZE)[:SIZE]
    kept = record(lambda x: x.as_strided((SIZE,), (1,), 0), (x,), copied=False)
    assert kept.plan.outputs["view"]["input"] == 0
    beside = record(lambda x: x.as_strided((SIZE,), (1,), 1), (x,), copied=False)
    assert beside.reason == "the result lies in memory that was not allocated in this call"


def test_where_an_input_lies_within_16_bytes_is_told(record) -> None:
    plan = record(replayed.doubled, (torch.randn(SIZE + 1)[1:],), copied=False).plan
    assert plan.inputs["tuple"][0]["tensor"]["residue"] == 4


def test_a_kernel_that_is_run_past_triton_is_not_recorded(record) -> None:
    def entry(x):
        out = torch.empty_like(x)
        compiled = replayed.double.warmup(x, out, x.numel(), BLOCK=256, grid=(4,))
        compiled._init_handles()
        compiled.run(4, 1, 1, 0, compiled.function, compiled.packed_metadata, None, None, None, x, out, x.numel(), 256)
        return out

    assert record(entry, (torch.randn(SIZE),)).reason == "it launches a kernel past Triton's own way to launch"


def test_too_many_launches_are_refused(record) -> None:
    def entry(x):
        out = torch.empty_like(x)
        for _ in range(1001):
            replayed.launch(x, out)

    assert "more than 1000" in record(entry, (torch.randn(SIZE),)).reason


def test_an_error_of_the_entry_is_its_own(record) -> None:
    def entry(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        record(entry, (torch.randn(SIZE),))


def test_a_kernel_compiled_beforehand_is_recorded(record) -> None:
    def entry(x):
        out = torch.empty_like(x)
        compiled = replayed.double.warmup(x, out, x.numel(), BLOCK=256, grid=(4,))
        compiled[(4, 1, 1)](x, out, x.numel(), 256)
        return out

    launch = record(entry, (torch.randn(SIZE),)).plan.operations[-1]
    assert isinstance(launch, Launch)
    assert launch.grid == [4, 1, 1]
