"""What `call` says to a shell: the arguments of a tool as options, and where the files of a result lie."""

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from .artifacts import SCHEME, ArtifactStore
from .settings import Settings

if TYPE_CHECKING:
    from mcp_types import Tool

WIDTH_LIMIT: Final = 120
INDENT: Final = " " * 6
SAID: Final = re.compile(r"(?:\bDefault: [^.]*\.)\s*$")
"""What a description says of its default, in words."""
NAMED: Final = re.compile(r"\b([a-z]\w*)=")
KINDS: Final[Mapping[str, str]] = {
    "string": "TEXT",
    "integer": "WHOLE NUMBER",
    "number": "NUMBER",
    "boolean": "true|false",
    "array": "A,B,...",
    "object": "JSON",
}


class CallHelp(argparse.Action):
    """`--help` of `call`: with a tool its arguments, without one the tools; both as the server lists them."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="show this, or what TOOL takes, and end")

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        tools = anyio.run(listed_tools)
        name: str | None = getattr(namespace, "tool", None)
        if name is None:
            sys.stdout.write(f"{parser.format_help()}\n{tool_list(tools)}\n")
            parser.exit()
        tool = next((tool for tool in tools if tool.name == name), None)
        if tool is None:
            parser.error(f"there is no tool {name!r}; the tools are {', '.join(tool.name for tool in tools)}")
        sys.stdout.write(f"{tool_help(tool)}\n")
        parser.exit()


async def listed_tools() -> "list[Tool]":
    """All tools, as an MCP client sees them."""
    from mcp.client import Client

    from .app import build_server

    async with Client(build_server(Settings())) as client:
        return (await client.list_tools()).tools


def tool_list(tools: "Iterable[Tool]") -> str:
    """Their names and titles."""
    rows = [f"  {tool.name:<20}{tool.title}" for tool in tools]
    return "\n".join(["tools:", *rows, "", "`tritonforge-mcp call TOOL --help` tells what one takes."])


def tool_help(tool: "Tool") -> str:
    """The arguments of a tool as options: type, default, whether they are required, description."""
    schema: dict[str, Any] = tool.input_schema
    needed: list[str] = schema.get("required", [])
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    told = [f"usage: tritonforge-mcp call {tool.name} [--key value ...] [--json]", "", f"{tool.title}.", ""]
    for name in sorted(properties, key=lambda name: name not in needed):
        told += _option(name, properties[name], required=name in needed)
    told += ["  --json", f"{INDENT}Print exactly the structured result."]
    told += ["", "Options of the server, such as --state-dir: tritonforge-mcp call --help"]
    return "\n".join(told)


def kinds(schema: dict[str, Any]) -> set[str]:
    """The JSON types that an argument may have."""
    options: list[dict[str, Any]] = schema.get("anyOf", [schema])
    return {str(option.get("type")) for option in options}


def option(name: str) -> str:
    """An argument's name as it is written in a shell."""
    return "--" + name.replace("_", "-")


def shell_lines(text: str, artifacts: Iterable[str], state_dir: Path, arguments: Iterable[str]) -> list[str]:
    """What a shell needs besides a result's text.

    Args:
        text: where arguments may be named as MCP clients write them.
        artifacts: URIs of the result's artifacts.
        state_dir: where they are kept.
        arguments: names of all tools' arguments.
    """
    told = [f"File: {path}" for uri in artifacts if (path := _path(uri, state_dir)) is not None]
    known = set(arguments)
    named = next((name for name in NAMED.findall(text) if name in known), None)
    if named is not None:
        told.append(f"On the command line {named}=X is {option(named)} X.")
    return told


def _path(uri: str, state_dir: Path) -> Path | None:
    digest, _, name = uri.removeprefix(SCHEME).partition("/")
    return ArtifactStore(state_dir).find(digest, name) if uri.startswith(SCHEME) else None


def _option(name: str, schema: dict[str, Any], *, required: bool) -> list[str]:
    description = str(schema.get("description", ""))
    default = schema.get("default")
    if required:
        note = "required"
    elif SAID.search(description):
        note = ""
    else:
        note = f"default: {'none' if default is None else default}"
    head = f"  {option(name)} {_value(schema)}" + (f"  ({note})" if note else "")
    width = min(shutil.get_terminal_size().columns, WIDTH_LIMIT)
    return [head, *textwrap.wrap(description, width, initial_indent=INDENT, subsequent_indent=INDENT)]


def _value(schema: dict[str, Any]) -> str:
    for each in schema.get("anyOf", [schema]):
        if "enum" in each:
            return "|".join(map(str, each["enum"]))
        if (kind := KINDS.get(str(each.get("type")))) is not None:
            return kind
    return "VALUE"
