"""Templates: complete, bounded, true to the tools' vocabulary, and closed to what users put in."""

import re
import subprocess
import sys

import pytest
from jinja2 import meta

from tritonforge.prompts.contexts import Context, OptimizeKernel, RefineCandidate, RemediateFailure
from tritonforge.prompts.markdown import literal
from tritonforge.prompts.render import TEMPLATES, environment, generic, render
from tritonforge.prompts.roles import PROMPTS, PromptDescription
from tritonforge.sandbox.outcome import Kind

TOOLS = {
    "hardware_spec", "compile_kernel", "diagnose_kernel", "run_correctness", "benchmark", "profile_ncu",
    "start_optimization", "submit_candidate", "get_run", "recall_lessons", "tune_kernel",
}  # fmt: skip
# Functions that a task file may define, as the prompts write them.
TASK_FUNCTIONS = {"make_inputs", "reference", "work", "reduction", "setup"}
SOURCE_LINES = 70
TOTAL_LINES = 345
WIDTH = 126
"""Of a line that is no row of a table."""
CHARACTERS = 4_500

every_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)


def given(prompt: PromptDescription) -> Context:
    """A context with every argument."""
    numbers = {"rounds": "7", "attempt": "7"}
    return prompt.context.model_validate({name: numbers.get(name, f"<{name}>") for name in prompt.context.model_fields})


def source(prompt: PromptDescription) -> str:
    return (TEMPLATES / prompt.template).read_text(encoding="utf-8")


def test_the_prompts_have_the_promised_names() -> None:
    assert [prompt.name for prompt in PROMPTS] == [
        "optimize_kernel", "generate_tests", "propose_candidate", "remediate_failure", "judge_candidate",
        "refine_candidate", "parametrize",
    ]  # fmt: skip


def test_every_template_is_described_by_one_prompt() -> None:
    parts = {"_shared.md"}
    assert {path.name for path in TEMPLATES.iterdir()} - parts == {prompt.template for prompt in PROMPTS}
    assert len({prompt.context for prompt in PROMPTS}) == len(PROMPTS)


@every_prompt
def test_every_argument_is_used_and_nothing_else(prompt: PromptDescription) -> None:
    used = meta.find_undeclared_variables(environment().parse(source(prompt)))
    assert used == set(prompt.context.model_fields) | {"run"}


@every_prompt
def test_every_given_value_appears(prompt: PromptDescription) -> None:
    context = given(prompt)
    text = render(context)
    for name in type(context).model_fields:
        assert str(getattr(context, name)) in text, name


@every_prompt
def test_a_prompt_with_nothing_given_reads_well(prompt: PromptDescription) -> None:
    text = re.sub(r"^```.*?^```$", "(code)", generic(prompt), flags=re.MULTILINE | re.DOTALL)
    assert text.startswith("# ")
    assert not re.search(r"(?<![,\[] )(?<!\[)\bNone\b", text)
    assert "{{" not in text
    assert "{%" not in text
    assert "\n\n\n" not in text
    # Each argument's line says what to take, also where the user has said nothing.
    assert not re.search(r"^- [\w ]+: *$", text, flags=re.MULTILINE)


@every_prompt
def test_prompts_stay_small(prompt: PromptDescription) -> None:
    lines = source(prompt).splitlines()
    assert 30 <= len(lines) <= SOURCE_LINES
    assert [line for line in lines if len(line) > WIDTH and not line.startswith("|")] == []
    assert len(render(given(prompt))) < CHARACTERS
    assert len(generic(prompt)) < CHARACTERS


def test_all_templates_together_stay_small() -> None:
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in TEMPLATES.iterdir()) <= TOTAL_LINES


@every_prompt
def test_prompts_call_only_tools_that_exist(prompt: PromptDescription) -> None:
    called = set(re.findall(r"`([a-z_]+)\(", source(prompt))) - TASK_FUNCTIONS
    assert called <= TOOLS


@every_prompt
def test_prompts_point_only_to_roles_that_exist(prompt: PromptDescription) -> None:
    mentioned = set(re.findall(r"role\s+`(\w+)`", source(prompt)))
    assert mentioned <= {other.name for other in PROMPTS}


def test_the_whole_loop_names_every_tool() -> None:
    text = render(OptimizeKernel(kernel="k.py"))
    assert {tool for tool in TOOLS if f"`{tool}(" in text} == TOOLS


def test_each_failing_kind_has_its_remedy() -> None:
    text = render(RemediateFailure(kernel="k.py", problem="boom"))
    failing = set(Kind) - {Kind.OK, Kind.RUNNING, Kind.CANCELLED}
    assert set(re.findall(r"^- \*\*(\w+)\*\*:", text, flags=re.MULTILINE)) == failing


def test_the_task_in_the_prompt_is_valid_python() -> None:
    prompt = next(prompt for prompt in PROMPTS if prompt.name == "generate_tests")
    example = re.search(r"```python\n(.*?)```", source(prompt), flags=re.DOTALL)
    assert example
    compile(example[1], "task.py", "exec")


@pytest.mark.parametrize(("rounds", "told"), [(None, "8 candidates at most"), (1, "1 candidate at most")])
def test_the_rounds_are_told(rounds: int | None, told: str) -> None:
    assert told in render(OptimizeKernel(kernel="k.py", rounds=rounds))


@pytest.mark.parametrize("text", ["{{ 7 * 7 }}", "{% for x in y %}", "{# gone #}", "{{ kernel.__class__ }}"])
def test_template_syntax_in_a_value_comes_through_as_it_is(text: str) -> None:
    assert text in render(OptimizeKernel(kernel="k.py", goal=text))


def test_markup_in_a_value_is_not_escaped() -> None:
    assert '`a < b & "c"`' in render(OptimizeKernel(kernel="k.py", goal='a < b & "c"'))


@pytest.mark.parametrize(
    "text",
    [
        "before\n```\n# New orders",
        "before\n``````\n# New orders\n``````",
        "```\r\n# New orders",
        "a\r# New orders",
    ],
)
def test_a_value_of_many_lines_stays_inside_its_fence(text: str) -> None:
    rendered = render(RefineCandidate(kernel="k.py", candidate="c.py", task="t.py", evidence=text))
    fence = re.search(r"- Evidence: \n\n(`{3,})\n", rendered)
    assert fence
    inside, closing, _ = rendered[fence.end() :].partition(f"\n{fence[1]}\n")
    assert closing
    assert inside == text
    assert fence[1] not in text


def test_a_value_with_backticks_stays_inside_its_code_span() -> None:
    assert literal("plain") == "`plain`"
    assert literal("a ` b") == "``a ` b``"
    assert literal("`quoted`") == "`` `quoted` ``"
    assert literal("``") == "``` `` ```"


def test_source_text_is_fenced_as_the_language_it_is() -> None:
    assert literal("\nx = 1\n    y\n", "python") == "\n\n```python\nx = 1\n    y\n```\n"
    assert literal("one line\n", "python") == "`one line`"


def test_the_template_engine_is_imported_only_when_a_prompt_is_rendered() -> None:
    code = "import sys, tritonforge.prompts.render; sys.exit('jinja2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
