"""Tools that this server goes without: taken away, and told to whoever reads texts that name them."""

import difflib
from collections.abc import Sequence
from typing import Any

from mcp.server.mcpserver import MCPServer

from .http_arguments import Unusable
from .lowlevel import tool_names


def take_away(server: MCPServer[Any], without: Sequence[str]) -> None:
    """Offer some tools no more.

    Raises:
        Unusable: there is no such tool.
    """
    names = tool_names(server)
    for name in without:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise Unusable(f"--without {name[:60]}: there is no such tool.{hint} The tools are: {', '.join(names)}")
        server.remove_tool(name)


def told(without: Sequence[str]) -> str:
    """The end of a text that may name them; empty where all are there."""
    if not without:
        return ""
    return f"\n\nSwitched off: {', '.join(without)}. Where a text or a result names one of these, go on without it.\n"
