"""Registers the prompts of the prompts layer with the server, and the playbook and completions that belong to them."""

from typing import Any, Final

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts.base import Prompt, PromptArgument
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import ValidationError

from ..prompts.contexts import Context
from ..prompts.render import render
from ..prompts.roles import PROMPTS, PromptDescription
from ..sandbox.errors import Stopped, rejected
from . import completions, playbook_tools
from .prompt_context import facts_of
from .runs.store import Store

PROMPT_CHARACTERS: Final = 24_000
"""Of a prompt that a run fills; what a caller puts in is not cut."""


def register(server: MCPServer[Any], store: Store, remark: str = "") -> None:
    """Add every prompt; its arguments are the fields of its context.

    Args:
        server: what they are added to.
        store: where the runs are kept that fill them.
        remark: the end of each text.
    """
    for description in PROMPTS:
        server.add_prompt(_prompt(description, store, remark))
    playbook_tools.register(server, store, remark)
    completions.register(server, store)


def filled(description: PromptDescription, store: Store, context: Context, limit: int) -> str:
    """A role's text, with what its run knows.

    Args:
        description: the role.
        store: where runs are kept.
        context: the arguments.
        limit: characters at most, where a run is given.

    Raises:
        Stopped: ``rejected``: there is no such run or attempt; ``unavailable``: the store can't be read.
    """
    attempt: int | None = getattr(context, "attempt", None)
    if context.run_id is None:
        if attempt is not None:
            raise rejected(
                "run", f"attempt {attempt} is one of a run, and no run_id is given",
                fix="Give run_id too; get_run() lists the runs.",
            )  # fmt: skip
        return render(context)
    return render(context, facts_of(store, context.run_id.strip(), description.focus, attempt), limit)


def _prompt(description: PromptDescription, store: Store, remark: str) -> Prompt:
    # Called in a thread, as the SDK does with plain functions: it reads the store.
    def fill(**arguments: str) -> str:
        try:
            context = description.context.model_validate(arguments)
            limit = PROMPT_CHARACTERS + sum(len(value) for value in arguments.values())
            return filled(description, store, context, limit) + remark
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            allowed = ", ".join(description.context.model_fields)
            raise MCPError(
                INVALID_PARAMS, f"{description.name}: {where}: {first['msg']}. Its arguments are: {allowed}."
            ) from None
        except Stopped as stopped:
            problem = stopped.problem
            fix = f" {problem.likely_fix}" if problem.likely_fix else ""
            raise MCPError(INVALID_PARAMS, f"{description.name}: {problem.message}.{fix}"[:500]) from None

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
