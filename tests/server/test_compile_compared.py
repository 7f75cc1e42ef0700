"""compile_kernel with compare: what differs from another kernel file."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import TextResourceContents

from tests.server.conftest import EXAMPLES, SIN, content_of, fits, text_of, tools_of
from tritonforge.server.app import build_server
from tritonforge.server.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

MATMUL = {name: str(EXAMPLES / "matmul" / f"{name}.py") for name in ("baseline", "candidate", "task")}
SINE = Path(SIN["kernel"]).read_text()
CALLED = f"{SINE}\nresult = sin(torch.randn(5000, device='cuda'))\n"


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    async with Client(build_server(Settings(state_dir=tmp_path_factory.mktemp("compare") / "state"))) as client:
        yield client


async def compared(client: Client, kernel: str, compare: str, **more: Any) -> tuple[dict[str, Any], str]:
    arguments = {"kernel": kernel, "compare": compare, "target": "h100", **more}
    result = await client.call_tool("compile_kernel", arguments)
    fits(content_of(result), (await tools_of(client))["compile_kernel"])
    return content_of(result), text_of(result)


async def test_facts_come_first_and_the_diff_of_the_ir_is_linked(client: Client) -> None:
    content, text = await compared(
        client, MATMUL["candidate"], MATMUL["baseline"], task=MATMUL["task"], cases=["square", "tall"]
    )
    assert [change["case"] for change in content["changes"]] == ["square", "tall"]
    facts = {fact["fact"]: (fact["before"], fact["after"]) for fact in content["changes"][0]["facts"]}
    assert facts["mma"] == ("mma", "wgmma")
    assert facts["num_warps"][1] == 8
    assert content["compared_with"] == MATMUL["baseline"]
    assert text.startswith(f"Compared with {MATMUL['baseline']} (before -> after):\n~ [square] matmul_kernel: ")
    # What is told of the launches is told of this file's.
    assert {launch["mma"] for launch in content["launches"]} == {"wgmma"}
    assert content["artifacts"][0].endswith("matmul_kernel.ttgir.diff")
    (diff,) = (await client.read_resource(content["artifacts"][0])).contents
    assert isinstance(diff, TextResourceContents)
    assert any(line.startswith("+") and "ttng.warp_group_dot" in line for line in diff.text.splitlines())


async def test_an_edit_that_changed_nothing_is_said_to_have_changed_nothing(client: Client) -> None:
    content, text = await compared(
        client, SINE.replace("def sin(", "# Much faster now.\ndef sin("), SINE, task=SIN["task"], cases=["large"]
    )
    (change,) = content["changes"]
    assert (change["same_code"], change["facts"]) == (True, [])
    assert "the same machine code" in text
    assert content["next_step"].startswith("The machine code is the same")
    assert not [uri for uri in content["artifacts"] if uri.endswith(".diff")]


async def test_files_are_compared_as_they_stand_without_a_task(client: Client) -> None:
    content, _ = await compared(client, CALLED.replace("5000", "160000"), CALLED.replace("5000", "80000"))
    (change,) = content["changes"]
    assert {fact["fact"] for fact in change["facts"]} >= {"grid"}
    assert change["same_code"]


async def test_where_the_other_cannot_be_compiled_the_file_still_is(client: Client) -> None:
    content, text = await compared(client, CALLED, CALLED.replace("tl.store(", "tl.no_such_store("))
    assert content["kind"] == "ok"
    assert (content["compared_with"], content["changes"]) == (None, [])
    assert len(content["launches"]) == 1
    (note,) = content["notes"]
    assert note.startswith("compare: ")
    assert "no_such_store" in note
    assert note in text


async def test_a_file_that_is_not_there_is_refused(client: Client) -> None:
    content, _ = await compared(client, CALLED, "/nowhere/baseline.py")
    assert content["kind"] == "rejected"
    assert "/nowhere/baseline.py" in content["problem"]["message"]
