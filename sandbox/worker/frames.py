"""The worker's side of the wire: length-prefixed JSON followed by raw blobs, over one private socket.

A frame is the magic ``TFW1``, the header's length (u32, big endian), the header as UTF-8 JSON, then the
blobs one after the other. The header's ``blobs`` lists their sizes in bytes; large ones stand there as
``{"size": bytes, "kind": "memory" | "device"}`` instead, and their descriptors come with the frame's first byte.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .share import Shared

MAGIC = b"TFW1"
PREFIX = struct.Struct(">4sI")
DESCRIPTORS_LIMIT = 250
"""Of one frame: the kernel passes at most 253 with a message."""


HEADER_LIMIT_BYTES = 2 << 20
"""The server refuses longer ones."""


class TooLong(Exception):
    """A message that the other side would refuse."""


class Frame(NamedTuple):
    """One message: its JSON fields and its raw attachments."""

    fields: dict[str, Any]
    blobs: list[bytearray | Shared]


def send(sock: socket.socket, fields: dict[str, Any], blobs: list[Any] | None = None) -> None:
    """Send one frame; ``blobs`` are bytes-like objects, or shared ones whose descriptors are closed here."""
    sizes: list[Any] = []
    views: list[memoryview] = []
    descriptors: list[int] = []
    for blob in blobs or []:
        if hasattr(blob, "descriptor"):
            sizes.append({"size": blob.size_bytes, "kind": blob.kind})
            descriptors.append(blob.descriptor)
        else:
            view = memoryview(blob).cast("B")
            sizes.append(len(view))
            views.append(view)
    try:
        header = json.dumps({**fields, "blobs": sizes}, allow_nan=False).encode()
        if len(header) > HEADER_LIMIT_BYTES:
            raise TooLong(f"the reply would have {len(header) >> 20} MiB beside its tensors; 2 MiB are allowed")
        message = PREFIX.pack(MAGIC, len(header)) + header
        sent = socket.send_fds(sock, [message], descriptors) if descriptors else 0
        sock.sendall(message[sent:])
        for view in views:
            sock.sendall(view)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def receive(sock: socket.socket) -> Frame | None:
    """Receive one frame, or None once the other side has closed."""
    first, descriptors, _, _ = socket.recv_fds(sock, PREFIX.size, DESCRIPTORS_LIMIT)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if not first:
        return None
    prefix = first + _read(sock, PREFIX.size - len(first))
    magic, length = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise ConnectionError("the parent sent something that is not a frame")
    fields: dict[str, Any] = json.loads(_read(sock, length))
    blobs: list[bytearray | Shared] = []
    for size in fields.pop("blobs"):
        if isinstance(size, dict):
            from .share import Shared

            blobs.append(Shared(descriptors.pop(0), size["size"], size["kind"]))
        else:
            blobs.append(_read(sock, size))
    return Frame(fields, blobs)


def _read(sock: socket.socket, size: int) -> bytearray:
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = 0
    while filled < size:
        count = sock.recv_into(view[filled:])
        if count == 0:
            raise ConnectionError("the parent closed the socket in the middle of a frame")
        filled += count
    return buffer
