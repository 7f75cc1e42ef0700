"""The server as an MCP client sees it, in memory, in both protocol eras."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

import anyio
import jsonschema
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, TextContent, TextResourceContents

from tests.server.conftest import EXAMPLES, RESULT_LIMIT, SIN, content_of, fits, text_of, tools_of, without_gpu
from tritonforge.server.app import INSTRUCTIONS, build_server
from tritonforge.server.artifacts import ArtifactStore
from tritonforge.server.settings import Settings

pytestmark = pytest.mark.anyio

TOOLS = [
    "hardware_spec", "compile_kernel", "diagnose_kernel", "run_correctness", "benchmark", "profile_ncu",
    "start_optimization", "submit_candidate", "get_run", "recall_lessons", "tune_kernel",
    "get_playbook",
]  # fmt: skip
READ_ONLY = {"hardware_spec", "recall_lessons", "get_playbook"}
PROMPTS = [
    "optimize_kernel", "generate_tests", "propose_candidate", "remediate_failure", "judge_candidate",
    "refine_candidate", "parametrize",
]  # fmt: skip
DESCRIPTION_LIMIT = 4000
"""Claude Code cuts instructions and descriptions at 4,096 characters."""
KERNEL, TASK = Path(SIN["kernel"]).read_text(), Path(SIN["task"]).read_text()
REJECTED = {
    "an unknown target": ("hardware_spec", {"target": "h1000"}),
    "an empty kernel": ("compile_kernel", {**SIN, "kernel": ""}),
    "a missing file": ("compile_kernel", {**SIN, "kernel": str(EXAMPLES / "sin" / "candidat.py")}),
    "a folder": ("run_correctness", {**SIN, "kernel": str(EXAMPLES / "sin")}),
    "a huge path": ("run_correctness", {**SIN, "kernel": "k" * 100_000}),
    "a deep path": ("benchmark", {**SIN, "kernel": "k/" * 1_900}),
    "the home of nobody": ("benchmark", {**SIN, "kernel": "~no.such.user/kernel.py"}),
    "a device": ("compile_kernel", {**SIN, "kernel": "/dev/zero"}),
    "a huge source": ("profile_ncu", {**SIN, "task": "#\n" * 600_000}),
    "a NUL byte": ("profile_ncu", {**SIN, "kernel": "x = 1\n\0"}),
    "a huge target": ("compile_kernel", {**SIN, "target": "h" * 100_000}),
    "a run that is not there": ("get_run", {"run_id": "sin-000000"}),
    "a run of another script": ("submit_candidate", {"run_id": "цель 💥 \u202e", "kernel": "x = 1\n", "strategy": "s"}),
    "a huge run id": ("submit_candidate", {"run_id": "r" * 100_000, "kernel": "x = 1\n", "strategy": "s"}),
    "an attempt of no run": ("get_run", {"attempt": 1}),
    "hidden cases that are missing": ("start_optimization", {**SIN, "hidden_cases": "hiden.py"}),
    "a target in another script": ("compile_kernel", {**SIN, "target": "цель 💥 \u202e"}),
}

every_tool = pytest.mark.parametrize("tool", TOOLS)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(state_dir=tmp_path_factory.mktemp("app") / "state")


@pytest.fixture(scope="module", params=["legacy", "auto"])
async def client(request: pytest.FixtureRequest, settings: Settings) -> AsyncGenerator[Client]:
    mode: Literal["legacy", "auto"] = request.param
    async with Client(build_server(settings), mode=mode) as connected:
        yield connected


async def refusal(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return text_of(result)


# What is offered.


async def test_both_eras_are_spoken(settings: Settings) -> None:
    spoken: list[str] = []
    for mode in ("legacy", "auto"):
        async with Client(build_server(settings), mode=mode) as client:
            spoken.append(str(client.protocol_version))
    assert spoken == ["2025-11-25", "2026-07-28"]


async def test_the_tools_are_listed_with_all_that_a_client_shows(client: Client) -> None:
    tools = await tools_of(client)
    assert list(tools) == TOOLS
    for tool in tools.values():
        assert tool.title
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (tool.name in READ_ONLY)
        assert tool.annotations.destructive_hint is False
        properties: dict[str, dict[str, Any]] = tool.input_schema["properties"]
        assert all(argument["description"] for argument in properties.values())
        assert "context" not in properties


async def test_descriptions_and_instructions_are_not_cut_by_clients(client: Client) -> None:
    assert client.instructions == INSTRUCTIONS
    assert len(INSTRUCTIONS) < DESCRIPTION_LIMIT
    for tool in (await tools_of(client)).values():
        assert tool.description is not None
        assert len(tool.description) < DESCRIPTION_LIMIT
    assert all(tool in INSTRUCTIONS for tool in TOOLS)


async def test_defaults_and_bounds_stand_in_the_description_too(client: Client) -> None:
    seeds = (await tools_of(client))["run_correctness"].input_schema["properties"]["seeds"]
    assert (seeds["minimum"], seeds["maximum"], seeds["default"]) == (1, 64, 3)
    assert "1 to 64" in seeds["description"]
    assert "Default: 3" in seeds["description"]


@every_tool
async def test_every_output_schema_is_valid_and_has_what_all_results_share(client: Client, tool: str) -> None:
    schema = (await tools_of(client))[tool].output_schema
    assert schema is not None
    jsonschema.Draft202012Validator.check_schema(schema)
    assert {"kind", "summary"} <= set(schema["required"])
    assert {"kind", "summary", "next_step", "problem", "artifacts"} <= set(schema["properties"])


# Arguments that no tool takes are protocol-level tool errors.


async def test_an_unknown_tool_is_refused_with_the_nearest_name(client: Client) -> None:
    message = await refusal(client, "compile_kernl", {})
    assert "Did you mean 'compile_kernel'?" in message
    assert all(tool in message for tool in TOOLS)


async def test_an_unknown_argument_is_refused_with_the_nearest_name(client: Client) -> None:
    message = await refusal(client, "compile_kernel", {**SIN, "taget": "h100"})
    assert "'taget'" in message
    assert "Did you mean 'target'?" in message


async def test_an_unknown_argument_like_no_other_is_refused_with_all_names(client: Client) -> None:
    message = await refusal(client, "hardware_spec", {"💥": 1})
    assert "Did you mean" not in message
    assert "It takes: target, measure, detail." in message


async def test_the_argument_that_gemini_adds_is_tolerated(client: Client) -> None:
    arguments = {"target": "no such GPU", "wait_for_previous": True}
    assert content_of(await client.call_tool("hardware_spec", arguments))["kind"] == "rejected"


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("run_correctness", {}, "kernel: Field required; task: Field required"),
        ("compile_kernel", {**SIN, "kernel": 7}, "kernel: "),
        ("compile_kernel", {**SIN, "kernel": None}, "kernel: "),
        ("compile_kernel", {**SIN, "cases": "large"}, "cases: "),
        ("compile_kernel", {**SIN, "cases": [1]}, "cases.0: "),
        ("hardware_spec", {"target": {"name": "h100"}}, "target: "),
        ("run_correctness", {**SIN, "seeds": 0}, "seeds: Input should be greater than or equal to 1"),
        ("run_correctness", {**SIN, "seeds": 65}, "seeds: Input should be less than or equal to 64"),
        ("run_correctness", {**SIN, "seeds": 10**30}, "seeds: "),
        ("run_correctness", {**SIN, "seeds": 2.5}, "seeds: "),
        ("run_correctness", {**SIN, "seeds": "many"}, "seeds: "),
    ],
)
async def test_a_value_of_the_wrong_type_is_refused_by_name(
    client: Client, tool: str, arguments: dict[str, Any], named: str
) -> None:
    message = await refusal(client, tool, arguments)
    assert named in message
    # Neither names of ours nor links to another project's manual.
    assert "_" + tool not in message
    assert "pydantic" not in message


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("x" * 100_000, {}), ("hardware_spec", {"y" * 100_000: 1}), ("hardware_spec", {"target": ["z" * 100_000]})],
)
async def test_a_refusal_does_not_echo_what_is_huge(client: Client, tool: str, arguments: dict[str, Any]) -> None:
    assert len(await refusal(client, tool, arguments)) < 500


# Input that can't be used is an ordinary result.


@pytest.mark.parametrize(("tool", "arguments"), REJECTED.values(), ids=REJECTED.keys())
async def test_unusable_input_is_an_ordinary_result_of_kind_rejected(
    client: Client, tool: str, arguments: dict[str, Any]
) -> None:
    result = await client.call_tool(tool, arguments)
    content, text = content_of(result), text_of(result)
    fits(content, (await tools_of(client))[tool])
    assert content["kind"] == "rejected"
    assert content["problem"]["message"] in text
    assert content["problem"]["message"] in content["summary"]
    assert text.startswith("rejected: ")
    assert len(text) < RESULT_LIMIT
    assert len(json.dumps(content, ensure_ascii=False)) < RESULT_LIMIT


async def test_a_misspelled_file_is_answered_with_the_nearest_one(client: Client) -> None:
    content = content_of(await client.call_tool(*REJECTED["a missing file"]))
    assert str(EXAMPLES / "sin" / "candidate.py") in content["next_step"]


@without_gpu
@pytest.mark.parametrize("tool", ["benchmark", "profile_ncu"])
async def test_what_needs_a_gpu_is_unavailable_with_the_remedy(client: Client, tool: str) -> None:
    result = await client.call_tool(tool, SIN)
    content = content_of(result)
    fits(content, (await tools_of(client))[tool])
    assert content["kind"] == "unavailable"
    assert "Run the server on a machine with" in content["problem"]["likely_fix"]
    assert content["next_step"] == content["problem"]["likely_fix"]
    assert content["next_step"] in text_of(result)


async def test_progress_is_reported_where_a_client_asks_for_it(client: Client) -> None:
    reports: list[str | None] = []
    told = anyio.Event()

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        reports.append(message)
        told.set()

    await client.call_tool("hardware_spec", {"target": "no such GPU"}, progress_callback=heard)
    with anyio.fail_after(60):
        await told.wait()
    assert reports == ["looking at this machine"]


# Prompts.


async def test_the_prompts_are_listed_with_their_arguments(client: Client) -> None:
    prompts = (await client.list_prompts()).prompts
    assert [prompt.name for prompt in prompts] == PROMPTS
    for prompt in prompts:
        assert prompt.title
        assert prompt.description
        assert prompt.arguments
        assert all(argument.description for argument in prompt.arguments)
        # A run may give what the caller does not, and without either the text says where to look.
        assert {"kernel", "run_id"} <= {argument.name for argument in prompt.arguments if not argument.required}


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_every_prompt_is_given_with_its_arguments_filled_in(client: Client, prompt: str) -> None:
    listed = {found.name: found for found in (await client.list_prompts()).prompts}
    other = {"run_id", "attempt", "rounds"}
    names = [argument.name for argument in listed[prompt].arguments or [] if argument.name not in other]
    got = await client.get_prompt(prompt, {name: f"my {name} ⚙" for name in names})
    content = got.messages[0].content
    assert isinstance(content, TextContent)
    assert all(f"my {name} ⚙" in content.text for name in names)


@pytest.mark.parametrize(
    ("prompt", "arguments", "said"),
    [
        ("optimise_kernel", {}, "Did you mean 'optimize_kernel'?"),
        ("x" * 100_000, {}, "The prompts are: optimize_kernel"),
        ("judge_candidate", {"run_id": "r", "attempt": "last"}, "attempt: "),
        ("optimize_kernel", {"kernel": "k.py", "rounds": "many"}, "rounds: "),
        ("optimize_kernel", {"kernel": "k.py", "rounds": "0"}, "rounds: "),
        ("optimize_kernel", {"run_id": "sin-000000"}, "sin-000000"),
        ("optimize_kernel", {"kernel": "k.py", "speed": "2x"}, "Its arguments are: kernel, task"),
    ],
)
async def test_a_prompt_that_cannot_be_filled_says_what_is_wrong(
    client: Client, prompt: str, arguments: dict[str, str], said: str
) -> None:
    with pytest.raises(MCPError) as raised:
        await client.get_prompt(prompt, arguments)
    assert said in str(raised.value)
    assert len(str(raised.value)) < 500


# Artifacts.


async def test_a_stored_text_and_a_stored_report_can_be_read_as_resources(client: Client, settings: Settings) -> None:
    store = ArtifactStore(settings.state_dir)
    text = await store.put("sin.ptx", "// naïve\n.version 8.7\n".encode())
    (content,) = (await client.read_resource(text.uri)).contents
    assert isinstance(content, TextResourceContents)
    assert content.text == "// naïve\n.version 8.7\n"
    report = await store.put("sin-large.ncu-rep", b"NVR\x00\xff\xfe")
    (content,) = (await client.read_resource(report.uri)).contents
    assert isinstance(content, BlobResourceContents)
    assert content.blob == "TlZSAP/+"


async def test_the_template_of_artifacts_is_listed(client: Client) -> None:
    templates = (await client.list_resource_templates()).resource_templates
    assert "tritonforge://artifacts/{digest}/{name}{?offset,limit}" in [template.uri_template for template in templates]


@pytest.mark.parametrize(
    "path",
    [
        "0123456789abcdef/none.ptx",
        "../secret",
        "../../secret",
        "%2e%2e/secret",
        "..%2f..%2f/secret",
        "0123456789abcdef/..",
        "0123456789abcdef/%2e%2e",
        "0123456789abcdef/..%2f..%2fsecret",
        "0123456789abcdef/%2fetc%2fpasswd",
        "0123456789ABCDEF/inside.ptx",
        "0123456789abcdef/",
        "0123456789abcdef",
        "",
        "0123456789abcdef/a/b",
        "0123456789abcdef/" + "n" * 10_000,
        "0123456789abcdef/%00",
    ],
)
async def test_no_uri_leads_out_of_the_artifacts(client: Client, settings: Settings, path: str) -> None:
    folder = settings.state_dir / "artifacts" / "0123456789abcdef"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "inside.ptx").write_text("inside")
    for place in (settings.state_dir, settings.state_dir / "artifacts", settings.state_dir.parent):
        (place / "secret").write_text("secret")
    with pytest.raises(MCPError):
        await client.read_resource(f"tritonforge://artifacts/{path}")
