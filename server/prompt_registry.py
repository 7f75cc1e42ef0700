"""Registers the prompts of the prompts layer with the server."""

from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts.base import Prompt, PromptArgument
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import ValidationError

from ..prompts.render import PROMPTS, PromptDescription, render


def register(server: MCPServer[Any]) -> None:
    """Add every prompt; its arguments are the fields of its context."""
    for description in PROMPTS:
        server.add_prompt(_prompt(description))


def _prompt(description: PromptDescription) -> Prompt:
    def fill(**arguments: str) -> str:
        try:
            return render(description.context.model_validate(arguments))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            allowed = ", ".join(description.context.model_fields)
            raise MCPError(
                INVALID_PARAMS, f"{description.name}: {where}: {first['msg']}. Its arguments are: {allowed}."
            ) from None

    return Prompt(
        name=description.name,
        title=description.title,
        description=description.description,
        arguments=[
            PromptArgument(name=name, description=field.description, required=field.is_required())
            for name, field in description.context.model_fields.items()
        ],
        fn=fill,
        context_kwarg=None,
    )
