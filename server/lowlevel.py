"""The one module that uses what the SDK keeps private: handlers of methods that its high-level server has none for."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.session import ServerSession
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import Result
from pydantic import BaseModel

P = TypeVar("P", bound=BaseModel)


def answer(
    server: MCPServer[Any],
    method: str,
    params: type[P],
    handler: Callable[[ServerRequestContext[Any, Any], P], Awaitable[Result]],
) -> None:
    """Answer a method of the protocol; replaces what the server has for it.

    Args:
        server: what is to answer.
        method: as the protocol names it; what the server can do is told from that.
        params: form of the method's parameters.
        handler: takes the request's context and parameters.
    """
    server._lowlevel_server.add_request_handler(method, params, handler)  # pyright: ignore[reportPrivateUsage]


async def serve(
    server: MCPServer[Any], read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage]
) -> None:
    """Serve one connection until what it is read from ends."""
    its = server._lowlevel_server  # pyright: ignore[reportPrivateUsage]
    await its.run(read, write, its.create_initialization_options())


def tool_names(server: MCPServer[Any]) -> list[str]:
    """Of the tools that it has now."""
    return [tool.name for tool in server._tool_manager.list_tools()]  # pyright: ignore[reportPrivateUsage]


def connection_of(session: ServerSession) -> Connection:
    """The connection of a request: it lives on behind it."""
    return session._connection  # pyright: ignore[reportPrivateUsage]
