"""Prompts and playbooks over MCP, filled from runs of the store, in both protocol eras; nothing hidden is in them."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from tests.profiling.optimization.made_up import (
    case_time,
    case_timing,
    confirmation,
    diagnosed,
    evidence,
    finding,
    launch,
    problem,
    timing,
)
from tests.server.conftest import RESULT_LIMIT, content_of, fits, text_of, tools_of
from tests.server.runs.in_store import lesson
from tests.server.runs.kept import GPU, Kept, store_in
from tritonforge.profiling.optimization.model import Budget, Evidence, Hint
from tritonforge.prompts.render import generic
from tritonforge.prompts.roles import PROMPTS, ROLES
from tritonforge.sandbox.outcome import Kind
from tritonforge.server.app import build_server
from tritonforge.server.prompt_context import SOURCE_CHARACTERS, TRIED
from tritonforge.server.prompt_registry import PROMPT_CHARACTERS
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

every_role = pytest.mark.parametrize("role", list(ROLES))

HIDDEN: Final = "secret-neighbour"
SECRETS: Final = (HIDDEN, "718281", "828459", "31337", "2.7182818", "4.6692")
"""Name and sizes of a hidden case, its times, what the reference returns, and how far a result was off."""
TASK: Final = """\
ENTRY = "entry"
CASES = {"a": {"n": 8}}
HIDDEN_CASES = {"secret-neighbour": {"n": 718281, "m": 828459}}


def reference(x):
    return 2.7182818
"""


@pytest.fixture(params=["legacy", "auto"])
async def client(request: pytest.FixtureRequest, settings: Settings) -> AsyncGenerator[Client]:
    mode: Literal["legacy", "auto"] = request.param
    async with Client(build_server(settings), mode=mode) as connected:
        yield connected


@pytest.fixture
def kept(settings: Settings) -> Kept:
    """An open run: attempt 1 was accepted, 2 failed, 3 was no faster."""
    store = store_in(settings.state_dir)
    store.put_lessons([lesson(finding="V1", strategy="vectorization", device=GPU, helped=1, gain_pct=12.5,
                              gain_low_pct=11.5, gain_high_pct=13.5)])  # fmt: skip
    found = diagnosed(finding("V1", "narrow loads"), finding("T2", "no tensor cores"))
    kept = Kept(store, its=evidence(own=[case_time("a", 100, speed_of_light_pct=12.5)], diagnosed=found))
    kept.attempt("def entry(x):\n    return x + 1\n", evidence(1.5), strategy="wide loads", accepted=True)
    wrong = problem("element 3 is wrong", file="c.py", line=9, excerpt=">  9 | y")
    kept.attempt("def entry(x):\n    return x + 2\n", evidence(kind=Kind.WRONG, stage="correctness", problem=wrong),
                 strategy="masks left out", parent=1)  # fmt: skip
    kept.attempt("def entry(x):\n    return x + 3\n", evidence(1.0, 1, to_baseline=1.5), strategy="more stages",
                 parent=1, hints=[Hint(text="use fewer warps", because=["8 warps"])])  # fmt: skip
    return kept


async def prompt_of(client: Client, role: str, **arguments: str) -> str:
    (message,) = (await client.get_prompt(role, arguments)).messages
    assert isinstance(message.content, TextContent)
    return message.content.text


async def playbook(client: Client, **arguments: str) -> dict[str, Any]:
    result = await client.call_tool("get_playbook", arguments)
    content = content_of(result)
    fits(content, (await tools_of(client))["get_playbook"])
    assert len(text_of(result)) <= RESULT_LIMIT
    assert len(json.dumps(content, ensure_ascii=False)) <= RESULT_LIMIT
    assert content["summary"] in text_of(result)
    assert content["text"] is None or content["text"] in text_of(result)
    return content


# Filled from a run.


@pytest.mark.parametrize(
    ("role", "told"),
    [
        ("optimize_kernel", ["5 of 8", "attempt 1 at 1.5x", "narrow loads", "masks left out", "return x + 1"]),
        ("generate_tests", ["`entry`", "`baseline.py`", "return x\n", "NVIDIA H200"]),
        ("propose_candidate", ["use fewer warps", "vectorization", "64 registers", "return x + 1", "H200 SXM"]),
        ("remediate_failure", ["attempt 2", "element 3 is wrong", ">  9 | y", "return x + 2"]),
        ("judge_candidate", ["attempt 3", "attempt=1, detail=true", "return x + 3"]),
        ("refine_candidate", ["attempt 1", "narrow loads", "12.5", "return x + 1", "more stages"]),
        ("parametrize", ["attempt=1, detail=true", "return x + 1"]),
    ],
)
async def test_a_run_fills_what_the_role_needs(client: Client, kept: Kept, role: str, told: list[str]) -> None:
    text = await prompt_of(client, role, run_id=kept.run_id)
    assert [each for each in told if each not in text] == []
    assert "baseline.py" in text
    assert "task.py" in text


async def test_the_attempt_that_is_asked_for_is_the_one_that_is_told(client: Client, kept: Kept) -> None:
    text = await prompt_of(client, "judge_candidate", run_id=kept.run_id, attempt="2")
    assert "return x + 2" in text
    assert "return x + 3" not in text
    assert "element 3 is wrong" in text


async def test_what_the_caller_gives_stands_before_what_the_run_knows(client: Client, kept: Kept) -> None:
    text = await prompt_of(client, "refine_candidate", run_id=kept.run_id, kernel="mine.py", case="big")
    assert "- Baseline: `mine.py`" in text
    assert "- Case: `big`" in text


async def test_a_run_that_has_only_its_baseline_fills_every_role(client: Client, settings: Settings) -> None:
    run_id = Kept(store_in(settings.state_dir)).run_id
    for role in ROLES:
        text = await prompt_of(client, role, run_id=run_id)
        assert "Source of the baseline" in text, role
        assert "None" not in text.partition("## What to do")[0]


@pytest.mark.parametrize("state", ["measuring", "failed"])
async def test_a_run_without_a_measured_baseline_fills_every_role(
    client: Client, settings: Settings, state: str
) -> None:
    kept = Kept(store_in(settings.state_dir), its=evidence(kind=Kind.COMPILE_ERROR, problem=problem("no such name")))
    kept.store.change(kept.run_id, lambda run: run.model_copy(update={"state": state}))
    for role in ROLES:
        assert state in await prompt_of(client, role, run_id=kept.run_id)
    assert "no such name" in await prompt_of(client, "remediate_failure", run_id=kept.run_id)


async def test_what_is_being_evaluated_is_told_as_running(client: Client, kept: Kept) -> None:
    number = kept.left_behind("def entry(x):\n    return x + 4\n", "half done")
    text = await prompt_of(client, "propose_candidate", run_id=kept.run_id)
    assert f"- {number} (from 0) running: `half done`" in text


async def test_a_prompt_is_bounded_whatever_a_run_holds(client: Client, settings: Settings) -> None:
    kept = Kept(store_in(settings.state_dir), baseline="x = 1\n" * SOURCE_CHARACTERS, budget=Budget(attempts=100))
    for number in range(3 * TRIED):
        kept.attempt(f"x = {number}\n", evidence(1.1), strategy=f"idea {number} " + "word " * 500)
    for role in ROLES:
        assert len(await prompt_of(client, role, run_id=kept.run_id)) < PROMPT_CHARACTERS
        assert (await playbook(client, role=role, run_id=kept.run_id))["role"] == role
    text = await prompt_of(client, "propose_candidate", run_id=kept.run_id)
    assert f"idea {3 * TRIED - 1}" in text
    assert f"{2 * TRIED} more:" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"run_id": "sin-000000"}, "sin-000000"),
        ({"run_id": "softmax-1a2b3c", "attempt": "17"}, "has no attempt 17; it has 0, 1, 2, 3"),
        ({"run_id": "r" * 100_000}, "run"),
        ({"attempt": "1"}, "attempt 1 is one of a run, and no run_id is given. Give run_id too"),
    ],
)
async def test_a_run_or_attempt_that_is_not_there_is_refused(
    client: Client, kept: Kept, arguments: dict[str, str], said: str
) -> None:
    with pytest.raises(MCPError) as raised:
        await client.get_prompt("judge_candidate", arguments)
    assert said in str(raised.value)
    assert len(str(raised.value)) < 600


# The same texts through the tool.


async def test_without_a_role_all_are_listed(client: Client) -> None:
    told = await playbook(client)
    assert [line["role"] for line in told["roles"]] == list(ROLES)
    assert [line["description"] for line in told["roles"]] == [prompt.description for prompt in PROMPTS]
    assert (told["role"], told["text"]) == (None, None)


@every_role
async def test_a_playbook_is_the_text_of_its_prompt(client: Client, kept: Kept, role: str) -> None:
    assert (await playbook(client, role=role))["text"] == generic(ROLES[role])
    assert await prompt_of(client, role) == generic(ROLES[role])
    filled = await playbook(client, role=role.replace("_", "-"), run_id=f" {kept.run_id} ")
    # How long ago the run was started goes on.
    assert without_time(filled["text"]) == without_time(await prompt_of(client, role, run_id=kept.run_id))
    assert (filled["role"], filled["run_id"]) == (role, kept.run_id)


def without_time(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if " s gone" not in line)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"role": "optimise_kernel"}, "Did you mean 'optimize_kernel'?"),
        ({"role": "r" * 100_000}, "The roles are: optimize_kernel"),
        ({"role": "judge_candidate", "run_id": "sin-000000"}, "sin-000000"),
    ],
)
async def test_a_role_or_run_that_is_not_there_is_rejected(
    client: Client, kept: Kept, arguments: dict[str, str], said: str
) -> None:
    told = await playbook(client, **arguments)
    assert told["kind"] == "rejected"
    assert said in told["problem"]["message"]
    assert told["next_step"]


# What is hidden.


def secret_evidence(ratio: float) -> Evidence:
    """A candidate with a hidden case wherever one could stand."""
    secret = case_timing(HIDDEN, ratio, hidden=True, device_us=31337.0, call_us=31337.0)
    cases = [case_timing("a", ratio), secret]
    return evidence(
        ratio,
        timings=[timing(ratio, cases=cases)],
        own=[case_time("a"), case_time(HIDDEN, 31337.0)],
        launches=[launch("a"), launch(HIDDEN, code_hash="1" * 16, registers=31337)],
        confirmation=confirmation(ratio, timing=timing(ratio, cases=cases)),
        diagnosed=diagnosed(finding(), case="a"),
        notes=[f"{HIDDEN} was off by 4.6692"],
    )


async def test_no_text_tells_of_hidden_cases_or_expected_values(client: Client, settings: Settings) -> None:
    # The baseline is kernel and task in one file, as some are.
    own = evidence(
        own=[case_time("a"), case_time(HIDDEN, 31337.0)], launches=[launch(HIDDEN, code_hash="2" * 16, registers=31337)]
    )
    kept = Kept(store_in(settings.state_dir), baseline=TASK, task=TASK, its=own, hidden_from="task")
    hidden = kept.store.put_file(json.dumps({HIDDEN: {"n": 718281, "m": 828459}}))
    kept.store.change(
        kept.run_id,
        lambda run: run.model_copy(update={"frozen": run.frozen.model_copy(update={"hidden_sha256": hidden})}),
    )
    kept.attempt("def entry(x):\n    return 1\n", secret_evidence(1.5), accepted=True)
    kept.attempt("def entry(x):\n    return 2\n", secret_evidence(1.2), parent=1)
    look = confirmation(kind=Kind.WRONG, problem=problem("a case that is not shown fails"), timing=None)
    failing = secret_evidence(1.9).model_copy(update={"confirmation": look})
    kept.attempt("def entry(x):\n    return 3\n", failing, parent=1)
    texts: dict[str, str] = {}
    for role, prompt in ROLES.items():
        texts[role] = await prompt_of(client, role, run_id=kept.run_id)
        texts[f"{role}, playbook"] = text_of(
            await client.call_tool("get_playbook", {"role": role, "run_id": kept.run_id})
        )
        for attempt in range(4) if "attempt" in prompt.context.model_fields else ():
            texts[f"{role} {attempt}"] = await prompt_of(client, role, run_id=kept.run_id, attempt=str(attempt))
    found = [(where, secret) for where, text in texts.items() for secret in SECRETS if secret in text]
    assert found == []
    assert "not shown fails" in texts["remediate_failure"]


async def test_no_prompt_makes_the_folder_of_runs(client: Client, settings: Settings, tmp_path: Path) -> None:
    assert settings.state_dir.is_relative_to(tmp_path)
    await prompt_of(client, "optimize_kernel", kernel="k.py")
    await playbook(client, role="optimize_kernel")
    assert not (settings.state_dir / "runs").exists()
