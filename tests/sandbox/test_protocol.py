"""Frames: nothing that a worker sends is believed before it has been checked."""

import fcntl
import gc
import json
import mmap
import os
import random
import socket
import struct
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import UNIXSocketStream

from tritonforge.sandbox import protocol
from tritonforge.sandbox.errors import ProtocolViolation
from tritonforge.sandbox.protocol import (
    BLOBS_LIMIT,
    DESCRIPTORS_LIMIT,
    HEADER_LIMIT_BYTES,
    INLINE_LIMIT_BYTES,
    MAGIC,
    PREFIX,
    BlobSize,
    SharedBlob,
    pack_header,
    unpack_header,
)

pytestmark = pytest.mark.anyio
LIMIT = 1000


@asynccontextmanager
async def pair() -> AsyncGenerator[tuple[UNIXSocketStream, UNIXSocketStream]]:
    ours, theirs = socket.socketpair()
    async with await UNIXSocketStream.from_socket(ours) as near, await UNIXSocketStream.from_socket(theirs) as far:
        yield near, far


async def received(data: bytes, descriptors: Sequence[int] = ()) -> protocol.Frame:
    """What the parent makes of these bytes, after which the worker has closed its end."""
    async with pair() as (near, far):
        if descriptors:
            await far.send_fds(data, descriptors)
        else:
            await far.send(data)
        await far.aclose()
        return await protocol.receive(near, LIMIT)


def frame(header: bytes) -> bytes:
    return PREFIX.pack(MAGIC, len(header)) + header


@pytest.mark.parametrize(
    "blobs",
    [[], [b""], [b"x"], [b"ab", b"", b"\0" * 10], [bytes(range(256)) * (protocol.CHUNK_BYTES // 128)]],
    ids=["none", "empty", "one", "several", "longer than a chunk"],
)
async def test_a_frame_arrives_as_it_was_sent(blobs: list[bytes]) -> None:
    fields = {"op": "call", "text": "naïve \U0001f680", "nested": {"list": [1, 2.5, None, True]}}
    async with pair() as (near, far), anyio.create_task_group() as tasks:
        tasks.start_soon(protocol.send, far, fields, blobs)
        assert await protocol.receive(near, 1 << 30) == (fields, blobs)


async def test_frames_follow_one_another_on_a_stream() -> None:
    async with pair() as (near, far):
        for number in range(3):
            await protocol.send(far, {"number": number}, [bytes([number])])
        assert [(await protocol.receive(near, LIMIT)).fields["number"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("cut", [0, 1, PREFIX.size - 1, PREFIX.size, PREFIX.size + 5, -1])
async def test_a_frame_cut_short_is_an_end_of_the_stream(cut: int) -> None:
    whole = pack_header({"ok": True}, [4]) + b"data"
    with pytest.raises(anyio.EndOfStream):
        await received(whole[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"TFW2" + struct.pack(">I", 2) + b"{}",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"\0" * 64,
        PREFIX.pack(MAGIC, HEADER_LIMIT_BYTES + 1),
        PREFIX.pack(MAGIC, 0xFFFF_FFFF),
    ],
)
async def test_what_is_no_frame_is_refused_before_more_is_read(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="not a frame"):
        await received(data)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe\xfd", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"blobs": [' + b"9" * 5000 + b"]}", "not JSON"),
        (b'{"text": "\\ud800", "blobs": []}', "not JSON"),
        (b'{"\\uDFFF": 1, "blobs": []}', "not JSON"),
        ('{"text": "\\ud800", "blobs": []}'.encode("utf-16"), "not JSON"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b"{}", "no list of blob sizes"),
        (b'{"blobs": null}', "no list of blob sizes"),
        (b'{"blobs": {"0": 1}}', "no list of blob sizes"),
        (b'{"blobs": [-1]}', "no size"),
        (b'{"blobs": [true]}', "no size"),
        (b'{"blobs": [1.0]}', "no size"),
        (b'{"blobs": ["1"]}', "no size"),
        (b'{"blobs": [1e999]}', "no size"),
        (b'{"blobs": [1001]}', "more data than the 1,000 bytes that are allowed"),
        (b'{"blobs": [500, 501]}', "more data than the 1,000 bytes that are allowed"),
        (b'{"blobs": [' + b"9" * 4300 + b", " + b"9" * 4300 + b"]}", "more data than"),
        (b'{"blobs": [{}]}', "shared blob that is malformed"),
        (b'{"blobs": [{"size": 1}]}', "shared blob that is malformed"),
        (b'{"blobs": [{"size": 1, "kind": null}]}', "shared blob that is malformed"),
        (b'{"blobs": [{"size": 1, "kind": "disk"}]}', "shared blob that is malformed"),
        (b'{"blobs": [{"size": 1, "kind": "memory", "more": 1}]}', "shared blob that is malformed"),
        (b'{"blobs": [{"size": -1, "kind": "memory"}]}', "no size"),
        (b'{"blobs": [{"size": true, "kind": "memory"}]}', "no size"),
        (b'{"blobs": [{"size": {"size": 1}, "kind": "memory"}]}', "no size"),
        (b'{"blobs": [500, {"size": 501, "kind": "device"}]}', "more data than the 1,000 bytes that are allowed"),
        (b'{"blobs": [{"size": 1, "kind": "memory"}]}', "announced a shared blob and passed no descriptor"),
    ],
)
async def test_a_malformed_header_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(ProtocolViolation, match=message) as caught:
        await received(frame(header))
    assert len(str(caught.value)) < 300


def test_a_refusal_does_not_repeat_what_it_refuses() -> None:
    with pytest.raises(ProtocolViolation) as caught:
        unpack_header(json.dumps({"blobs": ["x" * 100_000]}).encode(), LIMIT)
    assert len(str(caught.value)) < 300


def test_blobs_of_exactly_the_limit_are_allowed() -> None:
    assert unpack_header(b'{"blobs": [400, 600]}', LIMIT) == ({}, [400, 600])


@pytest.mark.parametrize("kind", [[], {}, 3, None, "disk"])
def test_a_shared_blob_of_another_kind_is_refused(kind: Any) -> None:
    with pytest.raises(ProtocolViolation, match="a shared blob that is malformed"):
        unpack_header(json.dumps({"blobs": [{"size": 1, "kind": kind}]}).encode(), LIMIT)


def test_a_frame_has_no_endless_list_of_blobs() -> None:
    assert len(unpack_header(json.dumps({"blobs": [0] * BLOBS_LIMIT}).encode(), LIMIT)[1]) == BLOBS_LIMIT
    with pytest.raises(ProtocolViolation, match="more blobs than the 4,096"):
        unpack_header(json.dumps({"blobs": [0] * (BLOBS_LIMIT + 1)}).encode(), LIMIT)


def test_what_the_parent_would_hold_itself_is_limited_apart_from_what_it_hands_on() -> None:
    shared = {"size": INLINE_LIMIT_BYTES, "kind": "memory"}
    unpack_header(json.dumps({"blobs": [INLINE_LIMIT_BYTES, shared]}).encode(), 1 << 40)
    with pytest.raises(ProtocolViolation, match="bytes of a frame"):
        unpack_header(json.dumps({"blobs": [INLINE_LIMIT_BYTES, 1]}).encode(), 1 << 40)


def test_random_bytes_are_a_header_or_refused() -> None:
    random_ = random.Random(20_250_101)
    for _ in range(3000):
        with_refusal(random_.randbytes(random_.randrange(64)))


def test_headers_with_random_damage_are_a_header_or_refused() -> None:
    random_ = random.Random(20_250_102)
    sound = (
        b'{"ok": true, "launches": [{"grid": [1, 2, 3], "x": null}], "tree": {"value": 1.5}, '
        b'"blobs": [12, 345, {"size": 60, "kind": "memory"}]}'
    )
    for _ in range(3000):
        damaged = bytearray(sound)
        for _ in range(random_.randrange(1, 6)):
            at = random_.randrange(len(damaged))
            match random_.randrange(3):
                case 0:
                    damaged[at] = random_.randrange(256)
                case 1:
                    del damaged[at]
                case _:
                    damaged[at:at] = random_.choice([b"[", b"{", b'"', b"-", b"9" * 30, b",", b"null", b"\\ud800"])
        with_refusal(bytes(damaged))


def with_refusal(header: bytes) -> None:
    """Either a `ProtocolViolation` or fields with sizes within the limit; anything else fails the test."""
    try:
        fields, sizes = unpack_header(header, LIMIT)
    except ProtocolViolation:
        return
    assert "blobs" not in fields
    found = [size if isinstance(size, int) else size["size"] for size in sizes]
    assert all(isinstance(size, int) and size >= 0 for size in found)
    assert sum(map(int, found)) <= LIMIT


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), deep(100_000)], ids=["nan", "inf", "-inf", "deep"]
)
def test_data_that_json_cannot_carry_is_refused_and_not_sent_on(value: Any) -> None:
    with pytest.raises(ProtocolViolation, match="can't be passed on"):
        pack_header({"tree": value}, [])


SEALED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def memory_file(data: bytes, seals: int = SEALED) -> int:
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, data)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def content(blob: protocol.Blob) -> bytes:
    """What a shared blob holds, as another worker would read it."""
    assert isinstance(blob, SharedBlob)
    with mmap.mmap(blob.descriptor, blob.size_bytes, access=mmap.ACCESS_READ) as mapping:
        return mapping[:]


@pytest.fixture(scope="module", autouse=True)
def little_garbage() -> Generator[None]:
    """What is there by now, torch for example, is not looked through again in every test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@contextmanager
def all_closed() -> Generator[list[int]]:
    """Takes descriptors to close at the end; whatever else was opened inside must be closed by then."""
    before = set(os.listdir("/proc/self/fd"))
    passed: list[int] = []
    yield passed
    gc.collect()
    for descriptor in passed:
        os.close(descriptor)
    assert set(os.listdir("/proc/self/fd")) == before


def announced(*sizes: BlobSize) -> bytes:
    return pack_header({"ok": True}, sizes)


def memory(size: int) -> BlobSize:
    return {"size": size, "kind": "memory"}


async def test_shared_blobs_arrive_among_others_in_their_order() -> None:
    with all_closed() as passed:
        passed += [memory_file(b"first"), memory_file(b"second"), os.open(os.devnull, os.O_RDONLY)]
        data = announced(2, memory(5), memory(6), 1, {"size": 7, "kind": "device"}) + b"abc"
        fields, blobs = await received(data, passed)
        assert fields == {"ok": True}
        assert [blobs[0], blobs[3]] == [b"ab", b"c"]
        assert [content(blob) for blob in blobs[1:3]] == [b"first", b"second"]
        device = blobs[4]
        assert isinstance(device, SharedBlob)
        assert (device.kind, device.size_bytes) == ("device", 7)
        assert not os.get_inheritable(device.descriptor)
        del blobs, device


async def test_a_shared_blob_is_passed_on_without_its_bytes() -> None:
    with all_closed() as passed:
        passed.append(memory_file(bytes(100 << 20)))
        blob = SharedBlob(os.dup(passed[0]), 100 << 20, "memory")
        async with pair() as (near, far):
            # With nobody reading, it must fit into the socket's buffer.
            await protocol.send(far, {"op": "judge"}, [b"x", blob])
            fields, blobs = await protocol.receive(near, 1 << 30)
        assert fields == {"op": "judge"}
        assert blobs[0] == b"x"
        assert isinstance(blobs[1], SharedBlob)
        assert os.fstat(blobs[1].descriptor).st_ino == os.fstat(passed[0]).st_ino
        del blob, blobs


@pytest.mark.parametrize(
    "seals",
    [0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_WRITE, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL],
    ids=["none", "may be written to", "may shrink", "both"],
)
async def test_a_memory_file_that_its_sender_can_still_change_is_refused(seals: int) -> None:
    with all_closed() as passed:
        passed.append(memory_file(b"data", seals))
        with pytest.raises(ProtocolViolation, match="not sealed"):
            await received(announced(memory(4)), passed)


@pytest.mark.parametrize("size", [0, 3, 5])
async def test_a_memory_file_of_another_size_than_announced_is_refused(size: int) -> None:
    with all_closed() as passed:
        passed.append(memory_file(b"data"))
        with pytest.raises(ProtocolViolation, match="not of the announced size"):
            await received(announced(memory(size)), passed)


async def test_a_descriptor_of_something_else_is_refused() -> None:
    with all_closed() as passed:
        passed += [*os.pipe(), os.open("/proc/self/status", os.O_RDONLY), os.open("/", os.O_RDONLY)]
        for descriptor in passed:
            with pytest.raises(ProtocolViolation, match="no memory file"):
                await received(announced(memory(0)), [descriptor])


async def test_a_descriptor_too_few_is_refused_and_the_others_are_closed() -> None:
    with all_closed() as passed:
        passed.append(memory_file(b"data"))
        with pytest.raises(ProtocolViolation, match="passed no descriptor"):
            await received(announced(memory(4), memory(4)), passed)


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (announced(), None),
        (announced(memory(4)), None),
        (announced(4) + b"data", None),
        (announced(memory(4))[:-1], anyio.EndOfStream),
        (announced(4) + b"dat", anyio.EndOfStream),
        (b"T", anyio.EndOfStream),
        (b"HTTP/1.1 200 OK", ProtocolViolation),
        (frame(b"{"), ProtocolViolation),
        (announced(1001), ProtocolViolation),
    ],
)
async def test_descriptors_that_nothing_announced_are_closed(data: bytes, refusal: type[Exception] | None) -> None:
    with all_closed() as passed:
        passed += [memory_file(b"data") for _ in range(3)]
        if refusal is None:
            await received(data, passed)
        else:
            with pytest.raises(refusal):
                await received(data, passed)


async def test_descriptors_that_come_after_the_prefix_are_not_taken() -> None:
    data = announced(memory(4))
    with all_closed() as passed:
        passed.append(memory_file(b"data"))
        async with pair() as (near, far):
            await far.send(data[: PREFIX.size])
            await far.send_fds(data[PREFIX.size :], passed)
            with pytest.raises(ProtocolViolation, match="passed no descriptor"):
                await protocol.receive(near, LIMIT)


async def test_as_many_descriptors_as_a_frame_may_have_arrive() -> None:
    with all_closed() as passed:
        passed += [memory_file(bytes([number])) for number in range(DESCRIPTORS_LIMIT)]
        _, blobs = await received(announced(*[memory(1)] * DESCRIPTORS_LIMIT), passed)
        assert b"".join(map(content, blobs)) == bytes(range(DESCRIPTORS_LIMIT))
        del blobs


@pytest.mark.parametrize("more", [1, 3])
async def test_more_descriptors_than_a_frame_may_have_are_refused_and_closed(more: int) -> None:
    with all_closed() as passed:
        passed += [memory_file(b"x") for _ in range(DESCRIPTORS_LIMIT + more)]
        with pytest.raises(ProtocolViolation, match="passed no descriptor"):
            await received(announced(*[memory(1)] * (DESCRIPTORS_LIMIT + more)), passed)


async def test_a_receiver_that_is_cancelled_keeps_no_descriptor() -> None:
    with all_closed() as passed:
        passed.append(memory_file(b"data"))
        async with pair() as (near, far), anyio.create_task_group() as tasks:
            # The blob's last byte never comes.
            await far.send_fds(announced(memory(4), 4) + b"dat", passed)
            tasks.start_soon(protocol.receive, near, LIMIT)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
