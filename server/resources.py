"""Artifacts as resources: assembly texts and profiler reports that a result links to."""

import re
from typing import Any, Final

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from .artifacts import SCHEME
from .services import Services

_COUNT: Final = re.compile(r"[0-9]{1,12}")
TEXT_CHARACTERS: Final = 100_000
"""Of one answer about a run: about what clients let their models read at once."""


def register(server: MCPServer[Any], services: Services) -> None:
    """Add the template that serves stored artifacts."""

    @server.resource(
        f"{SCHEME}{{digest}}/{{name}}{{?offset,limit}}",
        name="artifact",
        title="Stored artifact",
        description="A file that a result links to under artifacts: TTIR, TTGIR, LLIR, PTX, SASS, cubin or facts by "
        "line of a launch, or a profiler report (.ncu-rep, opens in Nsight Compute). `?offset=200&limit=100` reads "
        "lines 201 to 300 of a text, or so many bytes of a binary file.",
    )
    async def _artifact(  # pyright: ignore[reportUnusedFunction]
        digest: str, name: str, offset: str = "0", limit: str | None = None
    ) -> str | bytes:
        wanted = bounds(offset, limit)
        path = services.artifacts.find(digest, name)
        if path is None:
            raise ResourceNotFoundError(f"there is no artifact {SCHEME}{digest}/{name}")
        return part(await anyio.to_thread.run_sync(path.read_bytes), *wanted)


def bounds(offset: str, limit: str | None) -> tuple[int, int | None]:
    """What a URI asks for with ?offset and &limit.

    Raises:
        ResourceNotFoundError: these are no numbers.
    """
    if not all(_COUNT.fullmatch(given) for given in (offset, limit or "0")):
        raise ResourceNotFoundError("offset and limit are whole numbers of lines or bytes: ?offset=200&limit=100")
    return int(offset), int(limit) if limit else None


def bounded(text: str, offset: int, limit: int | None) -> str:
    """Some lines of a text.

    Raises:
        ResourceNotFoundError: these are too many for one answer; never are they cut silently.
    """
    lines = text.splitlines(keepends=True)
    chosen = "".join(lines[offset:] if limit is None else lines[offset : offset + limit])
    if len(chosen) > TEXT_CHARACTERS:
        raise ResourceNotFoundError(
            f"that is {len(chosen):,} characters, and one answer has at most {TEXT_CHARACTERS:,}: read the "
            f"{len(lines):,} lines in parts, with ?offset=0&limit=1000 and so on"
        )
    return chosen


def part(data: bytes, offset: int, limit: int | None) -> str | bytes:
    """Some of a file.

    Args:
        data: all of it.
        offset: lines of a text, or bytes, that are passed over.
        limit: lines, or bytes, that are wanted at most; None: all the rest.
    """
    end = None if limit is None else offset + limit
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data[offset:end]
    return text if offset == 0 and end is None else "".join(text.splitlines(keepends=True)[offset:end])
