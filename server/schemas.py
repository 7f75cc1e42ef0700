"""What is told of the tools, without what the SDK adds to their schemas and nobody reads: every client is sent it."""

from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp_types import ListToolsResult, PaginatedRequestParams, Tool

from .lowlevel import answer

Schema = dict[str, Any]

TITLES: Final = frozenset({"title"})
NAMES: Final = frozenset({"properties", "$defs"})
"""Keywords whose keys are names, which may well be those of keywords."""
VALUES: Final = frozenset({"default", "const", "enum", "examples"})
"""Keywords that hold no schemas."""


def register(server: MCPServer[Any]) -> None:
    """Tell of the server's tools in short; all of them have to be there when a client first asks."""
    told: list[Tool] = []

    async def list_tools(context: ServerRequestContext[Any, Any], params: PaginatedRequestParams) -> ListToolsResult:
        if not told:
            told.extend([lean(tool) for tool in await server.list_tools()])
        return ListToolsResult(tools=told)

    answer(server, "tools/list", PaginatedRequestParams, list_tools)


def lean(tool: Tool) -> Tool:
    """A tool with smaller schemas that say the same."""
    update = {"input_schema": shorter(tool.input_schema, TITLES)}
    if tool.output_schema is not None:
        # What a result has by default says nothing of what it has.
        update["output_schema"] = shorter(tool.output_schema, TITLES | {"default"}, types_together=True)
    return tool.model_copy(update=update)


def shorter(schema: Schema, dropped: frozenset[str], *, types_together: bool = False) -> Schema:
    """A schema that takes the same values.

    Args:
        schema: of JSON Schema 2020-12.
        dropped: annotations that are left out.
        types_together: write ``anyOf`` of mere types as one list of types.
    """

    def each(value: Any) -> Any:
        match value:
            case dict():
                return shorter(cast(Schema, value), dropped, types_together=types_together)
            case list():
                return [each(one) for one in cast(list[Any], value)]
            case _:
                return value

    made: Schema = {}
    for keyword, value in schema.items():
        if keyword in VALUES:
            made[keyword] = value
        elif keyword in NAMES:
            made[keyword] = {name: each(one) for name, one in value.items()}
        else:
            made[keyword] = each(value)
    made = {keyword: value for keyword, value in made.items() if keyword not in dropped}
    choices: list[Schema] = made.get("anyOf", [])
    if types_together and choices and all(choice.keys() == {"type"} for choice in choices):
        del made["anyOf"]
        made["type"] = [choice["type"] for choice in choices]
    return made
