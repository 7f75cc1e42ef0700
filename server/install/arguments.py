"""What `install` and `uninstall` take."""

import argparse
import re
from typing import Any, Final, Protocol

CLIENT_NAMES: Final = ("claude", "codex", "gemini", "vscode", "cursor")
DEFAULT_NAME: Final = "tritonforge"


class Commands(Protocol):
    """What argparse adds subcommands to."""

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser: ...


def add_commands(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `install` and `uninstall` to the command line."""
    for name, text, project in (
        (
            "install",
            "add this server to an MCP client's configuration, with these options and with time-outs that fit",
            "write the configuration of the project in this folder, not that of its user",
        ),
        ("uninstall", "take this server out of an MCP client's configuration", "out of that of this folder's project"),
    ):
        parser = commands.add_parser(
            name, parents=[shared], help=text, description=f"{text.capitalize()}.", allow_abbrev=False
        )
        parser.add_argument("client", choices=CLIENT_NAMES)
        parser.add_argument("--project", action="store_true", help=project)
        parser.add_argument("--dry-run", action="store_true", help="print what would change, and change nothing")
        parser.add_argument(
            "--name",
            metavar="NAME",
            type=_server_name,
            default=DEFAULT_NAME,
            help="the server's name in that client (default: tritonforge)",
        )


def _server_name(word: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", word):
        raise argparse.ArgumentTypeError(f"{word!r}: up to 40 letters, digits, - and _ make a name")
    return word
