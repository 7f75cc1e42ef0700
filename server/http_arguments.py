"""What `serve` takes for HTTP, and what of it is refused before anything listens."""

import argparse
import re
from pathlib import Path
from typing import Final, NamedTuple

from .number_words import whole

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""Hosts that only this machine reaches; requests are held against them, so that no web page can pose as one."""
HOST: Final = "127.0.0.1"
PORT: Final = 8000
PATH: Final = "/mcp"
TOKEN_CHARACTERS: Final = 16
"""At least: shorter ones are guessed."""
_PATH: Final = re.compile(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._~-]+)+")
"""No ``.`` and ``..`` among its segments: clients take them out before they ask, and would never meet it."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""What RFC 6750 allows in a bearer token."""


class Unusable(ValueError):
    """Options that don't go together, or a token that can't be used; said to whoever starts the server."""


class Endpoint(NamedTuple):
    """Where to serve, and to whom."""

    host: str
    port: int
    """0: any that is free."""
    path: str
    token: str | None
    """None: whoever reaches the port is served."""

    @property
    def is_local(self) -> bool:
        return self.host in LOCAL


def add_http(serve: argparse.ArgumentParser) -> None:
    """Add the options to `serve`."""
    serve.add_argument("--http", action="store_true", help="serve MCP over streamable HTTP instead, to many clients")
    serve.add_argument("--host", help=f"address to listen on; any but a local one needs --token-file (default: {HOST})")
    serve.add_argument("--port", metavar="N", type=whole(0, 65_535), help=f"0: any that is free (default: {PORT})")
    serve.add_argument("--path", help=f"of the endpoint (default: {PATH})")
    serve.add_argument(
        "--token-file", metavar="FILE", help="clients must send its one line as Authorization: Bearer ..."
    )


def endpoint(given: argparse.Namespace) -> Endpoint | None:
    """What was asked for; None: standard input and output.

    Raises:
        Unusable: that can't be served.
    """
    named = {name: getattr(given, name, None) for name in ("host", "port", "path", "token_file")}
    if not getattr(given, "http", False):
        stray = [f"--{name.replace('_', '-')}" for name, value in named.items() if value is not None]
        if stray:
            raise Unusable(f"{', '.join(stray)}: only with --http")
        return None
    host, path, file = named["host"] or HOST, named["path"] or PATH, named["token_file"]
    if not _PATH.fullmatch(path):
        raise Unusable(f"--path {path!r} is no path like {PATH}")
    if file is None and host not in LOCAL:
        raise Unusable(
            f"--host {host} is reached from other machines, and who calls a tool runs code on this one: give "
            f"--token-file FILE too, or listen on {HOST} and forward the port (ssh -L {PORT}:{HOST}:{PORT} ...)"
        )
    port = PORT if named["port"] is None else named["port"]
    return Endpoint(host, port, path, None if file is None else read_token(Path(file)))


def read_token(file: Path) -> str:
    """The token of a file.

    Raises:
        Unusable: there is none that could be sent, or it is too short.
    """
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise Unusable(f"--token-file {file} can't be read: {why}") from None
    if not _TOKEN.fullmatch(token) or len(token) < TOKEN_CHARACTERS:
        raise Unusable(
            f"--token-file {file} has to hold one line of at least {TOKEN_CHARACTERS} letters, digits or ._~+/=-, such "
            "as `openssl rand -hex 32` writes"
        )
    return token
