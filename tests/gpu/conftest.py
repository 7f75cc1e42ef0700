"""Fixtures of the GPU tests: one server for all of them, called through an in-memory client."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from mcp.client import Client

from tritonforge.sandbox.limits import Limits
from tritonforge.server.app import build_server
from tritonforge.server.settings import from_environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Call = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
async def call(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Call]:
    """Call a tool; its structured content."""
    state = str(tmp_path_factory.mktemp("state"))
    settings = from_environment(state_dir=state).model_copy(update={"limits": Limits(request_s=20.0)})
    async with Client(build_server(settings)) as client:

        async def call_tool(tool: str, **arguments: Any) -> dict[str, Any]:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            return cast(dict[str, Any], result.structured_content)

        yield call_tool


def example(name: str, part: str) -> str:
    """Path of an example's baseline, candidate or task."""
    return str(EXAMPLES / name / f"{part}.py")
