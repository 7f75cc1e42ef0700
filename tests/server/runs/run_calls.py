"""Calls of the run tools, whose answers have to fit their schema and a small context."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.client import Client

from tests.server.conftest import RESULT_LIMIT, content_of, fits, text_of, tools_of
from tests.server.runs.fake_evaluator import candidate, task

TOKENS_LIMIT = 1500
CHARACTERS_PER_TOKEN = 3.5
PATIENCE_S = 60
BASELINE = candidate(1, findings=["V6", "V1"])
Call = Callable[..., Awaitable[dict[str, Any]]]


def calls(client: Client) -> Call:
    """Call a tool; its content, which has to fit its schema and a small context."""

    async def call(tool: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        content = content_of(result)
        fits(content, (await tools_of(client))[tool])
        assert content["summary"] in text_of(result)
        if not arguments.get("detail"):
            assert len(json.dumps(content)) <= TOKENS_LIMIT * CHARACTERS_PER_TOKEN
            assert len(text_of(result)) <= RESULT_LIMIT
        assert (content["problem"] is None) is (content["kind"] in ("ok", "running"))
        return content

    return call


async def begin(call: Call, **arguments: Any) -> str:
    """A run that is open."""
    started = await call("start_optimization", **{"kernel": BASELINE, "task": task(), **arguments})
    assert started["run_state"] == "open", started
    return str(started["run_id"])


async def submit(
    call: Call, run_id: str, kernel: str, strategy: str = "an idea of its own", **more: Any
) -> dict[str, Any]:
    return await call("submit_candidate", run_id=run_id, kernel=kernel, strategy=strategy, **more)
