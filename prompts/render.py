"""Typed context in, Markdown out."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .contexts import Context
from .markdown import literal
from .roles import PROMPTS, PromptDescription
from .run_facts import RunFacts
from .run_words import facts

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES: Final = Path(__file__).parent / "templates"
CUT: Final = "\n[cut]\n"
FEW: Final = 3
"""Attempts that are still named where there is no room for more."""

_PROMPT_OF: Final = {prompt.context: prompt for prompt in PROMPTS}


def render(context: Context, run: RunFacts | None = None, limit: int | None = None) -> str:
    """The prompt for this context, as Markdown; values from elsewhere appear in it literally.

    Args:
        context: the arguments.
        run: what the run knows; it also gives arguments that were left out.
        limit: characters at most. What the agent can best ask for again is left out first: sources, then advice.
    """
    prompt = _PROMPT_OF[type(context)]
    text = _rendered(prompt, context, run)
    if limit is None:
        return text
    for shorter in _SHORTER:
        if run is None or len(text) <= limit:
            break
        run = shorter(run)
        text = _rendered(prompt, context, run)
    return text if len(text) <= limit else text[: limit - len(CUT)] + CUT


def generic(prompt: PromptDescription) -> str:
    """A role's text where nothing is given, for skills and playbooks."""
    return render(prompt.context())


def _rendered(prompt: PromptDescription, context: Context, run: RunFacts | None) -> str:
    # Not `model_dump`: a template sees the field's own value.
    values: dict[str, object] = {name: getattr(context, name) for name in type(context).model_fields}
    if run is not None:
        values |= {name: fill(run) for name, fill in prompt.fills.items() if values[name] is None}
    return environment().get_template(prompt.template).render(values, run=run)


def _without_source(run: RunFacts) -> RunFacts:
    return run.model_copy(update={"focus": run.focus.model_copy(update={"source": None})})


def _without_measurements(run: RunFacts) -> RunFacts:
    return run.model_copy(update={"focus": run.focus.model_copy(update={"launches": [], "profiles": []})})


def _with_few(run: RunFacts) -> RunFacts:
    focus = run.focus.model_copy(update={"reasons": run.focus.reasons[:1], "hints": run.focus.hints[:1]})
    omitted = run.tried_omitted + len(run.tried) - len(run.tried[-FEW:])
    return run.model_copy(
        update={"tried": run.tried[-FEW:], "tried_omitted": omitted, "lessons": run.lessons[:1], "focus": focus}
    )


_SHORTER: Final[Sequence[Callable[[RunFacts], RunFacts]]] = (_without_source, _without_measurements, _with_few)


@cache
def environment() -> "Environment":
    """What reads the templates."""
    # Imported at first use: the server has to be ready before anyone asks for a prompt.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., str]] = {"literal": literal, "facts": facts}
    environment.filters.update(filters)
    return environment
