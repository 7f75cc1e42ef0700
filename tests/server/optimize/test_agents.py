"""What each agent's CLI is started with: this server, the same state folder, its own time-outs, and nothing else."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tritonforge.sandbox.limits import Limits
from tritonforge.server.optimize.agents import AGENTS, Attached, attached, claude, codex, gemini
from tritonforge.server.settings import Settings

SERVER = Attached("/opt/py thon", ["-m", "tritonforge.server", '--state-dir="x"'], {"TRITONFORGE_NCU": "/opt/ncu"})


def test_the_attached_server_has_the_settings_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONFORGE_NCU", "/opt/ncu")
    for name in ("TRITONFORGE_SANITIZER", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    settings = Settings(
        python="/env/bin/python", state_dir=Path("/state"), require_sandbox=True, allow_read=(Path("/a"), Path("/b")),
        spares=1, gpu_spares=3, idle_s=60.0, limits=Limits(memory_bytes=8_000_000_000),
    )  # fmt: skip
    server = attached(settings)
    assert server.environment == {"TRITONFORGE_NCU": "/opt/ncu"}
    words = " ".join(server.arguments)
    for part in (
        "-m tritonforge.server --state-dir /state --python /env/bin/python", "--spares 1 --gpu-spares 3 --idle-s 60.0",
        "--memory-gb 8.0", "--require-sandbox", "--allow-read /a --allow-read /b",
    ):  # fmt: skip
        assert part in words
    assert "--gpu-memory-gb" not in words
    assert "--without" not in words


def test_the_attached_server_goes_without_what_this_one_goes_without() -> None:
    server = attached(Settings(without=("profile_ncu", "diagnose_kernel")))
    assert server.arguments[-5:] == ["serve", "--without", "profile_ncu", "--without", "diagnose_kernel"]


def test_claude_gets_a_configuration_of_its_own_and_no_other_server(tmp_path: Path) -> None:
    ready = claude(tmp_path, SERVER, "# Make it fast", ["--model", "m"])
    assert ready.words[:3] == ["claude", "-p", "# Make it fast"]
    assert "--strict-mcp-config" in ready.words
    config = json.loads(Path(ready.words[ready.words.index("--mcp-config") + 1]).read_text())
    entry = config["mcpServers"]["tritonforge"]
    assert (entry["command"], entry["args"], entry["env"]) == tuple(SERVER)
    assert entry["timeout"] == 900_000
    assert ready.words[-2:] == ["--allowedTools", "mcp__tritonforge,Read,Write,Edit,Glob,Grep"]
    assert "Bash" not in " ".join(ready.words)


def test_codex_gets_the_server_on_its_command_line_as_toml(tmp_path: Path) -> None:
    ready = codex(tmp_path, SERVER, "-p is no option here", ["--model", "m"])
    given = [ready.words[place + 1] for place, word in enumerate(ready.words) if word == "-c"]
    entry: dict[str, Any] = tomllib.loads("\n".join(given))["mcp_servers"]["tritonforge"]
    assert (entry["command"], entry["args"], entry["env"]) == tuple(SERVER)
    assert (entry["startup_timeout_sec"], entry["tool_timeout_sec"]) == (60, 900)
    assert (entry["default_tools_approval_mode"], entry["required"]) == ("approve", True)
    assert ready.words[:2] == ["codex", "exec"]
    assert ready.words[ready.words.index("--sandbox") + 1] == "workspace-write"
    assert ready.words[-2:] == ["--", "-p is no option here"]


def test_gemini_gets_the_server_in_the_settings_of_its_folder(tmp_path: Path) -> None:
    ready = gemini(tmp_path, SERVER, "make it fast", ["--model", "m"])
    entry = json.loads((tmp_path / ".gemini" / "settings.json").read_text())["mcpServers"]["tritonforge"]
    assert (entry["command"], entry["args"], entry["env"]) == tuple(SERVER)
    assert (entry["timeout"], entry["trust"]) == (900_000, True)
    assert ready.words[ready.words.index("--allowed-mcp-server-names") + 1] == "tritonforge"
    assert ready.words[-2:] == ["-p", "make it fast"]
    assert "yolo" not in ready.words


@pytest.mark.parametrize("agent", AGENTS)
def test_the_user_s_own_configuration_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    AGENTS[agent](folder, SERVER, "make it fast", [])
    assert list(home.iterdir()) == []
