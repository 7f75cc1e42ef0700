"""The arguments of the prompts, as clients send them: strings, often empty ones."""

import pytest
from pydantic import ValidationError

from tritonforge.prompts.contexts import OptimizeKernel, RefineCandidate, RemediateFailure
from tritonforge.prompts.roles import PROMPTS, PromptDescription

every_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)


@every_prompt
def test_every_argument_is_described(prompt: PromptDescription) -> None:
    for name, field in prompt.context.model_fields.items():
        assert field.description, f"{prompt.name}.{name}"


@every_prompt
def test_every_role_can_be_filled_from_a_run_and_from_nothing(prompt: PromptDescription) -> None:
    assert "run_id" in prompt.context.model_fields
    assert not any(field.is_required() for field in prompt.context.model_fields.values())
    assert prompt.context().run_id is None


@every_prompt
def test_unknown_arguments_are_rejected(prompt: PromptDescription) -> None:
    arguments = dict.fromkeys(prompt.context.model_fields, "8")
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        prompt.context.model_validate({**arguments, "kernle": "k.py"})


@every_prompt
def test_every_argument_can_be_given_as_a_string(prompt: PromptDescription) -> None:
    prompt.context.model_validate(dict.fromkeys(prompt.context.model_fields, "8"))


@every_prompt
def test_an_argument_left_blank_is_absent(prompt: PromptDescription) -> None:
    blank = dict.fromkeys(prompt.context.model_fields, " \n")
    assert prompt.context.model_validate(blank) == prompt.context()


@pytest.mark.parametrize("rounds", ["0", "101", "many"])
def test_rounds_that_make_no_sense_are_rejected(rounds: str) -> None:
    with pytest.raises(ValidationError, match="rounds"):
        OptimizeKernel.model_validate({"kernel": "k.py", "rounds": rounds})


@pytest.mark.parametrize("attempt", ["-1", "first", "99999999999"])
def test_attempts_that_no_run_has_are_rejected(attempt: str) -> None:
    with pytest.raises(ValidationError, match="attempt"):
        RefineCandidate.model_validate({"run_id": "r", "attempt": attempt})


def test_contexts_are_immutable() -> None:
    context = RemediateFailure(kernel="k.py", problem="boom")
    with pytest.raises(ValidationError, match="frozen"):
        context.kernel = "other.py"  # pyright: ignore[reportAttributeAccessIssue]  (what the test is about)
