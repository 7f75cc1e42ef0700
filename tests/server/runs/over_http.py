"""One server for several clients, over HTTP on this machine."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer


@asynccontextmanager
async def served(server: MCPServer[Any]) -> AsyncGenerator[str]:
    """Its URL, on a free port of the loopback interface."""
    config = uvicorn.Config(server.streamable_http_app(), host="127.0.0.1", port=0, log_level="warning")
    serving = _Serving(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serving.serve)
        await serving.ready.wait()
        (port,) = {socket.getsockname()[1] for each in serving.servers for socket in each.sockets}
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            serving.should_exit = True


class _Serving(uvicorn.Server):
    """Says when it listens, and leaves the signals to whoever runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = anyio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    def install_signal_handlers(self) -> None:
        """None."""
