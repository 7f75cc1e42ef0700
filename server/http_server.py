"""The server over streamable HTTP: both eras of the protocol on one endpoint, many clients."""

import contextlib
import hmac
import os
import socket
from collections.abc import Callable, Generator
from typing import Any, Final

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .http_arguments import Endpoint, Unusable

END_S: Final = 2
"""That open requests have to end in, once the server is told to stop by other means than a signal."""


class BearerOnly:
    """Passes on requests that carry the token; answers the others with 401."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and self._is_known(scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = Response(
                "Send the server's token: Authorization: Bearer ...", 401, {"WWW-Authenticate": 'Bearer realm="mcp"'}
            )
            await refusal(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        # In a time that tells nothing of how much of it was right.
        return hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"


def app_of(server: MCPServer[Any], endpoint: Endpoint) -> ASGIApp:
    """What is served. On a local host the SDK refuses requests whose Host or Origin names another one, as those of web
    pages that were bound to this address do; elsewhere the token keeps them out."""
    app = server.streamable_http_app(streamable_http_path=endpoint.path, host=endpoint.host)
    return app if endpoint.token is None else BearerOnly(app, endpoint.token)


async def serve_http(server: MCPServer[Any], endpoint: Endpoint, say: Callable[[str], None]) -> None:
    """Serve until the process is told to end.

    Args:
        server: what is served.
        endpoint: where.
        say: told the URL once requests are answered.

    Raises:
        Unusable: nothing can listen there.
    """
    with _listening(endpoint) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            app_of(server, endpoint), log_level="warning", access_log=False, ws="none", lifespan="on",
            timeout_graceful_shutdown=END_S,
        )  # fmt: skip
        serving = _Serving(config, lambda: say(f"MCP is served at http://{shown}:{port}{endpoint.path}"))
        await serving.serve(sockets=[listener])


@contextlib.contextmanager
def _listening(endpoint: Endpoint) -> Generator[socket.socket]:
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.create_server(address[:2], family=family)
    except OSError as error:
        # What Python adds to it names the address again.
        why = error.strerror if isinstance(error, socket.gaierror) or error.errno is None else os.strerror(error.errno)
        raise Unusable(
            f"nothing can listen on {endpoint.host} port {endpoint.port}: {why}. Give another --port (0: any that is "
            "free)"
        ) from None
    with listener:
        yield listener


class _Serving(uvicorn.Server):
    """Says when it listens, and leaves signals to the process, which ends its workers at once."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
