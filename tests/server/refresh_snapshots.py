"""Writes what clients see of each tool into `snapshots/`: ``python tests/server/refresh_snapshots.py``."""

import json
from pathlib import Path
from typing import Any

import anyio
from mcp.client import Client

from tritonforge.server.app import build_server
from tritonforge.server.settings import Settings

SNAPSHOTS = Path(__file__).parent / "snapshots"
FIELDS = {"name", "title", "description", "input_schema", "output_schema", "annotations"}


async def current() -> dict[str, dict[str, Any]]:
    """Name, title, description, schemas and annotations of every tool, by its name."""
    async with Client(build_server(Settings())) as client:
        tools = (await client.list_tools()).tools
    return {tool.name: tool.model_dump(mode="json", include=FIELDS, exclude_none=True) for tool in tools}


def main() -> None:
    tools = anyio.run(current)
    SNAPSHOTS.mkdir(exist_ok=True)
    for path in SNAPSHOTS.glob("*.json"):
        if path.stem not in tools:
            path.unlink()
    for name, tool in tools.items():
        text = json.dumps(tool, indent=2, ensure_ascii=False)
        (SNAPSHOTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
