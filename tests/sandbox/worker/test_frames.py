# pyright: basic
# The worker's modules are loaded from their folder, so their types are unknown here.
"""The worker's side of the wire: what the parent's side reads, and descriptors that are not kept."""

import json
import os
import socket

import pytest
import torch

from tritonforge.sandbox import protocol


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def descriptors():
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture
def shared(share):
    """A memory file of these bytes."""
    return lambda data: share.to_memory(torch.frombuffer(bytearray(data), dtype=torch.uint8))


@pytest.mark.parametrize("blobs", [[], [b""], [b"ab", bytearray(3), memoryview(b"xyz")], [bytes(100_000)]])
def test_a_frame_comes_back_as_it_was_sent(frames, pair, blobs):
    near, far = pair
    fields = {"op": "call", "text": "naïve", "nested": {"list": [1, None]}}
    frames.send(near, fields, blobs)
    got = frames.receive(far)
    assert got.fields == fields
    assert [bytes(blob) for blob in got.blobs] == [bytes(blob) for blob in blobs]


def test_both_sides_speak_the_same_protocol(frames):
    assert frames.MAGIC == protocol.MAGIC
    assert frames.PREFIX.format == protocol.PREFIX.format
    assert frames.DESCRIPTORS_LIMIT == protocol.DESCRIPTORS_LIMIT


def test_the_end_of_the_stream_is_no_frame(frames, pair):
    near, far = pair
    near.close()
    assert frames.receive(far) is None


def test_a_frame_cut_short_is_an_error(frames, pair):
    near, far = pair
    near.sendall(protocol.pack_header({"op": "call"}, [4]) + b"dat")
    near.close()
    with pytest.raises(ConnectionError, match="in the middle of a frame"):
        frames.receive(far)


def test_what_is_no_frame_is_an_error(frames, pair):
    near, far = pair
    near.sendall(b"HTTP/1.1 200 OK")
    with pytest.raises(ConnectionError, match="not a frame"):
        frames.receive(far)


def test_shared_blobs_come_in_their_order_among_others(frames, pair, share, shared):
    near, far = pair
    before = descriptors()
    frames.send(near, {"ok": True}, [b"x", shared(b"first"), b"y", shared(b"second")])
    # Those that were sent belong to the other side now.
    assert descriptors() == before
    got = frames.receive(far)
    assert [bytes(got.blobs[0]), bytes(got.blobs[2])] == [b"x", b"y"]
    values = [share.from_memory(got.blobs[number], "cpu") for number in (1, 3)]
    assert [bytes(value.tolist()) for value in values] == [b"first", b"second"]
    for number in (1, 3):
        assert not os.get_inheritable(got.blobs[number].descriptor)
        os.close(got.blobs[number].descriptor)


def test_the_parent_reads_what_a_worker_shares(frames, pair, shared):
    near, far = pair
    frames.send(near, {"ok": True}, [b"abc", shared(b"data")])
    data, passed, _, _ = socket.recv_fds(far, 1 << 16, 10)
    length = protocol.PREFIX.unpack(data[: protocol.PREFIX.size])[1]
    fields, sizes = protocol.unpack_header(data[protocol.PREFIX.size :][:length], 100)
    assert (fields, sizes) == ({"ok": True}, [3, {"size": 4, "kind": "memory"}])
    (descriptor,) = passed
    protocol.SharedBlob(descriptor, 4, "memory").check()


def test_descriptors_of_a_frame_that_cannot_be_sent_are_closed(frames, pair, shared):
    near, _ = pair
    before = descriptors()
    with pytest.raises(ValueError, match="JSON"):
        frames.send(near, {"odd": float("nan")}, [shared(b"data")])
    assert descriptors() == before


def test_as_many_descriptors_as_a_frame_may_have_are_sent(frames, pair, share, shared):
    near, far = pair
    before = descriptors()
    frames.send(near, {"ok": True}, [shared(bytes([number])) for number in range(frames.DESCRIPTORS_LIMIT)])
    got = frames.receive(far)
    assert [share.from_memory(blob, "cpu").item() for blob in got.blobs] == list(range(frames.DESCRIPTORS_LIMIT))
    for blob in got.blobs:
        os.close(blob.descriptor)
    assert descriptors() == before


def test_the_header_is_plain_json(frames, pair):
    near, far = pair
    frames.send(near, {"ok": True}, [b"abc"])
    data = far.recv(1 << 16)
    assert json.loads(data[protocol.PREFIX.size : -3]) == {"ok": True, "blobs": [3]}


def test_a_message_that_the_server_would_refuse_is_not_sent(frames, pair, shared):
    near, far = pair
    before = descriptors()
    with pytest.raises(frames.TooLong, match="3 MiB"):
        frames.send(near, {"text": "x" * (3 << 20)}, [shared(b"abc")])
    assert descriptors() <= before
    frames.send(near, {"text": "short"})
    assert frames.receive(far).fields == {"text": "short"}
    assert frames.HEADER_LIMIT_BYTES == protocol.HEADER_LIMIT_BYTES
