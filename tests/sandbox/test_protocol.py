"""Frames: nothing that a worker sends is believed before it has been checked."""

import json
import random
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from tritonforge.sandbox import protocol
from tritonforge.sandbox.errors import ProtocolViolation
from tritonforge.sandbox.protocol import HEADER_LIMIT_BYTES, MAGIC, PREFIX, pack_header, unpack_header

pytestmark = pytest.mark.anyio
LIMIT = 1000


@asynccontextmanager
async def pair() -> AsyncGenerator[tuple[SocketStream, SocketStream]]:
    ours, theirs = socket.socketpair()
    async with await SocketStream.from_socket(ours) as near, await SocketStream.from_socket(theirs) as far:
        yield near, far


async def received(data: bytes) -> protocol.Frame:
    """What the parent makes of these bytes, after which the worker has closed its end."""
    async with pair() as (near, far):
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


def test_random_bytes_are_a_header_or_refused() -> None:
    random_ = random.Random(20_250_101)
    for _ in range(3000):
        with_refusal(random_.randbytes(random_.randrange(64)))


def test_headers_with_random_damage_are_a_header_or_refused() -> None:
    random_ = random.Random(20_250_102)
    sound = b'{"ok": true, "launches": [{"grid": [1, 2, 3], "x": null}], "tree": {"value": 1.5}, "blobs": [12, 345]}'
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
    assert all(size >= 0 for size in sizes)
    assert sum(sizes) <= LIMIT


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
