"""Tools that a server goes without: not offered, refused, and told of wherever texts may name them."""

from pathlib import Path

import pytest
from mcp.client import Client

from tests.server.conftest import content_of
from tests.server.runs.fake_evaluator import FakeEvaluator, candidate, task
from tritonforge.server import cli
from tritonforge.server.app import INSTRUCTIONS, build_server
from tritonforge.server.http_arguments import Unusable
from tritonforge.server.settings import Settings

OFF = ("profile_ncu", "diagnose_kernel")
REMARK = "Switched off: profile_ncu, diagnose_kernel. Where a text or a result names one of these, go on without it."


@pytest.mark.anyio
async def test_what_is_switched_off_is_not_offered_and_told_of(tmp_path: Path) -> None:
    async with Client(build_server(Settings(state_dir=tmp_path, without=OFF), lambda _: FakeEvaluator())) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert not tools & set(OFF)
        assert "compile_kernel" in tools
        assert client.instructions == f"{INSTRUCTIONS}\n\n{REMARK}\n"
        (message,) = (await client.get_prompt("optimize_kernel", {})).messages
        assert REMARK in getattr(message.content, "text", "")
        result = await client.call_tool("get_playbook", {"role": "optimize_kernel"})
        assert REMARK in content_of(result)["text"]
        refused = await client.call_tool("profile_ncu", {"kernel": "x"})
        assert refused.is_error


@pytest.mark.anyio
async def test_all_tools_there_are_is_no_remark(tmp_path: Path) -> None:
    async with Client(build_server(Settings(state_dir=tmp_path), lambda _: FakeEvaluator())) as client:
        assert client.instructions == INSTRUCTIONS
        (message,) = (await client.get_prompt("optimize_kernel", {})).messages
        assert "Switched off" not in getattr(message.content, "text", "")


def test_a_tool_that_there_is_none_of_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"--without profile_nsu: there is no such tool. Did you mean profile_ncu\?"):
        build_server(Settings(state_dir=tmp_path, without=("profile_nsu",)))


def test_serve_takes_it_more_than_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_own_signals", lambda: None)
    given = ["--state-dir", str(tmp_path), "serve", "--without", "profile_ncu", "--without", "diagnose"]
    assert cli.run(given) == cli.MISUSE
    out, err = capsys.readouterr()
    assert out == ""
    assert "--without diagnose: there is no such tool. Did you mean diagnose_kernel?" in err


@pytest.mark.anyio
@pytest.mark.parametrize("without", [(), ("diagnose_kernel",)])
async def test_attempts_get_hints_unless_nothing_is_diagnosed(tmp_path: Path, without: tuple[str, ...]) -> None:
    settings = Settings(state_dir=tmp_path, without=without)
    async with Client(build_server(settings, lambda _: FakeEvaluator())) as client:
        given = {"kernel": candidate(1, findings=["V1"]), "task": task("made up"), "wait_s": 60}
        result = await client.call_tool("start_optimization", given)
        assert bool(content_of(result)["hints"]) is not bool(without)
