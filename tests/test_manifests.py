"""What clients and registries are told of this server: one version, one configuration, folders that exist."""

import base64
import json
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tritonforge import __version__
from tritonforge.server.install.clients import CLIENTS, Server
from tritonforge.server.install.editing import snippet
from tritonforge.server.install.links import cursor_link, vscode_link

ROOT = Path(__file__).parents[1]
CLIENT_FOLDER = ROOT / "clients"
README = (ROOT / "README.md").read_text(encoding="utf-8")
ON_PATH = Server("tritonforge-mcp")
"""How folders and links that fit every machine start it."""


def read(*names: str) -> dict[str, Any]:
    return json.loads(ROOT.joinpath(*names).read_text(encoding="utf-8"))


REGISTRY = read("server.json")
BUNDLE = read("clients", "mcpb", "manifest.json")
CLAUDE_PLUGIN = read("clients", "claude", ".claude-plugin", "plugin.json")
CODEX_PLUGIN = read("clients", "codex", ".codex-plugin", "plugin.json")
GEMINI_EXTENSION = read("clients", "gemini", "gemini-extension.json")
BUNDLE_PROJECT = tomllib.loads((CLIENT_FOLDER / "mcpb" / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(REGISTRY["version"], id="server.json"),
        pytest.param(REGISTRY["packages"][0]["version"], id="server.json, package"),
        pytest.param(BUNDLE["version"], id="mcpb"),
        pytest.param(BUNDLE_PROJECT["project"]["version"], id="mcpb, project"),
        pytest.param(CLAUDE_PLUGIN["version"], id="Claude Code"),
        pytest.param(CODEX_PLUGIN["version"], id="Codex"),
        pytest.param(GEMINI_EXTENSION["version"], id="Gemini"),
    ],
)
def test_every_manifest_has_the_packages_version(version: str) -> None:
    assert version == __version__


def test_the_bundle_installs_the_wheel_of_this_version() -> None:
    wheel = BUNDLE_PROJECT["tool"]["uv"]["sources"]["tritonforge-mcp"]["path"]
    assert wheel == f"tritonforge_mcp-{__version__}-py3-none-any.whl"
    assert (CLIENT_FOLDER / "mcpb" / BUNDLE["server"]["entry_point"]).is_file()


@pytest.mark.parametrize(
    ("client", "held"),
    [
        ("claude", read("clients", "claude", ".mcp.json")["mcpServers"]),
        ("codex", read("clients", "codex", ".mcp.json")["mcpServers"]),
        ("gemini", GEMINI_EXTENSION["mcpServers"]),
    ],
)
def test_plugins_start_the_server_as_install_would(client: str, held: dict[str, Any]) -> None:
    entry = dict(held["tritonforge"])
    # No option can stand in a folder that fits every machine, so the variables that say the same come in.
    handed_on = entry.pop("env_vars", [])
    assert list(held) == ["tritonforge"]
    assert entry == CLIENTS[client].entry(ON_PATH)
    assert (client == "codex") == ("TRITONFORGE_PYTHON" in handed_on) == ("CUDA_VISIBLE_DEVICES" in handed_on)


def test_marketplaces_name_plugin_folders_that_exist() -> None:
    [claude] = read("clients", ".claude-plugin", "marketplace.json")["plugins"]
    assert claude["name"] == CLAUDE_PLUGIN["name"]
    assert (CLIENT_FOLDER / claude["source"] / ".claude-plugin" / "plugin.json").is_file()
    [codex] = read("clients", ".agents", "plugins", "marketplace.json")["plugins"]
    assert codex["name"] == CODEX_PLUGIN["name"]
    assert (CLIENT_FOLDER / codex["source"]["path"] / ".codex-plugin" / "plugin.json").is_file()
    assert (CLIENT_FOLDER / "codex" / CODEX_PLUGIN["mcpServers"]).is_file()


def test_the_registry_can_tell_that_the_package_is_ours() -> None:
    assert f"<!-- mcp-name: {REGISTRY['name']} -->" in README
    [package] = REGISTRY["packages"]
    assert package["identifier"] == BUNDLE["name"] == "tritonforge-mcp"
    assert len(REGISTRY["description"]) <= 100


def test_the_readmes_links_are_those_that_are_generated() -> None:
    for link in (cursor_link("tritonforge", ON_PATH), vscode_link("tritonforge", ON_PATH)):
        assert f"({link})" in README


def test_the_readmes_links_hold_the_entries_that_install_writes() -> None:
    links: list[str] = re.findall(r"\((https://(?:cursor\.com|vscode\.dev)/[^)]*config=[^)]*)\)", README)
    held = [parse_qs(urlsplit(link).query, strict_parsing=True)["config"][0] for link in links]
    assert json.loads(base64.b64decode(held[0])) == CLIENTS["cursor"].entry(ON_PATH)
    assert json.loads(held[1]) == CLIENTS["vscode"].entry(ON_PATH)
    assert len(held) == 2


@pytest.mark.parametrize("client", ["claude", "codex", "gemini", "vscode", "cursor"])
def test_the_guides_snippets_are_what_install_writes(client: str) -> None:
    guide = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    server = Server("/path/to/.venv/bin/tritonforge-mcp")
    assert snippet(CLIENTS[client], "tritonforge", server) in guide
