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

from tests.server.conftest import DEADLINE_S, SIN, descendants, left_in, wait_for_end, without_gpu, without_sandbox
from tritonforge import __version__

TOOLS: Final = [
    "hardware_spec", "compile_kernel", "diagnose_kernel", "run_correctness", "benchmark", "profile_ncu",
    "start_optimization", "submit_candidate", "get_run", "recall_lessons", "tune_kernel",
    "get_playbook",
]  # fmt: skip
READ_ONLY: Final = {"hardware_spec", "recall_lessons", "get_playbook"}
PROMPTS: Final = [
    "optimize_kernel", "generate_tests", "propose_candidate", "remediate_failure", "judge_candidate",
    "refine_candidate", "parametrize",
]  # fmt: skip

PRINTING: Final = """
import os
import sys
print('{"jsonrpc": "2.0", "id": 1, "result": "forged while loading"}')
os.write(1, b"straight to descriptor 1\\n")
os.system("echo from a child")
"""
NAMED: Final = """
with open("/proc/self/comm", "w") as name:
    name.write({name!r})
"""
"""Gives the worker's process a name that can be seen from outside, whatever it sees of itself."""
ENDLESS: Final = {
    "kernel": NAMED.format(name="our kernel") + "def sin(x):\n    while True:\n        pass\n",
    "task": Path(SIN["task"]).read_text() + NAMED.format(name="our task"),
    "cases": ["small"],
    "target": "h100",
}
"""A call whose kernel is loaded once its first case is reported, and which then never ends."""

Message = dict[str, Any]


class StdioServer:
    """A running server; what it writes is checked line by line."""

    def __init__(self, scratch: Path, **environment: str) -> None:
        self.scratch = scratch
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tritonforge.server", "--state-dir", str(scratch / "state")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(scratch), **environment},
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

    def processes(self) -> dict[int, str]:
        """All that it has started and that still runs, with their names."""
        return descendants(self._process.pid)

    def workers(self) -> list[int]:
        """The workers of an endless call: the task's and the kernel's."""
        found = {name: pid for pid, name in self.processes().items()}
        return [found["our task"], found["our kernel"]]

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


Starter = Callable[..., StdioServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    servers: list[StdioServer] = []

    def started(**environment: str) -> StdioServer:
        servers.append(StdioServer(tmp_path, **environment))
        return servers[-1]

    yield started
    for server in servers:
        server.kill()


@pytest.fixture
def server(start: Starter) -> StdioServer:
    started = start()
    started.initialize()
    return started


def test_a_client_is_greeted_and_finds_all_tools_and_prompts(start: Starter) -> None:
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
        assert tool["annotations"]["readOnlyHint"] is (tool["name"] in READ_ONLY)
        assert tool["annotations"]["destructiveHint"] is False
    prompts = server.request("prompts/list")["prompts"]
    assert [prompt["name"] for prompt in prompts] == PROMPTS
    got = server.request("prompts/get", {"name": "optimize_kernel", "arguments": {"kernel": "mine.py", "rounds": "3"}})
    assert got["messages"][0]["role"] == "user"
    assert "mine.py" in got["messages"][0]["content"]["text"]
    templates = server.request("resources/templates/list")["resourceTemplates"]
    assert {template["uriTemplate"] for template in templates} >= {
        "tritonforge://artifacts/{digest}/{name}{?offset,limit}",
        "tritonforge://runs/{run_id}{?offset,limit}",
    }
    server.close_input()
    assert server.end() == 0


@without_gpu
def test_five_tools_answer_and_only_messages_are_on_the_wire_while_the_kernel_prints(server: StdioServer) -> None:
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
    waiting = server.processes()
    assert waiting
    server.close_input()
    assert server.end() == 0
    wait_for_end(waiting)
    assert left_in(server.scratch) == []


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (rb'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "compile_kernel", "arguments": '
         rb'{"kernel": "x = 1  # \ud800"}}}', -32700, "half of a surrogate pair"),
        (rb'{"jsonrpc": "2.0", "id": 7, "method": {"no": "name"}}', -32600, "method"),
    ],
    ids=["half of a surrogate pair", "no message"],
)  # fmt: skip
def test_a_request_that_can_not_be_read_is_answered_and_the_server_goes_on(
    server: StdioServer, line: bytes, code: int, said: str
) -> None:
    # Nobody waits for an answer to these.
    server.send_line(b"{no json")
    server.send_line(rb'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"reason": "\ud800"}}')
    server.send_line(line)
    error = server.receive()
    assert (error["id"], error["error"]["code"]) == (7, code)
    assert said in error["error"]["message"]
    assert server.call("hardware_spec", {"target": "h200"})["kind"] == "ok"
    server.close_input()
    assert server.end() == 0


def test_a_cancelled_call_ends_its_workers_and_the_server_goes_on(server: StdioServer) -> None:
    number = server.start_call("compile_kernel", ENDLESS)
    workers = server.workers()
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


SEALED, UNSEALED = "as the machine is", "without a sandbox"


@pytest.fixture(params=[SEALED, UNSEALED])
def any_server(request: pytest.FixtureRequest, start: Starter, tmp_path: Path) -> StdioServer:
    started = start(**({} if request.param == SEALED else without_sandbox(tmp_path)))
    started.initialize()
    return started


# Every signal has the same handler, and each server takes seconds to start.
@pytest.mark.parametrize(
    ("any_server", "how"),
    [
        (SEALED, "input closed"),
        (SEALED, "SIGTERM"),
        (SEALED, "SIGINT"),
        (UNSEALED, "input closed"),
        (UNSEALED, "SIGTERM"),
        (UNSEALED, "SIGHUP"),
    ],
    indirect=["any_server"],
)
def test_a_server_that_ends_during_a_call_leaves_no_process_and_no_scratch(any_server: StdioServer, how: str) -> None:
    any_server.start_call("compile_kernel", ENDLESS)
    running = any_server.processes()
    assert set(any_server.workers()) < set(running)
    if how == "input closed":
        any_server.close_input()
        assert any_server.end() == 0
    else:
        number = signal.Signals[how]
        any_server.send_signal(number)
        assert any_server.end() == 128 + number
    wait_for_end(running)
    assert left_in(any_server.scratch) == []


def test_a_server_that_is_killed_leaves_no_process_and_its_scratch_to_the_next_one(
    any_server: StdioServer, start: Starter
) -> None:
    any_server.start_call("compile_kernel", ENDLESS)
    running = any_server.processes()
    assert set(any_server.workers()) < set(running)
    any_server.send_signal(signal.SIGKILL)
    assert any_server.end() == -signal.SIGKILL
    wait_for_end(running)
    start().initialize()
    assert left_in(any_server.scratch) == []


def test_a_server_leaves_the_scratch_of_another_one_alone(start: Starter, tmp_path: Path) -> None:
    first = start(**without_sandbox(tmp_path))
    first.initialize()
    first.start_call("compile_kernel", ENDLESS)
    used = left_in(tmp_path)
    assert used
    start().initialize()
    assert left_in(tmp_path) == used


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
