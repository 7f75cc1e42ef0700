"""get_playbook: the texts of the prompts, for clients that have none."""

import difflib
from typing import Final

import anyio
from mcp_types import ToolAnnotations

from ...prompts.render import render
from ...prompts.roles import PROMPTS, ROLES
from ...sandbox.errors import rejected
from ...sandbox.outcome import Kind
from ...sandbox.wire import Wire
from ..prompt_context import facts_of
from ..results import Result
from ..runs.store import Store

NAME: Final = "get_playbook"
TITLE: Final = "How to do a part of the work"
DESCRIPTION: Final = """\
Tells how to play a role of the optimization loop: the same texts as the server's prompts, for agents whose client has \
none. Without role: the roles, a line each (optimize_kernel for the whole loop, generate_tests, propose_candidate, \
remediate_failure, judge_candidate, refine_candidate, parametrize). With role: its text: what to do in which order, \
what must stay true, the form of the answer. With run_id too: filled with what that run knows (device, source, \
findings, hints, what was tried, lessons, budget). Read it at the beginning of a role. Measures nothing; under 1 s."""
ANNOTATIONS: Final = ToolAnnotations(
    title=TITLE,
    read_only_hint=True,
    idempotent_hint=True,
    destructive_hint=False,
    open_world_hint=False,
)
TEXT_CHARACTERS: Final = 8_000
"""Of a playbook: a client cuts results at about 10,000, in which each line break counts twice."""
SHOWN_CHARACTERS: Final = 60


class RoleLine(Wire):
    """A role in one line."""

    role: str
    description: str


class PlaybookResult(Result):
    """What `get_playbook` returns."""

    role: str | None = None
    run_id: str | None = None
    roles: list[RoleLine] = []
    """Without role: all there are."""
    text: str | None = None
    """Of the role, as Markdown."""

    def in_words(self) -> str:
        lines = [f"- {line.role}: {line.description}" for line in self.roles]
        return "\n".join([self.summary, *lines, *([] if self.text is None else ["", self.text])])


async def get_playbook(store: Store, *, role: str | None, run_id: str | None, remark: str = "") -> PlaybookResult:
    """The text of a role, with a remark at its end, or the roles.

    Raises:
        Stopped: ``rejected``: there is no such role or run.
    """
    if role is None:
        return PlaybookResult(
            kind=Kind.OK,
            summary=f"{len(PROMPTS)} roles.",
            next_step="Call get_playbook(role='optimize_kernel') for the whole loop.",
            roles=[RoleLine(role=prompt.name, description=prompt.description) for prompt in PROMPTS],
        )
    name = role.strip().lower().replace("-", "_")
    if name not in ROLES:
        near = difflib.get_close_matches(name[:SHOWN_CHARACTERS], list(ROLES), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise rejected(
            "playbook",
            f"there is no role {role[:SHOWN_CHARACTERS]!r}.{hint} The roles are: {', '.join(ROLES)}",
            fix=f"Call get_playbook(role='{near[0] if near else 'optimize_kernel'}').",
        )
    prompt = ROLES[name]
    if run_id is None or not run_id.strip():
        text, about = render(prompt.context()), ""
    else:
        run_id = run_id.strip()
        facts = await anyio.to_thread.run_sync(facts_of, store, run_id, prompt.focus)
        text = render(prompt.context.model_validate({"run_id": run_id}), facts, TEXT_CHARACTERS - len(remark))
        about = f", for run {run_id}"
    return PlaybookResult(
        kind=Kind.OK,
        summary=f"The role {name}{about}.",
        next_step="Do as the text says; a role that it names has its own: get_playbook(role=...).",
        role=name,
        run_id=run_id or None,
        text=text + remark,
    )
