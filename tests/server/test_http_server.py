"""The server over HTTP, as its own process: who is served, both eras on one endpoint, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp_types import ResourceUpdatedNotification
from starlette.types import Message, Receive, Scope, Send

from tests.server.conftest import DEADLINE_S, content_of, descendants, left_in, wait_for_end
from tests.server.runs.in_store import RUN_ID, begun, claimed
from tests.server.test_run_resources import subscribe
from tests.server.test_stdio import ENDLESS
from tritonforge.server.http_arguments import Endpoint, Unusable
from tritonforge.server.http_server import BearerOnly, serve_http
from tritonforge.server.run_uris import run_uri
from tritonforge.server.runs.store import Store

pytestmark = pytest.mark.anyio

TOKEN: Final = "0123456789abcdef0123456789abcdef"
ERAS: Final[list[Any]] = ["legacy", "auto"]
SERVED: Final = "tritonforge-mcp: MCP is served at "
JSON: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


class HttpServer:
    """A running server."""

    def __init__(self, scratch: Path, *words: str) -> None:
        self.scratch, self.state = scratch, scratch / "state"
        command = [sys.executable, "-m", "tritonforge.server", "--state-dir", str(self.state), "serve", "--http"]
        self._process = subprocess.Popen(
            [*command, "--port", "0", *words],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(scratch)},
            cwd=scratch,
        )
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        assert said.startswith(SERVED), said
        self.url = said.removeprefix(SERVED).strip()

    def processes(self) -> dict[int, str]:
        return descendants(self._process.pid)

    def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        try:
            return self._process.wait(DEADLINE_S)
        finally:
            self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


Starter = Callable[..., HttpServer]


@pytest.fixture
def start(tmp_path: Path) -> Generator[Starter]:
    started: list[HttpServer] = []

    def begin(*words: str) -> HttpServer:
        started.append(HttpServer(tmp_path, *words))
        return started[-1]

    yield begin
    for server in started:
        server.close()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpServer]:
    """One for the tests that only ask."""
    server = HttpServer(tmp_path_factory.mktemp("http"))
    yield server
    server.close()


@pytest.mark.parametrize("era", ERAS)
async def test_both_eras_are_served_on_one_endpoint(local: HttpServer, era: Any) -> None:
    async with Client(local.url, mode=era) as client, Client(local.url) as other:
        assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
        result = await client.call_tool("hardware_spec", {"target": "h200"})
        assert content_of(result)["target"]["name"] == "h200"
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            tool.name for tool in (await other.list_tools()).tools
        ]


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [("host", "evil.example", 421), ("host", "127.0.0.1.evil.example:80", 421), ("origin", "http://evil.example", 403)],
)
async def test_a_web_page_that_poses_as_this_machine_is_refused(
    local: HttpServer, header: str, value: str, status: int
) -> None:
    async with httpx2.AsyncClient() as client:
        answer = await client.post(local.url, json={}, headers={**JSON, header: value})
    assert answer.status_code == status


async def test_a_client_of_the_handshake_era_is_told_of_a_change_over_http(local: HttpServer) -> None:
    store = Store(local.state / "runs")
    begun(store)
    updated = anyio.Event()

    async def told(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification) and str(message.params.uri) == run_uri(RUN_ID):
            updated.set()

    async with Client(local.url, mode="legacy", message_handler=told) as client:
        await subscribe(client, run_uri(RUN_ID))
        claimed(store)
        with anyio.fail_after(DEADLINE_S):
            await updated.wait()
    store.close()


async def test_with_a_token_only_who_sends_it_is_served(start: Starter, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    server = start("--host", "0.0.0.0", "--path", "/tools", "--token-file", str(file))
    url = server.url.replace("0.0.0.0", "127.0.0.1")
    assert url.endswith("/tools")
    async with httpx2.AsyncClient() as client:
        refused = await client.post(url, json={}, headers=JSON)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="mcp"')
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=DEADLINE_S) as known:
        for era in ERAS:
            async with Client(streamable_http_client(url, http_client=known), mode=era) as client:
                assert (await client.list_tools()).tools


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_during_a_call_leaves_no_process_and_no_scratch(start: Starter, number: signal.Signals) -> None:
    server = start()
    running: dict[int, str] = {}
    async with anyio.create_task_group() as tasks:
        began = anyio.Event()

        async def call() -> None:
            async def progress(progress: float, total: float | None, message: str | None) -> None:
                began.set()

            async with Client(server.url) as client:
                await client.call_tool("compile_kernel", ENDLESS, progress_callback=progress)

        tasks.start_soon(call)
        with anyio.fail_after(DEADLINE_S):
            await began.wait()
        running.update(server.processes())
        assert {"our task", "our kernel"} < set(running.values())
        # The client waits for an answer that won't come.
        tasks.cancel_scope.cancel()
        assert server.end(number) == 128 + number
    wait_for_end(running)
    assert left_in(server.scratch) == []


async def test_an_address_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = rf"^nothing can listen on 127.0.0.1 port {port}: Address already in use\. Give another --port"
        with pytest.raises(Unusable, match=refused):
            await serve_http(MCPServer("nobody's"), Endpoint("127.0.0.1", port, "/mcp", None), print)


# Who has the token.


async def status(*authorization: bytes, kind: str = "http") -> int | None:
    """What is answered to these headers; None: nothing."""
    sent: list[Message] = []

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), *((b"authorization", value) for value in authorization)]
    scope = {"type": kind, "method": "POST", "path": "/mcp", "headers": headers}
    await BearerOnly(served, TOKEN)(scope, receive, send)
    return sent[0]["status"] if sent else None


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER  "])
async def test_the_token_is_taken_however_its_scheme_is_written(scheme: bytes) -> None:
    assert await status(scheme + TOKEN.encode()) == 200


@pytest.mark.parametrize(
    "given",
    [
        [],
        [b""],
        [TOKEN.encode()],
        [b"Basic " + TOKEN.encode()],
        [b"Bearer"],
        [b"Bearer " + TOKEN.encode()[:-1]],
        [b"Bearer " + TOKEN.encode() + b"0"],
        [b"Bearer \xff\xfe"],
        [b"Bearer wrong", b"Bearer " + TOKEN.encode()],
    ],
)
async def test_all_else_is_refused(given: list[bytes]) -> None:
    assert await status(*given) == 401


async def test_web_sockets_are_not_a_way_around(anyio_backend: str) -> None:
    assert await status(kind="websocket") is None
