"""The examples, and settings that write nothing into the checkout."""

from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from mcp.client import Client
from mcp_types import CallToolResult, TextContent, Tool

from tritonforge.server.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
SIN = {"kernel": str(EXAMPLES / "sin" / "candidate.py"), "task": str(EXAMPLES / "sin" / "task.py")}
NO_GPU = not any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg"))

without_gpu = pytest.mark.skipif(not NO_GPU, reason="says what is unavailable without a GPU; this machine has one")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path / "state")


RESULT_LIMIT = 10_000
"""Codex cuts the middle out of longer results."""


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def content_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    return cast(dict[str, Any], result.structured_content)


async def tools_of(client: Client) -> dict[str, Tool]:
    return {tool.name: tool for tool in (await client.list_tools()).tools}


def fits(content: dict[str, Any], tool: Tool) -> None:
    """Validates structured content against the schema that the client was given."""
    assert tool.output_schema is not None
    jsonschema.Draft202012Validator.check_schema(tool.output_schema)
    # The types that jsonschema ships are incomplete.
    validator: Any = jsonschema.Draft202012Validator(tool.output_schema)
    validator.validate(content)
