"""`install` and `uninstall`: clients' own configuration files in a made-up home folder."""

import base64
import json
import os
import stat
import sys
import tomllib
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tritonforge.server.cli import FAILED, MISUSE, OK, run
from tritonforge.server.install.arguments import CLIENT_NAMES
from tritonforge.server.install.clients import CLIENTS, Server, is_ours
from tritonforge.server.install.command import run_command, running_command, why_unfit
from tritonforge.server.install.editing import installed, snippet, uninstalled
from tritonforge.server.install.files import replace_text
from tritonforge.server.install.links import cursor_link, vscode_link
from tritonforge.server.settings import Settings

SERVER = Server("/opt/bin/tritonforge-mcp", ("--python", "/opt/bin/python"))
SCRIPT = str(Path(sys.executable).with_name("tritonforge-mcp"))
FILES = {
    "claude": (".claude.json", ".mcp.json"),
    "codex": (".codex/config.toml", ".codex/config.toml"),
    "gemini": (".gemini/settings.json", ".gemini/settings.json"),
    "vscode": (".config/Code/User/mcp.json", ".vscode/mcp.json"),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json"),
}
BESIDE_THE_COMMAND = {
    "claude": {"timeout": 900_000},
    "codex": {"startup_timeout_sec": 60, "tool_timeout_sec": 900, "env_vars": ["CUDA_VISIBLE_DEVICES"]},
    "gemini": {"timeout": 900_000},
    "vscode": {},
    "cursor": {},
}


def fits(python: str) -> str:
    return ""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder; the project is `project` in it."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in list(os.environ):
        if name.startswith("TRITONFORGE_") or name in {"CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"}:
            monkeypatch.delenv(name)
    monkeypatch.delenv("GEMINI_CLI_HOME", raising=False)
    monkeypatch.setattr("tritonforge.server.cli._own_signals", lambda: None)
    monkeypatch.setattr("tritonforge.server.install.command.why_unfit", fits)
    return tmp_path


def servers(client: str, path: Path) -> dict[str, Any]:
    text = path.read_text()
    read = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    return read[CLIENTS[client].table]


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_each_client_finds_the_server_with_time_outs_in_its_own_file(home: Path, client: str, project: bool) -> None:
    where = home / "project" if project else home
    assert run(["install", client, "--python", sys.executable, *(["--project"] if project else [])]) == OK
    path = where / FILES[client][project]
    expected = {"command": SCRIPT, "args": ["--python", sys.executable], **BESIDE_THE_COMMAND[client]}
    assert servers(client, path)["tritonforge"].items() >= expected.items()
    assert stat.S_IMODE(path.stat().st_mode) == (0o644 if project else 0o600)


@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_a_second_install_does_nothing_and_says_so(home: Path, client: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["install", client]) == OK
    path = home / FILES[client][0]
    before = path.stat()
    capsys.readouterr()
    assert run(["install", client]) == OK
    assert "Nothing to do: tritonforge is up to date" in capsys.readouterr().out
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (before.st_ino, before.st_mtime_ns, before.st_mode)


@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_uninstall_removes_ours_alone(home: Path, client: str) -> None:
    run(["install", client, "--name", "mine"])
    path = home / FILES[client][0]
    before = path.read_text()
    run(["install", client])
    assert set(servers(client, path)) == {"mine", "tritonforge"}
    assert run(["uninstall", client]) == OK
    assert path.read_text() == before
    assert run(["uninstall", client]) == OK
    assert path.read_text() == before


@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_a_dry_run_shows_the_difference_and_writes_nothing(
    home: Path, client: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", client, "--dry-run"]) == OK
    shown = capsys.readouterr().out
    assert shown.startswith("--- /dev/null")
    assert any(line.startswith("+") and SCRIPT in line for line in shown.splitlines())
    assert sorted(path.name for path in home.iterdir()) == ["project"]


@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_it_says_what_to_do_next(home: Path, client: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["install", client, "--name", "mine"])
    shown = capsys.readouterr().out
    assert f"{CLIENTS[client].title}: " in shown
    assert "Use mine to make" in shown
    (entry,) = servers(client, home / FILES[client][0]).values()
    assert f"`{entry['command']} doctor` tells what works" in shown


def test_options_that_are_given_are_handed_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONFORGE_STATE_DIR", "kept")
    options = ["--require-sandbox", "--allow-read", ".", "--gpu-spares", "2", "--memory-gb", "1.5"]
    assert run(["install", "gemini", *options]) == OK
    project = str(home / "project")
    assert servers("gemini", home / ".gemini" / "settings.json")["tritonforge"]["args"] == [
        "--state-dir", f"{project}/kept", "--require-sandbox", "--allow-read", project,
        "--gpu-spares", "2", "--memory-gb", "1.5",
    ]  # fmt: skip


def test_a_bare_name_of_an_interpreter_is_written_as_a_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert run(["install", "cursor", "--python", Path(sys.executable).name]) == OK
    assert servers("cursor", home / ".cursor" / "mcp.json")["tritonforge"]["args"] == ["--python", sys.executable]


def test_an_interpreter_that_is_not_there_is_misuse(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "claude", "--python", "/nowhere/python"]) == MISUSE
    assert "there is no program /nowhere/python" in capsys.readouterr().err
    assert not (home / ".claude.json").exists()


def test_variables_that_move_a_clients_folder_are_followed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for client, variable, name in (
        ("claude", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("vscode", "XDG_CONFIG_HOME", "Code/User/mcp.json"),
    ):
        monkeypatch.setenv(variable, str(home / variable))
        assert run(["install", client]) == OK
        assert "tritonforge" in servers(client, home / variable / name)


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("vscode", '{\n  // mine\n  "servers": {}\n}\n'),
        ("claude", '{"mcpServers": '),
        ("gemini", '{"mcpServers": []}'),
        ("codex", "[mcp_servers\n"),
        ("codex", 'mcp_servers = {theirs = {command = "x"}}\n'),
        ("codex", 'mcp_servers = "none"\n'),
        ("cursor", '{"mcpServers": {"tritonforge": null, "a": 1, "a": 2}}'),
    ],
)
def test_what_cannot_be_changed_safely_stays_and_is_shown_to_be_added_by_hand(
    home: Path, client: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / FILES[client][0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert run(["install", client]) == FAILED
    said = capsys.readouterr().err
    assert f"{path} " in said
    assert "Nothing was changed" in said
    assert snippet(CLIENTS[client], "tritonforge", Server(SCRIPT)) in said
    assert path.read_text() == text
    assert list(path.parent.glob("*before-tritonforge")) == []


@pytest.mark.parametrize("theirs", [{"command": "npx", "args": ["other"]}, {"url": "http://localhost:1"}])
def test_where_another_server_has_the_name_what_to_add_by_hand_has_a_free_one(
    home: Path, theirs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    text = json.dumps({"mcpServers": {"tritonforge": theirs, "tritonforge-2": theirs}})
    path.write_text(text)
    assert run(["install", "cursor"]) == FAILED
    said = capsys.readouterr().err
    assert "take another one: --name tritonforge-3" in said
    assert said.endswith(snippet(CLIENTS["cursor"], "tritonforge-3", Server(SCRIPT)) + "\n")
    assert path.read_text() == text


def test_bytes_that_are_no_text_are_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".claude.json").write_bytes(b"\xff\xfe{}")
    assert run(["install", "claude"]) == FAILED
    assert "is not UTF-8 text" in capsys.readouterr().err


def test_another_server_under_our_name_is_not_removed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / ".claude.json"
    path.write_text('{"mcpServers": {"tritonforge": {"command": "npx"}}}')
    assert run(["uninstall", "claude"]) == FAILED
    assert "remove it by hand" in capsys.readouterr().err
    assert "npx" in path.read_text()


def test_what_a_user_added_to_our_entry_stays() -> None:
    client = CLIENTS["gemini"]
    text = json.dumps({"mcpServers": {"t": {"trust": True, "command": "/old/tritonforge-mcp", "timeout": 5}}})
    entry = json.loads(installed(text, client, "t", SERVER))["mcpServers"]["t"]
    assert entry == {"trust": True, **client.entry(SERVER)}


def test_variables_that_a_user_hands_on_to_our_entry_stay() -> None:
    client = CLIENTS["codex"]
    text = '[mcp_servers.t]\ncommand = "/old/tritonforge-mcp"\nenv_vars = ["A"] # mine\n'
    changed = installed(text, client, "t", SERVER)
    assert tomllib.loads(changed)["mcp_servers"]["t"] == {**client.entry(SERVER), "env_vars": ["A"]}
    assert 'env_vars = ["A"] # mine\n' in changed


def test_a_mark_at_the_beginning_of_a_file_stays() -> None:
    client = CLIENTS["cursor"]
    changed = installed('\ufeff{"a": 1}', client, "t", SERVER)
    assert changed.startswith('\ufeff{"a": 1, ')
    assert uninstalled(changed, client, "t") == '\ufeff{"a": 1, "mcpServers": {}}'


def test_permissions_links_and_what_was_there_before_are_kept(home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text('{"a": 1}')
    real.chmod(0o640)
    link = home / ".claude.json"
    link.symlink_to(real)
    assert run(["install", "claude"]) == OK
    backup = home / ".claude.json.before-tritonforge"
    assert link.is_symlink()
    assert "tritonforge" in real.read_text()
    assert backup.read_text() == '{"a": 1}'
    assert [stat.S_IMODE(path.stat().st_mode) for path in (real, backup)] == [0o640, 0o640]
    assert sorted(path.name for path in home.iterdir()) == [
        ".claude.json", ".claude.json.before-tritonforge", "dotfiles.json", "project",
    ]  # fmt: skip


def test_a_file_that_another_program_has_just_changed_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text("newer")
    with pytest.raises(ValueError, match="changed by another program"):
        replace_text(path, "older", "ours", mode=0o600, keep=True)
    assert path.read_text() == "newer"


@pytest.mark.parametrize(
    ("entry", "ours"),
    [
        ({"command": "/a/tritonforge-mcp"}, True),
        ({"command": "uvx", "args": ["tritonforge-mcp"]}, True),
        ({"command": "/a/python", "args": ["-m", "tritonforge.server"]}, True),
        ({"command": "/a/python", "args": ["-m", "other"]}, False),
        ({"url": "http://localhost/tritonforge-mcp"}, False),
    ],
)
def test_only_what_starts_this_server_is_ours(entry: dict[str, Any], ours: bool) -> None:
    assert is_ours(entry) is ours


def test_the_script_that_runs_is_named_by_its_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin" / "tritonforge-mcp"
    script.parent.mkdir()
    script.touch()
    monkeypatch.chdir(tmp_path)
    assert running_command("bin/tritonforge-mcp", "/usr/bin/python3") == [str(script)]
    assert running_command("/x/__main__.py", str(script.parent / "python")) == [str(script)]
    assert running_command("/x/__main__.py", "/x/python") == ["/x/python", "-m", "tritonforge.server"]


@pytest.mark.parametrize(
    ("line", "why"),
    [("echo missing: torch triton", "has no torch and triton"), ("echo warned; echo missing:", "")],
)
def test_an_interpreter_that_kernels_cannot_run_in_is_pointed_out(
    tmp_path: Path, line: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{line}\n")
    python.chmod(0o755)
    settings = Settings(python=str(python))
    given = Namespace(client="cursor", command="install", name="t", project=True, dry_run=False)
    assert run_command(settings, given, say=print, tell=print) == OK
    shown = capsys.readouterr().out
    assert (f"Kernels would run in {python}, which {why}: " in shown) == bool(why)


@pytest.mark.parametrize("line", ["true", "exit 1", "echo torch"])
def test_a_program_that_is_no_python_is_refused(
    home: Path, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonforge.server.install.command.why_unfit", why_unfit)
    program = home / "python"
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)
    assert run(["install", "claude", "--python", str(program)]) == MISUSE
    assert f"{program} does not run Python" in capsys.readouterr().err
    assert not (home / ".claude.json").exists()


def test_a_real_interpreter_is_asked_what_it_lacks() -> None:
    assert why_unfit(sys.executable) == ""


def test_what_was_there_before_this_server_stays_kept(home: Path) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"a": 1}')
    for words in (["install", "cursor"], ["install", "cursor", "--spares", "3"], ["install", "cursor", "--name", "b"]):
        assert run(words) == OK
    assert run(["uninstall", "cursor"]) == OK
    backup = path.with_name("mcp.json.before-tritonforge")
    assert backup.read_text() == '{"a": 1}'
    # A file without our server is a new beginning.
    assert run(["uninstall", "cursor", "--name", "b"]) == OK
    path.write_text('{"a": 2}')
    assert run(["install", "cursor"]) == OK
    assert backup.read_text() == '{"a": 2}'


def test_a_pipe_as_configuration_is_refused_and_not_waited_for(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(home / ".claude.json")
    assert run(["install", "claude"]) == FAILED
    assert "is not a regular file" in capsys.readouterr().err


def test_a_value_that_equals_nothing_is_no_obstacle() -> None:
    client = CLIENTS["codex"]
    text = "limits = [nan, inf]\nwhen = 2026-01-01T00:00:00Z\n"
    changed = installed(text, client, "t", SERVER)
    assert changed.startswith(text)
    assert uninstalled(changed, client, "t").strip() == text.strip()


@pytest.mark.parametrize("name", ["a b", "", "a.b", "x" * 41, "ü"])
def test_a_name_that_not_every_client_takes_is_misuse(name: str) -> None:
    with pytest.raises(SystemExit, match=str(MISUSE)):
        run(["install", "claude", "--name", name])


def test_links_hold_the_entry_that_install_writes() -> None:
    for link, client in ((cursor_link("a b", SERVER), "cursor"), (vscode_link("a b", SERVER), "vscode")):
        asked = {key: value for key, [value] in parse_qs(urlsplit(link).query, strict_parsing=True).items()}
        assert asked["name"] == "a b"
        held = base64.b64decode(asked["config"]) if client == "cursor" else asked["config"]
        assert json.loads(held) == CLIENTS[client].entry(SERVER)
