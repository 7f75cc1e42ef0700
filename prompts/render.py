"""Typed context in, Markdown out."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .contexts import Context
from .roles import PROMPTS, PromptDescription
from .run_facts import Ratio, RunFacts

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


def literal(value: str, language: str = "") -> str:
    """`value` as Markdown code that it can't break out of: a code span, or a fenced block for many lines."""
    body = value.strip("\r\n")
    if len(body.splitlines()) > 1:
        return f"\n\n{fenced(body, language)}\n"
    delimiter = "`" * (_longest_run(value) + 1)
    body = body.strip()
    # A space keeps the value's own backticks apart from the delimiter; Markdown strips it again.
    padding = " " if body.startswith("`") or body.endswith("`") else ""
    return f"{delimiter}{padding}{body}{padding}{delimiter}"


def fenced(value: str, language: str = "") -> str:
    """`value` as a fenced block whose fence is longer than any run of backticks in it."""
    fence = "`" * max(_longest_run(value) + 1, 3)
    body = value.strip("\r\n")
    return f"{fence}{language}\n{body}\n{fence}"


def _longest_run(value: str) -> int:
    """Of backticks."""
    return max((len(run) for run in re.findall("`+", value)), default=0)


def _ratio(value: Ratio) -> str:
    return f"{value.middle:.4g}x [{value.low:.4g}, {value.high:.4g}]"


def _attempt(number: int) -> str:
    return "the baseline" if number == 0 else f"attempt {number}"


def _known(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


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
    environment.filters.update(literal=literal, fenced=fenced, ratio=_ratio, attempt=_attempt, known=_known)
    return environment
