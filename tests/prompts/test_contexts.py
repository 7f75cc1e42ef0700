"""The arguments of the prompts, as clients send them: strings, often empty ones."""

import pytest
from pydantic import ValidationError

from tritonforge.prompts.contexts import OptimizeKernel, RemediateFailure
from tritonforge.prompts.render import PROMPTS, PromptDescription

every_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)


@every_prompt
def test_every_argument_is_described(prompt: PromptDescription) -> None:
    for name, field in prompt.context.model_fields.items():
        assert field.description, f"{prompt.name}.{name}"


@every_prompt
def test_unknown_arguments_are_rejected(prompt: PromptDescription) -> None:
    arguments = dict.fromkeys(prompt.context.model_fields, "8")
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        prompt.context.model_validate({**arguments, "kernle": "k.py"})


@every_prompt
def test_every_argument_can_be_given_as_a_string(prompt: PromptDescription) -> None:
    prompt.context.model_validate(dict.fromkeys(prompt.context.model_fields, "8"))


@every_prompt
def test_required_arguments_come_first_and_must_not_be_blank(prompt: PromptDescription) -> None:
    required = [field.is_required() for field in prompt.context.model_fields.values()]
    assert required[0]
    arguments = dict.fromkeys(prompt.context.model_fields, "8")
    with pytest.raises(ValidationError, match="kernel"):
        prompt.context.model_validate({**arguments, "kernel": "  "})


def test_an_optional_argument_left_blank_is_absent() -> None:
    context = OptimizeKernel.model_validate({"kernel": "k.py", "task": "", "goal": " \n"})
    assert context == OptimizeKernel(kernel="k.py")


def test_the_defaults_are_the_documented_ones() -> None:
    context = OptimizeKernel(kernel="k.py")
    assert (context.task, context.target, context.goal, context.rounds) == (None, "h100", None, 8)


@pytest.mark.parametrize("rounds", ["0", "101", "many"])
def test_rounds_that_make_no_sense_are_rejected(rounds: str) -> None:
    with pytest.raises(ValidationError, match="rounds"):
        OptimizeKernel.model_validate({"kernel": "k.py", "rounds": rounds})


def test_contexts_are_immutable() -> None:
    context = RemediateFailure(kernel="k.py", problem="boom")
    with pytest.raises(ValidationError, match="frozen"):
        context.kernel = "other.py"  # pyright: ignore[reportAttributeAccessIssue]  (what the test is about)
