"""The worker's side of the wire: length-prefixed JSON followed by raw blobs, over one private socket.

A frame is the magic ``TFW1``, the header's length (u32, big endian), the header as UTF-8 JSON, then the
blobs one after the other; the header's ``blobs`` lists their sizes in bytes.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, NamedTuple

MAGIC = b"TFW1"
PREFIX = struct.Struct(">4sI")


class Frame(NamedTuple):
    """One message: its JSON fields and its raw attachments."""

    fields: dict[str, Any]
    blobs: list[bytearray]


def send(sock: socket.socket, fields: dict[str, Any], blobs: list[Any] | None = None) -> None:
    """Send one frame; ``blobs`` are bytes-like objects."""
    views = [memoryview(blob).cast("B") for blob in blobs or []]
    header = json.dumps({**fields, "blobs": [len(view) for view in views]}, allow_nan=False).encode()
    sock.sendall(PREFIX.pack(MAGIC, len(header)) + header)
    for view in views:
        sock.sendall(view)


def receive(sock: socket.socket) -> Frame | None:
    """Receive one frame, or None once the other side has closed."""
    prefix = _read(sock, PREFIX.size, eof_ok=True)
    if prefix is None:
        return None
    magic, length = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise ConnectionError("the parent sent something that is not a frame")
    header = _read(sock, length)
    assert header is not None
    fields: dict[str, Any] = json.loads(header)
    blobs: list[bytearray] = []
    for size in fields.pop("blobs"):
        blob = _read(sock, size)
        assert blob is not None
        blobs.append(blob)
    return Frame(fields, blobs)


def _read(sock: socket.socket, size: int, *, eof_ok: bool = False) -> bytearray | None:
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = 0
    while filled < size:
        count = sock.recv_into(view[filled:])
        if count == 0:
            if eof_ok and filled == 0:
                return None
            raise ConnectionError("the parent closed the socket in the middle of a frame")
        filled += count
    return buffer
