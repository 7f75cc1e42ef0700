"""get_playbook as an MCP tool: its parameters, and which function answers."""

from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult
from pydantic import Field

from .results import respond
from .runs.store import Store
from .tools import get_playbook

Role = Annotated[
    str | None,
    Field(
        description="One of optimize_kernel, generate_tests, propose_candidate, remediate_failure, judge_candidate, "
        "refine_candidate, parametrize. Default: none, the roles are listed."
    ),
]
FilledFrom = Annotated[
    str | None,
    Field(description="Id of a run, as get_run tells it: what it knows fills the text. Default: none."),
]


def register(server: MCPServer[Any], store: Store, remark: str = "") -> None:
    """Add the tool.

    Args:
        server: what it is added to.
        store: where the runs are kept that fill a playbook.
        remark: the end of each text.
    """

    @server.tool(
        get_playbook.NAME,
        title=get_playbook.TITLE,
        description=get_playbook.DESCRIPTION,
        annotations=get_playbook.ANNOTATIONS,
    )
    async def _get_playbook(  # pyright: ignore[reportUnusedFunction]
        role: Role = None, run_id: FilledFrom = None
    ) -> Annotated[CallToolResult, get_playbook.PlaybookResult]:
        return await respond(
            get_playbook.PlaybookResult,
            lambda: get_playbook.get_playbook(store, role=role, run_id=run_id, remark=remark),
        )
