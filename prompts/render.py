"""Typed context in, Markdown out; and the static list of prompts that the server registers."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .contexts import (
    Context,
    GenerateTests,
    JudgeCandidate,
    OptimizeKernel,
    Parametrize,
    RefineCandidate,
    RemediateFailure,
)

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


class PromptDescription(NamedTuple):
    """One prompt as a client lists it; its arguments are the fields of `context`."""

    name: str
    title: str
    description: str
    context: type[Context]
    template: str
    """File name within `TEMPLATES`."""


PROMPTS = (
    PromptDescription(
        name="optimize_kernel",
        title="Optimize a kernel",
        description="Make a Triton kernel faster, one measured idea at a time, until the evidence says stop.",
        context=OptimizeKernel,
        template="optimize_kernel.md",
    ),
    PromptDescription(
        name="generate_tests",
        title="Generate tests",
        description="Write the task file that says how a kernel is called, checked and timed.",
        context=GenerateTests,
        template="generate_tests.md",
    ),
    PromptDescription(
        name="remediate_failure",
        title="Remediate a failure",
        description="Repair a kernel that failed to compile, launch, finish or give the right numbers.",
        context=RemediateFailure,
        template="remediate_failure.md",
    ),
    PromptDescription(
        name="judge_candidate",
        title="Judge a candidate",
        description="Decide on evidence whether a candidate replaces the kernel that it competes with.",
        context=JudgeCandidate,
        template="judge_candidate.md",
    ),
    PromptDescription(
        name="refine_candidate",
        title="Refine a candidate",
        description="Choose the next edit from compile facts and a profile, with a prediction that can fail.",
        context=RefineCandidate,
        template="refine_candidate.md",
    ),
    PromptDescription(
        name="parametrize",
        title="Expose a kernel's knobs",
        description="Turn a kernel's numbers into constexpr parameters at the same code, for tune_kernel to search.",
        context=Parametrize,
        template="parametrize.md",
    ),
)

_TEMPLATE_OF = {prompt.context: prompt.template for prompt in PROMPTS}


def render(context: Context) -> str:
    """The prompt for this context, as Markdown; values given by the user appear in it literally."""
    # Not `model_dump`: a template sees the field's own value.
    values = {name: getattr(context, name) for name in type(context).model_fields}
    return _environment().get_template(_TEMPLATE_OF[type(context)]).render(values)


def literal(value: str, language: str = "") -> str:
    """`value` as Markdown code that it can't break out of: a code span, or a fenced block for many lines.

    The delimiter is longer than any run of backticks in the value.
    """
    longest = max((len(run) for run in re.findall("`+", value)), default=0)
    body = value.strip("\r\n")
    if len(body.splitlines()) > 1:
        fence = "`" * max(longest + 1, 3)
        return f"\n\n{fence}{language}\n{body}\n{fence}\n"
    delimiter = "`" * (longest + 1)
    body = body.strip()
    # A space keeps the value's own backticks apart from the delimiter; Markdown strips it again.
    padding = " " if body.startswith("`") or body.endswith("`") else ""
    return f"{delimiter}{padding}{body}{padding}{delimiter}"


@cache
def _environment() -> "Environment":
    # Imported at first use: the server has to be ready before anyone asks for a prompt.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["literal"] = literal
    return environment
