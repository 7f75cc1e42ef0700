"""compile_kernel without a task: the kernel file is run as it stands."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import TextResourceContents

from tests.faults.evaluations import replaced
from tests.server.conftest import SIN, content_of, fits, text_of, tools_of
from tritonforge.profiling.compiler.backends import Nvidia
from tritonforge.profiling.compiler.launch import LaunchFacts
from tritonforge.profiling.hardware.model import Target
from tritonforge.sandbox.facts import Capture, CapturedLaunch
from tritonforge.server.app import build_server
from tritonforge.server.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]

KERNEL = Path(SIN["kernel"]).read_text()
CALL = "x = torch.randn(5000, device='cuda')\nresult = sin(x)\n"
FAULTY = """\
@triton.jit
def faulty(x_ptr):
    tl.store(x_ptr, missing)
faulty[(1,)](x)
"""


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    async with Client(build_server(Settings(state_dir=tmp_path_factory.mktemp("file") / "state"))) as client:
        yield client


async def compiled(client: Client, kernel: str, **more: Any) -> tuple[dict[str, Any], str]:
    result = await client.call_tool("compile_kernel", {"kernel": kernel, "target": "h100", **more})
    fits(content_of(result), (await tools_of(client))["compile_kernel"])
    return content_of(result), text_of(result)


async def test_what_a_file_launches_itself_is_compiled(client: Client) -> None:
    content, text = await compiled(client, KERNEL + CALL)
    assert (content["kind"], content["entry"], content["notes"], content["problem"]) == ("ok", None, [], None)
    (launch,) = content["launches"]
    assert (launch["kernel"], launch["case"]) == ("sin_kernel", "file")
    assert launch["registers"] > 0
    assert "sin_kernel [file]" in text
    assert content["artifacts"]


async def test_a_file_that_launches_nothing_is_told_what_to_do(client: Client) -> None:
    content, _ = await compiled(client, KERNEL)
    assert content["kind"] == "rejected"
    assert "launches no Triton kernel" in content["summary"]
    for said in ("task", "ENTRY", "end of the file", "__main__"):
        assert said in content["next_step"]


async def test_a_file_that_fails_before_any_launch_is_told_why(client: Client) -> None:
    content, _ = await compiled(client, KERNEL + "import no_such_module\n" + CALL)
    assert content["kind"] != "ok"
    assert "no_such_module" in content["summary"]
    assert content["problem"]["line"] == KERNEL.count("\n") + 1


async def test_a_failed_check_of_values_is_a_note_and_the_launches_are_there(client: Client) -> None:
    content, text = await compiled(client, KERNEL + CALL + "assert result.sum() == 1.5, 'not\\x1b[31m it'\n")
    assert content["kind"] == "ok"
    assert len(content["launches"]) == 1
    (note,) = content["notes"]
    assert note in text
    assert f"at line {KERNEL.count(chr(10)) + 3}" in note
    assert "not" in note
    assert "\x1b" not in note


async def test_a_kernel_that_can_not_be_compiled_is_the_outcome_beside_the_launches_before_it(client: Client) -> None:
    content, text = await compiled(client, KERNEL + CALL + FAULTY)
    assert content["kind"] == "compile_error"
    assert content["summary"].startswith("compile_error")
    assert "missing is not defined" in content["problem"]["message"]
    assert [launch["kernel"] for launch in content["launches"]] == ["sin_kernel"]
    assert "sin_kernel [file]" in text


async def test_however_many_grids_a_code_is_read_once_and_what_is_too_much_is_counted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = Nvidia.facts

    def facts(backend: Nvidia, capture: Capture, launch: CapturedLaunch, target: Target) -> LaunchFacts:
        read.append(launch.kernel)
        return original(backend, capture, launch, target)

    monkeypatch.setattr(Nvidia, "facts", facts)
    many = "for n in range(1, 301):\n    sin_kernel[(n,)](x, x, 5000, BLOCK=1024)\n"
    content, text = await compiled(client, KERNEL + "x = torch.zeros(5000, device='cuda')\n" + many)
    assert read == ["sin_kernel"]
    assert [launch["grid"] for launch in content["launches"]] == [[n, 1, 1] for n in (1, 2, 3, 4)]
    assert content["launches"][3]["waves"] > content["launches"][0]["waves"]
    assert content["launches_omitted"] == 296
    assert "300 distinct launch(es)" in text


async def test_cases_without_a_task_are_rejected(client: Client) -> None:
    content, _ = await compiled(client, KERNEL + CALL, cases=["large"])
    assert content["kind"] == "rejected"
    assert "no task is given" in content["summary"]
    assert "leave out cases" in content["next_step"]


async def test_lines_to_look_at_are_those_of_the_file_and_all_lines_are_an_artifact(client: Client) -> None:
    # Four elements a program: no thread can move 16 bytes.
    content, text = await compiled(client, replaced(KERNEL, "block = 1024", "block = 4") + CALL)
    (launch,) = content["launches"]
    (line,) = (number for number, code in enumerate(KERNEL.splitlines(), 1) if "tl.load(" in code)
    narrow = next(place for place in launch["places"] if place["what"] == "narrow-load")
    assert narrow["line"] == line
    assert f"line {line} narrow-load" in text
    (uri,) = (uri for uri in content["artifacts"] if uri.endswith("lines.json"))
    (part,) = (await client.read_resource(uri)).contents
    assert isinstance(part, TextResourceContents)
    assert any(site["line"] == line and site["kind"] == "load" for site in json.loads(part.text)["ptx"])
