"""Serves MCP on standard input and output.

The SDK drops a line that it can't read as a message, and whoever sent it waits for an answer that never comes. JSON may
spell half of a surrogate pair (`"\\ud800"`), which is no character: a client that sends a text with one in it, such as
a kernel that was read with `surrogateescape`, would wait for ever. Here a request that can't be read is answered with
JSON-RPC's parse error, or with that of an invalid request, where its id can be told.
"""

import json
from typing import Any, Final

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

from .lowlevel import serve

Item = SessionMessage | Exception

NO_JSON: Final = "json_invalid"
FIX: Final = "Send the whole character in place of half of a surrogate pair (\\ud800 to \\udfff), or leave it out."


async def serve_stdio(server: MCPServer[Any]) -> None:
    """Serve until the input ends."""
    async with stdio_server() as (read, write):
        passing, passed = anyio.create_memory_object_stream[Item](0)

        async def pass_on() -> None:
            async with passing:
                async for item in read:
                    answer = unreadable(item) if isinstance(item, ValidationError) else None
                    if answer is None:
                        await passing.send(item)
                    else:
                        await write.send(SessionMessage(answer))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_on)
            await serve(server, passed, write)
            tasks.cancel_scope.cancel()


def unreadable(error: ValidationError) -> JSONRPCError | None:
    """The answer to a request that is no message; None where nobody waits for one.

    Args:
        error: what is wrong with it.
    """
    wrong = error.errors(include_url=False, include_context=False)
    first = wrong[0]
    if first["type"] == NO_JSON:
        try:
            # Unlike the SDK, it takes halves of pairs.
            parts = [json.loads(first["input"])]
        except (ValueError, RecursionError):
            return None
        told = ErrorData(code=PARSE_ERROR, message=f"the request can't be read: {first['msg']}. {FIX}")
    else:
        parts = [each["input"] for each in wrong]
        where = ".".join(str(part) for part in first["loc"][1:])
        message = f"the request is no JSON-RPC message: {where}: {first['msg']}"
        told = ErrorData(code=INVALID_REQUEST, message=message)
    number = next((part["id"] for part in parts if _is_request(part)), None)
    if isinstance(number, bool) or not isinstance(number, int | str):
        return None
    try:
        return JSONRPCError(jsonrpc="2.0", id=number, error=told)
    except ValidationError:
        return None


def _is_request(part: Any) -> bool:
    return isinstance(part, dict) and "id" in part and "method" in part
