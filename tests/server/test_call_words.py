"""What `call` says to a shell besides a tool's own text."""

from pathlib import Path

import pytest
from mcp_types import Tool

from tests.server.refresh_snapshots import current
from tritonforge.server.artifacts import ArtifactStore
from tritonforge.server.call_words import listed_tools, shell_lines, tool_help
from tritonforge.server.cli import MISUSE, OK, run

TOOL = Tool(
    name="look",
    title="Look",
    input_schema={
        "properties": {
            "level": {"type": "string", "enum": ["quick", "full"], "default": "quick", "description": "How deep."},
            "some_cases": {"anyOf": [{"type": "array"}, {"type": "null"}], "default": None, "description": "Names."},
            "wait_s": {"type": "number", "default": 5, "description": "Seconds. Default: five."},
            "kernel": {"type": "string", "description": "Kernel file: a path."},
        },
        "required": ["kernel"],
    },
)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    """Exit code, output and errors of a command that ends in its parser."""
    with pytest.raises(SystemExit) as ended:
        run(words)
    out, err = capsys.readouterr()
    return ended.value.code or OK, out, err


@pytest.mark.anyio
async def test_all_tools_are_listed() -> None:
    assert {tool.name for tool in await listed_tools()} == set(await current())


def test_help_of_call_lists_every_tool_and_the_options_of_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    snapshots = {path.stem for path in (Path(__file__).parent / "snapshots").glob("*.json")}
    code, out, _ = said(capsys, "call", "--help")
    assert code == OK
    listed = out[out.index("tools:") :]
    assert snapshots <= set(listed.split())
    assert "get_playbook" in snapshots
    assert "--state-dir" in out


def test_help_of_a_tool_tells_its_arguments_and_not_the_servers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "call", "diagnose_kernel", "--kernel", "k.py", "--help")
    assert code == OK
    assert "--kernel TEXT  (required)" in out
    assert "--depth auto|source|profile|code|compiler" in out
    assert "--verify-with TEXT\n      Another kernel file" in out
    assert "--gpu-spares" not in out


def test_help_of_an_unknown_tool_is_misuse_with_the_tools(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "call", "diagnose", "--help")
    assert (code, out) == (MISUSE, "")
    assert "there is no tool 'diagnose'; the tools are hardware_spec," in err


def test_an_argument_is_told_with_type_default_and_description() -> None:
    lines = tool_help(TOOL).splitlines()
    options = [line for line in lines if line.startswith("  --")]
    assert options == [
        "  --kernel TEXT  (required)",
        "  --level quick|full  (default: quick)",
        "  --some-cases A,B,...  (default: none)",
        "  --wait-s NUMBER",
        "  --json",
    ]
    assert lines[lines.index("  --wait-s NUMBER") + 1].strip() == "Seconds. Default: five."


@pytest.mark.anyio
async def test_a_shell_is_told_where_the_files_lie_and_how_an_argument_is_written(tmp_path: Path) -> None:
    kept = await ArtifactStore(tmp_path).put("a.json", b"{}")
    uris = [kept.uri, "tritonforge://artifacts/0000000000000000/gone.json", "tritonforge://runs/r"]
    text = "Next: call it with verify_with=the edited file; BLOCK=4."
    assert shell_lines(text, uris, tmp_path, ["kernel", "verify_with"]) == [
        f"File: {kept.path}",
        "On the command line verify_with=X is --verify-with X.",
    ]
    assert shell_lines("Next: num_warps=4.", [], tmp_path, ["kernel"]) == []
