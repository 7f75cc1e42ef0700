"""The server as a client starts it: JSON lines on the pipes of a real process, with no client library in between."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.server.conftest import SIN, without_gpu
from tritonforge import __version__

TOOLS: Final = ["hardware_spec", "compile_kernel", "run_correctness", "benchmark", "profile_ncu"]
PROMPTS: Final = ["optimize_kernel", "generate_tests", "remediate_failure", "judge_candidate", "refine_candidate"]
DEADLINE_S: Final = 120.0
"""Far beyond what anything here takes: a server that hangs fails its test instead of stopping the suite."""

PRINTING: Final = """
import os
import sys
print('{"jsonrpc": "2.0", "id": 1, "result": "forged while loading"}')
os.write(1, b"straight to descriptor 1\\n")
os.system("echo from a child")
"""
ENDLESS: Final = """
def sin(x):
    while True:
        pass
"""

Message = dict[str, Any]


class StdioServer:
    """A running server; what it writes is checked line by line."""

    def __init__(self, scratch: Path, *options: str) -> None:
        self.scratch = scratch
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tritonforge.server", "--state-dir", str(scratch / "state"), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(scratch)},
            cwd=scratch,
        )
        self._buffer = b""
        self._next_id = 0

    def send_line(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def send(self, method: str, params: Message | None = None, *, notification: bool = False) -> int:
        """Send a request and return its id, or send a notification."""
        message: Message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not notification:
            self._next_id += 1
            message["id"] = self._next_id
        self.send_line(json.dumps(message).encode())
        return self._next_id

    def receive(self) -> Message:
        """The next message; every line is one, whatever kernels print."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + DEADLINE_S
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._process.stdout], [], [], deadline - time.monotonic())
            assert ready, "the server said nothing"
            chunk = os.read(self._process.stdout.fileno(), 1 << 20)
            assert chunk, "the server closed its output"
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: Message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        assert "method" in message or ("id" in message and ("result" in message) != ("error" in message))
        return message

    def answer(self, number: int) -> Message:
        """The answer to a request; notifications before it are passed over."""
        while (message := self.receive()).get("id") != number:
            assert "method" in message, f"an answer that nobody waits for: {message}"
        return message

    def request(self, method: str, params: Message | None = None) -> Any:
        message = self.answer(self.send(method, params))
        assert "result" in message, message
        return message["result"]

    def call(self, tool: str, arguments: Message) -> Message:
        """Call a tool; its structured content."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        assert not result["isError"], result["content"]
        return result["structuredContent"]

    def start_call(self, tool: str, arguments: Message) -> int:
        """Send a call and return once the server reports progress on it."""
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "progress"}}
        number = self.send("tools/call", params)
        while (message := self.receive()).get("method") != "notifications/progress":
            assert message.get("id") != number, message
        return number

    def initialize(self) -> Message:
        hello = self.request(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "plain pipes", "version": "1"},
            },
        )
        self.send("notifications/initialized", notification=True)
        return hello

    def workers(self) -> list[int]:
        """Its child processes that still run."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            try:
                # After the command, which may contain anything: state, then the parent's id.
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if int(parent) == self._process.pid and state != "Z":
                found.append(int(entry.name))
        return found

    def close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """The exit code, once it has ended; nothing but messages may be left in its output."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + DEADLINE_S
        while select.select([self._process.stdout], [], [], deadline - time.monotonic())[0]:
            chunk = os.read(self._process.stdout.fileno(), 1 << 20)
            if not chunk:
                break
            self._buffer += chunk
        for line in self._buffer.splitlines():
            assert json.loads(line)["jsonrpc"] == "2.0"
        return self._process.wait(DEADLINE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def wait_for_end(pids: list[int]) -> None:
    """Wait until none of these processes is left."""
    deadline = time.monotonic() + DEADLINE_S
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], deadline - time.monotonic())[0], f"process {pid} goes on"
        finally:
            os.close(descriptor)


def left_in(scratch: Path) -> list[str]:
    return sorted(path.name for path in scratch.glob("tritonforge-*"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], StdioServer]]:
    servers: list[StdioServer] = []

    def started() -> StdioServer:
        servers.append(StdioServer(tmp_path))
        return servers[-1]

    yield started
    for server in servers:
        server.kill()


@pytest.fixture
def server(start: Callable[[], StdioServer]) -> StdioServer:
    started = start()
    started.initialize()
    return started


def test_a_client_is_greeted_and_finds_five_tools_and_five_prompts(start: Callable[[], StdioServer]) -> None:
    server = start()
    hello = server.initialize()
    assert hello["protocolVersion"] == "2025-11-25"
    assert hello["serverInfo"]["name"] == "tritonforge"
    assert hello["serverInfo"]["version"] == __version__
    assert "hardware_spec" in hello["instructions"]
    assert {"tools", "prompts", "resources"} <= set(hello["capabilities"])
    tools = server.request("tools/list")["tools"]
    assert [tool["name"] for tool in tools] == TOOLS
    for tool in tools:
        assert tool["title"]
        assert tool["description"]
        assert tool["inputSchema"]["type"] == "object"
        assert {"kind", "summary", "next_step", "problem", "artifacts"} <= set(tool["outputSchema"]["properties"])
        assert tool["annotations"]["readOnlyHint"] is (tool["name"] == "hardware_spec")
        assert tool["annotations"]["destructiveHint"] is False
    prompts = server.request("prompts/list")["prompts"]
    assert [prompt["name"] for prompt in prompts] == PROMPTS
    got = server.request("prompts/get", {"name": "optimize_kernel", "arguments": {"kernel": "mine.py", "rounds": "3"}})
    assert got["messages"][0]["role"] == "user"
    assert "mine.py" in got["messages"][0]["content"]["text"]
    templates = server.request("resources/templates/list")["resourceTemplates"]
    assert [template["uriTemplate"] for template in templates] == ["tritonforge://artifacts/{digest}/{name}"]
    server.close_input()
    assert server.end() == 0


@without_gpu
def test_all_five_tools_answer_and_only_messages_are_on_the_wire_while_the_kernel_prints(server: StdioServer) -> None:
    kernel = Path(SIN["kernel"]).read_text() + PRINTING
    arguments = {"kernel": kernel, "task": SIN["task"]}
    compiled = server.call("compile_kernel", {**arguments, "target": "h100", "cases": ["small"]})
    assert compiled["kind"] == "ok"
    assert compiled["launches"][0]["kernel"] == "sin_kernel"
    checked = server.call("run_correctness", {**arguments, "seeds": 1})
    assert (checked["kind"], checked["device"]) == ("ok", "interpreter")
    for tool in ("benchmark", "profile_ncu"):
        result = server.call(tool, arguments)
        assert result["kind"] == "unavailable"
        assert "GPU" in result["problem"]["likely_fix"]
    assert server.call("hardware_spec", {"target": "h200"})["target"]["name"] == "h200"
    artifact = server.request("resources/read", {"uri": compiled["artifacts"][0]})["contents"][0]
    assert "tt.func" in artifact["text"]
    server.close_input()
    assert server.end() == 0
    assert left_in(server.scratch) == []


def test_a_cancelled_call_ends_its_workers_and_the_server_goes_on(server: StdioServer) -> None:
    number = server.start_call(
        "compile_kernel", {"kernel": ENDLESS, "task": SIN["task"], "cases": ["small"], "target": "h100"}
    )
    workers = server.workers()
    assert workers
    server.send("notifications/cancelled", {"requestId": number, "reason": "no patience"}, notification=True)
    wait_for_end(workers)
    other = server.send("tools/call", {"name": "hardware_spec", "arguments": {"target": "no such GPU"}})
    answers: dict[int | None, Message] = {}
    while other not in answers:
        message = server.receive()
        answers[message.get("id")] = message
    assert answers[other]["result"]["structuredContent"]["kind"] == "rejected"
    # A cancelled request gets no result; the SDK may say so with an error.
    assert "result" not in answers.get(number, {})
    server.close_input()
    assert server.end() == 0
    assert left_in(server.scratch) == []


@pytest.mark.parametrize("how", ["input closed", "SIGTERM", "SIGINT"])
def test_a_server_that_ends_during_a_call_leaves_no_worker_and_no_scratch(server: StdioServer, how: str) -> None:
    server.start_call("compile_kernel", {"kernel": ENDLESS, "task": SIN["task"], "cases": ["small"], "target": "h100"})
    workers = server.workers()
    assert workers
    if how == "input closed":
        server.close_input()
        assert server.end() == 0
    else:
        number = signal.Signals[how]
        server.send_signal(number)
        assert server.end() == 128 + number
    wait_for_end(workers)
    assert left_in(server.scratch) == []


def test_a_server_whose_input_closes_while_a_worker_starts_ends_cleanly(server: StdioServer) -> None:
    server.start_call("hardware_spec", {})
    server.close_input()
    assert server.end() == 0
    assert left_in(server.scratch) == []


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON",
        b"{",
        b"[]",
        b"null",
        b"",
        b"\xff\xfe",
        b'{"jsonrpc": "2.0", "id": 7}',
        b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "hardware_spec", '
        b'"arguments": {"target": "\\ud800"}}}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}}',
        b"[" * 100_000,
    ],
    ids=lambda line: line[:12].decode(errors="replace") + f" ({len(line)} bytes)",
)
def test_a_line_that_is_no_request_does_not_end_the_server(shared: StdioServer, line: bytes) -> None:
    shared.send_line(line)
    number = shared.send("tools/call", {"name": "hardware_spec", "arguments": {"target": "no such GPU"}})
    while (message := shared.receive()).get("id") != number:
        assert "result" not in message
    assert message["result"]["structuredContent"]["kind"] == "rejected"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioServer]:
    server = StdioServer(tmp_path_factory.mktemp("shared"))
    try:
        server.initialize()
        yield server
    finally:
        server.kill()


def test_an_unknown_method_and_a_malformed_call_are_answered_with_errors(shared: StdioServer) -> None:
    assert shared.answer(shared.send("tools/explode"))["error"]["code"] == -32601
    assert "error" in shared.answer(shared.send("tools/call", {"arguments": {}}))
    assert "error" in shared.answer(shared.send("tools/call", {"name": "hardware_spec", "arguments": [1]}))
    assert shared.request("ping") == {}


def test_names_in_other_scripts_come_back_unharmed(shared: StdioServer) -> None:
    result = shared.call("hardware_spec", {"target": "цель 💥 \u2028 \u202e"})
    assert result["kind"] == "rejected"
    assert "💥" in result["problem"]["message"]
