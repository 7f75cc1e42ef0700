"""compile_kernel with explain=true: machine code and the compiler's words by line of the kernel file."""

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, TextResourceContents

from tests.server.conftest import EXAMPLES, RESULT_LIMIT, SIN, content_of, fits, text_of, tools_of
from tritonforge.sandbox.errors import Stopped
from tritonforge.sandbox.outcome import Kind, Problem
from tritonforge.sandbox.workers import KernelWorker
from tritonforge.server.app import build_server
from tritonforge.server.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

MATMUL = EXAMPLES / "matmul" / "baseline.py"
KERNEL = (
    Path(SIN["kernel"]).read_text()
    + """
x = torch.randn(5000, device='cuda')
result = sin(x)
"""
)


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    async with Client(build_server(Settings(state_dir=tmp_path_factory.mktemp("explain") / "state"))) as client:
        yield client


@pytest.fixture(scope="module")
async def matmul(client: Client) -> tuple[dict[str, Any], str]:
    """What is explained of a matrix product whose two warps form no warp group."""
    return await compiled(client, str(MATMUL), task=str(MATMUL.with_name("task.py")), explain=True)


async def compiled(client: Client, kernel: str, **more: Any) -> tuple[dict[str, Any], str]:
    result = await client.call_tool("compile_kernel", {"kernel": kernel, **{"target": "h100", **more}})
    fits(content_of(result), (await tools_of(client))["compile_kernel"])
    return content_of(result), text_of(result)


def line_of(code: str) -> int:
    (line,) = (number for number, text in enumerate(MATMUL.read_text().splitlines(), 1) if code in text)
    return line


async def test_equal_machine_code_of_several_cases_is_explained_once(matmul: tuple[dict[str, Any], str]) -> None:
    content, _ = matmul
    (explained,) = content["explained"]
    hashes = {launch["case"]: launch["code_hash"] for launch in content["launches"]}
    assert explained["code_hash"] == hashes["square"] == hashes["tall"] != hashes["small"]


async def test_instructions_in_loops_have_their_lines(matmul: tuple[dict[str, Any], str]) -> None:
    content, text = matmul
    sass = content["explained"][0]["sass"]
    dots = {line["line"]: line["mix"] for line in sass["loop_lines"] if "tensor" in line["mix"]}
    assert list(dots) == [line_of("tl.dot(")]
    assert sass["mix_in_loops"]["tensor"] == dots[line_of("tl.dot(")]["tensor"] > 0
    assert 0 < sass["in_loops"] < sass["instructions"]
    assert f"{sass['instructions']} instructions, {sass['in_loops']} in loops (tensor " in text


async def test_live_registers_are_close_to_what_the_kernel_gets(matmul: tuple[dict[str, Any], str]) -> None:
    content, _ = matmul
    registers = content["launches"][0]["registers"]
    assert 0.8 * registers <= content["explained"][0]["sass"]["live_registers"] <= registers


async def test_the_compilers_words_have_a_line_and_a_meaning(matmul: tuple[dict[str, Any], str]) -> None:
    content, text = matmul
    rejected = content["explained"][0]["remarks"][0]
    assert (rejected["id"], rejected["line"]) == ("wgmma-rejected", line_of("tl.dot("))
    assert f"compiler line {rejected['line']}: wgmma-rejected: {rejected['message']}" in text


async def test_all_assembly_is_linked_and_can_be_read_in_parts(
    client: Client, matmul: tuple[dict[str, Any], str]
) -> None:
    content, _ = matmul
    uris = {uri.partition(".")[2]: uri for uri in content["artifacts"]}
    assert len(uris) == len(content["artifacts"])
    assert uris.keys() == {"ttir", "ttgir", "llir", "ptx", "cubin", "sass", "lines.json"}
    whole = await read(client, uris["sass"])
    assert re.search(r'//## File "[^"]*", line \d+\n\s+/\*0000\*/', whole)
    assert await read(client, f"{uris['sass']}?offset=20&limit=3") == "".join(whole.splitlines(keepends=True)[20:23])
    binary = await read(client, f"{uris['cubin']}?limit=4")
    assert binary == "f0VMRg=="  # \x7fELF in base64
    with pytest.raises(MCPError, match=r"whole numbers"):
        await read(client, f"{uris['sass']}?offset=-1")
    lines = json.loads(await read(client, uris["lines.json"]))
    assert sum(site["count"] for site in lines["sass"]) == content["explained"][0]["sass"]["instructions"]
    assert lines["remarks"][0]["id"] == "wgmma-rejected"


async def test_results_stay_readable(matmul: tuple[dict[str, Any], str]) -> None:
    content, text = matmul
    assert len(text) < RESULT_LIMIT / 2
    assert len(json.dumps(content["explained"], ensure_ascii=False)) < RESULT_LIMIT / 4


async def test_a_file_without_a_task_is_explained_too_and_its_array_is_no_spill(client: Client) -> None:
    content, text = await compiled(client, KERNEL, explain=True)
    (explained,) = content["explained"]
    assert explained["case"] == "file"
    assert explained["sass"]["spills"] is False
    assert explained["sass"]["local_lines"][0]["stores"] > 0
    assert "no spills: an array's" in text


async def test_code_for_other_vendors_is_not_read_and_the_reason_told(client: Client) -> None:
    content, text = await compiled(client, KERNEL, explain=True, target="mi300x")
    (explained,) = content["explained"]
    assert explained["sass"] is None
    assert "only NVIDIA's machine code is read" in explained["absent"]
    assert explained["absent"] in text


async def test_nothing_is_explained_unasked(client: Client) -> None:
    content, _ = await compiled(client, KERNEL)
    assert content["explained"] == []
    assert [uri.partition(".")[2] for uri in content["artifacts"]] == ["ttgir", "ptx", "lines.json"]


async def test_launches_are_told_where_their_explanation_fails(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: KernelWorker, codes: object) -> None:
        raise Stopped(Kind.TIMEOUT, Problem(stage="capture", message="explaining took\x1b too long"))

    monkeypatch.setattr(KernelWorker, "explain", fails)
    content, text = await compiled(client, KERNEL, explain=True)
    assert (content["kind"], len(content["launches"]), content["explained"]) == ("ok", 1, [])
    (note,) = content["notes"]
    assert "timeout: explaining took? too long" in note
    assert note in text


async def read(client: Client, uri: str) -> str:
    (part,) = (await client.read_resource(uri)).contents
    if isinstance(part, BlobResourceContents):
        return part.blob
    assert isinstance(part, TextResourceContents)
    return part.text
