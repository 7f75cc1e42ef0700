"""Links that open an editor and offer it this server."""

import base64
import json
from urllib.parse import quote

from .clients import CLIENTS, Server

CURSOR = "https://cursor.com/en/install-mcp"
VSCODE = "https://vscode.dev/redirect/mcp/install"
"""Pages that hand over to the editor; sites that show a README allow no links to ``cursor:`` and ``vscode:``."""


def cursor_link(name: str, server: Server) -> str:
    """Offers the server to Cursor, as its entry in ``mcp.json``."""
    entry = json.dumps(CLIENTS["cursor"].complete(server), separators=(",", ":"))
    return f"{CURSOR}?name={quote(name, safe='')}&config={quote(base64.b64encode(entry.encode()), safe='')}"


def vscode_link(name: str, server: Server) -> str:
    """Offers the server to VS Code, as its entry in ``mcp.json``."""
    entry = json.dumps(CLIENTS["vscode"].complete(server), separators=(",", ":"))
    return f"{VSCODE}?name={quote(name, safe='')}&config={quote(entry, safe='')}"
