"""The MCP clients that we write configuration for: where each keeps it, in what form, and what comes next there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

TIMEOUT_S: Final = 900
"""For one call. Longer work goes on as a job, but a client with a shorter limit of its own would cut answers off."""
STARTUP_TIMEOUT_S: Final = 60
"""A first start on a busy machine takes longer than clients wait for by default."""

SCRIPT: Final = "tritonforge-mcp"
MODULE: Final = "tritonforge.server"
"""What starts the server: its script, or `python -m` with the module."""

Environment = Mapping[str, str]
Entry = dict[str, Any]
ASK: Final = 'ask for it: "Use {name} to make softmax.py faster; its task file is softmax_task.py"'


@dataclass(frozen=True, slots=True)
class Server:
    """How a client starts this server."""

    command: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """A client with the form of its configuration."""

    title: str
    form: Literal["json", "toml"]
    table: str
    """Under which its servers stand, by name."""
    entry: Callable[[Server], Entry]
    user_file: Callable[[Path, Environment], Path]
    """From the home folder and the environment."""
    project_file: Path
    """Below the project's folder."""
    next_steps: str
    """What to do once it is written; `{name}` is the server's."""
    project_steps: str = ""
    """What comes before that where it was written into a project."""
    defaults: Callable[[], Entry] = dict
    """What an entry has besides, unless its user says otherwise."""

    def complete(self, server: Server, before: Entry | None = None) -> Entry:
        """An entry as it is written, with all that stood in it before."""
        kept = before or {}
        extra = {key: value for key, value in self.defaults().items() if key not in kept}
        return {**kept, **self.entry(server), **extra}


def _plain(server: Server) -> Entry:
    return {"command": server.command, "args": list(server.args)}


def _typed(server: Server) -> Entry:
    return {"type": "stdio", **_plain(server)}


def _codex(server: Server) -> Entry:
    return {**_plain(server), "startup_timeout_sec": STARTUP_TIMEOUT_S, "tool_timeout_sec": TIMEOUT_S}


def _below(variable: str, folder: str, *names: str) -> Callable[[Path, Environment], Path]:
    """A file below the folder that a variable names, or else below one in the home folder."""

    def path(home: Path, environment: Environment) -> Path:
        named = environment.get(variable)
        return (Path(named) if named else home / folder).joinpath(*names)

    return path


CLIENTS: Final[dict[str, Client]] = {
    "claude": Client(
        title="Claude Code",
        form="json",
        table="mcpServers",
        entry=lambda server: {**_typed(server), "timeout": TIMEOUT_S * 1000},
        user_file=_below("CLAUDE_CONFIG_DIR", "", ".claude.json"),
        project_file=Path(".mcp.json"),
        next_steps="`claude mcp list` says whether it connects. Start `claude` and "
        f"{ASK}, or begin with /mcp__{{name}}__optimize_kernel.",
        project_steps="It asks before it starts a project's server for the first time: start `claude` in this folder "
        "and allow it.",
    ),
    "codex": Client(
        title="Codex CLI",
        form="toml",
        table="mcp_servers",
        entry=_codex,
        user_file=_below("CODEX_HOME", ".codex", "config.toml"),
        project_file=Path(".codex", "config.toml"),
        # Codex hands on few variables that are not named, and this one chooses the GPU.
        defaults=lambda: {"env_vars": ["CUDA_VISIBLE_DEVICES"]},
        next_steps=f"`codex mcp list` shows it. Start `codex` and {ASK}. Codex shows no MCP prompts; the "
        "server's instructions tell it how to work.",
        project_steps="It reads a project's configuration only where the project is trusted: start `codex` in this "
        "folder and trust it.",
    ),
    "gemini": Client(
        title="Gemini CLI",
        form="json",
        table="mcpServers",
        entry=lambda server: {**_plain(server), "timeout": TIMEOUT_S * 1000},
        user_file=_below("GEMINI_CLI_HOME", "", ".gemini", "settings.json"),
        project_file=Path(".gemini", "settings.json"),
        next_steps="`gemini mcp list`, in a folder that you trust, says whether it connects. Start `gemini` and "
        f"{ASK}, or begin with /optimize_kernel.",
    ),
    "vscode": Client(
        title="VS Code",
        form="json",
        table="servers",
        entry=_typed,
        user_file=_below("XDG_CONFIG_HOME", ".config", "Code", "User", "mcp.json"),
        project_file=Path(".vscode", "mcp.json"),
        next_steps='Run "MCP: List Servers" from the command palette, start {name} and trust it; then, in agent mode, '
        f"{ASK}, or begin with /mcp.{{name}}.optimize_kernel.",
    ),
    "cursor": Client(
        title="Cursor",
        form="json",
        table="mcpServers",
        entry=_typed,
        user_file=_below("", "", ".cursor", "mcp.json"),
        project_file=Path(".cursor", "mcp.json"),
        next_steps=f"Switch {{name}} on in Cursor's settings, under MCP; then, in its agent, {ASK}.",
    ),
}


def is_ours(entry: Entry) -> bool:
    """Whether an entry of a client's configuration starts this server."""
    command, args = entry.get("command"), entry.get("args")
    words = [str(word) for word in cast(list[Any], args)] if isinstance(args, list) else []
    return isinstance(command, str) and (Path(command).name == SCRIPT or SCRIPT in words or MODULE in words)
