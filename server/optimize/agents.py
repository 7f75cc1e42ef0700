"""How each agent's CLI is started without a person, with the server attached over stdio.

Each function writes the configuration that its CLI reads, into a folder of the agent's own, and returns what to start.
Nothing of the user's own configuration is changed; their sign-in, and the model that they chose, stay in force.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ..settings import GB, Settings

NAME: Final = "tritonforge"
START_S: Final = 60
CALL_S: Final = 900
"""Above what any call takes: a tool answers within `wait_s`, 600 s at most."""
PASSED_ON: Final = ("TRITONFORGE_NCU", "TRITONFORGE_SANITIZER", "CUDA_VISIBLE_DEVICES")
"""Environment variables that the server needs; some clients give theirs only a few that they know."""


class Attached(NamedTuple):
    """The MCP server as an agent's CLI starts it."""

    command: str
    arguments: list[str]
    environment: dict[str, str]


class Started(NamedTuple):
    """An agent's CLI, ready to be started."""

    words: list[str]
    environment: dict[str, str]


def attached(settings: Settings) -> Attached:
    """This server with these settings: the same state folder, so the same runs."""
    words = ["-m", "tritonforge.server", "--state-dir", str(settings.state_dir), "--python", settings.python]
    words += ["--spares", str(settings.spares), "--gpu-spares", str(settings.gpu_spares)]
    words += ["--idle-s", str(settings.idle_s)]
    limits = {"memory-gb": settings.limits.memory_bytes, "gpu-memory-gb": settings.limits.gpu_memory_bytes}
    for name, size in limits.items():
        if size is not None:
            words += [f"--{name}", str(size / GB)]
    if settings.require_sandbox:
        words.append("--require-sandbox")
    for folder in settings.allow_read:
        words += ["--allow-read", str(folder)]
    if settings.without:
        words.append("serve")
    for tool in settings.without:
        words += ["--without", tool]
    passed = {name: value for name in PASSED_ON if (value := os.environ.get(name))}
    return Attached(sys.executable, words, passed)


def claude(folder: Path, server: Attached, prompt: str, more: Sequence[str]) -> Started:
    """Claude Code: a configuration file of its own, and no other server."""
    config = folder / "mcp.json"
    entry = {
        "type": "stdio", "command": server.command, "args": server.arguments, "env": server.environment,
        "timeout": CALL_S * 1000,
    }  # fmt: skip
    config.write_text(json.dumps({"mcpServers": {NAME: entry}}, indent=2))
    # The prompt comes first: --allowedTools and --mcp-config take all words that follow.
    words = ["claude", "-p", prompt, "--permission-mode", "acceptEdits", *more]
    words += ["--strict-mcp-config", "--mcp-config", str(config)]
    words += ["--allowedTools", ",".join([f"mcp__{NAME}", "Read", "Write", "Edit", "Glob", "Grep"])]
    return Started(words, {"MCP_TIMEOUT": str(START_S * 1000), "MCP_TOOL_TIMEOUT": str(CALL_S * 1000)})


def codex(folder: Path, server: Attached, prompt: str, more: Sequence[str]) -> Started:
    """Codex CLI: all on the command line; it may write into its own folder alone."""
    # A JSON string or list of strings is TOML, too.
    settings = {
        "command": json.dumps(server.command),
        "args": json.dumps(server.arguments),
        "startup_timeout_sec": str(START_S),
        "tool_timeout_sec": str(CALL_S),
        # Else the agent begins while the server starts, without its tools.
        "required": "true",
        # Nobody is there to be asked.
        "default_tools_approval_mode": json.dumps("approve"),
    }
    settings |= {f"env.{name}": json.dumps(value) for name, value in server.environment.items()}
    words = ["codex", "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", "--cd", str(folder)]
    for key, value in settings.items():
        words += ["-c", f"mcp_servers.{NAME}.{key}={value}"]
    return Started([*words, *more, "--", prompt], {})


def gemini(folder: Path, server: Attached, prompt: str, more: Sequence[str]) -> Started:
    """Gemini CLI: the settings of its folder, which it is told to trust; no other server."""
    entry = {
        "command": server.command, "args": server.arguments, "env": server.environment, "timeout": CALL_S * 1000,
        "trust": True,
    }  # fmt: skip
    settings = folder / ".gemini" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"mcpServers": {NAME: entry}}, indent=2))
    words = ["gemini", "--skip-trust", "--approval-mode", "auto_edit", "--allowed-mcp-server-names", NAME, *more]
    return Started([*words, "-p", prompt], {"GEMINI_CLI_TRUST_WORKSPACE": "true"})


AGENTS: Final[dict[str, Callable[[Path, Attached, str, Sequence[str]], Started]]] = {
    "claude": claude, "codex": codex, "gemini": gemini,
}  # fmt: skip
"""By the name of the CLI, which is the program's, too."""
