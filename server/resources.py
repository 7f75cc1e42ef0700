"""Artifacts as resources: assembly texts and profiler reports that a result links to."""

from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from .artifacts import SCHEME
from .services import Services


def register(server: MCPServer[Any], services: Services) -> None:
    """Add the template that serves stored artifacts."""

    @server.resource(
        f"{SCHEME}{{digest}}/{{name}}",
        name="artifact",
        title="Stored artifact",
        description="A file that a result links to under artifacts: TTGIR or PTX of a launch, or a profiler report "
        "(.ncu-rep, opens in Nsight Compute).",
    )
    async def _artifact(digest: str, name: str) -> str | bytes:  # pyright: ignore[reportUnusedFunction]
        path = services.artifacts.find(digest, name)
        if path is None:
            raise ResourceNotFoundError(f"there is no artifact {SCHEME}{digest}/{name}")
        data = path.read_bytes()
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data
