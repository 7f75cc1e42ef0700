"""Stands for `claude`, `codex` and `gemini`: reads the configuration that each is given, and uses the server.

What it does is in ``FAKE_AGENT``, JSON: `submit` (texts of candidates with strategies; NUMBER in them is the agent's),
`wait_s` (for each answer), `leave` (whether a child stays behind), `task` (texts to write, one a start), `hang`
(whether it never ends by itself), `report` (what it prints at last) and `code`. How it was started goes into
``FAKE_AGENT_SEEN``, a line a start.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any


def claude(words: list[str]) -> tuple[str, dict[str, Any]]:
    assert "--strict-mcp-config" in words
    assert "mcp__tritonforge" in words[words.index("--allowedTools") + 1]
    config = json.loads(Path(words[words.index("--mcp-config") + 1]).read_text())
    return words[words.index("-p") + 1], config["mcpServers"]["tritonforge"]


def codex(words: list[str]) -> tuple[str, dict[str, Any]]:
    assert words[0] == "exec"
    assert words[words.index("--cd") + 1] == str(Path.cwd())
    given = [words[place + 1] for place, word in enumerate(words) if word == "-c"]
    servers: dict[str, Any] = tomllib.loads("\n".join(given))["mcp_servers"]
    return words[words.index("--") + 1], servers["tritonforge"]


def gemini(words: list[str]) -> tuple[str, dict[str, Any]]:
    assert words[words.index("--allowed-mcp-server-names") + 1] == "tritonforge"
    config = json.loads(Path(".gemini/settings.json").read_text())
    return words[words.index("-p") + 1], config["mcpServers"]["tritonforge"]


class Attached:
    """The server, as the configuration says it is started."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [entry["command"], *entry["args"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **entry.get("env", {})},
        )
        self._next = 0
        self.request(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "fake", "version": "1"},
            },
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        assert not result.get("isError"), result
        structured: dict[str, Any] = result["structuredContent"]
        return structured

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._next += 1
        self._send({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._next:
                result: dict[str, Any] = message["result"]
                return result
        raise AssertionError("the server has ended")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


def main(name: str, words: list[str]) -> None:
    seen = Path(os.environ["FAKE_AGENT_SEEN"])
    before = len(seen.read_text().splitlines()) if seen.exists() else 0
    prompt, entry = {"claude": claude, "codex": codex, "gemini": gemini}[name](words)
    with seen.open("a") as file:
        file.write(json.dumps({"name": name, "words": words, "prompt": prompt, "pid": os.getpid()}) + "\n")
    plan = json.loads(os.environ["FAKE_AGENT"])
    written = re.search(r"Write the finished task file to `([^`]+)`", prompt)
    if written is not None:
        texts = plan["task"]
        if texts[before % len(texts)] is not None:
            Path(written[1]).write_text(texts[before % len(texts)])
        return
    found = re.search(r"Run: `([^`]+)`", prompt)
    assert found is not None, prompt
    if plan.get("submit"):
        server = Attached(entry)
        for number, (text, strategy) in enumerate(plan["submit"]):
            # As agents do: a file of its own, by its path.
            file = Path(f"candidate_{number}.py").absolute()
            file.write_text(text.replace("NUMBER", Path.cwd().name[-1]))
            answer = server.call(
                "submit_candidate", run_id=found[1], kernel=str(file), strategy=strategy, wait_s=plan.get("wait_s", 60)
            )
            sys.stdout.write(answer["summary"] + "\n")
            if answer["verdict"] == "finish":
                break
    if plan.get("leave"):
        subprocess.Popen(["sleep", "600"])
    if plan.get("hang"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
    sys.stdout.write(plan.get("report", "done") + "\n")
    sys.exit(plan.get("code", 0))


if __name__ == "__main__":
    main(Path(sys.argv[0]).name, sys.argv[1:])
