"""The parent's side of the wire: frames are checked before anything in them is believed.

A frame is the magic ``TFW1``, the header's length (u32, big endian), the header as UTF-8 JSON, then raw
blobs whose sizes the header's ``blobs`` lists.
"""

import json
import struct
from typing import Any, NamedTuple, cast

from anyio import EndOfStream
from anyio.abc import SocketStream

from .errors import ProtocolViolation

MAGIC = b"TFW1"
PREFIX = struct.Struct(">4sI")
HEADER_LIMIT_BYTES = 8 << 20
CHUNK_BYTES = 1 << 20


class Frame(NamedTuple):
    """One message from a worker."""

    fields: dict[str, Any]
    blobs: list[bytes]


def pack_header(fields: dict[str, Any], blob_sizes: list[int]) -> bytes:
    """Prefix and header of a frame; the blobs follow it on the wire.

    Raises:
        ProtocolViolation: fields from another worker that JSON can't carry: too deep, or not finite.
    """
    try:
        header = json.dumps({**fields, "blobs": blob_sizes}, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"a worker's data can't be passed on: {error}") from error
    return PREFIX.pack(MAGIC, len(header)) + header


def unpack_header(header: bytes, blob_limit_bytes: int) -> tuple[dict[str, Any], list[int]]:
    """Fields and blob sizes of a header.

    Raises:
        ProtocolViolation: not an object, or blobs that are malformed or larger together than the limit.
    """
    try:
        text = header.decode()
        parsed: Any = json.loads(text)
        if "\\ud" in text.lower():
            # An escaped half of a pair is no text, and would only be noticed where a result is written out.
            json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"the worker's header is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ProtocolViolation("the worker's header is not an object")
    fields = cast(dict[str, Any], parsed)
    sizes: Any = fields.pop("blobs", None)
    if not isinstance(sizes, list):
        raise ProtocolViolation("the worker's header has no list of blob sizes")
    checked: list[int] = []
    for size in cast(list[Any], sizes):
        if type(size) is not int or size < 0:
            raise ProtocolViolation(f"the worker's header has a blob size that is no size: {type(size).__name__}")
        checked.append(size)
    if sum(checked) > blob_limit_bytes:
        raise ProtocolViolation(f"the worker announced more data than the {blob_limit_bytes:,} bytes that are allowed")
    return fields, checked


async def send(stream: SocketStream, fields: dict[str, Any], blobs: list[bytes]) -> None:
    """Send one frame."""
    await stream.send(pack_header(fields, [len(blob) for blob in blobs]))
    for blob in blobs:
        view = memoryview(blob)
        for start in range(0, len(view), CHUNK_BYTES):
            await stream.send(bytes(view[start : start + CHUNK_BYTES]))


async def receive(stream: SocketStream, blob_limit_bytes: int) -> Frame:
    """Receive one frame.

    Raises:
        EndOfStream: the worker closed the socket.
        ProtocolViolation: what came is not a frame of ours.
    """
    magic, length = PREFIX.unpack(await _exactly(stream, PREFIX.size))
    if magic != MAGIC or length > HEADER_LIMIT_BYTES:
        raise ProtocolViolation("the worker sent something that is not a frame")
    fields, sizes = unpack_header(await _exactly(stream, length), blob_limit_bytes)
    return Frame(fields, [await _exactly(stream, size) for size in sizes])


async def _exactly(stream: SocketStream, size: int) -> bytes:
    parts: list[bytes] = []
    missing = size
    while missing:
        part = await stream.receive(min(missing, CHUNK_BYTES))
        if not part:
            raise EndOfStream
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
