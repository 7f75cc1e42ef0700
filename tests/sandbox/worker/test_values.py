# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""Arguments and results on the wire: what goes in comes out, bit for bit, and what is no data is refused."""

import json
import math
import os
import socket
import struct
import threading
from typing import NamedTuple

import pytest
import torch

DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64, torch.complex128,
]  # fmt: skip


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@pytest.fixture
def round_trip(values):
    """Encodes, passes through JSON and bytes as the wire does, and decodes."""

    def run(value):
        blobs = []
        tree = json.loads(json.dumps(values.encode(value, blobs, stage="run", where="output"), allow_nan=False))
        sent = [bytearray(bytes(blob)) for blob in blobs]
        values.release()
        return values.decode(tree, sent, "cpu")

    return run


@pytest.fixture
def refused(values, worker):
    """The refusal of a value."""

    def run(value):
        with pytest.raises(worker.failures.Refused) as caught:
            values.encode(value, [], stage="run", where="output")
        assert (caught.value.kind, caught.value.stage) == ("rejected", "run")
        return str(caught.value)

    return run


def bits(tensor):
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)


def same(got, expected):
    return (
        got.dtype == expected.dtype
        and got.shape == expected.shape
        and got.stride() == expected.stride()
        and (not got.numel() or torch.equal(bits(got), bits(expected)))
    )


def numbers(dtype, *shape):
    raw = torch.randint(0, 2, (math.prod(shape) * dtype.itemsize,), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (3, 0, 2)], ids=str)
def test_a_tensor_of_every_dtype_and_shape_comes_back(round_trip, dtype, shape):
    tensor = numbers(dtype, *shape)
    assert same(round_trip(tensor), tensor)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[3:, 5:],
        lambda x: x[2],
        lambda x: x[1, 2],
        lambda x: x[0].expand(6, 10),
        lambda x: x[:, :1].expand(8, 4),
        lambda x: x.as_strided((3, 4), (1, 1)),
        lambda x: x[5:5],
        lambda x: x.permute(1, 0)[::3],
    ],
    ids=[
        "transposed", "strided", "offset", "row", "element", "broadcast", "broadcast column", "overlapping", "empty",
        "permuted",
    ],
)  # fmt: skip
def test_a_view_keeps_its_strides_and_leaves_the_rest_of_its_storage(round_trip, view):
    tensor = view(torch.arange(80, dtype=torch.float32).reshape(8, 10))
    got = round_trip(tensor)
    assert same(got, tensor)
    assert got.storage_offset() == 0


def test_a_broadcast_travels_as_the_one_element_that_it_is(values):
    blobs = []
    values.encode(torch.ones(1).expand(1 << 30), blobs, stage="run", where="output")
    assert [blob.nbytes for blob in blobs] == [4]


@pytest.fixture
def crossed(values, frames):
    """Encodes and decodes through a real socket; the tree, the blobs on arrival, and the value."""

    def run(value):
        near, far = socket.socketpair()

        def send(*frame):
            with near:
                frames.send(near, *frame)

        with far:
            blobs = []
            tree = values.encode(value, blobs, stage="run", where="output")
            sending = threading.Thread(target=send, args=({"tree": tree}, blobs))
            sending.start()
            frame = frames.receive(far)
            sending.join()
            values.release()
            try:
                return frame.fields["tree"], frame.blobs, values.decode(frame.fields["tree"], frame.blobs, "cpu")
            finally:
                for blob in frame.blobs:
                    if isinstance(blob, values.share.Shared):
                        os.close(blob.descriptor)

    return run


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[1:, ::2]], ids=["whole", "turned", "cut"])
def test_a_large_tensor_of_every_dtype_comes_back_unchanged_as_a_memory_file(crossed, share, dtype, view):
    tensor = view(numbers(dtype, 600, 800))
    _, (blob,), got = crossed(tensor)
    assert isinstance(blob, share.Shared)
    assert blob.kind == "memory"
    assert same(got, tensor)


def test_large_tensors_alone_leave_the_frame(crossed, share):
    limit = share.INLINE_BYTES
    value = [numbers(torch.uint8, size) for size in (limit - 1, limit, 0, limit + 1)]
    _, blobs, got = crossed(value)
    assert [isinstance(blob, share.Shared) for blob in blobs] == [False, True, False, True]
    assert all(same(*each) for each in zip(got, value, strict=True))


def test_more_large_tensors_than_a_frame_takes_descriptors_for_all_come_back(crossed, frames, share):
    value = [numbers(torch.uint8, share.INLINE_BYTES) for _ in range(frames.DESCRIPTORS_LIMIT + 5)]
    _, blobs, got = crossed(value)
    assert sum(isinstance(blob, share.Shared) for blob in blobs) == frames.DESCRIPTORS_LIMIT
    assert all(same(*each) for each in zip(got, value, strict=True))


def test_gpu_memory_is_refused_where_there_is_no_gpu(values, share, failures):
    tree = {"tensor": {"dtype": "uint8", "shape": [4], "stride": [1], "device": "cuda", "requires_grad": False}}
    with pytest.raises(failures.Refused, match="came as GPU memory to a worker without a GPU"):
        values.decode({**tree, "blob": 0}, [share.Shared(0, 4, "device")], "cpu")


def test_a_forged_tensor_never_reaches_beyond_a_memory_file(values, share, failures):
    shared = share.to_memory(torch.zeros(16, dtype=torch.uint8))
    fields = {"dtype": "float32", "shape": [5], "stride": [1], "device": "cpu", "requires_grad": False}
    try:
        with pytest.raises(failures.Refused, match="16 bytes for a tensor") as caught:
            values.decode({"tensor": fields, "blob": 0}, [shared], "cpu")
        assert caught.value.kind == "cheating"
    finally:
        os.close(shared.descriptor)


def test_nan_payloads_signed_zeros_and_infinities_come_back_bit_for_bit(round_trip):
    raw = [0x7FC00001, 0xFFC12345 - (1 << 32), 0x7F800000, 0xFF800000 - (1 << 32), -(1 << 31), 1]
    tensor = torch.tensor(raw, dtype=torch.int32).view(torch.float32)
    assert same(round_trip(tensor), tensor)


def test_conjugation_that_was_put_off_is_carried_out(round_trip):
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert z.conj().is_conj()
    assert torch.equal(round_trip(z.conj()), torch.tensor([1 - 2j, 3 + 4j]))


def test_negation_that_was_put_off_is_carried_out(round_trip):
    imaginary = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert imaginary.is_neg()
    assert torch.equal(round_trip(imaginary), torch.tensor([-2.0, 4.0]))


def test_gradients_stay_wanted(round_trip):
    assert round_trip(torch.ones(3, requires_grad=True)).requires_grad
    assert round_trip(torch.nn.Parameter(torch.ones(3))).requires_grad
    assert not round_trip(torch.ones(3)).requires_grad


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -7, 1 << 80, 1.5, -0.0, math.inf, -math.inf, "", "naïve \U0001f680", [], (), {}, {"a": 1}],
)
def test_a_plain_value_comes_back_with_its_type(round_trip, value):
    got = round_trip(value)
    assert got == value
    assert type(got) is type(value)


def test_nan_comes_back(round_trip):
    assert math.isnan(round_trip(math.nan))


def test_a_dtype_comes_back(round_trip):
    assert round_trip((torch.bfloat16, torch.float8_e4m3fn)) == (torch.bfloat16, torch.float8_e4m3fn)


def test_nested_values_come_back_in_order_with_their_tensors(round_trip):
    value = {"b": [torch.ones(2), (torch.zeros(3), 4)], "a": {1: torch.full((1,), 5.0), "x": None}}
    got = round_trip(value)
    assert list(got) == ["b", "a"]
    assert torch.equal(got["b"][0], torch.ones(2))
    assert torch.equal(got["b"][1][0], torch.zeros(3))
    assert got["b"][1][1] == 4
    assert torch.equal(got["a"][1], torch.full((1,), 5.0))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "output is a builtins.object; allowed are tensors, numbers"),
        ([1, {"x": {2, 3}}], "output[1]['x'] is a builtins.set"),
        ((torch.device("cpu"),), "output[0] is a torch.device"),
        (b"bytes", "output is a builtins.bytes"),
        (1 + 2j, "output is a builtins.complex"),
        (lambda: 1, "output is a builtins.function"),
        ({(1, 2): 1}, "output has a key of type tuple; keys are strings or integers"),
        ({None: 1}, "output has a key of type NoneType"),
    ],
    ids=["object", "set", "device", "bytes", "complex", "function", "tuple key", "None key"],
)
def test_what_is_no_data_is_refused_with_its_place_and_type(refused, value, message):
    assert refused(value).startswith(message)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_tensor_is_refused(refused):
    assert refused((torch.eye(3).to_sparse(),)).startswith("output[0] is a torch.sparse_coo tensor")


def test_a_tensor_subclass_is_refused(refused):
    class Own(torch.Tensor):
        pass

    assert "Own; only plain torch.Tensor is supported" in refused(torch.ones(2).as_subclass(Own))


def test_bytes_stay_those_of_the_tensor_until_they_are_released(values):
    blobs = []
    values.encode([torch.full((1000,), float(number)) for number in range(50)], blobs, stage="run", where="output")
    # The tensors themselves are gone by now.
    for number, blob in enumerate(blobs):
        assert bytes(blob) == struct.pack("=1000f", *[number] * 1000)
    values.release()


def test_decoded_tensors_own_their_memory(values):
    blob = bytearray(16)
    fields = {"dtype": "float32", "shape": [4], "stride": [1], "device": "cpu", "requires_grad": False}
    got = values.decode({"tensor": fields, "blob": 0}, [blob], "cpu")
    blob[:] = b"\xff" * 16
    assert torch.equal(got, torch.zeros(4))


@pytest.mark.parametrize(
    "changed",
    [
        {"shape": [5]},
        {"shape": [2], "stride": [4]},
        {"shape": [1 << 40]},
        {"shape": [-1]},
        {"stride": [-1]},
        {"shape": [2, 2]},
        {"dtype": "load"},
        {"dtype": "no_such_dtype"},
        {"dtype": "float64", "shape": [3]},
        {"shape": [3]},
        {"shape": [1 << 40], "stride": [0]},
        {"shape": [1 << 40, 1 << 40], "stride": [0, 0]},
        {"shape": [2, 4], "stride": [(1 << 63) - 1, 1]},
        {"dtype": "_dynamo"},
        {"dtype": "quint8"},
        {"dtype": "int32", "requires_grad": True},
    ],
    ids=str,
)
def test_a_forged_tensor_is_refused(values, failures, changed):
    fields = {"dtype": "float32", "shape": [4], "stride": [1], "device": "cpu", "requires_grad": False, **changed}
    with pytest.raises(failures.Refused, match="makes of no value") as caught:
        values.decode({"tensor": fields, "blob": 0}, [bytearray(16)], "cpu")
    assert caught.value.kind == "cheating"


@pytest.mark.parametrize("name", ["__dict__", "load", "no_such_dtype"])
def test_a_forged_dtype_is_refused(values, failures, name):
    with pytest.raises(failures.Refused, match="a dtype") as caught:
        values.decode({"dtype": name}, [], "cpu")
    assert caught.value.kind == "cheating"


def test_a_forged_dtype_imports_nothing(values, failures, monkeypatch):
    def imports(name):
        raise AssertionError(f"torch was asked for {name}")

    # Where torch has no such attribute, it looks for a module of its own.
    monkeypatch.setattr(torch, "__getattr__", imports)
    with pytest.raises(failures.Refused, match="a dtype"):
        values.decode({"dtype": "no_such_dtype"}, [], "cpu")


def test_a_forged_tensor_of_more_elements_than_can_be_counted_is_refused(values, failures):
    fields = {"dtype": "uint8", "shape": [1 << 40, 1 << 40], "stride": [0, 0], "device": "cpu", "requires_grad": False}
    with pytest.raises(failures.Refused, match="makes of no value"):
        values.decode({"tensor": fields, "blob": 0}, [bytearray(1)], "cpu")


def test_what_can_be_encoded_is_known_before(values):
    good = (torch.ones(2), [1, 2.5, True, None, "text"], {"a": torch.float16, 3: (torch.nn.Parameter(torch.ones(1)),)})
    values.check(good, stage="inputs", where="input")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1, {"a": {1, 2}}), r"input\[1\]\['a'\] is a builtins.set"),
        ([{2.5: 1}], r"input\[0\] has a key of type float"),
        ((torch.eye(2).to_sparse(),), r"input\[0\] is a torch.sparse_coo tensor"),
    ],
    ids=["set", "key", "sparse"],
)
def test_what_cannot_be_encoded_is_known_before(values, failures, value, message):
    with pytest.raises(failures.Refused, match=message) as caught:
        values.check(value, stage="inputs", where="input")
    assert (caught.value.kind, caught.value.stage) == ("rejected", "inputs")


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[:, 1:3], lambda x: x[0].expand(4, 6)])
def test_a_copy_has_the_same_layout_and_storage_of_its_own(values, view):
    tensor = view(torch.arange(24.0).reshape(4, 6))
    copied = values.copy({"x": [tensor]})["x"][0]
    assert same(copied, tensor)
    assert copied.data_ptr() != tensor.data_ptr()
    copied.fill_(-1)
    assert not (tensor == -1).any()


def test_a_copy_of_a_named_tuple_is_a_tuple(values):
    copied = values.copy((Pair(torch.ones(1), torch.zeros(2)), [torch.ones(3)], 5))
    assert isinstance(copied[0], tuple)
    assert [tensor.numel() for tensor in values.tensors(copied)] == [1, 2, 3]
    assert isinstance(copied[1], list)


def test_sizes_count_the_storage_that_is_spanned(values):
    x = torch.zeros(8, 10)
    assert values.size_bytes((x, [x[:, ::2]], {"a": x[0].expand(5, 10)}, 3)) == 4 * (80 + 79 + 10)


def test_tensors_from_another_device_are_counted_at_every_depth(values):
    blobs = []
    tree = values.encode(([torch.ones(1)], {"x": (torch.ones(1), 2)}, []), blobs, stage="run", where="output")
    assert values.strays(tree, "cpu") == 0
    assert values.strays(tree, "cuda") == 2
