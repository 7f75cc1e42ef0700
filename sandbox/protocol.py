"""The parent's side of the wire: frames are checked before anything in them is believed.

A frame is the magic ``TFW1``, the header's length (u32, big endian), the header as UTF-8 JSON, then raw
blobs whose sizes the header's ``blobs`` lists. A large blob stands there as ``{"size": bytes, "kind": "memory" |
"device"}`` and its descriptor comes with the frame's first byte: bulk data passes through here without being read.
"""

import fcntl
import json
import os
import struct
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

from anyio import EndOfStream
from anyio.abc import UNIXSocketStream

from .errors import ProtocolViolation

MAGIC = b"TFW1"
PREFIX = struct.Struct(">4sI")
HEADER_LIMIT_BYTES = 2 << 20
INLINE_LIMIT_BYTES = 512 << 20
"""What a frame may carry in itself, and this process holds: large tensors travel as descriptors."""
BLOBS_LIMIT = 4096
"""Of one frame. A long list of empty ones would keep this process busy and nobody else served."""
CHUNK_BYTES = 1 << 20
DESCRIPTORS_LIMIT = 250
"""Of one frame: the kernel passes at most 253 with a message."""
NEEDED_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE

BlobSize = int | dict[str, int | str]
"""As it stands in a header."""


class SharedBlob:
    """Bulk data that only workers look into; the descriptor is closed with the last reference to this."""

    def __init__(self, descriptor: int, size_bytes: int, kind: Literal["memory", "device"]) -> None:
        self.descriptor = descriptor
        self.size_bytes = size_bytes
        self.kind: Literal["memory", "device"] = kind

    def __del__(self) -> None:
        os.close(self.descriptor)

    def check(self) -> None:
        """A memory file must be sealed: a reader of one that shrinks is killed.

        Raises:
            ProtocolViolation: it is not, or is not what was announced.
        """
        if self.kind == "device":
            return
        try:
            seals = fcntl.fcntl(self.descriptor, fcntl.F_GET_SEALS)
        except OSError as error:
            raise ProtocolViolation("the worker passed a descriptor that is no memory file") from error
        if seals & NEEDED_SEALS != NEEDED_SEALS or os.fstat(self.descriptor).st_size != self.size_bytes:
            raise ProtocolViolation("the worker passed a memory file that is not sealed or not of the announced size")


Blob = bytes | SharedBlob


class Frame(NamedTuple):
    """One message from a worker."""

    fields: dict[str, Any]
    blobs: list[Blob]


def pack_header(fields: dict[str, Any], blob_sizes: Sequence[BlobSize]) -> bytes:
    """Prefix and header of a frame; the blobs follow it on the wire.

    Raises:
        ProtocolViolation: fields from another worker that JSON can't carry: too deep, or not finite.
    """
    try:
        header = json.dumps({**fields, "blobs": list(blob_sizes)}, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"a worker's data can't be passed on: {error}") from error
    return PREFIX.pack(MAGIC, len(header)) + header


def unpack_header(header: bytes, blob_limit_bytes: int) -> tuple[dict[str, Any], list[BlobSize]]:
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
    if len(cast(list[Any], sizes)) > BLOBS_LIMIT:
        raise ProtocolViolation(f"the worker announced more blobs than the {BLOBS_LIMIT:,} that are allowed")
    checked: list[BlobSize] = []
    total = inline = 0
    for size in cast(list[Any], sizes):
        found: Any = size
        if isinstance(size, dict):
            shared = cast(dict[str, Any], size)
            found = shared.get("size")
            kind = shared.get("kind")
            if shared.keys() != {"size", "kind"} or not isinstance(kind, str) or kind not in {"memory", "device"}:
                raise ProtocolViolation("the worker's header has a shared blob that is malformed")
        if type(found) is not int or found < 0:
            raise ProtocolViolation(f"the worker's header has a blob size that is no size: {type(found).__name__}")
        total += found
        inline += 0 if isinstance(size, dict) else found
        checked.append(cast(BlobSize, size))
    if total > blob_limit_bytes:
        raise ProtocolViolation(f"the worker announced more data than the {blob_limit_bytes:,} bytes that are allowed")
    if inline > INLINE_LIMIT_BYTES:
        raise ProtocolViolation(f"the worker announced more than the {INLINE_LIMIT_BYTES:,} bytes of a frame")
    return fields, checked


async def send(stream: UNIXSocketStream, fields: dict[str, Any], blobs: Sequence[Blob]) -> None:
    """Send one frame."""
    sizes: list[BlobSize] = [
        {"size": blob.size_bytes, "kind": blob.kind} if isinstance(blob, SharedBlob) else len(blob) for blob in blobs
    ]
    header = pack_header(fields, sizes)
    descriptors = [blob.descriptor for blob in blobs if isinstance(blob, SharedBlob)]
    if descriptors:
        # The kernel passes descriptors with the first byte that it takes.
        await stream.send_fds(header[:1], descriptors)
        header = header[1:]
    await stream.send(header)
    for blob in blobs:
        if isinstance(blob, SharedBlob):
            continue
        view = memoryview(blob)
        for start in range(0, len(view), CHUNK_BYTES):
            await stream.send(bytes(view[start : start + CHUNK_BYTES]))


async def receive(stream: UNIXSocketStream, blob_limit_bytes: int) -> Frame:
    """Receive one frame.

    Raises:
        EndOfStream: the worker closed the socket.
        ProtocolViolation: what came is not a frame of ours.
    """
    first, descriptors = await _first(stream)
    try:
        magic, length = PREFIX.unpack(first + await _exactly(stream, PREFIX.size - len(first)))
        if magic != MAGIC or length > HEADER_LIMIT_BYTES:
            raise ProtocolViolation("the worker sent something that is not a frame")
        fields, sizes = unpack_header(await _exactly(stream, length), blob_limit_bytes)
        blobs: list[Blob] = []
        for size in sizes:
            if isinstance(size, int):
                blobs.append(await _exactly(stream, size))
                continue
            if not descriptors:
                raise ProtocolViolation("the worker announced a shared blob and passed no descriptor")
            blob = SharedBlob(descriptors.pop(0), int(size["size"]), cast(Literal["memory", "device"], size["kind"]))
            blob.check()
            blobs.append(blob)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return Frame(fields, blobs)


async def _first(stream: UNIXSocketStream) -> tuple[bytes, list[int]]:
    """The first bytes of a frame, with the descriptors that came along."""
    data, descriptors = await stream.receive_fds(PREFIX.size, DESCRIPTORS_LIMIT)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if not data:
        for descriptor in descriptors:
            os.close(descriptor)
        raise EndOfStream
    return data, descriptors


async def _exactly(stream: UNIXSocketStream, size: int) -> bytes:
    parts: list[bytes] = []
    missing = size
    while missing:
        part = await stream.receive(min(missing, CHUNK_BYTES))
        if not part:
            raise EndOfStream
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
